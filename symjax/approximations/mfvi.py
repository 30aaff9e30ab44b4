"""Mean-field variational inference: one normal for every weight, fitted by gradients.

The evidence lower bound of a posterior tempered by T is

    E_q[log likelihood] / T + E_q[log prior] / T + entropy(q),

at T = 1 the expected log likelihood less KL(q || prior). The first term is estimated
from a few draws of q by reparameterisation, all examples of a step sharing a draw; the
second is exact where the prior is normal, and estimated from the same draws elsewhere.

Members are independent fits, vmapped and spread over the mesh like chains: draws of
several together are a mixture of normals.

References:
    Blundell, Cornebise, Kavukcuoglu, Wierstra (2015), Weight uncertainty in neural
    networks, sections 3.1 and 3.2.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.approximations import gaussian
from symjax.densities import Prior
from symjax.mesh import sum_over_data
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


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
    first_std: float = 0.05,
) -> Approximation:
    """Mean-field variational inference, one independent fit a member.

    The objective is minus the bound divided by the number of examples, so that learning
    rates mean what they mean in training. A step costs `num_samples` gradients.

    Args:
        log_posterior: What is approximated, its temperature included.
        optimiser: An optax optimiser, schedule included, of means and log deviations.
        batch_size: Examples a step takes; None for the whole data set.
        num_samples: Draws of the weights in a step.
        first_std: Standard deviation that all weights start with, around the `params`
            that the fit starts from, in units of the parameters.

    Returns:
        `Approximation` whose `sample` draws from the fitted normals.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.adam(1e-3), batch_size=100
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, batch_size=batch_size, num_samples=num_samples)
    checks.positive(first_std=first_std)

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        log_std = jax.tree.map(
            lambda leaf: jnp.full_like(leaf, math.log(first_std)), params
        )
        return State(params, log_std, optimiser.init((params, log_std)))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)

        def negative_elbo(fitted: tuple[Params, Params]) -> Float[Array, ""]:
            q = gaussian.Gaussian(fitted[0], jax.tree.map(jnp.exp, fitted[1]))

            def log_density(key: Key) -> Float[Array, ""]:
                params = gaussian.sample(key, q)
                exact = _to_expectation(log_posterior.prior, q, params)
                exact = exact / log_posterior.temperature
                if batch_size is None:
                    return exact + log_posterior(params, data)
                return exact + log_posterior.minibatch(
                    batch_key, params, data, batch_size
                )

            keys = jax.random.split(noise_key, num_samples)
            return -jnp.mean(jax.vmap(log_density)(keys)) - _entropy(fitted[1])

        fitted = state.position, state.log_std
        value, gradient = jax.value_and_grad(negative_elbo)(fitted)
        num_examples = sum_over_data(jnp.sum(data.mask))
        descent = optax.tree.scale(1.0 / num_examples, gradient)
        updates, new = optimiser.update(descent, state.optimiser, fitted)
        moved: Any = optax.apply_updates(fitted, updates)
        return State(moved[0], moved[1], new), Info(-value)

    def sample(key: Key, state: State) -> Params:
        std = jax.tree.map(jnp.exp, state.log_std)
        return gaussian.sample(key, gaussian.Gaussian(state.position, std))

    return Approximation(init, step, sample)


def _to_expectation(
    prior: Prior, q: gaussian.Gaussian, params: Params
) -> Float[Array, ""]:
    """E_q[log prior] less the log prior at a draw of q, in nats.

    Of normal priors, where the expectation is known; those of other families add
    nothing, and are estimated by their value at the draw.
    """
    total = jnp.zeros(())
    leaves = zip(
        prior._distributions(params),
        *map(jax.tree.leaves, (q.mean, q.std, params)),
        strict=True,
    )
    for distribution, mean, std, draw in leaves:
        if isinstance(distribution, dist.Normal):
            loc, scale = map(jnp.asarray, (distribution.loc, distribution.scale))
            excess = jnp.square(draw - loc) - jnp.square(mean - loc) - jnp.square(std)
            total += jnp.sum(excess / jnp.square(scale)) / 2
    return total


def _entropy(log_std: Params) -> Float[Array, ""]:
    """Of independent normals, in nats."""
    constant = (1 + math.log(2 * math.pi)) / 2
    return jnp.sum(
        jnp.stack([jnp.sum(leaf + constant) for leaf in jax.tree.leaves(log_std)])
    )
