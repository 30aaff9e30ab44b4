"""Pictures of every method: which predictions to keep, and how its draws differ."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Num

from symjax import evaluation, plots
from symjax.evaluation import diversity, selective
from symjax.report.distances import spaced
from symjax.report.picture import Picture
from symjax.report.scores import Method, Numbers


_MOST_DRAWS = 128
_MOST_EXAMPLES = 500


def selective_prediction(
    methods: Sequence[Method], labels: Num[Numbers, " example"]
) -> Picture:
    """The risk-coverage curve of every method."""
    curves = {}
    for method in _finite(methods):
        probs = evaluation.probs_from_logits(method.outputs)
        is_correct = probs.argmax(axis=1) == np.asarray(labels)
        curve = selective.risk_coverage(probs.max(axis=1), is_correct)
        curves[method.name] = (curve.coverage, curve.risk)
    return Picture(
        "Which predictions can be kept?",
        plots.risk_coverage(curves),
        "The error among the predictions that a method is surest of, by how many are "
        "kept; the other methods are grey. Low on the left is better: a method whose "
        "curve is flat does not know where it errs.",
    )


def functional_collapse(methods: Sequence[Method]) -> Picture | None:
    """The mutual information of all pairs of draws; None where none has two."""
    values = {}
    for method in _finite(methods):
        num_chains, num_draws, num_examples, _ = method.outputs.shape
        chains = spaced(num_chains, _MOST_DRAWS)
        draws = spaced(num_draws, max(1, _MOST_DRAWS // len(chains)))
        if len(chains) * len(draws) < 2 or method.averages is not None:
            continue
        examples = spaced(num_examples, _MOST_EXAMPLES)
        outputs = np.asarray(method.outputs)[np.ix_(chains, draws, examples)]
        i, j = np.triu_indices(len(chains) * len(draws), 1)
        values[method.name] = (
            diversity.pairwise_mutual_information(outputs),
            i // len(draws) == j // len(draws),
        )
    if not values:
        return None
    return Picture(
        "Do two draws compute the same function?",
        plots.pairs(values, xlabel="mutual information (nats)"),
        "Of every pair of draws (evenly spaced, at most "
        f"{_MOST_DRAWS} draws and {_MOST_EXAMPLES} test points) the mutual information "
        "of class and draw, averaged over test points: 0 for two that predict the "
        "same, 0.69 at most. A peak at 0 is functional collapse: many draws, few "
        "functions.",
    )


def _finite(methods: Sequence[Method]) -> list[Method]:
    return [method for method in methods if np.isfinite(method.outputs).all()]
