"""HMC of symjax, blackjax and numpyro, with the same step and length.

Each is `(log_density, step_size, num_steps) -> (init, step)`, for one chain, with the
data as an argument: `init(key, params, data)`, `step(key, state, data)`. blackjax's and
numpyro's are called directly, as their own front ends call them.
"""

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from numpyro.infer import hmc as numpyro_hmc

from symjax.samplers import hmc


def ours(log_density, step_size, num_steps):
    """`symjax.samplers.hmc`."""
    algorithm = hmc.build(log_density, step_size=step_size, num_steps=num_steps)
    return algorithm.init, algorithm.step


def blackjaxs(log_density, step_size, num_steps):
    """`blackjax.hmc` with its stock metric and accept step."""
    kernel = blackjax.hmc.build_kernel()

    def init(key, params, data):
        return blackjax.hmc.init(params, lambda p: log_density(p, data))

    def step(key, state, data):
        ones = jnp.ones(sum(leaf.size for leaf in jax.tree.leaves(state.position)))
        density = lambda params: log_density(params, data)
        return kernel(key, state, density, step_size, ones, num_steps)

    return init, step


def numpyros(log_density, step_size, num_steps):
    """Numpyro's HMC, the kernel below its `MCMC`, without adaptation."""

    def build(key, params, data):
        start, sample = numpyro_hmc.hmc(lambda p: -log_density(p, data), algo="HMC")
        make: Any = start
        state = make(
            params,
            num_warmup=0,
            step_size=step_size,
            num_steps=num_steps,
            # Its default, 2 pi, would set the step size.
            trajectory_length=None,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            rng_key=key,
        )
        return state, sample

    def init(key, params, data):
        return build(key, params, data)[0]

    def step(key, state, data):
        # Its transition takes what its start has set up; the start's gradient is used
        # by nothing here, and left out by the compiler.
        _, sample = build(key, state.z, data)
        state = sample(state._replace(rng_key=key))
        return state, state.accept_prob

    return init, step


CONTENDERS = {"symjax": ours, "blackjax": blackjaxs, "numpyro": numpyros}


def position(state):
    """The parameters of a state of any of them."""
    return state.z if hasattr(state, "z") else state.position
