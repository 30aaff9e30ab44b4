"""What a method predicts, and the numbers that say how it does."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float

from symjax.evaluation import Convergence, Predictions, SpreadComparison
from symjax.report.distances import Distance


Numbers: TypeAlias = Array | np.ndarray
Task: TypeAlias = Literal["classification", "regression"]

Bias: TypeAlias = SpreadComparison | Literal["unchecked"] | None
"""Of a sampler without accept step what halving its step size showed, or that this was
not tried; None for all others."""

OOD_SCORE = "predictive_entropy"
"""The score of the tables; all are in the summary and the CSV file."""


class Averages(NamedTuple):
    """What is known of draws that are not at hand themselves, or not all of them.

    Attributes:
        predictions: Over all of them, without the likelihood of labels.
        convergence: Of the probabilities.
        outputs: Logits of those that are at hand, for the MMD of predictions.
    """

    predictions: Predictions
    convergence: Convergence
    outputs: Float[Numbers, "chain draw example output"] | None = None


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
        mmd: How far its draws are from the reference's, by "weight" (as they are),
            "aligned" and "canonical".
        ood: For every set of other inputs what `ood_scores` made of its logits there.
        shifts: For every corruption and severity the logits of the corrupted test
            points, `(chain, draw, example, class)`.
        temperatures: What its logits were divided by, of the examples at even and at
            odd places; None for logits as they are.
        averages: Of a classification whose draws are not at hand; `outputs` are then
            the logarithms of their `probs_by_chain`, as logits of one draw a chain.
    """

    name: str
    outputs: Float[Numbers, "chain draw example output"]
    std: Float[Numbers, "chain draw example output"] | None = None
    seconds: float | None = None
    bias: Bias = None
    gradients: float | None = None
    family: str | None = None
    mmd: Mapping[str, Distance] = {}
    ood: Mapping[str, Mapping[str, Float[Numbers, " example"]]] = {}
    shifts: Mapping[str, Mapping[int, Float[Numbers, "chain draw example output"]]] = {}
    temperatures: tuple[float, float] | None = None
    averages: Averages | None = None

    @property
    def num_draws(self) -> int:
        """Draws a chain, also those that are not at hand."""
        if self.averages is None:
            return self.outputs.shape[1]
        return int(self.averages.predictions.votes[0].sum()) // len(self.outputs)

    @property
    def has_members(self) -> bool:
        """Whether there are several draws to differ."""
        return self.num_draws * len(self.outputs) > 1


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
        wasserstein: Wasserstein-1 distance of the predictive distribution, noise
            included, to the reference's, averaged over points, in units of the targets;
            without noise where neither has one, and none where one of them has.
        mmd_function: Squared MMD of the draws' predictions to the reference's.
        mmd_weight: The same of the weights.
        mmd_aligned: The same of the aligned weights.
        mmd_canonical: The same of the weights in canonical form.
        mutual_information: Of class and draw, averaged over test points, in nats.
        disagreement: Share of test points for which two draws differ in the class.
        gradients: Cost, in gradients of the whole training set.
        seconds: What the run took.
        bias: Of the step size.
        details: All numbers on other inputs, by names such as
            "ood/kmnist/energy/auroc" and "shift/fog/3/nll"; "mean" in place of a
            severity for the mean over them. And what belongs to other numbers, such as
            "mmd/weight/p_value" and "temperature/even".
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
    mmd_canonical: float | None = None
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


def pool(several: Sequence[Scores]) -> Scores:
    """Runs that differ in their seed only as one: means, and their standard errors.

    The errors are those of the mean over seeds: the standard deviation between them
    divided by the root of their number; they replace those of single runs. Of p-values
    it is twice the mean, at most 1, which is a p-value whatever their dependence (Vovk,
    Wang 2020, "Combining p-values via averaging", Biometrika 107). The bias of a step
    size is the worst of them.
    """
    first = several[0]
    means, errors = {}, {}
    for key in (*NUMBERS, *first.details):
        found = [value(scores, key) for scores in several]
        known = [number for number in found if number is not None]
        if len(known) < len(found):
            continue
        means[key] = float(np.mean(known))
        if key.endswith("/p_value"):
            means[key] = min(1.0, 2 * means[key])
        elif key not in {"gradients", "seconds"} and not key.startswith("mmd/"):
            errors[key] = float(np.std(known, ddof=1) / math.sqrt(len(known)))
    biases: list[Bias] = [scores.bias for scores in several]
    return Scores(
        name=f"{_common_name([s.name for s in several])} ({len(several)} seeds)",
        **{key: means[key] for key in means if key in NUMBERS},
        bias=max(biases, key=_concern),
        details={key: means[key] for key in first.details if key in means},
        errors=errors,
        num_seeds=len(several),
    )


def _concern(bias: Bias) -> int:
    """How much there is to be said against a run; the more, the worse."""
    verdict = bias.verdict if isinstance(bias, SpreadComparison) else bias
    return (None, "small", "unchecked", "unclear", "biased").index(verdict)


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
