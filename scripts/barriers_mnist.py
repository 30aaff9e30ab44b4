"""Loss barriers between networks before and after matching, on MNIST.

Two 784-512-512-512-10 relu networks are trained from starts of their own and matched to
each other: by weights, by activations, or by the loss at the midpoint with a
straight-through estimator (Ainsworth, Hayase and Srinivasa, 2023, figure 2).

    python scripts/barriers_mnist.py --out runs/barriers

Prints a table and writes barriers.json and barriers.png. As in the paper pixels lie in
[0, 1], where `data.load` gives them mean 0 and variance 1.
"""

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from rich.console import Console
from rich.table import Table

from symjax import data as datasets, mesh, models, progress, symmetry
from symjax.plots import barriers as plots
from symjax.symmetry.barriers import barrier, classification, curve


@dataclass(frozen=True)
class Options:
    """Barriers between two networks, before and after matching."""

    data: str = "mnist"
    """A data set of classes, as `data.load` takes it."""
    num_train: int = 60_000
    """Examples to train, match and measure on, the first ones."""
    width: int = 512
    """Of each of the three hidden layers."""
    num_epochs: int = 20
    batch_size: int = 500
    learning_rate: float = 1e-3
    """Of Adam, at the start; it falls to 0 as half a cosine. Also of the estimator."""
    num_steps: int = 200
    """Of the straight-through estimator."""
    num_positions: int = 25
    seed: int = 0
    out: Path = Path("runs/barriers")


def main():
    options = tyro.cli(Options)
    dataset = datasets.load(options.data)
    low, high = dataset.train.x.min(), dataset.train.x.max()
    train, test = (
        part._replace(x=(part.x - low) / (high - low))
        for part in (dataset.train, dataset.test)
    )
    train = jax.tree.map(lambda array: array[: options.num_train], train)
    model = models.MLP(dataset.num_outputs, (options.width,) * 3, nn.relu)
    measure = classification(model.apply)
    *starts, match_key = jax.random.split(jax.random.key(options.seed), 3)
    ends = [fit(model, measure, train, key, options) for key in starts]
    spec = symmetry.infer(model.apply, ends[0], train.x[:2])
    heights, lines, seconds = {}, {}, {}
    for name, match in matchers(model, measure, train, match_key, options).items():
        start = time.monotonic()
        element = jax.block_until_ready(match(spec, ends[1], ends[0]))
        seconds[name] = round(time.monotonic() - start, 1)
        moved = symmetry.act(spec, element, ends[1])
        for part, rows in {"train": train, "test": test}.items():
            found = curve(measure, ends[0], moved, rows, num=options.num_positions)
            for what, height in barrier(found).items():
                heights.setdefault(f"{part} {what}", {})[name] = height
                lines.setdefault(f"{part} {what}", {})[name] = found.values[what]
    report(heights, lines, seconds, options)


def fit(model, measure, train, key, options):
    """One network, from a start and an order of examples of its own."""
    init_key, order_key = jax.random.split(key)
    num_rows, size = len(train.y), options.batch_size
    num_steps = options.num_epochs * (num_rows // size)
    rate = optax.cosine_decay_schedule(options.learning_rate, num_steps)
    optimiser = optax.adam(rate)
    params = model.init(init_key, train.x[:1])

    @jax.jit
    def epoch(key, state, train):
        def step(state, indices):
            def loss(params):
                return jnp.mean(measure(params, mesh.take(train, indices))["loss"])

            params, moments = state
            value, gradient = jax.value_and_grad(loss)(params)
            updates, moments = optimiser.update(gradient, moments)
            return (optax.apply_updates(params, updates), moments), value

        order = jax.random.permutation(key, num_rows)[: num_rows // size * size]
        return jax.lax.scan(step, state, order.reshape(-1, size))

    state = params, optimiser.init(params)
    with progress.bar("training", options.num_epochs) as update:
        for number in range(options.num_epochs):
            key = jax.random.fold_in(order_key, number)
            state, losses = epoch(key, state, train)
            update(number + 1, f"loss {jnp.mean(losses):.4f}")
    return state[0]


def matchers(model, measure, train, key, options):
    """`(spec, params, reference) -> element`, by name."""
    return {
        "before": lambda spec, params, reference: symmetry.identity(spec),
        "weights": symmetry.match_weights,
        "activations": lambda spec, params, reference: symmetry.match_activations(
            model.apply, spec, params, reference, train.x
        ),
        "straight-through": partial(
            symmetry.match_straight_through,
            lambda params, rows: measure(params, rows)["loss"],
            data=train,
            key=key,
            optimiser=optax.adam(options.learning_rate),
            num_steps=options.num_steps,
        ),
    }


def report(heights, lines, seconds, options):
    """The table, the numbers and the picture."""
    table = Table("barrier", *heights, "seconds")
    for name, taken in seconds.items():
        numbers = [f"{by_name[name]:.4f}" for by_name in heights.values()]
        table.add_row(name, *numbers, f"{taken}")
    Console().print(table)
    results = {"options": asdict(options), "barriers": heights, "seconds": seconds}
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=2, default=str)
    options.out.joinpath("barriers.json").write_text(text)
    figure = plots.interpolations(np.linspace(0, 1, options.num_positions), lines)
    figure.savefig(options.out / "barriers.png", dpi=150)


if __name__ == "__main__":
    main()
