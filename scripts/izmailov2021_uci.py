"""HMC on UCI regression beside other methods: Izmailov et al. (2021), their UCI table.

Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network posteriors
really like? One hidden layer of 50 relu units with outputs for the mean and the noise;
nine tenths of a data set to train on, the test error in the units of the targets,
averaged over 20 splits; here with three chains of HMC on every split, and their R-hat.

    python scripts/izmailov2021_uci.py --scale paper --minutes 4 --out runs/uci

| theirs, of HMC | concrete | yacht | boston | energy | naval |
|---|---|---|---|---|---|
| RMSE | 4.46 | 0.66 | 3.69 | 0.37 | 1e-4 |
| log likelihood | -2.67 | 0.54 | -2.39 | -1.09 | 9.6 |

Their log likelihood is that of one Gaussian with the moments of the mixture, and they
average over accepted proposals only; here every state counts, and both likelihoods are
given. Needs uci/boston.npz and so on in the folder that SYMJAX_DATA names.

On two busy cores `--scale small --data boston --methods hmc --minutes 9` gave 2.35 and
log likelihood -2.22 on the first three standard splits, with an R-hat below 1.05 for 77
per cent of the predictions. The others mix more slowly: on an H200 the chains of
energy, yacht and naval have not met after 0.9 to 2.2 million gradients, with a median
R-hat of 1.13 to 2.7. Look at the R-hats before you believe a number.

All splits and chains of a data set are one program. Its cost is known beforehand, see
`SETTINGS`: (warm-up + 100 + draws x thinning) x leapfrogs gradients of all chains, 5.8
million at the scale of the paper, of which an H200 makes half a million (boston,
concrete) to two million (yacht) in two to four minutes. With `--minutes` HMC of a data
set ends there with the draws that it has, and of that time finds its mass matrices in
three tenths at most. Results of a method are written when they are finished, and a
second call skips them; HMC goes on where it was stopped, in its warm-up too. Where the
noise is far above its floor in `symjax report`, a method also leaves a run directory of
split 0.

Problem, prior and likelihood are theirs; the prior variances could not be checked
against their appendix. What differs is how it is sampled. Chains of HMC start from a
short descent and have dense mass matrices, which they find in their warm-up, as
`izmailov2021_uci_whitening.py` says; step sizes are adapted to an acceptance of 0.95,
and leapfrogs are as many as are affordable. SGD is Adam; its length and SGLD's step
size are chosen by a tenth of the training examples, held out. A step size of SGLD that
loses a chain, there or on all training examples, is not used: lost is a chain of which
a draw says less of its own training examples than one Gaussian for all targets would.
At 1e-5 two to four of boston's 60 chains are, and one of them made the RMSE of its
split 143; at 1e-6 none is, and all 20 splits have 3.15 / -2.32, but an R-hat below 1.05
for 2.5 % only. If no step size is left, the program says so, and has no results.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import izmailov2021_uci_hmc as hamiltonian
import izmailov2021_uci_methods as methods
import izmailov2021_uci_problem as problems
import izmailov2021_uci_scores as scores
import jax
import papers
import tyro
from izmailov2021_uci_methods import Made, Scale, Setting, Task

from symjax import checks, store
from symjax.run import OutOfTime, Stopped


SETTINGS = {
    "boston": Setting(1 / 10, 2000, 400, 1280, 400, 10),
    "concrete": Setting(1 / 10, 2000, 400, 1280, 400, 10),
    "energy": Setting(1 / 10, 10_000, 400, 1280, 400, 10),
    "yacht": Setting(1 / 10, 10_000, 400, 1280, 400, 10),
    "naval": Setting(1 / 40, 100_000, 400, 1280, 400, 10),
    "diabetes": Setting(1 / 10, 1000, 100, 640, 400, 1),
}

NUM_STANDARD = 20
"""Splits of Hernandez-Lobato and Gal."""

SCALES = {
    "tiny": Scale(2, 2, 0.05, 0.05, 2, (50, 100), (1e-9, 1e-6), 500),
    "small": Scale(3, 3, 0.5, 0.5, 5, (300, 1000), (1e-7, 1e-6, 1e-5), 10_000),
    "paper": Scale(
        20,
        3,
        1.0,
        1.0,
        10,
        (300, 1000, 5000, 20_000),
        (1e-9, 1e-8, 1e-7, 1e-6, 1e-5),
        50_000,
    ),
}


@dataclass(frozen=True)
class Options:
    """Reproduce the UCI regressions of Izmailov et al. (2021).

    Attributes:
        scale: tiny: a minute a data set; small: 3 splits, on a CPU with `--minutes`;
            paper: 20 splits, for a GPU.
        data: Of boston, concrete, energy, yacht and naval, in the folder SYMJAX_DATA;
            or diabetes, which needs no folder.
        splits: standard: the 20 of Hernandez-Lobato and Gal; reference: permutations
            by key 0, 1, 2 and so on, as the paper's code makes them.
        methods: Which; ensemble stands for SGD too.
        minutes: Time for HMC on each data set in this call, at most three tenths of it
            to find mass matrices; it ends with the draws that it has. Without, it
            makes all of them.
        num_splits: The first so many, instead of the scale's.
        num_leapfrogs: Of a trajectory, instead of the setting's and the scale's.
        num_warmup: Iterations of HMC that find the mass matrices, likewise.
        num_draws: Of each chain of HMC, likewise.
        prior_variance: Of every weight and bias, instead of the setting's.
        out: Folder of the results.
        runs: Folder of HMC's run directories, of up to 300 MB each. Default: as `out`.
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
    options = tyro.cli(Options, description=__doc__)
    try:
        check(options)
    except ValueError as error:
        raise SystemExit(f"{error}") from None
    stopped = []
    # All are looked at before hours have passed.
    tasks = [(name, prepare(name, options)) for name in options.data]
    for name, task in tasks:
        for method in options.methods:
            try:
                reproduce(task, method)
            except OutOfTime:
                # Of which the reason knows what the warm-up has left.
                said = f"{task.minutes:g} minutes were over before the first draw."
                stopped.append(f"{name}, {method}: {said} Call again to go on.")
            except Stopped as reason:
                # A signal has asked for it, and not for the next method.
                stopped.append(f"{name}, {method}: {reason} Call again to go on.")
                raise type(reason)("\n".join(stopped)) from None
            except methods.Lost as reason:
                stopped.append(f"{name}, {method}: {reason} It has no results.")
        scores.write_tables(options.out)
    if stopped:
        raise SystemExit("\n".join(stopped))


def check(options: Options) -> None:
    """Require known data sets, methods, and numbers that can be.

    Raises:
        ValueError: if a data set is not known, there is no method, or a number is not
            positive or too large.
    """
    for name in options.data or ("none",):
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise ValueError(f"`data` must be of {known}, got {name}.")
    if not options.methods:
        raise ValueError("`methods` must be of ensemble, sgld, hmc, got none.")
    if not -(2**63) <= options.seed < 2**63:
        raise ValueError(
            f"`seed` must be a whole number of at most 64 bits, got {options.seed}."
        )
    checks.positive(minutes=options.minutes, prior_variance=options.prior_variance)
    checks.at_least(
        1,
        num_splits=options.num_splits,
        num_leapfrogs=options.num_leapfrogs,
        num_warmup=options.num_warmup,
        num_draws=options.num_draws,
    )
    is_standard = options.splits == "standard" and set(options.data) != {"diabetes"}
    if is_standard and (options.num_splits or 0) > NUM_STANDARD:
        raise ValueError(
            f"`num_splits` must be at most {NUM_STANDARD} of standard splits, got "
            f"{options.num_splits}. `--splits reference` has more."
        )


def prepare(name: str, options: Options) -> Task:
    """Load a data set and put the decisions together.

    Raises:
        SystemExit: if the data set is not there, or has no such split.
    """
    scale, setting = SCALES[options.scale], SETTINGS[name]
    setting = setting._replace(
        prior_variance=options.prior_variance or setting.prior_variance,
        num_descending=round(scale.iterations * setting.num_descending),
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
    with store.explained("make the folder", task.out, "Choose another `--out`."):
        task.out.mkdir(parents=True, exist_ok=True)
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
        "hmc": hamiltonian.sample_hmc,
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
        store.write_json(task.out / f"{name}.json", result)


if __name__ == "__main__":
    papers.start(main)
