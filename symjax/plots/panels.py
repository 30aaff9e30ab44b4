"""A panel a method: selective prediction, and the pairs of an ensemble's members."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from symjax.plots import style
from symjax.plots.style import Numbers


_COLUMNS = 4
_MOST_POINTS = 60
_FIRST_COVERAGE = 0.05
_NUM_BINS = 40

_TICKS = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
_SQUARE_ROOT = (lambda share: np.sqrt(np.maximum(share, 0)), np.square)


def risk_coverage(
    curves: Mapping[str, tuple[Float[Numbers, " point"], Float[Numbers, " point"]]],
) -> Figure:
    """The error among the predictions kept against how many are, a panel a method.

    The error is on a square-root scale, which sets small ones apart. The curves of the
    other methods are grey behind each. Below 5 % coverage, where a curve is that of a
    few examples, nothing is drawn.

    Args:
        curves: For every method the coverage, rising to 1, and the risk.
    """
    thinned = {name: _thinned(*curve) for name, curve in curves.items()}
    fig = style.figure(0.6 + 1.55 * -(-len(curves) // _COLUMNS))
    axes = style.grid(fig, len(curves), _COLUMNS)
    top = max(max(risk.max() for _, risk in thinned.values()), 0.01)
    for place, (ax, name) in enumerate(zip(axes, curves, strict=True)):
        for other in thinned.values():
            ax.plot(*other, color=style.RULE, linewidth=0.8)
        ax.plot(*thinned[name], color=style.ACCENT, linewidth=1.8)
        _say(ax, f"AURC {np.mean(curves[name][1]):.4f}", left=True)
        _dress(ax, name, place, len(curves), "error")
        ax.set_xlim(0, 1)
        ax.set_yscale("function", functions=_SQUARE_ROOT)
        ax.set_ylim(0, 1.5 * top)
        ax.set_yticks([share for share in _TICKS if share <= 1.2 * top])
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_xticks([0, 0.5, 1])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    fig.supxlabel("coverage", fontsize=style.SMALL, color=style.MUTED)
    return fig


def pairs(
    values: Mapping[str, tuple[Float[Numbers, " pair"], Bool[np.ndarray, " pair"]]],
    *,
    xlabel: str,
) -> Figure:
    """A histogram over all pairs of draws, a panel a method.

    Pairs of one chain, or mode, are grey and those of two blue; the median is that of
    all.

    Args:
        values: For every method a number of every pair, and whether its two draws are
            of one chain.
        xlabel: What the number is, and its unit.
    """
    fig = style.figure(0.6 + 1.55 * -(-len(values) // _COLUMNS))
    axes = style.grid(fig, len(values), _COLUMNS)
    most = max(float(np.max(of_pairs)) for of_pairs, _ in values.values())
    edges = np.linspace(0, max(most, 1e-6), _NUM_BINS + 1)
    for place, (ax, (name, (of_pairs, is_same))) in enumerate(
        zip(axes, values.items(), strict=True)
    ):
        clipped, base = np.clip(of_pairs, 0, edges[-1]), np.zeros(_NUM_BINS)
        for mask, colour in ((is_same, style.MUTED), (~is_same, style.ACCENT)):
            share = np.histogram(clipped[mask], edges)[0] / len(clipped)
            if mask.any():
                ax.stairs(base + share, edges, baseline=base, fill=True, color=colour)
            base = base + share
        _say(ax, f"median {np.median(of_pairs):.3g}", left=False)
        _dress(ax, name, place, len(values), "share")
        ax.set_xlim(0, edges[-1])
        ax.set_ylim(0, 1.35 * max(base.max(), 1e-6))
        style.number_ticks(ax.xaxis, 3)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    fig.supxlabel(xlabel, fontsize=style.SMALL, color=style.MUTED)
    _name_colours(fig)
    return fig


def _thinned(
    coverage: Float[Numbers, " point"], risk: Float[Numbers, " point"]
) -> tuple[np.ndarray, np.ndarray]:
    """Some points of a curve, the last included."""
    coverage, risk = np.asarray(coverage), np.asarray(risk)
    first = min(int(np.searchsorted(coverage, _FIRST_COVERAGE)), len(coverage) - 1)
    kept = np.linspace(first, len(coverage) - 1, min(len(coverage), _MOST_POINTS))
    kept = np.unique(kept.astype(int))
    return coverage[kept], risk[kept]


def _dress(ax: Axes, name: str, place: int, count: int, ylabel: str) -> None:
    """Name the vertical axis at the edge of the figure only."""
    label = "" if place % _COLUMNS else ylabel
    style.dress(ax, title=name, ylabel=label, columns=1 + min(_COLUMNS, count))


def _say(ax: Axes, text: str, *, left: bool) -> None:
    ax.text(
        0.04 if left else 0.98,
        0.97,
        text,
        transform=ax.transAxes,
        ha="left" if left else "right",
        va="top",
        fontsize=style.SMALL,
        color=style.INK,
    )


def _name_colours(fig: Figure) -> None:
    named = {"of one chain": style.MUTED, "of two chains": style.ACCENT}
    fig.legend(
        [Line2D([], [], color=colour, linewidth=5) for colour in named.values()],
        list(named),
        loc="outside upper right",
        ncols=2,
        frameon=False,
        fontsize=style.SMALL,
        labelcolor=style.MUTED,
    )
