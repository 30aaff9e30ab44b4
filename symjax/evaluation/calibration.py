"""Do predicted probabilities mean what they say? ECE, Brier score, reliability.

The errors are of the predicted class or of every class, by bins of equal width or of
equal numbers of examples: `expected_calibration_error` (predicted class, width),
`classwise_calibration_error` (every class, width), `adaptive_calibration_error` (every
class, numbers).

Rows that only pad the example count are to be sliced away by the caller: every row
counts here.

References:
    Guo, Pleiss, Sun, Weinberger (2017), "On calibration of modern neural networks",
    eq. 2 to 5. Brier (1950), "Verification of forecasts expressed in terms of
    probability". Nixon, Dusenberry, Zhang, Jerfel, Tran (2019), "Measuring calibration
    in deep learning", section 3 (ACE, thresholds). Kull, Perello-Nieto, Kängsepp, Silva
    Filho, Song, Flach (2019), "Beyond temperature scaling: obtaining well-calibrated
    multi-class probabilities with Dirichlet calibration", section 2 (class-wise ECE).
    Murphy (1973), "A new vector partition of the probability score", Journal of
    Applied Meteorology 12. Stephenson, Coelho, Jolliffe (2008), "Two extra components
    in the Brier score decomposition", Weather and Forecasting 23 (within bins).
"""

from collections.abc import Iterator
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


class BrierDecomposition(NamedTuple):
    """What the Brier score is made of: see `decompose_brier`.

    `reliability - resolution + uncertainty + within_bins` is `brier_score`.

    Attributes:
        reliability: Squared distance of probabilities from frequencies; 0 is best.
        resolution: Variance of the frequencies between bins; higher is better.
        uncertainty: Score of the frequencies of the classes as the forecast.
        within_bins: What bins hide: the variance of the probabilities in a bin less
            twice their covariance with the outcome. 0 where those of a bin are equal.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float


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
    bins = _equal_width(confidence, num_bins)
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


def classwise_calibration_error(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    num_bins: int = 15,
    threshold: float = 0.0,
) -> float:
    """The calibration error of every class, in bins of equal width, in [0, 1].

    `1/K sum_k sum_b n_kb / N_k |y_kb - p_kb|`, with `p_kb` the mean probability of
    class `k` in the bin, `y_kb` the share of examples in it that are of the class, and
    `n_kb` their number out of `N_k`: Kull et al.'s, where the threshold is 0 and `N_k`
    all examples. Most probabilities of a class are near 0, and a small error says
    little; a threshold leaves these out.

    Args:
        probs: Predictive probabilities.
        labels: True classes.
        num_bins: Bins of equal width over [0, 1].
        threshold: Probabilities below it are left out, class by class.

    Returns:
        The error.
    """
    checks.at_least(1, num_bins=num_bins)
    errors = []
    for p, outcome in _by_class(probs, labels, threshold, 1):
        bins = _equal_width(p, num_bins)
        errors.append(abs(np.bincount(bins, outcome - p)).sum() / p.size)
    return float(np.mean(errors))


def adaptive_calibration_error(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    num_bins: int = 15,
    threshold: float = 0.0,
) -> float:
    """The calibration error of every class, in bins of equal numbers, in [0, 1].

    Nixon et al.'s ACE: `1/(K R) sum_k sum_r |y_kr - p_kr|` over `R` bins that share the
    examples of a class out equally, in order of its probability; the first bins hold
    one more where they don't divide. With a threshold it is their TACE. Examples with
    equal probabilities that fall into two bins are of both in the same proportion of
    outcomes, so that the order in which examples come does not matter.

    Args:
        probs: Predictive probabilities.
        labels: True classes.
        num_bins: Bins of equal numbers.
        threshold: Probabilities below it are left out, class by class.

    Returns:
        The error.
    """
    checks.at_least(1, num_bins=num_bins)
    errors = []
    for p, outcome in _by_class(probs, labels, threshold, num_bins):
        values, group, size = np.unique(p, return_inverse=True, return_counts=True)
        gap = np.repeat(np.bincount(group, outcome) / size - values, size)
        errors += [abs(some.mean()) for some in np.array_split(gap, num_bins)]
    return float(np.mean(errors))


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


def decompose_brier(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    num_bins: int = 15,
) -> BrierDecomposition:
    """The parts of the Brier score: reliability, resolution and uncertainty.

    Class by class, in bins of equal width of its probability, and summed over classes
    as `brier_score` is. With `p_kb` the mean probability of class `k` in a bin of
    `n_kb` examples, `y_kb` the share of these that are of the class, and `y_k` that of
    all: reliability `sum_kb n_kb / N (p_kb - y_kb)^2`, resolution
    `sum_kb n_kb / N (y_kb - y_k)^2`, uncertainty `sum_k y_k (1 - y_k)`. Murphy's parts
    add up to the score where the probabilities of a bin are equal; `within_bins` is the
    rest, and more and narrower bins move it into the other parts.

    Args:
        probs: Predictive probabilities.
        labels: True classes.
        num_bins: Bins of equal width over [0, 1].

    Returns:
        The parts.

    Example:
        >>> probs = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]])
        >>> round(decompose_brier(probs, np.array([0, 1, 1])).uncertainty, 3)
        0.444
    """
    checks.at_least(1, num_bins=num_bins)
    parts = np.zeros(4)
    for p, outcome in _by_class(probs, labels, 0.0, 1):
        bins = _equal_width(p, num_bins)
        _, bins, count = np.unique(bins, return_inverse=True, return_counts=True)
        mean, share = (np.bincount(bins, v) / count for v in (p, outcome))
        weight, overall = count / p.size, outcome.mean()
        rest = (p - mean[bins]) * (p - mean[bins] - 2 * (outcome - share[bins]))
        parts += [
            weight @ (mean - share) ** 2,
            weight @ (share - overall) ** 2,
            overall * (1 - overall),
            rest.mean(),
        ]
    return BrierDecomposition(*parts.tolist())


def _equal_width(
    confidence: Float[np.ndarray, " example"], num_bins: int
) -> Integer[np.ndarray, " example"]:
    """The bin of each probability, of as many of equal width, closed on the right."""
    # Inner edges only: a confidence of 0, of 1, or a rounding above 1 has its bin.
    return np.searchsorted(np.linspace(0, 1, num_bins + 1)[1:-1], confidence)


def _by_class(
    probs: Float[np.ndarray | Array, "example cls"],
    labels: Integer[np.ndarray | Array, " label"],
    threshold: float,
    least: int,
) -> Iterator[tuple[Float[np.ndarray, " kept"], Float[np.ndarray, " kept"]]]:
    """For every class its probabilities from a threshold on, and 1 where it is true.

    Raises:
        ValueError: If the threshold is no probability, or a class has fewer examples
            than that.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"`threshold` must lie in [0, 1); got {threshold}.")
    probs = arguments.probs(probs)
    labels = arguments.labels(labels, *probs.shape)
    for k, p in enumerate(probs.T):
        kept = p >= threshold
        count = int(kept.sum())
        if count < least:
            bins = f"{least} bin{'s' * (least > 1)} of one or more"
            if count == p.size:
                raise ValueError(
                    f"There are too few points: {count} example{'s' * (count > 1)}, "
                    f"for {bins}. Take {least} or more, or lower `num_bins`."
                )
            raise ValueError(
                f"Class {k} has too few points: {count} of {p.size} examples give it a "
                f"probability of at least `threshold` = {threshold}, for {bins}. Lower "
                "`threshold` or `num_bins`."
            )
        yield p[kept], (labels[kept] == k).astype(float)
