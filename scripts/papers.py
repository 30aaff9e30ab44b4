"""What the programs for papers share: runs that are made once, tables beside theirs.

A program prints the command of every run that it makes, so that each can be made again
by hand. A second call skips what is finished and continues what was interrupted.
"""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import tyro
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console

from symjax import run, store
from symjax.cli import Command, chains, ending, results
from symjax.plots import style


SHARES = ("accuracy", "agreement", "AUPR", "FPR95")
"""What is shown in per cent: measures that begin so."""

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


def start(main: Callable[[], None]) -> None:
    """Run a program; what symjax refuses ends it with a message, not a traceback."""
    try:
        main()
    except KeyboardInterrupt as error:
        ending.end_by_signal(error)
    except Exception as error:
        ending.end_by_error(error)


def parse(words: Sequence[str]) -> Any:
    """The command that the words mean."""
    return tyro.cli(Command, args=list(words))


def execute(
    words: str,
    path: Path,
    console: Console,
    *,
    minutes: float | None = None,
    dry_run: bool = False,
    gradient_ms: float | None = None,
) -> bool:
    """Make the run, or continue it; a finished one stays as it is.

    What was typed is kept in commands.json beside the runs, since `--warmup auto` and
    the like leave other options in the run itself.

    Args:
        words: Of `symjax sample` or `symjax fit`.
        path: The run directory.
        console: Where the command is printed.
        minutes: Limit of a chain's time, which a run does not record.
        dry_run: Whether to show the plan only.
        gradient_ms: For the plan of a sampler, instead of timing a gradient.

    Returns:
        Whether there is a run that can be read: not after a plan, nor where the time
        was over before the first draw, or draws left the finite numbers.

    Raises:
        SystemExit: if the folder holds a run of other options, or a signal came.
    """
    console.rule(path.name, align="left")
    limit = "" if minutes is None else f" --max-minutes {minutes:g}"
    if dry_run and gradient_ms is not None and words.startswith("sample"):
        limit += f" --estimate.gradient-ms {gradient_ms:g}"
    typed = f"{words}{limit}"
    console.print(f"symjax {typed} --out {path}", highlight=False, soft_wrap=True)
    command = parse(shlex.split(typed))
    if dry_run:
        chains.execute(replace(command, dry_run=True), console)
        return False
    if _is_begun(words, path):
        given = {} if minutes is None else {"max_minutes": minutes}
        command = type(command)(resume=path, **given)
    else:
        command = replace(command, out=path)
    start = time.monotonic()
    try:
        chains.execute(command, console)
    except run.Stopped as stopped:
        if minutes is None or time.monotonic() - start < 60 * minutes:
            raise SystemExit(f"{stopped} Or call this program again.") from None
        said = f"left out until the next call. {stopped}"
    except run.NonFiniteError as error:
        said = f"left out. {error}"
    else:
        return True
    console.print(f"[bold]Warning:[/bold] {said}", highlight=False)
    return False


def _is_begun(words: str, path: Path) -> bool:
    """Whether the run is there; if not, what makes it is written down.

    Raises:
        SystemExit: if it was made by other words.
    """
    file = path.parent / "commands.json"
    kept = store.read_json(file) if file.exists() else {}
    if (path / "config.json").exists():
        if kept.get(path.name) != words:
            raise SystemExit(
                f"{path} was made with other options. Choose another --out, or remove "
                "it."
            )
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_json(file, kept | {path.name: words})
    return False


def compare(
    paths: Sequence[Path],
    words: str,
    out: Path,
    console: Console,
    *,
    verb: Literal["evaluate", "report"] = "evaluate",
) -> dict[str, Any]:
    """What `symjax evaluate` says of the runs, the first of which is the reference.

    Args:
        paths: The runs.
        words: Options.
        out: Folder of the tables and of summary.json, which is returned.
        console: For the command and the tables.
        verb: `report` writes a page with pictures too.
    """
    typed = f"{verb} {' '.join(map(str, paths))} {words}".strip()
    console.rule(verb, align="left")
    console.print(f"symjax {typed} --out {out}", highlight=False, soft_wrap=True)
    command = parse([*shlex.split(typed), "--out", str(out)])
    make = results.evaluate if verb == "evaluate" else results.write_report
    make(command, console)
    return store.read_json(out / "summary.json")


def write(
    out: Path,
    title: str,
    tables: Sequence[Table],
    figures: Mapping[str, Figure],
    notes: Sequence[str],
    console: Console,
) -> None:
    """Print the tables; write table.md, results.json and the figures into `out`."""
    figures = dict(figures) | {
        f"{table.title.split(':')[0].lower().replace(' ', '-')}-beside": figure
        for table in tables
        if (figure := beside(table)) is not None
    }
    parts = [f"# {title}", *notes, *map(markdown, tables)]
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=150)
        parts.append(f"![{name}]({name}.png)")
    text = "\n\n".join(parts) + "\n"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    store.write_text(out / "table.md", text)
    found = {
        "title": title,
        "notes": list(notes),
        "device": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "tables": [_as_json(table._asdict()) for table in tables],
    }
    store.write_json(out / "results.json", found)
    console.print(f"Tables: {out / 'table.md'}", highlight=False, soft_wrap=True)


def markdown(table: Table) -> str:
    """The table, a published number to the right of each of ours."""
    columns = []
    for measure in _measures(table):
        columns.append((measure, table.rows, measure))
        if any(measure in row for row in table.published.values()):
            columns.append((f"published {measure}", table.published, measure))
    lines = [
        ["", *(heading for heading, _, _ in columns)],
        ["---", *("---:" for _ in columns)],
        *(
            [name, *(_show(m, source.get(name, {}).get(m)) for _, source, m in columns)]
            for name in dict.fromkeys([*table.rows, *table.published])
        ),
    ]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"## {table.title}\n\n{body}" + (f"\n\n{table.note}" if table.note else "")


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
            ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[0].legend(frameon=False, fontsize=style.SMALL, labelcolor=style.MUTED)
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
        return "∞"
    if measure.startswith(SHARES):
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if measure in COUNTS else f"{value:.3f}"


def _as_json(value: Any) -> Any:
    """The same with None for what JSON has not."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(part) for key, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
