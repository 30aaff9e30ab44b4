"""The comparison as a table for the terminal and the page, and as a dictionary."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from symjax.evaluation import SpreadComparison
from symjax.evaluation.convergence import share_below
from symjax.plots.style import percent
from symjax.report import convergence, judgement
from symjax.report.columns import Column, Section, all_scores, sections
from symjax.report.comparison import Comparison
from symjax.report.scores import NUMBERS, Bias, Scores, value


class Cell(NamedTuple):
    """What a cell shows, and whether it is the best of its column."""

    text: str
    is_best: bool = False


class Row(NamedTuple):
    """A method, the reference or the ceiling between chains."""

    name: str
    kind: str
    cells: tuple[Cell, ...]


WIDTH = 80
"""Of a terminal that a table is to fit."""

_NAME_WIDTH = 24


def rows(comparison: Comparison, shown: Sequence[Column]) -> list[Row]:
    """The reference, the methods, and last the ceiling; those with a number only."""
    every = all_scores(comparison, with_ceiling=True)
    kinds = ["reference", *("method" for _ in comparison.methods), "ceiling"]
    best = [_best(column, comparison) for column in shown]
    listed = []
    for place, (kind, scores) in enumerate(zip(kinds, every, strict=False)):
        marked = [kind != "ceiling" and place in places for places in best]
        if any(value(scores, column.key) is not None for column in shown):
            cells = map(_cell, [scores] * len(shown), shown, marked)
            listed.append(Row(scores.name, kind, tuple(cells)))
    return listed


def tables(comparison: Comparison) -> list[Table]:
    """The comparison as tables for a terminal 80 columns wide, the best in bold."""
    return [
        _drawn(comparison, section.title if first else "", columns)
        for section in sections(comparison)
        for first, columns in _fitting(comparison, section)
    ]


def _fitting(
    comparison: Comparison, section: Section
) -> Iterator[tuple[bool, list[Column]]]:
    """The columns in as many parts as the width asks for, the first one marked."""
    part: list[Column] = []
    listed = rows(comparison, section.columns)
    names = [len(row.name) for row in listed]
    start = left = WIDTH - 2 - min(_NAME_WIDTH, max([*names, len("method")]))
    first = True
    for number, column in enumerate(section.columns):
        texts = [row.cells[number].text for row in listed]
        lines = [*_heading(column).splitlines(), *texts]
        width = max(map(len, lines)) + 2
        if part and width > left:
            yield first, part
            part, left, first = [], start, False
        part.append(column)
        left -= width
    yield first, part


def _drawn(comparison: Comparison, title: str, columns: Sequence[Column]) -> Table:
    drawn = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    drawn.add_column("method", overflow="fold", max_width=_NAME_WIDTH)
    for column in columns:
        drawn.add_column(_heading(column), justify="right", no_wrap=True)
    for row in rows(comparison, columns):
        cells = [Text(cell.text, "bold" if cell.is_best else "") for cell in row.cells]
        if row.kind == "ceiling":
            drawn.add_section()
        drawn.add_row(Text(row.name), *cells)
    return drawn


def _heading(column: Column) -> str:
    """In two lines where it is long."""
    words = column.heading.rsplit(" ", 2 if column.better else 1)
    if len(column.heading) <= 11 or len(words) < (3 if column.better else 2):
        return column.heading
    return f"{words[0]}\n{' '.join(words[1:])}"


def summary(comparison: Comparison) -> dict[str, Any]:
    """The numbers of a comparison under fixed names, for scripts.

    Of JSON values only; what has no meaning or can't be had is None.
    """
    distances = ("agreement", "total_variation")
    if comparison.task == "regression":
        distances = (*distances, "mean_distance")
    function, weight = comparison.function, comparison.weight
    return {
        "methods": {s.name: _everything(s) for s in all_scores(comparison)},
        "best": _winners(comparison),
        "between_chain": _ceiling(comparison.between_chains, distances),
        "rhat": {
            "function_share_below_1.05": share_below(function.rhat, 1.05),
            "weight_share_below_1.05": share_below(weight and weight.rhat, 1.05),
        },
        "rhat_judged": {
            name: of and {"judged": of.num_judged, "of": of.num_quantities}
            for name, of in (("function", function), ("weight", weight))
        },
        "convergence": convergence.numbers(comparison),
        "step_size_bias": {s.name: _bias(s.bias) for s in all_scores(comparison)},
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


def _cell(scores: Scores, column: Column, is_best: bool) -> Cell:
    text = _show(column, value(scores, column.key))
    error = _number(scores.errors.get(column.key))
    if error is not None:
        text += f" ± {column.show(error)}"
    p_value = value(scores, column.p_value) if column.p_value else None
    if p_value is not None:
        text += f" (p {p_value:.2g})"
    return Cell(text, is_best)


def _best(column: Column, comparison: Comparison) -> set[int]:
    """Places of the best of a column, and of all that can't be told from it.

    Those are what is shown as the same, and what differs by less than two standard
    errors of the difference, where a standard error is known.
    """
    every = all_scores(comparison)
    known = {
        place: number
        for place, scores in enumerate(every)
        if (number := _number(value(scores, column.key))) is not None
    }
    if column.better is None or len(known) < 2:
        return set()
    best = column.better(known.values())
    first = next(place for place, number in known.items() if number == best)

    def error(place: int) -> float:
        return _number(every[place].errors.get(column.key)) or 0.0

    return {
        place
        for place, number in known.items()
        if column.show(number) == column.show(known[first])
        or abs(number - known[first]) < 2 * math.hypot(error(place), error(first))
    }


def _show(column: Column, number: float | None) -> str:
    if number is not None and math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return "–" if number is None or math.isnan(number) else column.show(number)


def _winners(comparison: Comparison) -> dict[str, list[str]]:
    """Who is best in each column of the tables."""
    found = {}
    for section in sections(comparison):
        for column in section.columns:
            every, best = all_scores(comparison), _best(column, comparison)
            if best:
                found[column.key] = [every[place].name for place in sorted(best)]
    return found


def _everything(scores: Scores) -> dict[str, Any]:
    """All numbers of a method: fields by their name, details as nested dictionaries."""
    numbers: dict[str, Any] = {key: _number(value(scores, key)) for key in NUMBERS}
    numbers["num_seeds"] = scores.num_seeds
    numbers["errors"] = {key: _number(error) for key, error in scores.errors.items()}
    for key, number in scores.details.items():
        *path, last = key.split("/")
        node = numbers
        for name in path:
            node = node.setdefault(name, {})
        node[last] = _number(number)
    return numbers


def _ceiling(between: Scores | None, fields: tuple[str, ...]) -> dict[str, Any]:
    """The numbers of the reference's chains to each other, with their errors."""
    errors = {} if between is None else between.errors
    return {
        **{field: _number(getattr(between, field, None)) for field in fields},
        "errors": {key: _number(error) for key, error in errors.items()},
    }


def _number(value: float | None) -> float | None:
    """The value where JSON has it."""
    return float(value) if value is not None and math.isfinite(value) else None


def _bias(bias: Bias) -> dict[str, Any] | str | None:
    return bias._asdict() if isinstance(bias, SpreadComparison) else bias


def _acceptance(comparison: Comparison) -> float | None:
    rates = comparison.acceptance
    return None if rates is None or not rates.size else float(np.mean(rates))


def _seconds(comparison: Comparison) -> float | None:
    known = [s.seconds for s in all_scores(comparison) if s.seconds is not None]
    return sum(known) if known else None
