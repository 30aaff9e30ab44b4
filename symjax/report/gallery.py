"""The pictures of a report, each with how to read it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Num
from matplotlib.figure import Figure

from symjax import evaluation, plots
from symjax.evaluation.convergence import SlowQuantity
from symjax.evaluation.reading import Leaf, take
from symjax.report import examples
from symjax.report.chains import flat, sample
from symjax.report.comparison import Comparison, Trace
from symjax.report.scores import Method, Numbers


_INTERVAL = 0.9
_MOST_INTERVALS = 300


class Picture(NamedTuple):
    """A figure as the report shows it.

    Attributes:
        title: Heading above it.
        figure: The figure.
        reading: How to read it, in a sentence or two.
    """

    title: str
    figure: Figure
    reading: str


def pictures(
    comparison: Comparison,
    reference: Method,
    methods: Sequence[Method],
    targets: Num[Numbers, "example ..."],
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
        targets: Test targets.
        x: Test inputs, shown where they look like images.
        trace: What the chains of the reference logged.
        read_leaf: Gives the leaf of draws at a path, which may be read when indexed;
            needed for the traces of weights.

    Returns:
        The pictures.
    """
    classification = comparison.task == "classification"
    last = (
        [_reliability(reference, methods, targets), _disputed(reference, targets, x)]
        if classification
        else [_intervals(reference, targets)]
    )
    drawn = [
        _distances(comparison),
        _rhat(comparison),
        _log_density(trace),
        _acceptance(trace),
        _disputed_draws(comparison, reference),
        _slow_weights(comparison, read_leaf),
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
    figure = plots.scores(
        {
            title: {m.name: getattr(m, field) for m in comparison.methods}
            for title, field in fields.items()
        },
        between and {title: getattr(between, field) for title, field in fields.items()},
        ideal={title: float(title == "Agreement") for title in fields},
    )
    reading = "Each dot is a method's likeness to the reference. "
    if between is not None:
        reading += (
            "The dashed line is how alike one chain of the reference and the others "
            "are: a method that reaches it is as good as one more chain."
        )
    return Picture("How near does each method come?", figure, reading)


def _rhat(comparison: Comparison) -> Picture | None:
    rhat = comparison.function.rhat
    if rhat is None:
        return None
    weight, aligned = (
        None if of is None else flat(of.rhat or {})
        for of in (comparison.weight, comparison.aligned)
    )
    reading = (
        "R-hat compares the spread between chains with that within: 1 means that "
        "they can't be told apart. Weights may well stay above it, since symmetric "
        "copies of a network have different weights and the same predictions. "
    )
    if comparison.aligned is not None:
        reading += (
            "Aligned weights are those of the copy nearest to a reference that was "
            "fixed beforehand; alignment lowers R-hat by construction. "
        )
    reading += "The predictions are the ones to judge by."
    for what, of in (
        ("weights", comparison.weight),
        ("aligned weights", comparison.aligned),
        ("predictions", comparison.function),
    ):
        if of is not None and of.num_judged < of.num_quantities:
            reading += f" The {what} shown are {sample(of)}."
    figure = plots.rhat(
        np.empty(0) if weight is None else weight, flat(rhat), aligned=aligned
    )
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


def _disputed_draws(comparison: Comparison, reference: Method) -> Picture:
    """Traces of the predictions whose chain averages are furthest apart."""
    values, kind = np.asarray(reference.outputs), "output"
    if comparison.task == "classification":
        values, kind = evaluation.probs_by_draw(values), "probability of class"
    means = values.mean(axis=1, dtype=float)
    # One chain is apart from no other: its least certain predictions stand in.
    disputed = len(means) > 1
    spread = means.var(axis=0) if disputed else values[0].var(axis=0)
    points = np.argsort(-spread.max(axis=1), kind="stable")[:4]
    outputs = spread[points].argmax(axis=1)
    figure = plots.quantities(
        np.moveaxis(values[:, :, points, outputs], -1, 2),
        [
            f"test point {point}, {kind} {output}"
            for point, output in zip(points, outputs, strict=True)
        ],
    )
    if not disputed:
        return Picture(
            "The least certain predictions",
            figure,
            "The thin line is the draws, the thick line their average so far, which "
            "should have come to rest.",
        )
    return Picture(
        "The most disputed predictions",
        figure,
        "Thin lines are the draws, thick lines each chain's average so far. The "
        "averages should come together; how far apart they end is how far the "
        "reference can be trusted on its worst test points.",
    )


def _slow_weights(
    comparison: Comparison,
    read_leaf: Callable[[str], Leaf] | None,
) -> Picture | None:
    if comparison.weight is None or read_leaf is None:
        return None
    worst = evaluation.slowest(comparison.weight, 6)
    if not worst:
        return None
    traces = {}
    for path in {quantity.path for quantity in worst}:
        leaf = read_leaf(path)
        listed = [quantity for quantity in worst if quantity.path == path]
        columns = np.array([_column(quantity, leaf) for quantity in listed])
        drawn = np.moveaxis(take(leaf, columns), -1, 0)
        traces |= dict(zip(listed, drawn, strict=True))
    figure = plots.slowest_weights(
        np.stack([traces[quantity] for quantity in worst], axis=-1),
        [_label(quantity) for quantity in worst],
    )
    return Picture(
        "The weights that mix worst",
        figure,
        "Chains that keep to levels of their own are in different copies or modes of "
        "the network; chains that drift are too short.",
    )


def _column(quantity: SlowQuantity, leaf: Leaf) -> int:
    """Its place in the leaf with the axes behind (chain, draw) made one."""
    if not quantity.index:
        return 0
    return int(np.ravel_multi_index(quantity.index, leaf.shape[2:]))


def _label(quantity: SlowQuantity) -> str:
    place = quantity.path
    if quantity.index:
        place += f"[{', '.join(map(str, quantity.index))}]"
    if quantity.rhat is not None:
        return f"{place} · R-hat\N{NO-BREAK SPACE}{quantity.rhat:.2f}"
    return f"{place} · effective sample size {quantity.ess_bulk:.0f}"


def _reliability(
    reference: Method, methods: Sequence[Method], labels: Num[Numbers, " example"]
) -> Picture:
    curves = {}
    for method in (reference, *methods):
        if np.isfinite(method.outputs).all():
            probs = evaluation.probs_from_logits(method.outputs)
            curve = evaluation.reliability_curve(probs, labels)
            curves[method.name] = (curve.confidence, curve.accuracy, curve.count)
    return Picture(
        "Reliability",
        plots.reliability(curves),
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
