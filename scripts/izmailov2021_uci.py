"""HMC on UCI regression beside other methods: Izmailov et al. (2021), their UCI table.

Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network posteriors
really like? One hidden layer of 50 relu units with outputs for the mean and the noise,
90 % of a data set to train on, the test error in the units of the targets, averaged
over 20 splits; here with three chains of HMC on every split, and their R-hat.

    python scripts/izmailov2021_uci.py --scale paper --minutes 4 --out runs/uci

Their HMC, RMSE / log likelihood: concrete 4.46 / -2.67, yacht 0.66 / 0.54, boston
3.69 / -2.39, energy 0.37 / -1.09, naval 1e-4 / 9.6. Their log likelihood is that of one
Gaussian with the moments of the mixture, and they average over accepted proposals only;
here every state counts, and both likelihoods are given. `--scale small --data boston`
takes minutes on two cores: HMC 2.33 / -2.24 on the first three standard splits, with an
R-hat below 1.05 for 77 % of the predictions.

All splits and chains of a data set are one program. Its cost is known beforehand:
(warm-up + draws) x leapfrogs gradients of all 60 chains, see `SETTINGS`: 0.6 million of
boston, 2.4 of concrete, 3 of energy, 3.6 of yacht, 0.5 of naval. With `--minutes` HMC
of a data set ends there with the draws that it has. Results of a method are written
when they are finished, and a second call skips them. Where the noise is far above its
floor in `symjax report`, a method also leaves a run directory of split 0.

What differs from theirs: HMC's step sizes are adapted (to an acceptance of 0.9) and its
leapfrogs are as many as are affordable; SGD is Adam; its length and SGLD's step size
are chosen by a tenth of the training examples, held out. The prior variances could not
be checked against their appendix.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import izmailov2021_uci_methods as methods
import izmailov2021_uci_problem as problems
import izmailov2021_uci_scores as scores
import jax
import tyro
from izmailov2021_uci_methods import Made, Scale, Setting, Task

from symjax.run import Stopped


SETTINGS = {
    "boston": Setting(1 / 10, 1e-3, 1000, 200, 400),
    "concrete": Setting(1 / 10, 2e-4, 8000, 100, 200),
    "energy": Setting(1 / 10, 1e-4, 10_000, 100, 200),
    "yacht": Setting(1 / 10, 5e-5, 20_000, 60, 120),
    "naval": Setting(1 / 40, 3e-5, 2000, 60, 200),
    "diabetes": Setting(1 / 10, 1e-3, 200, 200, 400),
}

SCALES = {
    "tiny": Scale(2, 2, 0.05, 0.05, 2, (50, 100), (1e-6, 1e-5), 500),
    "small": Scale(3, 3, 0.5, 0.5, 5, (300, 1000), (1e-6, 1e-5), 10_000),
    "paper": Scale(20, 3, 1.0, 1.0, 10, (300, 1000, 5000), (1e-7, 1e-6, 1e-5), 50_000),
}


@dataclass(frozen=True)
class Options:
    """Reproduce the UCI regressions of Izmailov et al. (2021).

    Attributes:
        scale: tiny: a minute, to try it; small: 3 splits, on a CPU with `--minutes`;
            paper: 20 splits, for a GPU.
        data: Of boston, concrete, energy, yacht and naval, in the folder SYMJAX_DATA;
            or diabetes, which needs no folder.
        splits: standard: the 20 of Hernandez-Lobato and Gal; reference: permutations
            by key 0, 1, 2 and so on, as the paper's code makes them.
        methods: Which; ensemble stands for SGD too.
        minutes: Time for HMC on each data set in this call; it ends with the draws
            that it has. Without, it makes all of them.
        num_splits: The first so many, instead of the scale's.
        num_leapfrogs: Of a trajectory, instead of the setting's and the scale's.
        num_warmup: Iterations of HMC that adapt, likewise.
        num_draws: Of each chain of HMC, likewise.
        prior_variance: Of every weight and bias, instead of the setting's.
        out: Folder of the results.
        runs: Folder of HMC's run directories, of up to 100 MB each. Default: as `out`.
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
    num_splits: int | None = None
    num_leapfrogs: int | None = None
    num_warmup: int | None = None
    num_draws: int | None = None
    prior_variance: float | None = None
    out: Path = Path("runs/izmailov2021_uci")
    runs: Path | None = None
    seed: int = 0


def main():
    options = tyro.cli(Options)
    stopped = []
    for name in options.data:
        task = prepare(name, options)
        for method in options.methods:
            try:
                reproduce(task, method)
            except Stopped as reason:
                stopped.append(f"{name}, {method}: {reason} Call again to go on.")
        scores.write_tables(options.out)
    if stopped:
        raise SystemExit("\n".join(stopped))


def prepare(name: str, options: Options) -> Task:
    """Load a data set and put the decisions together.

    Raises:
        SystemExit: if the data set is not known or not there.
    """
    if name not in SETTINGS:
        raise SystemExit(f"`data` must be of {', '.join(SETTINGS)}, got {name}.")
    scale, setting = SCALES[options.scale], SETTINGS[name]
    setting = setting._replace(
        prior_variance=options.prior_variance or setting.prior_variance,
        num_leapfrogs=options.num_leapfrogs
        or round(scale.leapfrogs * setting.num_leapfrogs),
        num_warmup=options.num_warmup or round(scale.iterations * setting.num_warmup),
        num_draws=options.num_draws or round(scale.iterations * setting.num_draws),
    )
    scale = scale._replace(num_splits=options.num_splits or scale.num_splits)
    kind = "reference" if name == "diabetes" else options.splits
    try:
        problem = problems.build(name, kind, scale.num_splits, setting.prior_variance)
    except ValueError as error:
        raise SystemExit(f"{error}") from None
    config = {"data": name, "splits": kind, "seed": options.seed}
    config |= scale._asdict() | setting._asdict()
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
        SystemExit: if they are there with other options.
    """
    path = task.out / f"{method}.json"
    if path.exists():
        if json.loads(path.read_text())["config"] != task.config:
            raise SystemExit(f"{path} was made with other options: choose another out.")
        return
    print(f"{task.problem.name}: {method}", flush=True)
    start = time.monotonic()
    make = {
        "ensemble": methods.fit_ensemble,
        "sgld": methods.sample_sgld,
        "hmc": methods.sample_hmc,
    }
    made = make[method](task)
    seconds = time.monotonic() - start
    parts = {method: made}
    if method == "ensemble":
        draws, info = jax.tree.map(lambda leaf: leaf[:, :1], made[:2])
        words = made.words.replace(f"members {task.scale.num_members}", "members 1")
        parts = {"sgd": Made(draws, info, made.told, words), method: made}
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


if __name__ == "__main__":
    main()
