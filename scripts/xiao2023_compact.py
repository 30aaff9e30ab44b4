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

Needs mnist.npz in the folder that SYMJAX_DATA names, but for tiny. Every stage is a run
directory under `--out`. A second call goes on where the first one stopped, and adds
draws of HMC for another `--minutes`, up to those of the scale.

The trajectories of HMC are as long as the paper's; their step size is adapted. Pixels
are scaled to [0, 1] as in the paper, not normalised as `data.load` does: a pixel that
is blank in all training images is then exactly 0, and its weights keep the prior.
"""

import json
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import papers
import tyro
import xiao2023_evaluation
from xiao2023_problem import BATCH_SIZE, DATA, LEARNING_RATE, build

from symjax import run, store, symmetry, trees
from symjax.approximations import ensemble, gaussian, mfvi
from symjax.samplers import hmc


TRAJECTORY = 0.5
"""The paper's step size times its number of leapfrogs."""


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
    reference = jax.tree.map(lambda leaf: leaf[0], draws.warmup())
    first = jax.tree.map(lambda leaf: leaf[0, 0], members.read(chains=[0]))
    match = matchers(problem)
    for kind, how, target in (
        ("HMC", "activations", reference),
        ("ensemble", "activations", reference),
        ("HMC", "weights", reference),
        ("ensemble", "weights", reference),
        ("ensemble", "activations to a member", first),
    ):
        stage = f"{kind.lower()}-by-{how.replace(' ', '-')}"
        source, by = runs[kind, "none"], match[how.split()[0]]
        runs[kind, how] = timed(stage, align, problem, out / stage, source, by, target)
    results = timed("evaluation", xiao2023_evaluation.evaluate, problem, runs, vi, out)
    results["config"] = problem.config
    results["device"] = jax.devices()[0].device_kind
    results["seconds"] = seconds
    out.joinpath("results.json").write_text(json.dumps(results, indent=2))
    out.joinpath("table.md").write_text(xiao2023_evaluation.table(results["rows"]))


def kept_at(path, config):
    """The run there, checked to be of this configuration, or a new one."""
    if not (path / "config.json").exists():
        return run.NewRun(path, config)
    found = store.open(path)
    found.check_config(found.config | config)
    return found


def fit(problem, path, number, build, num_members):
    """Fit an approximation or an ensemble of them, if it is not there.

    Returns:
        The run, and the last state of every member.
    """
    scale = problem.scale
    key, init_key = jax.random.split(jax.random.fold_in(problem.key, number))
    approximation = build(
        problem.log_posterior,
        optimiser=optax.adam(LEARNING_RATE),
        batch_size=BATCH_SIZE,
    )
    starts = jax.vmap(problem.init)(jax.random.split(init_key, num_members))
    kept = kept_at(path, problem.config)
    if isinstance(kept, run.NewRun) or not kept.committed.finished:
        run.fit(
            key,
            approximation,
            starts,
            problem.train,
            num_steps=scale.num_epochs * max(1, scale.num_train // BATCH_SIZE),
            store=kept,
        )
    init = jax.vmap(approximation.init, (None, 0, None))
    shapes = jax.eval_shape(init, key, starts, problem.train)
    return store.open(path), store.open(path).restore(shapes)


def fit_ensemble(problem, path):
    members, _ = fit(problem, path, 0, ensemble.build, problem.scale.num_members)
    return members


def fit_mfvi(problem, path):
    """The fitted Gaussian."""
    # As Bayes by backprop does it, whose draw all examples of a step share.
    build = partial(mfvi.build, noise="shared")
    _, state = fit(problem, path, 1, build, 1)
    mean, log_std = jax.tree.map(lambda leaf: leaf[0], state[:2])
    return gaussian.Gaussian(mean, jax.tree.map(jnp.exp, log_std))


def sample_hmc(problem, path, members, minutes):
    """Chains that start at members of the ensemble, each at its own."""
    scale = problem.scale
    starts = members.read(chains=slice(scale.num_chains), draws=[0])
    algorithm = hmc.build(
        problem.log_posterior,
        step_size=scale.step_size,
        trajectory_length=TRAJECTORY,
        num_warmup=scale.num_warmup,
    )
    with stop_after(minutes):
        try:
            run.sample(
                jax.random.fold_in(problem.key, 2),
                algorithm,
                jax.tree.map(lambda leaf: leaf[:, 0], starts),
                problem.train,
                num_draws=scale.num_draws,
                store=kept_at(path, problem.config),
            )
        except run.Stopped as stopped:
            print(stopped)
    return store.open(path)


@contextmanager
def stop_after(minutes):
    """Ask the run inside to save and stop, by the signal that it listens to."""

    def ask(*_):
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, ask)
    # Every second again, as it listens only while its loop is running.
    signal.setitimer(signal.ITIMER_REAL, max(60 * minutes, 1e-3), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, before)


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


def align(problem, path, source, match, reference):
    """The draws of a run moved next to a reference, in a run of their own."""
    kept = kept_at(path, problem.config)
    if isinstance(kept, run.NewRun):
        kept = store.create(
            path,
            config=problem.config,
            params=reference,
            info={"permutations": symmetry.identity(problem.spec).permutations},
            num_chains=source.num_chains,
            num_draws=source.num_draws,
            num_iterations=source.num_draws,
        )
    permute = jax.jit(
        jax.vmap(jax.vmap(lambda p, one: symmetry.permute(problem.spec, p, one)))
    )
    size = max(1, 2**28 // (source.num_chains * trees.num_bytes(reference)))
    total = source.committed.num_draws
    for start in range(kept.committed.num_draws, total, size):
        stop = min(start + size, total)
        draws = source.read(draws=slice(start, stop))
        permutations = match(draws, reference).permutations
        moved = jax.tree.map(np.asarray, permute(permutations, draws))
        kept.append(moved, start, {"permutations": permutations}, start)
        kept.commit(
            {"num_draws": np.array(stop)},
            iteration=stop,
            num_draws=stop,
            finished=stop == source.num_draws,
        )
    return kept


if __name__ == "__main__":
    papers.start(main)
