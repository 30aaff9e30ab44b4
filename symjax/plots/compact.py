"""The compact posterior: deviations of weights, pruning by them, transpositions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from symjax.plots import style
from symjax.plots.style import Numbers


def deviations(
    before: Mapping[str, Float[Numbers, "..."]],
    after: Mapping[str, Float[Numbers, "..."]],
    prior_std: Mapping[str, float],
) -> Figure:
    """The weights' standard deviations before and after alignment, a panel a leaf.

    Grey bars are before, the line is after; the dashed line is the prior's.

    Args:
        before: For every leaf, the standard deviation of each weight over draws.
        after: The same of aligned draws.
        prior_std: For every leaf, the prior's standard deviation.
    """
    fig = style.figure(1.9 * -(-len(before) // 2) + 0.3)
    for ax, name in zip(style.grid(fig, len(before), 2), before, strict=True):
        pair = [np.ravel(np.asarray(which[name])) for which in (before, after)]
        top = max(*(values.max() for values in pair), 1.05 * prior_std[name])
        # As many bins as Rice's rule has: a line of ten biases is no histogram of 60.
        num_bins = min(60, math.ceil(2 * pair[0].size ** (1 / 3)))
        edges = np.linspace(0, top, num_bins + 1).tolist()
        shares = [np.full(values.size, 1 / values.size) for values in pair]
        grey: dict[str, Any] = {"color": style.RULE, "label": "before alignment"}
        line: dict[str, Any] = {"color": style.ACCENT, "label": "after alignment"}
        line |= {"histtype": "step", "linewidth": 1.4}
        for values, weights, look in zip(pair, shares, (grey, line), strict=True):
            ax.hist(values, edges, weights=weights, **look)
        ax.axvline(
            prior_std[name],
            color=style.INK,
            linewidth=0.9,
            linestyle="--",
            label="the prior's",
        )
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        title = f"{name} ({pair[0].size:,})"
        style.dress(ax, title=title, xlabel="standard deviation", columns=2)
    style.name_lines(fig, num_columns=3)
    return fig


def pruning(
    shares: Float[Numbers, " share"],
    accuracies: Mapping[str, Float[Numbers, " share"]],
) -> Figure:
    """Accuracy against the share of weights set to zero, widest first.

    Args:
        shares: Of the weights, set to zero.
        accuracies: For every network, and what it was pruned by, its accuracies.
    """
    fig = style.figure(3.2)
    ax = fig.subplots()
    colours = style.colours(len(accuracies))
    for (name, values), colour in zip(accuracies.items(), colours, strict=True):
        ax.plot(shares, values, marker="o", markersize=3, color=colour, label=name)
    style.percent_ticks(ax.xaxis)
    style.percent_ticks(ax.yaxis)
    ax.set_ylim(bottom=0)
    style.dress(ax, xlabel="weights set to zero", ylabel="accuracy")
    style.name_lines(fig, num_columns=1, place="outside right center")
    return fig


def transpositions(
    trials: Mapping[str, Sequence[int | float]],
    positions: Sequence[float],
    along: Mapping[str, Sequence[int]],
) -> Figure:
    """Transpositions put in and found again, barriers, and transpositions on a line.

    Args:
        trials: Columns `given`, `found`, `barrier` (nats) and `barrier_matched`, one
            entry a trial; see `symmetry.transpositions.Trial`.
        positions: Between two networks.
        along: For each of two lines, by name, the transpositions at each position.
    """
    fig = style.figure(2.7)
    given, found = np.asarray(trials["given"]), np.asarray(trials["found"])
    first, second, third = style.grid(fig, 3, 3)
    first.plot(given, given, color=style.MUTED, linewidth=0.9, linestyle="--")
    first.plot(given, found, color=style.ACCENT, marker="o", linestyle="")
    style.dress(
        first, title="Transpositions found", xlabel="transpositions given", columns=3
    )
    barriers = {
        "before": trials["barrier"],
        "after matching": trials["barrier_matched"],
    }
    for ax, x, lines in ((second, given, barriers), (third, positions, along)):
        for colour, (name, values) in zip(
            (style.MUTED, style.ACCENT), lines.items(), strict=True
        ):
            ax.plot(x, values, marker="o", markersize=3, color=colour, label=name)
        ax.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.MUTED)
    style.dress(
        second, title="Loss barrier (nats)", xlabel="transpositions given", columns=3
    )
    style.dress(
        third, title="Transpositions on a line", xlabel="position between", columns=3
    )
    return fig
