"""A table of a paper's program: our numbers beside theirs, as text and as a picture."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import rich.table
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.text import Text

from symjax.plots import style


SHARES = ("accuracy", "agreement", "AUPR", "FPR95")
"""What is shown in per cent: measures that begin so."""

PADDING = 3
"""Characters between columns of a terminal."""

COUNTS = ("seconds", "networks")
"""What is shown without decimals."""


class Table(NamedTuple):
    """Rows of numbers, and the paper's.

    Attributes:
        title: Heading.
        rows: For every row its measures; None where there is none.
        published: The same of the paper, for what it gives.
        note: What to know beside the numbers.
    """

    title: str
    rows: Mapping[str, Mapping[str, float | None]]
    published: Mapping[str, Mapping[str, float]] = {}
    note: str = ""


def markdown(table: Table) -> str:
    """The table as text."""
    heads, *rows = _cells(table)
    rule = ["---", *("---:" for _ in heads[1:])]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
    return f"## {table.title}\n\n{body}" + (f"\n\n{table.note}" if table.note else "")


def printed(table: Table, width: int) -> Iterator[rich.table.Table | Text]:
    """The table for a terminal, in as many parts as fit the width, and its note."""
    names, *columns = zip(*_cells(table), strict=True)
    free = width - _width(names) - 1  # The edge on the right.
    while columns:
        used = list(itertools.accumulate(map(_width, columns)))
        count = max(1, sum(end <= free for end in used))
        now, columns = columns[:count], columns[count:]
        found = rich.table.Table(
            title=table.title,
            title_justify="left",
            box=box.SIMPLE,
        )
        for column in (names, *now):
            # Rich would break numbers in two.
            found.add_column(
                column[0],
                justify="left" if column is names else "right",
                width=_width(column) - PADDING,
            )
        for row in zip(*(names[1:], *(column[1:] for column in now)), strict=True):
            found.add_row(*row)
        yield found
    if table.note:
        yield Text(f"{table.note}\n")


def _width(column: Sequence[str]) -> int:
    """Characters that a column takes, whose heading is broken between words."""
    head, *cells = column
    least = min(len(head), 12)
    return max(least, *map(len, (*head.split(), *cells))) + PADDING


def _cells(table: Table) -> list[list[str]]:
    """The headings and the rows, a published number to the right of each of ours."""
    columns = []
    for measure in _measures(table):
        columns.append((measure, table.rows, measure))
        if any(measure in row for row in table.published.values()):
            columns.append((f"published {measure}", table.published, measure))
    return [
        ["", *(heading for heading, _, _ in columns)],
        *(
            [name, *(_show(m, source.get(name, {}).get(m)) for _, source, m in columns)]
            for name in dict.fromkeys([*table.rows, *table.published])
        ),
    ]


def beside(table: Table) -> Figure | None:
    """Our numbers as dots and the published ones as rings; None if there are none."""
    shown = [
        measure
        for measure in _measures(table)
        if any(measure in row for row in table.published.values())
    ]
    if not shown:
        return None
    # In the order of what was published; the reference has no row.
    names = [
        name
        for name in dict.fromkeys([*table.published, *table.rows])
        if any(
            _is_number(source.get(name, {}).get(measure))
            for source in (table.rows, table.published)
            for measure in shown
        )
    ]
    fig = style.figure(1.0 + 0.3 * len(names))
    panels = fig.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for ax, measure in zip(panels, shown, strict=True):
        for source, mark in ((table.rows, {}), (table.published, {"mfc": "white"})):
            label = "published" if mark else "ours"
            at = {
                place: number
                for place, name in enumerate(names)
                if _is_number(number := source.get(name, {}).get(measure))
            }
            ax.plot(
                list(at.values()),
                list(at),
                "o",
                color=style.ACCENT,
                label=label,
                **mark,
            )
        style.dress(ax, xlabel=measure)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        if measure.startswith(SHARES):
            style.percent_ticks(ax.xaxis)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    style.name_lines(fig, num_columns=2)
    return fig


def _measures(table: Table) -> list[str]:
    rows = (*table.rows.values(), *table.published.values())
    return list(dict.fromkeys(measure for row in rows for measure in row))


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _show(measure: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if measure.startswith(SHARES):
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if measure in COUNTS else f"{value:.3f}"
