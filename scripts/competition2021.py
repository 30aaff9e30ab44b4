r"""Files and scores of the 2021 competition on approximate inference.

Wilson et al. (2022), Evaluating approximate inference in Bayesian deep learning,
NeurIPS 2021 Competitions and Demonstrations Track: how close the predictions of a
method are to those of full-batch HMC. Classifications are scored by agreement and total
variation, the regression by minus the mean Wasserstein-1 distance of 1,000 predictive
samples a test point; each on the first rows (public) and on all of them (full).

    python scripts/competition2021.py score cifar10 mine.csv \
        --reference hmc_reference/izmailov2021_predictions.npz
    python scripts/competition2021.py write uci runs/energy --out submission.zip
    python scripts/competition2021.py score uci submission.zip \
        --reference uci_samples.csv

| task | file of a submission | rows x columns | public |
|---|---|---|---|
| cifar | cifar_probs.csv | 50,000 x 10 | 10,000 |
| medmnist | medmnist_probs.csv | 2,000 x 7 | 1,000 |
| retinopathy | retinopathy_probs.csv | x 2 (extended track) | |
| uci | uci_samples.csv | 256 x 1,000; the reference: 1,000 x 256 | 100 |
| cifar10 | cifar10_probs.csv (development phase) | 10,000 x 10 | |
| imdb | imdb_probs.csv (development phase) | 25,000 x 2 | |

A file is text without header as `numpy.savetxt` writes it; commas are read too, and
rows of few decimals scored as they are. Scoring takes seconds. A reference of HMC
scored against itself has agreement 1, total variation and distance 0; the deep ensemble
of Izmailov et al. has agreement 0.9152 and total variation 0.115 on CIFAR-10. Rows are
in the order of the competition's test sets: a run to be written must be of such data.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from symjax import evaluation, store
from symjax.cli import predicting, records
from symjax.evaluation import arguments


NUM_SAMPLES = 1000


class Task(NamedTuple):
    """One data set of the competition.

    Attributes:
        file: Of a submission.
        columns: Classes, or samples.
        rows: Of its test set; None where that is not said.
        public: First rows that the public score is of; None for no such score.
    """

    file: str
    columns: int
    rows: int | None = None
    public: int | None = None


TASKS = {
    "cifar": Task("cifar_probs.csv", 10, 50_000, 10_000),
    "medmnist": Task("medmnist_probs.csv", 7, 2000, 1000),
    "retinopathy": Task("retinopathy_probs.csv", 2),
    "uci": Task("uci_samples.csv", NUM_SAMPLES, 256, 100),
    "cifar10": Task("cifar10_probs.csv", 10, 10_000),
    "imdb": Task("imdb_probs.csv", 2, 25_000),
}

Name = Literal["cifar", "medmnist", "retinopathy", "uci", "cifar10", "imdb"]


@dataclass(frozen=True)
class Score:
    """Score predictions as the competition's evaluator does.

    Attributes:
        task: Which data set.
        predictions: A text file, a submission .zip, or, but for uci, an .npz: of the
            array with the task's name, or FILE.npz:NAME.
        reference: Predictions of HMC, likewise; for uci the text has a sample a row.
        json: Write the scores there too.
    """

    task: tyro.conf.Positional[Name]
    predictions: tyro.conf.Positional[str]
    reference: str
    json: Path | None = None


@dataclass(frozen=True)
class Write:
    """Write predictions as a file of a submission.

    Attributes:
        task: Which data set.
        source: A run directory of symjax, or a file of probabilities (for uci: of
            samples, a row a test point).
        out: A text file, or a .zip, to which it is added under its own name. Default:
            the task's file name.
        seed: Of the samples that are drawn from a run's predictive densities.
    """

    task: tyro.conf.Positional[Name]
    source: tyro.conf.Positional[str]
    out: Path | None = None
    seed: int = 0


def main():
    command = tyro.cli(
        Annotated[Score, tyro.conf.subcommand("score")]
        | Annotated[Write, tyro.conf.subcommand("write")],
        description=__doc__,
    )
    try:
        execute(command)
    except (OSError, ValueError, store.StoreError) as error:
        raise SystemExit(f"{error}") from None


def execute(command: Score | Write) -> None:
    task = TASKS[command.task]
    if isinstance(command, Write):
        if Path(command.source).is_dir():
            values = of_run(command.task, command.source, command.seed)
        else:
            values = read(command.task, command.source)
        write(task, values, command.out or Path(task.file))
        return
    predictions = read(command.task, command.predictions)
    reference = read(command.task, command.reference, transposed=True)
    warn_of_rows(task, predictions)
    found = scores(command.task, predictions, reference)
    table = Table(title=f"{command.task}: {command.predictions}")
    for name in ("", *next(iter(found.values()))):
        table.add_column(name)
    for part, values in found.items():
        table.add_row(part, *(f"{value:.6g}" for value in values.values()))
    Console().print(table)
    if command.json is not None:
        command.json.parent.mkdir(parents=True, exist_ok=True)
        store.write_json(command.json, found)


def scores(name: str, predictions: Any, reference: Any) -> dict[str, dict[str, float]]:
    """Public scores, where there were any, and full ones, of `(example, class)` each.

    Raises:
        ValueError: if they are not of the same examples and classes.
    """
    if predictions.shape != reference.shape:
        raise ValueError(
            "`predictions` and `reference` must be of one shape, got "
            f"{predictions.shape} and {reference.shape}."
        )
    public = TASKS[name].public
    parts = ({"public": public} if public else {}) | {"full": None}
    found = {}
    for part, stop in parts.items():
        one, two = predictions[:stop], reference[:stop]
        if name == "uci":
            distance = evaluation.wasserstein_per_point(one.T, two.T)
            found[part] = {"minus_wasserstein": 0.0 - float(distance.mean())}
        else:
            # As the evaluator has it: sums that printing left off 1 stay so.
            found[part] = {
                "agreement": float(np.mean(one.argmax(axis=1) == two.argmax(axis=1))),
                "total_variation": float(abs(one - two).sum(axis=1).mean() / 2),
            }
    return found


def read(name: str, path: str, *, transposed: bool = False) -> np.ndarray:
    """Probabilities `(example, class)`, or samples `(example, sample)`.

    Args:
        name: Of the task.
        path: Of a text file, a submission .zip, or, but for uci, an .npz.
        transposed: Whether a file of samples has a sample a row, as the reference has.

    Raises:
        ValueError: if there is no such file, or it holds something else.
    """
    task = TASKS[name]
    if name != "uci" and path.endswith(".npz") and zipfile.is_zipfile(path):
        with np.load(path, allow_pickle=False) as archive:
            path = f"{path}:{name}" if name in archive else path
    if name != "uci" and not path.endswith(".zip"):
        values = store.read_probs(path).mean(axis=(0, 1))
    else:
        values = _numbers(task, path)
        values = values.T if transposed and name == "uci" else values
    if values.ndim != 2 or values.shape[1] != task.columns:
        of = "samples" if name == "uci" else "classes"
        raise ValueError(
            f"{path} must have rows of {task.columns} {of} for {name}, got the shape "
            f"{values.shape}."
        )
    if name == "uci":
        arguments.finite(values, path)
    elif path.endswith(".zip"):  # The others were looked at, draw by draw.
        store.require_probs(values, path)
    return values


def _numbers(task: Task, path: str) -> np.ndarray:
    """The numbers of a text file, or of the task's file in a submission.

    Raises:
        ValueError: if they can't be read.
    """
    try:
        if path.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                text = archive.read(task.file).decode()
        else:
            text = Path(path).read_text()
        if not text.strip():
            raise ValueError("it is empty.")
        return np.loadtxt(io.StringIO(text.replace(",", " ")), ndmin=2)
    except (OSError, KeyError, zipfile.BadZipFile, ValueError) as error:
        raise ValueError(f"{path} can't be read as {task.file}: {error}") from None


def of_run(name: str, path: str, seed: int) -> np.ndarray:
    """What a run predicts on the test examples of its data, in their order.

    Raises:
        ValueError: if the run is not of such a task.
    """
    kept = store.open(path)
    built = records.posterior_of(kept)
    if (built.read_outputs is not None) != (name == "uci"):
        raise ValueError(f"{path} is of a {built.dataset.task}, which {name} is not.")
    x = built.dataset.test.x
    outputs = predicting.outputs(kept, built, x, name=path, key="test")
    if built.read_outputs is None:
        if outputs.shape[-1] != TASKS[name].columns:
            raise ValueError(
                f"{path} has {outputs.shape[-1]} classes, where {name} has "
                f"{TASKS[name].columns}."
            )
        return np.asarray(jax.nn.softmax(outputs, axis=-1), float).mean(axis=(0, 1))
    dataset = built.dataset
    mean, std = (
        np.asarray(a, float)[..., 0].reshape(-1, len(x)) * dataset.target_std
        for a in built.read_outputs(outputs)
    )
    mean = mean + dataset.target_mean
    return draw(mean, std, seed)


def draw(mean: np.ndarray, std: np.ndarray, seed: int) -> np.ndarray:
    """Samples `(example, 1000)` of the mixture of the draws' Gaussians.

    Every draw gives as many as every other, up to one; each has noise of its own.

    Args:
        mean: Of every draw, `(draw, example)`.
        std: The same.
        seed: Of the noise.
    """
    chosen = np.arange(NUM_SAMPLES) * len(mean) // NUM_SAMPLES
    noise = np.random.default_rng(seed).standard_normal((NUM_SAMPLES, mean.shape[1]))
    return (mean[chosen] + std[chosen] * noise).T


def write(task: Task, values: np.ndarray, out: Path) -> None:
    """Write a file of a submission, as `numpy.savetxt` does.

    Raises:
        ValueError: if the .zip has such a file already.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix != ".zip":
        np.savetxt(out, values)
    else:
        text = io.StringIO()
        np.savetxt(text, values)
        with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
            if task.file in archive.namelist():
                raise ValueError(f"{out} holds {task.file} already: choose another.")
            archive.writestr(task.file, text.getvalue())
    print(f"{out}: {values.shape[0]:,} rows of {values.shape[1]:,}")
    warn_of_rows(task, values)


def warn_of_rows(task: Task, values: np.ndarray) -> None:
    """Say so where the competition's file has another number of rows."""
    if task.rows not in (None, len(values)):
        print(f"Warning: {task.file} of the competition has {task.rows:,} rows.")


if __name__ == "__main__":
    main()
