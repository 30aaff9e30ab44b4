"""Effective draws of symjax's samplers beside numpyro's NUTS and blackjax's.

One process, one device, one density: the log posterior of a small network of
`posterior.build`. All chains start at optimised networks. The samplers of symjax adapt
in their warm-up; blackjax's kernels are given where these are and the step sizes that
they found, so that both make the same transitions; numpyro's NUTS adapts by itself
(step size and diagonal mass matrix) on the same density. Timed is the sampling after
warm-up and compilation, of all in one compiled loop.

Gradients are those of all chains together; effective sample sizes are bulk, the median
over 50 predictions or 100 weights; the spread of the predictions as a share of HMC's
tells a biased sampler.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

from benchmarks import figures, sampling
from benchmarks.kernels import CONTENDERS, num_params
from benchmarks.problems import Scale
from symjax import data as datasets, densities, models, posterior, run
from symjax.approximations import ensemble
from symjax.types import Data


@dataclass(frozen=True)
class Samplers:
    """Samplers on one small problem: effective draws a gradient and a second."""

    problem: str = "digits"
    """digits, or uci:NAME: NAME.npz in the folder uci of SYMJAX_DATA, first split."""
    scale: Scale = "full"
    widths: tuple[int, ...] = (32,)
    only: tuple[str, ...] = ()
    """Contenders; all by default. Those called directly need symjax's."""
    num_chains: int = 16
    num_draws: int = 200
    num_warmup: int = 300
    num_climb: int = 1000
    """Optimisation steps before."""
    max_num_doublings: int = 10
    """Of all NUTS."""
    repeats: int = 3
    out: Path = figures.OUT
    seed: int = 0


class Problem(NamedTuple):
    """A density, its data, starts `(chain, ...)`, and `params -> predictions`."""

    log_density: Any
    data: Data
    start: Any
    predict: Any


def main(options):
    # On a GPU the default is TF32, too rough for the energies of the others.
    with jax.default_matmul_precision("highest"):
        problem = build(options)
        results, found = {}, {}
        for name, start in CONTENDERS.items():
            if options.only and name not in options.only:
                continue
            found[name] = start(problem, options, found)
            found[name].sample(0)  # Compiles.
        for repeat in range(options.repeats):
            for name, contender in found.items():
                one = _measure(problem, contender.sample, repeat + 1)
                results.setdefault(name, []).append(one)
    size = f"{options.problem}, {num_params(problem):,} weights"
    base = np.median([one["spread"] for one in next(iter(results.values()))])
    shown = []
    for name, repeats in results.items():
        columns = {key: np.array([one[key] for one in repeats]) for key in repeats[0]}
        shown += _figures(f"{size}: {name}", columns, base)
    figures.report("samplers", options, shown)


def load(options):
    """The train and test examples, and what a network on them needs."""
    dataset = datasets.load(options.problem)
    is_classification = dataset.task == "classification"
    likelihood = (
        densities.categorical if is_classification else densities.heteroscedastic
    )
    return dataset.train, dataset.test, dataset.num_outputs, likelihood


def build(options):
    """The log posterior of a silu network, prior N(0, 1), at optimised starts."""
    train, test, num_outputs, likelihood = load(options)
    model = models.build(
        "mlp", num_outputs=num_outputs, widths=options.widths, activation="silu"
    )
    is_regression = likelihood is densities.heteroscedastic
    apply = densities.learned_noise(model.apply) if is_regression else model.apply
    prior = densities.Prior(dist.Normal(0.0, 1.0))
    log_density = posterior.build(apply, prior, likelihood)

    def init(key):
        params = model.init(key, jnp.asarray(train.x[:1]))
        return densities.add_noise(params, scale=0.5) if is_regression else params

    keys = jax.random.split(jax.random.key(options.seed), options.num_chains + 1)
    climb = ensemble.build(log_density, optimiser=optax.adam(1e-2))
    modes = run.fit(
        keys[0],
        climb,
        jax.vmap(init)(keys[1:]),
        train,
        num_steps=options.num_climb,
        show_progress=False,
    )
    x, y = test.x[:50], test.y[:50]

    def predict(params):
        outputs: Any = apply(params, x)
        if is_regression:
            return outputs[:, 0]
        return jax.nn.softmax(outputs)[jnp.arange(len(y)), y]

    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, 0]), modes.draws)
    return Problem(log_density, jax.tree.map(jnp.asarray, train), start, predict)


def _measure(problem, sample, repeat):
    """One timed stretch of sampling."""
    made: Any = None

    def call():
        nonlocal made
        made = sample(repeat)
        return made[0]

    seconds = figures.seconds(call)
    draws, gradients = made
    predictions = jax.jit(jax.vmap(jax.vmap(problem.predict)))(draws)
    flat = np.concatenate(
        [np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in jax.tree.leaves(draws)], -1
    )
    size = min(100, flat.shape[-1])
    chosen = np.random.default_rng(0).choice(flat.shape[-1], size, replace=False)
    return {
        "seconds": seconds,
        "gradients": gradients,
        "function": sampling.sample_size(predictions),
        "weights": sampling.sample_size(flat[..., chosen]),
        "spread": float(np.median(np.std(predictions, axis=(0, 1)))),
    }


def _figures(case, columns, base):
    taken, gradients = columns["seconds"], columns["gradients"]
    found = [
        figures.figure(case, "gradients", "", gradients),
        figures.figure(case, "a gradient", "µs", 1e6 * taken / gradients),
    ]
    for part in ("function", "weights"):
        found += [
            figures.figure(
                case, f"{part}: ESS for 1,000 gradients", "",
                1000 * columns[part] / gradients,
            ),
            figures.figure(case, f"{part}: ESS", "1/s", columns[part] / taken),
        ]  # fmt: skip
    spread = columns["spread"] / base
    return [*found, figures.figure(case, "spread over the first's", "x", spread)]
