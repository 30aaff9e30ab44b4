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

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Float, Shaped

from symjax import trees
from symjax.evaluation import diagnostics
from symjax.types import Params


Statistic: TypeAlias = Float[np.ndarray, "..."]
"""One number for every quantity of a leaf; NaN where it is constant or not finite."""

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
        num_constant: Those with one value in all draws. They have no statistics and
            count in no share.
        num_non_finite: Those with an infinity or a NaN in any draw; likewise.
        withheld: Why the statistics that are None were not computed, or None.
    """

    rhat: dict[str, Statistic] | None
    classic_rhat: dict[str, Statistic] | None
    ess_bulk: dict[str, Statistic] | None
    ess_tail: dict[str, Statistic] | None
    mcse_mean: dict[str, Statistic] | None
    num_quantities: int
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


def summarise(draws: Params) -> Convergence:
    """The diagnostics of all scalars in a pytree of draws, or in one array.

    Function space is the same call on probabilities `(chain, draw, example, class)`.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf, NumPy or JAX. An
            array alone has the path `""`.

    Returns:
        The diagnostics, see `summarise_leaves`.
    """
    leaves = jax.tree.leaves(draws)
    return summarise_leaves(zip(trees.paths(draws), leaves, strict=True))


def summarise_leaves(
    leaves: Iterable[tuple[str, Shaped[np.ndarray | Array, "chain draw ..."]]],
) -> Convergence:
    """The diagnostics of leaves that come one at a time, such as from a stored run.

    Holds one leaf and some 10 MB a processor. One chain has no R-hat: its split R-hat
    exists, but two halves of a chain say nothing about whether *chains* agree. All
    numbers need 8 draws a chain, effective sample sizes and errors 10.

    Args:
        leaves: Pairs of a path and the draws of that leaf.

    Returns:
        The diagnostics. What cannot be had is None, and `withheld` says why.

    Raises:
        ValueError: If there is no leaf, a leaf lacks the axes (chain, draw), or leaves
            differ in them.
    """
    columns: dict[str, Float[np.ndarray, "5 ..."]] = {}
    num_constant = num_non_finite = 0
    sizes = None
    for path, leaf in leaves:
        if leaf.ndim < 2 or 0 in leaf.shape[:2] or sizes not in (None, leaf.shape[:2]):
            raise ValueError(
                "`draws` must have the same leading axes (chain, draw) on every leaf; "
                f"{path!r} has the shape {leaf.shape}"
                + (f", others start with {sizes}." if sizes else ".")
            )
        sizes = leaf.shape[:2]
        columns[path], constant, non_finite = diagnostics.of_leaf(np.asarray(leaf))
        num_constant += constant
        num_non_finite += non_finite
    if sizes is None:
        raise ValueError("`draws` must have a leaf; it has none.")

    has_rhat, has_ess, withheld = _withhold(*sizes)
    present = (has_rhat, has_rhat, has_ess, has_ess, has_ess)
    return Convergence(
        *(
            {path: column[i, ...] for path, column in columns.items()}
            if shown
            else None
            for i, shown in enumerate(present)
        ),
        num_quantities=sum(column[0].size for column in columns.values()),
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
    # NaN sorts last either way.
    order = np.argsort(-badness if rhat else badness, kind="stable")[:num]
    ends = np.cumsum([leaf.size for leaf in leaves.values()])
    listed = []
    for position in order[~np.isnan(badness[order])]:
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


def _withhold(num_chains: int, num_draws: int) -> tuple[bool, bool, str | None]:
    """Whether R-hat and effective sample sizes can be had, and why not."""
    if num_draws < diagnostics.MIN_DRAWS:
        reason = (
            f"R-hat and effective sample sizes are withheld: {num_draws} draws a "
            f"chain, and they need {diagnostics.MIN_DRAWS}, 4 in each half."
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
