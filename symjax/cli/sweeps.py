"""`symjax sweep`: one run for each temperature and prior scale, and their scores."""

import csv
import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from symjax import checks, evaluation, plots, report, run, store
from symjax.cli import chains, posteriors
from symjax.cli.options import Sample, Sweep


METRICS = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll")}


class Point(NamedTuple):
    """A finished run of the grid and its scores, by metric.

    Attributes:
        temperature: T in posterior^(1/T).
        prior_scale: Of the prior.
        run: Name of its folder.
        scores: Of all chains together.
        chain_scores: Of every chain by itself.
    """

    temperature: float
    prior_scale: float
    run: str
    scores: dict[str, float]
    chain_scores: dict[str, list[float]]


def sweep(command: Sweep, console: Console) -> None:
    """Make or continue the runs, score them, and write table and picture.

    Raises:
        Stopped: if a signal asked for it; it says how to continue.
    """
    command = _checked(command)
    grid = list(_grid(command))
    if command.sample.dry_run:
        console.print(f"{len(grid)} runs like this one:", highlight=False)
        chains.execute(replace(grid[0], out=None), console)
        return
    out: Any = command.sample.out
    _claim(command, out)
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
            raise run.Stopped(
                f"{stopped} Or continue the whole sweep by the command that began it."
            ) from None
        except run.NonFiniteError as error:
            console.print(f"[bold]Warning:[/bold] left out. {error}", highlight=False)
            continue
        points.append(_score(planned))
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
        if not np.all(np.isfinite(values)):
            raise ValueError(f"`--{option}` must be finite, got {values}.")
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

    Raises:
        ValueError: if it holds something else.
    """
    options = asdict(command.sample)
    for name in chains.NOT_OF_THE_RUN:
        del options[name]
    # The grid has its own list, and may grow.
    for name in ("temperature", "prior_scale"):
        del options["problem"][name]
    file = out / "sweep.json"
    if file.exists():
        recorded = store.read_json(file)["options"]
        changed = sorted(_differences(recorded, _as_json(options)))
        if changed:
            raise ValueError(
                f"{out} holds a sweep of other options ({', '.join(changed)}). Choose "
                "another `--out`, or remove it."
            )
        return
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


def _execute(planned: Sample, console: Console) -> None:
    path: Any = planned.out
    if (path / "config.json").exists():
        minutes = planned.max_minutes
        chains.execute(Sample(resume=path, max_minutes=minutes), console)
    else:
        chains.execute(planned, console)


def _score(planned: Sample) -> Point:
    path: Any = planned.out
    kept = store.open(path)
    built = chains.posterior_of(kept)
    dataset = built.dataset
    outputs = evaluation.predict(built.apply, kept.lazy(built.shapes), dataset.test.x)
    targets = np.asarray(dataset.test.y)
    if dataset.target_std is not None:
        targets = targets * dataset.target_std + dataset.target_mean
    method = posteriors.as_method(path.name, built, outputs, None)

    def score(some: slice) -> list[float]:
        part = method._replace(
            outputs=method.outputs[some],
            std=None if method.std is None else method.std[some],
        )
        scores = report.compare(part, (), targets, task=dataset.task).reference
        return [float(getattr(scores, metric)) for metric in metrics]

    metrics = METRICS[dataset.task]
    of_chains = zip(
        *(score(slice(chain, chain + 1)) for chain in range(kept.num_chains)),
        strict=True,
    )
    return Point(
        planned.problem.temperature,
        planned.problem.prior_scale,
        path.name,
        dict(zip(metrics, score(slice(None)), strict=True)),
        dict(zip(metrics, map(list, of_chains), strict=True)),
    )


def _write(command: Sweep, points: list[Point], console: Console) -> None:
    """Print the table; write sweep.json, sweep.csv and sweep.png.

    Raises:
        ValueError: if no run has draws.
    """
    if not points:
        raise ValueError("No run of the sweep could be made: see the warnings above.")
    out: Any = command.sample.out
    metrics = list(points[0].scores)
    rows = [
        [point.temperature, point.prior_scale, *point.scores.values(), point.run]
        for point in points
    ]
    table = Table("temperature", "prior scale", *metrics)
    for row in rows:
        table.add_row(*(f"{value:.4g}" for value in row[:-1]))
    console.print(table)
    for sentence in _findings(points):
        console.print(f"  • {sentence}", highlight=False)
    file = out / "sweep.json"
    options = store.read_json(file)["options"]
    listed = [point._asdict() for point in points]
    store.write_json(file, {"options": options, "points": listed})
    with store.explained("write", out / "sweep.csv"):
        with (out / "sweep.csv").open("w", newline="", encoding="utf-8") as opened:
            writer = csv.writer(opened)
            writer.writerow(["temperature", "prior_scale", *metrics, "run"])
            writer.writerows(rows)
        figure = plots.sweep(
            [point.temperature for point in points],
            [point.prior_scale for point in points],
            {metric: [point.scores[metric] for point in points] for metric in metrics},
            {
                metric: [point.chain_scores[metric] for point in points]
                for metric in metrics
            },
        )
        figure.savefig(out / "sweep.png", dpi=150)
    console.print(f"Picture: {out / 'sweep.png'}", highlight=False, soft_wrap=True)


def _findings(points: list[Point]) -> Iterator[str]:
    """For each prior, whether another temperature than one predicts better."""
    for scale in sorted({point.prior_scale for point in points}):
        of_scale = {p.temperature: p for p in points if p.prior_scale == scale}
        if 1.0 not in of_scale or len(of_scale) < 2:
            continue
        best = min(of_scale.values(), key=lambda point: point.scores["nll"])
        bayes = of_scale[1.0]
        if best is bayes:
            yield f"prior scale {scale:g}: NLL is least at T = 1, {_nll(bayes)}."
            continue
        kind = "a colder" if best.temperature < 1 else "a warmer"
        yield (
            f"prior scale {scale:g}: {kind} posterior than T = 1 predicts better here: "
            f"NLL {_nll(best)} at T = {best.temperature:g}, {_nll(bayes)} at T = 1."
        )


def _nll(point: Point) -> str:
    single = point.chain_scores["nll"]
    if len(single) == 1:
        return f"{point.scores['nll']:.4f}"
    return (
        f"{point.scores['nll']:.4f} (single chains {min(single):.4f} to "
        f"{max(single):.4f})"
    )
