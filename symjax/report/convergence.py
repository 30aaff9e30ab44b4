"""R-hat of the weights, of the weights with the symmetries removed, of the predictions.

Side by side: as a table, as numbers, and as what they say about the symmetries.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from symjax.evaluation import ChainDistances, Convergence, share_below
from symjax.plots.style import percent
from symjax.report.chains import Finding, flat
from symjax.report.comparison import Comparison


LEVELS = (1.01, 1.05, 1.1)

_ENOUGH = 0.99


class Space(NamedTuple):
    """Where the chains were compared; what was not examined is None.

    Attributes:
        name: As it is shown.
        key: In the summary.
        convergence: Its diagnostics.
        distances: Distances between its draws.
    """

    name: str
    key: str
    convergence: Convergence | None
    distances: ChainDistances | None


class Measure(NamedTuple):
    """A number of a space, and how it is shown."""

    heading: str
    key: str
    of: Callable[[Space], float | None]
    show: Callable[[float], str]


def spaces(comparison: Comparison) -> tuple[Space, Space, Space]:
    """Weights, aligned weights, predictions."""
    return (
        Space("weights", "weight", comparison.weight, comparison.weight_distances),
        Space(
            "weights, aligned",
            "weight_aligned",
            comparison.aligned,
            comparison.aligned_distances,
        ),
        Space(
            "predictions",
            "function",
            comparison.function,
            comparison.function_distances,
        ),
    )


def measures(comparison: Comparison) -> list[Measure]:
    """The numbers of the table: those which some space has."""
    return [
        measure
        for measure in _MEASURES
        if any(measure.of(space) is not None for space in spaces(comparison))
    ]


def rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """The spaces that were examined, each with its cells."""
    shown = measures(comparison)
    return [
        (space.name, [_show(measure, space) for measure in shown])
        for space in spaces(comparison)
        if space.convergence is not None
    ]


def title(comparison: Comparison) -> str:
    """Heading of the table."""
    if comparison.weight is None and comparison.aligned is None:
        return "R-hat of predictions"
    if comparison.aligned is None:
        return "R-hat of weights and predictions"
    return "R-hat with the symmetries removed"


def convergence_table(comparison: Comparison) -> Table:
    """The table for a terminal 80 columns wide; without columns if all is withheld."""
    drawn = Table(
        title=title(comparison),
        title_style="",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    drawn.add_column("compared by")
    for measure in measures(comparison):
        # Of two lines, else 80 columns are too few.
        drawn.add_column(measure.heading.replace(" ", "\n", 1), justify="right")
    for name, cells in rows(comparison):
        drawn.add_row(Text(name, no_wrap=True), *(Text(cell) for cell in cells))
    return drawn


def numbers(comparison: Comparison) -> dict[str, dict[str, float | None] | None]:
    """The numbers of all spaces under fixed names; None for what was not examined."""
    return {
        space.key: None if space.convergence is None else _numbers(space)
        for space in spaces(comparison)
    }


def reading(comparison: Comparison) -> str:
    """How to read the table."""
    text = "Below 1.01, 1.05, 1.1: the share of R-hats below. ESS is the bulk one. "
    if comparison.aligned is not None:
        text += (
            "Aligned weights are those of the symmetric copy nearest to a reference "
            "that was fixed beforehand. Alignment lowers R-hat by construction: it "
            "shows what symmetry does, and the predictions are what to judge by. "
        )
    if comparison.function_distances and comparison.function_distances.between:
        text += (
            "Between ÷ within is the root mean squared distance of draws of different "
            "chains, in units of that of draws of one chain: 1 where chains can't be "
            "told apart. MMD² is the squared maximum mean discrepancy of each chain to "
            "the others, on average: around 0 for one distribution, 2 at most."
        )
    return text.rstrip()


def symmetry(comparison: Comparison) -> list[Finding]:
    """How much of the disagreement in weight space is symmetry?"""
    if comparison.weight is None or comparison.aligned is None:
        return []
    before = share_below(comparison.weight.rhat, 1.05)
    after = share_below(comparison.aligned.rhat, 1.05)
    if before is None or after is None or before >= _ENOUGH:
        return []
    text = _change(*spaces(comparison)[:2], percent(before), percent(after))
    share = (after - before) / (1 - before)
    rest = "different modes, or chains that are too short"
    if share < 0.1:
        text += f". So little of the weights' disagreement is symmetry: it is {rest}."
        return [Finding("note", text)]
    amount = "nearly all" if share >= 0.9 else f"about {share:.0%}"
    text += f". So {amount} of the weights' disagreement is symmetry"
    text += "" if share >= 0.9 else f", and the rest {rest}"
    text += (
        ". As alignment lowers R-hat by construction, that is rather too much than too "
        "little."
    )
    return [Finding("note", text)]


def _change(weight: Space, aligned: Space, before: str, after: str) -> str:
    """What alignment does to R-hat and to the distances between chains."""
    text = (
        f"With the symmetries removed R-hat is below 1.05 for {after} of the weights "
        f"instead of {before} (median {_show(_MEDIAN_RHAT, aligned)} instead of "
        f"{_show(_MEDIAN_RHAT, weight)})"
    )
    if _apart(weight) is None or _apart(aligned) is None:
        return text
    return (
        f"{text}, and draws of different chains are {_show(_APART, aligned)} times as "
        f"far apart as draws of one chain instead of {_show(_APART, weight)}"
    )


def _share(level: float) -> Measure:
    return Measure(
        f"below {level:g}",
        f"share_below_{level:g}",
        lambda space: share_below(space.convergence and space.convergence.rhat, level),
        percent,
    )


def _median_rhat(space: Space) -> float | None:
    return _median(space.convergence and space.convergence.rhat)


def _median_ess(space: Space) -> float | None:
    return _median(space.convergence and space.convergence.ess_bulk)


def _median(statistic: dict[str, np.ndarray] | None) -> float | None:
    values = flat(statistic or {})
    return float(np.median(values)) if values.size else None


def _apart(space: Space) -> float | None:
    """Distance between chains over that within."""
    distances = space.distances
    if distances is None or distances.between is None or not distances.within:
        return None
    return distances.between / distances.within


def _rhat_text(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.3f}" if value < 10 else f"{value:,.0f}"


_MEDIAN_RHAT = Measure("median R-hat", "median_rhat", _median_rhat, _rhat_text)
_APART = Measure("between ÷ within", "between_to_within", _apart, "{:,.2f}".format)

_MEASURES = (
    *map(_share, LEVELS),
    _MEDIAN_RHAT,
    Measure("median ESS", "median_ess", _median_ess, "{:,.0f}".format),
    _APART,
    Measure(
        "MMD²",
        "mmd",
        lambda space: space.distances and space.distances.mmd,
        "{:z.4f}".format,
    ),
)


def _numbers(space: Space) -> dict[str, float | None]:
    distances = space.distances
    return {
        **{measure.key: _finite(measure.of(space)) for measure in _MEASURES},
        "distance_between": _finite(distances and distances.between),
        "distance_within": _finite(distances and distances.within),
    }


def _show(measure: Measure, space: Space) -> str:
    value = measure.of(space)
    return "–" if value is None or math.isnan(value) else measure.show(value)


def _finite(value: float | None) -> float | None:
    """The value where JSON has it."""
    return value if value is not None and math.isfinite(value) else None
