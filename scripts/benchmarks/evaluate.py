"""Seconds of each measure of stored predictions, all together, and how they grow.

Logits of random draws stand for those of a run and of an OOD set, by default 4 chains
of 180 draws, 10,000 examples and 10 classes. One pass over each,
`summarise_predictions`, feeds all measures that average over draws. What is compiled is
compiled before. Growth is that of all measures together with the draws.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from benchmarks import figures
from benchmarks.problems import Scale
from symjax import evaluation
from symjax.evaluation import (
    bootstrap,
    diversity,
    ood,
    selective,
    temperature_scaling,
)


@dataclass(frozen=True)
class Evaluate:
    """The measures of predictions."""

    scale: Scale = "full"
    num_chains: int = 4
    num_draws: int = 180
    """Of each chain."""
    num_examples: int = 10_000
    """Test points, in distribution and out of it."""
    num_classes: int = 10
    num_members: int = 1000
    """Networks whose pairs are compared, apart from the sum; 0 leaves this out."""
    num_weights: int = 100_000
    """Weights of each draw where sets of draws are compared, apart from the sum."""
    growth: tuple[int, ...] = (2, 4, 8)
    """Parts of the draws to compare with: of 8, an eighth."""
    repeats: int = 3
    out: Path = figures.OUT


def main(options):
    random, found = np.random.default_rng(0), []
    ood.detect(np.zeros(2), np.ones(2))  # Imports.
    totals = {}
    for part in (*sorted(options.growth, reverse=True), 1):
        shape = (
            options.num_chains,
            max(10, options.num_draws // part),
            options.num_examples,
            options.num_classes,
        )
        case = "predictions " + " x ".join(map(str, shape))
        one, total = _together(random, shape, case, options, show=part == 1)
        found += one
        totals[shape[1]] = (case, total)
    least = min(totals)
    for num_draws, (case, total) in totals.items():
        if num_draws > least:
            words = f"all together, over {least} draws"
            ratio = total / totals[least][1]
            found.append(figures.figure(case, words, "x", ratio))
    figures.report("evaluate", options, found + _apart(random, options))


def _together(random, shape, case, options, *, show):
    """The measures, and the seconds of all of them."""
    logits, out_logits = _logits(random, shape), _logits(random, shape)
    labels = random.integers(shape[3], size=shape[2])
    diversity.pairwise_mutual_information(logits)  # Compiles, as the next does.
    temperature_scaling.cross_fit(logits, labels)
    taken = {}
    for _ in range(options.repeats):
        for name, call in _measures(logits, out_logits, labels).items():
            taken.setdefault(name, []).append(figures.seconds(call))
    total = np.sum([np.array(values) for values in taken.values()], axis=0)
    found = [figures.figure(case, "all together", "s", total)]
    if show:
        found += [figures.figure(case, n, "s", values) for n, values in taken.items()]
    return found, total


def _logits(random, shape):
    """Draws that differ by chain and by draw around what each example looks like."""
    centre = 3 * random.standard_normal(shape[2:], np.float32)
    by_chain = random.standard_normal((shape[0], 1, *shape[2:]), np.float32)
    return centre + 0.3 * by_chain + random.standard_normal(shape, np.float32)


def _measures(logits, out_logits, labels):
    """What to time, in an order in which each finds what it shares with others."""
    shared = {}

    def summarise():
        shared["in"] = evaluation.summarise_predictions(logits, labels)
        shared["out"] = evaluation.summarise_predictions(out_logits)

    def of_probs(measure):
        return lambda: measure(shared["in"].probs, labels)

    def detect(score, *, of_probs):
        take = (lambda p: p.probs) if of_probs else (lambda p: p)
        return lambda: ood.detect(*(score(take(shared[k])) for k in ("in", "out")))

    def cover():
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


def _apart(random, options):
    """What is no average over draws."""
    examples, classes, size = (
        options.num_examples,
        options.num_classes,
        options.num_weights,
    )
    calls = {}
    if options.num_members:
        members = _logits(random, (1, options.num_members, examples, classes))
        measure = diversity.pairwise_mutual_information
        for most in (1000, None):
            name = (
                f"pairs of {options.num_members} members, {most or examples} examples"
            )
            calls[name] = functools.partial(measure, members, most)
    sets = random.standard_normal(
        (2, options.num_chains, options.num_draws, size), np.float32
    )
    one, two = sets
    flat = [x.reshape(-1, size) for x in sets]
    samples = random.standard_normal((2, 1000, examples), np.float32)
    key = jax.random.key(0)
    calls |= {
        "MMD of weights, 999 exchanges": lambda: evaluation.compare_draws(one, two),
        "projection to 64 dimensions": lambda: evaluation.project(one, 64, key),
        "sliced Wasserstein, 128 projections": lambda: evaluation.sliced_wasserstein(
            *flat
        ),
        "Wasserstein-1 a point, 1,000 samples": lambda: (
            evaluation.wasserstein_per_point(*samples)
        ),
    }
    taken = figures.interleaved(calls, options.repeats)
    return [figures.figure("apart", name, "s", times) for name, times in taken.items()]
