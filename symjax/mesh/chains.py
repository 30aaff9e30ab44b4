"""What runs on the mesh, and what its chains know of each other."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Int


Tree = TypeVar("Tree")

ChainAxis: TypeAlias = Literal[0] | None
"""Whether an argument leads with chains."""

_BLOCK = "chain_of_block"
"""The vmapped axis over the chains of one device that are computed together."""

_GROUPS = "group"
"""The groups that all chains are computed in, where they are. Nothing lies along this
axis: its name is how code of a chain knows of it."""


class ChainsMeet(ValueError):
    """Chains that are computed in groups were to look at all others."""


def map_chains(mesh: Mesh, function: Callable[..., Any], *specs: P) -> Callable:
    """Run `function` on every device's own block of chains and examples.

    Args:
        mesh: From `make_mesh`.
        function: Takes blocks of its arguments, returns a pytree whose leaves lead
            with the block's chains and are equal along the data axis.
        *specs: How each argument is split: `P("chain")`, `P("data")` or `P()`.

    Returns:
        A function of whole arrays.
    """
    return jax.shard_map(
        function, mesh=mesh, in_specs=specs, out_specs=P("chain"), check_vma=False
    )


def vmap_chains(
    function: Callable[..., Any], in_axes: ChainAxis | tuple[ChainAxis, ...]
) -> Callable[..., Any]:
    """`jax.vmap` over a device's block of chains, which then know of each other.

    A block of a single chain is computed without the axis: the products of one network
    in a batch of one take a GPU up to 1.4 times as long.

    Args:
        function: Of one chain.
        in_axes: 0 for each argument that leads with chains, None for each that does
            not; one of them for all arguments.
    """

    def block(*arguments: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(arguments)
        pairs = list(zip(arguments, axes, strict=True))
        sizes = {
            len(leaf)
            for argument, axis in pairs
            if axis == 0
            for leaf in jax.tree.leaves(argument)
        }
        if sizes != {1}:
            return jax.vmap(function, in_axes, axis_name=_BLOCK)(*arguments)
        alone = [
            jax.tree.map(lambda leaf: leaf[0], argument) if axis == 0 else argument
            for argument, axis in pairs
        ]
        return _as_block(_named(_BLOCK, 1, function)(*alone))

    return block


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
    index = jnp.array(0) if _is_alone() else jax.lax.axis_index(_BLOCK)
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
        return _as_block(tree)
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


def in_groups(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The function, for one group of chains among so many."""
    return _named(_GROUPS, number, function)


def _named(axis: str, size: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name of an axis along which nothing lies."""
    named: Any = {"axis_name": axis, "axis_size": size}
    return jax.vmap(function, in_axes=None, out_axes=None, **named)


def _as_block(tree: Any) -> Any:
    """One chain as a block of chains."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def _is_alone() -> bool:
    """Whether a block is of one chain."""
    return jax.lax.axis_size(_BLOCK) == 1


def _knows(axis: str) -> bool:
    try:
        jax.lax.axis_size(axis)
    except NameError:
        return False
    return True


def _require_all_together() -> None:
    """Require chains that can look at one another.

    Raises:
        ChainsMeet: if they are computed in groups.
    """
    if _knows(_GROUPS):
        raise ChainsMeet("Chains that look at one another are computed together.")
