"""What the methods predict: calibration, distance to the reference, examples."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter
from scipy import stats

from symjax.plots import style
from symjax.plots.style import Numbers


def scores(
    values: Mapping[str, Mapping[str, float]],
    line: Mapping[str, float] | None = None,
    *,
    line_name: str = "between chains",
    errors: Mapping[str, Mapping[str, float]] | None = None,
    ideal: Mapping[str, float] | None = None,
) -> Figure:
    """One panel a metric, one row a method, each joined to a common line by its gap.

    Args:
        values: For every metric, the methods' values; NaN where there is none.
        line: For every metric, the value to measure the gap from, such as the agreement
            between chains of the reference, which no method can be expected to pass.
        line_name: What the line is.
        errors: For every metric the standard errors of some methods, and of the line by
            its own name.
        ideal: For a metric, the value nothing can pass. The axis reaches to it, so that
            small differences do not look large.
    """
    names = list(next(iter(values.values())))
    fig = style.figure(1.2 + 0.5 * len(names))
    axes = fig.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for ax, (metric, of_method) in zip(axes, values.items(), strict=True):
        error = (errors or {}).get(metric, {})
        _score_errors(ax, of_method, error, (line or {}).get(metric), line_name)
        _score_panel(
            ax,
            [of_method[name] for name in names],
            (line or {}).get(metric),
            (ideal or {}).get(metric),
        )
        style.dress(ax, title=metric)
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        style.number_ticks(ax.xaxis, 4)
        ax.set_yticks(range(len(names)), names, color=style.INK, fontsize=style.TEXT)
        ax.set_ylim(len(names) - 0.4, -0.95)
    if line:
        fig.supxlabel(
            f"dashed line: {line_name}", fontsize=style.SMALL, color=style.MUTED
        )
    return fig


def reliability(
    curves: Mapping[
        str,
        tuple[Float[Numbers, " bin"], Float[Numbers, " bin"], Num[Numbers, " bin"]],
    ],
) -> Figure:
    """Accuracy against confidence for every method, and how many examples a bin holds.

    Vertical bars are 95 % Wilson intervals of the accuracy in the bin.

    Args:
        curves: For every method the mean confidence, the accuracy and the number of
            examples of every bin; empty bins are left out.
    """
    columns = min(3, len(curves))
    fig = style.figure(3.1 * -(-len(curves) // columns))
    cells = style.stacks(fig, len(curves), columns, (3.0, 1.0))
    for i, ((top, bottom), (name, curve)) in enumerate(
        zip(cells, curves.items(), strict=True)
    ):
        confidence, accuracy, count = (np.asarray(part, float) for part in curve)
        held = count > 0
        _reliability_panel(top, confidence[held], accuracy[held], count[held])
        bottom.vlines(confidence[held], 0.7, count[held], color=style.ACCENT, lw=4)
        bottom.set_yscale("log")
        bottom.set_xlim(0, 1.03)
        bottom.set_ylim(0.7, 2 * max(np.sum(part[2]) for part in curves.values()))
        first = i % columns == 0
        ylabel = "accuracy" if first else ""
        style.dress(top, title=name, ylabel=ylabel, columns=columns)
        style.dress(bottom, xlabel="confidence", ylabel="examples" if first else "")
        top.tick_params(labelbottom=False, labelleft=first)
        bottom.tick_params(labelleft=first)
        bottom.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        bottom.minorticks_off()
    return fig


def disagreements(
    probs: Float[Numbers, "chain example class"],
    labels: Num[Numbers, " example"],
    *,
    images: Num[Numbers, "example height width ..."] | None = None,
    class_names: Sequence[str] | None = None,
) -> Figure:
    """What every chain says about a few examples, with the picture where there is one.

    Args:
        probs: Every chain's mean probabilities of the chosen examples.
        labels: Their true classes.
        images: Their inputs as grey or colour images.
        class_names: One name a class; their numbers unless given.
    """
    probs, labels = np.asarray(probs), np.asarray(labels)
    count, num_classes = probs.shape[1:]
    names = class_names or [str(i) for i in range(num_classes)]
    columns = min(4, count)
    rows = -(-count // columns)
    fig = style.figure((1.9 if images is None else 2.7) * rows + 0.4)
    ratios = (1.0,) if images is None else (1.25, 1.0)
    cells = style.stacks(fig, count, columns, ratios)
    for i, axes in enumerate(cells):
        if images is not None:
            _image(axes[0], np.asarray(images)[i])
        _class_probs(axes[-1], probs[:, i], names, int(labels[i]))
        style.name(axes[0], f"true class {names[int(labels[i])]}", columns)
        axes[-1].tick_params(labelleft=i % columns == 0)
        if i % columns == 0:
            axes[-1].set_ylabel("probability", fontsize=style.TEXT, color=style.MUTED)
    style.name_chains(fig, len(probs))
    return fig


def intervals(
    mean: Float[Numbers, "example output"],
    lower: Float[Numbers, "example output"],
    upper: Float[Numbers, "example output"],
    targets: Float[Numbers, "example output"],
    *,
    level: float,
) -> Figure:
    """Predicted against true target, with predictive intervals, one panel an output.

    Args:
        mean: Predictive means.
        lower: Lower ends of the predictive intervals.
        upper: Upper ends.
        targets: True targets, in the same units.
        level: The probability the intervals are to hold, such as 0.9.
    """
    mean, lower, upper, targets = (
        np.asarray(part) for part in (mean, lower, upper, targets)
    )
    count = mean.shape[1]
    fig = style.figure(4.2 * -(-count // 2), 5.2 if count == 1 else style.WIDTH)
    axes = style.grid(fig, count, 2)
    for i, ax in enumerate(axes):
        inside = (lower[:, i] <= targets[:, i]) & (targets[:, i] <= upper[:, i])
        for mask, colour in ((inside, style.ACCENT), (~inside, style.ALERT)):
            ax.vlines(
                targets[mask, i],
                lower[mask, i],
                upper[mask, i],
                color=colour,
                alpha=0.35,
            )
            ax.plot(targets[mask, i], mean[mask, i], "o", color=colour, markersize=3.5)
        ends = [min(targets[:, i].min(), lower[:, i].min())]
        ends.append(max(targets[:, i].max(), upper[:, i].max()))
        ax.plot(ends, ends, color=style.MUTED, linewidth=0.9, linestyle=(0, (3, 2)))
        style.dress(
            ax,
            title=f"{inside.mean():.0%} of targets inside the {level:.0%} interval",
            xlabel="target" if count == 1 else f"target {i}",
            ylabel="prediction",
        )
        style.number_ticks(ax.xaxis)
        style.number_ticks(ax.yaxis)
    return fig


def _score_panel(
    ax: Axes, values: list[float], line: float | None, ideal: float | None
) -> None:
    shown = [v for v in [*values, line, ideal] if v is not None and np.isfinite(v)]
    if line is not None:
        ax.axvline(line, color=style.INK, linewidth=1, linestyle=(0, (3, 2)))
        _score_label(ax, line, -0.65)
    for row, value in enumerate(values):
        if not np.isfinite(value):
            ax.text(0.5, row, "none", transform=ax.get_yaxis_transform(), va="center")
            continue
        if line is not None:
            ax.plot([line, value], [row, row], color=style.ACCENT, lw=2, alpha=0.4)
        ax.plot(value, row, "o", color=style.ACCENT, markersize=8)
        _score_label(ax, value, row + 0.3)
    if shown:
        margin = 0.18 * (max(shown) - min(shown)) or 0.05
        ax.set_xlim(min(shown) - margin, max(shown) + margin)


def _score_errors(
    ax: Axes,
    of_method: Mapping[str, float],
    errors: Mapping[str, float],
    line: float | None,
    line_name: str,
) -> None:
    """A bar of one standard error each side, a band around the line."""
    if line is not None and np.isfinite(errors.get(line_name, np.nan)):
        low, high = line - errors[line_name], line + errors[line_name]
        ax.axvspan(low, high, color=style.RULE, alpha=0.6, linewidth=0)
    for row, (name, value) in enumerate(of_method.items()):
        error = errors.get(name, np.nan)
        if np.isfinite(value) and np.isfinite(error):
            ends = [value - error, value + error]
            ax.plot(ends, [row, row], "|-", color=style.ACCENT, lw=1, markersize=7)


def _score_label(ax: Axes, value: float, row: float) -> None:
    ax.annotate(
        f"{value:.3f}",
        (value, row),
        ha="center",
        va="center",
        fontsize=style.SMALL,
        color=style.INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


def _reliability_panel(
    ax: Axes, confidence: np.ndarray, accuracy: np.ndarray, count: np.ndarray
) -> None:
    hits = np.rint(accuracy * count).astype(int)
    limits = np.array(
        [
            stats.binomtest(k, int(n)).proportion_ci(method="wilson")
            for k, n in zip(hits, count, strict=True)
        ]
    ).reshape(-1, 2)
    ax.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.9, linestyle=(0, (3, 2)))
    ax.vlines(
        confidence,
        limits[:, 0],
        limits[:, 1],
        color=style.ACCENT,
        alpha=0.4,
        linewidth=2,
    )
    ax.plot(confidence, accuracy, "o-", color=style.ACCENT, markersize=4, lw=1.2)
    ax.set_xlim(0, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _class_probs(ax: Axes, probs: np.ndarray, names: Sequence[str], label: int) -> None:
    chains, num_classes = probs.shape
    width = 0.8 / chains
    style.dress(ax)
    ax.axvspan(label - 0.5, label + 0.5, color=style.WASH, linewidth=0)
    for i, colour in enumerate(style.colours(chains)):
        offset = (i + 0.5) * width - 0.4
        ax.bar(np.arange(num_classes) + offset, probs[i], width, color=colour)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1])
    ax.set_xlim(-0.5, num_classes - 0.5)
    step = -(-num_classes // 10)
    ax.set_xticks(range(0, num_classes, step), list(names)[::step])


def _image(ax: Axes, image: np.ndarray) -> None:
    low, high = image.min(), image.max()
    ax.imshow(
        np.squeeze((image - low) / ((high - low) or 1)),
        cmap="gray_r",
        interpolation="nearest",
    )
    ax.set_axis_off()
