"""What a bundle says in words and options: of the posterior, the data and the run."""

from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symjax import densities, evaluation, trees
from symjax.cli import costs, records
from symjax.cli.options import Sample
from symjax.cli.posteriors import Posterior
from symjax.cli.problem import Problem
from symjax.data import Dataset
from symjax.evaluation import Convergence
from symjax.store import Run


RHAT, ENOUGH = 1.01, 0.99
"""A reference has R-hat below this for such a share of its predictions."""

NOT_OF_THE_POSTERIOR = ("micro_batch", "force_precision")
"""Options of a problem that change how it is computed, not what it is."""


def definition(problem: Problem, built: Posterior) -> dict[str, Any]:
    """The posterior: the options it is built from, and the same in words."""
    options = {
        name: value
        for name, value in without_folders(asdict(problem)).items()
        if name not in NOT_OF_THE_POSTERIOR
    }
    is_classification = built.dataset.task == "classification"
    return {
        "problem": options,
        "network": f"{problem.model} with {trees.size(built.shapes):,} parameters",
        "prior": f"{problem.prior}, scale {problem.prior_scale:g}: of every parameter, "
        "independently",
        "likelihood": (
            "categorical, of logits"
            if is_classification
            else f"normal, {_noise(problem.noise)}, of targets normalised as "
            "`data` says"
        ),
        "log_posterior": "(log prior + sum over training examples of the log "
        "likelihood) / temperature, in nats",
        "temperature": problem.temperature,
        "data": describe(built.dataset),
    }


def _noise(noise: str) -> str:
    """Of the standard deviation, how it comes from parameters."""
    if noise not in ("learned", "heteroscedastic"):
        return f"standard deviation {noise}"
    source = "the parameter `noise`" if noise == "learned" else "the last outputs"
    return f"standard deviation softplus({source}) + {densities.SCALE_FLOOR:g}"


def describe(dataset: Dataset) -> dict[str, Any]:
    """What a bundle says of data, in which no folder is named."""
    scales = {"target_mean": dataset.target_mean, "target_std": dataset.target_std}
    return {
        "name": _without_folder(dataset.name),
        "fingerprint": dataset.fingerprint,
        "num_train": int(dataset.train.mask.sum()),
        "num_test": len(dataset.test.x),
        "num_outputs": dataset.num_outputs,
        "input_shape": list(dataset.test.x.shape[1:]),
        **{k: np.asarray(v).tolist() for k, v in scales.items() if v is not None},
    }


def provenance(run: Run, command: Sample, built: Posterior) -> dict[str, Any]:
    """Where draws come from: the command, its settings, what the chains logged."""
    info, first = run.info(), run.num_discarded
    logged = {
        name: values[:, first:].mean(axis=1, dtype=float).tolist()
        for name, values in info.items()
        if name in ("acceptance_rate", "is_divergent", "step_size", "num_steps")
    }
    options = without_folders(records.describe_options(command))
    data = options["problem"]["data"]
    first_words = f"symjax sample --data {data} --model {command.problem.model}"
    others = [
        word
        for word in typed(command)
        if word.split()[0] not in ("--data", "--model", "--sampler")
    ]
    return {
        "command": " ".join([first_words, f"--sampler {command.sampler}", *others]),
        "seed": command.seed,
        "sampler": {"name": command.sampler, **options[command.sampler]},
        "num_chains": run.num_chains,
        "num_iterations": run.num_iterations,
        "num_discarded": first,
        "thinning": command.thinning,
        "means_by_chain": logged,
        "seconds": records.seconds(run.path) or None,
        "gradients": costs.full_gradients(run, command, built),
        **{key: run.config[key] for key in ("remark",) if key in run.config},
        "created": run.created,
        "versions": run.environment,
    }


def sentence(convergence: Convergence, task: str) -> str:
    """Whether the chains agree in what they predict, and how far."""
    share = evaluation.share_below(convergence.rhat, RHAT)
    assert convergence.rhat is not None
    values = convergence.rhat[""]
    values = values[~np.isnan(values)]
    if share is None:
        return "No prediction varies over the draws."
    kind = "probabilities" if task == "classification" else "predictive means"
    verdict = "converged" if share >= ENOUGH else "NOT converged"
    return (
        f"R-hat is below {RHAT} for {share:.2%} of {values.size:,} {kind} of the test "
        f"set (largest {values.max():.3f}): {verdict} by the rule of {ENOUGH:.0%}."
    )


def summary(convergence: Convergence) -> dict[str, Any]:
    """The diagnostics of all predictions in a few numbers."""
    of = {
        name: values[""][~np.isnan(values[""])]
        for name in ("rhat", "ess_bulk", "ess_tail", "mcse_mean")
        if (values := getattr(convergence, name)) is not None
    }
    known = {name: values for name, values in of.items() if values.size}
    quantiles = {"smallest": 0.0, "median": 0.5, "largest": 1.0}
    shares = {
        f"share_of_rhat_below_{level}": evaluation.share_below(convergence.rhat, level)
        for level in (1.01, 1.05)
    }
    return {
        "num_quantities": convergence.num_quantities,
        "num_judged": convergence.num_judged,
        "num_constant": convergence.num_constant,
        **shares,
        **{
            name: {of: float(np.quantile(v, q)) for of, q in quantiles.items()}
            for name, v in known.items()
        },
    }


def typed(command: Any, prefix: str = "") -> Iterator[str]:
    """The options of a command that are not what they are by default, as typed."""
    for field in fields(command):
        value = getattr(command, field.name)
        name = f"{prefix}{field.name.replace('_', '-')}"
        if is_dataclass(value):
            yield from typed(value, "" if field.name == "problem" else f"{name}.")
        elif value != field.default:
            if isinstance(value, bool):
                yield f"--{name}" if value else f"--{prefix}no-{name[len(prefix) :]}"
            elif isinstance(value, tuple):
                yield " ".join([f"--{name}", *map(str, value)])
            else:
                yield f"--{name} {value}"


def without_folders(options: dict[str, Any]) -> dict[str, Any]:
    """Options in which a file of data is named without its folder."""
    found = dict(options)
    if "problem" in found:
        found["problem"] = without_folders(found["problem"])
    if "data" in found:
        found["data"] = _without_folder(found["data"])
    return found


def _without_folder(name: str) -> str:
    return Path(name).name if name.endswith(".npz") else name
