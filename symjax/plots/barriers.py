"""Loss barriers: measures on the straight line between two networks."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from symjax.plots import style
from symjax.plots.style import Numbers


def interpolations(
    positions: Float[Numbers, " position"],
    panels: Mapping[str, Mapping[str, Float[Numbers, " position"]]],
) -> Figure:
    """Curves between two networks, a panel a measure, a line a way to align them.

    Args:
        positions: From 0, the one network, to 1, the other.
        panels: For every measure, such as `"test loss"`, and every name, such as
            `"before"`, the values; the same names in all panels.
    """
    fig = style.figure(2.3 * -(-len(panels) // 2) + 0.4)
    names = list(next(iter(panels.values())))
    for ax, (title, lines) in zip(
        style.grid(fig, len(panels), 2), panels.items(), strict=True
    ):
        for number, name in enumerate(names):
            ax.plot(
                positions,
                np.asarray(lines[name]),
                color=style.colours(len(names))[number],
                # Wider beneath, so that lines which coincide are seen.
                linewidth=1.2 + 0.6 * (len(names) - 1 - number),
                label=name,
            )
        ax.set_xlim(0, 1)
        ax.set_ylim(bottom=min(0, *(np.min(values) for values in lines.values())))
        style.dress(ax, title=title, xlabel="position between", columns=2)
    style.name_lines(fig, num_columns=len(names))
    return fig


def planes(
    panels: Mapping[
        str,
        tuple[
            Float[Numbers, " column"],
            Float[Numbers, " row"],
            Float[Numbers, "row column"],
            Float[Numbers, "3 2"],
        ],
    ],
    *,
    label: str,
    names: Sequence[str],
) -> Figure:
    """A measure on the plane through three networks, one panel a way to align them.

    The colours are shared and cut off at the 90 % quantile of the first panel, since
    losses grow without bound away from the networks.

    Args:
        panels: For every title x, y, the values, and where the networks are.
        label: Of the measure, with its unit.
        names: What the three networks are called.
    """
    fig = style.figure(3.6)
    axes = style.grid(fig, len(panels), 2)
    every = [np.asarray(values) for _, _, values, _ in panels.values()]
    low = min(float(np.min(values)) for values in every)
    high = float(np.quantile(every[0], 0.9))
    levels = np.linspace(low, max(high, low + 1e-6), 16)
    # One scale for all, so that networks that are nearer look nearer.
    right, top = (max(np.max(panel[i]) for panel in panels.values()) for i in (0, 1))
    left, bottom = (min(np.min(panel[i]) for panel in panels.values()) for i in (0, 1))
    drawn = []
    for ax, (title, (x, y, values, points)) in zip(axes, panels.items(), strict=True):
        filled = ax.contourf(x, y, values, levels, cmap="Blues", extend="max")
        drawn.append(filled)
        style.dress(ax, title=title, xlabel="distance between weights", columns=2)
        ax.grid(visible=False)
        ax.set_aspect("equal")
        ax.set_xlim(left, right)
        ax.set_ylim(bottom, top)
        _draw_networks(ax, np.asarray(points), names, (left + right) / 2)
    ticks = MaxNLocator(5)
    bar = fig.colorbar(drawn[0], ax=axes, shrink=0.8, ticks=ticks, format="%.2g")
    bar.set_label(label, fontsize=style.SMALL, color=style.MUTED)
    bar.ax.tick_params(labelsize=style.SMALL, colors=style.MUTED)
    return fig


def _draw_networks(
    ax: Axes, points: Float[np.ndarray, "3 2"], names: Sequence[str], middle: float
) -> None:
    """Dots, and names towards the middle of them."""
    ax.plot(*points.T, "o", color=style.ALERT, markersize=5)
    for point, network in zip(points, names, strict=True):
        is_right = point[0] > middle
        ax.annotate(
            network,
            point,
            xytext=(-4 if is_right else 4, 4),
            textcoords="offset points",
            ha="right" if is_right else "left",
            fontsize=style.SMALL,
            color=style.INK,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
