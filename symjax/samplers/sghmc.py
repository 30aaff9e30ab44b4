"""Stochastic-gradient Hamiltonian Monte Carlo, its momentum kept between steps.

blackjax's `diffusions.sghmc` moves position and momentum. Its own `sghmc` kernel draws
a new momentum at every call, uses one key twice, and takes the gradient where the
position was: explicit Euler, which heats the chain (variance 1.19 instead of 1.00 on a
Gaussian, at a step where the order of eq. 15 gives 1.00).

References:
    Chen, Fox, Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo, eq. 15.
    Ma, Chen, Fox (2015), A complete recipe for stochastic gradient MCMC, section 4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.sgmcmc import diffusions
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Float, Int

from symjax import checks, gradients
from symjax.samplers import (
    Schedule,
    as_schedule,
    check_friction,
    full_noise,
    kinetic_temperature,
)
from symjax.types import Algorithm, Key, Params


class State(NamedTuple):
    """Position, momentum and steps of a chain; what its gradients carry along."""

    position: Params
    momentum: Params
    iteration: Int[Array, ""]
    estimate: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Minibatch estimate of the log posterior after the step, in nats.
        kinetic_temperature: Mean squared momentum; 1 on average when the gradient
            noise is small beside the injected noise.
        step_size: Step size used.
    """

    log_density: Float[Array, ""]
    kinetic_temperature: Float[Array, ""]
    step_size: Float[Array, ""]


def build(
    log_posterior: Any,
    *,
    step_size: float | Schedule,
    friction: float,
    batch_size: int,
    batches: str = "replacement",
    anchor: int | str | None = None,
    noise: Schedule = full_noise,
    num_warmup: int = 0,
) -> Algorithm:
    """SGHMC: an unadjusted sampler, biased by its step size and its gradient noise.

    With step size e, friction a and standard normal n, one step is

        x <- x + e p
        p <- (1 - a e) p + e grad(x) + sqrt(2 a e) n

    at the cost of one minibatch gradient, taken at the new position. The temperature is
    the log posterior's own.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`.
        step_size: e, in units of the parameters, or an optax schedule of the
            iteration.
        friction: a, per unit of time; a * e must not exceed 1.
        batch_size: Examples a gradient takes, over all devices of a chain.
        batches: How they are chosen: `replacement`, `epoch` or `sweep`, as in
            `gradients.build`.
        anchor: Control variates, to lessen gradient noise: None, `start` or a number
            of steps, as in `gradients.build`.
        noise: Schedule of what multiplies the variance of n; 0 descends without noise.
        num_warmup: First iterations, which are not kept.

    Returns:
        `Algorithm`.

    Example:
        >>> algorithm = build(
        ...     log_posterior, step_size=1e-3, friction=30.0, batch_size=64
        ... )  # doctest: +SKIP
    """
    check_friction(step_size, friction)
    checks.at_least(0, num_warmup=num_warmup)
    schedule = as_schedule(step_size)
    estimator = gradients.build(
        log_posterior, batch_size=batch_size, batches=batches, anchor=anchor
    )
    move: Callable[..., Any] = diffusions.sghmc(alpha=friction, beta=0.0)

    def init(key: Key, params: Params, data: Any) -> State:
        key, estimate_key = jax.random.split(key)
        momentum = generate_gaussian_noise(key, params)
        estimate = estimator.init(estimate_key, params, data)
        return State(params, momentum, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)
        size = schedule(state.iteration)
        ahead = optax.tree.add_scale(state.position, size, state.momentum)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, ahead, data
        )
        position, momentum = move(
            noise_key,
            state.position,
            state.momentum,
            gradient,
            size,
            noise(state.iteration),
        )
        info = Info(value, kinetic_temperature(momentum), size)
        return State(position, momentum, state.iteration + 1, estimate), info

    return Algorithm(init, step, num_warmup, schedule)
