"""What a method costs against how near it comes to the reference."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from symjax.plots import style


def pareto(
    methods: Mapping[str, tuple[float, float]],
    *,
    ceiling: float | None = None,
    errors: Mapping[str, float] | None = None,
    xlabel: str,
    ylabel: str,
) -> Figure:
    """A dot a method, both axes logarithmic; the front joined by steps.

    On the front is a method than which none is both cheaper and nearer.

    Args:
        methods: For every name its cost and its distance, above 0.
        ceiling: The distance of the reference's own chains, a dashed line.
        errors: Standard errors of some distances.
        xlabel: The cost and its unit.
        ylabel: The distance.
    """
    fig = style.figure(3.6)
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
        ax.axhline(ceiling, color=style.INK, linewidth=1, linestyle=(0, (3, 2)))
        ax.annotate(
            "one chain of the reference to the others",
            (0, ceiling),
            xycoords=ax.get_yaxis_transform(),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=style.SMALL,
            color=style.MUTED,
        )
    costs = [cost for cost, _ in methods.values()]
    # Room on the right for the last name.
    ax.set_xlim(min(costs) / 1.6, max(costs) * (max(costs) / min(costs)) ** 0.2 * 3)
    ax.set_yscale("log")
    _name(ax, methods)
    style.dress(ax, xlabel=xlabel, ylabel=ylabel)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.7g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    return fig


def _name(ax: Axes, methods: Mapping[str, tuple[float, float]]) -> None:
    """Write the names beside the dots, each below those that it would cover."""
    scale = 72 / ax.figure.dpi
    height, width = 1.25 * style.SMALL, 0.55 * style.SMALL
    written: list[tuple[float, float, float]] = []
    for name, point in sorted(methods.items(), key=lambda item: -item[1][1]):
        x, y = ax.transData.transform(point) * scale
        low = y - height / 3
        for left, right, other in sorted(written, key=lambda place: -place[2]):
            beside = left < x + 7 + width * len(name) and x + 7 < right
            if beside and abs(low - other) < height:
                low = other - height
        written.append((x + 7, x + 7 + width * len(name), low))
        ax.annotate(
            name,
            point,
            xytext=(7, low - y),
            textcoords="offset points",
            fontsize=style.SMALL,
            color=style.INK,
        )


def _front(methods: Mapping[str, tuple[float, float]]) -> list[str]:
    """The methods than which none is cheaper and nearer, the cheapest first."""
    front, nearest = [], np.inf
    for name, (_, distance) in sorted(methods.items(), key=lambda item: item[1]):
        if distance < nearest:
            front.append(name)
            nearest = distance
    return front
