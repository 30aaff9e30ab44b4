"""Mean-field variational inference: one normal for every weight, fitted by gradients.

The evidence lower bound of a posterior tempered by T is

    E_q[log likelihood] / T + E_q[log prior] / T + entropy(q),

at T = 1 the expected log likelihood less KL(q || prior). The first term is estimated
from a few draws of q by reparameterisation, which all examples of a step share or each
makes for itself (`local_noise`); the second is exact where the prior is normal, and
estimated from as many draws elsewhere.

Members are independent fits, vmapped and spread over the mesh like chains: draws of
several together are a mixture of normals.

References:
    Blundell, Cornebise, Kavukcuoglu, Wierstra (2015), Weight uncertainty in neural
    networks, sections 3.1 and 3.2.
    Kingma, Salimans, Welling (2015), Variational dropout and the local
    reparameterization trick, section 2.2.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.approximations import descent, gaussian, local_noise
from symjax.densities import Prior
from symjax.mesh import row_numbers
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


_FLAT = Prior(dist.Normal(0.0, 1.0).mask(False))
"""Adds nothing: it leaves the log likelihood alone."""


class State(NamedTuple):
    """A fit under way: the means, the logs of the deviations, the optimiser's own."""

    position: Params
    log_std: Params
    optimiser: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        elbo: Estimate of the evidence lower bound before the step, in nats.
    """

    elbo: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    batch_size: int | None = None,
    num_samples: int = 1,
    noise: str = "local",
    first_std: float = 0.05,
) -> Approximation:
    """Mean-field variational inference, one independent fit a member.

    The objective is minus the bound divided by the number of examples, so that learning
    rates mean what they mean in training. A step costs `num_samples` gradients, of
    local noise twice the products and random numbers, which on a CPU take longer still.

    Args:
        log_posterior: What is approximated, its temperature included.
        optimiser: An optax optimiser, schedule included, of means and log deviations.
        batch_size: Examples a step takes; None for the whole data set.
        num_samples: Draws of the weights in a step.
        noise: `local`: each example has its own noise where the network allows, as
            `local_noise` describes. `shared`: one draw for all examples of a step. Both
            estimate the same bound.
        first_std: Standard deviation that all weights start with, around the `params`
            that the fit starts from, in units of the parameters.

    Returns:
        `Approximation` whose `sample` draws from the fitted normals.

    Raises:
        ValueError: if `noise` is none of the two.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.adam(1e-3), batch_size=100
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, batch_size=batch_size, num_samples=num_samples)
    checks.positive(first_std=first_std)
    if noise not in ("local", "shared"):
        raise ValueError(f"`noise` must be local or shared, got {noise!r}.")

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        log_std = jax.tree.map(
            lambda leaf: jnp.full_like(leaf, math.log(first_std)), params
        )
        return State(params, log_std, optimiser.init((params, log_std)))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)

        def elbo(fitted: tuple[Params, Params]) -> Float[Array, ""]:
            q = gaussian.Gaussian(fitted[0], jax.tree.map(jnp.exp, fitted[1]))

            def expectation(key: Key) -> Float[Array, ""]:
                draw = gaussian.sample(key, q)
                if noise == "local":
                    density, params, examples = _localise(log_posterior, key, q, data)
                else:
                    density, params, examples = log_posterior, draw, data
                alone = replace(density, prior=_FLAT)
                likelihood = descent.estimate(alone, batch_size, batch_key, examples)
                prior = _expected_log_prior(log_posterior.prior, q, draw)
                return prior / log_posterior.temperature + likelihood(params)

            keys = jax.random.split(noise_key, num_samples)
            return jnp.mean(jax.vmap(expectation)(keys)) + _entropy(fitted[1])

        fitted = state.position, state.log_std
        moved, new, value = descent.step(optimiser, elbo, fitted, state.optimiser, data)
        return State(moved[0], moved[1], new), Info(value)

    def sample(key: Key, state: State) -> Params:
        std = jax.tree.map(jnp.exp, state.log_std)
        return gaussian.sample(key, gaussian.Gaussian(state.position, std))

    return Approximation(init, step, sample)


def _localise(
    log_posterior: LogPosterior, key: Key, q: gaussian.Gaussian, data: Data
) -> tuple[LogPosterior, Params, Data]:
    """The same of networks with noise of their own, its parameters and its data.

    An example's noise is that of its place in the whole data set, which goes with it to
    any device and into any micro-batch.
    """

    def apply(params: Params, x: Any) -> Any:
        (mean, std), (inputs, rows) = params, x
        return local_noise.evaluate(log_posterior.apply, key, mean, std, inputs, rows)

    x: Any = data.x, row_numbers(data)
    noisy = replace(log_posterior, apply=apply, force_apply=apply)
    return noisy, (q.mean, q.std), data._replace(x=x)


def _expected_log_prior(
    prior: Prior, q: gaussian.Gaussian, draw: Params
) -> Float[Array, ""]:
    """E_q[log prior] in nats: exact for normal priors, others at a draw of q."""
    total = jnp.zeros(())
    leaves = zip(
        prior._distributions(draw),
        *map(jax.tree.leaves, (q.mean, q.std, draw)),
        strict=True,
    )
    for distribution, mean, std, value in leaves:
        if isinstance(distribution, dist.Normal):
            nats = jnp.asarray(distribution.log_prob(mean))
            nats -= jnp.square(std / jnp.asarray(distribution.scale)) / 2
        else:
            nats = jnp.asarray(distribution.log_prob(value))
        total += jnp.sum(nats)
    return total


def _entropy(log_std: Params) -> Float[Array, ""]:
    """Of independent normals, in nats."""
    constant = (1 + math.log(2 * math.pi)) / 2
    return jnp.sum(
        jnp.stack([jnp.sum(leaf + constant) for leaf in jax.tree.leaves(log_std)])
    )
