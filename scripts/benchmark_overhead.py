"""What HMC costs beside its gradients.

One process, one device: a bare jitted loop of `value_and_grad` of the log posterior,
transitions of `samplers.hmc`, and those of `blackjax.hmc`, each with the same number
of gradients. Prints medians of interleaved repeats and their ratios to the bare loop.

    python scripts/benchmark_overhead.py --num-chains 4 --num-leapfrogs 50
"""

import statistics
import time
from dataclasses import dataclass

import blackjax
import jax
import jax.numpy as jnp
import tyro

from symjax.cli import posteriors
from symjax.cli.options import Problem
from symjax.samplers import hmc


@dataclass(frozen=True)
class Benchmark:
    """Gradients alone, in HMC, and in blackjax's HMC."""

    data: str = "digits"
    widths: tuple[int, ...] = (32,)
    num_chains: int = 4
    num_leapfrogs: int = 50
    num_transitions: int = 10
    repeats: int = 9
    step_size: float = 1e-3


def main():
    options = tyro.cli(Benchmark)
    built = posteriors.build(Problem(data=options.data, widths=options.widths))
    data = jax.tree.map(jnp.asarray, built.dataset.train)
    keys = jax.random.split(jax.random.key(0), options.num_chains)
    params = jax.vmap(built.init)(keys)
    log_posterior = built.log_posterior
    loops = {
        "bare gradients": bare(log_posterior, options),
        "symjax hmc": ours(log_posterior, options),
        "blackjax.hmc": theirs(log_posterior, options),
    }
    times = {name: [] for name in loops}
    for repeat in range(options.repeats + 1):
        for name, loop in loops.items():
            start = time.perf_counter()
            jax.block_until_ready(loop(keys, params, data))
            if repeat:
                times[name].append(time.perf_counter() - start)
    gradients = options.num_transitions * options.num_leapfrogs
    base = statistics.median(times["bare gradients"])
    print(f"{jax.devices()[0].device_kind}, {options.num_chains} chains")
    for name, values in times.items():
        median = statistics.median(values)
        print(
            f"{name:16s} {1e3 * median / gradients:8.3f} ms a gradient, "
            f"{median / base:.3f} of the bare loop "
            f"(from {min(values) / base:.3f} to {max(values) / base:.3f})"
        )


def bare(log_posterior, options):
    """Gradient ascent by hand: the gradient, one addition, and the values' sum."""

    @jax.jit
    def loop(keys, params, data):
        def body(_, carry):
            params, total = carry
            value, gradient = jax.vmap(
                jax.value_and_grad(log_posterior), in_axes=(0, None)
            )(params, data)
            params = jax.tree.map(lambda p, g: p + 1e-9 * g, params, gradient)
            return params, total + value

        num_gradients = options.num_transitions * options.num_leapfrogs
        start = params, jnp.zeros(options.num_chains)
        return jax.lax.fori_loop(0, num_gradients, body, start)

    return loop


def ours(log_posterior, options):
    algorithm = hmc.build(
        log_posterior, step_size=options.step_size, num_steps=options.num_leapfrogs
    )

    def init(keys, params, data):
        return jax.vmap(algorithm.init, (0, 0, None))(keys, params, data)

    return transitions(init, algorithm.step, options)


def theirs(log_posterior, options):
    kernel = blackjax.hmc.build_kernel()

    def init(keys, params, data):
        return jax.vmap(
            lambda p: blackjax.hmc.init(p, lambda q: log_posterior(q, data))
        )(params)

    def step(key, state, data):
        ones = jnp.ones(sum(leaf.size for leaf in jax.tree.leaves(state.position)))
        state, info = kernel(
            key,
            state,
            lambda params: log_posterior(params, data),
            options.step_size,
            ones,
            options.num_leapfrogs,
        )
        return state, info.acceptance_rate

    return transitions(init, step, options)


def transitions(init, step, options):
    start = jax.jit(init)

    @jax.jit
    def advance(keys, state, data):
        def body(i, state):
            step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, i)
            return jax.vmap(step, (0, 0, None))(step_keys, state, data)[0]

        return jax.lax.fori_loop(0, options.num_transitions, body, state)

    states = {}

    def loop(keys, params, data):
        if not states:
            states["start"] = jax.block_until_ready(start(keys, params, data))
        return advance(keys, states["start"], data)

    return loop


if __name__ == "__main__":
    main()
