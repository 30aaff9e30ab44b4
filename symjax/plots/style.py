"""The one look of all figures: colours, sizes, axes.

Hues tell chains apart and nothing else; methods share one colour and are named where
they stand.
"""

import textwrap
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Array
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter
from matplotlib.typing import ColorType, LegendLocType


Numbers: TypeAlias = Array | np.ndarray

INK = "#1f2933"
MUTED = "#66727f"
RULE = "#d5dbe1"
WASH = "#f1f3f5"
ACCENT = "#34558b"
ALERT = "#d55e00"

WIDTH = 7.6
"""Inches. A page 760 pixels wide then shows the text at its nominal size."""

SMALL = 8.5
TEXT = 9.5

MAX_NAMED_CHAINS = 8

# Okabe and Ito's colours, which people with any colour blindness tell apart, in an
# order that keeps neighbours far apart in lightness too.
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7a5195",
    "#8c6d31",
)


def colours(count: int) -> list[ColorType]:
    """Distinct colours for `count` chains, a gradient where there are many."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    return [colormaps["viridis"](0.92 * i / (count - 1)) for i in range(count)]


def percent(share: float) -> str:
    """A share as text that says 0 % or 100 % of nothing less than none or all."""
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.1%}" if 0 < share < 1 else f"{share:.0%}"


def figure(height: float, width: float = WIDTH) -> Figure:
    """An empty white figure, sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def dress(
    ax: Axes,
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    columns: int = 1,
) -> None:
    """Give axes their spines, grid, text sizes and a left-aligned title.

    Args:
        ax: The axes.
        title: Broken into lines that fit over one of `columns` panels.
        xlabel: Quantity and unit.
        ylabel: Quantity and unit.
        columns: How many panels share the width of the figure.
    """
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(RULE)
    ax.tick_params(colors=MUTED, labelsize=SMALL, length=3, color=RULE)
    ax.grid(axis="y", color=RULE, linewidth=0.6, alpha=0.7)
    ax.set_axisbelow(True)
    ax.set_xlabel(xlabel, fontsize=TEXT, color=MUTED)
    ax.set_ylabel(ylabel, fontsize=TEXT, color=MUTED)
    name(ax, title, columns)


def name(ax: Axes, title: str, columns: int) -> None:
    """Set the title of one of `columns` panels, in lines that fit."""
    ax.set_title(
        textwrap.fill(title, 88 // columns, break_on_hyphens=False),
        loc="left",
        fontsize=TEXT if columns == 1 else SMALL,
        color=INK,
        fontweight="bold",
    )


def number_ticks(axis: Axis, most: int = 5) -> None:
    """Few ticks, each written out: no shared offset or power of ten."""
    axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(StrMethodFormatter("{x:,.7g}"))


def percent_ticks(axis: Axis, most: int | None = None) -> None:
    """Shares as per cent, with no more digits than they need.

    Args:
        axis: The axis.
        most: Ticks; as the axis has them by default.
    """
    if most is not None:
        axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}%"))


def name_lines(
    fig: Figure, *, num_columns: int, place: LegendLocType = "outside upper right"
) -> None:
    """A legend beside the axes, of what the first of them shows."""
    fig.legend(
        *fig.axes[0].get_legend_handles_labels(),
        loc=place,
        ncols=num_columns,
        frameon=False,
        fontsize=SMALL,
        labelcolor=MUTED,
    )


def name_chains(fig: Figure, count: int) -> None:
    """Name the chains above the figure, while they are few enough to tell apart."""
    if not 1 < count <= MAX_NAMED_CHAINS:
        return
    handles = [Line2D([], [], color=colour, linewidth=3) for colour in colours(count)]
    fig.legend(
        handles,
        [f"chain {i}" for i in range(count)],
        loc="outside upper right",
        ncols=count,
        frameon=False,
        fontsize=SMALL,
        labelcolor=MUTED,
        handlelength=1.0,
        columnspacing=1.2,
        borderpad=0.1,
    )


def grid(fig: Figure, count: int, columns: int) -> list[Axes]:
    """`count` axes in rows of at most `columns`; the last row may be short."""
    return [cell[0] for cell in stacks(fig, count, columns, (1.0,))]


def stacks(
    fig: Figure, count: int, columns: int, ratios: Sequence[float]
) -> list[list[Axes]]:
    """`count` cells in rows of at most `columns`, each a column of joined axes.

    Args:
        fig: An empty figure.
        count: How many cells.
        columns: How many in a row.
        ratios: Heights of the axes of one cell, from the top.
    """
    columns = min(columns, count)
    rows, parts = -(-count // columns), len(ratios)
    axes = fig.subplots(
        parts * rows, columns, squeeze=False, height_ratios=tuple(ratios) * rows
    )
    cells = [
        [axes[parts * row + part, column] for part in range(parts)]
        for row in range(rows)
        for column in range(columns)
    ]
    for ax in (ax for cell in cells[count:] for ax in cell):
        ax.set_axis_off()
    return cells[:count]
