"""`symjax export RUN --bundle FILE`: a finished reference as one file for others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Integer

from symjax import evaluation, store, trees
from symjax.cli import describing, members, posteriors, predicting, records
from symjax.cli.options import Sample
from symjax.cli.posteriors import Posterior
from symjax.evaluation import Convergence
from symjax.store import Bundle, Run
from symjax.types import Params


DIAGNOSTICS = ("rhat", "classic_rhat", "ess_bulk", "ess_tail", "mcse_mean")


def export(path: Path, file: Path, num_draws: int | None = None) -> Bundle:
    """Write the bundle of a run.

    Args:
        path: The run directory, of `symjax sample`.
        file: To write, named .npz.
        num_draws: Draws of each chain to store, evenly spaced; all by default. The
            predictions and diagnostics are of all draws whatever is stored.

    Returns:
        What was written.

    Raises:
        ValueError: if the run is no reference, or has too few draws, chains or digits.
    """
    run = store.open(path)
    command = _command(run)
    built = records.posterior_of(run)
    rows = _chosen(run, num_draws)
    outputs = _outputs(run, built)
    values = _values(built, outputs)
    convergence = evaluation.summarise(values)
    if convergence.rhat is None or convergence.ess_bulk is None:
        raise ValueError(f"{run.path} is no reference. {convergence.withheld}")
    leaves = {name: _rounded(run, name, rows) for name in run.leaves}
    draws = _as_params(built, leaves)
    again = evaluation.predict(built.apply, draws, built.dataset.test.x)
    again = _values(built, again)
    recorded = run.info()["log_density"][:, run.kept_iterations][:, rows]
    changes = _largest_changes(built, draws, again - values[:, rows], recorded)
    about = {
        "name": run.path.name,
        "task": built.dataset.task,
        "posterior": describing.definition(command.problem, built),
        "draws": _about_draws(rows, values.shape[1], changes, recorded),
        "diagnostics": {
            "sentence": describing.sentence(convergence, built.dataset.task),
            "all_draws": describing.summary(convergence),
            "stored_draws": describing.summary(evaluation.summarise(again)),
        },
        "provenance": describing.provenance(run, command, built),
    }
    arrays = {
        **{f"draws/{name}".rstrip("/"): leaf for name, leaf in leaves.items()},
        "log_posterior": recorded.astype("<f4"),
        **_predictions(built, outputs),
        **_diagnostics(convergence),
    }
    store.write_bundle(file, about, arrays)
    return store.read_bundle(file)


def _about_draws(
    rows: Integer[np.ndarray, " draw"],
    num_draws: int,
    largest_change: dict[str, float],
    recorded: Float[np.ndarray, "chain draw"],
) -> dict[str, Any]:
    """Which draws are stored, and what rounding them changed."""
    return {
        "stored": len(rows),
        "of_the_run": num_draws,
        "rounded_to": "float16",
        "largest_change": largest_change,
        "std_of_log_posterior": float(recorded.std(dtype=float)),
    }


def _command(run: Run) -> Sample:
    """The command that made a reference.

    Raises:
        ValueError: if the run is none.
    """
    command = records.rebuild_command(run)
    if not isinstance(command, Sample) or "aligned" in run.config:
        raise ValueError(
            f"`run` must be draws of symjax sample as they were drawn, but {run.path} "
            "is fitted, aligned or imported: a bundle holds a reference."
        )
    if run.kept is None or "log_density" not in run.fields:
        raise ValueError(f"{run.path} did not log the log density of its draws.")
    return command


def _chosen(run: Run, num_draws: int | None) -> Integer[np.ndarray, " draw"]:
    """Which draws are stored: the last one of every so many.

    Raises:
        ValueError: if there are not as many.
    """
    kept = run.committed.num_draws
    if num_draws is not None and not 1 <= num_draws <= kept:
        raise ValueError(
            f"`--num-draws` must be from 1 to the {kept:,} draws that each chain of "
            f"{run.path} has, got {num_draws}."
        )
    every = kept // (num_draws or kept)
    return np.arange(every - 1, every * (num_draws or kept), every)


def _outputs(run: Run, built: Posterior) -> Float[np.ndarray, "chain draw example out"]:
    """Of the network at every draw, on the test set.

    Raises:
        ValueError: if some are not finite.
    """
    test = built.dataset.test.x
    outputs = predicting.outputs(run, built, test, name=run.path.name, key="test")
    if not np.isfinite(outputs).all():
        raise ValueError(
            f"{run.path} predicts infinities or NaN: it diverged and is no reference."
        )
    return outputs


def _values(built: Posterior, outputs: Any) -> Float[np.ndarray, "..."]:
    """What is judged of outputs: probabilities, or means in the units of the data."""
    if built.read_outputs is None:
        return evaluation.probs_by_draw(outputs)
    return np.asarray(members.as_method("", built, outputs, None).outputs)


def _rounded(
    run: Run, name: str, rows: Integer[np.ndarray, " draw"]
) -> Float[np.ndarray, "chain draw ..."]:
    """A leaf of the stored draws in float16.

    Raises:
        ValueError: if it has numbers beyond.
    """
    with np.errstate(over="ignore"):
        leaf = run.read_leaf(name, draws=rows.tolist()).astype("<f2")
    if not np.isfinite(leaf).all():
        raise ValueError(
            f"{run.path}: {name} must be finite and below 65,504 to be stored in "
            "float16, and is not in some draws."
        )
    return leaf


def _as_params(built: Posterior, leaves: Mapping[str, np.ndarray]) -> Params:
    structure = jax.tree.structure(built.shapes)
    wide = [leaves[path].astype(np.float32) for path in trees.paths(built.shapes)]
    return jax.tree.unflatten(structure, wide)


def _largest_changes(
    built: Posterior,
    draws: Params,
    of_predictions: Float[np.ndarray, "..."],
    recorded: Float[np.ndarray, "chain draw"],
) -> dict[str, float]:
    """What rounding the draws changed."""
    of_log_posterior = _log_posteriors(built, draws) - recorded
    return {
        "prediction": float(abs(of_predictions).max()),
        "log_posterior": float(abs(of_log_posterior).max()),
    }


def _log_posteriors(built: Posterior, draws: Params) -> Float[np.ndarray, "chain draw"]:
    """Of every draw, one after the other, in full float32."""

    @jax.jit
    def compute(draws: Params, data: Any) -> Any:
        one = lambda params: built.log_posterior(params, data)
        return jax.lax.map(lambda chain: jax.lax.map(one, chain), draws)

    with jax.default_matmul_precision("highest"):
        return np.asarray(compute(draws, built.dataset.train))


def _predictions(built: Posterior, outputs: Any) -> dict[str, np.ndarray]:
    """The arrays of all draws' predictions on the test set, and its targets."""
    targets = posteriors.test_targets(built.dataset)
    if built.dataset.task == "classification":
        found = evaluation.summarise_predictions(outputs)
        return {
            "predictions/probs": found.probs_by_chain.astype("<f4"),
            "predictions/mean_entropy": found.mean_entropy.astype("<f4"),
            "predictions/mean_logits": found.mean_logits.astype("<f4"),
            "predictions/votes": found.votes.astype("<i4"),
            "test/labels": targets.astype("<i4"),
        }
    made = members.as_method("", built, outputs, None)
    return {
        "predictions/mean": np.asarray(made.outputs, "<f4"),
        "predictions/std": np.asarray(made.std, "<f4"),
        "test/targets": targets.astype("<f8"),
    }


def _diagnostics(convergence: Convergence) -> dict[str, np.ndarray]:
    """The arrays of what was found of each prediction."""
    return {
        f"diagnostics/{name}": getattr(convergence, name)[""].astype("<f4")
        for name in DIAGNOSTICS
    }
