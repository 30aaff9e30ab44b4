"""`symjax sweep`: one run for each temperature and prior scale, and their scores."""

import csv
import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from symjax import checks, plots, run, store
from symjax.cli import chains, posteriors, records, sweep_scores, warmups
from symjax.cli.options import Sample, Sweep
from symjax.cli.sweep_scores import CONVERGED, Point


def sweep(command: Sweep, console: Console) -> None:
    """Make or continue the runs, score them, and write table and picture.

    Raises:
        Stopped: if a signal asked for it; it says how to continue.
    """  # noqa: DOC502
    command = _checked(command)
    grid = list(_grid(command))
    if command.sample.dry_run:
        console.print(f"{len(grid)} runs like this one:", highlight=False)
        chains.execute(replace(grid[0], out=None), console)
        return
    out: Any = command.sample.out
    _claim(command, out)
    _advise(command, console)
    points = []
    for number, planned in enumerate(grid, 1):
        problem = planned.problem
        console.rule(
            f"{number} of {len(grid)}: temperature {problem.temperature:g}, prior "
            f"scale {problem.prior_scale:g}",
            align="left",
        )
        try:
            _execute(planned, console)
        except run.Stopped as stopped:
            raise type(stopped)(
                f"{stopped} Or continue the whole sweep by the command that began it."
            ) from None
        except run.NonFiniteError as error:
            console.print(f"[bold]Warning:[/bold] left out. {error}", highlight=False)
            continue
        point = sweep_scores.score(planned, store.open(planned.out or Path()))
        if point is None:
            console.print(
                "[bold]Warning:[/bold] left out: a draw predicts what is not finite.",
                highlight=False,
            )
            continue
        points.append(point)
    _write(command, points, console)


def _checked(command: Sweep) -> Sweep:
    """The command with its grid in order.

    Raises:
        ValueError: if options contradict each other or the grid has other numbers than
            positive ones.
    """
    sample = command.sample
    if sample.resume is not None:
        raise ValueError(
            "`--resume` is of symjax sample: a sweep continues where its `--out` is."
        )
    if sample.out is None and not sample.dry_run:
        raise ValueError("`--out` must name the sweep's folder, such as runs/sweep.")
    found = {}
    for plural, one in (
        ("temperatures", "temperature"),
        ("prior_scales", "prior_scale"),
    ):
        values, single = getattr(command, plural), getattr(sample.problem, one)
        option = plural.replace("_", "-")
        if values and single != getattr(Sample().problem, one):
            raise ValueError(
                f"`--{option}` and `--{one.replace('_', '-')}` must not both be given."
            )
        values = values or (single,)
        checks.positive(**{f"--{option}": min(values)})
        # Beyond, a square is no number in float32.
        if not all(1e-18 <= value <= 1e18 for value in values):
            raise ValueError(
                f"`--{option}` must lie between 1e-18 and 1e18, got "
                f"{', '.join(f'{value:g}' for value in values)}."
            )
        found[plural] = tuple(sorted(set(values)))
    problem = posteriors.resolved(sample.problem)
    return replace(command, sample=replace(sample, problem=problem), **found)


def _grid(command: Sweep) -> Iterator[Sample]:
    sample = command.sample
    for temperature, scale in itertools.product(
        command.temperatures, command.prior_scales
    ):
        yield replace(
            sample,
            problem=replace(sample.problem, temperature=temperature, prior_scale=scale),
            out=(sample.out or Path())
            / f"temperature-{temperature:.12g}-prior-scale-{scale:.12g}",
        )


def _claim(command: Sweep, out: Path) -> None:
    """Begin the folder, or require that a sweep of the same options began it.

    One that was refused before its first run holds nothing, and is begun anew.

    Raises:
        ValueError: if it holds something else.
    """
    options = asdict(command.sample)
    for name in records.NOT_OF_THE_RUN:
        del options[name]
    # The grid has its own list, and may grow.
    for name in ("temperature", "prior_scale"):
        del options["problem"][name]
    file = out / "sweep.json"
    if file.exists() and any(entry != file for entry in out.iterdir()):
        recorded = store.read_json(file)["options"]
        changed = sorted(_differences(recorded, _as_json(options)))
        if changed:
            raise ValueError(
                f"{out} holds a sweep of other options ({', '.join(changed)}). Choose "
                "another `--out`, or remove it."
            )
        return
    if not file.exists():
        store.claim(out)
    store.write_json(file, {"options": options, "points": []})


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(part) for key, part in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _differences(one: dict[str, Any], two: dict[str, Any]) -> Iterator[str]:
    for name in one.keys() | two.keys():
        first, second = one.get(name), two.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from (f"{name}.{inner}" for inner in _differences(first, second))
        elif first != second:
            yield name


def _advise(command: Sweep, console: Console) -> None:
    """Say that a step size which one temperature takes is too long for a colder one."""
    sample = command.sample
    if (
        len(command.temperatures) > 1
        and sample.warmup == "given"
        and sample.sampler in warmups.TUNED
    ):
        console.print(
            "The warm-up begins with one step size at every temperature, and a stable "
            "one shrinks with the root of it. `--warmup auto`, with `--"
            f"{sample.sampler.replace('_', '-')}.step-size` left out, picks one for "
            "each run.",
            highlight=False,
            style="dim",
        )


def _execute(planned: Sample, console: Console) -> None:
    path: Any = planned.out
    if (path / "config.json").exists():
        now = {name: getattr(planned, name) for name in ("max_minutes", "processes")}
        chains.execute(Sample(resume=path, **now), console)
    else:
        chains.execute(planned, console)


def _write(command: Sweep, points: list[Point], console: Console) -> None:
    """Print the table; write sweep.json, sweep.csv and sweep.png.

    Raises:
        ValueError: if no run has draws.
    """
    if not points:
        raise ValueError("No run of the sweep could be made: see the warnings above.")
    out: Any = command.sample.out
    _print(points, console)
    file = out / "sweep.json"
    options = store.read_json(file)["options"]
    listed = [
        # JSON has no infinity.
        {
            **point._asdict(),
            "rhat": _finite(point.rhat),
            "converged": point.is_converged,
        }
        for point in points
    ]
    store.write_json(file, {"options": options, "points": listed})
    metrics = list(points[0].scores)
    with store.explained("write", out / "sweep.csv"):
        with (out / "sweep.csv").open("w", newline="", encoding="utf-8") as opened:
            writer = csv.writer(opened)
            names = ("temperature", "prior_scale", "prior_variance")
            writer.writerow([*names, *metrics, "rhat", "run"])
            writer.writerows(
                [*(getattr(point, name) for name in names), *point.scores.values()]
                + [point.rhat, point.run]
                for point in points
            )
        figure = plots.sweep(
            [point.temperature for point in points],
            [point.prior_variance for point in points],
            {metric: [point.scores[metric] for point in points] for metric in metrics},
            {
                metric: [point.chain_scores[metric] for point in points]
                for metric in metrics
            },
            [bool(point.is_converged) for point in points],
        )
        figure.savefig(out / "sweep.png", dpi=150)
    console.print(f"Picture: {out / 'sweep.png'}", highlight=False, soft_wrap=True)


def _print(points: list[Point], console: Console) -> None:
    """The table and what may be read from it."""
    table = Table("temperature", "prior scale", *points[0].scores, "R-hat")
    for point in points:
        shown = "-" if point.rhat is None else f"{point.rhat:.3f}"
        style = "yellow" if point.is_converged is False else ""
        numbers = (point.temperature, point.prior_scale, *point.scores.values())
        table.add_row(*(f"{value:.4g}" for value in numbers), Text(shown, style))
    console.print(table)
    console.print(
        "R-hat: that of 99 % of the predictions is at most this. The chains of a row "
        f"above {CONVERGED:g} have not converged, and its numbers are theirs, not the "
        "posterior's.",
        highlight=False,
        style="dim",
    )
    for sentence in sweep_scores.findings(points):
        console.print(f"  • {sentence}", highlight=False)


def _finite(value: float | None) -> float | None:
    return None if value is None or np.isinf(value) else value
