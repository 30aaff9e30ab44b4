"""Targets whose answers are known without any sampler of symjax.

Closed forms, or long runs of numpyro's NUTS in float64 on models written for numpyro.
Read by `check_samplers.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import moments
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.stats
from numpyro.infer import MCMC, NUTS
from sampler_table import Shape

from symjax import densities, interop, posterior
from symjax.types import Data


class Target(NamedTuple):
    """A density, and the moments of some quantities under it.

    Attributes:
        log_density: `(params, data) -> nats`.
        data: Its data.
        start: `key -> params`, where a chain starts.
        shape: What samplers may know.
        quantities: `draws -> (chain, draw, quantity)`.
        truth: The moments of each quantity.
    """

    log_density: Any
    data: Any
    start: Callable
    shape: Shape
    quantities: Callable
    truth: list


def exact(distribution):
    """Moments of a distribution of SciPy."""
    values = [distribution.mean(), distribution.std(), *distribution.ppf([0.05, 0.95])]
    return moments.Moments(np.array(values), np.zeros(4))


def around(mean, scale):
    """Starts, twice as far out as the posterior reaches."""
    return lambda key: mean + 2 * scale * jax.random.normal(key, np.shape(mean))


def gaussian():
    """Ten parameters, condition number 400 of the covariance, turned off the axes."""
    scales = np.geomspace(0.05, 1.0, 10)
    turn = scipy.stats.ortho_group.rvs(10, random_state=0)
    precision = turn @ np.diag(scales**-2) @ turn.T
    deviations = np.sqrt(np.diag(turn @ np.diag(scales**2) @ turn.T))
    return Target(
        interop.from_function(lambda x: -x @ precision @ x / 2),
        None,
        around(np.zeros(10), 0.5),
        Shape(0.05, 1.0, 10),
        lambda draws: np.concatenate([draws, draws @ turn], axis=-1),
        [exact(scipy.stats.norm(0, s)) for s in (*deviations, *scales)],
    )


def skewed():
    """Logarithms of four Gamma variates, of skewness -1.1 to -0.5."""
    shapes = np.array([1.0, 1.5, 2.0, 4.0])
    return Target(
        interop.from_function(lambda x: jnp.sum(shapes * x - jnp.exp(x))),
        None,
        around(np.zeros(4), 0.5),
        Shape(0.5, 1.3, 4),
        lambda draws: draws,
        [exact(scipy.stats.loggamma(k)) for k in shapes],
    )


def funnel():
    """Neal's: v ~ N(0, 3), four of N(0, exp(v / 2)); judged by v."""

    def logdensity_fn(x):
        v, rest = x[0], x[1:]
        return -(v**2) / 18 - jnp.sum(rest**2) * jnp.exp(-v) / 2 - 2 * v

    return Target(
        interop.from_function(logdensity_fn),
        None,
        around(np.zeros(5), 0.5),
        Shape(0.3, 3.0, 5),
        lambda draws: draws[..., :1],
        [exact(scipy.stats.norm(0, 3))],
    )


def _examples(num_examples, noise):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_examples, 3)) * [1.0, 0.7, 1.5]
    return x, x @ [1.0, -1.0, 0.5] + noise * generator.logistic(size=num_examples)


def linear():
    """A regression of three weights, prior N(0, 1), noise 1: the posterior is Gaussian.

    Stochastic samplers take 25 of 100 examples.
    """
    x, y = _examples(100, 0.5)
    covariance = np.linalg.inv(x.T @ x + np.eye(3))
    mean, scales = covariance @ x.T @ y, np.sqrt(np.diag(covariance))
    axes = np.sqrt(np.linalg.eigvalsh(covariance))
    return Target(
        posterior.build(
            lambda params, x: (x @ params)[:, None],
            densities.Prior(dist.Normal(0.0, 1.0)),
            densities.gaussian(1.0),
        ),
        Data(x, y[:, None], np.ones(100, bool)),
        around(mean, scales),
        Shape(axes[0], axes[-1], 3, 25),
        lambda draws: draws,
        [exact(scipy.stats.norm(m, s)) for m, s in zip(mean, scales, strict=True)],
    )


def logistic():
    """A classification by three weights, prior N(0, 1), against numpyro's NUTS.

    Stochastic samplers take 25 of 100 examples.
    """
    x, y = _examples(100, 1.0)
    labels = (y > 0).astype(int)

    def model():
        params = numpyro.sample("params", dist.Normal(0.0, 1.0).expand([3]))
        numpyro.sample("y", dist.Bernoulli(logits=x @ params), obs=labels)

    draws = oracle(model)["params"]
    axes = np.sqrt(np.linalg.eigvalsh(np.cov(draws.reshape(-1, 3).T)))
    return Target(
        posterior.build(
            lambda params, x: jnp.stack([jnp.zeros(len(x)), x @ params], axis=1),
            densities.Prior(dist.Normal(0.0, 1.0)),
            densities.categorical,
        ),
        Data(x, labels, np.ones(100, bool)),
        around(draws.mean((0, 1)), draws.std((0, 1))),
        Shape(axes[0], axes[-1], 3, 25),
        lambda draws: draws,
        [moments.of_draws(draws[..., i]) for i in range(3)],
    )


def network(params, x):
    """1-4-1, tanh: 13 weights."""
    first, bias, last, shift = jnp.split(params, [4, 8, 12])
    return jnp.tanh(x * first + bias) @ last[:, None] + shift


def bayesian_network():
    """Predictions of a network at 5 points, 20 examples, against numpyro's NUTS.

    Its weights have 384 equivalent modes, its predictions none of that. Stochastic
    samplers take all examples, drawn with replacement.
    """
    generator = np.random.default_rng(1)
    x = np.sort(generator.uniform(-2, 2, size=(20, 1)), axis=0)
    y = np.sin(2 * x) + 0.3 * generator.normal(size=x.shape)
    points = np.linspace(-2.5, 2.5, 5)[:, None]

    def model():
        params = numpyro.sample("params", dist.Normal(0.0, 1.0).expand([13]))
        numpyro.sample("y", dist.Normal(network(params, x), 0.3), obs=y)

    @jax.jit
    @jax.vmap
    @jax.vmap
    def predict(params):
        return network(params, points)[:, 0]

    predicted = np.asarray(predict(oracle(model)["params"]))
    return Target(
        posterior.build(
            network, densities.Prior(dist.Normal(0.0, 1.0)), densities.gaussian(0.3)
        ),
        Data(x, y, np.ones(20, bool)),
        around(np.zeros(13), 0.5),
        Shape(0.1, 1.0, 13, 20),
        lambda draws: np.asarray(predict(draws)),
        [moments.of_draws(predicted[..., i]) for i in range(len(points))],
    )


def oracle(model, num_chains=16, num_draws=4000):
    """Long chains of numpyro's NUTS, `(chain, draw, ...)` by site."""
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=num_draws,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(99))
    return jax.tree.map(np.asarray, mcmc.get_samples(group_by_chain=True))


TARGETS = {
    "Gaussian": gaussian,
    "skewed": skewed,
    "funnel": funnel,
    "linear": linear,
    "logistic": logistic,
    "network": bayesian_network,
}
