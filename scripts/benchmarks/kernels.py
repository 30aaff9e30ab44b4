"""Chains of symjax, blackjax and numpyro that `samplers` compares."""

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

from symjax import isokinetic, mesh, trees
from symjax.samplers import chees, hmc, mclmc, nuts


LENGTH = 0.3 * hmc.rule_length(1.0)
"""Of HMC's trajectories: on small networks better than the rule itself."""


class Chains(NamedTuple):
    """A contender after its warm-up.

    `sample` is `number of the repeat -> (draws, gradients)`; `settled` tells where the
    chains are and their step sizes, `() -> (params, (chain,))`.
    """

    sample: Callable
    settled: Callable | None = None


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

    return Chains(take, lambda: (states[0].position, sizes[0]))


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
    """A kernel of blackjax, from where `of` is and with the step sizes it found."""

    def start(problem, options, found):
        first, transition = build(problem, options)
        params, sizes = found[of].settled()
        problem = problem._replace(start=params)

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
    key, start = jax.random.key(options.seed + 1), problem.start
    if options.num_chains == 1:  # It takes no axis of chains then.
        start = jax.tree.map(lambda leaf: leaf[0], start)
    mcmc.warmup(key, init_params=start, collect_warmup=False)

    # In a loop like that of the others: `MCMC.run` compiles again at each call.
    @jax.jit
    def run(state):
        def draw(state, _):
            state = kernel.sample(state, (), {})
            return state, (state.z, state.num_steps)

        return jax.lax.scan(draw, state, length=options.num_draws)

    states = [mcmc.post_warmup_state]

    def sample(repeat):
        del repeat  # The state has its keys.
        state, (draws, used) = jax.block_until_ready(run(states[0]))
        states[:] = [state]
        shape = options.num_draws, options.num_chains
        draws = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[used.ndim :]), draws)
        draws = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)
        return draws, int(np.sum(np.asarray(used), dtype=np.int64))

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
