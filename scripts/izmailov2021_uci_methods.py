"""The methods of `izmailov2021_uci.py`, each of them for all splits in one program."""

from pathlib import Path
from typing import Any, NamedTuple

import izmailov2021_uci_problem as problems
import jax
import numpy as np
import optax
from izmailov2021_uci_problem import Problem, by_split, each_split, on_splits, place

from symjax import evaluation, mesh, run, store
from symjax.approximations import ensemble
from symjax.run import NonFiniteError
from symjax.samplers import hmc, sgld
from symjax.types import Data


BATCH_SIZE = 100
SGLD_DRAWS = 100
ACCEPTANCE = 0.9
"""The stiffness varies over the posterior with the noise: at 0.8 proposals diverge."""

LEARNING_RATE = 1e-2
"""Of Adam, falling to 0 as a cosine."""


class Setting(NamedTuple):
    """What is a data set's own.

    Attributes:
        prior_variance: Of every weight and bias.
        step_size: Of HMC's first leapfrog.
        num_leapfrogs: Of a trajectory.
        num_warmup: Iterations of HMC that adapt.
        num_draws: Of each chain of HMC.
    """

    prior_variance: float
    step_size: float
    num_leapfrogs: int
    num_warmup: int
    num_draws: int


class Scale(NamedTuple):
    """How large the experiment is.

    Attributes:
        num_splits: The first so many.
        num_chains: Of HMC and SGLD on every split.
        leapfrogs: Share of the setting's leapfrogs.
        iterations: Share of its warm-up and draws.
        num_members: Of the deep ensemble.
        steps: Numbers of SGD's steps to choose from.
        step_sizes: Of SGLD, to choose from.
        sgld_steps: Of each of its chains, the first fifth not kept.
    """

    num_splits: int
    num_chains: int
    leapfrogs: float
    iterations: float
    num_members: int
    steps: tuple[int, ...]
    step_sizes: tuple[float, ...]
    sgld_steps: int


class Task(NamedTuple):
    """A data set with all decisions made.

    Attributes:
        problem: The posteriors.
        scale: How large.
        setting: The data set's own.
        key: Of everything that is random.
        config: All decisions, of JSON values.
        out: Folder of the results.
        runs: Folder of HMC's run directory.
        minutes: Time for HMC; None for no end.
    """

    problem: Problem
    scale: Scale
    setting: Setting
    key: Any
    config: dict[str, Any]
    out: Path
    runs: Path
    minutes: float | None


class Made(NamedTuple):
    """Draws of all splits, and what is told of them.

    Attributes:
        draws: Params, leaves `(split, chain, draw, ...)`.
        info: Info of the draws, or of the steps to them, fields `(split, chain, ...)`.
        told: For the results: numbers, by name.
        words: Of the command that would make the same kind of run of one split.
    """

    draws: Any
    info: Any
    told: dict[str, Any]
    words: str


class Held(NamedTuple):
    """Training examples without a tenth of them, and that tenth: `(split, ...)`."""

    train: Data
    x: Any
    y: Any


def fit_ensemble(task: Task) -> Made:
    """Members, and how many steps were best for examples held out."""
    problem, held = task.problem, hold_out(task.problem)
    tried = {
        n: judge(problem, held, _fit(task, 1, held.train, n)) for n in task.scale.steps
    }
    num_steps = max(tried, key=lambda n: tried[n])
    result = _fit(task, task.scale.num_members, problem.train, num_steps)
    words = (
        f"fit --method ensemble --num-members {task.scale.num_members} "
        f"--ensemble.num-steps {num_steps}"
    )
    told = {"held_out": _named(tried), "num_steps": num_steps}
    draws, info = by_split((result.draws, result.info), problem.num_splits)
    return Made(draws, info, told, words)


def sample_sgld(task: Task) -> Made:
    """Chains with the step size that was best for examples held out.

    Raises:
        SystemExit: if chains run away at every step size.
    """
    problem, scale = task.problem, task.scale
    held, count = hold_out(problem), problem.num_splits
    tried = {
        e: judge(problem, held, _run_sgld(task, 1, held.train, e))
        for e in scale.step_sizes
    }
    step_size = max(tried, key=lambda e: tried[e])
    result = _run_sgld(task, scale.num_chains, problem.train, step_size)
    if result is None:
        raise SystemExit(f"{problem.name}: SGLD's chains ran away, with {tried}.")
    thinning = _thinning(scale)
    last = slice(-thinning * SGLD_DRAWS + thinning - 1, None, thinning)
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[:, last], result.info)
    words = (
        f"sample --sampler sgld --num-chains {scale.num_chains} --num-draws "
        f"{SGLD_DRAWS} --thinning {thinning} --sgld.step-size {step_size} "
        "--no-bias-check"
    )
    told = {"held_out": _named(tried), "step_size": step_size}
    return Made(by_split(result.draws, count), by_split(info, count), told, words)


def sample_hmc(task: Task) -> Made:
    """Chains of HMC, in a run directory that goes on where it was stopped."""
    setting, count = task.setting, task.problem.num_splits
    num_chains, num_warmup = task.scale.num_chains, setting.num_warmup
    algorithm = hmc.build(
        task.problem.log_posterior,
        step_size=setting.step_size,
        num_steps=setting.num_leapfrogs,
        num_warmup=num_warmup,
        target_acceptance=ACCEPTANCE,
    )
    path, first = task.runs / "hmc", _starts(task, num_chains)
    has_begun = (path / "config.json").exists()
    result = run.sample(
        jax.random.fold_in(task.key, 3),
        on_splits(algorithm),
        first,
        task.problem.train,
        num_draws=setting.num_draws,
        max_seconds=task.minutes and 60 * task.minutes,
        mesh=_mesh(first),
        store=store.open(path) if has_begun else run.NewRun(path, task.config),
    )
    draws = store.open(path).read()
    num_draws = jax.tree.leaves(draws)[0].shape[1]
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[:, num_warmup:], result.info)
    told = {
        "num_draws": num_draws,
        "gradients_a_chain": (num_warmup + num_draws) * setting.num_leapfrogs,
        "acceptance": float(info.acceptance_rate.mean()),
        "divergent": float(info.is_divergent.mean()),
        "step_size": float(np.exp(np.log(info.step_size[:, -1]).mean())),
        "messages": list(result.messages),
    }
    words = (
        f"sample --sampler hmc --num-chains {num_chains} --num-draws {num_draws} "
        f"--start init --hmc.step-size {setting.step_size} --hmc.num-steps "
        f"{setting.num_leapfrogs} --hmc.num-warmup {num_warmup} "
        f"--hmc.target-acceptance {ACCEPTANCE}"
    )
    return Made(by_split(draws, count), by_split(info, count), told, words)


def hold_out(problem: Problem) -> Held:
    """A tenth of the training examples of each split, taken at random."""
    x, y, mask = problem.train
    random, size = np.random.default_rng(0), mask.shape[1]
    order = random.permuted(np.tile(np.arange(size), (len(mask), 1)), axis=1)[..., None]
    x, y = (np.take_along_axis(leaf, order, axis=1) for leaf in (x, y))
    cut = size // 10
    train = Data(x[:, cut:], y[:, cut:], mask[:, cut:])
    return Held(train, x[:, :cut], y[:, :cut])


def judge(problem: Problem, held: Held, result: run.Result | None) -> float:
    """Mean log density of the examples held out, in nats; of no result the least."""
    if result is None:
        return -np.inf
    values = []
    for i, draws in enumerate(each_split(by_split(result.draws, len(held.x)))):
        mean, std = problems.predict(problem, draws, held.x[i])
        values.append(-evaluation.gaussian_mixture_nll(mean, std, held.y[i]))
    return float(np.mean(values))


def _starts(task: Task, num_chains: int) -> Any:
    """Networks as the model initialises them, each of its own key."""
    shape = (task.problem.num_splits, num_chains)
    keys = jax.random.split(jax.random.fold_in(task.key, 0), shape)
    return place(jax.vmap(jax.vmap(task.problem.init))(keys))


def _mesh(first: Any) -> Any:
    """A mesh that leaves the examples of each chain whole."""
    num_chains = len(first["split"])
    count = np.gcd(num_chains, len(jax.devices())).item()
    return mesh.make_mesh(num_chains, jax.devices()[:count])


def _fit(task: Task, num_members: int, train: Data, num_steps: int) -> run.Result:
    """Members of an ensemble on every split."""
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, num_steps)
    approximation = ensemble.build(
        task.problem.log_posterior,
        optimiser=optax.adam(schedule),
        batch_size=BATCH_SIZE,
    )
    first = _starts(task, num_members)
    return run.fit(
        jax.random.fold_in(task.key, 1),
        on_splits(approximation),
        first,
        train,
        num_steps=num_steps,
        mesh=_mesh(first),
    )


def _run_sgld(
    task: Task, num_chains: int, train: Data, step_size: float
) -> run.Result | None:
    """Chains of SGLD on every split; None where one of them ran away."""
    thinning = _thinning(task.scale)
    algorithm = sgld.build(
        task.problem.log_posterior,
        step_size=step_size,
        batch_size=BATCH_SIZE,
        num_warmup=task.scale.sgld_steps // 5,
    )
    first = _starts(task, num_chains)
    try:
        return run.sample(
            jax.random.fold_in(task.key, 2),
            on_splits(algorithm),
            first,
            train,
            num_draws=SGLD_DRAWS,
            thinning=thinning,
            mesh=_mesh(first),
        )
    except NonFiniteError:
        return None


def _thinning(scale: Scale) -> int:
    """Steps of SGLD for each draw."""
    return 4 * scale.sgld_steps // 5 // SGLD_DRAWS


def _named(tried: dict[Any, float]) -> dict[str, float | None]:
    """For the results; None where chains ran away."""
    return {f"{k:g}": v if np.isfinite(v) else None for k, v in tried.items()}
