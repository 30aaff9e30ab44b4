"""HMC on UCI regression beside other methods: Izmailov et al. (2021), their UCI table.

Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network posteriors
really like? One hidden layer of 50 relu units with outputs for the mean and the noise,
90 % of a data set to train on, the test error in the units of the targets, averaged
over 20 splits; here with three chains of HMC on every split, and their R-hat.

    python scripts/izmailov2021_uci.py --scale paper --minutes 4 --out runs/uci

Their HMC, RMSE / log likelihood: concrete 4.46 / -2.67, yacht 0.66 / 0.54, boston
3.69 / -2.39, energy 0.37 / -1.09, naval 1e-4 / 9.6. Their log likelihood is that of one
Gaussian with the moments of the mixture, and they average over accepted proposals only;
here every state counts, and both likelihoods are given.

All splits and chains of a data set are one program. Its cost is known beforehand:
(warm-up + draws) x leapfrogs gradients of all 60 chains, listed in `SETTINGS`; with
`--minutes` HMC ends there with the draws that it has. Results of a data set and a method
are written when they are finished, and a second call skips them. Of split 0 every
method also leaves a run directory for `symjax report`.

What differs from theirs: the noise is softplus + 1e-3 instead of softplus, HMC's step
sizes are adapted (acceptance 0.8) with as many leapfrogs as are affordable, and SGD's
and SGLD's lengths and step sizes are chosen by a held-out tenth of the training set.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import izmailov2021_uci_problem as problems
import izmailov2021_uci_scores as scores
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from izmailov2021_uci_problem import Problem, by_split, on_splits, place

from symjax import evaluation, mesh, run, store
from symjax.approximations import ensemble
from symjax.run import NonFiniteError, Stopped
from symjax.samplers import hmc, sgld


class Setting(NamedTuple):
    """What is a data set's own.

    Attributes:
        prior_variance: Of every weight and bias.
        step_size: Of HMC's first leapfrog.
        num_leapfrogs: Of a trajectory.
    """

    prior_variance: float
    step_size: float
    num_leapfrogs: int


SETTINGS = {
    "concrete": Setting(1 / 10, 5e-4, 1000),
    "yacht": Setting(1 / 10, 1e-4, 5000),
    "boston": Setting(1 / 10, 1e-3, 500),
    "energy": Setting(1 / 10, 2e-4, 3000),
    "naval": Setting(1 / 40, 3e-5, 1000),
    "diabetes": Setting(1 / 10, 1e-3, 100),
}


@dataclass(frozen=True)
class Scale:
    """How large the experiment is.

    Attributes:
        num_splits: The first so many.
        num_chains: Of HMC and SGLD on every split.
        num_warmup: Iterations of HMC that adapt.
        num_draws: Of each chain of HMC.
        leapfrogs: Share of the setting's leapfrogs.
        num_members: Of the deep ensemble.
        steps: Numbers of SGD's steps to choose from.
        step_sizes: Of SGLD, to choose from.
        sgld_steps: Of each of its chains, the first fifth not kept.
    """

    num_splits: int
    num_chains: int
    num_warmup: int
    num_draws: int
    leapfrogs: float
    num_members: int
    steps: tuple[int, ...]
    step_sizes: tuple[float, ...]
    sgld_steps: int


SCALES = {
    "tiny": Scale(2, 2, 20, 20, 0.1, 2, (50, 100), (1e-6, 1e-5), 500),
    "small": Scale(3, 3, 100, 100, 1.0, 5, (300, 1000), (1e-6, 1e-5), 10_000),
    "paper": Scale(
        20, 3, 200, 400, 1.0, 10, (300, 1000, 5000), (1e-7, 1e-6, 1e-5), 50_000
    ),
}

BATCH_SIZE = 100
SGLD_DRAWS = 100
LEARNING_RATE = 1e-2
"""Of Adam, falling to 0 as a cosine."""


@dataclass(frozen=True)
class Options:
    """Reproduce the UCI regressions of Izmailov et al. (2021).

    Attributes:
        scale: tiny: seconds, to try it; small: 3 splits, minutes to an hour on a CPU;
            paper: 20 splits, minutes a data set on one GPU.
        data: Of concrete, yacht, boston, energy and naval, in the folder SYMJAX_DATA;
            or diabetes, which needs no folder.
        splits: standard: the 20 of Hernandez-Lobato and Gal; reference: permutations
            by key 0, 1, 2 and so on, as the paper's code makes them.
        methods: Which; ensemble stands for SGD too.
        minutes: Time for HMC on each data set in this call; it ends with the draws
            that it has. Without, it makes all of them.
        leapfrogs: Of a trajectory, instead of the setting's.
        draws: Of each chain of HMC, instead of the scale's.
        warmup: Iterations of HMC that adapt, instead of the scale's.
        prior_variance: Instead of the setting's.
        out: Folder of the results.
        runs: Folder of HMC's run directories, up to 100 MB each. Default: as `out`.
        seed: Of everything that is random but the splits.
    """

    scale: Literal["tiny", "small", "paper"] = "small"
    data: tuple[str, ...] = ("boston", "concrete", "energy", "yacht", "naval")
    splits: Literal["standard", "reference"] = "standard"
    methods: tuple[Literal["ensemble", "sgld", "hmc"], ...] = (
        "ensemble",
        "sgld",
        "hmc",
    )
    minutes: float | None = None
    leapfrogs: int | None = None
    draws: int | None = None
    warmup: int | None = None
    prior_variance: float | None = None
    out: Path = Path("runs/izmailov2021_uci")
    runs: Path | None = None
    seed: int = 0


class Task(NamedTuple):
    """A data set with all decisions made, and the folder of its results."""

    problem: Problem
    scale: Scale
    setting: Setting
    key: Any
    config: dict[str, Any]
    out: Path
    runs: Path
    minutes: float | None


class Made(NamedTuple):
    """Draws of all splits, leaves `(split, chain, draw, ...)`, and what is told of them.

    Attributes:
        draws: Params.
        info: Info of the draws, or of the steps to them, fields `(split, chain, ...)`.
        told: For the results: numbers, by name.
        words: Of the command that would make the same kind of run of one split.
    """

    draws: Any
    info: Any
    told: dict[str, Any]
    words: str


def main():
    options = tyro.cli(Options)
    for name in options.data:
        task = prepare(name, options)
        for method in options.methods:
            reproduce(task, method)
        scores.write_tables(options.out)


def prepare(name: str, options: Options) -> Task:
    """Load a data set and put the decisions together.

    Raises:
        SystemExit: if the data set is not known or not there.
    """
    if name not in SETTINGS:
        raise SystemExit(f"`data` must be of {', '.join(SETTINGS)}, got {name}.")
    scale, setting = SCALES[options.scale], SETTINGS[name]
    leapfrogs = options.leapfrogs or round(scale.leapfrogs * setting.num_leapfrogs)
    setting = setting._replace(
        num_leapfrogs=leapfrogs,
        prior_variance=options.prior_variance or setting.prior_variance,
    )
    changes = {"num_draws": options.draws, "num_warmup": options.warmup}
    scale = Scale(**asdict(scale) | {k: v for k, v in changes.items() if v})
    kind = "reference" if name == "diabetes" else options.splits
    try:
        problem = problems.build(name, kind, scale.num_splits, setting.prior_variance)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    config = {
        "data": name,
        "splits": kind,
        "seed": options.seed,
        **asdict(scale),
        **setting._asdict(),
    }
    return Task(
        problem,
        scale,
        setting,
        jax.random.key(options.seed),
        json.loads(json.dumps(config)),
        options.out / name,
        (options.runs or options.out) / name,
        options.minutes,
    )


def reproduce(task: Task, method: str) -> None:
    """Make the results of a method, if they are not there.

    Raises:
        SystemExit: if they are there with other options, or time is up before a draw.
    """
    path = task.out / f"{method}.json"
    if path.exists():
        if json.loads(path.read_text())["config"] != task.config:
            raise SystemExit(f"{path} was made with other options: choose another out.")
        return
    print(f"{task.problem.name}: {method}", flush=True)
    start = time.monotonic()
    make = {"ensemble": fit_ensemble, "sgld": sample_sgld, "hmc": sample_hmc}[method]
    try:
        made = make(task)
    except Stopped as stopped:
        raise SystemExit(f"{stopped} Call again to go on.") from None
    seconds = time.monotonic() - start
    parts = {method: made}
    if method == "ensemble":
        first = jax.tree.map(lambda leaf: leaf[:, :1], (made.draws, made.info))
        words = made.words.replace(f"members {task.scale.num_members}", "members 1")
        parts = {"sgd": Made(*first, made.told, words), method: made}
    for name, part in parts.items():
        scores.keep_first(task.problem, task.out, name, part)
        result = {
            "config": task.config,
            "device": jax.devices()[0].device_kind,
            "seconds": seconds,
            **part.told,
            **scores.of_draws(task.problem, part.draws),
        }
        scores.write(task.out / f"{name}.json", result)


def starts(task: Task, num_chains: int) -> Any:
    """Networks as the model initialises them, each of its own key."""
    shape = (task.problem.num_splits, num_chains)
    keys = jax.random.split(jax.random.fold_in(task.key, 0), shape)
    return place(jax.vmap(jax.vmap(task.problem.init))(keys), task.problem.num_splits)


def devices_for(num_chains: int) -> Any:
    """A mesh that leaves each chain's examples whole."""
    count = np.gcd(num_chains, len(jax.devices())).item()
    return mesh.make_mesh(num_chains, jax.devices()[:count])


def fit(task: Task, num_members: int, train: Any, num_steps: int) -> run.Result:
    """Members of an ensemble on every split."""
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, num_steps)
    approximation = ensemble.build(
        task.problem.log_posterior, optimiser=optax.adam(schedule), batch_size=BATCH_SIZE
    )
    first = starts(task, num_members)
    return run.fit(
        jax.random.fold_in(task.key, 1),
        on_splits(approximation),
        first,
        train,
        num_steps=num_steps,
        mesh=devices_for(len(first["split"])),
    )


def fit_ensemble(task: Task) -> Made:
    """Members, and how many steps were best for examples held out."""
    held = hold_out(task)
    tried = {n: judge(task, held, fit(task, 1, held, n)) for n in task.scale.steps}
    num_steps = max(tried, key=lambda n: tried[n])
    result = fit(task, task.scale.num_members, task.problem.train, num_steps)
    words = (
        f"fit --method ensemble --num-members {task.scale.num_members} "
        f"--ensemble.num-steps {num_steps}"
    )
    told = {"held_out": tried, "num_steps": num_steps}
    made = by_split((result.draws, result.info), task.problem.num_splits)
    return Made(*made, told, words)


def run_sgld(
    task: Task, num_chains: int, train: Any, step_size: float
) -> run.Result | None:
    """Chains of SGLD on every split; None where one of them ran away."""
    kept = 4 * task.scale.sgld_steps // 5
    algorithm = sgld.build(
        task.problem.log_posterior,
        step_size=step_size,
        batch_size=BATCH_SIZE,
        num_warmup=task.scale.sgld_steps - kept,
    )
    first = starts(task, num_chains)
    try:
        return run.sample(
            jax.random.fold_in(task.key, 2),
            on_splits(algorithm),
            first,
            train,
            num_draws=SGLD_DRAWS,
            thinning=kept // SGLD_DRAWS,
            mesh=devices_for(len(first["split"])),
        )
    except NonFiniteError:
        return None


def sample_sgld(task: Task) -> Made:
    """Chains with the step size that was best for examples held out.

    Raises:
        SystemExit: if chains run away at every step size.
    """
    held, scale, count = hold_out(task), task.scale, task.problem.num_splits
    tried = {e: judge(task, held, run_sgld(task, 1, held, e)) for e in scale.step_sizes}
    step_size = max(tried, key=lambda e: tried[e])
    result = run_sgld(task, scale.num_chains, task.problem.train, step_size)
    if result is None:
        raise SystemExit(f"{task.problem.name}: SGLD's chains ran away, with {tried}.")
    thinning = 4 * scale.sgld_steps // 5 // SGLD_DRAWS
    last = slice(-thinning * SGLD_DRAWS + thinning - 1, None, thinning)
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[:, last], result.info)
    words = (
        f"sample --sampler sgld --num-chains {scale.num_chains} --num-draws {SGLD_DRAWS}"
        f" --thinning {thinning} --sgld.step-size {step_size} --no-bias-check"
    )
    told = {"held_out": tried, "step_size": step_size}
    return Made(by_split(result.draws, count), by_split(info, count), told, words)


def sample_hmc(task: Task) -> Made:
    """Chains of HMC, in a run directory that goes on where it was stopped."""
    scale, setting, count = task.scale, task.setting, task.problem.num_splits
    algorithm = hmc.build(
        task.problem.log_posterior,
        step_size=setting.step_size,
        num_steps=setting.num_leapfrogs,
        num_warmup=scale.num_warmup,
    )
    path, first = task.runs / "hmc", starts(task, scale.num_chains)
    has_begun = (path / "config.json").exists()
    result = run.sample(
        jax.random.fold_in(task.key, 3),
        on_splits(algorithm),
        first,
        task.problem.train,
        num_draws=scale.num_draws,
        max_seconds=task.minutes and 60 * task.minutes,
        mesh=devices_for(len(first["split"])),
        store=store.open(path) if has_begun else run.NewRun(path, task.config),
    )
    draws = store.open(path).read()
    made = jax.tree.leaves(draws)[0].shape[1]
    info = jax.tree.map(lambda a: np.asarray(a)[:, scale.num_warmup :], result.info)
    told = {
        "num_draws": made,
        "num_leapfrogs": setting.num_leapfrogs,
        "gradients_a_chain": (scale.num_warmup + made) * setting.num_leapfrogs,
        "acceptance": float(info.acceptance_rate.mean()),
        "divergent": float(info.is_divergent.mean()),
        "step_size": float(np.exp(np.log(info.step_size[:, -1]).mean())),
        "messages": list(result.messages),
    }
    words = (
        f"sample --sampler hmc --num-chains {scale.num_chains} --num-draws {made} "
        f"--start init --hmc.step-size {setting.step_size} --hmc.num-steps "
        f"{setting.num_leapfrogs} --hmc.num-warmup {scale.num_warmup}"
    )
    return Made(by_split(draws, count), by_split(info, count), told, words)


def hold_out(task: Task) -> Any:
    """The training examples with a tenth of them masked, at random, in each split."""
    x, y, mask = task.problem.train
    random = np.random.default_rng(0)
    order = random.permuted(np.tile(np.arange(mask.shape[1]), (len(mask), 1)), axis=1)
    return x, y, order >= mask.shape[1] // 10


def judge(task: Task, held: Any, result: run.Result | None) -> float:
    """Mean log density of what `held` masks, in nats; minus infinity of no result."""
    if result is None:
        return -np.inf
    x, y, mask = held
    values = []
    for i, draws in enumerate(scores.each_split(by_split(result.draws, len(mask)))):
        outputs = evaluation.predict(task.problem.apply, draws, x[i][~mask[i]])
        mean, std = map(np.asarray, problems.mean_and_std(jnp.asarray(outputs)))
        values.append(-evaluation.gaussian_mixture_nll(mean, std, y[i][~mask[i]]))
    return float(np.mean(values))


if __name__ == "__main__":
    main()
