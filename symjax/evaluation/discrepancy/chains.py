"""How far apart are the draws of chains, and of two methods, over all weights?

References:
    Chan, Golub, LeVeque (1983), "Algorithms for computing the sample variance", The
    American Statistician 37(3).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Integer

from symjax import checks
from symjax.evaluation import arguments
from symjax.evaluation.convergence import MAX_JUDGED
from symjax.evaluation.discrepancy.kernels import (
    MmdTest,
    column_blocks,
    exchange,
    kernel_matrix,
    squared_distances,
    squared_mmd,
)
from symjax.evaluation.reading import Leaf, pieces, take
from symjax.types import Params


_MOST_DRAWS = 512


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
    """
    leaves = chain_leaves(draws, "draws")
    num_chains, num_draws = leaves[0].shape[:2]
    with np.errstate(invalid="ignore", over="ignore"):
        squared = sum(map(_of_leaf, leaves), np.zeros((num_chains, num_chains)))
        within, between = np.diag(squared), squared[~np.eye(num_chains, dtype=bool)]
        return ChainDistances(
            pairs=np.sqrt(squared),
            between=math.sqrt(between.mean()) if num_chains > 1 else None,
            within=math.sqrt(within.mean()) if num_draws > 1 else None,
            mmd=_chain_mmd(leaves) if min(num_chains, num_draws) > 1 else None,
        )


def compare_draws(
    draws: Params,
    reference_draws: Params,
    num_permutations: int = 999,
    seed: int = 0,
    block_length: int | None = None,
) -> MmdTest:
    """The MMD between the draws of a method and of a reference, over all leaves.

    As `mmd_test`, of at most some 512 draws of each, evenly spaced in every chain, and,
    where there are more, of a random sample of 100,000 weights, the same at each call.
    Raw, aligned or canonical draws are the caller's choice, the same for both; aligned
    ones are closer by construction.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf: NumPy, JAX, or
            `reading.Leaf`, such as `run.lazy()`.
        reference_draws: The same of the reference; the chains and draws may differ in
            number.
        num_permutations: Times to exchange blocks between the two.
        seed: Of the exchanges.
        block_length: Successive draws, of those used, that are exchanged together: all
            of a chain unless given. 1 is for independent draws, such as the members of
            an ensemble.

    Returns:
        The estimate and its p-value.

    Raises:
        ValueError: If the leaves of the two differ in number or shape, a chain is
            shorter than the block, or there are fewer than two draws.

    Example:
        >>> draws = {"w": np.random.default_rng(0).normal(size=(8, 30, 2, 3))}
        >>> other = {"w": 3 + draws["w"][:, ::-1]}
        >>> compare_draws(draws, other).p_value < 0.01
        True
    """
    checks.at_least(1, block_length=block_length)
    one, two = (
        chain_leaves(draws, "draws"),
        chain_leaves(reference_draws, "reference_draws"),
    )
    shapes = [[tuple(leaf.shape[2:]) for leaf in leaves] for leaves in (one, two)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "`draws` and `reference_draws` must have leaves of the same shapes; got "
            f"{shapes[0]} and {shapes[1]}."
        )
    (c, s), (d, t) = one[0].shape[:2], two[0].shape[:2]
    most = min(s, t, max(2, _MOST_DRAWS // max(c, d)))
    length = block_length or most
    most -= most % length
    if min(c, d) * most < 2:
        raise ValueError(
            "`draws` and `reference_draws` must have at least two draws each and one "
            f"block of {length} a chain; got {c} x {s} and {d} x {t}."
        )
    kept = [np.linspace(0, total - 1, most).astype(int) for total in (s, t)]
    both = zip(_sampled(one, kept[0]), _sampled(two, kept[1]), strict=True)
    names = "draws` and `reference_draws"
    kernel = _kernel(arguments.finite(np.concatenate(pair), names) for pair in both)
    return exchange(kernel, c * most, num_permutations, seed, length)


def chain_leaves(draws: Params, name: str) -> Sequence[Leaf]:
    """The leaves, as NumPy arrays or what reads them.

    Raises:
        ValueError: If there is no leaf, or leaves differ in their leading axes.
    """
    leaves = [
        np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
        for leaf in jax.tree.leaves(draws)
    ]
    leading = {tuple(leaf.shape[:2]) for leaf in leaves}
    if len(leading) != 1 or len(leading.pop()) < 2:
        raise ValueError(
            f"`{name}` must have the same leading axes (chain, draw) on every leaf; "
            f"got the shapes {[tuple(leaf.shape) for leaf in leaves]}."
        )
    return leaves


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
    kernel = _kernel(_sampled(leaves, kept))
    chain = np.repeat(np.arange(num_chains), most)
    return float(np.mean([squared_mmd(kernel, chain == i) for i in range(num_chains)]))


def _sampled(
    leaves: Sequence[Leaf], kept: Integer[np.ndarray, " place"]
) -> Iterator[Float[np.ndarray, "draw column"]]:
    """Some draws of all weights, or of a random sample of them, leaf by leaf."""
    sizes = [math.prod(leaf.shape[2:]) for leaf in leaves]
    share, random = MAX_JUDGED / sum(sizes), np.random.default_rng(0)
    for leaf, size in zip(leaves, sizes, strict=True):
        chosen = np.flatnonzero(random.random(size) < share)
        values = take(leaf, chosen)[:, kept]
        yield values.reshape(len(values) * len(kept), len(chosen))


def _kernel(values: Iterable[Float[np.ndarray, "draw column"]]) -> np.ndarray:
    """The kernel matrix of draws that come leaf by leaf."""
    blocks = (v[:, columns] for v in values for columns in column_blocks(*v.shape))
    return kernel_matrix(squared_distances(blocks))
