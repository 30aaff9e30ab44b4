"""What a log density on the mesh does with its share of the examples."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from symjax.mesh.chains import is_mapped
from symjax.types import Data


Tree = TypeVar("Tree")

NO_EXAMPLE = -1
"""An index that stands for no example."""


def sum_over_data(tree: Tree) -> Tree:
    """Add up over the devices that share a chain's examples: one all-reduce.

    Args:
        tree: Each device's own sums.

    Returns:
        The sums over all devices of the data axis; `tree` itself outside the mesh.
    """
    if not is_mapped():
        return tree
    return jax.lax.psum(tree, "data")


def gather_over_data(tree: Tree) -> Tree:
    """What each of the devices that share a chain's examples has: one all-reduce.

    Args:
        tree: Each device's own arrays, small ones.

    Returns:
        The same with a leading device axis, equal on all devices; of one device outside
        the mesh.
    """
    if not is_mapped():
        return jax.tree.map(lambda leaf: leaf[None], tree)
    here = jnp.arange(jax.lax.axis_size("data")) == jax.lax.axis_index("data")

    def alone(leaf: Array) -> Array:
        at = here.reshape(-1, *[1] * jnp.ndim(leaf))
        return jnp.where(at, leaf, jnp.zeros_like(leaf))

    return jax.lax.psum(jax.tree.map(alone, tree), "data")


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
    if not is_mapped() or not leaves:
        return jnp.array(False)
    low = jax.lax.pmin(leaves, "data")
    high = jax.lax.pmax(leaves, "data")
    # NaN differs from itself; a non-finite start is reported by its own check.
    differs = [jnp.any(a < b) for a, b in zip(low, high, strict=True)]
    return jnp.any(jnp.stack(differs))


def num_rows(data: Data) -> int:
    """Rows of all devices that share a chain's examples, padding included."""
    num_devices = jax.lax.axis_size("data") if is_mapped() else 1
    return num_devices * len(data.mask)


def count_examples(data: Data) -> Int[Array, ""]:
    """Examples of all devices that share them: one all-reduce of a number."""
    return sum_over_data(jnp.sum(data.mask))


def row_numbers(data: Data) -> Int[Array, " example"]:
    """Where each of this device's rows is in the whole data set."""
    rows = jnp.arange(len(data.mask))
    return rows + jax.lax.axis_index("data") * len(rows) if is_mapped() else rows


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
    if not is_mapped():
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
