"""The cost of moving one set of numbers onto another, in one dimension."""

import numpy as np
from jaxtyping import Float


_BLOCK_VALUES = 2**22


def mean_cost(
    one: Float[np.ndarray, "sample column"],
    two: Float[np.ndarray, "sample2 column"],
    order: int,
) -> Float[np.ndarray, " column"]:
    """The Wasserstein distance to the power of its order, of every column.

    The mean of `|F1^-1(u) - F2^-1(u)|^order` over `u` in (0, 1), with the quantiles
    `F^-1` of the samples, which may differ in number: exact, by sorting.
    """
    n, m = len(one), len(two)
    # Where one of the quantiles steps, in units of 1 / (n m): exact in whole numbers.
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    starts = np.concatenate([[0], ends[:-1]])
    weights = (ends - starts) / (n * m)
    width = max(1, _BLOCK_VALUES // len(ends))
    result = np.empty(one.shape[1])
    for start in range(0, one.shape[1], width):
        columns = slice(start, start + width)
        first = np.sort(one[:, columns].astype(float), axis=0)[starts // m]
        second = np.sort(two[:, columns].astype(float), axis=0)[starts // n]
        result[columns] = weights @ abs(first - second) ** order
    return result
