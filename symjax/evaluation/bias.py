"""Whether the step size of an unadjusted sampler biases what it predicts.

No R-hat sees that: all chains share the bias. Halving the step size shows it, since a
bias of order h^p changes by (1 - 2^-p) of itself.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from symjax.evaluation import arguments
from symjax.evaluation.convergence import summarise


TOLERANCE = 0.1
"""Change of the spread, relative, that nobody minds."""

MIN_DRAWS = 20
"""Draws a chain below which the spread is not compared."""


class SpreadComparison(NamedTuple):
    """The predictive spread of a sampler beside that with half the step size.

    Attributes:
        ratio: Spread at the step size used over that at half of it.
        error: Standard error of the ratio's logarithm.
        spread: At the step size used: the standard deviation of a prediction over the
            draws of a chain, averaged over predictions.
        spread_half: At half the step size.
        verdict: `small` where the spread surely changes by less than 10 % (by two
            standard errors), else `biased` where it surely changes (by three), else
            `unclear`.
    """

    ratio: float
    error: float
    spread: float
    spread_half: float
    verdict: Literal["small", "biased", "unclear"]


def compare_spread(
    predictions: Float[np.ndarray | Array, "chain draw example output"],
    half_step: Float[np.ndarray | Array, "_ _ _ _"],
) -> SpreadComparison:
    """Compare the spread of predictions with that at half the step size.

    The spread is that within the chains, so that modes between which no chain moves
    add no noise. A short chain shows less of it than a long one: the longer run is cut
    into pieces as long as the other. Both must have moved as far between two draws:
    with half the step size, take twice the thinning.

    Args:
        predictions: Probabilities, or means of a regression, at the step size used.
        half_step: At half of it, of the same chains, no more draws.

    Returns:
        The ratio of the two, its Monte-Carlo error (by the effective sample size of
        the squared deviations), and what they say.

    Raises:
        ValueError: If there are too few draws, shapes do not match, values are not
            finite, or predictions do not vary.
    """
    used = arguments.finite(predictions, "predictions")
    half = arguments.finite(half_step, "half_step")
    num_draws = half.shape[1]
    if not MIN_DRAWS <= num_draws <= used.shape[1]:
        raise ValueError(
            f"`half_step` must have {MIN_DRAWS} draws a chain or more, and no more "
            f"than `predictions`, which has {used.shape[1]}; got {num_draws}."
        )
    expected = (used.shape[0], num_draws, *used.shape[2:])
    arguments.same_shape("half_step", half.shape, expected)
    spread, error = _spread(used, num_draws)
    spread_half, error_half = _spread(half, num_draws)
    if not spread or not spread_half:
        raise ValueError(
            "`predictions` and `half_step` must vary over the draws; got the same "
            "predictions from every draw, as from chains that stand still."
        )
    error = math.hypot(error / spread, error_half / spread_half)
    change = abs(math.log(spread / spread_half))
    verdict = "biased" if change > 3 * error else "unclear"
    if change + 2 * error < math.log1p(TOLERANCE):
        verdict = "small"
    return SpreadComparison(spread / spread_half, error, spread, spread_half, verdict)


def _spread(
    predictions: Float[np.ndarray, "chain draw example output"], length: int
) -> tuple[float, float]:
    """The mean standard deviation within pieces of this length, and its error.

    One standard deviation of a prediction is taken from one piece of all chains: from
    few draws with rare outliers it comes out too small, and for both runs alike.
    """
    num_chains, num_draws, *shape = predictions.shape
    num_pieces = num_draws // length
    kept = predictions[:, num_draws - num_pieces * length :].astype(float)
    pieces = kept.reshape(num_chains, num_pieces, length, math.prod(shape))
    squares = (pieces - pieces.mean(axis=2, keepdims=True)) ** 2
    # Unbiased for independent draws.
    stds = np.sqrt(squares.mean(axis=(0, 2)) * length / (length - 1))
    if not stds.any():
        return 0.0, 0.0
    # To first order, what each draw adds to the mean of the standard deviations.
    twice = np.where(stds > 0, 2 * stds, 1)[:, None]
    influence = (squares / twice).mean(axis=-1)
    error = summarise(influence.reshape(num_chains, -1)).mcse_mean
    assert error is not None
    return float(stds.mean()), float(error[""])
