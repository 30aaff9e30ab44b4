"""Have the chains converged? R-hat, effective sample sizes, Monte-Carlo errors.

For 10^5 to 10^7 scalar quantities at once: weights, or the predicted probabilities of
test points ("function space").

`blackjax.diagnostics` was tried first. XLA sorts slowly on a CPU: R-hat and the two
effective sample sizes of 10^5 quantities (4 chains, 200 draws) take it 150 s of
processor time, and everything here some 12 s. It also drops the last draw of an odd
number, where the reference implementations drop the middle one, and its upper tail is
`x >= q`, which differs from the paper's `x <= q` when draws repeat, as rejected
proposals make them.

References:
    Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding,
    and localization: an improved R-hat", Bayesian Analysis 16(2). Gelman and Rubin
    (1992), Statistical Science 7(4). Izmailov, Vikram, Hoffman, Wilson (2021), "What
    are Bayesian neural network posteriors really like?", section 5 (R-hat in weight and
    in function space).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Integer

from symjax import checks, trees
from symjax.evaluation import diagnostics
from symjax.evaluation.reading import Leaf
from symjax.types import Params


Statistic: TypeAlias = Float[np.ndarray, "..."]
"""One number for every quantity of a leaf; NaN where it is constant, not finite, or not
among the judged."""

MAX_JUDGED = 100_000
"""Quantities above which statistics are of a random sample of this many. A share of
them is then off by at most 0.3 percentage points (two standard errors)."""

# With half chains of 4 the estimator has no lag to look at and always says S log10(S).
_MIN_DRAWS_ESS = 10


class Convergence(NamedTuple):
    """Diagnostics of every quantity, by the path of its leaf.

    Attributes:
        rhat: Rank-normalised split R-hat, the larger of the bulk and the folded one
            (Vehtari et al. 2021, section 4). Huge or infinite where every half chain
            stands still at its own value.
        classic_rhat: R-hat of the chains as they are, neither split nor ranked,
            `sqrt(((n - 1) / n * W + B / n) / W)` with `W` the mean variance within the
            chains, `B / n` the variance of the chain means, both unbiased, and `n` the
            draws a chain. TensorFlow Probability's `potential_scale_reduction` of `m`
            chains is `(m + 1) / m * classic_rhat**2 - (n - 1) / (m * n)`.
        ess_bulk: Effective sample size of the rank-normalised draws, all chains
            together.
        ess_tail: The smaller effective sample size of the 5 % and 95 % quantiles.
        mcse_mean: Monte-Carlo standard error of the mean, in the quantity's unit.
        num_quantities: All quantities, of all leaves.
        num_judged: Those whose statistics were computed: all, or a random sample.
        num_constant: Of all, those with one value in all draws. They have no statistics
            and count in no share.
        num_non_finite: Of all, those with an infinity or a NaN in any draw; likewise.
        withheld: Why the statistics that are None were not computed, or None.
    """

    rhat: dict[str, Statistic] | None
    classic_rhat: dict[str, Statistic] | None
    ess_bulk: dict[str, Statistic] | None
    ess_tail: dict[str, Statistic] | None
    mcse_mean: dict[str, Statistic] | None
    num_quantities: int
    num_judged: int
    num_constant: int
    num_non_finite: int
    withheld: str | None


class SlowQuantity(NamedTuple):
    """One scalar that mixes slowly: where it is and how badly it does.

    Attributes:
        path: Path of its leaf.
        index: Its place in the leaf, without the chain and draw axes.
        rhat: Rank-normalised split R-hat, or None where it is withheld.
        ess_bulk: Bulk effective sample size, or None where it is withheld.
    """

    path: str
    index: tuple[int, ...]  # pyright: ignore[reportIncompatibleMethodOverride]
    rhat: float | None
    ess_bulk: float | None


def summarise(draws: Params, *, max_judged: int = MAX_JUDGED) -> Convergence:
    """The diagnostics of all scalars in a pytree of draws, or in one array.

    Function space is the same call on probabilities `(chain, draw, example, class)`,
    and a stored run is `summarise(run.lazy())`.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf: NumPy, JAX, or
            `reading.Leaf`. An array alone has the path `""`.
        max_judged: See `summarise_leaves`.

    Returns:
        The diagnostics, see `summarise_leaves`.
    """
    leaves = jax.tree.leaves(draws)
    named = zip(trees.paths(draws), leaves, strict=True)
    return summarise_leaves(named, max_judged=max_judged)


def summarise_leaves(
    leaves: Iterable[tuple[str, Leaf]], *, max_judged: int = MAX_JUDGED
) -> Convergence:
    """The diagnostics of leaves by their paths.

    Of more than `max_judged` quantities, statistics are those of a random sample, the
    same at each call; constant and non-finite ones are looked for among all. One pass
    over the draws, 64 MB at a time; the judged draws of one leaf are held.

    One chain has no R-hat: its split R-hat exists, but two halves of a chain say
    nothing about whether *chains* agree. All numbers need 8 draws a chain, effective
    sample sizes and errors 10.

    Args:
        leaves: Pairs of a path and the draws of that leaf.
        max_judged: How many quantities to compute statistics of, at most.

    Returns:
        The diagnostics. What cannot be had is None, and `withheld` says why.
    """
    checks.at_least(1, max_judged=max_judged)
    # Indexing a JAX array by other numbers would compile once more each time.
    named = {
        path: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
        for path, leaf in leaves
    }
    num_chains, num_draws = _leading_axes(named)
    sizes = [math.prod(leaf.shape[2:]) for leaf in named.values()]
    columns: dict[str, Float[np.ndarray, "5 ..."]] = {}
    num_constant = num_non_finite = 0
    judged = _choose(sizes, max_judged)
    for (path, leaf), chosen in zip(named.items(), judged, strict=True):
        columns[path], constant, non_finite = diagnostics.of_leaf(leaf, chosen)
        num_constant += constant
        num_non_finite += non_finite

    has_rhat, has_ess, withheld = _withhold(num_chains, num_draws)
    present = (has_rhat, has_rhat, has_ess, has_ess, has_ess)
    return Convergence(
        *(
            {path: column[i, ...] for path, column in columns.items()}
            if shown
            else None
            for i, shown in enumerate(present)
        ),
        num_quantities=sum(sizes),
        num_judged=sum(map(len, judged)),
        num_constant=num_constant,
        num_non_finite=num_non_finite,
        withheld=withheld,
    )


def share_below(
    rhat: Mapping[str, Statistic] | Statistic | None, threshold: float
) -> float | None:
    """The share of quantities with R-hat below a threshold, in [0, 1].

    Constant and non-finite quantities (NaN here) are left out; chains stuck at
    different values (huge or infinite) count as not below.

    Args:
        rhat: One of the R-hats of a `Convergence`, or one leaf of it.
        threshold: Such as 1.05.

    Returns:
        The share, or None where R-hat is withheld or no quantity is left.
    """
    values = [np.ravel(leaf) for leaf in jax.tree.leaves(rhat)]
    values = np.concatenate(values) if values else np.empty(0)
    values = values[~np.isnan(values)]
    return float((values < threshold).mean()) if values.size else None


def slowest(convergence: Convergence, num: int = 10) -> list[SlowQuantity]:
    """The quantities with the highest R-hat, or, without R-hat, the lowest bulk ESS.

    Args:
        convergence: What `summarise` returned.
        num: How many to list at most.

    Returns:
        The worst first; empty where everything is withheld.
    """
    rhat, ess = convergence.rhat, convergence.ess_bulk
    leaves = rhat or ess or {}
    if not leaves:
        return []
    badness = np.concatenate([leaf.ravel() for leaf in leaves.values()])
    known = np.flatnonzero(~np.isnan(badness))
    badness = -badness[known] if rhat else badness[known]
    ends = np.cumsum([leaf.size for leaf in leaves.values()])
    listed = []
    for position in known[np.argsort(badness, kind="stable")[:num]]:
        leaf = int(np.searchsorted(ends, position, side="right"))
        path, values = list(leaves.items())[leaf]
        place = np.unravel_index(position - ends[leaf] + values.size, values.shape)
        index = tuple(int(i) for i in place)
        listed.append(
            SlowQuantity(
                path=path,
                index=index,
                rhat=float(rhat[path][index]) if rhat else None,
                ess_bulk=float(ess[path][index]) if ess else None,
            )
        )
    return listed


def _leading_axes(leaves: Mapping[str, Leaf]) -> tuple[int, int]:
    """The numbers of chains and draws.

    Raises:
        ValueError: If there is no leaf, a leaf lacks the axes (chain, draw), or leaves
            differ in them.
    """
    if not leaves:
        raise ValueError("`draws` must have a leaf; it has none.")
    sizes = {path: tuple(leaf.shape[:2]) for path, leaf in leaves.items()}
    first = next(iter(sizes.values()))
    for path, size in sizes.items():
        if size != first or len(size) < 2 or 0 in size:
            raise ValueError(
                "`draws` must have the same leading axes (chain, draw), not empty, on "
                f"every leaf; {path!r} has the shape {leaves[path].shape}, and the "
                f"first one starts with {first}."
            )
    num_chains, num_draws = first
    return num_chains, num_draws


def _choose(
    sizes: Sequence[int], max_judged: int
) -> list[Integer[np.ndarray, " column"]]:
    """The quantities to judge in leaves of these sizes: all, or a random sample."""
    total = sum(sizes)
    if total <= max_judged:
        return [np.arange(size) for size in sizes]
    random = np.random.default_rng(0)
    chosen = np.sort(random.choice(total, max_judged, replace=False, shuffle=False))
    starts = np.cumsum([0, *sizes[:-1]])
    parts = np.split(chosen, np.searchsorted(chosen, starts[1:]))
    return [part - start for part, start in zip(parts, starts, strict=True)]


def _withhold(num_chains: int, num_draws: int) -> tuple[bool, bool, str | None]:
    """Whether R-hat and effective sample sizes can be had, and why not."""
    if num_draws < diagnostics.MIN_DRAWS:
        reason = (
            f"R-hat and effective sample sizes are withheld: {num_draws} draw"
            f"{'s' * (num_draws > 1)} a chain, and they need {diagnostics.MIN_DRAWS}, "
            "4 in each half."
        )
        return False, False, reason
    reasons = []
    if num_chains < 2:
        reasons.append(
            "R-hat is withheld: it compares chains and there is one. Run 2 or more."
        )
    if num_draws < _MIN_DRAWS_ESS:
        reasons.append(
            f"Effective sample sizes are withheld: {num_draws} draws a chain, and they "
            f"need {_MIN_DRAWS_ESS} or more."
        )
    return num_chains > 1, num_draws >= _MIN_DRAWS_ESS, " ".join(reasons) or None
