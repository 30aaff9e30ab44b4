"""Chains that are computed in groups, each by a program of few devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from symjax import checks
from symjax.mesh.chains import in_groups, map_chains
from symjax.mesh.layout import divisors


def compile_for_chains(
    mesh: Mesh,
    function: Callable[..., Any],
    *specs: P,
    chains_at_once: int | None = None,
    **options: Any,
) -> Any:
    """`jax.jit` of `map_chains`, or the same computed in groups of chains.

    Args:
        mesh: From `make_mesh`.
        function: As for `map_chains`.
        *specs: How each argument is split, the first one by chains.
        chains_at_once: Of a group; None for all chains of a device, which then may look
            at one another.
        **options: Of `jax.jit`, for all chains at once.

    Returns:
        A function of whole arrays, with `eval_shape`.
    """
    if chains_at_once is None:
        return jax.jit(map_chains(mesh, function, *specs), **options)
    checks.at_least(1, chains_at_once=chains_at_once)
    return Groups(mesh, function, specs, int(chains_at_once))


def check_groups(mesh: Mesh, num_chains: int, chains_at_once: int) -> None:
    """Require groups that share the chains of a device out evenly.

    Args:
        mesh: From `make_mesh`.
        num_chains: Of the whole run.
        chains_at_once: Of a group.

    Raises:
        ValueError: if they do not.
    """
    each = num_chains // mesh.shape["chain"]
    if chains_at_once not in divisors(each):
        fitting = ", ".join(map(str, divisors(each)))
        raise ValueError(
            f"`chains_at_once` must divide the {each} chains of a device, got "
            f"{chains_at_once}. These fit: {fitting}."
        )


class Groups:
    """A function of chains, called for one group of them after another.

    The devices that share a chain run its group by a program of their own, which is the
    same one for every number of groups and of other devices. (A loop over groups in one
    program for all devices is not: how far XLA simplifies what stands in it depends on
    their numbers.) The price is that such a program is compiled for each of them.

    Only one group's memory is taken at a time.
    """

    def __init__(
        self,
        mesh: Mesh,
        function: Callable[..., Any],
        specs: tuple[P, ...],
        size: int,
    ) -> None:
        self._mesh, self._function = mesh, function
        self._specs, self._size = specs, size
        here = jax.process_index()
        # Of the devices of other hosts, those alone that share a chain with ours.
        self._rows = [
            Mesh(row[None], mesh.axis_names, axis_types=mesh.axis_types)
            for row in mesh.devices
            if any(device.process_index == here for device in row)
        ]
        self._programs: list[Any] = []

    def eval_shape(self, *arguments: Any) -> Any:
        """The shapes of what is returned."""
        number = self._prepare(arguments)
        size = self._size

        def shape(leaf: Any, *shape: int) -> Any:
            return jax.ShapeDtypeStruct((*shape, *leaf.shape[1:]), leaf.dtype)

        group = [
            jax.tree.map(lambda leaf: shape(leaf, size), argument)
            if spec == P("chain")
            else argument
            for argument, spec in zip(arguments, self._specs, strict=True)
        ]
        made = self._programs[0].eval_shape(*group)
        return jax.tree.map(lambda leaf: shape(leaf, number), made)

    def __call__(self, *arguments: Any) -> Any:
        """All chains' results, on the mesh."""
        number = self._prepare(arguments)
        each = number // self._mesh.shape["chain"]
        own = [
            [
                jax.tree.map(partial(self._of_row, row, spec), argument)
                for argument, spec in zip(arguments, self._specs, strict=True)
            ]
            for row in self._rows
        ]
        made = [[] for _ in self._rows]
        for start in range(0, each, self._size):
            for i in range(len(self._rows)):
                group = [
                    _take(argument, start, self._size)
                    if spec == P("chain")
                    else argument
                    for argument, spec in zip(own[i], self._specs, strict=True)
                ]
                made[i].append(self._programs[i](*group))
            # The next group would else have its memory already.
            jax.block_until_ready(made)
        whole = [parts[0] if len(parts) == 1 else _join(parts) for parts in made]
        return jax.tree.map(partial(self._of_all, number), *whole)

    def _prepare(self, arguments: tuple[Any, ...]) -> int:
        """How many chains there are; makes the programs, which know it."""
        number = jax.tree.leaves(arguments[0])[0].shape[0]
        if not self._programs:
            check_groups(self._mesh, number, self._size)
            function = in_groups(self._function, number // self._size)
            self._programs = [
                jax.jit(map_chains(row, function, *self._specs)) for row in self._rows
            ]
        return number

    def _of_row(self, row: Mesh, spec: P, leaf: Any) -> Any:
        """The part of an argument that the devices of a row have."""
        if spec == P():
            is_placed = isinstance(leaf, jax.Array)
            return jax.device_put(leaf, NamedSharding(row, spec)) if is_placed else leaf
        wanted = NamedSharding(self._mesh, spec)
        if not leaf.sharding.is_equivalent_to(wanted, leaf.ndim):
            leaf = jax.device_put(leaf, wanted)
        shape = leaf.shape
        if spec == P("chain"):
            shape = (len(leaf) // self._mesh.shape["chain"], *shape[1:])
        parts = [s.data for s in leaf.addressable_shards if s.device in row.devices]
        return jax.make_array_from_single_device_arrays(
            shape, NamedSharding(row, spec), parts
        )

    def _of_all(self, number: int, *leaves: jax.Array) -> jax.Array:
        """The array over the whole mesh of which each row has made its part."""
        return jax.make_array_from_single_device_arrays(
            (number, *leaves[0].shape[1:]),
            NamedSharding(self._mesh, P("chain")),
            [shard.data for leaf in leaves for shard in leaf.addressable_shards],
        )


@partial(jax.jit, static_argnums=2)
def _take(tree: Any, start: Any, size: int) -> Any:
    rows = start + jnp.arange(size)
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@jax.jit
def _join(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
