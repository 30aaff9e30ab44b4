"""How far apart are sets of draws? Distances between chains, and MMD.

Squared distances come from inner products in float64, of draws moved to have mean zero:
what is held is one matrix draws x draws.

References:
    Gretton, Borgwardt, Rasch, Schölkopf, Smola (2012), "A kernel two-sample test",
    Journal of Machine Learning Research 13, lemma 6 (unbiased estimate) and section 8
    (bandwidth of the median distance). Chan, Golub, LeVeque (1983), "Algorithms for
    computing the sample variance", The American Statistician 37(3).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from symjax.evaluation import arguments
from symjax.evaluation.convergence import MAX_JUDGED
from symjax.evaluation.reading import Leaf, pieces, take
from symjax.types import Params


# Multiples of the median distance: two kernels each.
_BANDWIDTHS = (1 / 4, 1 / 2, 1, 2, 4)

_MOST_DRAWS = 512

_BLOCK_VALUES = 2**24


class ChainDistances(NamedTuple):
    """How far draws of different chains, and of one chain, are from each other.

    Euclidean distances over all leaves, in the unit of the draws. Where chains sample
    one distribution `between` and `within` are alike. Successive draws are too, which
    makes `within` too small and `mmd` too large for chains that are short beside their
    autocorrelation time. NaN where a draw is not finite.

    Attributes:
        pairs: Root mean squared distance over all pairs of a draw of one chain and a
            draw of the other; on the diagonal over all pairs of different draws of one
            chain, NaN for a single draw.
        between: The same over all pairs of draws of different chains; None for one
            chain.
        within: The same over all pairs of different draws of one chain; None for a
            single draw a chain.
        mmd: Squared MMD, see `mmd`, of each chain to all others together, averaged
            over the chains; None for one chain or a single draw a chain.
    """

    pairs: Float[np.ndarray, "chain chain"]
    between: float | None
    within: float | None
    mmd: float | None


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

    Raises:
        ValueError: If a set has fewer than two draws, the quantities differ in number,
            or a draw is not finite.
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
        for columns in _blocks(total, one.shape[1])
    )
    kernel = _kernel(_squared_distances(blocks))
    return _squared_mmd(kernel, np.arange(total) < len(one))


def chain_distances(draws: Params) -> ChainDistances:
    """Distances between and within chains, over all leaves, and the MMD of the chains.

    Distances are of all draws and weights, in one pass over them, 64 MB at a time: the
    mean squared distance of two chains is that of their means plus their variances.
    MMD is of some 512 draws in all, evenly spaced, and, where there are more, of a
    random sample of 100,000 weights, the same at each call, in a second pass.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf: NumPy, JAX, or
            `reading.Leaf`, such as `run.lazy()`.

    Returns:
        The distances, in the unit of the draws.

    Raises:
        ValueError: If there is no leaf, or leaves differ in their leading axes.
    """
    leaves = [
        np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
        for leaf in jax.tree.leaves(draws)
    ]
    leading = {tuple(leaf.shape[:2]) for leaf in leaves}
    if len(leading) != 1 or len(first := leading.pop()) < 2:
        raise ValueError(
            "`draws` must have the same leading axes (chain, draw) on every leaf; got "
            f"the shapes {[tuple(leaf.shape) for leaf in leaves]}."
        )
    num_chains, num_draws = first
    with np.errstate(invalid="ignore", over="ignore"):
        squared = sum(map(_of_leaf, leaves), np.zeros((num_chains, num_chains)))
        within, between = np.diag(squared), squared[~np.eye(num_chains, dtype=bool)]
        return ChainDistances(
            pairs=np.sqrt(squared),
            between=math.sqrt(between.mean()) if num_chains > 1 else None,
            within=math.sqrt(within.mean()) if num_draws > 1 else None,
            mmd=_chain_mmd(leaves) if min(num_chains, num_draws) > 1 else None,
        )


def _of_leaf(leaf: Leaf) -> Float[np.ndarray, "chain chain"]:
    """Mean squared distances of the draws of a leaf."""
    num_chains, num_draws = leaf.shape[:2]
    means = np.zeros((num_chains, math.prod(leaf.shape[2:])))
    scatter = np.zeros(num_chains)
    for chain, rows, values in pieces(leaf):
        before, count = rows.start, rows.stop - rows.start
        mean = values.mean(axis=0, dtype=float)
        centred = values - mean
        shift = mean - means[chain]
        means[chain] += shift * (count / rows.stop)
        scatter[chain] += np.vdot(centred, centred)
        scatter[chain] += np.vdot(shift, shift) * (before * count / rows.stop)
    variance = scatter / num_draws
    squared = np.diag(
        2 * scatter / (num_draws - 1) if num_draws > 1 else scatter + np.nan
    )
    for i, j in itertools.combinations(range(num_chains), 2):
        shift = means[i] - means[j]
        squared[i, j] = squared[j, i] = shift @ shift + variance[i] + variance[j]
    return squared


def _chain_mmd(leaves: Sequence[Leaf]) -> float:
    """Squared MMD of each chain to the others, averaged."""
    num_chains, num_draws = leaves[0].shape[:2]
    most = min(num_draws, max(2, _MOST_DRAWS // num_chains))
    kept = np.linspace(0, num_draws - 1, most).astype(int)
    kernel = _kernel(_squared_distances(_sampled(leaves, kept)))
    chain = np.repeat(np.arange(num_chains), most)
    return float(np.mean([_squared_mmd(kernel, chain == i) for i in range(num_chains)]))


def _sampled(
    leaves: Sequence[Leaf], kept: Shaped[np.ndarray, " place"]
) -> Iterator[Float[np.ndarray, "draw column"]]:
    """Some draws of all weights, or of a random sample of them, block by block."""
    sizes = [math.prod(leaf.shape[2:]) for leaf in leaves]
    share, random = MAX_JUDGED / sum(sizes), np.random.default_rng(0)
    for leaf, size in zip(leaves, sizes, strict=True):
        chosen = np.flatnonzero(random.random(size) < share)
        values = take(leaf, chosen)[:, kept].reshape(-1, len(chosen))
        for columns in _blocks(*values.shape):
            yield values[:, columns]


def _blocks(num_rows: int, num_columns: int) -> Iterator[slice]:
    width = max(1, _BLOCK_VALUES // num_rows)
    for start in range(0, num_columns, width):
        yield slice(start, start + width)


def _squared_distances(
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


def _kernel(squared: Float[np.ndarray, "draw draw"]) -> Float[np.ndarray, "draw draw"]:
    """The mean of the kernels of `mmd`."""
    distance = np.sqrt(squared)
    differ = distance[np.triu(distance != 0)]
    if not differ.size:
        return np.ones_like(distance)
    kernel = np.zeros_like(distance)
    for bandwidth in np.median(differ) * np.array(_BANDWIDTHS):
        kernel += np.exp(-squared / (2 * bandwidth**2)) + np.exp(-distance / bandwidth)
    return kernel / (2 * len(_BANDWIDTHS))


def _squared_mmd(
    kernel: Float[np.ndarray, "draw draw"], is_one: Bool[np.ndarray, " draw"]
) -> float:
    """Gretton et al. (2012), lemma 6, of kernels that are 1 on the diagonal."""
    within = 0.0
    for chosen in (is_one, ~is_one):
        count = int(chosen.sum())
        total = kernel[np.ix_(chosen, chosen)].sum() - count
        within += total / (count * (count - 1))
    return float(within - 2 * kernel[np.ix_(is_one, ~is_one)].mean())
