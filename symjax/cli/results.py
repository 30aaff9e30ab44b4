"""`symjax evaluate`, `report`, `list` and `export`: what was made of finished runs."""

from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from symjax import report, store, trees
from symjax.cli import bundles, comparing, surfaces
from symjax.cli.analyses import Evaluate, Export, List, Report
from symjax.cli.comparing import Evaluation
from symjax.store import Run


def evaluate(command: Evaluate, console: Console) -> None:
    """Print the tables and write summary.json, table.csv and table.tex."""
    evaluated = comparing.compare(command.compared)
    write_summary(evaluated, _folder(command, evaluated), console)


def write_report(command: Report, console: Console) -> None:
    """The same, and write report.html."""
    evaluated = comparing.compare(command.compared)
    out = _folder(command, evaluated)
    write_summary(evaluated, out, console)
    write_page(evaluated, out, console)


def write_summary(evaluated: Evaluation, out: Path, console: Console) -> None:
    """Print the tables and the verdict; write the files of numbers into `out`."""
    comparison = evaluated.comparison
    for table in report.tables(comparison):
        console.print(table)
    for note in report.notes(comparison):
        console.print(note, highlight=False, style="dim")
    convergence = report.convergence_table(comparison)
    if len(convergence.columns) > 1:  # Else all of it is withheld.
        console.print(convergence)
    for sentence in (*report.verdict(comparison), *evaluated.notes):
        console.print(f"  • {sentence}", highlight=False)
    with store.explained("make the folder", out, "Choose another `--out`."):
        out.mkdir(parents=True, exist_ok=True)
    store.write_json(out / "summary.json", report.summary(comparison))
    store.write_text(out / "table.csv", report.csv_table(comparison))
    store.write_text(out / "table.tex", report.latex(comparison))


def write_page(evaluated: Evaluation, out: Path, console: Console) -> None:
    """Write report.html into `out`."""
    run, built = evaluated.run, evaluated.built
    leaves, draws = None, None
    if run is not None:
        draws = run.lazy()
        paths = trees.paths(draws)
        leaves = dict(zip(paths, jax.tree.leaves(draws), strict=True))
    pictures = report.pictures(
        evaluated.comparison,
        evaluated.reference,
        evaluated.methods,
        evaluated.targets,
        x=None if built is None else built.dataset.test.x,
        trace=evaluated.trace,
        read_leaf=None if leaves is None else leaves.__getitem__,
    )
    if evaluated.aligned is not None and built is not None:
        pictures += surfaces.pictures(draws, evaluated.aligned, built)
    config = {"reference": evaluated.reference.name}
    if run is not None:
        config = {
            "config": run.config,
            "environment": run.environment,
            "created": run.created,
        }
    name = evaluated.reference.name if built is None else built.dataset.name
    page = report.write(
        out / "report.html",
        evaluated.comparison,
        pictures,
        config,
        title=f"Reference posterior: {name}",
        remarks=evaluated.notes,
    )
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


def _folder(command: Evaluate | Report, evaluated: Evaluation) -> Path:
    """Where to write: what was asked, else the reference's run, else here."""
    if command.out is not None:
        return command.out
    return Path() if evaluated.run is None else store.local(evaluated.run.path)


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
    """Write a run to a file of another format.

    Raises:
        ValueError: if there is no file or more than one, its ending is of no known
            format, or its folder is not there.
    """
    run, file = store.open(command.run), command.file or command.bundle
    if file is None or None not in (command.file, command.bundle):
        raise ValueError(
            "`file` or `--bundle` must be given, and not both, got "
            f"{command.file} and {command.bundle}."
        )
    if command.num_draws is not None and command.bundle is None:
        raise ValueError("`--num-draws` is for a `--bundle`. Leave it out.")
    if not file.absolute().parent.is_dir():
        name = "`file`" if command.bundle is None else "`--bundle`"
        raise ValueError(
            f"{name} must lie in a folder that exists, got {file}. Make it."
        )
    if command.bundle is not None and file.suffix != ".npz":
        raise ValueError(f"`--bundle` must end in .npz, got {file.name!r}.")
    if command.bundle is not None:
        bundle = bundles.export(command.run, file, command.num_draws)
        said = bundle.about["diagnostics"]["sentence"]
        console.print(said, highlight=False, soft_wrap=True)
    elif file.suffix == ".npz":
        store.export_npz(run, file)
    elif file.suffix == ".nc":
        store.export_arviz(run).to_netcdf(file)
    else:
        raise ValueError(f"`file` must end in .npz or .nc (ArviZ), got {file.name!r}.")
    size = f", {file.stat().st_size / 1e6:.2f} MB" if command.bundle else ""
    console.print(f"Wrote {file}{size}", highlight=False, soft_wrap=True)


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
