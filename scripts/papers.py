"""What the programs for papers share: runs that are made once, tables beside theirs.

A program prints the command of every run that it makes, so that each can be made again
by hand. A second call skips what is finished and continues what was interrupted.
"""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import tyro
from matplotlib.figure import Figure
from paper_tables import Table, beside, markdown, printed
from rich.console import Console

from symjax import data, run, store
from symjax.cli import Command, chains, ending, results
from symjax.data.sources import did_you_mean


def start(main: Callable[[], None]) -> None:
    """Run a program; what symjax refuses ends it with a message, not a traceback."""
    with ending.explained():
        main()


def parse(words: Sequence[str]) -> Any:
    """The command that the words mean."""
    return tyro.cli(Command, args=list(words))


def require_known(only: Sequence[str], known: Sequence[str]) -> None:
    """Require names of methods in `--only`.

    Raises:
        SystemExit: naming the first that is none.
    """
    for name in only:
        if name not in known:
            raise SystemExit(
                f"`--only` must name some of {', '.join(known)}, got {name!r}."
                f"{did_you_mean(name, known)}"
            )


def require_inputs(problem: str, evaluation: str) -> None:
    """Read the other inputs that a report asks for, before hours have passed.

    Args:
        problem: Options of the runs, with their `--data`.
        evaluation: Options of the report.

    Raises:
        ValueError: if some are not on this machine.
    """  # noqa: DOC502
    dataset = data.load(parse(["sample", *shlex.split(problem)]).problem.data)
    for name in parse(["evaluate", *shlex.split(evaluation)]).compared.ood:
        data.load_ood(name, like=dataset)


def execute(
    words: str,
    path: Path,
    console: Console,
    *,
    start: Path | None = None,
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
        start: The run at whose last draws its chains start, if they do.
        minutes: Limit of a chain's time, which a run does not record.
        dry_run: Whether to show the plan only.
        gradient_ms: For the plan of a sampler, instead of timing a gradient.

    Returns:
        Whether there is a run that can be read: not after a plan, nor where the time
        was over before the first draw, or draws left the finite numbers.

    Raises:
        Stopped: if a signal came.
        SystemExit: if the folder holds a run of other options.
    """  # noqa: DOC502
    console.rule(path.name, align="left")
    limit = "" if start is None else f" --start {shlex.quote(str(start))}"
    limit += "" if minutes is None else f" --max-minutes {minutes:g}"
    if dry_run and gradient_ms is not None and words.startswith("sample"):
        limit += f" --estimate.gradient-ms {gradient_ms:g}"
    typed = f"{words}{limit}"
    where = shlex.quote(str(path))
    console.print(f"symjax {typed} --out {where}", highlight=False, soft_wrap=True)
    command = parse(shlex.split(typed))
    if dry_run:
        # The run to start at need not be there yet, and costs nothing.
        planned = {} if start is None else {"start": "init"}
        chains.execute(replace(command, dry_run=True, **planned), console)
        return False
    if _is_begun(words, path):
        given = {} if minutes is None else {"max_minutes": minutes}
        command = type(command)(resume=path, **given)
    else:
        command = replace(command, out=path)
    try:
        chains.execute(command, console)
    except run.OutOfTime as reason:
        said = f"left out until the next call. {reason}"
    except run.Stopped as stopped:
        # A signal has asked for it, and not for the next run.
        raise type(stopped)(f"{stopped}\nOr call this program again.") from None
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
    with store.explained("make the folder", path.parent, "Choose another --out."):
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
    typed = f"{verb} {shlex.join(map(str, paths))} {words}".strip()
    console.rule(verb, align="left")
    where = shlex.quote(str(out))
    console.print(f"symjax {typed} --out {where}", highlight=False, soft_wrap=True)
    command = parse([*shlex.split(typed), "--out", str(out)])
    make = results.evaluate if verb == "evaluate" else results.write_report
    make(command, console)
    return store.read_json(out / "summary.json")


def convergence(summary: Mapping[str, Any]) -> str:
    """For how many predictions the chains of HMC agree, of what `compare` returns."""
    share = summary["rhat"]["function_share_below_1.05"]
    if share is None:
        return "R-hat of HMC's predictions can't be had."
    return f"R-hat of HMC's predictions is below 1.05 for {share:.1%} of them."


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
    store.write_text(out / "table.md", "\n\n".join(parts) + "\n")
    for note in (title, *notes):
        console.print(note, highlight=False, markup=False)
    for table in tables:
        console.print(*printed(table, console.width))
    found = {
        "title": title,
        "notes": list(notes),
        "device": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "tables": [_as_json(table._asdict()) for table in tables],
    }
    store.write_json(out / "results.json", found)
    console.print(f"Tables: {out / 'table.md'}", highlight=False, soft_wrap=True)


def _as_json(value: Any) -> Any:
    """The same with None for what JSON has not."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(part) for key, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
