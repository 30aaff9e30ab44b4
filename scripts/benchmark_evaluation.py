"""Seconds that each measure of stored predictions takes, and all of them together.

Logits of random draws stand for those of a run and of an OOD set, by default 4 chains
of 180 draws, 10,000 examples and 10 classes. One pass over each,
`summarise_predictions`, feeds all measures that average over draws. What is compiled is
compiled before, so that the times are those of a second call. Then, apart, what
compares sets of draws.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from symjax import evaluation
from symjax.evaluation import (
    bootstrap,
    diversity,
    ood,
    selective,
    temperature_scaling,
)


@dataclass(frozen=True)
class Options:
    """Time the measures of predictions."""

    num_chains: int = 4
    """Chains."""
    num_draws: int = 180
    """Draws of each chain."""
    num_examples: int = 10_000
    """Test points, in distribution and out of it."""
    num_classes: int = 10
    """Classes."""
    num_members: int = 1000
    """Networks whose pairs are compared, apart from the sum."""
    num_weights: int = 100_000
    """Weights of each draw where sets of draws are compared, apart from the sum."""


def main(options: Options) -> None:
    """Print the table."""
    random = np.random.default_rng(0)
    shape = (
        options.num_chains,
        options.num_draws,
        options.num_examples,
        options.num_classes,
    )
    logits = _logits(random, shape)
    out_logits = _logits(random, shape)
    labels = random.integers(options.num_classes, size=options.num_examples)
    _warm_up(logits)
    table = Table(
        "measure", "seconds", title="Predictions " + " x ".join(map(str, shape))
    )
    total = 0.0
    for name, call in _measures(logits, out_logits, labels).items():
        total += (seconds := _seconds(call))
        table.add_row(name, f"{seconds:.2f}")
    table.add_row("all together", f"{total:.2f}", style="bold")
    console = Console()
    console.print(table)
    console.print(_apart(random, options))


def _logits(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draws that differ by chain and by draw around what each example looks like."""
    centre = 3 * random.standard_normal(shape[2:], np.float32)
    by_chain = random.standard_normal((shape[0], 1, *shape[2:]), np.float32)
    return centre + 0.3 * by_chain + random.standard_normal(shape, np.float32)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _warm_up(logits: np.ndarray) -> None:
    """Compile the two programs, for these shapes."""
    diversity.pairwise_mutual_information(logits)
    labels = np.zeros(logits.shape[2], int)
    temperature_scaling.cross_fit(logits, labels)


def _measures(
    logits: np.ndarray, out_logits: np.ndarray, labels: np.ndarray
) -> dict[str, Callable[[], Any]]:
    """What to time, in an order in which each finds what it shares with others."""
    shared: dict[str, evaluation.Predictions] = {}

    def summarise() -> None:
        shared["in"] = evaluation.summarise_predictions(logits, labels)
        shared["out"] = evaluation.summarise_predictions(out_logits)

    def of_probs(measure: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: measure(shared["in"].probs, labels)

    def detect(score: Callable[..., Any], *, of_probs: bool) -> Callable[[], Any]:
        take = (lambda p: p.probs) if of_probs else (lambda p: p)
        return lambda: ood.detect(*(score(take(shared[k])) for k in ("in", "out")))

    def cover() -> float:
        probs = shared["in"].probs
        is_correct = probs.argmax(axis=1) == labels
        return selective.area_under_risk_coverage(probs.max(axis=1), is_correct)

    return {
        "summaries, in and out of distribution": summarise,
        "NLL": lambda: shared["in"].negative_log_likelihood,
        "accuracy": of_probs(evaluation.accuracy),
        "reliability curve": of_probs(evaluation.reliability_curve),
        "ECE": of_probs(evaluation.expected_calibration_error),
        "adaptive calibration error": of_probs(evaluation.adaptive_calibration_error),
        "class-wise ECE": of_probs(evaluation.classwise_calibration_error),
        "Brier score": of_probs(evaluation.brier_score),
        "Brier decomposition": of_probs(evaluation.decompose_brier),
        "AURC": cover,
        "OOD: maximum softmax": detect(ood.max_softmax_probability, of_probs=True),
        "OOD: predictive entropy": detect(ood.predictive_entropy, of_probs=True),
        "OOD: mutual information": detect(ood.mutual_information, of_probs=False),
        "OOD: energy": detect(ood.energy, of_probs=False),
        "disagreement": lambda: diversity.disagreement(shared["in"]),
        "pairwise mutual information, 1,000 examples": lambda: (
            diversity.pairwise_mutual_information(logits)
        ),
        "agreement and total variation, error bars": lambda: (
            bootstrap.compare_to_reference(
                shared["out"].probs_by_chain, shared["in"].probs_by_chain
            )
        ),
        "between chains, error bars": lambda: bootstrap.compare_chains(
            shared["in"].probs_by_chain
        ),
        "temperature scaling, both halves": lambda: temperature_scaling.cross_fit(
            logits, labels
        ),
    }


def _apart(random: np.random.Generator, options: Options) -> Table:
    """Times of what is no average over draws."""
    table = Table("apart", "seconds")
    examples, classes = options.num_examples, options.num_classes
    members = _logits(random, (1, options.num_members, examples, classes))
    for most in (1000, None):
        measure = diversity.pairwise_mutual_information
        call = functools.partial(measure, members, most)
        name = f"pairs of {options.num_members} members, {most or examples} examples"
        table.add_row(name, f"{_seconds(call):.2f} (with compilation)")
    del members, call
    one, two = random.standard_normal((2, 4, 180, options.num_weights), np.float32)
    key = jax.random.key(0)
    flat = [x.reshape(-1, options.num_weights) for x in (one, two)]
    samples = random.standard_normal((2, 1000, examples), np.float32)
    calls = {
        "MMD of weights, 999 exchanges": lambda: evaluation.compare_draws(one, two),
        "projection to 64 dimensions": lambda: evaluation.project(one, 64, key),
        "sliced Wasserstein, 128 projections": lambda: evaluation.sliced_wasserstein(
            *flat
        ),
        "Wasserstein-1 a point, 1,000 samples": lambda: (
            evaluation.wasserstein_per_point(*samples)
        ),
    }
    for name, call in calls.items():
        table.add_row(name, f"{_seconds(call):.2f}")
    return table


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
