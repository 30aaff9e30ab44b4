"""The methods of `izmailov2021_uci.py`, each of them for all splits in one program."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import izmailov2021_uci_problem as problems
import jax
import numpy as np
import optax
from izmailov2021_uci_problem import Problem, by_split, each_split, on_splits, place

from symjax import evaluation, mesh, run
from symjax.approximations import ensemble
from symjax.run import NonFiniteError
from symjax.samplers import sgld
from symjax.types import Data


BATCH_SIZE = 100
SGLD_DRAWS = 100
LEARNING_RATE = 1e-2
"""Of Adam, falling to 0 as a cosine."""


class Lost(Exception):
    """Chains have run away, and there is nothing to average."""


class Setting(NamedTuple):
    """What is a data set's own.

    Attributes:
        prior_variance: Of every weight and bias.
        num_descending: Steps of Adam to where chains start.
        num_leapfrogs: Of a trajectory.
        num_warmup: Iterations of HMC that find the mass matrices, at the most.
        num_draws: Of each chain of HMC.
        thinning: Iterations of HMC for each draw.
    """

    prior_variance: float
    num_descending: int
    num_leapfrogs: int
    num_warmup: int
    num_draws: int
    thinning: int


class Scale(NamedTuple):
    """How large the experiment is.

    Attributes:
        num_splits: The first so many.
        num_chains: Of HMC and SGLD on every split.
        leapfrogs: Share of the setting's leapfrogs.
        iterations: Share of its descent, warm-up and draws.
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
        remark: What that command leaves unsaid; nothing if it says all.
    """

    draws: Any
    info: Any
    told: dict[str, Any]
    words: str
    remark: str = ""


class Held(NamedTuple):
    """Training examples without a tenth of them, and that tenth: `(split, ...)`."""

    train: Data
    x: Any
    y: Any


def fit_ensemble(task: Task) -> Made:
    """Members, and how many steps were best for examples held out."""
    problem, held = task.problem, hold_out(task.problem)
    tried = {
        n: judge(problem, held, fit(task, 1, held.train, n)) for n in task.scale.steps
    }
    num_steps = max(tried, key=lambda n: tried[n])
    result = fit(task, task.scale.num_members, problem.train, num_steps)
    words = (
        f"fit --method ensemble --num-members {task.scale.num_members} "
        f"--ensemble.num-steps {num_steps}"
    )
    told = {"held_out": _named(tried), "num_steps": num_steps}
    told["gradients_a_chain"] = num_steps * BATCH_SIZE / problem.train.mask.shape[1]
    draws, info = by_split((result.draws, result.info), problem.num_splits)
    return Made(draws, info, told, words)


def sample_sgld(task: Task) -> Made:
    """Chains with the step size that was best for examples held out.

    They start where a short descent has led. From networks as they are initialised the
    noise falls faster than the errors; one steep batch then throws a chain to where all
    its units are dead, and only the prior brings it back, over some
    prior variance / step size steps.

    Raises:
        Lost: if chains are lost at every step size.
    """
    problem, step_sizes = task.problem, task.scale.step_sizes
    held, count = hold_out(problem), problem.num_splits
    tried = dict.fromkeys(step_sizes, -np.inf)
    for size, result in _run_sgld(task, held.train, step_sizes):
        if result is not None and not count_lost(problem, held.train, result.draws):
            tried[size] = judge(problem, held, result)
    order = sorted((e for e in tried if np.isfinite(tried[e])), key=lambda e: -tried[e])
    lost = {}
    for step_size, result in _run_sgld(task, problem.train, order):
        if result is None:
            lost[step_size] = count * task.scale.num_chains
        else:
            lost[step_size] = count_lost(problem, problem.train, result.draws)
        if result is not None and not lost[step_size]:
            break
        print(f"SGLD lost {lost[step_size]} chains with step size {step_size:g}.")
    else:
        raise Lost(
            "SGLD lost chains at every step size, of all training examples or of those "
            f"without the held out: {', '.join(map(str, step_sizes))}."
        )
    thinning = _thinning(task.scale)
    last = slice(-thinning * SGLD_DRAWS + thinning - 1, None, thinning)
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[:, last], result.info)
    words = (
        f"sample --sampler sgld --num-chains {task.scale.num_chains} --num-draws "
        f"{SGLD_DRAWS} --thinning {thinning} --sgld.step-size {step_size} "
        "--no-bias-check"
    )
    told = {"held_out": _named(tried), "step_size": step_size, "lost": _named(lost)}
    num_steps = task.setting.num_descending + task.scale.sgld_steps
    told["gradients_a_chain"] = num_steps * BATCH_SIZE / problem.train.mask.shape[1]
    draws, info = by_split((result.draws, info), count)
    remark = "Its chains start where a short descent led."
    return Made(draws, info, told, words, remark)


def count_lost(problem: Problem, train: Data, draws: Any) -> int:
    """How many chains, leaves `(split * chain, draw, ...)`, have run away.

    A draw of such a chain says less of the examples that it was trained on than one
    Gaussian for all of their targets.
    """
    num_lost = 0
    for i, some in enumerate(each_split(by_split(draws, len(train.y)))):
        found = problems.predict(problem, some, train.x[i])
        mean, std = (array.astype(float) for array in found)
        logs = -(((train.y[i] - mean) / std) ** 2) / 2 - np.log(std)
        least = -1 / 2 - np.log(train.y[i].std())
        num_lost += int((logs.mean(axis=(2, 3)) < least).any(axis=1).sum())
    return num_lost


def hold_out(problem: Problem) -> Held:
    """A tenth of the training examples of each split, taken at random."""
    x, y, mask = problem.train
    random, size = np.random.default_rng(0), mask.shape[1]
    order = random.permuted(np.tile(np.arange(size), (len(mask), 1)), axis=1)[..., None]
    x, y = (np.take_along_axis(leaf, order, axis=1) for leaf in (x, y))
    cut = size // 10
    train = Data(x[:, cut:], y[:, cut:], mask[:, cut:])
    return Held(train, x[:, :cut], y[:, :cut])


def judge(problem: Problem, held: Held, result: run.Result) -> float:
    """Mean log density of the examples held out, in nats."""
    values = []
    for i, draws in enumerate(each_split(by_split(result.draws, len(held.x)))):
        mean, std = problems.predict(problem, draws, held.x[i])
        values.append(-evaluation.gaussian_mixture_nll(mean, std, held.y[i]))
    return float(np.mean(values))


def starts(task: Task, num_chains: int) -> Any:
    """Networks as the model initialises them, each of its own key."""
    shape = (task.problem.num_splits, num_chains)
    keys = jax.random.split(jax.random.fold_in(task.key, 0), shape)
    return place(jax.vmap(jax.vmap(task.problem.init))(keys))


def mesh_of(first: Any) -> Any:
    """A mesh that leaves the examples of each chain whole."""
    num_chains = len(first["split"])
    count = np.gcd(num_chains, len(jax.devices())).item()
    return mesh.make_mesh(num_chains, jax.devices()[:count])


def fit(task: Task, num_members: int, train: Data, num_steps: int) -> run.Result:
    """Members of an ensemble on every split."""
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, num_steps)
    approximation = ensemble.build(
        task.problem.log_posterior,
        optimiser=optax.adam(schedule),
        batch_size=BATCH_SIZE,
    )
    first = starts(task, num_members)
    return run.fit(
        jax.random.fold_in(task.key, 1),
        on_splits(approximation),
        first,
        train,
        num_steps=num_steps,
        mesh=mesh_of(first),
    )


def descend(task: Task, num_chains: int, train: Data) -> Any:
    """Starts of chains: where Adam leads."""
    draws = fit(task, num_chains, train, task.setting.num_descending).draws
    network = jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], draws)
    return starts(task, num_chains) | {"network": network}


def _run_sgld(
    task: Task, train: Data, step_sizes: Iterable[float]
) -> Iterator[tuple[float, run.Result | None]]:
    """Chains of SGLD on every split, by step size; None where one is not finite."""
    thinning, first = _thinning(task.scale), descend(task, task.scale.num_chains, train)
    for step_size in step_sizes:
        algorithm = sgld.build(
            task.problem.log_posterior,
            step_size=step_size,
            batch_size=BATCH_SIZE,
            num_warmup=task.scale.sgld_steps // 5,
        )
        try:
            result = run.sample(
                jax.random.fold_in(task.key, 2),
                on_splits(algorithm),
                first,
                train,
                num_draws=SGLD_DRAWS,
                thinning=thinning,
                mesh=mesh_of(first),
            )
        except NonFiniteError:
            result = None
        yield step_size, result


def _thinning(scale: Scale) -> int:
    """Steps of SGLD for each draw."""
    return 4 * scale.sgld_steps // 5 // SGLD_DRAWS


def _named(tried: dict[Any, float]) -> dict[str, float | None]:
    """For the results; None where chains ran away."""
    return {f"{k:g}": float(v) if np.isfinite(v) else None for k, v in tried.items()}
