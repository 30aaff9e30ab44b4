"""What a method costs against how near it comes to the reference."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from symjax.plots import style


# Where a name may stand beside its dot, in points, the best first.
_AROUND: tuple[tuple[float, float, Literal["left", "center", "right"]], ...] = (
    *((7, 0, "left"), (-7, 0, "right"), (7, 8, "left"), (7, -8, "left")),
    *((-7, 8, "right"), (-7, -8, "right"), (0, 11, "center"), (0, -11, "center")),
    *((7, 16, "left"), (7, -16, "left"), (-7, 16, "right"), (-7, -16, "right")),
    *((12, 26, "left"), (12, -26, "left"), (-12, 26, "right"), (-12, -26, "right")),
    *((18, 38, "left"), (18, -38, "left"), (-18, 38, "right"), (-18, -38, "right")),
)
_FAR = 20  # From here on a line leads to the dot.
_LEADER = {"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.6, "shrinkB": 4}


def pareto(
    methods: Mapping[str, tuple[float, float]],
    *,
    ceiling: float | None = None,
    ceiling_error: float | None = None,
    errors: Mapping[str, float] | None = None,
    xlabel: str,
    ylabel: str,
) -> Figure:
    """A dot a method, both axes logarithmic; the front joined by steps.

    On the front is a method than which none is both cheaper and nearer.

    Args:
        methods: For every name its cost and its distance, above 0.
        ceiling: The distance of the reference's own chains, a dashed line.
        ceiling_error: Its standard error, a band.
        errors: Standard errors of some distances.
        xlabel: The cost and its unit.
        ylabel: The distance.
    """
    fig = style.figure(4.6)
    ax = fig.subplots()
    ax.set_xscale("log")
    front = _front(methods)
    if len(front) > 1:
        x, y = np.array([methods[name] for name in front]).T
        ax.step(x, y, where="post", color=style.ACCENT, linewidth=1.2, alpha=0.5)
    for name, (cost, distance) in methods.items():
        colour = style.ACCENT if name in front else style.MUTED
        error = (errors or {}).get(name)
        if error is not None:
            bar = [distance - error, distance + error]
            ax.plot([cost, cost], bar, color=colour, linewidth=2, alpha=0.4)
        ax.plot(cost, distance, "o", color=colour, markersize=7)
    if ceiling is not None:
        _draw_ceiling(ax, ceiling, ceiling_error)
    costs = [cost for cost, _ in methods.values()]
    # Room at the sides for names.
    room = (max(costs) / min(costs)) ** 0.1
    ax.set_xlim(min(costs) / room / 1.6, max(costs) * room * 1.8)
    ax.set_yscale("log")
    style.dress(ax, xlabel=xlabel, ylabel=ylabel)
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        steps = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
        axis.set_major_locator(LogLocator(subs=steps, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.7g}"))
        axis.set_minor_locator(NullLocator())
    fig.draw_without_rendering()  # Where things are is known after the layout.
    _name(ax, methods)
    return fig


def _draw_ceiling(ax: Axes, ceiling: float, error: float | None) -> None:
    ax.axhline(ceiling, color=style.INK, linewidth=1, linestyle=(0, (3, 2)))
    if error is not None:
        ends = ceiling - error, ceiling + error
        ax.axhspan(*ends, color=style.RULE, alpha=0.5, linewidth=0)
    ax.annotate(
        "one chain of the reference to the others",
        (0, ceiling),
        xycoords=ax.get_yaxis_transform(),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=style.SMALL,
        color=style.MUTED,
    )


def _name(ax: Axes, methods: Mapping[str, tuple[float, float]]) -> None:
    """Write each name beside its dot, where it covers the least of dots and names."""
    scale = 72 / ax.figure.dpi
    places = {
        name: ax.transData.transform(point) * scale for name, point in methods.items()
    }
    left, bottom, right, top = np.asarray(ax.bbox.extents) * scale
    inside = (left, right, bottom, top)
    taken = [_box(x, y, 9.0, 9.0, "center") for x, y in places.values()]
    for name, (x, y) in sorted(places.items(), key=lambda item: -item[1][1]):
        width = 0.6 * style.SMALL * len(name)
        boxes = [
            _box(x + dx, y + dy, width, 1.15 * style.SMALL, side)
            for dx, dy, side in _AROUND
        ]
        # To leave the axes, where the numbers are, is the worst.
        costs = [
            sum(_covered(box, other) for other in taken) - 9 * _covered(box, inside)
            for box in boxes
        ]
        best = int(np.argmin(np.round(costs)))
        dx, dy, side = _AROUND[best]
        taken.append(boxes[best])
        offset = {"xytext": (dx, dy), "textcoords": "offset points"}
        if abs(dy) > _FAR:
            ax.annotate("", methods[name], **offset, arrowprops=_LEADER)
        label = ax.annotate(
            name,
            methods[name],
            **offset,
            ha=side,
            va="center",
            fontsize=style.SMALL,
            color=style.INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )
        label.set_in_layout(False)


def _box(
    x: float, y: float, width: float, height: float, side: str
) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a text, in points."""
    left = x - {"left": 0.0, "center": width / 2, "right": width}[side]
    return left, left + width, y - height / 2, y + height / 2


def _covered(
    one: tuple[float, float, float, float], two: tuple[float, float, float, float]
) -> float:
    """The area that two boxes share."""
    width = min(one[1], two[1]) - max(one[0], two[0])
    height = min(one[3], two[3]) - max(one[2], two[2])
    return max(width, 0.0) * max(height, 0.0)


def _front(methods: Mapping[str, tuple[float, float]]) -> list[str]:
    """The methods than which none is cheaper and nearer, the cheapest first."""
    front, nearest = [], np.inf
    for name, (_, distance) in sorted(methods.items(), key=lambda item: item[1]):
        if distance < nearest:
            front.append(name)
            nearest = distance
    return front
