"""What runs on the mesh, and what its chains know of each other."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int


Tree = TypeVar("Tree")

_BLOCK = "chain_of_block"
"""The vmapped axis over the chains of one device that are computed together."""

_GROUPS = "group_of_block"
"""The groups of such chains on a device, where there are any. Nothing lies along this
axis: to have a name is how code in a group knows of it."""

SAME_EVERYWHERE = {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"}
"""Options of `jax.jit` with which the arithmetic of groups does not depend on how many
there are, nor on how many devices. XLA else moves as many constants out of a loop as
its passes happen to reach, and rounds the products with them otherwise."""


def map_chains(
    mesh: Mesh,
    function: Callable[..., Any],
    *specs: P,
    chains_at_once: int | None = None,
) -> Callable:
    """Run `function` on every device's own block of chains and examples.

    A block of fewer chains takes less memory, and is compiled to the same arithmetic
    however many of them a device runs one after another.

    Args:
        mesh: From `make_mesh`.
        function: Takes blocks of its arguments, returns a pytree whose leaves lead
            with the block's chains and are equal along the data axis.
        *specs: How each argument is split: `P("chain")`, `P("data")` or `P()`.
        chains_at_once: Chains of a block, a divisor of those of a device; by default
            all of these. Where it is given, chains can't look at one another.

    Returns:
        A function of whole arrays.
    """
    if chains_at_once is not None:
        function = _in_groups(function, specs, chains_at_once)
    return jax.shard_map(
        function, mesh=mesh, in_specs=specs, out_specs=P("chain"), check_vma=False
    )


def vmap_chains(function: Callable[..., Any], in_axes: Any) -> Callable[..., Any]:
    """`jax.vmap` over a device's block of chains, which then know of each other."""
    return jax.vmap(function, in_axes, axis_name=_BLOCK)


def knows_chains() -> bool:
    """Whether this runs inside `vmap_chains`."""
    return _knows(_BLOCK)


def num_chains() -> int:
    """How many chains run together; 1 outside `vmap_chains`."""
    if not knows_chains():
        return 1
    groups = jax.lax.axis_size(_GROUPS) if _knows(_GROUPS) else 1
    devices = jax.lax.axis_size("chain") if is_mapped() else 1
    return jax.lax.axis_size(_BLOCK) * groups * devices


def chain_index() -> Int[Array, ""]:
    """Which of all chains this one is, from 0."""
    if not knows_chains():
        return jnp.array(0)
    _require_all_together()
    index = jax.lax.axis_index(_BLOCK)
    if is_mapped():
        index += jax.lax.axis_index("chain") * jax.lax.axis_size(_BLOCK)
    return index


def sum_over_chains(tree: Tree) -> Tree:
    """Add up over all chains: equal in each of them, and known to be.

    Args:
        tree: Each chain's own arrays.
    """
    if not knows_chains():
        return tree
    _require_all_together()
    total = jax.lax.psum(tree, _BLOCK)
    return jax.lax.psum(total, "chain") if is_mapped() else total


def gather_chains(tree: Tree) -> Tree:
    """The values of all chains, with a leading chain axis; all of them everywhere.

    Args:
        tree: Each chain's own arrays.
    """
    if not knows_chains():
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)
    _require_all_together()
    block = jax.lax.all_gather(tree, _BLOCK)
    return jax.lax.all_gather(block, "chain", tiled=True) if is_mapped() else block


def same_in_all_chains(value: Int[Array, ""]) -> Int[Array, ""]:
    """A whole number that every chain holds the same, as one for all of a device's.

    A `cond` or a loop that depends on it then runs one branch, where one that depends
    on each chain's own copy would run both.

    Args:
        value: Equal in all chains, such as the iteration.
    """
    return jax.lax.pmax(value, _BLOCK) if knows_chains() else value


def is_mapped() -> bool:
    """Whether this runs inside `map_chains`."""
    return "data" in jax.sharding.get_abstract_mesh().manual_axes


def is_split() -> bool:
    """Whether several devices share the examples of a chain.

    Where one has all of them, its program is that of a chain outside the mesh, with no
    trace of an axis that has no length.
    """
    return is_mapped() and jax.lax.axis_size("data") > 1


def _in_groups(
    function: Callable[..., Any], specs: tuple[P, ...], size: int
) -> Callable[..., Any]:
    """The function of a block, called for one group of its chains after another."""
    is_split = [spec == P("chain") for spec in specs]

    def block(*arguments: Any) -> Any:
        pairs = list(zip(arguments, is_split, strict=True))
        split = jax.tree.map(
            lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]),
            [argument for argument, split in pairs if split],
        )
        (number,) = {len(leaf) for leaf in jax.tree.leaves(split)}
        named: Any = {"axis_name": _GROUPS, "axis_size": number}
        alone = jax.vmap(function, in_axes=None, out_axes=None, **named)

        def one(index: Any) -> Any:
            group = jax.tree.map(lambda leaf: leaf[index], split)
            parts = iter(jax.lax.optimization_barrier(group))
            made = alone(*(next(parts) if split else whole for whole, split in pairs))
            return jax.lax.optimization_barrier(made)

        def write(index: Any, every: Any) -> Any:
            return jax.tree.map(lambda e, o: e.at[index].set(o), every, one(index))

        shapes = jax.eval_shape(one, 0)
        empty = jax.tree.map(
            lambda leaf: jnp.zeros((number, *leaf.shape), leaf.dtype), shapes
        )
        limit = jax.lax.optimization_barrier(number)
        made = jax.lax.fori_loop(0, limit, write, empty)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), made)

    return block


def _knows(axis: str) -> bool:
    try:
        jax.lax.axis_size(axis)
    except NameError:
        return False
    return True


def _require_all_together() -> None:
    """Require chains that can look at one another.

    Raises:
        ValueError: if they are computed in groups.
    """
    if _knows(_GROUPS):
        raise ValueError(
            "`chains_at_once` must be left out for a method whose chains look at one "
            "another: all of them have to be computed together. To take less memory, "
            "spread them over more devices, or give `micro_batch`."
        )
