"""Inputs a batch at a time."""

from collections.abc import Iterator
from typing import Any

import jax


def batches(x: Any, size: int) -> Iterator[tuple[Any, float]]:
    """Successive rows of every leaf, and their share of all; the last may be fewer.

    Raises:
        ValueError: If there are no rows.
    """
    num_rows = len(jax.tree.leaves(x)[0])
    if num_rows == 0:
        raise ValueError("`x` must hold at least one example; it holds none.")
    for start in range(0, num_rows, size):
        stop = min(start + size, num_rows)
        rows = slice(start, stop)
        yield (
            jax.tree.map(lambda leaf, rows=rows: leaf[rows], x),
            (stop - start) / num_rows,
        )
