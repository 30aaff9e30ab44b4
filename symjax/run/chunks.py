"""The compiled part of a run: a start, and chunks of iterations on the mesh."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from symjax import mesh as meshes, trees
from symjax.types import Algorithm, Approximation, Data, Key, Keys, Params


CHUNK_BYTES = 32 * 2**20
"""Draws that a chunk holds on the device, for each chain."""
MAX_CHUNK_DRAWS = 256
MIN_CHUNK_ITERATIONS = 4096


class Plan(NamedTuple):
    """Iterations: first those that are not kept, then `thinning` for each draw.

    At iteration `restart_at`, if there is one, stuck chains are restarted.
    """

    num_discarded: int
    num_draws: int
    thinning: int
    restart_at: int | None = None

    @property
    def num_iterations(self) -> int:
        """All iterations, kept or not."""
        return self.num_discarded + self.num_draws * self.thinning

    @property
    def kept(self) -> range:
        """The iterations (from 0) after which a draw is kept."""
        first = self.num_discarded + self.thinning - 1
        return range(first, self.num_iterations, self.thinning)

    def num_kept(self, iteration: int) -> int:
        """Draws kept in the first `iteration` iterations."""
        return max(0, iteration - self.num_discarded) // self.thinning

    def next_chunk(self, iteration: int, most: int, num_slots: int) -> tuple[int, int]:
        """How many slots, of how many iterations each, within `most` iterations."""
        left = self.num_discarded - iteration
        if self.restart_at is not None and iteration < self.restart_at:
            left = self.restart_at - iteration
        if left > 0:
            return 1, min(left, most)
        left = (self.num_iterations - iteration) // self.thinning
        return max(1, min(left, most // self.thinning, num_slots)), self.thinning


class Programs(NamedTuple):
    """The compiled programs of a run and what they are called with.

    `keys` are `(chain, 4)`: of the start, the steps, the draws of a fitted member, and
    its finish. `finish` is that of an approximation with one. `compiled` makes another
    program of chains, of a function and its arguments' specs. `sharding` is that of the
    states, by chains.
    """

    init: Any
    advance: Any
    finish: Callable[..., Any] | None
    compiled: Callable[..., Any]
    key: Key
    keys: Keys
    params: Params
    data: Any
    state_shape: Any
    info_shape: Any
    num_slots: int
    capacity: int
    sharding: NamedSharding


def compile_chunks(
    key: Key,
    algorithm: Algorithm | Approximation,
    params: Params,
    data: Any,
    plan: Plan,
    mesh: Mesh | None,
    chains_at_once: int | None = None,
) -> Programs:
    """Place parameters, data and keys on the mesh and build the programs for them.

    Raises:
        ValueError: if chains that look at one another are to be computed in groups.
    """
    num_chains = _count_chains(params)
    mesh = meshes.make_mesh(num_chains) if mesh is None else mesh
    params = meshes.place_chains(mesh, jax.tree.map(jnp.asarray, params))
    data_spec = P("data") if isinstance(data, Data) else P()
    data = meshes.place_data(mesh, data) if isinstance(data, Data) else data
    state_shape, info_shape = _shapes(algorithm, key, params, data)
    num_slots, capacity = _room(state_shape.position, plan)
    specs = (P("chain"), P("chain"), data_spec)
    compiled: Any = partial(
        meshes.compile_for_chains, mesh, chains_at_once=chains_at_once
    )
    block = _advance_block(algorithm.step, info_shape, num_slots, capacity)
    advance = compiled(block, *specs, P(), P(), P(), donate_argnums=1)
    init = compiled(_init_block(algorithm.init), *specs)
    finish = getattr(algorithm, "finish", None)
    if finish is not None:
        finish = compiled(_finish_block(finish), *specs)
    keys = meshes.place_chains(mesh, _keys(key, num_chains))
    # What the algorithm says of the number of chains, it says before a run is laid out.
    try:
        state, *_ = init.eval_shape(keys[:, 0], params, data)
        if chains_at_once is not None:
            advance.eval_shape(keys[:, 1], state, data, 0, 1, 1)
    except meshes.ChainsMeet:
        raise ValueError(
            f"`chains_at_once` must be left out for {algorithm.step.__module__}, whose "
            "chains look at one another and so are computed together. To take less "
            "memory, use more devices, or give the log density a `micro_batch`."
        ) from None
    return Programs(
        init,
        advance,
        finish,
        compiled,
        key,
        keys,
        params,
        data,
        state_shape,
        info_shape,
        num_slots,
        capacity,
        NamedSharding(mesh, P("chain")),
    )


def _keys(key: Key, num_chains: int) -> Keys:
    """Of each chain four, whatever the number of the others."""
    chain_keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(num_chains))
    return jax.vmap(partial(jax.random.split, num=4))(chain_keys)


def _room(draw: Params, plan: Plan) -> tuple[int, int]:
    """How many draws of a chain, and how many iterations, a chunk has room for."""
    most = CHUNK_BYTES // trees.num_bytes(draw)
    num_slots = max(1, min(most, MAX_CHUNK_DRAWS, plan.num_draws))
    return num_slots, max(num_slots * plan.thinning, MIN_CHUNK_ITERATIONS)


def _shapes(
    algorithm: Algorithm | Approximation, key: Key, params: Params, data: Any
) -> tuple[Any, Any]:
    """Of the state and the Info of one chain."""

    def first_step(key: Key, params: Params, data: Any) -> Any:
        state = algorithm.init(key, params, data)
        return algorithm.step(key, state, data)

    def one_of(params: Params) -> Params:
        return jax.tree.map(lambda leaf: leaf[0], params)

    # To index an array, other than in a trace, would compute on all hosts.
    return jax.eval_shape(first_step, key, jax.eval_shape(one_of, params), data)


def _init_block(init: Callable[..., Any]) -> Callable[..., Any]:
    """States of a device's chains, whether they are finite, whether devices differ."""

    def block(keys: Keys, params: Params, data: Any) -> Any:
        state = meshes.vmap_chains(init, (0, 0, None))(keys, params, data)
        # A weakly typed start would have the loop traced again for the strong type.
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)
        differs = meshes.differs_along_data(state)
        return state, all_finite(state), jnp.full(len(keys), differs)

    return block


def _advance_block(
    step: Callable[..., Any], info_shape: Any, num_slots: int, capacity: int
) -> Callable[..., Any]:
    """Iterations of a device's chains, with trip counts known only when it runs.

    One compiled program thus serves warm-up and sampling, short chunks and long ones.
    """

    def block(
        keys: Keys, state: Any, data: Any, first: Any, slots: Any, per_slot: Any
    ) -> Any:
        num_chains = len(keys)

        def buffer(leaf: Any, length: int) -> Any:
            return jnp.zeros((num_chains, length, *leaf.shape), leaf.dtype)

        def iterate(index: Any, carry: Any) -> Any:
            state, infos = carry
            step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, first + index)
            step_all = meshes.vmap_chains(step, (0, 0, None))
            state, info = step_all(step_keys, state, data)
            return state, _write(infos, info, index)

        def fill_slot(slot: Any, carry: Any) -> Any:
            state, draws, infos, is_finite = carry
            state, infos = jax.lax.fori_loop(
                slot * per_slot, (slot + 1) * per_slot, iterate, (state, infos)
            )
            draws = _write(draws, state.position, slot)
            finite = all_finite(state.position)
            return state, draws, infos, _write(is_finite, finite, slot)

        one = jax.tree.map(lambda leaf: leaf[0], state.position)
        carry = (
            state,
            jax.tree.map(lambda leaf: buffer(leaf, num_slots), one),
            jax.tree.map(lambda leaf: buffer(leaf, capacity), info_shape),
            jnp.ones((num_chains, num_slots), bool),
        )
        return jax.lax.fori_loop(0, slots, fill_slot, carry)

    return block


def _finish_block(finish: Callable[..., Any]) -> Callable[..., Any]:
    """What a device's members are fitted to, and whether it is finite."""

    def block(keys: Keys, state: Any, data: Any) -> Any:
        fitted = meshes.vmap_chains(finish, (0, 0, None))(keys, state, data)
        return fitted, all_finite(fitted)

    return block


def _write(buffers: Any, values: Any, index: Any) -> Any:
    return jax.tree.map(lambda b, v: b.at[:, index].set(v), buffers, values)


def all_finite(tree: Any) -> Any:
    """Whether all numbers of each chain are finite, `(chain,)`."""
    leaves = [
        jnp.all(jnp.isfinite(leaf), axis=range(1, leaf.ndim))
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    return jnp.all(jnp.stack(leaves), axis=0)


def _count_chains(params: Params) -> int:
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    if len(counts) != 1 or () in counts:
        raise ValueError(
            "`params` must have one leading chain axis on every leaf, got leading "
            f"sizes {sorted(counts)}. Stack the chains' starts with `trees.stack`."
        )
    return counts.pop()[0]
