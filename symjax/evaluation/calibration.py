"""Do predicted probabilities mean what they say? ECE, Brier score, reliability.

Rows that only pad the example count are to be sliced away by the caller: every row
counts here.

References:
    Guo, Pleiss, Sun, Weinberger (2017), "On calibration of modern neural networks",
    eq. 2 to 5. Brier (1950), "Verification of forecasts expressed in terms of
    probability".
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Integer

from symjax import checks
from symjax.evaluation import arguments


class ReliabilityCurve(NamedTuple):
    """Accuracy against confidence, by bins of equal width.

    Attributes:
        confidence: Mean probability of the predicted class; NaN in an empty bin.
        accuracy: Share of right predictions; NaN in an empty bin.
        count: Examples in the bin; they sum to all examples.
        edges: Bin `i` holds the confidences in `(edges[i], edges[i + 1]]`, and the
            first bin 0 too.
    """

    confidence: Float[np.ndarray, " bin"]
    accuracy: Float[np.ndarray, " bin"]
    count: Integer[np.ndarray, " bin"]  # pyright: ignore[reportIncompatibleMethodOverride]
    edges: Float[np.ndarray, " edge"]


def reliability_curve(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    num_bins: int = 15,
) -> ReliabilityCurve:
    """Accuracy and mean confidence of the predicted class, by confidence.

    Args:
        probs: Predictive probabilities.
        labels: True classes.
        num_bins: Bins of equal width over [0, 1].

    Returns:
        The curve; every example is in exactly one bin.
    """
    checks.at_least(1, num_bins=num_bins)
    probs = arguments.probs(probs)
    labels = arguments.labels(labels, *probs.shape)
    confidence = probs.max(axis=1)
    correct = probs.argmax(axis=1) == labels
    edges = np.linspace(0, 1, num_bins + 1)
    # Inner edges only: a confidence of 0, of 1, or a rounding above 1 has its bin.
    bins = np.searchsorted(edges[1:-1], confidence, side="left")
    count = np.bincount(bins, minlength=num_bins)
    with np.errstate(invalid="ignore"):
        return ReliabilityCurve(
            confidence=np.bincount(bins, confidence, num_bins) / count,
            accuracy=np.bincount(bins, correct, num_bins) / count,
            count=count,
            edges=edges,
        )


def expected_calibration_error(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    num_bins: int = 15,
) -> float:
    """The expected calibration error of the predicted class, in [0, 1].

    `sum_b count_b / N |accuracy_b - confidence_b|` over the bins of
    `reliability_curve`. It is biased upwards where bins hold few examples.

    Args:
        probs: Predictive probabilities.
        labels: True classes.
        num_bins: Bins of equal width over [0, 1].

    Returns:
        The error.
    """
    curve = reliability_curve(probs, labels, num_bins)
    gap = abs(curve.accuracy - curve.confidence)
    return float(np.nansum(curve.count * gap) / curve.count.sum())


def brier_score(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> float:
    """The Brier score, the sum over classes, in [0, 2].

    The mean over examples of `sum_c (p_c - [c = label])^2`: Brier's own definition. For
    two classes it is twice the score of the positive class alone, which scikit-learn
    reports.

    Args:
        probs: Predictive probabilities.
        labels: True classes.

    Returns:
        The score; 0 is perfect.
    """
    probs = arguments.probs(probs)
    labels = arguments.labels(labels, *probs.shape)
    truth = np.eye(probs.shape[1])[labels]
    return float(((probs - truth) ** 2).sum(axis=1).mean())
