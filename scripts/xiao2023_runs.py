"""The run directories of xiao2023_compact.py, which `symjax report` reads.

Each records the options that rebuild its posterior, and in a remark what its command
has no option for.
"""

import re

import jax
import numpy as np
from xiao2023_problem import BATCH_SIZE, LEARNING_RATE

from symjax import run, store, symmetry, trees
from symjax.approximations import gaussian
from symjax.cli import aligners, alignment, importing, records
from symjax.cli.analyses import Import
from symjax.cli.fits import Ensemble, Mfvi
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Fit, Sample


TRAJECTORY = 0.5
"""The paper's step size times its number of leapfrogs."""

MADE_BY = "Made by scripts/xiao2023_compact.py."

CONSTANT = "The learning rate stays as it is at the start."


def ensemble_command(problem):
    """Of `symjax fit`."""
    scale = problem.scale
    options = Ensemble(
        num_steps=scale.num_steps, learning_rate=LEARNING_RATE, batch_size=BATCH_SIZE
    )
    return Fit(
        problem.options,
        "ensemble",
        ensemble=options,
        num_members=scale.num_members,
        seed=problem.seed,
    )


def mfvi_command(problem):
    """Of `symjax fit`."""
    # As Bayes by backprop does it, whose draw all examples of a step share.
    options = Mfvi(
        num_steps=problem.scale.num_steps,
        noise="shared",
        learning_rate=LEARNING_RATE,
        batch_size=BATCH_SIZE,
    )
    return Fit(
        problem.options,
        "mfvi",
        mfvi=options,
        num_members=1,
        num_draws=problem.scale.num_samples,
        seed=problem.seed,
    )


def hmc_command(problem):
    """Of `symjax sample`, whose starts cost as much as members of the ensemble."""
    scale = problem.scale
    options = Hmc(
        step_size=scale.step_size,
        trajectory_length=TRAJECTORY,
        num_warmup=scale.num_warmup,
    )
    return Sample(
        problem.options,
        "hmc",
        options,
        num_chains=scale.num_chains,
        num_draws=scale.num_draws,
        map_steps=scale.num_epochs,
        seed=problem.seed,
    )


def begin(problem, path, command, remark):
    """The run of a command, or a new one; `remark` is what it has no option for."""
    config = records.describe(command, problem.built)
    return kept_at(path, config | {"remark": f"{remark} {MADE_BY}"})


def kept_at(path, config):
    """The run there, checked to be of this configuration, or a new one."""
    if not (path / "config.json").exists():
        return run.NewRun(path, config)
    found = store.open(path)
    found.check_config(found.config | config)
    return found


def align(problem, path, source, how, match, to):
    """The draws of a run moved next to where another began, in a run of their own.

    Args:
        problem: Of both.
        path: Of the new run; if it is there, it gets what it lacks.
        source: The run.
        how: By what they are matched, in a word.
        match: `(draws, reference) -> element`.
        to: The run whose first chain is the reference.
    """
    reference = aligners.start_of(to, problem.built.shapes)
    plan = {"num_draws": source.num_draws, "num_discarded": 0, "thinning": 1}
    config = source.config | {
        "run": source.config["run"] | plan,
        "aligned": alignment.describe(source, to, how),
        "remark": f"Draws of {source.path.name}, their units permuted to be near the "
        f"first network of {to.path.name}, by {how}. {MADE_BY}",
    }
    kept = kept_at(path, config)
    if isinstance(kept, run.NewRun):
        kept = store.create(
            path,
            config=config,
            params=reference,
            info={"permutations": symmetry.identity(problem.spec).permutations},
            num_chains=source.num_chains,
            num_draws=source.num_draws,
            num_iterations=source.num_draws,
            kept=range(source.num_draws),
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


def draw(problem, folder, label, fitted):
    """As many draws of a Gaussian as the scale says, in a run named after the label."""
    keys = jax.random.split(problem.key, problem.scale.num_samples)
    total = len(keys)
    command = Import(problem=problem.options)
    kept = store.create(
        folder / re.sub(r"[^a-z0-9_.]+", "-", label.lower()),
        config=importing.describe(command, problem.built, total)
        | {"remark": f"Draws of the Gaussian {label}. {MADE_BY}"},
        params=fitted.mean,
        info={"part": jax.ShapeDtypeStruct((), np.int32)},
        num_chains=1,
        num_draws=total,
        num_iterations=total,
        kept=range(total),
    )
    sample = jax.jit(jax.vmap(gaussian.sample, (0, None)))
    size = max(1, 2**26 // trees.num_bytes(fitted.mean))
    for part, start in enumerate(range(0, total, size)):
        some = sample(keys[start : start + size], fitted)
        some = jax.tree.map(lambda leaf: np.asarray(leaf)[None], some)
        stop = min(start + size, total)
        parts = np.full((1, stop - start), part, np.int32)
        kept.append(some, start, {"part": parts}, start)
    state = {"num_draws": np.array(total)}
    kept.commit(state, iteration=total, num_draws=total, finished=True)
    return kept
