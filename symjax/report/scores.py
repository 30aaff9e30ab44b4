"""How one method does, as numbers: its quality, and its likeness to the reference."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float, Num

from symjax import evaluation
from symjax.evaluation import (
    SpreadComparison,
    bootstrap,
    calibration,
    discrepancy,
    diversity,
    ood,
    selective,
)
from symjax.evaluation.predictive.mixture import mixture_nll
from symjax.evaluation.predictive.summary import Predictions


Numbers: TypeAlias = Array | np.ndarray
Task: TypeAlias = Literal["classification", "regression"]

Bias: TypeAlias = SpreadComparison | Literal["unchecked"] | None
"""Of a sampler without accept step what halving its step size showed, or that this was
not tried; None for all others."""

OOD_SCORE = "predictive_entropy"
"""The score of the tables; all are in the summary and the CSV file."""


class Method(NamedTuple):
    """What a method, or the reference, predicts.

    Attributes:
        name: As it is to be called.
        outputs: What `evaluation.predict` returned for the test points: logits of two
            or more classes, or for regression the means.
        std: For regression, the noise standard deviation of every draw; without it
            there is no negative log likelihood.
        seconds: What the run took.
        bias: Of its step size.
        gradients: What it cost, in gradients of the whole training set.
        family: Methods with the same one differ in their seed only, and make one row.
        mmd_weight: Squared MMD of its weights to the reference's.
        mmd_aligned: The same of the aligned weights.
        ood: For every set of other inputs what `ood_scores` made of its logits there.
        shifts: For every corruption and severity the logits of the corrupted test
            points, `(chain, draw, example, class)`.
    """

    name: str
    outputs: Float[Numbers, "chain draw example output"]
    std: Float[Numbers, "chain draw example output"] | None = None
    seconds: float | None = None
    bias: Bias = None
    gradients: float | None = None
    family: str | None = None
    mmd_weight: float | None = None
    mmd_aligned: float | None = None
    ood: Mapping[str, Mapping[str, Float[Numbers, " example"]]] = {}
    shifts: Mapping[str, Mapping[int, Float[Numbers, "chain draw example output"]]] = {}


class Scores(NamedTuple):
    """How one method does; None where a number has no meaning or can't be had.

    NaN throughout stands for predictions that are not finite.

    Attributes:
        name: Of the method.
        accuracy: Share of test points whose most probable class is the true one.
        nll: Mean negative log density of the test targets under the average over draws
            of the predictive densities, in nats.
        ece: Expected calibration error.
        ace: Adaptive calibration error.
        brier: Brier score.
        aurc: Area under the risk-coverage curve, confidence by the largest probability.
        rmse: Root mean squared error of the predictive mean, in units of the targets.
        gaussian_nll: `nll` of a Gaussian of the same predictive mean and variance.
        agreement: Share of test points that get the reference's class.
        total_variation: Mean total variation distance to the reference's probabilities.
        mean_distance: Root mean squared distance of predictive means to the
            reference's, in units of the targets.
        wasserstein: Wasserstein-1 distance of the predictive means' distribution over
            draws to the reference's, averaged over points, in units of the targets.
        mmd_function: Squared MMD of the draws' predictions to the reference's.
        mmd_weight: The same of the weights.
        mmd_aligned: The same of the aligned weights.
        mutual_information: Of class and draw, averaged over test points, in nats.
        disagreement: Share of test points for which two draws differ in the class.
        gradients: Cost, in gradients of the whole training set.
        seconds: What the run took.
        bias: Of the step size.
        details: All numbers on other inputs, by names such as
            "ood/kmnist/energy/auroc" and "shift/fog/3/nll"; "mean" in place of a
            severity for the mean over them.
        errors: Standard errors of some numbers, by the same names and those above.
        num_seeds: Runs that the numbers are the mean of.
    """

    name: str
    accuracy: float | None = None
    nll: float | None = None
    ece: float | None = None
    ace: float | None = None
    brier: float | None = None
    aurc: float | None = None
    rmse: float | None = None
    gaussian_nll: float | None = None
    agreement: float | None = None
    total_variation: float | None = None
    mean_distance: float | None = None
    wasserstein: float | None = None
    mmd_function: float | None = None
    mmd_weight: float | None = None
    mmd_aligned: float | None = None
    mutual_information: float | None = None
    disagreement: float | None = None
    gradients: float | None = None
    seconds: float | None = None
    bias: Bias = None
    details: Mapping[str, float] = {}
    errors: Mapping[str, float] = {}
    num_seeds: int = 1


NUMBERS = tuple(
    field
    for field in Scores._fields
    if field not in {"name", "bias", "details", "errors", "num_seeds"}
)
"""The fields of `Scores` that are numbers."""


def value(scores: Scores, key: str) -> float | None:
    """A number by its name, a field's or that of a detail."""
    return getattr(scores, key) if key in NUMBERS else scores.details.get(key)


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


def classification(
    method: Method,
    labels: Num[Numbers, " example"] | None,
    reference: Method | None = None,
    reference_probs: Float[np.ndarray, "chain example output"] | None = None,
) -> Scores:
    """Score a classifier.

    Args:
        method: The method.
        labels: True classes; without them there is no quality.
        reference: What it is compared with; None if it is the reference itself.
        reference_probs: The reference's probabilities by chain.
    """
    scores = _begun(method)
    if not np.isfinite(method.outputs).all():
        return _not_finite(scores, _OF_CLASSES)
    predictions = evaluation.summarise_predictions(method.outputs, labels)
    details = _out_of_distribution(method, predictions)
    if labels is not None:
        scores = scores._replace(**_quality(predictions, labels))
        details |= _under_shift(method, labels)
    scores = scores._replace(details=details)
    if _has_members(method):
        information = diversity.mutual_information(predictions)
        scores = scores._replace(
            mutual_information=float(np.mean(information)),
            disagreement=diversity.disagreement(predictions),
        )
    if reference is None or reference_probs is None:
        return scores
    compared = bootstrap.compare_to_reference(
        predictions.probs_by_chain, reference_probs
    )
    return scores._replace(
        agreement=compared.agreement,
        total_variation=compared.total_variation,
        mmd_function=function_mmd(
            evaluation.probs_by_draw, method.outputs, reference.outputs
        ),
        errors={
            "agreement": compared.agreement_error,
            "total_variation": compared.total_variation_error,
        },
    )


def regression(
    method: Method,
    targets: Num[Numbers, "example output"],
    reference: Method | None = None,
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
    centre = np.mean(reference.outputs, axis=(0, 1), dtype=float)
    return scores._replace(
        mean_distance=evaluation.rmse(mean, centre),
        wasserstein=float(
            np.mean(
                evaluation.wasserstein_per_point(_flat(mean), _flat(reference.outputs))
            )
        ),
        mmd_function=function_mmd(np.asarray, mean, reference.outputs),
    )


def pool(several: Sequence[Scores]) -> Scores:
    """Runs that differ in their seed only as one: means, and their standard errors.

    The errors are those of the mean over seeds: the standard deviation between them
    divided by the root of their number; they replace those of single runs.
    """
    first = several[0]
    means, errors = {}, {}
    for key in (*NUMBERS, *first.details):
        found = [value(scores, key) for scores in several]
        known = [number for number in found if number is not None]
        if len(known) < len(found):
            continue
        means[key] = float(np.mean(known))
        if key not in {"gradients", "seconds"}:
            errors[key] = float(np.std(known, ddof=1) / math.sqrt(len(known)))
    biases = [scores.bias for scores in several]
    worst = next(
        (b for b in biases if isinstance(b, SpreadComparison) and b.verdict != "small"),
        first.bias,
    )
    return Scores(
        name=f"{_common_name([s.name for s in several])} ({len(several)} seeds)",
        **{key: means[key] for key in means if key in NUMBERS},
        bias=worst,
        details={key: means[key] for key in first.details if key in means},
        errors=errors,
        num_seeds=len(several),
    )


_OF_CLASSES = (
    *("accuracy", "nll", "ece", "ace", "brier", "aurc", "agreement"),
    *("total_variation", "mutual_information", "disagreement", "mmd_function"),
)
_OF_MEANS = (
    *("rmse", "nll", "gaussian_nll", "mean_distance", "wasserstein", "mmd_function"),
)

_MOST_DRAWS = 256
"""Of each side, in an MMD of predictions."""

_MOST_QUANTITIES = 20_000
"""Predictions of a draw in an MMD: more are a random sample of the test points."""


def function_mmd(
    read: Callable[..., np.ndarray],
    outputs: Float[Numbers, "chain draw example output"],
    reference: Float[Numbers, "chain draw example output"],
) -> float | None:
    """Squared MMD of draws as predictions; None where there are too few of them.

    Args:
        read: From outputs to what is compared: probabilities or means.
        outputs: Of the method.
        reference: Of the reference.
    """
    num_examples, width = outputs.shape[2:]
    most = max(1, _MOST_QUANTITIES // width)
    chosen = np.arange(num_examples)
    if num_examples > most:
        random = np.random.default_rng(0)
        chosen = np.sort(random.choice(num_examples, most, replace=False))
    sides = []
    for of in (outputs, reference):
        num_chains, num_draws = of.shape[:2]
        each = max(1, _MOST_DRAWS // num_chains)
        draws = np.unique(np.linspace(0, num_draws - 1, each).astype(int))
        chains = np.unique(np.linspace(0, num_chains - 1, _MOST_DRAWS).astype(int))
        some = np.stack([np.asarray(of[chain])[draws][:, chosen] for chain in chains])
        values = np.asarray(read(some))
        sides.append(values.reshape(len(chains) * len(draws), -1))
    if min(len(side) for side in sides) < 2:
        return None
    return evaluation.mmd(*sides)


def _begun(method: Method) -> Scores:
    """What is known without looking at predictions."""
    return Scores(
        method.name,
        seconds=method.seconds,
        bias=method.bias,
        gradients=method.gradients,
        mmd_weight=method.mmd_weight,
        mmd_aligned=method.mmd_aligned,
    )


def _quality(
    predictions: Predictions, labels: Num[Numbers, " example"]
) -> dict[str, float]:
    """All that the true classes say of predictions."""
    probs = predictions.probs
    is_correct = probs.argmax(axis=1) == np.asarray(labels)
    return {
        "accuracy": evaluation.accuracy(probs, labels),
        "nll": mixture_nll(predictions.log_likelihood),
        "ece": evaluation.expected_calibration_error(probs, labels),
        "ace": calibration.adaptive_calibration_error(probs, labels),
        "brier": evaluation.brier_score(probs, labels),
        "aurc": selective.area_under_risk_coverage(probs.max(axis=1), is_correct),
    }


def _out_of_distribution(method: Method, predictions: Predictions) -> dict[str, float]:
    """How well each score tells each set of other inputs from the test points."""
    if not method.ood:
        return {}
    inside, found = ood_scores(predictions), {}
    for name, outside in method.ood.items():
        for score, values in outside.items():
            detected = ood.detect(inside[score], np.asarray(values))
            for measure, number in detected._asdict().items():
                found[f"ood/{name}/{score}/{measure}"] = float(number)
        if _has_members(method):
            information = float(np.mean(outside["mutual_information"]))
            found[f"ood/{name}/mean_mutual_information"] = information
    return found


def _under_shift(method: Method, labels: Num[Numbers, " example"]) -> dict[str, float]:
    """Quality on the corrupted test points, of each severity and on average."""
    found = {}
    for name, severities in method.shifts.items():
        each = []
        for severity, outputs in severities.items():
            predictions = evaluation.summarise_predictions(outputs, labels)
            each.append(_quality(predictions, labels))
            for measure, number in each[-1].items():
                found[f"shift/{name}/{severity}/{measure}"] = number
        for measure in each[0]:
            over = [numbers[measure] for numbers in each]
            found[f"shift/{name}/mean/{measure}"] = float(np.mean(over))
    return found


def _has_members(method: Method) -> bool:
    """Whether there are several draws to differ."""
    num_chains, num_draws = method.outputs.shape[:2]
    return num_chains * num_draws > 1


def _flat(
    outputs: Float[Numbers, "chain draw example output"],
) -> Float[np.ndarray, "sample quantity"]:
    """Draws of all chains as samples, examples and outputs as quantities."""
    array = np.asarray(outputs, float)
    return array.reshape(array.shape[0] * array.shape[1], -1)


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


def _common_name(names: Sequence[str]) -> str:
    """What the names begin with, without what counts seeds."""
    shortest, length = min(names, key=len), 0
    while length < len(shortest) and len({name[length] for name in names}) == 1:
        length += 1
    common = shortest[:length]
    if common == common.rstrip("-_. "):  # Of ens10 and ens11 what is left is ens.
        common = common.rstrip("0123456789")
    common = common.rstrip("-_. ").removesuffix("seed").rstrip("-_. ")
    return common or names[0]
