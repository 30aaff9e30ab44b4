"""How many transpositions lie between networks, after Xiao, Liu and Bamler (2023).

A network is trained on MNIST, and again from the same start after its units were
permuted, by none to all of the transpositions that fit, each time with batches of its
own. Of each pair: distance and barrier, before and after matching, and how many
transpositions the matching finds. Then the same number along the line between two
networks that started apart, and from the first to the second brought next to it.

    python scripts/xiao2023_transpositions.py --scale small --out runs/transpositions

Prints a table and writes transpositions.json and transpositions.png.
"""

import json
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
from xiao2023_problem import BATCH_SIZE, DATA, LEARNING_RATE, build

from symjax import symmetry
from symjax.approximations import ensemble
from symjax.plots import compact
from symjax.symmetry import barriers
from symjax.symmetry.transpositions import permuted_trials, transpositions_along


POSITIONS = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class Options:
    """Transpositions between networks."""

    scale: Literal["tiny", "small", "paper"] = "small"
    """How large network and data are, as in xiao2023_compact.py."""
    data: str | None = None
    """A data set of images, as `data.load` takes it. Default: mnist; of tiny, digits.
    """
    out: Path = Path("runs/transpositions")
    seed: int = 0


def main():
    options = tyro.cli(Options, description=__doc__)
    problem = build(options.data or DATA[options.scale], options.scale, options.seed)
    results = experiment(problem)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results | {"config": problem.config}, indent=2)
    options.out.joinpath("transpositions.json").write_text(text)
    draw(results).savefig(options.out / "transpositions.png", dpi=150)
    print(table(results["trials"]))


def experiment(problem):
    key, start_key, other_key = jax.random.split(problem.key, 3)
    train = trainer(problem, key)
    match = partial(symmetry.match_weights, problem.spec)
    measure = barriers.classification(problem.apply)
    barrier = partial(barriers.loss_barrier, measure, data=problem.test, num=11)
    params = problem.init(start_key)
    most = problem.scale.width - 1
    numbers = np.linspace(0, most, 9).astype(int).tolist()
    trials = permuted_trials(
        key,
        problem.spec,
        params,
        numbers,
        train=train,
        match=match,
        barrier=lambda one, other: barrier(one, other)["loss"],
    )
    first, other = train(params), train(problem.init(other_key))
    moved = symmetry.act(problem.spec, match(other, first), other)
    return {
        "trials": [trial._asdict() for trial in trials],
        "positions": POSITIONS.tolist(),
        "along": {
            name: transpositions_along(match, first, end, POSITIONS).tolist()
            for name, end in (("as they are", other), ("aligned", moved))
        },
    }


def trainer(problem, key):
    """`params -> params`: MAP, each time with an order of the examples of its own."""
    num_steps = problem.scale.num_steps
    approximation = ensemble.build(
        problem.log_posterior,
        optimiser=optax.adam(LEARNING_RATE),
        batch_size=BATCH_SIZE,
    )

    @jax.jit
    def train(key, params, data):
        def step(index, state):
            return approximation.step(jax.random.fold_in(key, index), state, data)[0]

        state = approximation.init(key, params, data)
        return jax.lax.fori_loop(0, num_steps, step, state).position

    data = jax.tree.map(jnp.asarray, problem.train)
    orders = map(partial(jax.random.fold_in, key), range(10**9))
    return lambda params: train(next(orders), params, data)


def draw(results):
    trials = results["trials"]
    columns = {name: [trial[name] for trial in trials] for name in trials[0]}
    return compact.transpositions(columns, results["positions"], results["along"])


def table(trials):
    """One line for each trial, in Markdown."""
    lines = [[name.replace("_", " ") for name in trials[0]], ["---"] * len(trials[0])]
    lines += [[f"{value:.5g}" for value in trial.values()] for trial in trials]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    papers.start(main)
