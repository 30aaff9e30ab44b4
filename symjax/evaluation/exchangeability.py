"""Are the units of a layer exchangeable in the draws?

A posterior is the same under every permutation of a layer's hidden units, together with
all their weights, if the prior is. Then the marginals of their weights are identical,
and each unit is as likely as any other to have the largest. Chains that stay in one of
the symmetric copies, and aligned draws, do not satisfy this; draws averaged over the
permutation group do.

References:
    Laurent, Aldea, Franchi (2024), "A symmetry-aware exploration of Bayesian neural
    network posteriors", ICLR, section 3 (identical marginals within a layer). Geyer
    (1992), "Practical Markov chain Monte Carlo", Statistical Science 7(4) (initial
    positive sequence).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy  # Its parts are imported where they are used first.
from jaxtyping import Array, Float, Int, Integer

from symjax.evaluation import arguments


# Cochran's rule: below, the statistic does not follow its chi-square distribution.
_FEWEST_EXPECTED = 5

_NUM_SIMULATIONS = 9_999

# What may be left of the correlation of kept draws that follow each other.
_CORRELATION_LEFT = 0.02


class Exchangeability(NamedTuple):
    """Test of the hypothesis that the largest unit is uniform over the units.

    Attributes:
        counts: How often each unit was the largest, among the draws that were kept.
        num_independent: How many draws were kept.
        stride: Of how many successive draws one was kept; the number of draws where one
            a chain was.
        statistic: Pearson's chi-square.
        dof: Its degrees of freedom, the number of units less one.
        pvalue: Probability of such a statistic or a larger one if the hypothesis holds.
            From the chi-square distribution where each unit is expected five times or
            more, else from 9,999 simulations, which make 1e-4 the smallest there is.
    """

    counts: Int[np.ndarray, " unit"]
    num_independent: int
    stride: int
    statistic: float
    dof: int
    pvalue: float


def check_exchangeability(
    values: Float[np.ndarray | Array, "chain draw unit"],
) -> Exchangeability:
    """Test whether each unit of a permutation group is as often the largest.

    Of each unit one number is compared: one of its weights, such as that from one
    input, `kernel[..., 0, :]`, or the norm of all its incoming weights,
    `np.linalg.norm(kernel, axis=2)` of a kernel `(chain, draw, input, unit)`.

    Successive draws are alike, so they are thinned. With `same(t)` the share of draws
    with the same largest unit as `t` draws later, and `q` that of pairs of draws of
    different chains, the autocorrelation is `(same(t) - q) / (1 - q)`. Draws are kept
    so far apart that a geometric decay of the same autocorrelation time leaves 2 % of
    the correlation; chains that hardly move give one draw each. Of one chain `q` is
    taken from the hypothesis, which costs power.

    The chains must be independent and start as the prior does, without a preferred
    unit.

    Args:
        values: The number to compare. Units that share the largest are chosen from at
            random.

    Returns:
        The test. A few chains that keep to their units can hardly contradict: there are
        as many independent draws as chains.

    Raises:
        ValueError: If there are fewer than two units, or no draws, or values that are
            not finite.
    """
    array = arguments.finite(values, "values")
    if array.size == 0 or array.shape[2] < 2:
        raise ValueError(
            "`values` must have at least one chain, one draw and two units; got the "
            f"shape {array.shape}."
        )
    num_draws, num_units = array.shape[1:]
    lottery = np.random.default_rng(0).random(array.shape)
    is_largest = array == array.max(axis=2, keepdims=True)
    largest = np.argmax(lottery * is_largest, axis=2)
    stride = min(_stride(_autocorrelation_time(largest, num_units)), num_draws)
    counts = np.bincount(largest[:, ::-stride].ravel(), minlength=num_units)
    statistic, pvalue = _chi_square(counts)
    return Exchangeability(
        counts=counts,
        num_independent=int(counts.sum()),
        stride=stride,
        statistic=statistic,
        dof=num_units - 1,
        pvalue=pvalue,
    )


def _autocorrelation_time(
    largest: Integer[np.ndarray, "chain draw"], num_units: int
) -> float:
    """One plus twice the sum of the autocorrelations, up to the first pair below 0."""
    by_chance = _coincidence(largest, num_units)
    num_draws, time = largest.shape[1], -1.0
    for lag in range(0, num_draws, 2):
        pair = sum(
            _autocorrelation(largest, later, by_chance)
            for later in range(lag, min(lag + 2, num_draws))
        )
        if pair <= 0:
            break
        time += 2 * pair
    return time


def _autocorrelation(
    largest: Integer[np.ndarray, "chain draw"], lag: int, by_chance: float
) -> float:
    same = np.mean(largest[:, lag:] == largest[:, : largest.shape[1] - lag])
    # Chains that all keep to one unit: standing still and a preference look the same.
    return 1.0 if same == 1 else float((same - by_chance) / (1 - by_chance))


def _coincidence(largest: Integer[np.ndarray, "chain draw"], num_units: int) -> float:
    """How often draws of different chains have the same largest unit."""
    num_chains, num_draws = largest.shape
    if num_chains < 2:
        return 1 / num_units
    counts = np.stack([np.bincount(chain, minlength=num_units) for chain in largest])
    shares = counts / num_draws
    pairs = (shares.sum(axis=0) ** 2).sum() - (shares**2).sum()
    return pairs / (num_chains * (num_chains - 1))


def _stride(time: float) -> int:
    if time <= 1:
        return 1
    decay = (time - 1) / (time + 1)
    return math.ceil(math.log(_CORRELATION_LEFT) / math.log(decay))


def _chi_square(counts: Int[np.ndarray, " unit"]) -> tuple[float, float]:
    """Pearson's statistic and its p-value."""
    total, num_units = int(counts.sum()), len(counts)
    statistic, pvalue = scipy.stats.chisquare(counts)
    if total >= _FEWEST_EXPECTED * num_units:
        return float(statistic), float(pvalue)
    random, as_large = np.random.default_rng(0), 0
    squares = np.vdot(counts, counts)
    for _ in range(9):
        simulated = random.multinomial(
            total, np.full(num_units, 1 / num_units), size=_NUM_SIMULATIONS // 9
        )
        as_large += np.sum(np.einsum("su,su->s", simulated, simulated) >= squares)
    return float(statistic), float((1 + as_large) / (1 + _NUM_SIMULATIONS))
