"""The joint distribution of parameters and data, which a right sampler keeps.

Parameters from the prior and data from the likelihood make one exact draw of the joint
distribution, and the parameters an exact draw of their posterior given these data.
Transitions that leave every posterior unchanged therefore leave the joint distribution
unchanged (Geweke 2004, section 3). Thousands of such pairs, each moved by a few
transitions given its own data, must look like fresh ones. They are independent, so that
Kolmogorov-Smirnov's p-values are exact; a false alarm has a probability below 1e-4.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from symjax import densities, posterior
from symjax.samplers import (
    adjusted_mclmc,
    dynamic_hmc,
    ghmc,
    hmc,
    mala,
    mclmc,
    nuts,
    split_hmc,
)
from symjax.types import Data


NUM_PAIRS = 20_000
NUM_TESTS = 10
X = np.linspace(-1.5, 1.5, 6, dtype=np.float32)[:, None]
PRIOR = densities.Prior({"scale": dist.Normal(0.0, 0.5), "*": dist.Laplace(0.0, 1.0)})


def network(params, x):
    """Two tanh units with a learned noise: 5 weights and a raw scale."""
    mean = jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]
    return jnp.concatenate([mean, jnp.broadcast_to(params["scale"], mean.shape)], 1)


def draw_pair(key):
    shapes = {
        "in": jnp.zeros((1, 2)),
        "bias": jnp.zeros(2),
        "out": jnp.zeros((2, 1)),
        "scale": jnp.zeros(()),
    }
    params_key, data_key = jax.random.split(key)
    params = PRIOR.sample(params_key, shapes)
    mean, scale = densities.mean_and_scale(network(params, X))
    y = mean + scale * jax.random.normal(data_key, mean.shape)
    return params, y


def move(key, params, y, algorithm, num_transitions):
    data = Data(jnp.asarray(X), y, jnp.ones(len(X), bool))
    init_key, key = jax.random.split(key)
    state = algorithm.init(init_key, params, data)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

    def advance(i, state):
        return algorithm.step(jax.random.fold_in(key, i), state, data)[0]

    return jax.lax.fori_loop(0, num_transitions, advance, state).position


def statistics(params, y):
    """What is compared: of the parameters, and of parameters and data together."""
    mean, scale = densities.mean_and_scale(network(params, X))
    units = params["in"][0] * params["out"][:, 0]
    return jnp.stack(
        [
            params["in"][0, 0],
            jnp.abs(params["in"]).sum(),
            params["bias"].max(),
            jnp.abs(params["out"]).max(),
            params["scale"],
            units.sum(),
            jnp.mean((y - mean) ** 2),
            jnp.mean((y - mean) ** 2 / scale**2),
            jnp.mean(y * mean),
            scale.mean(),
        ]
    )


@functools.cache
def pairs():
    """Those to be moved, and the statistics of others that are left as they are."""
    keys = jax.random.split(jax.random.key(0), (2, NUM_PAIRS))
    fresh = jax.vmap(statistics)(*jax.vmap(draw_pair)(keys[1]))
    return *jax.vmap(draw_pair)(keys[0]), np.asarray(fresh)


def p_values(algorithm, num_transitions=3):
    params, y, fresh = pairs()
    move_all = jax.jit(
        jax.vmap(lambda key, p, y: move(key, p, y, algorithm, num_transitions))
    )
    moved = move_all(jax.random.split(jax.random.key(1), NUM_PAIRS), params, y)
    after = np.asarray(jax.vmap(statistics)(moved, y))
    assert after.shape == (NUM_PAIRS, NUM_TESTS)
    assert np.mean(after[:, 0] != np.asarray(params["in"][:, 0, 0])) > 0.5
    return np.array(
        [
            scipy.stats.ks_2samp(a, b, method="asymp").pvalue
            for a, b in zip(after.T, fresh.T, strict=True)
        ]
    )


def log_posterior(**options):
    return posterior.build(network, PRIOR, densities.heteroscedastic, **options)


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (hmc, {"step_size": 0.2, "num_steps": 4}),
        (dynamic_hmc, {"step_size": 0.2, "trajectory_length": 0.8}),
        (nuts, {"step_size": 0.2, "max_num_doublings": 4}),
        (mala, {"step_size": 0.05}),
        (ghmc, {"step_size": 0.2, "damping": 0.7}),
        # Blocks of two examples; steps so coarse that many are refused.
        (split_hmc, {"step_size": 0.4, "trajectory_length": 0.8, "num_blocks": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", "").rpartition(".")[2],
)
def test_the_joint_distribution_is_kept(sampler, options):
    algorithm = sampler.build(log_posterior(), **options)
    assert p_values(algorithm).min() > 1e-4 / NUM_TESTS


def test_adjusted_mclmc_keeps_the_joint_distribution():
    """At a step at which MCLMC does not, where none of its steps is refused."""
    options = {"step_size": 0.9}
    algorithm = adjusted_mclmc.build(log_posterior(), trajectory_length=2.7, **options)
    assert p_values(algorithm).min() > 1e-4 / NUM_TESTS
    unadjusted = mclmc.build(
        log_posterior(), decoherence_length=2.7, target_energy_variance=1e4, **options
    )
    assert p_values(unadjusted, num_transitions=9).min() < 1e-8


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("no accept step", {"num_unadjusted": 100}),
        ("another temperature", {"temperature": 0.8}),
    ],
)
def test_a_fault_is_seen(fault, options):
    """The test above has the power to see what it is for."""
    temperature = options.pop("temperature", 1.0)
    algorithm = hmc.build(
        log_posterior(temperature=temperature), step_size=0.2, num_steps=4, **options
    )
    assert p_values(algorithm).min() < 1e-8
