"""Leaves of draws: read when they are indexed, put together by their paths."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from symjax import trees
from symjax.store.arrays import Group
from symjax.types import Params


@dataclass(frozen=True, eq=False)
class StoredLeaf:
    """Committed draws `(chain, draw, ...)` of one leaf, read when they are indexed.

    Attributes:
        group: The arrays of the run.
        path: Of the leaf.
        num_draws: Draws that were committed.
    """

    group: Group
    path: str
    num_draws: int

    @property
    def shape(self) -> tuple[int, ...]:
        """`(chain, draw, ...)`."""
        entry = self.group.leaves[self.path].shape
        return (self.group.num_chains, self.num_draws, *entry)

    @property
    def dtype(self) -> Any:
        """Of the draws."""
        return self.group.leaves[self.path].dtype

    def __getitem__(self, index: tuple[int, slice]) -> np.ndarray:
        """The draws `(draw, ...)` of one chain, `[chain, draws]`."""
        chain, draws = index
        return self.group.read([self.path], chain, draws, self.num_draws)[0][0]


def builder(paths: list[str], like: Params) -> Callable[[list[Any]], Params]:
    """What makes a pytree of one value for each leaf.

    Args:
        paths: Of the leaves of a run.
        like: A pytree whose structure it takes; None for a nest of dicts.

    Raises:
        ValueError: if `like` has other leaves.
    """
    if like is None:
        return lambda values: _nest(dict(zip(paths, values, strict=True)))
    if trees.paths(like) != paths:
        raise ValueError(
            f"`like` must have the leaves of the run, {paths}, got {trees.paths(like)}."
        )
    return partial(jax.tree.unflatten, jax.tree.structure(like))


def _nest(leaves: dict[str, Any]) -> Any:
    """Nested dicts by path; the empty path is the leaf itself."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        if not path:
            return leaf
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree
