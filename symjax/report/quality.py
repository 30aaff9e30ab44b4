"""What true classes, and other inputs, say of the predictions of a classifier."""

import numpy as np
from jaxtyping import Float, Num

from symjax import evaluation
from symjax.evaluation import calibration, ood, selective
from symjax.evaluation.predictive.mixture import mixture_nll
from symjax.evaluation.predictive.summary import Predictions
from symjax.report.scores import Method, Numbers


def ood_scores(
    logits: Float[Numbers, "chain draw example output"] | Predictions,
) -> dict[str, Float[np.ndarray, " example"]]:
    """Every score that is to tell other inputs apart, higher where they are other.

    Args:
        logits: Of every draw, or their `evaluation.summarise_predictions`.
    """
    if not isinstance(logits, Predictions):
        logits = evaluation.summarise_predictions(logits)
    return {
        "max_softmax_probability": ood.max_softmax_probability(logits.probs),
        "predictive_entropy": ood.predictive_entropy(logits.probs),
        "mutual_information": ood.mutual_information(logits),
        "energy": ood.energy(logits),
    }


def of_classes(
    predictions: Predictions, labels: Num[Numbers, " example"]
) -> dict[str, float]:
    """All that the true classes say of predictions."""
    probs = predictions.probs
    assert predictions.log_likelihood is not None  # It was summarised with labels.
    is_correct = probs.argmax(axis=1) == np.asarray(labels)
    return {
        "accuracy": evaluation.accuracy(probs, labels),
        "nll": mixture_nll(predictions.log_likelihood),
        "ece": evaluation.expected_calibration_error(probs, labels),
        "ace": calibration.adaptive_calibration_error(probs, labels),
        "brier": evaluation.brier_score(probs, labels),
        "aurc": selective.area_under_risk_coverage(probs.max(axis=1), is_correct),
    }


def out_of_distribution(method: Method, predictions: Predictions) -> dict[str, float]:
    """How well each score tells each set of other inputs from the test points."""
    if not method.ood:
        return {}
    inside, found = ood_scores(predictions), {}
    for name, outside in method.ood.items():
        for score, values in outside.items():
            if score == "mutual_information" and not method.has_members:
                continue  # Nothing but rounding.
            detected = ood.detect(inside[score], np.asarray(values))
            for measure, number in detected._asdict().items():
                found[f"ood/{name}/{score}/{measure}"] = float(number)
        if method.has_members:
            information = float(np.mean(outside["mutual_information"]))
            found[f"ood/{name}/mean_mutual_information"] = information
    return found


def under_shift(method: Method, labels: Num[Numbers, " example"]) -> dict[str, float]:
    """Quality on the corrupted test points, of each severity and on average."""
    found = {}
    for name, severities in method.shifts.items():
        each = []
        for severity, outputs in severities.items():
            predictions = evaluation.summarise_predictions(outputs, labels)
            each.append(of_classes(predictions, labels))
            for measure, number in each[-1].items():
                found[f"shift/{name}/{severity}/{measure}"] = number
        for measure in each[0]:
            over = [numbers[measure] for numbers in each]
            found[f"shift/{name}/mean/{measure}"] = float(np.mean(over))
    return found
