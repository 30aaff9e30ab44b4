"""From what a method predicts to its numbers: quality, likeness to the reference."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from symjax import evaluation
from symjax.evaluation import bootstrap, diversity
from symjax.evaluation.predictive.regression import wasserstein_per_point
from symjax.evaluation.predictive.summary import Predictions
from symjax.report import distances, quality
from symjax.report.distances import Distance
from symjax.report.scores import Method, Numbers, Scores


_OF_CLASSES = (
    *("accuracy", "nll", "ece", "ace", "brier", "aurc", "agreement"),
    *("total_variation", "mutual_information", "disagreement", "mmd_function"),
)
_OF_MEANS = (
    *("rmse", "nll", "gaussian_nll", "mean_distance", "wasserstein", "mmd_function"),
)

_FEWEST_SAMPLES = 1000
"""Of a predictive distribution; each draw gives as many as that takes."""


class Reference(NamedTuple):
    """What methods are compared with, worked out once for all of them.

    Attributes:
        method: The reference.
        probs_by_chain: Its probabilities by chain; None for a regression.
        draws: A sample of its predictions, see `distances.sample`; None where draws are
            not at hand.
    """

    method: Method
    probs_by_chain: Float[np.ndarray, "chain example output"] | None
    draws: Float[np.ndarray, "chain draw quantity"] | None


def as_reference(
    method: Method,
    probs_by_chain: Float[np.ndarray, "chain example output"] | None = None,
) -> Reference:
    """A method to compare others with."""
    if method.averages is None:
        draws = _predicted(method.outputs, probs_by_chain is None)
    elif method.averages.outputs is not None:
        draws = _predicted(method.averages.outputs)
    else:
        draws = None
    return Reference(method, probs_by_chain, draws)


def classification(
    method: Method,
    labels: Num[Numbers, " example"] | None,
    reference: Reference | None = None,
) -> Scores:
    """Score a classifier.

    Args:
        method: The method.
        labels: True classes; without them there is no quality.
        reference: What it is compared with; None if it is the reference itself.
    """
    scores = _begun(method)
    if not np.isfinite(method.outputs).all():
        return _not_finite(scores, _OF_CLASSES)
    predictions = _summarised(method, labels)
    details = {**scores.details, **quality.out_of_distribution(method, predictions)}
    if labels is not None:
        scores = scores._replace(**quality.of_classes(predictions, labels))
        details |= quality.under_shift(method, labels)
    scores = scores._replace(details=details)
    if method.has_members:
        information = diversity.mutual_information(predictions)
        scores = scores._replace(
            mutual_information=float(np.mean(information)),
            disagreement=diversity.disagreement(predictions),
        )
    if reference is None or reference.probs_by_chain is None:
        return scores
    compared = bootstrap.compare_to_reference(
        predictions.probs_by_chain, reference.probs_by_chain
    )
    scores = scores._replace(**likeness(compared))
    return _with_predicted(scores, _predicted(method.outputs), reference)


def likeness(compared: bootstrap.ReferenceComparison) -> dict[str, Any]:
    """Agreement and total variation with their errors, as fields of `Scores`."""
    found = compared._asdict()
    return {
        **{name: estimate.value for name, estimate in found.items()},
        "errors": {name: estimate.standard_error for name, estimate in found.items()},
    }


def regression(
    method: Method,
    targets: Num[Numbers, "example output"],
    reference: Reference | None = None,
) -> Scores:
    """Score a regression; `reference` as in `classification`."""
    scores = _begun(method)
    if not np.isfinite(method.outputs).all():
        return _not_finite(scores, _OF_MEANS)
    mean, std = method.outputs, method.std
    targets = np.asarray(targets, float)
    scores = scores._replace(rmse=evaluation.rmse(mean, targets))
    if std is not None:
        scores = scores._replace(
            nll=evaluation.gaussian_mixture_nll(mean, std, targets),
            gaussian_nll=evaluation.moment_matched_nll(mean, std, targets),
        )
    if reference is None:
        return scores
    centre = np.mean(reference.method.outputs, axis=(0, 1), dtype=float)
    scores = scores._replace(mean_distance=evaluation.rmse(mean, centre))
    # Noise on one side alone would be all of the distance.
    if (std is None) == (reference.method.std is None):
        # Each with noise of its own: in common, it would make the distance too small.
        samples = _samples(method, seed=0), _samples(reference.method, seed=1)
        distance = wasserstein_per_point(*samples)
        scores = scores._replace(wasserstein=float(np.mean(distance)))
    return _with_predicted(scores, _predicted(method.outputs, True), reference)


def _begun(method: Method) -> Scores:
    """What is known without looking at predictions."""
    scores = Scores(
        method.name,
        seconds=method.seconds,
        bias=method.bias,
        gradients=method.gradients,
    )
    if method.temperatures is not None:
        even, odd = method.temperatures
        details = {"temperature/even": even, "temperature/odd": odd}
        scores = scores._replace(details=details)
    for space, distance in method.mmd.items():
        scores = _with_distance(scores, space, distance)
    return scores


def _summarised(method: Method, labels: Num[Numbers, " example"] | None) -> Predictions:
    """Its averages over draws, with the likelihood of the labels."""
    predictions = evaluation.summarise_predictions(method.outputs, labels)
    if method.averages is None:
        return predictions
    # Of the average over a chain: in the mixture over all draws it is the same.
    return method.averages.predictions._replace(
        log_likelihood=predictions.log_likelihood
    )


def _with_predicted(
    scores: Scores,
    draws: Float[np.ndarray, "chain draw quantity"],
    reference: Reference,
) -> Scores:
    """With the MMD of predictions, where those of the reference's draws are at hand."""
    if reference.draws is None:
        return scores
    return _with_distance(scores, "function", distances.compare(draws, reference.draws))


def _with_distance(scores: Scores, space: str, distance: Distance | None) -> Scores:
    """With the MMD of a space, and how it was tested."""
    if distance is None:
        return scores
    beside = {
        "p_value": distance.p_value,
        "smallest_p_value": distance.smallest_p_value,
        "draws": float(distance.num_draws),
        "reference_draws": float(distance.num_reference_draws),
    }
    known = {
        f"mmd/{space}/{name}": number
        for name, number in beside.items()
        if number is not None
    }
    return scores._replace(
        **{f"mmd_{space}": distance.mmd}, details={**scores.details, **known}
    )


def _predicted(
    outputs: Float[Numbers, "chain draw example output"], is_regression: bool = False
) -> Float[np.ndarray, "some_chain some_draw quantity"]:
    """A sample of what the draws predict: their probabilities or means."""
    if is_regression:
        return distances.sample(outputs)
    return distances.sample(outputs, evaluation.probs_by_draw)


def _samples(method: Method, seed: int) -> Float[np.ndarray, "sample value"]:
    """Samples of the predictive distribution, the noise included where it is known."""
    mean = np.asarray(method.outputs, float)
    mean = mean.reshape(mean.shape[0] * mean.shape[1], -1)
    if method.std is None:
        return mean
    each = -(-_FEWEST_SAMPLES // len(mean))
    mean = np.repeat(mean, each, axis=0)
    std = np.repeat(np.asarray(method.std, float).reshape(-1, mean.shape[1]), each, 0)
    return mean + std * np.random.default_rng(seed).normal(size=mean.shape)


def diverged(method: Method) -> str:
    """What to say of a reference whose predictions are not finite."""
    bad = int(np.sum(~np.isfinite(method.outputs)))
    return (
        f"`reference` must have finite predictions, but {bad:,} of "
        f"{np.size(method.outputs):,} of {method.name} are infinite or NaN: it "
        "diverged. Make its step size smaller."
    )


def _not_finite(scores: Scores, fields: tuple[str, ...]) -> Scores:
    return scores._replace(**dict.fromkeys(fields, math.nan))
