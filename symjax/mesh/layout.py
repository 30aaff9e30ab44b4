"""The mesh of devices, and what is put on it."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array

from symjax.types import Data


Tree = TypeVar("Tree")


def make_mesh(
    num_chains: int,
    devices: Sequence[Any] | None = None,
    shape: tuple[int, int] | None = None,
) -> Mesh:
    """A mesh over `devices` that splits chains first and examples with what is left.

    The chain axis takes the largest number of devices that divides both the number of
    devices and the number of chains; every group of devices along the data axis then
    works on the same chains. Of several hosts each group is within one if it fits: to
    add up a gradient over hosts takes several times as long.

    Args:
        num_chains: Chains to be run.
        devices: Devices to use; those of all hosts by default.
        shape: `(chain, data)`, where this rule is not wanted.

    Returns:
        A mesh of shape `(chain, data)`.

    Raises:
        ValueError: if `num_chains` is not positive, or `shape` does not fit.
    """
    if num_chains < 1:
        raise ValueError(f"`num_chains` must be at least 1, got {num_chains}.")
    devices = jax.devices() if devices is None else list(devices)
    num_groups = math.gcd(num_chains, len(devices))
    shapes = [(i, len(devices) // i) for i in divisors(num_groups)]
    if shape is None:
        shape = shapes[-1]
    elif shape not in shapes:
        fitting = "; ".join(f"chain={chain},data={data}" for chain, data in shapes)
        raise ValueError(
            f"`mesh` must share {num_chains} chains out over {len(devices)} devices, "
            f"got chain={shape[0]},data={shape[1]}. These fit: {fitting}."
        )
    axes, kinds = ("chain", "data"), (AxisType.Auto, AxisType.Auto)
    per_host = Counter(device.process_index for device in devices)
    if len(per_host) > 1 and all(count % shape[1] == 0 for count in per_host.values()):
        # In the order of the hosts, which `jax.make_mesh` may give up for the network.
        ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
        return Mesh(np.array(ordered).reshape(shape), axes, axis_types=kinds)
    return jax.make_mesh(shape, axes, axis_types=kinds, devices=devices)


def parse_shape(word: str) -> tuple[int, int]:
    """The shape that is typed as `chain=4,data=8`.

    Raises:
        ValueError: if it is none.
    """
    match = re.fullmatch(r"chain=(\d+),data=(\d+)", word)
    if match is None:
        raise ValueError(f"`mesh` must be like chain=4,data=8, got {word!r}.")
    return int(match[1]), int(match[2])


def place_chains(mesh: Mesh, tree: Tree) -> Tree:
    """Put a pytree with a leading chain axis on the mesh, split over its chain axis.

    Args:
        mesh: From `make_mesh`.
        tree: Arrays `(chain, ...)`, the same ones on all hosts.

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
    sharding = NamedSharding(mesh, P("chain"))
    if not mesh.is_multi_process:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: _distribute(leaf, sharding, len(leaf)), tree)


def place_data(mesh: Mesh, data: Data) -> Data:
    """Put examples on the mesh, split over its data axis, padded where needed.

    Args:
        mesh: From `make_mesh`.
        data: All examples, on the host or on one device; of several hosts, each one
            puts its own rows on its devices, and need not keep the others. What lies on
            such a mesh already stays as it is.

    Returns:
        The examples on the devices, followed by as many masked rows as make the number
        of rows a multiple of the data axis.
    """
    num_padding = -len(data.mask) % mesh.shape["data"]
    sharding = NamedSharding(mesh, P("data"))
    if isinstance(data.mask, jax.Array) and not data.mask.is_fully_addressable:
        return jax.device_put(data, sharding)
    if mesh.is_multi_process:
        num_rows = len(data.mask) + num_padding
        mask = np.concatenate([np.asarray(data.mask), np.zeros(num_padding, bool)])
        return jax.tree.map(
            lambda leaf: _distribute(leaf, sharding, num_rows), data._replace(mask=mask)
        )

    def pad(leaf: Array | np.ndarray) -> np.ndarray:
        return _rows(np.asarray(leaf), slice(0, len(leaf) + num_padding))

    padded = data if num_padding == 0 else jax.tree.map(pad, data)
    if num_padding:
        padded.mask[-num_padding:] = False
    return jax.device_put(padded, sharding)


def _distribute(leaf: Any, sharding: NamedSharding, num_rows: int) -> jax.Array:
    """An array over several hosts, of which each puts its own rows on its devices."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _distribute(jax.random.key_data(leaf), sharding, num_rows)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)

    def rows_of(index: Any) -> np.ndarray:
        return _rows(host, slice(*index[0].indices(num_rows)[:2]))

    return jax.make_array_from_callback((num_rows, *host.shape[1:]), sharding, rows_of)


def _rows(leaf: np.ndarray, rows: slice) -> np.ndarray:
    """Rows of a whole, of which those past its end are copies of the first.

    They are harmless in any model, where zeros may not be.
    """
    num_padding = max(0, rows.stop - max(rows.start, len(leaf)))
    return np.concatenate([leaf[rows], np.repeat(leaf[:1], num_padding, axis=0)])


def divisors(number: int) -> list[int]:
    """All of them, from 1 on."""
    return [i for i in range(1, number + 1) if number % i == 0]
