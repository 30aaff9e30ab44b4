"""Maximum mean discrepancy of two sets of draws, and its permutation test.

Squared distances come from inner products in float64, of draws moved to have mean zero:
what is held is one matrix draws x draws.

References:
    Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), "A kernel two-sample test",
    Journal of Machine Learning Research 13, lemma 6 (unbiased estimate) and section 8
    (bandwidth of the median distance). Phipson, Smyth (2010), "Permutation p-values
    should never be zero", Statistical Applications in Genetics and Molecular Biology 9.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from symjax import checks
from symjax.evaluation import arguments


# Multiples of the median distance: two kernels each.
_BANDWIDTHS = (1 / 4, 1 / 2, 1, 2, 4)

_BLOCK_VALUES = 2**24


class MmdTest(NamedTuple):
    """Are two sets of draws of one distribution?

    Attributes:
        mmd: The squared maximum mean discrepancy, see `mmd`.
        p_value: How often sets made by exchanging draws are as far apart.
    """

    mmd: float
    p_value: float


def mmd(
    one: Float[np.ndarray | Array, "draw quantity"],
    two: Float[np.ndarray | Array, "draw2 quantity2"],
) -> float:
    """The squared maximum mean discrepancy of two sets of draws, without bias.

    The kernel is the mean of ten: with `d` the Euclidean distance, the Gaussian
    `exp(-d**2 / (2 * s**2))` and the Laplace `exp(-d / s)` of the bandwidths `s` = 1/4,
    1/2, 1, 2 and 4 times the median distance among all draws of both sets, those that
    repeat another left out. Hence `k(x, x) = 1` and the result is at most 2; around 0,
    and as often below it, where both sets are of one distribution.

    Args:
        one: Independent draws, two or more.
        two: The others. Their number may differ.

    Returns:
        The estimate, 0 where all draws are the same.
    """
    kernel = _joint_kernel(one, two)
    return squared_mmd(kernel, np.arange(len(kernel)) < len(one))


def mmd_test(
    one: Float[np.ndarray | Array, "draw quantity"],
    two: Float[np.ndarray | Array, "draw2 quantity2"],
    num_permutations: int = 999,
    seed: int = 0,
    block_length: int = 1,
) -> MmdTest:
    """The squared MMD of two sets of draws, and how surprising it is.

    The draws of both are exchanged at random, `num_permutations` times, with one kernel
    matrix for all: the p-value is the share of these, itself included, whose MMD is at
    least that found. It holds for any number of draws if all are independent.
    Successive draws of a chain are not, and single draws exchanged make the p-value far
    too small: blocks of them, at best whole chains, have to move together. No p-value
    is below one over the number of ways to choose the blocks of `one`: 1/70 for 4 and 4
    chains.

    Args:
        one: Draws, two or more.
        two: The others. Their number may differ.
        num_permutations: Times to exchange.
        seed: Of the exchanges.
        block_length: Successive draws that stay together; divides both numbers.

    Returns:
        The estimate and its p-value.

    Raises:
        ValueError: If a set is not a whole number of blocks.

    Example:
        >>> one, two = np.random.default_rng(0).normal(size=(2, 50, 3))
        >>> mmd_test(one, two + 2).p_value
        0.001
    """
    kernel = _joint_kernel(one, two)
    if len(one) % block_length or len(two) % block_length:
        raise ValueError(
            "`block_length` must divide the numbers of draws, which are "
            f"{len(one)} and {len(two)}; got {block_length}."
        )
    return exchange(kernel, len(one), num_permutations, seed, block_length)


def exchange(
    kernel: Float[np.ndarray, "draw draw"],
    num_one: int,
    num_permutations: int,
    seed: int,
    block_length: int,
) -> MmdTest:
    """`mmd_test` of the kernel matrix of both sets, of which the first are of one."""
    checks.at_least(1, num_permutations=num_permutations, block_length=block_length)
    num_blocks, first = len(kernel) // block_length, num_one // block_length
    # All that an exchange needs: sums of the kernel over pairs of blocks.
    blocks = kernel.reshape(num_blocks, block_length, num_blocks, block_length)
    blocks = blocks.sum(axis=(1, 3))
    is_one = np.zeros((num_permutations + 1, num_blocks))
    is_one[:, :first] = 1
    random = np.random.default_rng(seed)
    is_one[1:] = random.permuted(is_one[1:], axis=1)
    m, n = num_one, len(kernel) - num_one
    to_one = is_one @ blocks
    within_one = (to_one * is_one).sum(axis=1)
    between = to_one.sum(axis=1) - within_one
    within_two = blocks.sum() - within_one - 2 * between
    values = (within_one - m) / (m * (m - 1)) + (within_two - n) / (n * (n - 1))
    values -= 2 * between / (m * n)
    # Equal but for rounding counts as equal.
    return MmdTest(
        mmd=float(values[0]), p_value=float((values >= values[0] - 1e-12).mean())
    )


def _joint_kernel(
    one: Float[np.ndarray | Array, "draw quantity"],
    two: Float[np.ndarray | Array, "draw2 quantity2"],
) -> Float[np.ndarray, "both both"]:
    """The kernel matrix of the draws of both.

    Raises:
        ValueError: If a set has fewer than two draws, or the quantities differ.
    """
    one, two = arguments.finite(one, "one"), arguments.finite(two, "two")
    if one.shape[1] != two.shape[1]:
        raise ValueError(
            "`one` and `two` must have draws of the same quantities; got "
            f"{one.shape[1]} and {two.shape[1]} of them."
        )
    if min(len(one), len(two)) < 2:
        raise ValueError(
            "`one` and `two` must have at least two draws each; got "
            f"{len(one)} and {len(two)}."
        )
    total = len(one) + len(two)
    blocks = (
        np.concatenate([one[:, columns], two[:, columns]])
        for columns in column_blocks(total, one.shape[1])
    )
    return kernel_matrix(squared_distances(blocks))


def column_blocks(num_rows: int, num_columns: int) -> Iterator[slice]:
    """Columns of a matrix, as many at a time as make 128 MB in float64."""
    width = max(1, _BLOCK_VALUES // num_rows)
    for start in range(0, num_columns, width):
        yield slice(start, start + width)


def squared_distances(
    blocks: Iterable[Float[np.ndarray, "draw column"]],
) -> Float[np.ndarray, "draw draw"]:
    """All squared distances of draws that come as blocks of their quantities."""
    product = np.zeros(())
    for block in blocks:
        centred = block - block.mean(axis=0, dtype=float)
        product = product + centred @ centred.T
    norms = np.diag(product)
    squared = norms[:, None] + norms - 2 * product
    # Rounding, which would make draws that repeat each other a little different.
    squared[squared < 1e-12 * norms.max()] = 0
    return squared


def kernel_matrix(
    squared: Float[np.ndarray, "draw draw"],
) -> Float[np.ndarray, "draw draw"]:
    """The mean of the kernels of `mmd`."""
    distance = np.sqrt(squared)
    differ = distance[np.triu(distance != 0)]
    if not differ.size:
        return np.ones_like(distance)
    kernel = np.zeros_like(distance)
    for bandwidth in np.median(differ) * np.array(_BANDWIDTHS):
        kernel += np.exp(-squared / (2 * bandwidth**2)) + np.exp(-distance / bandwidth)
    return kernel / (2 * len(_BANDWIDTHS))


def squared_mmd(
    kernel: Float[np.ndarray, "draw draw"], is_one: Bool[np.ndarray, " draw"]
) -> float:
    """Gretton et al. (2012), lemma 6, of kernels that are 1 on the diagonal."""
    within = 0.0
    for chosen in (is_one, ~is_one):
        count = int(chosen.sum())
        total = kernel[np.ix_(chosen, chosen)].sum() - count
        within += total / (count * (count - 1))
    return float(within - 2 * kernel[np.ix_(is_one, ~is_one)].mean())
