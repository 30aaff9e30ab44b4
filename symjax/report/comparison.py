"""The comparison of methods with the reference, as numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num

from symjax import evaluation
from symjax.evaluation import ChainDistances, Convergence, bootstrap
from symjax.report import scoring
from symjax.report.scores import Averages, Method, Numbers, Scores, Task, pool


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
        canonical_distances: How far their weights in canonical form are, or None.
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
    canonical_distances: ChainDistances | None = None


def compare(
    reference: Method,
    methods: Sequence[Method],
    targets: Num[Numbers, "example ..."] | None,
    *,
    task: Task,
    trace: Trace | None = None,
    weight: Convergence | None = None,
    aligned: Convergence | None = None,
    weight_distances: ChainDistances | None = None,
    aligned_distances: ChainDistances | None = None,
    canonical_distances: ChainDistances | None = None,
) -> Comparison:
    """Compare methods with a reference posterior, and the reference with itself.

    Args:
        reference: The reference; several chains allow to judge it.
        methods: The methods, none or more.
        targets: Labels `(example,)`, or real targets `(example, output)`; None where
            they are not known, of a classification.
        task: Kind of targets.
        trace: What the chains of the reference logged.
        weight: Convergence of its weights, from `evaluation.summarise`.
        aligned: The same of its aligned weights.
        weight_distances: From `evaluation.chain_distances` of its weights.
        aligned_distances: The same of its aligned weights.
        canonical_distances: The same of its weights in canonical form.

    Returns:
        The numbers of the report.

    Raises:
        ValueError: If the reference has one logit only or predictions that are not
            finite, two methods have one name, or one predicts other test points.
    """  # noqa: DOC502
    _check(reference, methods, task)
    judged, of_all = _score(reference, methods, targets, task)
    is_classification = task == "classification"
    draws = evaluation.probs_by_draw if is_classification else np.asarray
    values = draws(reference.outputs)
    averages = reference.averages
    comparison = Comparison(
        task=task,
        reference=of_all[0],
        methods=_by_family(methods, of_all[1:]),
        between_chains=_between_chains(reference, judged),
        function=evaluation.summarise(values)
        if averages is None
        else averages.convergence,
        weight=weight,
        num_chains=values.shape[0],
        num_draws=reference.num_draws,
        num_examples=values.shape[2],
        aligned=aligned,
        function_distances=_function_distances(values, averages),
        weight_distances=weight_distances,
        aligned_distances=aligned_distances,
        canonical_distances=canonical_distances,
    )
    comparison = _with_mmd_between(comparison)
    return comparison if trace is None else _with_trace(comparison, trace)


def _score(
    reference: Method,
    methods: Sequence[Method],
    targets: Num[Numbers, "example ..."] | None,
    task: Task,
) -> tuple[scoring.Reference, list[Scores]]:
    """The reference as others are compared with it; its scores, and theirs.

    Raises:
        ValueError: If the reference is not finite, or a regression has no targets.
    """
    if task == "classification":
        if not np.isfinite(reference.outputs).all():
            raise ValueError(scoring.diverged(reference))
        by_chain = evaluation.probs_by_chain(reference.outputs)
        judged = scoring.as_reference(reference, by_chain)
        return judged, [
            scoring.classification(reference, targets),
            *(scoring.classification(method, targets, judged) for method in methods),
        ]
    if targets is None:
        raise ValueError("`targets` must be given for a regression; got None.")
    judged = scoring.as_reference(reference)
    return judged, [
        scoring.regression(reference, targets),
        *(scoring.regression(method, targets, judged) for method in methods),
    ]


def _check(reference: Method, methods: Sequence[Method], task: Task) -> None:
    """Require what can be compared.

    Raises:
        ValueError: If it can't.
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
    wanted = reference.outputs.shape[2:]
    for method in methods:
        if method.outputs.shape[2:] != wanted:
            raise ValueError(
                f"`methods` must predict what {reference.name} does, {wanted[0]:,} "
                f"test points with {wanted[1]} outputs each, but {method.name} has "
                f"{method.outputs.shape[2]:,} with {method.outputs.shape[3]}."
            )


def _by_family(
    methods: Sequence[Method], of_methods: Sequence[Scores]
) -> tuple[Scores, ...]:
    """The scores, those of one family as one, where its first was."""
    families: dict[str, list[Scores]] = {}
    for method, found in zip(methods, of_methods, strict=True):
        families.setdefault(method.family or f"alone: {method.name}", []).append(found)
    return tuple(
        found[0] if len(found) == 1 else pool(found) for found in families.values()
    )


def _between_chains(reference: Method, judged: scoring.Reference) -> Scores | None:
    """Each chain against the others together, averaged; None for one chain."""
    outputs = np.asarray(reference.outputs)
    if len(outputs) < 2:
        return None
    if judged.probs_by_chain is not None:
        compared = bootstrap.compare_chains(judged.probs_by_chain)
        return Scores("between chains", **scoring.likeness(compared))
    means = outputs.mean(axis=1, dtype=float)
    distances = [
        evaluation.rmse(mean[None, None], np.delete(means, chain, axis=0).mean(axis=0))
        for chain, mean in enumerate(means)
    ]
    return Scores("between chains", mean_distance=float(np.mean(distances)))


def _function_distances(
    values: Float[Numbers, "chain draw example output"], averages: Averages | None
) -> ChainDistances | None:
    """Between the reference's chains, of what their draws predict."""
    if averages is None:
        return evaluation.chain_distances(values)
    if averages.outputs is None:
        return None
    return evaluation.chain_distances(evaluation.probs_by_draw(averages.outputs))


def _with_mmd_between(comparison: Comparison) -> Comparison:
    """The MMD of each chain to the others, beside that of the methods."""
    between = comparison.between_chains
    if between is None:
        return comparison
    spaces = {
        "mmd_function": comparison.function_distances,
        "mmd_weight": comparison.weight_distances,
        "mmd_aligned": comparison.aligned_distances,
        "mmd_canonical": comparison.canonical_distances,
    }
    known = {name: of.mmd for name, of in spaces.items() if of is not None}
    return comparison._replace(between_chains=between._replace(**known))


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
