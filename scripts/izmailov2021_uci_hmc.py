"""HMC of `izmailov2021_uci.py`: a descent, a warm-up that finds widths, and draws."""

import time

import izmailov2021_uci_whitening as whitening
import jax
import numpy as np
from izmailov2021_uci_methods import Made, Task, descend, mesh_of, starts
from izmailov2021_uci_problem import by_split

from symjax import run, store


WARMUP_SHARE = 0.3
"""Of the time, where there is an end to it, to find the mass matrices in."""


def sample_hmc(task: Task) -> Made:
    """Chains of HMC, in a run directory that goes on where it was stopped.

    Raises:
        SystemExit: if the run directory was made with other options.
    """
    setting, count, began = task.setting, task.problem.num_splits, time.monotonic()
    seconds = task.minutes and 60 * task.minutes
    path, key = task.runs / "hmc", jax.random.fold_in(task.key, 3)
    begun = store.open(path) if (path / "config.json").exists() else None
    first, num_found = starts(task, task.scale.num_chains), 0
    mesh, num_fitting = mesh_of(first), min(whitening.NUM_FITTING, setting.num_warmup)
    if begun and any(begun.config.get(k) != v for k, v in task.config.items()):
        raise SystemExit(f"{path} was made with other options: choose another out.")
    if begun:
        first = whitening.no_factors(task.problem, first)
    else:
        first, num_found = whitening.warm_up(
            task.problem,
            jax.random.fold_in(key, 0),
            descend(task, task.scale.num_chains, task.problem.train),
            mesh,
            num_leapfrogs=setting.num_leapfrogs,
            num_iterations=setting.num_warmup,
            seconds=seconds and WARMUP_SHARE * seconds,
        )
    if seconds:
        seconds = max(seconds - (time.monotonic() - began), 1e-9)
    config = task.config | {"warmup": num_found}
    result = run.sample(
        key,
        whitening.build(task.problem, setting.num_leapfrogs, num_fitting),
        first,
        task.problem.train,
        num_draws=setting.num_draws,
        thinning=setting.thinning,
        max_seconds=seconds,
        mesh=mesh,
        store=begun or run.NewRun(path, config),
    )
    kept = store.open(path)
    draws = kept.read()
    num_draws = jax.tree.leaves(draws)[0].shape[1]
    num_found = kept.config["warmup"]
    num_iterations = num_fitting + setting.thinning * num_draws
    info = jax.tree.map(
        lambda leaf: np.asarray(leaf)[:, num_fitting:num_iterations], result.info
    )
    told = {
        "num_draws": num_draws,
        "num_warmup": num_found + num_fitting,
        "gradients_a_chain": (num_found + num_iterations) * setting.num_leapfrogs,
        "acceptance": float(info.acceptance_rate.mean()),
        "divergent": float(info.is_divergent.mean()),
        "messages": list(result.messages),
    }
    words = (
        f"sample --sampler hmc --num-chains {task.scale.num_chains} --num-draws "
        f"{num_draws} --thinning {setting.thinning} --start init --hmc.step-size "
        f"{whitening.FIRST_STEP} --hmc.num-steps {setting.num_leapfrogs} "
        f"--hmc.num-warmup {num_found + num_fitting} "
        f"--hmc.target-acceptance {whitening.ACCEPTANCE}"
    )
    last = slice(setting.thinning - 1, None, setting.thinning)
    info = jax.tree.map(lambda leaf: leaf[:, last], info)
    return Made(by_split(draws, count), by_split(info, count), told, words)
