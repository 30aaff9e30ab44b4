"""The report as one HTML file that needs nothing beside it."""

import base64
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from symjax.report import convergence
from symjax.report.columns import Section, notes, sections
from symjax.report.comparison import Comparison
from symjax.report.judgement import Finding, findings
from symjax.report.picture import Picture
from symjax.report.tables import Row, rows, tiles
from symjax.report.template import PAGE
from symjax.store.files import explained


_MARK = {True: "best", False: "plain"}


def write(
    path: str | os.PathLike[str],
    comparison: Comparison,
    pictures: Sequence[Picture],
    config: Mapping[str, Any],
    *,
    title: str = "Reference posterior",
    remarks: Sequence[str] = (),
) -> Path:
    """Write the page in one piece: a reader finds the old file or the new, whole.

    A full disk or a folder that can't be written is a `store.StoreError`.

    Args:
        path: The file, replaced if it is there.
        comparison: The numbers.
        pictures: In the order to be shown.
        config: What ran, with which versions.
        title: Heading of the page.
        remarks: Sentences behind the verdict.

    Returns:
        The path.
    """
    path = Path(path)
    page = render(comparison, pictures, config, title=title, remarks=remarks)
    partial = path.with_name(path.name + ".tmp")
    with explained("write", path):
        try:
            partial.write_text(page, encoding="utf-8")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def render(
    comparison: Comparison,
    pictures: Sequence[Picture],
    config: Mapping[str, Any],
    *,
    title: str = "Reference posterior",
    remarks: Sequence[str] = (),
) -> str:
    """The page: verdict, table, pictures with how to read them, configuration.

    Args:
        comparison: The numbers.
        pictures: In the order to be shown.
        config: What ran, with which versions; JSON values, written out at the end.
        title: Heading of the page.
        remarks: Sentences behind the verdict.

    Returns:
        HTML that loads nothing and runs no script.
    """
    return Template(PAGE).substitute(
        title=escape(title),
        facts=escape(_facts(comparison)),
        tiles=_lines(
            f'<div class="tile"><b>{escape(value)}</b><span>{_prose(name)}</span></div>'
            for name, value in tiles(comparison)
        ),
        verdict=_lines(
            f'<li class="{finding.tone}">{_prose(finding.text)}</li>'
            for finding in [
                *findings(comparison),
                *(Finding("note", r) for r in remarks),
            ]
        ),
        notes=_prose(" ".join(notes(comparison))),
        tables=_lines(_table(comparison, section) for section in sections(comparison)),
        convergence=_convergence(comparison),
        pictures=_lines(_section(picture) for picture in pictures),
        config=escape(json.dumps(config, indent=2, default=str, ensure_ascii=False)),
    )


def svg(figure: Figure) -> bytes:
    """A figure as an SVG image whose text is in the reader's own sans-serif font."""
    buffer = io.BytesIO()
    # Read at save time only: text stays text, and equal figures give equal bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "symjax"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().replace(b"'DejaVu Sans'", b"system-ui, sans-serif")


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Escaped text that never breaks a line within R-hat."""
    return escape(text).replace("R-hat", '<span class="word">R-hat</span>')


def _facts(comparison: Comparison) -> str:
    seconds = comparison.reference.seconds
    many = comparison.num_chains > 1
    chains = f"{comparison.num_chains} chains" if many else "1 chain"
    took = [] if seconds is None else [f"{seconds:,.0f} s"]
    return " · ".join(
        [
            f"{comparison.reference.name}: {chains} of {comparison.num_draws:,} draws",
            *took,
            f"{comparison.num_examples:,} test points",
        ]
    )


def _table(comparison: Comparison, section: Section) -> str:
    head = "".join(f"<th>{escape(column.heading)}</th>" for column in section.columns)
    body = _lines(_row(row) for row in rows(comparison, section.columns))
    return (
        f"<h3>{escape(section.title)}</h3>"
        '<div class="scroll"><table>'
        f"<thead><tr><th>method</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f'<p class="reading">{_prose(section.reading)}</p>'
    )


def _row(row: Row) -> str:
    cells = "".join(
        f'<td class="{_MARK[cell.is_best]}">{escape(cell.text)}</td>'
        for cell in row.cells
    )
    return f'<tr class="{row.kind}"><th scope="row">{escape(row.name)}</th>{cells}</tr>'


def _convergence(comparison: Comparison) -> str:
    """The section on R-hat; nothing where all of it is withheld."""
    headings = [measure.heading for measure in convergence.measures(comparison)]
    if not headings:
        return ""
    head = "".join(
        f"<th>{escape(heading).replace(' ', '<br>', 1)}</th>" for heading in headings
    )
    body = _lines(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, cells in convergence.rows(comparison)
    )
    return (
        f"<section><h2>{_prose(convergence.title(comparison))}</h2>"
        '<div class="scroll"><table>'
        f"<thead><tr><th>compared by</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f'<p class="reading">{_prose(convergence.reading(comparison))}</p></section>'
    )


def _section(picture: Picture) -> str:
    drawn = base64.b64encode(svg(picture.figure)).decode()
    title, reading = escape(picture.title), _prose(picture.reading)
    # At its own size where there is room; on a telephone it scrolls before it is tiny.
    width = round(100 * picture.figure.get_figwidth())
    size = f"max-width: {width}px; min-width: {min(width, 540)}px"
    source = f"data:image/svg+xml;base64,{drawn}"
    return (
        f'<section><h2>{title}</h2><figure><div class="scroll">'
        f'<img alt="{title}" style="{size}" src="{source}"></div>'
        f"<figcaption>{reading}</figcaption></figure></section>"
    )
