"""Scores, convergence and tables of `izmailov2021_uci.py`."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from izmailov2021_uci_problem import WIDTH, Problem, each_split, predict
from rich.console import Console
from rich.table import Table

from symjax import densities, evaluation, store
from symjax.cli import Command, posteriors, records
from symjax.data import Dataset


PUBLISHED = {
    ("concrete", "hmc"): (4.46, -2.67),
    ("yacht", "hmc"): (0.66, 0.54),
    ("boston", "hmc"): (3.69, -2.39),
    ("energy", "hmc"): (0.37, -1.09),
    ("naval", "hmc"): (1e-4, 9.6),
}
"""RMSE and log likelihood of Izmailov et al. (2021), that of a Gaussian."""

SCORES = ("rmse", "log_likelihood", "log_likelihood_gaussian")
METHODS = ("sgd", "ensemble", "sgld", "hmc")
NEAR = 50
"""Times the floor of the noise that a noise must be not to feel it."""

MADE_BY = "Split 0 of what scripts/izmailov2021_uci.py made of all splits at once."
"""What `symjax report` says of chains."""

THRESHOLDS = (1.01, 1.05, 1.1)


def of_draws(problem: Problem, draws: Any) -> dict[str, Any]:
    """Scores of every split, and R-hat and effective sample sizes over all splits.

    Function space is each test point's mean and log noise; its R-hats and those of the
    weights are pooled over the splits.

    Args:
        problem: What they are draws of.
        draws: Leaves `(split, chain, draw, ...)`.
    """
    rows, functions, weights = [], [], []
    for i, some in enumerate(each_split(draws)):
        mean, std = predict(problem, some, problem.datasets[i].test.x)
        rows.append(of_predictions(mean, std, problem.datasets[i]))
        functions.append(evaluation.summarise({"mean": mean, "noise": np.log(std)}))
        weights.append(evaluation.summarise(some))
    spaces = {"functions": functions, "weights": weights}
    pooled = {name: pool(found) for name, found in spaces.items()}
    return {"splits": rows, "convergence": pooled}


def of_predictions(
    mean: np.ndarray, std: np.ndarray, dataset: Dataset
) -> dict[str, float]:
    """Scores of one split, in the unit of the targets.

    Args:
        mean: Of every draw, of normalised targets, `(chain, draw, example, 1)`.
        std: Of the noise, the same.
        dataset: The split.
    """
    unit, centre = np.asarray(dataset.target_std), np.asarray(dataset.target_mean)
    y = np.asarray(dataset.test.y) * unit + centre
    means, stds = mean * unit + centre, std * unit
    return {
        "rmse": evaluation.rmse(means, y),
        "log_likelihood": -evaluation.gaussian_mixture_nll(means, stds, y),
        "log_likelihood_gaussian": -evaluation.moment_matched_nll(means, stds, y),
        "least_noise": float(std.min()),
    }


def pool(found: list[evaluation.Convergence]) -> dict[str, Any] | None:
    """R-hat and effective sample sizes of all splits together; None if withheld."""
    rhats = [v.ravel() for one in found for v in (one.rhat or {}).values()]
    sizes = [v.ravel() for one in found for v in (one.ess_bulk or {}).values()]
    if not rhats or not sizes:
        return None
    rhat, size = np.concatenate(rhats), np.concatenate(sizes)
    return {
        "rhat_median": float(np.nanmedian(rhat)),
        "rhat_99": float(np.nanquantile(rhat, 0.99)),
        **{f"below_{t}": evaluation.share_below(rhat, t) for t in THRESHOLDS},
        "ess_median": float(np.nanmedian(size)),
        "ess_least": float(np.nanmin(size)),
        "constant": sum(one.num_constant for one in found),
    }


def summarise(result: dict[str, Any]) -> dict[str, tuple[float, float | None]]:
    """Mean over the splits of each score, and its standard error."""
    summary = {}
    for name in SCORES:
        values = np.array([row[name] for row in result["splits"]])
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
        summary[name] = (float(values.mean()), error and float(error))
    return summary


def keep_first(problem: Problem, out: Path, name: str, made: Any) -> None:
    """Make a run directory of split 0, as the command in `made.words` would.

    `symjax report` adds `SCALE_FLOOR` to the noise. Where the noise is near that, its
    numbers would be wrong, and there is none.

    Args:
        problem: What the draws are of.
        out: Folder of the data set.
        name: Of the method.
        made: Draws of all splits and their Info.
    """
    draws, info = jax.tree.map(lambda leaf: leaf[0], (made.draws, made.info))
    usual = float(np.median(predict(problem, draws, problem.datasets[0].test.x)[1]))
    if usual < NEAR * densities.SCALE_FLOOR:
        print(
            f"No run of {problem.name}'s {name} for symjax report, which adds "
            f"{densities.SCALE_FLOOR} to the noise: its median is {usual:.2g}."
        )
        return
    command = _command(problem, made.words)
    built = posteriors.build(command.problem)
    num_chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    num_iterations = jax.tree.leaves(info)[0].shape[1]
    is_chain = made.words.startswith("sample")
    record = {"num_chains": num_chains, "num_draws": num_draws}
    record |= {"num_discarded": 0, "thinning": 1}
    path = out / "split-0" / name
    # What a call that was killed has left.
    shutil.rmtree(path, ignore_errors=True)
    kept = store.create(
        path,
        config=records.describe(command, built)
        | {"run": record}
        | _not_in_options(made, num_chains),
        params=built.shapes,
        info=jax.tree.map(lambda leaf: leaf[0, 0], info),
        num_chains=num_chains,
        num_draws=num_draws,
        num_iterations=num_iterations,
        kept=range(num_draws) if is_chain else None,
    )
    kept.append(draws, 0, info, 0)
    state = {"num_draws": np.array(num_draws)}
    kept.commit(state, iteration=num_iterations, num_draws=num_draws, finished=True)


def _command(problem: Problem, words: str) -> Any:
    """What `words` say, of the first split."""
    scale = problem.log_posterior.prior.rules[0][1].scale
    words = (
        f"{words} {problem.words} --widths {WIDTH} --activation relu "
        f"--noise heteroscedastic --prior-scale {float(scale)!r}"
    )
    return tyro.cli(Command, args=shlex.split(words))


def _not_in_options(made: Any, num_chains: int) -> dict[str, Any]:
    """What the command has no option for, as only this program does it."""
    # Of the draws that are kept alone it would be too few.
    gradients = {"gradients": made.told["gradients_a_chain"] * num_chains}
    if not made.remark:
        return gradients
    return gradients | {"remark": f"{MADE_BY} {made.remark}"}


def write_tables(out: Path) -> None:
    """Print the table of all results in a folder; write table.md and results.json.

    R-hat is in function space: the share below 1.05 and the 99 % quantile; ESS is the
    median effective sample size there, of all chains of a split.
    """
    note = (
        "± is the standard error over the splits. The log likelihood is that of the "
        "mixture of the draws; of a Gaussian: with its mean and variance, as theirs. "
        "R-hat is that of the predictions: the share of them below 1.05, and what 99 % "
        "of them are below. ESS is their median, of all chains of a split. Seconds are "
        "of all splits together, in the call that finished them; sgd is a member of "
        "the ensemble, and has its seconds."
    )
    table = Table(title="Test sets, mean and standard error over splits")
    header = (
        *("data", "method", "splits", "RMSE", "theirs", "log likelihood"),
        *("of a Gaussian", "theirs", "R-hat < 1.05", "99 %", "ESS", "seconds"),
    )
    for name in header:
        table.add_column(name)
    lines, results = [], []
    for data in sorted({path.parent.name for path in out.glob("*/*.json")}):
        for method in METHODS:
            path = out / data / f"{method}.json"
            if path.exists():
                result = json.loads(path.read_text())
                summary = summarise(result)
                results.append({"data": data, "method": method, **summary, **result})
                lines.append(_cells(data, method, result, summary))
                table.add_row(*lines[-1])
    console = Console(width=140)
    console.print(table)
    console.print(note, highlight=False)
    text = [" | ".join(header), " | ".join("---" for _ in header)]
    text += [" | ".join(line) for line in lines]
    body = "".join(f"| {line} |\n" for line in text)
    store.write_text(out / "table.md", f"{body}\n{note}\n")
    store.write_json(out / "results.json", {"results": results})


def _cells(data: str, method: str, result: Any, summary: Any) -> list[str]:
    theirs = PUBLISHED.get((data, method), (None, None))
    functions = result["convergence"]["functions"]
    below = functions and functions["below_1.05"]
    number = lambda value: "" if value is None else f"{value:.3g}"
    cells = {}
    for name, (mean, error) in summary.items():
        cells[name] = number(mean) + (f" ± {error:.1g}" if error else "")
    return [
        data,
        method,
        str(len(result["splits"])),
        cells["rmse"],
        number(theirs[0]),
        cells["log_likelihood"],
        cells["log_likelihood_gaussian"],
        number(theirs[1]),
        "" if below is None else f"{100 * below:.1f} %",
        number(functions and functions["rhat_99"]),
        number(functions and functions["ess_median"]),
        f"{result['seconds']:.0f}",
    ]
