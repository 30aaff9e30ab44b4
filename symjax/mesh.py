"""Where chains and data live: a mesh of devices with the axes `("chain", "data")`.

Several chains on one device are vmapped; one chain over several devices shares the
examples out between them. Everything that runs on the mesh runs inside one
`shard_map` over both axes (`map_chains`), so that a log density over sharded data must
sum its per-device part once, with `sum_over_data`. Outside the mesh that is the
identity, and the same code works on one device.

Code of one chain may look at the others inside `vmap_chains`: `sum_over_chains`,
`gather_chains`, `chain_index`. A chain that runs outside it is alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array, Bool, Int

from symjax.types import Data


Tree = TypeVar("Tree")

_BLOCK = "chain_of_block"
"""The vmapped axis over the chains of one device."""

NO_EXAMPLE = -1
"""An index that stands for no example."""


def make_mesh(num_chains: int, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh over `devices` that splits chains first and examples with what is left.

    The chain axis takes the largest number of devices that divides both the number of
    devices and the number of chains; every group of devices along the data axis then
    works on the same chains.

    Args:
        num_chains: Chains to be run.
        devices: Devices to use; all of them by default.

    Returns:
        A mesh of shape `(chain, data)`.

    Raises:
        ValueError: if `num_chains` is not positive.
    """
    if num_chains < 1:
        raise ValueError(f"`num_chains` must be at least 1, got {num_chains}.")
    devices = jax.devices() if devices is None else list(devices)
    num_groups = math.gcd(num_chains, len(devices))
    return jax.make_mesh(
        (num_groups, len(devices) // num_groups),
        ("chain", "data"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices,
    )


def place_chains(mesh: Mesh, tree: Tree) -> Tree:
    """Put a pytree with a leading chain axis on the mesh, split over its chain axis.

    Args:
        mesh: From `make_mesh`.
        tree: Arrays `(chain, ...)`.

    Returns:
        The same values, on the devices.

    Raises:
        ValueError: if the number of chains is not a multiple of the mesh's chain axis.
    """
    for leaf in jax.tree.leaves(tree):
        if leaf.ndim == 0 or leaf.shape[0] % mesh.shape["chain"]:
            raise ValueError(
                f"`tree` must have a leading chain axis that {mesh.shape['chain']} "
                f"groups of devices divide, got shape {leaf.shape}. Make the mesh "
                "with `make_mesh(num_chains)` of the same number of chains."
            )
    return jax.device_put(tree, NamedSharding(mesh, P("chain")))


def place_data(mesh: Mesh, data: Data) -> Data:
    """Put examples on the mesh, split over its data axis, padded where needed.

    Args:
        mesh: From `make_mesh`.
        data: All examples, on the host or on one device.

    Returns:
        The examples on the devices, followed by as many masked rows as make the number
        of rows a multiple of the data axis.
    """
    num_padding = -len(data.mask) % mesh.shape["data"]

    def pad(leaf: Array | np.ndarray) -> np.ndarray:
        host = np.asarray(leaf)
        # A copy of the first row is harmless in any model, where zeros may not be.
        return np.concatenate([host, np.repeat(host[:1], num_padding, axis=0)])

    padded = data if num_padding == 0 else jax.tree.map(pad, data)
    if num_padding:
        padded.mask[-num_padding:] = False
    return jax.device_put(padded, NamedSharding(mesh, P("data")))


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


def vmap_chains(function: Callable[..., Any], in_axes: Any) -> Callable[..., Any]:
    """`jax.vmap` over a device's block of chains, which then know of each other."""
    return jax.vmap(function, in_axes, axis_name=_BLOCK)


def knows_chains() -> bool:
    """Whether this runs inside `vmap_chains`."""
    try:
        jax.lax.axis_size(_BLOCK)
    except NameError:
        return False
    return True


def num_chains() -> int:
    """How many chains run together; 1 outside `vmap_chains`."""
    if not knows_chains():
        return 1
    return jax.lax.axis_size(_BLOCK) * _num_groups()


def chain_index() -> Int[Array, ""]:
    """Which of all chains this one is, from 0."""
    if not knows_chains():
        return jnp.array(0)
    index = jax.lax.axis_index(_BLOCK)
    if _is_mapped():
        index += jax.lax.axis_index("chain") * jax.lax.axis_size(_BLOCK)
    return index


def sum_over_chains(tree: Tree) -> Tree:
    """Add up over all chains: equal in each of them, and known to be.

    Args:
        tree: Each chain's own arrays.
    """
    if not knows_chains():
        return tree
    total = jax.lax.psum(tree, _BLOCK)
    return jax.lax.psum(total, "chain") if _is_mapped() else total


def gather_chains(tree: Tree) -> Tree:
    """The values of all chains, with a leading chain axis; all of them everywhere.

    Args:
        tree: Each chain's own arrays.
    """
    if not knows_chains():
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)
    block = jax.lax.all_gather(tree, _BLOCK)
    return jax.lax.all_gather(block, "chain", tiled=True) if _is_mapped() else block


def same_in_all_chains(value: Int[Array, ""]) -> Int[Array, ""]:
    """A whole number that every chain holds the same, as one for all of a device's.

    A `cond` or a loop that depends on it then runs one branch, where one that depends
    on each chain's own copy would run both.

    Args:
        value: Equal in all chains, such as the iteration.
    """
    return jax.lax.pmax(value, _BLOCK) if knows_chains() else value


def sum_over_data(tree: Tree) -> Tree:
    """Add up over the devices that share a chain's examples: one all-reduce.

    Args:
        tree: Each device's own sums.

    Returns:
        The sums over all devices of the data axis; `tree` itself outside the mesh.
    """
    if not _is_mapped():
        return tree
    return jax.lax.psum(tree, "data")


def differs_along_data(tree: Any) -> Bool[Array, ""]:
    """Whether devices that share a chain hold different values for it.

    A log density that sums over a device's own examples but never calls
    `sum_over_data` gives every device of a chain another value, which `shard_map`
    cannot see.
    """
    leaves = [
        leaf
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    if not _is_mapped() or not leaves:
        return jnp.array(False)
    low = jax.lax.pmin(leaves, "data")
    high = jax.lax.pmax(leaves, "data")
    # NaN differs from itself; a non-finite start is reported by its own check.
    differs = [jnp.any(a < b) for a, b in zip(low, high, strict=True)]
    return jnp.any(jnp.stack(differs))


def num_rows(data: Data) -> int:
    """Rows of all devices that share a chain's examples, padding included."""
    num_devices = jax.lax.axis_size("data") if _is_mapped() else 1
    return num_devices * len(data.mask)


def count_examples(data: Data) -> Int[Array, ""]:
    """Examples of all devices that share them: one all-reduce of a number."""
    return sum_over_data(jnp.sum(data.mask))


def row_numbers(data: Data) -> Int[Array, " example"]:
    """Where each of this device's rows is in the whole data set."""
    rows = jnp.arange(len(data.mask))
    return rows + jax.lax.axis_index("data") * len(rows) if _is_mapped() else rows


def take(data: Data, indices: Int[Array, " batch"]) -> Data:
    """The examples at global `indices`, shared out over the data axis.

    Inside the mesh every device owns other rows, so that each one contributes those it
    has and receives its share of the batch. The batch is then the same for any number
    of devices.

    Args:
        data: This device's examples.
        indices: Rows in the order of the whole data set, equal on all devices;
            `NO_EXAMPLE` gives a masked row.

    Returns:
        This device's part of the batch, padded with masked rows if needed.
    """
    if not _is_mapped():
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[indices], data)
        return batch._replace(mask=batch.mask & (indices != NO_EXAMPLE))
    num_devices = jax.lax.axis_size("data")
    num_rows = len(data.mask)
    local = indices - jax.lax.axis_index("data") * num_rows
    local = jnp.pad(local, (0, -len(indices) % num_devices), constant_values=-1)
    owned = (local >= 0) & (local < num_rows)

    def exchange(leaf: Array) -> Array:
        rows = leaf[jnp.clip(local, 0, num_rows - 1)]
        keep = owned.reshape(-1, *[1] * (leaf.ndim - 1))
        as_number = rows.astype(jnp.int32) if leaf.dtype == bool else rows
        summed = jax.lax.psum_scatter(jnp.where(keep, as_number, 0), "data", tiled=True)
        return summed.astype(leaf.dtype)

    return jax.tree.map(exchange, data)


def take_every(data: Data, index: Int[Array, ""] | int, stride: int) -> Data:
    """Every `stride`-th example of the whole data set, from the one at `index` on.

    No example changes its device. What is taken does not depend on how many there are.

    Args:
        data: This device's examples.
        index: Less than `stride`.
        stride: Between two examples.

    Returns:
        Those of them that this device has, padded with masked rows.
    """
    num_rows = len(data.mask)
    before = row_numbers(data)[0]
    rows = (index - before) % stride + stride * jnp.arange(-(-num_rows // stride))
    taken = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows % num_rows], data)
    return taken._replace(mask=taken.mask & (rows < num_rows))


def _num_groups() -> int:
    return jax.lax.axis_size("chain") if _is_mapped() else 1


def _is_mapped() -> bool:
    return "data" in jax.sharding.get_abstract_mesh().manual_axes
