"""Stochastic-gradient Nose-Hoover thermostat, its momentum kept between steps.

The friction is a variable of the chain, which grows while the momentum is hotter than
the target and falls while it is colder: it takes out what heat the noise of the
minibatches brings, without being told how much.

blackjax's `diffusions.sgnht` moves position, momentum and friction. Its own `sgnht`
kernel takes the gradient where the position was: explicit Euler, which heats every
direction by its own curvature, and one friction can't take that out.

References:
    Ding, Fang, Babbush, Chen, Skeel, Neven (2014), Bayesian sampling using stochastic
    gradient thermostats, Algorithm 2.
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
    """Position, momentum, friction and steps; what the gradients carry along."""

    position: Params
    momentum: Params
    friction: Float[Array, ""]
    iteration: Int[Array, ""]
    estimate: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Minibatch estimate of the log posterior after the step, in nats.
        kinetic_temperature: Mean squared momentum; the thermostat holds its average
            at 1.
        friction: The friction after the step, per unit of time.
        step_size: Step size used.
    """

    log_density: Float[Array, ""]
    kinetic_temperature: Float[Array, ""]
    friction: Float[Array, ""]
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
    """SGNHT: an unadjusted sampler, biased by its step size, less by gradient noise.

    With step size e, injected friction a, standard normal n, and the mean over all d
    parameters, one step is

        x <- x + e p
        p <- (1 - z e) p + e grad(x) + sqrt(2 a e) n
        z <- z + e (mean(p^2) - 1)

    at the cost of one minibatch gradient, taken at the new position. z starts at a;
    gradient noise of variance V in every direction takes it to about a + e V / 2. Noise
    that differs between directions, or with the position, is taken out on average only.
    On a Gaussian of variance s^2 the variance of the chain is s^2 (1 - e z / 2). The
    temperature is the log posterior's own.

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
        noise: Schedule of what multiplies the variance of n and the 1 that the
            thermostat aims at; 0 descends without noise.
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
    move: Callable[..., Any] = diffusions.sgnht(alpha=friction, beta=0.0)

    def init(key: Key, params: Params, data: Any) -> State:
        key, estimate_key = jax.random.split(key)
        momentum = generate_gaussian_noise(key, params)
        estimate = estimator.init(estimate_key, params, data)
        thermostat = jnp.array(friction, float)
        return State(params, momentum, thermostat, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)
        size = schedule(state.iteration)
        ahead = optax.tree.add_scale(state.position, size, state.momentum)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, ahead, data
        )
        position, momentum, thermostat = move(
            noise_key,
            state.position,
            state.momentum,
            state.friction,
            gradient,
            size,
            noise(state.iteration),
        )
        info = Info(value, kinetic_temperature(momentum), thermostat, size)
        return State(
            position, momentum, thermostat, state.iteration + 1, estimate
        ), info

    return Algorithm(init, step, num_warmup, schedule)
