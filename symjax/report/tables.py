"""The comparison as a table for the terminal and the page, and as a dictionary."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from symjax.evaluation import SpreadComparison
from symjax.evaluation.convergence import share_below
from symjax.plots.style import percent
from symjax.report import convergence, judgement
from symjax.report.comparison import Bias, Comparison, Scores


class Column(NamedTuple):
    """A column: its heading, its field of `Scores`, whether more or less is better."""

    heading: str
    field: str
    show: Callable[[float], str]
    better: Callable[..., float] | None


class Cell(NamedTuple):
    """What a cell shows, and whether it is the best of its column."""

    text: str
    is_best: bool = False


class Row(NamedTuple):
    """A method, the reference or the ceiling between chains."""

    name: str
    kind: str
    cells: tuple[Cell, ...]


_CLASSIFICATION = (
    Column("accuracy ↑", "accuracy", "{:.1%}".format, max),
    Column("NLL ↓", "nll", "{:.4f}".format, min),
    Column("ECE ↓", "ece", "{:.4f}".format, min),
    Column("Brier ↓", "brier", "{:.4f}".format, min),
    Column("agreement ↑", "agreement", "{:.1%}".format, max),
    Column("total variation ↓", "total_variation", "{:.4f}".format, min),
)
_REGRESSION = (
    Column("RMSE ↓", "rmse", "{:.4g}".format, min),
    Column("NLL ↓", "nll", "{:.4f}".format, min),
    Column("Gaussian NLL ↓", "gaussian_nll", "{:.4f}".format, min),
    Column("distance of means ↓", "mean_distance", "{:.3g}".format, min),
)
_SECONDS = Column("seconds", "seconds", "{:,.0f}".format, None)


def columns(comparison: Comparison) -> tuple[Column, ...]:
    """The columns for the task; seconds only where they are known."""
    of_task = _CLASSIFICATION if comparison.task == "classification" else _REGRESSION
    timed = any(s.seconds is not None for s in _all_scores(comparison))
    return (*of_task, _SECONDS) if timed else of_task


def rows(comparison: Comparison, shown: Sequence[Column]) -> list[Row]:
    """The reference, the methods, and last the ceiling between chains."""
    best = [_best(column, comparison) for column in shown]
    kinds = ["reference", *("method" for _ in comparison.methods)]
    listed = [
        Row(scores.name, kind, _cells(scores, shown, best))
        for kind, scores in zip(kinds, _all_scores(comparison), strict=True)
    ]
    between = comparison.between_chains
    if between is not None:
        listed.append(
            Row(between.name, "ceiling", _cells(between, shown, [set()] * len(shown)))
        )
    return listed


def table(comparison: Comparison) -> Table:
    """The comparison as a table for a terminal 80 columns wide, the best in bold."""
    shown = [c for c in columns(comparison) if c.field not in {"brier", "seconds"}]
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    drawn.add_column("method", no_wrap=True)
    for column in shown:
        drawn.add_column(column.heading, justify="right", no_wrap=True)
    for row in rows(comparison, shown):
        cells = [Text(cell.text, "bold" if cell.is_best else "") for cell in row.cells]
        if row.kind == "ceiling":
            drawn.add_section()
        drawn.add_row(Text(row.name), *cells)
    return drawn


def summary(comparison: Comparison) -> dict[str, Any]:
    """The numbers of a comparison under fixed names, for scripts.

    Of JSON values only; what has no meaning or can't be had is None.
    """
    regression = comparison.task == "regression"
    distances = ("agreement", "total_variation")
    fields = ("accuracy", "nll", "ece", *distances)
    if regression:
        distances = (*distances, "mean_distance")
        fields = (*fields, "rmse", "gaussian_nll", "mean_distance")
    function, weight = comparison.function, comparison.weight
    return {
        "methods": {s.name: _numbers(s, fields) for s in _all_scores(comparison)},
        "between_chain": _numbers(comparison.between_chains, distances),
        "rhat": {
            "function_share_below_1.05": share_below(function.rhat, 1.05),
            "weight_share_below_1.05": share_below(weight and weight.rhat, 1.05),
        },
        "rhat_judged": {
            name: of and {"judged": of.num_judged, "of": of.num_quantities}
            for name, of in (("function", function), ("weight", weight))
        },
        "convergence": convergence.numbers(comparison),
        "step_size_bias": {s.name: _bias(s.bias) for s in _all_scores(comparison)},
        "acceptance": _number(_acceptance(comparison)),
        "seconds": _number(_seconds(comparison)),
    }


def tiles(comparison: Comparison) -> list[tuple[str, str]]:
    """The few numbers to look at first, each with what it is."""
    share = share_below(comparison.function.rhat, 1.05)
    found = [("of predictions with R-hat below 1.05", share)]
    if comparison.between_chains is not None:
        agreement = comparison.between_chains.agreement
        found.append(("agreement between chains", agreement))
    shown = [(name, percent(value)) for name, value in found if value is not None]
    rate = _acceptance(comparison)
    if rate is not None:
        shown.append(("acceptance", f"{rate:.2f}"))
    ranked = judgement.nearest(comparison)
    if ranked:
        shown.append(("nearest to the reference", ranked[0].name))
    return shown


def _all_scores(comparison: Comparison) -> tuple[Scores, ...]:
    return (comparison.reference, *comparison.methods)


def _cells(
    scores: Scores, shown: Sequence[Column], best: list[set[str]]
) -> tuple[Cell, ...]:
    texts = [_show(column, scores) for column in shown]
    is_best = [text in marked for text, marked in zip(texts, best, strict=True)]
    return tuple(Cell(*cell) for cell in zip(texts, is_best, strict=True))


def _best(column: Column, comparison: Comparison) -> set[str]:
    """The best values of a column as they are shown, so that ties are ties."""
    every = _all_scores(comparison)
    values = [_number(getattr(scores, column.field)) for scores in every]
    known = [value for value in values if value is not None]
    if column.better is None or len(known) < 2:
        return set()
    return {column.show(column.better(known))}


def _show(column: Column, scores: Scores) -> str:
    value = _number(getattr(scores, column.field))
    return "–" if value is None else column.show(value)


def _numbers(scores: Scores | None, fields: tuple[str, ...]) -> dict[str, float | None]:
    return {field: _number(getattr(scores, field, None)) for field in fields}


def _number(value: float | None) -> float | None:
    """The value where JSON has it."""
    return float(value) if value is not None and math.isfinite(value) else None


def _bias(bias: Bias) -> dict[str, Any] | str | None:
    return bias._asdict() if isinstance(bias, SpreadComparison) else bias


def _acceptance(comparison: Comparison) -> float | None:
    rates = comparison.acceptance
    return None if rates is None or not rates.size else float(np.mean(rates))


def _seconds(comparison: Comparison) -> float | None:
    known = [s.seconds for s in _all_scores(comparison) if s.seconds is not None]
    return sum(known) if known else None
