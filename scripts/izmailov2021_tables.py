"""The tables and the picture of an experiment of Izmailov et al. (2021)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import papers
from paper_tables import Table
from rich.console import Console

from symjax import plots, store
from symjax.cli import records, sweep_scores
from symjax.cli.sweep_scores import Point


REFERENCE = "hmc"

LIKENESS = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "agreement": "agreement",
    "total_variation": "total variation",
    "mutual_information": "MI",
    "seconds": "seconds",
}
QUALITY = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}


def compared(
    paths: Sequence[Path], words: str, published: Mapping[str, Mapping[str, float]]
) -> list[Table]:
    """The methods beside the reference, and all on corrupted test points.

    Args:
        paths: The runs, the reference first.
        words: Options of the report; those of corruptions make two more tables.
        published: Rows of the methods.
    """
    summary = papers.compare(paths, words, paths[0].parent, Console())
    methods = summary["methods"]
    rows = {
        name: {title: found[key] for key, title in LIKENESS.items()}
        for name, found in methods.items()
    }
    ceiling = summary["between_chain"]
    rows["between chains"] = {
        title: ceiling[key] for key, title in LIKENESS.items() if key in ceiling
    }
    tables = [Table("Methods", rows, published, papers.convergence(summary))]
    shifts = methods[REFERENCE].get("shift", {})
    for measure in ("accuracy", "nll") if shifts else ():
        heading = QUALITY[measure]
        shifted = {
            shift: {
                f"{heading}, {name}": found["shift"][shift]["mean"][measure]
                for name, found in methods.items()
                if shift in found.get("shift", {})
            }
            for shift in shifts
        }
        note = "The mean over the severities."
        tables.append(Table(f"Corruption: {heading}", shifted, note=note))
    return tables


def swept(
    title: str,
    runs: Mapping[str, str],
    points: Mapping[str, Point],
    published: Mapping[str, Mapping[str, float]],
) -> Table:
    """Accuracy, NLL, ECE and R-hat of every run of a part.

    Args:
        title: Of the table.
        runs: By their names what their rows are called, in order.
        points: What they scored, by their names.
        published: Rows.
    """
    rows = {
        label: {to: points[name].scores[key] for key, to in QUALITY.items()}
        | {"R-hat": points[name].rhat}
        for name, label in runs.items()
        if name in points
    }
    note = (
        "R-hat: that of 99 % of the predictions is at most this. Above "
        f"{sweep_scores.CONVERGED:g} the numbers are the chains', not the posterior's."
    )
    return Table(title, rows, published, note)


def score(path: Path) -> Point | None:
    """How a run of HMC predicts the test points."""
    kept = store.open(path)
    command: Any = records.rebuild_command(kept)
    return sweep_scores.score(command, kept)


def picture(points: Sequence[Point]) -> Any:
    """Scores against temperature and prior variance, each chain a dot."""
    metrics = list(points[0].scores)
    return plots.sweep(
        [point.temperature for point in points],
        [point.prior_variance for point in points],
        {m: [point.scores[m] for point in points] for m in metrics},
        {m: [point.chain_scores[m] for point in points] for m in metrics},
        [bool(point.is_converged) for point in points],
    )
