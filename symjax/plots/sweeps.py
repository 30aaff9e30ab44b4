"""Scores over a grid of temperatures and prior scales."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from symjax.plots import style


LABELS = {"accuracy": "accuracy", "nll": "NLL (nats)", "ece": "ECE", "rmse": "RMSE"}


def sweep(
    temperatures: Sequence[float],
    prior_scales: Sequence[float],
    scores: Mapping[str, Sequence[float]],
    chain_scores: Mapping[str, Sequence[Sequence[float]]],
) -> Figure:
    """One row a metric, against the temperature and against the prior's variance.

    Lines are all chains together; small dots are single chains, which predict worse
    than all together where they differ. A vertical line marks T = 1, the posterior
    itself, and a ring the best point of each line: rings to the left of T = 1 are a
    cold-posterior effect.

    Args:
        temperatures: Of each point of the grid.
        prior_scales: Of each point of the grid; the prior's variance is taken as the
            square.
        scores: For every metric, that of each point.
        chain_scores: For every metric, for each point, that of each chain.
    """
    axes_of = {
        "temperature T": (np.asarray(temperatures), np.asarray(prior_scales) ** 2),
        "prior variance (scale²)": (
            np.asarray(prior_scales) ** 2,
            np.asarray(temperatures),
        ),
    }
    shown = {name: pair for name, pair in axes_of.items() if len(set(pair[0])) > 1}
    shown = shown or dict(list(axes_of.items())[:1])
    fig = style.figure(0.5 + 1.9 * len(scores))
    panels = fig.subplots(
        len(scores), len(shown), squeeze=False, sharex="col", sharey="row"
    )
    for row, (metric, values) in zip(panels, scores.items(), strict=True):
        is_last = metric == list(scores)[-1]
        for ax, (xlabel, (x, other)) in zip(row, shown.items(), strict=True):
            style.dress(
                ax,
                xlabel=xlabel if is_last else "",
                ylabel=LABELS[metric] if ax is row[0] else "",
            )
            best = np.argmax if metric == "accuracy" else np.argmin
            _lines(ax, x, other, np.asarray(values), chain_scores[metric], best)
            _scale(ax, x, metric)
            if xlabel.startswith("temperature"):
                ax.axvline(1, color=style.MUTED, linewidth=0.8, linestyle="--")
    for ax, (xlabel, (_, other)) in zip(panels[0], shown.items(), strict=True):
        symbol = "prior var." if xlabel.startswith("temperature") else "T"
        _legend(ax, np.unique(other), symbol)
    return fig


def _lines(
    ax: Axes,
    x: np.ndarray,
    other: np.ndarray,
    values: np.ndarray,
    of_chains: Sequence[Sequence[float]],
    best: object,
) -> None:
    """One line for each value of what is not on the axis."""
    kinds = np.unique(other)
    for kind, colour in zip(kinds, _shades(len(kinds)), strict=True):
        chosen = np.flatnonzero(other == kind)
        chosen = chosen[np.argsort(x[chosen])]
        ax.plot(x[chosen], values[chosen], "o-", color=colour, markersize=3.5, lw=1.3)
        for point in chosen:
            single = of_chains[point]
            if len(single) > 1:
                ax.plot(
                    [x[point]] * len(single), single, ".", color=colour, ms=3, alpha=0.6
                )
        if len(chosen) > 1 and np.isfinite(values[chosen]).any():
            finite = chosen[np.isfinite(values[chosen])]
            at = finite[best(values[finite])]  # type: ignore[operator]
            ax.plot(x[at], values[at], "o", ms=9, mfc="none", mec=style.ALERT, mew=1.3)


def _shades(count: int) -> list[Any]:
    """Light to dark: an order, not the hues of chains."""
    return [colormaps["Blues"](v) for v in np.linspace(0.45, 1, count)[-count:]]


def _scale(ax: Axes, x: np.ndarray, metric: str) -> None:
    ax.set_xscale("log")
    ax.set_xticks(np.unique(x))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    if metric == "accuracy":
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))


def _legend(ax: Axes, kinds: np.ndarray, symbol: str) -> None:
    if len(kinds) < 2:
        return
    ax.legend(
        [Line2D([], [], color=shade, lw=2) for shade in _shades(len(kinds))],
        [f"{symbol} {kind:.3g}" for kind in kinds],
        frameon=False,
        fontsize=style.SMALL,
        labelcolor=style.MUTED,
    )
