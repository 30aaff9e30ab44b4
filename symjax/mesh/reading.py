"""The one place where values of the mesh are read by its hosts."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils


class Own(NamedTuple):
    """What a host reads.

    Attributes:
        chains: Which chains; None for all.
        values: Pytree of NumPy arrays `(chain, ...)` of these.
    """

    chains: np.ndarray | None
    values: Any


def read_own(tree: Any) -> Own:
    """The chains that this host is to read: each chain is read by one host.

    Args:
        tree: Arrays `(chain, ...)`, all of them split over the chain axis of one mesh.
    """
    leaves = jax.tree.leaves(tree)
    if all(leaf.is_fully_addressable for leaf in leaves):
        return Own(None, jax.tree.map(np.asarray, tree))
    chains = [np.arange(leaves[0].shape[0])[one.index[0]] for one in _shards(leaves[0])]
    return Own(np.concatenate([*chains, np.empty(0, int)]), jax.tree.map(_read, tree))


def read_all(tree: Any) -> Own:
    """All chains, on every host. To be called by all hosts.

    Args:
        tree: As for `read_own`.
    """
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return Own(None, jax.tree.map(np.asarray, tree))
    gathered = multihost_utils.process_allgather(tree, tiled=True)
    return Own(None, jax.tree.map(np.asarray, gathered))


def _shards(leaf: jax.Array) -> list[Any]:
    """This host's parts, in order; of copies on several devices the first one."""
    first = [shard for shard in leaf.addressable_shards if shard.replica_id == 0]
    return sorted(first, key=lambda shard: shard.index[0].start or 0)


def _read(leaf: jax.Array) -> np.ndarray:
    none = np.empty((0, *leaf.shape[1:]), leaf.dtype)
    return np.concatenate([*(np.asarray(one.data) for one in _shards(leaf)), none])
