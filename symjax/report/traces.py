"""Pictures of single predictions and weights along the chains."""

from collections.abc import Callable

import numpy as np

from symjax import evaluation, plots
from symjax.evaluation.convergence import SlowQuantity
from symjax.evaluation.reading import Leaf, take
from symjax.report.comparison import Comparison
from symjax.report.picture import Picture
from symjax.report.scores import Method


def disputed_draws(comparison: Comparison, reference: Method) -> Picture | None:
    """Traces of the predictions whose chain averages are furthest apart.

    None where the draws are not at hand.
    """
    if reference.averages is not None:
        return None
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


def slow_weights(
    comparison: Comparison,
    read_leaf: Callable[[str], Leaf] | None,
) -> Picture | None:
    """Traces of the weights with the largest R-hat; None where they can't be read."""
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
