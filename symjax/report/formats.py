"""The tables of a comparison in other people's formats: CSV and LaTeX."""

import csv
import io
import math

from symjax.report.columns import all_scores, notes, sections
from symjax.report.comparison import Comparison
from symjax.report.scores import NUMBERS, value
from symjax.report.tables import Cell, rows


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
    "²": r"\textsuperscript{2}",
    "–": "--",
    "∞": r"$\infty$",
}


def csv_table(comparison: Comparison) -> str:
    """All numbers in full, a line a method; empty where there is none.

    A standard error has the name of its number with `_error` behind it. The numbers of
    other inputs are named as in `Scores.details`.
    """
    every = all_scores(comparison, with_ceiling=True)
    keys = [
        key
        for key in dict.fromkeys([*NUMBERS, *(k for s in every for k in s.details)])
        if any(value(scores, key) is not None for scores in every)
    ]
    with_error = {key for scores in every for key in scores.errors}
    kinds = ["reference", *("method" for _ in comparison.methods), "ceiling"]
    headings = ["method", "kind", "seeds"]
    for key in keys:
        headings += [key, f"{key}_error"] if key in with_error else [key]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(headings)
    for kind, scores in zip(kinds, every, strict=False):
        line = [scores.name, kind, scores.num_seeds]
        for key in keys:
            line.append(_number(value(scores, key)))
            if key in with_error:
                line.append(_number(scores.errors.get(key)))
        writer.writerow(line)
    return buffer.getvalue()


def latex(comparison: Comparison) -> str:
    r"""The tables for `\usepackage{booktabs}`, the best of every column in bold."""
    parts = [r"% \usepackage{booktabs}", *(f"% {note}" for note in notes(comparison))]
    for section in sections(comparison):
        columns = section.columns
        parts += [
            "",
            f"% {section.title}. {section.reading}",
            # To fit the page of an article.
            r"{\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
            r"\toprule",
            _line(["method", *(_escaped(column.heading) for column in columns)]),
            r"\midrule",
        ]
        for row in rows(comparison, columns):
            if row.kind == "ceiling":
                parts.append(r"\midrule")
            parts.append(_line([_escaped(row.name), *map(_marked, row.cells)]))
        parts += [r"\bottomrule", r"\end{tabular}}"]
    return "\n".join(parts) + "\n"


def _marked(cell: Cell) -> str:
    text = _escaped(cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _number(number: float | None) -> str:
    if number is None or math.isnan(number):
        return ""
    return repr(float(number))
