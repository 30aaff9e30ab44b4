"""Effective draws of symjax's samplers beside numpyro's NUTS and blackjax's.

One process, one device, one density: the log posterior of a small network of
`posterior.build`. All chains start at optimised networks. The samplers of symjax adapt
in their warm-up; blackjax's kernels are given the step sizes that these found, so that
both make the same transitions; numpyro's NUTS adapts by itself (step size and diagonal
mass matrix) on the same density. Timed is the sampling after warm-up and compilation,
several times, of which the median counts.

    python scripts/benchmark_samplers.py --problem digits --only "symjax HMC"

Columns: gradients of all chains together; bulk effective sample size (ArviZ, median
over 50 predictions or 100 weights) for 1,000 gradients and for a second; the spread of
the predictions as a share of that of HMC's (median), which tells a biased sampler.

`uci:NAME` reads NAME.npz in the folder `uci` under the one that SYMJAX_DATA names
(default ../shared/data), its first split, normalised, noise learned.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import moments
import numpy as np
import numpyro.distributions as dist
import optax
import tyro
from numpyro.infer import MCMC, NUTS

from symjax import (
    data as datasets,
    densities,
    isokinetic,
    mesh,
    models,
    posterior,
    run,
    trees,
)
from symjax.approximations import ensemble
from symjax.samplers import chees, hmc, mclmc, nuts
from symjax.types import Data


LENGTH = 0.3 * hmc.rule_length(1.0)
"""Of HMC's trajectories: on small networks better than the rule itself."""


@dataclass(frozen=True)
class Options:
    """Samplers on one problem."""

    problem: str = "digits"
    """digits, or uci:NAME."""
    widths: tuple[int, ...] = (32,)
    only: tuple[str, ...] = ()
    """Contenders; all by default. Those called directly need symjax's."""
    num_chains: int = 16
    num_draws: int = 200
    num_warmup: int = 300
    max_num_doublings: int = 10
    """Of all NUTS."""
    repeats: int = 3
    out: Path = Path("runs/benchmark")
    seed: int = 0


class Problem(NamedTuple):
    """A density, its data, starts `(chain, ...)`, and `params -> predictions`."""

    log_density: Any
    data: Data
    start: Any
    predict: Callable


class Chains(NamedTuple):
    """A contender after its warm-up.

    `sample` is `number of the repeat -> (draws, gradients)`; `step_sizes` are those of
    the chains, `() -> (chain,)`.
    """

    sample: Callable
    step_sizes: Callable | None = None


def load(options):
    """The train and test examples, and what a network on them needs."""
    if not options.problem.startswith("uci:"):
        dataset = datasets.load(options.problem)
        return dataset.train, dataset.test, dataset.num_outputs, densities.categorical
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SYMJAX_DATA", beside)) / "uci"
    with np.load(folder / f"{options.problem[4:]}.npz") as file:
        x, y, test = file["x"], file["y"], file["test_mask"][0]
    x, y = (
        ((a - a[~test].mean(0)) / np.maximum(a[~test].std(0), 1e-6)).astype(np.float32)
        for a in (x, y)
    )
    train, held_out = (Data(x[m], y[m], np.ones(m.sum(), bool)) for m in (~test, test))
    return train, held_out, 1, densities.heteroscedastic


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
    modes = run.fit(keys[0], climb, jax.vmap(init)(keys[1:]), train, num_steps=1000)
    x, y = test.x[:50], test.y[:50]

    def predict(params):
        outputs: Any = apply(params, x)
        if is_regression:
            return outputs[:, 0]
        return jax.nn.softmax(outputs)[jnp.arange(len(y)), y]

    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, 0]), modes.draws)
    return Problem(log_density, jax.tree.map(jnp.asarray, train), start, predict)


def chains(problem, options, init, step, count, num_warmup=0, thinning=1):
    """Chains of `step`, in one loop for symjax's algorithms and blackjax's kernels."""
    keys = jax.random.split(jax.random.key(options.seed + 1), options.num_chains)

    def advance(index, state):
        now = jax.vmap(jax.random.fold_in, (0, None))(keys, index)
        return mesh.vmap_chains(step, (0, 0, None))(now, state, problem.data)

    @jax.jit
    def warm_up(params):
        state = mesh.vmap_chains(init, (0, 0, None))(keys, params, problem.data)
        state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)
        return jax.lax.fori_loop(0, num_warmup, lambda i, s: advance(i, s)[0], state)

    @jax.jit
    def sample(state, first):
        def draw(state, index):
            def inner(i, carry):
                state, info = advance(first + index * thinning + i, carry[0])
                size = getattr(info, "step_size", carry[2])
                return state, carry[1] + jnp.sum(count(info)), size

            carry = state, 0, jnp.zeros(options.num_chains)
            state, used, size = jax.lax.fori_loop(0, thinning, inner, carry)
            return state, (state.position, used, size)

        state, made = jax.lax.scan(draw, state, jnp.arange(options.num_draws))
        draws = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), made[0])
        return state, draws, made[1], made[2][-1]

    states, sizes = [warm_up(problem.start)], []

    def take(repeat):
        first = num_warmup + repeat * options.num_draws * thinning
        state, draws, used, size = jax.block_until_ready(sample(states[-1], first))
        states[:], sizes[:] = [state], [size]
        return draws, int(np.sum(np.asarray(used), dtype=np.int64))

    return Chains(take, lambda: sizes[0])


def ours(build, count, thinning=1, slow_warmup=1):
    """A contender of symjax: `build(log_density, options, num_warmup)`."""

    def start(problem, options, _):
        num_warmup = slow_warmup * options.num_warmup
        algorithm = build(problem, options, num_warmup)
        init, step = algorithm.init, algorithm.step
        return chains(problem, options, init, step, count, num_warmup, thinning)

    return start


class _Stepped(NamedTuple):
    """A state of blackjax beside the step size of its chain."""

    inner: Any
    step_size: Any

    @property
    def position(self):
        """The parameters."""
        return self.inner.position


def direct(of, build, count, thinning=1):
    """A kernel of blackjax, with the step sizes that `of` found: `build(options)`."""

    def start(problem, options, found):
        first, transition = build(problem, options)
        sizes = found[of].step_sizes()

        def init(key, params, data):
            size = sizes[mesh.chain_index()]
            log_density = lambda p: problem.log_density(p, data)
            return _Stepped(first(params, log_density, key), size)

        def step(key, state, data):
            log_density = lambda p: problem.log_density(p, data)
            inner, info = transition(key, state.inner, log_density, state.step_size)
            return _Stepped(inner, state.step_size), info

        return chains(problem, options, init, step, count, 0, thinning)

    return start


def direct_hmc(problem, options):
    kernel = blackjax.hmc.build_kernel()
    ones = jnp.ones(num_params(problem))

    def transition(key, state, log_density, size):
        num_steps = jnp.ceil(LENGTH / size - 1e-6).astype(int)
        return kernel(key, state, log_density, size, ones, num_steps)

    return lambda params, f, key: blackjax.hmc.init(params, f), transition


def direct_nuts(problem, options):
    kernel = blackjax.nuts.build_kernel()
    ones = jnp.ones(num_params(problem))

    def transition(key, state, log_density, size):
        most = options.max_num_doublings
        return kernel(key, state, log_density, size, ones, most)

    return lambda params, f, key: blackjax.nuts.init(params, f), transition


def direct_mclmc(problem, options):
    kernel = blackjax.mclmc.build_kernel()
    length = velocity_length(problem)

    def transition(key, state, log_density, size):
        return kernel(key, state, log_density, 1.0, length, size)

    return lambda params, f, key: blackjax.mclmc.init(params, f, key), transition


def numpyro_nuts(problem, options, _):
    kernel = NUTS(
        potential_fn=lambda p: -problem.log_density(p, problem.data),
        max_tree_depth=options.max_num_doublings,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=options.num_warmup,
        num_samples=options.num_draws,
        num_chains=options.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    key = jax.random.key(options.seed + 1)
    mcmc.warmup(key, init_params=problem.start, collect_warmup=False)

    def sample(repeat):
        mcmc.run(jax.random.fold_in(key, repeat), extra_fields=("num_steps",))
        draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
        mcmc.post_warmup_state = mcmc.last_state
        return draws, int(np.sum(mcmc.get_extra_fields()["num_steps"]))

    return Chains(sample)


def num_params(problem):
    return trees.size(jax.tree.map(lambda leaf: leaf[0], problem.start))


def velocity_length(problem):
    return mclmc.rule_length(0.3, num_params(problem))


_THIN = 20
_of_steps = lambda info: info.num_steps
_of_leapfrogs = lambda info: info.num_integration_steps
_of_mclmc = lambda info: (
    0 * info.energy_change.astype(int) + isokinetic.GRADIENTS_PER_STEP
)

CONTENDERS = {
    "symjax HMC": ours(
        lambda p, o, warmup: hmc.build(
            p.log_density, step_size=0.02, trajectory_length=LENGTH, num_warmup=warmup
        ),
        _of_steps,
    ),
    "symjax NUTS": ours(
        lambda p, o, warmup: nuts.build(
            p.log_density,
            step_size=0.02,
            max_num_doublings=o.max_num_doublings,
            num_warmup=warmup,
        ),
        _of_steps,
    ),
    "symjax ChEES": ours(
        lambda p, o, warmup: chees.build(
            p.log_density,
            step_size=0.02,
            trajectory_length=LENGTH,
            max_num_steps=300,
            num_warmup=warmup,
        ),
        _of_steps,
    ),
    "symjax MCLMC": ours(
        lambda p, o, warmup: mclmc.build(
            p.log_density,
            step_size=0.2,
            decoherence_length=velocity_length(p),
            num_warmup=warmup,
        ),
        _of_mclmc,
        _THIN,
        10,
    ),
    "blackjax HMC": direct("symjax HMC", direct_hmc, _of_leapfrogs),
    "blackjax NUTS": direct("symjax NUTS", direct_nuts, _of_leapfrogs),
    "blackjax MCLMC": direct("symjax MCLMC", direct_mclmc, _of_mclmc, _THIN),
    "numpyro NUTS": numpyro_nuts,
}


def main():
    options = tyro.cli(Options, description=__doc__)
    # On a GPU the default is TF32, too rough for the energies of the others.
    jax.config.update("jax_default_matmul_precision", "highest")
    problem = build(options)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.problem.replace(':', '_')}.json"
    results, found = {}, {}
    print(f"{jax.devices()[0].device_kind}, {num_params(problem)} weights", flush=True)
    for name, start in CONTENDERS.items():
        if options.only and name not in options.only:
            continue
        begin = time.perf_counter()
        found[name] = start(problem, options, found)
        found[name].sample(0)  # Compiles.
        before = time.perf_counter() - begin
        repeats = [
            measure(problem, found[name].sample, i + 1) for i in range(options.repeats)
        ]
        results[name] = {
            key: statistics.median(r[key] for r in repeats) for key in repeats[0]
        } | {"before": before}
        print(f"{name:16s} {results[name]}", flush=True)
        path.write_text(json.dumps(results, indent=2))
    print(table(results))


def measure(problem, sample, repeat):
    """One timed stretch of sampling."""
    begin = time.perf_counter()
    draws, gradients = sample(repeat)
    seconds = time.perf_counter() - begin
    predictions = jax.jit(jax.vmap(jax.vmap(problem.predict)))(draws)
    size = min(100, num_params(problem))
    flat = np.concatenate(
        [np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in jax.tree.leaves(draws)], -1
    )
    chosen = np.random.default_rng(0).choice(flat.shape[-1], size, replace=False)

    def typical(values):
        values = np.asarray(values)
        sizes = [moments.sample_size(values[..., i]) for i in range(values.shape[-1])]
        return statistics.median(sizes)

    return {
        "seconds": seconds,
        "gradients": gradients,
        "function": typical(predictions),
        "weights": typical(flat[..., chosen]),
        "spread": float(np.median(np.std(predictions, axis=(0, 1)))),
    }


def table(results):
    """A line a contender."""
    rows = []
    base = results.get("symjax HMC", next(iter(results.values())))["spread"]
    for name, r in results.items():
        kilo = r["gradients"] / 1000
        row = [name, f"{kilo:,.0f}k", f"{1e6 * r['seconds'] / r['gradients']:.2f}"]
        for part in ("function", "weights"):
            row += [f"{r[part] / kilo:.2f}", f"{r[part] / r['seconds']:,.0f}"]
        rows.append([*row, f"{r['spread'] / base:.2f}"])
    header = ["", "gradients", "µs a gradient", "ESS / 1,000 gradients", "ESS / s"]
    header += ["weights: ESS / 1,000", "ESS / s", "spread"]
    return moments.table(header, rows)


if __name__ == "__main__":
    main()
