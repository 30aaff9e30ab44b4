"""The compact posterior of Xiao, Liu and Bamler (2023), their Table 1, on MNIST.

A 784-512-10 relu network with a standard normal prior on every weight: full-batch HMC,
a deep ensemble and mean-field VI; Gaussians fitted to HMC's draws and to the ensemble's
members as they are (q_d) and after alignment (q_r) with where HMC's first chain was at
the end of its warm-up, or of the ensemble with its first member, as in the paper. All
is compared with the predictions of HMC's draws, beside the published numbers.

    python scripts/xiao2023_compact.py --scale small --out runs/xiao2023

| scale | posterior | time |
|---|---|---|
| tiny | 300 digits, a network 64-8-10 | seconds |
| small | 1,000 images, a network 784-64-10 | minutes on two cores |
| paper | 60,000 images, a network 784-512-10 | hours of a GPU |

Expected, agreement and total variation with HMC's draws: q_d of HMC 0.121 / 0.864, q_r
0.825 / 0.657; of the ensemble 0.524 / 0.721 and 0.987 / 0.050; mean-field VI 0.989 /
0.024. At the smaller scales the numbers are others; what is to be seen again is that
alignment brings the Gaussian nearer to HMC's predictions.

Needs mnist.npz in the folder that SYMJAX_DATA names, but for tiny. A second call goes
on where the first one stopped, and adds draws of HMC for another `--minutes`, up to
those of the scale.

Every stage is a run directory under `--out`; so are, in the folder gaussians, the draws
of every Gaussian of the table (paper: 4 GB in all), made anew by each call. `symjax
report` and `symjax evaluate` read them all:

    cd runs/xiao2023; symjax report hmc ensemble mfvi gaussians/hmc-q_r-by-activations

The trajectories of HMC are as long as the paper's; their step size is adapted. Pixels
lie in [0, 1] as in the paper (`--pixels unit`): a pixel that is blank in all training
images is then exactly 0, and its weights keep the prior.
"""

import json
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
import papers
import tyro
import xiao2023_evaluation
import xiao2023_runs
from xiao2023_problem import DATA, build

from symjax import run, store, symmetry
from symjax.approximations import ensemble, gaussian, mfvi
from symjax.cli import fitting, methods, records


@dataclass(frozen=True)
class Options:
    """Reproduce Table 1 of Xiao, Liu and Bamler (2023)."""

    scale: Literal["tiny", "small", "paper"] = "small"
    """tiny: seconds, to try it; small: minutes of two cores; paper: their settings."""
    data: str | None = None
    """A data set of images, as `data.load` takes it. Default: mnist; of tiny, digits.
    """
    out: Path = Path("runs/xiao2023")
    """Folder of the runs, results.json, table.md and the figures."""
    minutes: float = 30.0
    """Time for HMC in this call; what is left of its draws is for the next one."""
    seed: int = 0
    """Of every stage, from 0 on."""


def main():
    options = tyro.cli(Options, description=__doc__)
    if not 0 <= options.minutes < float("inf"):
        raise SystemExit(f"`--minutes` must be at least 0, got {options.minutes}.")
    problem = build(options.data or DATA[options.scale], options.scale, options.seed)
    reproduce(problem, options.out, options.minutes)
    print(options.out.joinpath("table.md").read_text())


def reproduce(problem, out, minutes):
    """All stages, and results.json, table.md and the figures of what there is so far.

    Raises:
        SystemExit: if the time of HMC was over before there were two draws.
    """
    seconds = {}

    def timed(stage, function, *arguments):
        start = time.monotonic()
        result = function(*arguments)
        seconds[stage] = round(time.monotonic() - start, 1)
        print(f"{stage}: {seconds[stage]} s", flush=True)
        return result

    members = timed("ensemble", fit_ensemble, problem, out / "ensemble")
    vi = timed("mfvi", fit_mfvi, problem, out / "mfvi")
    draws = timed("hmc", sample_hmc, problem, out / "hmc", members, minutes)
    if draws.committed.num_draws < 2:
        raise SystemExit("HMC has no two draws yet: call again to go on.")
    runs = {("HMC", "none"): draws, ("ensemble", "none"): members}
    match = matchers(problem)
    for kind, how, to in (
        ("HMC", "activations", draws),
        ("ensemble", "activations", draws),
        ("HMC", "weights", draws),
        ("ensemble", "weights", draws),
        ("ensemble", "activations to a member", members),
    ):
        stage, by = f"{kind.lower()}-by-{how.replace(' ', '-')}", how.split()[0]
        asked = runs[kind, "none"], by, match[by], to
        runs[kind, how] = timed(
            stage, xiao2023_runs.align, problem, out / stage, *asked
        )
    results = timed("evaluation", xiao2023_evaluation.evaluate, problem, runs, vi, out)
    results["config"] = problem.config
    results["device"] = jax.devices()[0].device_kind
    results["seconds"] = seconds
    out.joinpath("results.json").write_text(json.dumps(results, indent=2))
    out.joinpath("table.md").write_text(xiao2023_evaluation.table(results["rows"]))


def fit(problem, path, number, build, command):
    """Fit an approximation or an ensemble of them, if it is not there.

    Returns:
        The run, and the last state of every member.
    """
    options = fitting.options_of(command)
    key, init_key = jax.random.split(jax.random.fold_in(problem.key, number))
    approximation = build(
        problem.log_posterior,
        optimiser=optax.adam(options.learning_rate),
        batch_size=options.batch_size,
    )
    starts = jax.vmap(problem.init)(jax.random.split(init_key, command.num_members))
    kept = xiao2023_runs.begin(problem, path, command, xiao2023_runs.CONSTANT)
    if isinstance(kept, run.NewRun) or not kept.committed.finished:
        start = time.monotonic()
        run.fit(
            key,
            approximation,
            starts,
            problem.train,
            num_steps=options.num_steps,
            num_draws=fitting.num_draws(command),
            store=kept,
        )
        records.add_seconds(path, start)
    init = jax.vmap(approximation.init, (None, 0, None))
    shapes = jax.eval_shape(init, key, starts, problem.train)
    return store.open(path), store.open(path).restore(shapes)


def fit_ensemble(problem, path):
    command = xiao2023_runs.ensemble_command(problem)
    return fit(problem, path, 0, ensemble.build, command)[0]


def fit_mfvi(problem, path):
    """The fitted Gaussian."""
    command = xiao2023_runs.mfvi_command(problem)
    build = partial(mfvi.build, noise=command.mfvi.noise)
    _, state = fit(problem, path, 1, build, command)
    mean, log_std = jax.tree.map(lambda leaf: leaf[0], state[:2])
    return gaussian.Gaussian(mean, jax.tree.map(jnp.exp, log_std))


def sample_hmc(problem, path, members, minutes):
    """Chains that start at members of the ensemble, each at its own.

    Raises:
        Stopped: if a signal asked for it that is not the end of the time.
    """
    command = xiao2023_runs.hmc_command(problem)
    remark = "The chains start at members of the ensemble."
    kept = xiao2023_runs.begin(problem, path, command, remark)
    if isinstance(kept, store.Run) and kept.committed.finished:
        return kept
    algorithm: Any = methods.build(command, problem.built)
    starts = members.read(chains=slice(command.num_chains), draws=[0])
    start = time.monotonic()
    with stop_after(minutes) as time_is_over:
        try:
            run.sample(
                jax.random.fold_in(problem.key, 2),
                algorithm,
                jax.tree.map(lambda leaf: leaf[:, 0], starts),
                problem.train,
                num_draws=command.num_draws,
                store=kept,
            )
        except run.Stopped as stopped:
            if not time_is_over():
                raise
            print(stopped)
        finally:
            if (path / "config.json").exists():
                records.add_seconds(path, start)
    return store.open(path)


@contextmanager
def stop_after(minutes):
    """Ask the run inside to save and stop, by the signal that it listens to.

    Yields:
        Whether it was asked, which a Ctrl-C or SIGTERM from elsewhere is not.
    """
    asked = []
    before = signal.getsignal(signal.SIGTERM)

    def ask(*_):
        # Its loop listens to one signal only, whoever sends it.
        if signal.getsignal(signal.SIGTERM) != before:
            asked.append(True)
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGALRM, ask)
    # Again and again, as it listens only while its loop is running, which may be short.
    signal.setitimer(signal.ITIMER_REAL, max(60 * minutes, 1e-3), 0.02)
    try:
        yield lambda: bool(asked)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def matchers(problem):
    x = jnp.asarray(problem.train.x)
    return {
        # As the paper does: the inner products of activations, on all examples.
        "activations": lambda params, reference: symmetry.match_activations(
            problem.apply,
            problem.spec,
            params,
            reference,
            x,
            centred=False,
            normalised=False,
            batch_size=10_000,
        ),
        "weights": partial(symmetry.match_weights, problem.spec),
    }


if __name__ == "__main__":
    papers.start(main)
