"""Underdamped Langevin dynamics by the BAOAB splitting, with minibatch gradients.

blackjax has no such splitting for a momentum with friction: its `integrators` are
either Hamiltonian or isokinetic, and evaluate a density of their own.

References:
    Leimkuhler, Matthews (2013), Rational construction of stochastic numerical methods
    for molecular sampling, eq. 10 and section 4.
    Leimkuhler, Matthews (2015), Molecular dynamics, section 7.3.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Float, Int

from symjax import checks, gradients
from symjax.samplers import (
    Schedule,
    as_schedule,
    full_noise,
    kinetic_temperature,
)
from symjax.types import Algorithm, Key, Params


class State(NamedTuple):
    """Position, momentum and steps of a chain; what its gradients carry along.

    The momentum is that after a whole kick: the two half kicks between which a step of
    BAOAB ends take the same gradient.
    """

    position: Params
    momentum: Params
    iteration: Int[Array, ""]
    estimate: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Minibatch estimate of the log posterior after the step, in nats.
        kinetic_temperature: Mean squared momentum between the two half kicks; 1 on
            average, less e^2 / (4 s^2) in a direction of standard deviation s, when
            the gradient noise is small beside the injected noise.
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
    """BAOAB: an unadjusted sampler, biased by its step size and its gradient noise.

    With step size e, friction a, c = exp(-a e) and standard normal n, one step is

        x <- x + e/2 p
        p <- c p + sqrt(1 - c^2) n
        x <- x + e/2 p
        p <- p + e grad(x)

    at the cost of one minibatch gradient. These are the positions of BAOAB whose last
    half kick shares its minibatch with the first one of the next step. With exact
    gradients the positions of a Gaussian have its very variance at every stable step
    size (e < 2 s), and the bias is of order e^2 elsewhere. Gradient noise of variance V
    heats as in SGHMC, by about e V / (2 a). The temperature is the log posterior's own.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`.
        step_size: e, in units of the parameters, or an optax schedule of the
            iteration.
        friction: a, per unit of time.
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
    checks.positive(friction=friction)
    checks.at_least(0, num_warmup=num_warmup)
    schedule = as_schedule(step_size)
    estimator = gradients.build(
        log_posterior, batch_size=batch_size, batches=batches, anchor=anchor
    )

    def init(key: Key, params: Params, data: Any) -> State:
        key, estimate_key = jax.random.split(key)
        momentum = generate_gaussian_noise(key, params)
        estimate = estimator.init(estimate_key, params, data)
        return State(params, momentum, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)
        size = schedule(state.iteration)
        halfway = optax.tree.add_scale(state.position, size / 2, state.momentum)
        momentum = refresh(noise_key, state.momentum, size, noise(state.iteration))
        position = optax.tree.add_scale(halfway, size / 2, momentum)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, position, data
        )
        between = optax.tree.add_scale(momentum, size / 2, gradient)
        momentum = optax.tree.add_scale(momentum, size, gradient)
        info = Info(value, kinetic_temperature(between), size)
        return State(position, momentum, state.iteration + 1, estimate), info

    def refresh(
        key: Key, momentum: Params, size: Float[Array, ""], share: Any
    ) -> Params:
        """Friction and noise, solved exactly."""
        # expm1 keeps the noise of a small step.
        scale = jnp.sqrt(-jnp.expm1(-2 * friction * size) * share)
        fresh = optax.tree.scale(scale, generate_gaussian_noise(key, momentum))
        return optax.tree.add_scale(fresh, jnp.exp(-friction * size), momentum)

    return Algorithm(init, step, num_warmup, schedule)
