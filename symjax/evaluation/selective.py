"""Selective prediction: how good are the predictions a model is surest of?

References:
    El-Yaniv, Wiener (2010), "On the foundations of noise-free selective
    classification", Journal of Machine Learning Research 11. Geifman, Uziel, El-Yaniv
    (2019), "Bias-reduced uncertainty estimation for deep neural classifiers", section 2
    (AURC).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from symjax.evaluation import arguments


class RiskCoverage(NamedTuple):
    """The error among the predictions kept, by how many are kept.

    Attributes:
        coverage: Share of examples kept, `1/N, 2/N, ..., 1`.
        risk: Share of wrong predictions among them, the most confident kept first.
    """

    coverage: Float[np.ndarray, " example"]
    risk: Float[np.ndarray, " example"]


def risk_coverage(
    confidence: Float[np.ndarray | Array, " example"],
    is_correct: Bool[np.ndarray | Array, " example"],
) -> RiskCoverage:
    """The error among the most confident predictions, for every number of them.

    Of examples with equal confidence a random part is kept: the risk is its expectation
    over their order, so that the order in which examples come does not matter.

    Args:
        confidence: Higher where a prediction is to be trusted more, such as the maximum
            softmax probability, or minus a score of `ood`.
        is_correct: Whether each prediction is right.

    Returns:
        The curve, one point for each number of examples kept.

    Raises:
        TypeError: If `is_correct` is not of truth values.
        ValueError: If there is no example.
    """
    confidence = arguments.finite(confidence, "confidence")
    correct = np.asarray(is_correct)
    if correct.dtype != bool:
        raise TypeError(f"`is_correct` must be true or false; got {correct.dtype}.")
    arguments.same_shape("is_correct", correct.shape, confidence.shape)
    wrong = ~correct
    if not wrong.size:
        raise ValueError("`confidence` must hold at least one example; it holds none.")
    _, group, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    share = np.bincount(group, wrong) / size
    kept = np.arange(1, wrong.size + 1)
    errors = np.cumsum(np.repeat(share, size))
    return RiskCoverage(coverage=kept / wrong.size, risk=errors / kept)


def area_under_risk_coverage(
    confidence: Float[np.ndarray | Array, " example"],
    is_correct: Bool[np.ndarray | Array, " example"],
) -> float:
    """The area under the risk-coverage curve (AURC), in [0, 1].

    The mean of the risk over all coverages `1/N, ..., 1`; lower is better. It mixes
    accuracy and ranking: a confidence that knows nothing gives the error rate.

    Args:
        confidence: As in `risk_coverage`.
        is_correct: Whether each prediction is right.

    Returns:
        The area.

    Example:
        >>> area_under_risk_coverage(np.array([0.9, 0.6]), np.array([True, False]))
        0.25
    """
    return float(risk_coverage(confidence, is_correct).risk.mean())
