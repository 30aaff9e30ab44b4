"""The comparison of methods with the reference, as numbers."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Num

from symjax import evaluation
from symjax.evaluation import ChainDistances, Convergence, SpreadComparison


Numbers: TypeAlias = Array | np.ndarray
Task: TypeAlias = Literal["classification", "regression"]

Bias: TypeAlias = SpreadComparison | Literal["unchecked"] | None
"""Of a sampler without accept step what halving its step size showed, or that this was
not tried; None for all others."""


class Method(NamedTuple):
    """What a method, or the reference, predicts for the test points.

    Attributes:
        name: As it is to be called.
        outputs: What `evaluation.predict` returned: logits of two or more classes, or
            for regression the means.
        std: For regression, the noise standard deviation of every draw; without it
            there is no negative log likelihood.
        seconds: What the run took.
        bias: Of its step size.
    """

    name: str
    outputs: Float[Numbers, "chain draw example output"]
    std: Float[Numbers, "chain draw example output"] | None = None
    seconds: float | None = None
    bias: Bias = None


class Scores(NamedTuple):
    """How one method does; None where a number has no meaning or can't be had.

    NaN throughout stands for predictions that are not finite.

    Attributes:
        name: Of the method.
        accuracy: Share of test points whose most probable class is the true one.
        nll: Mean negative log density of the test targets under the average over draws
            of the predictive densities, in nats.
        ece: Expected calibration error.
        brier: Brier score.
        rmse: Root mean squared error of the predictive mean, in units of the targets.
        gaussian_nll: `nll` of a Gaussian of the same predictive mean and variance.
        agreement: Share of test points that get the reference's class.
        total_variation: Mean total variation distance to the reference's probabilities.
        mean_distance: Root mean squared distance of predictive means to the
            reference's, in units of the targets.
        seconds: What the run took.
        bias: Of the step size.
    """

    name: str
    accuracy: float | None = None
    nll: float | None = None
    ece: float | None = None
    brier: float | None = None
    rmse: float | None = None
    gaussian_nll: float | None = None
    agreement: float | None = None
    total_variation: float | None = None
    mean_distance: float | None = None
    seconds: float | None = None
    bias: Bias = None


class Trace(NamedTuple):
    """What the chains of the reference logged, warm-up included.

    Attributes:
        log_density: Of the state after every iteration, in nats.
        acceptance: Acceptance probability of every proposal; None where there is no
            accept step.
        divergent: Which proposals diverged.
        num_warmup: How many first iterations were not of the target.
    """

    log_density: Float[Numbers, "chain iteration"]
    acceptance: Float[Numbers, "chain iteration"] | None = None
    divergent: Bool[Numbers, "chain iteration"] | None = None
    num_warmup: int = 0


class Comparison(NamedTuple):
    """The methods beside the reference, and how far the reference is to be trusted.

    Attributes:
        task: Kind of targets.
        reference: Scores of the reference, without a distance to itself.
        methods: Scores of the methods.
        between_chains: Distance of each chain of the reference to the others, averaged:
            the ceiling of what a method can reach. None with one chain.
        function: Convergence of the predictions (probabilities or means).
        weight: Convergence of the weights, or None where it was not examined.
        num_chains: Of the reference.
        num_draws: Kept of each chain of the reference.
        num_examples: Test points.
        num_iterations: Of each chain after warm-up.
        acceptance: Mean acceptance probability of each chain after warm-up.
        divergences: Divergent proposals of each chain after warm-up.
        log_density_quartiles: Of each chain after warm-up, in nats.
        aligned: Convergence of the weights with the symmetries removed, or None where
            it was not examined.
        function_distances: How far the predictions of the chains are apart.
        weight_distances: How far their weights are, or None.
        aligned_distances: How far their aligned weights are, or None.
    """

    task: Task
    reference: Scores
    methods: tuple[Scores, ...]
    between_chains: Scores | None
    function: Convergence
    weight: Convergence | None
    num_chains: int
    num_draws: int
    num_examples: int
    num_iterations: int = 0
    acceptance: Float[np.ndarray, " chain"] | None = None
    divergences: Num[np.ndarray, " chain"] | None = None
    log_density_quartiles: Float[np.ndarray, "chain 3"] | None = None
    aligned: Convergence | None = None
    function_distances: ChainDistances | None = None
    weight_distances: ChainDistances | None = None
    aligned_distances: ChainDistances | None = None


def compare(
    reference: Method,
    methods: Sequence[Method],
    targets: Num[Numbers, "example ..."],
    *,
    task: Task,
    trace: Trace | None = None,
    weight: Convergence | None = None,
    aligned: Convergence | None = None,
    weight_distances: ChainDistances | None = None,
    aligned_distances: ChainDistances | None = None,
) -> Comparison:
    """Compare methods with a reference posterior, and the reference with itself.

    Args:
        reference: The reference; several chains allow to judge it.
        methods: The methods, none or more.
        targets: Labels `(example,)`, or real targets `(example, output)`.
        task: Kind of targets.
        trace: What the chains of the reference logged.
        weight: Convergence of its weights, from `evaluation.summarise`.
        aligned: The same of its aligned weights.
        weight_distances: From `evaluation.chain_distances` of its weights.
        aligned_distances: The same of its aligned weights.

    Returns:
        The numbers of the report.

    Raises:
        ValueError: If the reference has one logit only, or two methods have one name.
    """
    names = [method.name for method in (reference, *methods)]
    if len(set(names)) < len(names):
        raise ValueError(f"`methods` must have names of their own; got {names}.")
    classes = reference.outputs.shape[3]
    if task == "classification" and classes < 2:
        raise ValueError(
            f"`reference` must have logits of two or more classes; got {classes}. Give "
            "the log odds of label 1 beside zeros for label 0."
        )
    if task == "classification":
        score = _classification
        centre = evaluation.probs_from_logits(reference.outputs)
        values = evaluation.probs_by_draw(reference.outputs)
    else:
        score = _regression
        centre = np.mean(reference.outputs, axis=(0, 1), dtype=float)
        values = np.asarray(reference.outputs)
    comparison = Comparison(
        task=task,
        reference=score(reference, targets)._replace(bias=reference.bias),
        methods=tuple(
            score(method, targets, centre)._replace(bias=method.bias)
            for method in methods
        ),
        between_chains=_between_chains(reference, task),
        function=evaluation.summarise(values),
        weight=weight,
        num_chains=values.shape[0],
        num_draws=values.shape[1],
        num_examples=values.shape[2],
        aligned=aligned,
        function_distances=evaluation.chain_distances(values),
        weight_distances=weight_distances,
        aligned_distances=aligned_distances,
    )
    return comparison if trace is None else _with_trace(comparison, trace)


def _classification(
    method: Method,
    labels: Num[Numbers, " example"],
    reference_probs: Float[np.ndarray, "example class"] | None = None,
) -> Scores:
    if reference_probs is not None and not np.isfinite(method.outputs).all():
        return _not_finite(
            method, ("accuracy", "nll", "ece", "brier", "agreement", "total_variation")
        )
    probs = evaluation.probs_from_logits(method.outputs)
    scores = Scores(
        name=method.name,
        accuracy=evaluation.accuracy(probs, labels),
        nll=evaluation.negative_log_likelihood(method.outputs, labels),
        ece=evaluation.expected_calibration_error(probs, labels),
        brier=evaluation.brier_score(probs, labels),
        seconds=method.seconds,
    )
    if reference_probs is None:
        return scores
    return scores._replace(
        agreement=evaluation.agreement(probs, reference_probs),
        total_variation=evaluation.total_variation(probs, reference_probs),
    )


def _regression(
    method: Method,
    targets: Num[Numbers, "example output"],
    reference_mean: Float[np.ndarray, "example output"] | None = None,
) -> Scores:
    if reference_mean is not None and not np.isfinite(method.outputs).all():
        return _not_finite(method, ("rmse", "nll", "gaussian_nll", "mean_distance"))
    mean, std = method.outputs, method.std
    targets = np.asarray(targets, float)
    scores = Scores(
        name=method.name,
        rmse=evaluation.rmse(mean, targets),
        seconds=method.seconds,
    )
    if std is not None:
        scores = scores._replace(
            nll=evaluation.gaussian_mixture_nll(mean, std, targets),
            gaussian_nll=evaluation.moment_matched_nll(mean, std, targets),
        )
    if reference_mean is not None:
        scores = scores._replace(mean_distance=evaluation.rmse(mean, reference_mean))
    return scores


def _between_chains(reference: Method, task: Task) -> Scores | None:
    """Each chain against the others together, averaged; None for one chain."""
    outputs = np.asarray(reference.outputs)
    if len(outputs) < 2:
        return None
    if task == "classification":
        between = evaluation.between_chains(evaluation.probs_by_chain(outputs))
        return Scores("between chains", **between._asdict())
    means = outputs.mean(axis=1, dtype=float)
    distances = [
        evaluation.rmse(mean[None, None], np.delete(means, chain, axis=0).mean(axis=0))
        for chain, mean in enumerate(means)
    ]
    return Scores("between chains", mean_distance=float(np.mean(distances)))


def _with_trace(comparison: Comparison, trace: Trace) -> Comparison:
    """What the chains logged after warm-up."""
    kept = slice(trace.num_warmup, None)
    log_density = np.asarray(trace.log_density, float)[:, kept]
    if not log_density.shape[1]:
        return comparison
    acceptance, divergent = trace.acceptance, trace.divergent
    return comparison._replace(
        num_iterations=log_density.shape[1],
        log_density_quartiles=np.quantile(log_density, (0.25, 0.5, 0.75), axis=1).T,
        acceptance=(
            None if acceptance is None else np.mean(acceptance[:, kept], 1, dtype=float)
        ),
        divergences=None if divergent is None else np.sum(divergent[:, kept], axis=1),
    )


def _not_finite(method: Method, fields: tuple[str, ...]) -> Scores:
    nothing = dict.fromkeys(fields, math.nan)
    return Scores(method.name, seconds=method.seconds)._replace(**nothing)
