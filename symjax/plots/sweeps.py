"""Scores over a grid of temperatures and prior scales."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from symjax.plots import style


LABELS = {"accuracy": "accuracy", "nll": "NLL (nats)", "ece": "ECE", "rmse": "RMSE"}


def sweep(
    temperatures: Sequence[float],
    prior_variances: Sequence[float],
    scores: Mapping[str, Sequence[float]],
    chain_scores: Mapping[str, Sequence[Sequence[float]]],
    is_converged: Sequence[bool],
) -> Figure:
    """One row a metric, against the temperature and against the prior's variance.

    Lines are all chains together; small dots are single chains, which predict worse
    than all together where they differ. A vertical line marks T = 1, the posterior
    itself, and a ring the best point of each line: rings to the left of T = 1 are a
    cold-posterior effect. Points whose chains are not known to have converged are
    hollow, and get no ring.

    Args:
        temperatures: Of each point of the grid.
        prior_variances: Of one weight, for each point of the grid.
        scores: For every metric, that of each point.
        chain_scores: For every metric, for each point, that of each chain.
        is_converged: Whether the chains of each point are known to have.
    """
    t, variance = np.asarray(temperatures), np.asarray(prior_variances)
    axes_of = {"temperature T": (t, variance), "prior variance": (variance, t)}
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
            judged = np.asarray(is_converged)
            _lines(ax, x, other, np.asarray(values), chain_scores[metric], judged, best)
            _scale(ax, x, metric)
            if xlabel.startswith("temperature"):
                ax.axvline(1, color=style.MUTED, linewidth=0.8, linestyle="--")
    for ax, (xlabel, (_, other)) in zip(panels[0], shown.items(), strict=True):
        symbol = "prior var." if xlabel.startswith("temperature") else "T"
        _legend(ax, np.unique(other), symbol, all_converged=all(is_converged))
    return fig


def _lines(
    ax: Axes,
    x: np.ndarray,
    other: np.ndarray,
    values: np.ndarray,
    of_chains: Sequence[Sequence[float]],
    judged: np.ndarray,
    best: Callable[[np.ndarray], Any],
) -> None:
    """One line for each value of what is not on the axis."""
    kinds = np.unique(other)
    for kind, colour in zip(kinds, _shades(len(kinds)), strict=True):
        chosen = np.flatnonzero(other == kind)
        chosen = chosen[np.argsort(x[chosen])]
        ax.plot(x[chosen], values[chosen], "o-", color=colour, markersize=3.5, lw=1.3)
        hollow = chosen[~judged[chosen]]
        ax.plot(
            x[hollow], values[hollow], "o", color=colour, ms=3.5, mfc="white", zorder=4
        )
        for point in chosen:
            single = of_chains[point]
            if len(single) > 1:
                ax.plot(
                    [x[point]] * len(single), single, ".", color=colour, ms=3, alpha=0.6
                )
        compared = chosen[judged[chosen]]
        if len(compared) > 1:
            at = compared[best(values[compared])]
            ax.plot(x[at], values[at], "o", ms=9, mfc="none", mec=style.ALERT, mew=1.3)


def _shades(count: int) -> list[Any]:
    """Light to dark: an order, not the hues of chains."""
    return [colormaps["Blues"](v) for v in np.linspace(1, 0.45, count)[::-1]]


def _scale(ax: Axes, x: np.ndarray, metric: str) -> None:
    ax.set_xscale("log")
    ax.set_xticks(np.unique(x))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    if metric == "accuracy":
        style.percent_ticks(ax.yaxis)


def _legend(ax: Axes, kinds: np.ndarray, symbol: str, *, all_converged: bool) -> None:
    handles = [Line2D([], [], color=shade, lw=2) for shade in _shades(len(kinds))]
    labels = [f"{symbol} {kind:.3g}" for kind in kinds]
    if len(kinds) < 2:
        handles, labels = [], []
    if not all_converged:
        hollow = Line2D(
            [], [], color=style.MUTED, marker="o", ms=3.5, mfc="white", lw=0
        )
        handles, labels = [*handles, hollow], [*labels, "convergence not shown"]
    if handles:
        ax.legend(
            handles,
            labels,
            frameon=False,
            fontsize=style.SMALL,
            labelcolor=style.MUTED,
        )
