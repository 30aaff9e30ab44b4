"""`symjax evaluate`, `report`, `list` and `export`: what was made of finished runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from symjax import evaluation, progress, report, store, trees
from symjax.cli import alignment, bias, chains, posteriors, predictors, surfaces
from symjax.cli.analyses import Evaluate, Export, List, Report
from symjax.cli.posteriors import Posterior
from symjax.report import Comparison, Method, Trace
from symjax.store import Run
from symjax.types import Params


MAX_ALIGNED_BYTES = 2**31
"""Draws of a reference that are aligned on the way, if no aligned run is beside it."""


class Evaluation(NamedTuple):
    """A reference and methods with all that a report shows of them."""

    comparison: Comparison
    reference: Method
    methods: tuple[Method, ...]
    built: Posterior
    trace: Trace | None
    run: Run
    aligned: Params | None


def evaluate(command: Evaluate, console: Console) -> None:
    """Print the table of the runs and write summary.json."""
    evaluation_ = compare_runs(command.runs)
    write_summary(evaluation_, command.out or command.runs[0], console)


def write_report(command: Report, console: Console) -> None:
    """Print the table of the runs and write summary.json and report.html."""
    evaluation_ = compare_runs(command.runs)
    out = command.out or command.runs[0]
    write_summary(evaluation_, out, console)
    write_page(evaluation_, out, console)


def compare_runs(paths: Sequence[Path]) -> Evaluation:
    """Predict with every run and compare the others with the first.

    Args:
        paths: Run directories of one data set, the reference first.

    Raises:
        ValueError: if there is no run, or one without draws or of other data.
    """
    if not paths:
        raise ValueError("`runs` must name at least one run directory, got none.")
    runs = [store.open(path) for path in paths]
    names = _names([run.path for run in runs])
    built = [chains.posterior_of(run) for run in runs]
    for run, other in zip(runs, built, strict=True):
        if other.dataset.fingerprint != built[0].dataset.fingerprint:
            raise ValueError(
                f"`runs` must be of one data set, but {run.path} is of "
                f"{other.dataset.name} and {runs[0].path} of {built[0].dataset.name}."
            )
    methods = [
        posteriors.as_method(
            name, problem, _predict(run, problem, name), _seconds(run)
        )._replace(bias=bias.read(run))
        for run, problem, name in zip(runs, built, names, strict=True)
    ]
    reference, dataset = runs[0], built[0].dataset
    trace = _trace(reference)
    draws = reference.lazy()
    aligned = alignment.aligned_draws(reference, built[0], MAX_ALIGNED_BYTES)
    comparison = report.compare(
        methods[0],
        methods[1:],
        _targets(dataset),
        task=dataset.task,
        trace=trace,
        weight=evaluation.summarise(draws),
        aligned=None if aligned is None else evaluation.summarise(aligned),
        weight_distances=evaluation.chain_distances(draws),
        aligned_distances=(
            None if aligned is None else evaluation.chain_distances(aligned)
        ),
    )
    return Evaluation(
        comparison,
        methods[0],
        tuple(methods[1:]),
        built[0],
        trace,
        reference,
        aligned,
    )


def write_summary(evaluated: Evaluation, out: Path, console: Console) -> None:
    """Print the table and the verdict; write summary.json into `out`."""
    comparison = evaluated.comparison
    console.print(report.table(comparison))
    console.print(report.convergence_table(comparison))
    for sentence in report.verdict(comparison):
        console.print(f"  • {sentence}", highlight=False)
    with store.explained("make the folder", out, "Choose another `--out`."):
        out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / "summary.json", report.summary(comparison))


def write_page(evaluated: Evaluation, out: Path, console: Console) -> None:
    """Write report.html into `out`."""
    dataset = evaluated.built.dataset
    draws = evaluated.run.lazy()
    leaves = dict(zip(trees.paths(draws), jax.tree.leaves(draws), strict=True))
    pictures = report.pictures(
        evaluated.comparison,
        evaluated.reference,
        evaluated.methods,
        _targets(dataset),
        x=dataset.test.x,
        trace=evaluated.trace,
        read_leaf=leaves.__getitem__,
    )
    if evaluated.aligned is not None:
        pictures += surfaces.pictures(draws, evaluated.aligned, evaluated.built)
    run = evaluated.run
    page = report.write(
        out / "report.html",
        evaluated.comparison,
        pictures,
        {"config": run.config, "environment": run.environment, "created": run.created},
        title=f"Reference posterior: {dataset.name}",
    )
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


def list_runs(command: List, console: Console) -> None:
    """Print the runs below a folder.

    Raises:
        ValueError: if there is no such folder.
    """
    if not command.folder.is_dir():
        raise ValueError(f"`folder` must be a folder, got {command.folder}.")
    table = Table("run", "command", "data", "model", "chains", "draws", "state")
    for file in sorted(command.folder.rglob("commit.json")):
        try:
            run = store.open(file.parent)
            table.add_row(str(file.parent), *_describe(run))
        except store.StoreError as error:
            table.add_row(str(file.parent), *[""] * 5, str(error))
    if table.row_count:
        console.print(table)
    else:
        console.print(
            f"No runs below {command.folder}. Make one with symjax sample, or "
            "everything at once with symjax demo."
        )


def export(command: Export, console: Console) -> None:
    """Write a run's draws to a file of another format.

    Raises:
        ValueError: if the file's ending is of no known format, or its folder is not
            there.
    """
    run = store.open(command.run)
    if not command.file.absolute().parent.is_dir():
        raise ValueError(
            f"`file` must lie in a folder that exists, got {command.file}. Make it."
        )
    if command.file.suffix == ".npz":
        store.export_npz(run, command.file)
    elif command.file.suffix == ".nc":
        store.export_arviz(run).to_netcdf(command.file)
    else:
        raise ValueError(
            f"`file` must end in .npz or .nc (ArviZ), got {command.file.name!r}."
        )
    console.print(f"Wrote {command.file}", highlight=False, soft_wrap=True)


def _predict(run: Run, built: Posterior, name: str) -> Any:
    apply, draws = predictors.of_run(run, built)
    total = run.num_chains * run.committed.num_draws
    with progress.bar(f"Predicting with {name}", total) as update:
        return evaluation.predict(
            apply,
            draws,
            built.dataset.test.x,
            progress=lambda done, _: update(done, ""),
        )


def _trace(run: Run) -> Trace | None:
    info = run.info()
    if "log_density" not in info or run.kept is None:
        return None
    return Trace(
        info["log_density"],
        info.get("acceptance_rate"),
        info.get("is_divergent"),
        num_warmup=run.config["run"]["num_discarded"],
    )


def _targets(dataset: Any) -> np.ndarray:
    targets = np.asarray(dataset.test.y)
    if dataset.task == "classification":
        return targets
    return targets * dataset.target_std + dataset.target_mean


def _names(paths: Sequence[Path]) -> list[str]:
    """Each run's folder name, or its whole path where names repeat."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    return [str(path) for path in paths]


def _seconds(run: Run) -> float | None:
    return chains.seconds(run.path) or None


def _describe(run: Run) -> list[str]:
    options = run.config.get("options", {})
    problem = options.get("problem", {})
    done = run.committed
    state = "finished" if done.finished else f"iteration {done.iteration:,}"
    return [
        options.get("sampler") or options.get("method") or "",
        problem.get("data", ""),
        problem.get("model", ""),
        str(run.num_chains),
        f"{done.num_draws:,} of {run.num_draws:,}",
        state if done.finished else f"{state} of {run.num_iterations:,}",
    ]
