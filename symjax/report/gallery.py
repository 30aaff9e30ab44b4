"""The pictures of a report, each with how to read it."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Num

from symjax import evaluation, plots
from symjax.evaluation.reading import Leaf
from symjax.report import curves, examples, traces
from symjax.report.chains import flat, sample
from symjax.report.comparison import Comparison, Trace
from symjax.report.picture import Picture
from symjax.report.scores import Method, Numbers


_INTERVAL = 0.9
_MOST_INTERVALS = 300


def pictures(
    comparison: Comparison,
    reference: Method,
    methods: Sequence[Method],
    targets: Num[Numbers, "example ..."] | None,
    *,
    x: Num[Numbers, "example ..."] | None = None,
    trace: Trace | None = None,
    read_leaf: Callable[[str], Leaf] | None = None,
) -> list[Picture]:
    """All pictures that the given arrays allow, in the order of the report.

    Args:
        comparison: What `compare` made of the same arrays.
        reference: The reference.
        methods: The methods.
        targets: Test targets; None where they are not known.
        x: Test inputs, shown where they look like images.
        trace: What the chains of the reference logged.
        read_leaf: Gives the leaf of draws at a path, which may be read when indexed;
            needed for the traces of weights.

    Returns:
        The pictures.
    """
    last, every = [], (reference, *methods)
    if comparison.task == "classification":
        last = [curves.functional_collapse(every)]
        if targets is not None:
            last = [
                _reliability(every, targets),
                curves.selective_prediction(every, targets),
                *last,
                _disputed(reference, targets, x),
            ]
    elif targets is not None:
        last = [_intervals(reference, targets)]
    drawn = [
        _distances(comparison),
        _cost(comparison),
        _rhat(comparison),
        _log_density(trace),
        _acceptance(trace),
        traces.disputed_draws(comparison, reference),
        traces.slow_weights(comparison, read_leaf),
        *last,
    ]
    return [picture for picture in drawn if picture is not None]


def _distances(comparison: Comparison) -> Picture | None:
    if not comparison.methods:
        return None
    fields = {"Agreement": "agreement", "Total variation": "total_variation"}
    if comparison.task == "regression":
        fields = {"Distance of predictive means": "mean_distance"}
    between = comparison.between_chains
    every = comparison.methods if between is None else (*comparison.methods, between)
    figure = plots.scores(
        {
            title: {m.name: getattr(m, field) for m in comparison.methods}
            for title, field in fields.items()
        },
        between and {title: getattr(between, field) for title, field in fields.items()},
        errors={
            title: {m.name: m.errors[field] for m in every if field in m.errors}
            for title, field in fields.items()
        },
        ideal={title: float(title == "Agreement") for title in fields},
    )
    of, error, shaded = "likeness to", ", ± a standard error", ", shaded by its error"
    if comparison.task == "regression":
        of, error, shaded = "distance to", ", in units of the targets", ""
    reading = f"Each dot is a method's {of} the reference{error}. "
    if between is not None:
        reading += (
            "The dashed line is that of one chain of the reference to the others"
            f"{shaded}: a method that reaches it is as good as one more chain."
        )
    return Picture("How near does each method come?", figure, reading)


def _cost(comparison: Comparison) -> Picture | None:
    """Cost against the distance to the reference."""
    field, distance = "total_variation", "total variation to the reference"
    if comparison.task == "regression":
        field, distance = "mean_distance", "distance of predictive means"
    points, errors = {}, {}
    for scores in comparison.methods:
        cost, number = scores.gradients, getattr(scores, field)
        if cost and number is not None and np.isfinite(number):
            points[scores.name] = (cost, number)
            if field in scores.errors:
                errors[scores.name] = scores.errors[field]
    if not points:
        return None
    between = comparison.between_chains
    figure = plots.pareto(
        points,
        ceiling=between and getattr(between, field),
        ceiling_error=between and between.errors.get(field),
        errors=errors,
        xlabel="cost, in gradients of the whole training set",
        ylabel=distance,
    )
    reading = (
        "Down and to the left is better. Blue methods are on the front: none is both "
        "cheaper and nearer. "
    )
    cost = comparison.reference.gradients
    if cost:
        reading += f"The reference itself took {cost:,.0f} gradients."
    return Picture("Cost and nearness", figure, reading.rstrip())


def _rhat(comparison: Comparison) -> Picture | None:
    rhat = comparison.function.rhat
    if rhat is None:
        return None
    weight, aligned = (
        None if of is None or of.rhat is None else flat(of.rhat)
        for of in (comparison.weight, comparison.aligned)
    )
    reading = (
        "R-hat compares the spread between chains with that within: 1 means that "
        "they can't be told apart."
    )
    if weight is not None:
        reading += (
            " Weights may well stay above it, since symmetric copies of a network have "
            "different weights and the same predictions."
        )
    if aligned is not None:
        reading += (
            " Aligned weights are those of the copy nearest to a reference that was "
            "fixed beforehand; alignment lowers R-hat by construction."
        )
    if weight is not None or aligned is not None:
        reading += " The predictions are the ones to judge by."
    for what, of in (
        ("weights", comparison.weight),
        ("aligned weights", comparison.aligned),
        ("predictions", comparison.function),
    ):
        if of is not None and of.num_judged < of.num_quantities:
            reading += f" The {what} shown are {sample(of)}."
    figure = plots.rhat(weight, flat(rhat), aligned=aligned)
    return Picture("Do the chains agree?", figure, reading)


def _log_density(trace: Trace | None) -> Picture | None:
    if trace is None:
        return None
    return Picture(
        "Log density along the chains",
        plots.log_density(trace.log_density, num_warmup=trace.num_warmup),
        "After the shaded warm-up all chains should wander over the same range, "
        "without a trend. A flat line is a stuck chain; a line of its own height is "
        "a chain in another region.",
    )


def _acceptance(trace: Trace | None) -> Picture | None:
    if trace is None or trace.acceptance is None:
        return None
    return Picture(
        "Acceptance",
        plots.acceptance(
            trace.acceptance, trace.divergent, num_warmup=trace.num_warmup
        ),
        "Below the green band the step size is too large and work is thrown away, "
        "above it the steps are smaller than need be. A tick at the bottom is a "
        "divergent proposal.",
    )


def _reliability(
    methods: Sequence[Method], labels: Num[Numbers, " example"]
) -> Picture:
    found = {}
    for method in methods:
        if np.isfinite(method.outputs).all():
            probs = evaluation.probs_from_logits(method.outputs)
            curve = evaluation.reliability_curve(probs, labels)
            found[method.name] = (curve.confidence, curve.accuracy, curve.count)
    return Picture(
        "Reliability",
        plots.reliability(found),
        "On the dashed line a prediction made with 80% confidence is right 80% of the "
        "time; above it the method is too cautious, below it too sure. Bars are 95% "
        "intervals: with few examples in a bin, below, they are wide.",
    )


def _disputed(
    reference: Method,
    labels: Num[Numbers, " example"],
    x: Num[Numbers, "example ..."] | None,
) -> Picture | None:
    """The test points on which the chains are furthest apart."""
    probs = evaluation.probs_by_chain(reference.outputs)
    if len(probs) < 2:
        return None
    order = np.argsort(-evaluation.chain_disagreement(probs), kind="stable")[:8]
    images = None if x is None else examples.as_images(x)
    figure = plots.disagreements(
        probs[:, order],
        np.asarray(labels)[order],
        images=None if images is None else images[order],
    )
    return Picture(
        "Test points the chains disagree on most",
        figure,
        "One bar a chain and class, the true class shaded, the most disputed test "
        "point first. Bars of one height mean that the chains agree, also where they "
        "agree that it is hard to say.",
    )


def _intervals(
    reference: Method, targets: Num[Numbers, "example output"]
) -> Picture | None:
    if reference.std is None:
        return None
    shown = slice(_MOST_INTERVALS)
    mean = np.asarray(reference.outputs, float)[:, :, shown]
    std = np.asarray(reference.std, float)[:, :, shown]
    lower, upper = (
        examples.mixture_quantile(mean, std, share)
        for share in ((1 - _INTERVAL) / 2, (1 + _INTERVAL) / 2)
    )
    targets = np.asarray(targets, float)
    few = (
        f"The first {_MOST_INTERVALS} test points. "
        if len(targets) > len(lower)
        else ""
    )
    return Picture(
        "Predictions and targets",
        plots.intervals(
            mean.mean(axis=(0, 1)), lower, upper, targets[shown], level=_INTERVAL
        ),
        f"{few}Dots on the dashed line are right; the bars are {_INTERVAL:.0%} "
        "intervals of the reference, noise included. Those that miss their target "
        f"are orange, and {1 - _INTERVAL:.0%} should.",
    )
