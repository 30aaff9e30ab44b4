"""HMC of `izmailov2021_uci.py`: a descent, a warm-up that finds widths, and draws."""

import time

import izmailov2021_uci_warmup as warmup
import izmailov2021_uci_whitening as whitening
import jax
import numpy as np
from izmailov2021_uci_methods import Made, Task, mesh_of, starts
from izmailov2021_uci_problem import by_split

from symjax import run, store


WARMUP_SHARE = 0.3
"""Of the time, where there is an end to it, to find the mass matrices in."""


REMARK = (
    "Its chains have dense mass matrices, found in their warm-up, and each starts "
    "where a short descent led; the options that are shown, of HMC with unit mass, do "
    "not say so."
)


def sample_hmc(task: Task) -> Made:
    """Chains of HMC, in a run directory that goes on where it was stopped.

    Raises:
        SystemExit: if the run directory was made with other options.
    """  # noqa: DOC502
    setting, began = task.setting, time.monotonic()
    path, before = task.runs / "hmc", task.runs / "hmc-warmup"
    key = jax.random.fold_in(task.key, 3)
    first, num_fitting = starts(task, task.scale.num_chains), _num_fitting(task)
    mesh = mesh_of(first)
    seconds = None if task.minutes is None else 60 * task.minutes
    kept = warmup.opened(task, path)
    if kept is not None and kept.committed.has_state:
        first = whitening.no_factors(task.problem, first)
    else:
        first, num_found = warmup.find(
            task,
            jax.random.fold_in(key, 0),
            before,
            mesh,
            seconds and WARMUP_SHARE * seconds,
        )
        kept = kept or run.NewRun(path, task.config | {"warmup": num_found})
    if seconds is not None:
        seconds = max(seconds - (time.monotonic() - began), 1e-9)
    result = run.sample(
        key,
        whitening.build(task.problem, setting.num_leapfrogs, num_fitting),
        first,
        task.problem.train,
        num_draws=setting.num_draws,
        thinning=setting.thinning,
        max_seconds=seconds,
        mesh=mesh,
        store=kept,
    )
    store.remove(before)  # The run has all that its chains need.
    return _describe(task, store.open(path), result)


def _num_fitting(task: Task) -> int:
    """Iterations that fit the step size, after those that find the mass matrices."""
    return min(whitening.NUM_FITTING, task.setting.num_warmup)


def _describe(task: Task, kept: store.Run, result: run.Result) -> Made:
    """The draws of a run, and what is told of them."""
    setting, count = task.setting, task.problem.num_splits
    draws, num_fitting = kept.read(), _num_fitting(task)
    num_draws = jax.tree.leaves(draws)[0].shape[1]
    num_warmup = kept.config["warmup"] + num_fitting
    sampling = slice(num_fitting, num_fitting + setting.thinning * num_draws)
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[:, sampling], result.info)
    num_iterations = num_warmup + setting.thinning * num_draws
    told = {
        "num_draws": num_draws,
        "num_warmup": num_warmup,
        "gradients_a_chain": num_iterations * setting.num_leapfrogs,
        "acceptance": float(info.acceptance_rate.mean()),
        "divergent": float(info.is_divergent.mean()),
        "messages": list(result.messages),
    }
    words = (
        f"sample --sampler hmc --num-chains {task.scale.num_chains} --num-draws "
        f"{num_draws} --thinning {setting.thinning} --start init --hmc.step-size "
        f"{whitening.FIRST_STEP} --hmc.num-steps {setting.num_leapfrogs} "
        f"--hmc.num-warmup {num_warmup} "
        f"--hmc.target-acceptance {whitening.ACCEPTANCE}"
    )
    last = slice(setting.thinning - 1, None, setting.thinning)
    info = jax.tree.map(lambda leaf: leaf[:, last], info)
    draws, info = by_split(draws, count), by_split(info, count)
    return Made(draws, info, told, words, REMARK)
