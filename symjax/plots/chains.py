"""How the chains ran: traces, acceptance, R-hat."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from symjax.plots import style
from symjax.plots.style import Numbers


RHAT_LEVELS = (1.01, 1.05, 1.1)


def log_density(
    values: Float[Numbers, "chain iteration"], *, num_warmup: int = 0
) -> Figure:
    """The log density along every chain, warm-up shaded, with its distribution.

    The vertical range is that of the iterations after warm-up and of the second half of
    the warm-up; what lies outside, the way in, is cut off.

    Args:
        values: Log density of every iteration, in nats.
        num_warmup: How many first iterations are warm-up.
    """
    values = np.asarray(values)
    fig = style.figure(2.9)
    ax, side = fig.subplots(1, 2, width_ratios=(5, 1), sharey=True)
    _lines(ax, values)
    kept = values[:, num_warmup:]
    kept = kept if kept.size else values
    for chain, colour in zip(kept, style.colours(len(values)), strict=True):
        side.hist(
            chain[np.isfinite(chain)],
            bins=24,
            density=True,
            orientation="horizontal",
            histtype="step",
            color=colour,
            linewidth=1.2,
        )
    _shade_warmup(ax, num_warmup)
    _fit_range(ax, values[:, num_warmup // 2 :])
    style.dress(ax, xlabel="iteration", ylabel="log density (nats)")
    style.dress(side, xlabel="after warm-up")
    style.number_ticks(ax.yaxis)
    side.tick_params(labelbottom=False, bottom=False)
    style.name_chains(fig, len(values))
    return fig


def quantities(
    values: Float[Numbers, "chain draw quantity"], labels: Sequence[str]
) -> Figure:
    """Traces of a few quantities, such as probabilities of chosen test examples.

    Thin lines are the draws, thick ones the mean of all draws so far.

    Args:
        values: The quantities at every kept draw.
        labels: One title a quantity.
    """
    values = np.asarray(values)
    fig, axes = _panels(values, labels, height=1.7)
    for i, ax in enumerate(axes):
        _lines(ax, values[:, :, i], width=0.5, alpha=0.3)
        _lines(ax, _running_mean(values[:, :, i], values.shape[1]), width=1.8)
    return fig


def slowest_weights(
    values: Float[Numbers, "chain draw weight"], labels: Sequence[str]
) -> Figure:
    """Traces of the weights that mix worst.

    Args:
        values: The weights at every kept draw, worst first.
        labels: Where each stands and how badly it mixes, such as
            `params/Dense_0/kernel[3, 7] · R-hat 1.34`.
    """
    values = np.asarray(values)
    fig, axes = _panels(values, labels, height=1.5)
    for i, ax in enumerate(axes):
        _lines(ax, values[:, :, i])
    return fig


def acceptance(
    probability: Float[Numbers, "chain iteration"],
    divergent: Bool[Numbers, "chain iteration"] | None = None,
    *,
    num_warmup: int = 0,
    wanted: tuple[float, float] = (0.65, 0.95),
) -> Figure:
    """The acceptance probability along every chain, divergences marked.

    Single values scatter between 0 and 1, so the lines are running means over a
    twentieth of the run; a mark at the bottom is one divergent iteration.

    Args:
        probability: Acceptance probability of every proposal.
        divergent: Which proposals diverged.
        num_warmup: How many first iterations are warm-up.
        wanted: The range drawn as a band.
    """
    probability = np.asarray(probability)
    window = max(1, probability.shape[1] // 20)
    fig = style.figure(2.5)
    ax = fig.subplots()
    ax.axhspan(*wanted, color="#009e73", alpha=0.08, linewidth=0)
    ax.annotate(
        f"{wanted[0]:g} to {wanted[1]:g}",
        (1.0, np.mean(wanted)),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=style.SMALL,
        color="#00694d",
    )
    _lines(ax, _running_mean(probability, window), width=1.5)
    if divergent is not None:
        _mark_divergences(ax, np.asarray(divergent))
    _shade_warmup(ax, num_warmup)
    ax.set_ylim(-0.06, 1.04)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    style.dress(
        ax,
        xlabel="iteration",
        ylabel=f"acceptance\n(mean over {window} iterations)",
    )
    style.name_chains(fig, len(probability))
    return fig


def rhat(
    weight: Float[Numbers, " weight"] | None,
    function: Float[Numbers, " output"],
    *,
    aligned: Float[Numbers, " weight2"] | None = None,
) -> Figure:
    """R-hat of all weights and of all outputs, as histograms of R-hat - 1.

    One panel or two beside each other, or three below each other, on the same axes.
    NaN, a quantity without an R-hat, is left out of the shares; infinity, chains that
    stand still apart, is in the last bar. A panel without any number says so.

    Args:
        weight: R-hat of every parameter; None for no panel of them.
        function: R-hat of every output on the test points.
        aligned: R-hat of every parameter with the symmetries removed.
    """
    panels = {"Weights": weight, "Aligned weights": aligned, "Predictions": function}
    known = {
        name: _known(np.asarray(values))
        for name, values in panels.items()
        if values is not None
    }
    top = _finite(np.concatenate([*known.values(), [1.1]])).max()
    edges = np.geomspace(1e-3, max(2 * (top - 1), 1.0), 40)
    shape, height, step, headroom = (1, len(known)), 3.1, 0.08, 1.4
    if len(known) == 3:
        shape, height, step, headroom = (3, 1), 5.4, 0.13, 1.7
    fig = style.figure(height)
    axes = fig.subplots(*shape, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, (name, values) in zip(axes, known.items(), strict=True):
        _rhat_panel(ax, values, edges, step=step)
        is_lowest = ax.get_subplotspec().is_last_row()
        style.dress(
            ax,
            title=f"{name} ({values.size:,})",
            xlabel="R-hat (log scale)" if is_lowest else "",
        )
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("share", fontsize=style.TEXT)
    axes[0].set_ylim(top=headroom * axes[0].get_ylim()[1])
    return fig


def _rhat_panel(
    ax: Axes, values: np.ndarray, edges: np.ndarray, *, step: float
) -> None:
    """One histogram; its levels are named `step` of its height below each other."""
    ax.set_xscale("log")
    ax.set_xlim(0.8 * edges[0], 1.4 * edges[-1])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda excess, _: f"{1 + excess:,g}"))
    ax.minorticks_off()
    # Above 1 is room for names alone.
    ax.yaxis.set_major_formatter(
        lambda share, _: f"{share:.0%}" if share < 1.01 else ""
    )
    if not values.size:
        ax.text(0.5, 0.5, "withheld", transform=ax.transAxes, ha="center")
        return
    ax.hist(
        np.clip(values - 1, edges[0], edges[-1]),
        bins=edges.tolist(),
        weights=np.full(values.size, 1 / values.size),
        color=style.ACCENT,
        alpha=0.85,
    )
    for i, level in enumerate(RHAT_LEVELS):
        height = 0.99 - i * step
        ax.axvline(level - 1, ymax=height, color=style.INK, linewidth=0.8)
        ax.annotate(
            f"{style.percent(float(np.mean(values < level)))} below {level:g}",
            (level - 1, height),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            va="top",
            fontsize=style.SMALL,
            color=style.INK,
        )


def _panels(
    values: np.ndarray, titles: Sequence[str], *, height: float
) -> tuple[Figure, list[Axes]]:
    """Two columns of titled axes over kept draws, chains named above."""
    fig = style.figure(height * -(-len(titles) // 2) + 0.4)
    axes = style.grid(fig, len(titles), 2)
    for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        last = i >= len(titles) - 2
        style.dress(ax, title=title, xlabel="kept draw" if last else "", columns=2)
        style.number_ticks(ax.yaxis, 4)
        ax.tick_params(labelbottom=last)
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    style.name_chains(fig, len(values))
    return fig, axes


def _lines(
    ax: Axes, values: np.ndarray, *, width: float = 0.9, alpha: float = 0.85
) -> None:
    for chain, colour in zip(values, style.colours(len(values)), strict=True):
        ax.plot(chain, color=colour, linewidth=width, alpha=alpha)
    ax.margins(x=0.01)


def _shade_warmup(ax: Axes, num_warmup: int) -> None:
    if not num_warmup:
        return
    ax.axvspan(0, num_warmup, color=style.WASH, linewidth=0, zorder=-1)
    ax.annotate(
        "warm-up",
        (0, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=style.SMALL,
        color=style.MUTED,
    )


def _fit_range(ax: Axes, values: np.ndarray) -> None:
    finite = _finite(values)
    if finite.size:
        low, high = finite.min(), finite.max()
        margin = 0.06 * (high - low) or 1.0
        ax.set_ylim(low - margin, high + margin)


def _mark_divergences(ax: Axes, divergent: np.ndarray) -> None:
    for chain, colour in zip(divergent, style.colours(len(divergent)), strict=True):
        where = np.flatnonzero(chain)
        ax.plot(
            where, np.full(where.size, -0.03), "|", color=colour, markersize=7, mew=1.2
        )


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean over the last `window` entries, over all so far where fewer."""
    total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
    end = np.arange(1, values.shape[1] + 1)
    start = np.maximum(end - window, 0)
    return (total[:, end] - total[:, start]) / (end - start)


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]
