"""Posteriors that are known exactly, and many short chains in them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from symjax import densities, posterior
from symjax.types import Data


NO_DATA = Data(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1, bool))
# For programs that run for longer than they take to compile.
BETTER = {"xla_backend_optimization_level": 1}


class Gaussian(NamedTuple):
    """Independent normals; its gradients carry noise of a known standard deviation."""

    precision: float | np.ndarray = 1.0
    noise: float = 0.0

    def minibatch(self, key, params, data, batch_size):
        noise = self.noise * jax.random.normal(key, params.shape)
        return jnp.sum(noise * params - self.precision * params**2 / 2)


def regression(num_examples):
    """A linear regression whose posterior is Gaussian, with its mean and covariance."""
    generator = np.random.default_rng(2)
    x = generator.normal(size=(num_examples, 2)).astype(np.float32)
    y = (x @ [1.0, -0.5] + generator.normal(size=num_examples)).astype(np.float32)
    data = Data(x, y[:, None], np.ones(num_examples, bool))
    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    return data, covariance @ x.T @ y, covariance


def log_posterior(**options):
    """That of the regression, in parameters of shape (2, 1)."""
    return posterior.build(
        lambda params, x: x @ params,
        densities.Prior(dist.Normal(0.0, 1.0)),
        densities.gaussian(1.0),
        **options,
    )


def simulate(algorithm, start, num_steps, *, data=NO_DATA, num_chains=400, discard=0.2):
    """Chains from one start: the last state, and what each later step left.

    Positions are `(chain, step, ...)`, fields of Info `(chain, step)`. The first part
    of the steps is left out.
    """

    def chain(key):
        first_key, key = jax.random.split(key)

        def advance(state, key):
            state, info = algorithm.step(key, state, data)
            return state, (state.position, info)

        first = algorithm.init(first_key, jnp.asarray(start, float), data)
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), first)
        return jax.lax.scan(advance, first, jax.random.split(key, num_steps))

    keys = jax.random.split(jax.random.key(0), num_chains)
    is_long = num_chains * num_steps * len(data.x) > 10**6
    options = BETTER if is_long else None
    state, made = jax.jit(jax.vmap(chain), compiler_options=options)(keys)
    begin = int(discard * num_steps)
    return state, *jax.tree.map(lambda leaf: np.asarray(leaf)[:, begin:], made)


def assert_mean(values, expected, bias=0.0):
    """Within 5 standard errors, and a bias relative to `expected`.

    `(chain, step)`; the chains are independent and at least 100, so that their means
    tell the standard error, and a false alarm has a probability of 3e-6. The error must
    be small enough to tell.
    """
    means = np.asarray(values, np.float64).mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(len(means))
    assert abs(means.mean() - expected) < 5 * error + bias * abs(expected)
    assert error < 0.03 * max(np.std(values), abs(expected))


def assert_regression(positions, temperature, bias):
    """Positions `(chain, step, 2, 1)` in the regression's posterior of 20 examples."""
    _, mean, covariance = regression(20)
    factor = np.linalg.cholesky(temperature * covariance)
    white = (positions[..., 0] - mean) @ np.linalg.inv(factor).T
    for i in range(2):
        assert_mean(white[..., i], 0)
        assert_mean(white[..., i] ** 2, 1, bias)
    assert_mean(1 + white[..., 0] * white[..., 1], 1, bias)
