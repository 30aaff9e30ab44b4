"""Draws of a leaf, in memory or on a disk, a piece at a time."""

import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Integer, Shaped


_PIECE_BYTES = 2**26


@runtime_checkable
class Leaf(Protocol):
    """Draws `(chain, draw, ...)` of one leaf: an array, or what reads one.

    Such as `store.StoredLeaf`. Indexed by `[chain, slice]` it gives an array of the
    draws in that slice.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """`(chain, draw, ...)`."""
        ...

    @property
    def dtype(self) -> Any:
        """Of the draws."""
        ...

    def __getitem__(self, index: Any, /) -> Any: ...


def pieces(
    leaf: Leaf,
) -> Iterator[tuple[int, slice, Shaped[np.ndarray, "row quantity"]]]:
    """All draws, in order, some 64 MB at a time and at least one draw.

    Yields:
        The chain, which of its draws, and these with their own axes made one.
    """
    num_chains, num_draws, *shape = leaf.shape
    size = math.prod(shape)
    rows = max(1, _PIECE_BYTES // max(1, size * leaf.dtype.itemsize))
    for chain in range(num_chains):
        for start in range(0, num_draws, rows):
            draws = slice(start, min(start + rows, num_draws))
            values = np.asarray(leaf[chain, draws])
            yield chain, draws, values.reshape(draws.stop - start, size)


def take(
    leaf: Leaf, columns: Integer[np.ndarray, " column"]
) -> Shaped[np.ndarray, "chain draw column"]:
    """The draws of some quantities of a leaf.

    Args:
        leaf: The leaf.
        columns: Their places, counted over the axes behind (chain, draw) made one.
    """
    taken = np.empty((*leaf.shape[:2], len(columns)), leaf.dtype)
    for chain, draws, values in pieces(leaf):
        taken[chain, draws] = values[:, columns]
    return taken
