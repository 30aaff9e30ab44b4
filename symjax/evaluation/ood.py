"""Does a model know inputs that are not of its distribution?

Every score is higher where an input looks more out of distribution.

References:
    Hendrycks, Gimpel (2017), "A baseline for detecting misclassified and
    out-of-distribution examples in neural networks" (maximum softmax probability,
    AUROC, AUPR of both directions). Liang, Li, Srikant (2018), "Enhancing the
    reliability of out-of-distribution image detection in neural networks", section 4.2
    (FPR at 95 % TPR). Liu, Wang, Owens, Li (2020), "Energy-based out-of-distribution
    detection", eq. 4. Davis, Goadrich (2006), "The relationship between
    precision-recall and ROC curves" (why not to join points of it by lines).
"""

from typing import NamedTuple

import numpy as np
import scipy  # Its parts are imported where they are used first.
from jaxtyping import Array, Float
from scipy import special

from symjax.evaluation import arguments, diversity
from symjax.evaluation.predictive.summary import Predictions


class Detection(NamedTuple):
    """How well a score tells inputs that are in from those out of distribution.

    Attributes:
        auroc: Probability that an input out of distribution has the higher score, an
            equal one counted half; 0.5 for a score that knows nothing.
        aupr_in: Average precision with the inputs in distribution as positives, the
            lowest scores first. For a score that knows nothing it is their share.
        aupr_out: Average precision with the inputs out of distribution as positives,
            the highest scores first.
        fpr95: Share of the inputs out of distribution that pass for inputs in
            distribution at the lowest threshold which lets at least 95 % of those pass.
    """

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95: float


def max_softmax_probability(
    probs: Float[np.ndarray | Array, "example cls"],
) -> Float[np.ndarray, " example"]:
    """One minus the probability of the predicted class, in [0, 1).

    Args:
        probs: Predictive probabilities: of several draws their average.

    Returns:
        The score.
    """
    return 1 - arguments.probs(probs).max(axis=1)


def predictive_entropy(
    probs: Float[np.ndarray | Array, "example cls"],
) -> Float[np.ndarray, " example"]:
    """The entropy of the predictive probabilities, in nats.

    Args:
        probs: Predictive probabilities: of several draws their average.

    Returns:
        The score, `-sum_c p_c log p_c`.
    """
    return special.entr(arguments.probs(probs)).sum(axis=1)


def mutual_information(
    logits: Float[np.ndarray | Array, "chain draw example cls"] | Predictions,
) -> Float[np.ndarray, " example"]:
    """The part of the predictive entropy that is the draws' disagreement, in nats.

    Args:
        logits: The outputs of every draw, or their `summarise_predictions`.

    Returns:
        The score, see `diversity.mutual_information`.
    """
    return diversity.mutual_information(logits)


def energy(
    logits: Float[np.ndarray | Array, "chain draw example cls"] | Predictions,
) -> Float[np.ndarray, " example"]:
    """The free energy of the mean logits: `-log sum_c exp(1/S sum_s f_sc)`.

    Liu et al.'s energy at temperature 1, of the logits averaged over draws: of one
    network it is theirs. Log-sum-exp being convex, it is at least the average of the
    draws' own energies, and above it by as much as their logits disagree. Adding a
    constant to all logits of an input, which leaves its probabilities, changes it.

    Args:
        logits: The outputs of every draw, or their `summarise_predictions`.

    Returns:
        The score.
    """
    if isinstance(logits, Predictions):
        mean = logits.mean_logits
    else:
        mean = arguments.logits(logits).mean(axis=(0, 1), dtype=float)
    return -np.asarray(special.logsumexp(mean, axis=1))


def detect(
    in_scores: Float[np.ndarray | Array, " example"],
    out_scores: Float[np.ndarray | Array, " example2"],
) -> Detection:
    """How well scores tell two sets of inputs apart.

    Equal scores are one threshold: inputs that share a score pass or fail together.
    Average precision is the sum over thresholds of precision times the gain in recall,
    without interpolation; which set is the larger moves it.

    Args:
        in_scores: Of inputs in distribution.
        out_scores: Of inputs out of distribution, meant to be higher.

    Returns:
        The measures, each in [0, 1].

    Raises:
        ValueError: If a set is empty or a score is not finite.

    Example:
        >>> detect(np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.8])).auroc
        0.9166666666666666
    """
    inside = arguments.finite(in_scores, "in_scores")
    outside = arguments.finite(out_scores, "out_scores")
    if not inside.size or not outside.size:
        raise ValueError(
            "`in_scores` and `out_scores` must hold at least one score each; got "
            f"{inside.size} and {outside.size}."
        )
    # Mann-Whitney: the mean rank of equal scores counts each such pair half.
    ranks = scipy.stats.rankdata(np.concatenate([outside, inside]))
    wins = ranks[: outside.size].sum() - outside.size * (outside.size + 1) / 2
    kept = np.sort(inside)[int(np.ceil(0.95 * inside.size - 1e-9)) - 1]
    return Detection(
        auroc=float(wins / (inside.size * outside.size)),
        aupr_in=_average_precision(-inside, -outside),
        aupr_out=_average_precision(outside, inside),
        fpr95=float((outside <= kept).mean()),
    )


def _average_precision(
    positive: Float[np.ndarray, " example"], negative: Float[np.ndarray, " example2"]
) -> float:
    """Average precision, the positives meant to score higher."""
    thresholds = np.unique(positive)[::-1]
    hits = _at_or_above(positive, thresholds)
    precision = hits / (hits + _at_or_above(negative, thresholds))
    return float(precision @ np.diff(hits, prepend=0) / positive.size)


def _at_or_above(
    scores: Float[np.ndarray, " example"], thresholds: Float[np.ndarray, " threshold"]
) -> Float[np.ndarray, " threshold"]:
    below = np.searchsorted(np.sort(scores), thresholds, side="left")
    return (scores.size - below).astype(float)
