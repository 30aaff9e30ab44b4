"""R-hat and effective sample size of many quantities at once, for `convergence`.

NumPy in threads, in blocks of bounded memory. Draws are moved to [0, 1] or ranked, and
then float32 is enough: the statistics agree with those in float64 to some 1e-6.

References:
    Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding,
    and localization: an improved R-hat", Bayesian Analysis 16(2). Sections and
    equations below are of this paper.
"""

import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Bool, Float, Int32, Integer, Shaped
from scipy import fft, fftpack, special

from symjax.evaluation import reading
from symjax.evaluation.reading import Leaf


# Draws in one block of work: large enough to hide Python's share, small enough for the
# scratch arrays to stay in a processor's own cache.
_BLOCK_VALUES = 2**16

MIN_DRAWS = 8
"""Draws a chain below which nothing is computed: 4 in each half."""


def of_leaf(
    leaf: Leaf, judged: Integer[np.ndarray, " column"]
) -> tuple[Float[np.ndarray, "5 ..."], int, int]:
    """The five statistics of a leaf, and its constant and non-finite quantities.

    Args:
        leaf: Its draws.
        judged: The quantities to compute statistics of, counted over the axes behind
            (chain, draw) made one. Constant and non-finite ones are counted among all.
    """
    num_chains, num_draws, *shape = leaf.shape
    result = np.full((5, math.prod(shape)), np.nan, np.float32)
    width = max(1, _BLOCK_VALUES // (num_chains * num_draws))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        draws, constant, finite = _scan(leaf, judged, pool)
        usable = (finite & ~constant)[judged]

        def diagnose(start: int) -> None:
            block = slice(start, start + width)
            x = np.ascontiguousarray(np.moveaxis(draws[:, :, block], -1, 0))
            halves = _halves(x)
            # A quantity may differ in the middle draw only, which is in no half.
            varies = usable[block] & (halves != halves[:, :1, :1]).any(axis=(1, 2))
            if varies.any():
                with np.errstate(all="ignore"):
                    result[:, judged[block][varies]] = _statistics(x[varies])

        if num_draws >= MIN_DRAWS:
            list(pool.map(diagnose, range(0, len(judged), width)))
    num_constant, num_non_finite = np.count_nonzero([constant, ~finite], axis=1)
    return result.reshape(5, *shape), int(num_constant), int(num_non_finite)


def _scan(
    leaf: Leaf, judged: Integer[np.ndarray, " column"], pool: ThreadPoolExecutor
) -> tuple[
    Shaped[np.ndarray, "chain draw column"],
    Bool[np.ndarray, " quantity"],
    Bool[np.ndarray, " quantity"],
]:
    """One pass: the judged draws, which quantities are constant, which finite."""
    dtype = np.promote_types(leaf.dtype, np.float32)
    draws = np.empty((*leaf.shape[:2], len(judged)), dtype)
    first = np.asarray(leaf[0, slice(0, 1)]).ravel()
    low, high = first.astype(dtype), first.astype(dtype)
    width = _BLOCK_VALUES
    for chain, rows, values in reading.pieces(leaf):

        def include(start: int, values: np.ndarray = values) -> None:
            block = slice(start, start + width)
            # NaN stays in both.
            np.minimum(low[block], values[:, block].min(axis=0), out=low[block])
            np.maximum(high[block], values[:, block].max(axis=0), out=high[block])

        list(pool.map(include, range(0, len(first), width)))
        is_all = len(judged) == values.shape[1]
        draws[chain, rows] = values if is_all else values[:, judged]
    finite = np.isfinite(low) & np.isfinite(high)
    return draws, finite & (low == high), finite


def _statistics(
    x: Float[np.ndarray, "quantity chain draw"],
) -> Float[np.ndarray, "5 quantity"]:
    """The statistics in the order of `Convergence`, for draws that vary."""
    halves = _halves(x)
    pooled = halves.reshape(len(x), -1)
    middle = pooled.shape[1] // 2
    scores, ordered = _normal_scores(pooled)
    median = (ordered[:, middle - 1] + ordered[:, middle]) / 2
    folded, _ = _normal_scores(abs(pooled - median[:, None]))
    scores, folded = scores.reshape(halves.shape), folded.reshape(halves.shape)

    # Free of unit and offset, so that no square underflows and no mean cancels.
    low, high = (ordered[:, i, None, None] for i in (0, -1))
    scaled = ((x - low) / (high - low)).astype(np.float32, copy=False)
    ess_mean = _effective_sample_size(_halves(scaled))
    sd = scaled.std(axis=(1, 2), ddof=1) * (high - low).ravel().astype(float)
    if x.shape[2] % 2:
        ordered = np.sort(x.reshape(len(x), -1), axis=1)
    return np.stack(
        [
            # fmax: the folded draws of a two-valued quantity may be constant.
            np.fmax(_rhat(scores), _rhat(folded)),
            _rhat(scaled),
            _effective_sample_size(scores),
            np.minimum(
                _quantile_sample_size(halves, _quantile(ordered, 0.05)),
                _quantile_sample_size(halves, _quantile(ordered, 0.95)),
            ),
            sd / np.sqrt(ess_mean),
        ]
    )


def _halves(
    x: Float[np.ndarray, "quantity chain draw"],
) -> Float[np.ndarray, "quantity half draw2"]:
    """The halves of every chain as chains of their own, without an odd middle draw."""
    num, num_chains, num_draws = x.shape
    half = num_draws // 2
    if num_draws % 2:
        x = np.delete(x, half, axis=2)
    return x.reshape(num, 2 * num_chains, half)


def _quantile(
    ordered: Float[np.ndarray, "quantity n"], share: float
) -> Float[np.ndarray, "quantity 1 1"]:
    """The quantile by linear interpolation (type 7) of sorted draws."""
    position = share * (ordered.shape[1] - 1)
    below = int(position)
    low, high = (ordered[:, below + i, None, None].astype(float) for i in (0, 1))
    return low + (position - below) * (high - low)


def _normal_scores(
    x: Float[np.ndarray, "quantity n"],
) -> tuple[Float[np.ndarray, "quantity n"], Float[np.ndarray, "quantity n"]]:
    """Normal quantiles of the ranks along the last axis (eq. 14), and the sorted draws.

    Ties share their mean rank.
    """
    num, size = x.shape
    order, ordered = _sort(x)
    table = _score_table(size)
    ranked = np.tile(table[::2], num)
    # equal[i]: the i-th smallest has the value of the one before it in its row.
    equal = np.zeros(x.size + 1, bool)
    equal[1:-1] = ordered[1:] == ordered[:-1]
    equal[::size] = False
    first = np.flatnonzero(equal[1:] > equal[:-1])
    last = np.flatnonzero(equal[1:] < equal[:-1])
    tied = table[(first + last) % (2 * size)]
    # Places, as NumPy takes longer to assign by a mask.
    ranked[np.flatnonzero(equal[1:] | equal[:-1])] = np.repeat(tied, last - first + 1)
    scores = np.empty(x.size, np.float32)
    scores[order] = ranked
    return scores.reshape(num, size), ordered.reshape(num, size)


@functools.cache
def _score_table(size: int) -> Float[np.ndarray, " place"]:
    """Normal scores by twice the place from 0: mean ranks of ties may end in 1/2."""
    rank = np.arange(2 * size - 1) / 2 + 1
    return special.ndtri((rank - 3 / 8) / (size + 1 / 4)).astype(np.float32)


def _sort(
    x: Float[np.ndarray, "quantity n"],
) -> tuple[Integer[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Places in the flat `x` of its draws sorted in every row, and those draws.

    NumPy sorts integers over twice as fast as it argsorts. Hence one integer holds a
    draw's float32 bits above its place.
    """
    num, size = x.shape
    if x.dtype != np.float32:
        order = (np.argsort(x, axis=1) + size * np.arange(num)[:, None]).ravel()
        return order, x.ravel()[order]
    keys = _in_order(x.ravel().view(np.int32)).astype(np.int64) << 32
    keys |= np.arange(x.size)
    keys.reshape(num, size).sort(axis=1)
    ordered = _in_order((keys >> 32).astype(np.int32)).view(np.float32)
    keys &= 0xFFFFFFFF
    return keys, ordered


def _in_order(bits: Int32[np.ndarray, " m"]) -> Int32[np.ndarray, " m"]:
    """Integers ordered as the floats of these bits; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _rhat(x: Float[np.ndarray, "quantity chain n"]) -> Float[np.ndarray, " quantity"]:
    num_chains, n = x.shape[1:]
    if num_chains < 2:
        return np.full(len(x), np.nan)
    means = x.mean(axis=2, keepdims=True)
    centred = x - means
    squares = np.einsum("qcn,qcn->q", centred, centred)
    between = means.var(axis=1, ddof=1).ravel()
    return np.sqrt((n - 1) / n + between * num_chains * (n - 1) / squares)


def _quantile_sample_size(
    x: Float[np.ndarray, "quantity chain n"],
    quantile: Float[np.ndarray, "quantity 1 1"],
) -> Float[np.ndarray, " quantity"]:
    return _effective_sample_size((x <= quantile).astype(np.float32))


def _effective_sample_size(
    x: Float[np.ndarray, "quantity chain n"],
) -> Float[np.ndarray, " quantity"]:
    """The sample size by Geyer's initial monotone sequence (section 3.2)."""
    num_chains, n = x.shape[1:]
    size = num_chains * n
    means = x.mean(axis=2, keepdims=True)
    length = fftpack.next_fast_len(2 * n)
    spectrum = np.asarray(fft.rfft(x - means, length, axis=2)).view(np.float32)
    power = np.einsum("qcf,qcf->qf", spectrum, spectrum)
    power = np.add(power[:, ::2], power[:, 1::2], dtype=float) / num_chains
    autocovariance = np.asarray(fft.irfft(power, length, axis=1))[:, :n] / n
    within = autocovariance[:, :1] * (n / (n - 1))
    total = autocovariance[:, :1] + means.var(axis=1, ddof=1)
    rho = 1 - (within - autocovariance) / total
    rho[:, 0] = 1

    num_pairs = (n - 1) // 2
    even = rho[:, 0 : 2 * num_pairs : 2]
    pairs = even + rho[:, 1 : 2 * num_pairs : 2]
    ends = pairs <= 0
    stop = np.where(ends.any(axis=1), ends.argmax(axis=1), num_pairs - 1)[:, None]
    before = np.arange(num_pairs) < stop
    monotone = np.minimum.accumulate(pairs, axis=1).sum(axis=1, where=before)
    # The pair that stops the sum still gives its even lag, which lowers the variance.
    last = np.take_along_axis(even, stop, axis=1)
    whole = np.take_along_axis(pairs, stop, axis=1) >= 0
    last = np.where(whole, last, np.maximum(last, 0)).ravel()
    tau = np.maximum(2 * monotone + last - 1, 1 / np.log10(size))
    # A tail indicator without variation counts in full, as in ArviZ.
    return np.where(total.ravel() == 0, size, size / tau)
