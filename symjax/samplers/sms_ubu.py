"""Underdamped Langevin dynamics by UBU, its minibatches swept there and back.

blackjax has no integrator that solves free motion with friction and noise exactly.

References:
    Paulin, Whalley, Chada, Leimkuhler (2025), Sampling from Bayesian neural network
    posteriors with symmetric minibatch splitting Langevin dynamics, section 3.
    Sanz-Serna, Zygalakis (2021), Wasserstein distance estimates for the distributions
    of numerical approximations to ergodic stochastic differential equations, section 7.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Float, Int

from symjax import checks, gradients
from symjax.samplers import Schedule, as_schedule, full_noise, kinetic_temperature
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
        log_density: Minibatch estimate of the log posterior in the middle of the step,
            in nats.
        kinetic_temperature: Mean squared momentum after the step. Within a sweep the
            noise of the batches so far heats it; at both ends it is 1 on average, to
            second order in the step size.
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
    anchor: int | str | None = None,
    noise: Schedule = full_noise,
    num_warmup: int = 0,
) -> Algorithm:
    """SMS-UBU: an unadjusted sampler, of second order in its step size.

    With step size e and friction a, one step is

        U(e/2), then p <- p + e grad(x), then U(e/2)

    where U(t) is the exact solution of dx = p dt, dp = -a p dt + sqrt(2 a) dW, at the
    cost of one minibatch gradient. The batches are those of a random partition of the
    data, forwards and then backwards, then those of another one. Their noise cancels
    over a sweep, so that the bias is of order e^2, where that of fresh minibatches is
    of order e: about (e b)^2 for b batches in a partition, and least at the end of a
    sweep, so that a multiple of 2 b is the best `thinning`. The temperature is the log
    posterior's own.

    Args:
        log_posterior: From `posterior.build`, or anything with its `batch`; without
            one, each step takes a `minibatch`, as if it were all data.
        step_size: e, in units of the parameters, or an optax schedule of the
            iteration.
        friction: a, per unit of time.
        batch_size: Examples a gradient takes, over all devices of a chain. Where it
            does not divide the data, the last batch of a partition has fewer.
        anchor: Control variates, to lessen gradient noise: None, `start` or a number
            of steps, as in `gradients.build`.
        noise: Schedule of what multiplies the variance of dW; 0 descends without noise.
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
        log_posterior,
        batch_size=batch_size,
        batches="sweep" if hasattr(log_posterior, "batch") else "replacement",
        anchor=anchor,
    )

    def init(key: Key, params: Params, data: Any) -> State:
        key, estimate_key = jax.random.split(key)
        momentum = generate_gaussian_noise(key, params)
        estimate = estimator.init(estimate_key, params, data)
        return State(params, momentum, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, first_key, last_key = jax.random.split(key, 3)
        size, share = schedule(state.iteration), noise(state.iteration)
        motion = _motion(size / 2, friction, share)
        position, momentum = _move(first_key, state.position, state.momentum, motion)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, position, data
        )
        momentum = optax.tree.add_scale(momentum, size, gradient)
        position, momentum = _move(last_key, position, momentum, motion)
        info = Info(value, kinetic_temperature(momentum), size)
        return State(position, momentum, state.iteration + 1, estimate), info

    return Algorithm(init, step, num_warmup, schedule)


class _Motion(NamedTuple):
    """Free motion over some time, which is linear and Gaussian.

    Attributes:
        decay: Share of the momentum that is left.
        way: Way that a unit of momentum leads.
        kick: Standard deviation of the momentum's noise.
        shared: Way for a unit of the momentum's own noise, before scaling by `kick`.
        apart: Standard deviation of the way's noise that is independent of it.
    """

    decay: Float[Array, ""]
    way: Float[Array, ""]
    kick: Float[Array, ""]
    shared: Float[Array, ""]
    apart: Float[Array, ""]


def _motion(time: Float[Array, ""], friction: float, share: Any) -> _Motion:
    """Free motion over `time`, its noise of a variance multiplied by `share`.

    With u = a t: the momentum's noise has the variance 1 - exp(-2 u), the position's
    (2 u - 3 + 4 exp(-u) - exp(-2 u)) / a^2, and their covariance is
    (1 - exp(-u))^2 / a.
    """
    u = friction * time
    lost = -jnp.expm1(-u)
    kick = -jnp.expm1(-2 * u)
    covariance = lost**2 / friction
    apart = _position_variance(u) / friction**2 - covariance**2 / kick
    return _Motion(
        jnp.exp(-u),
        lost / friction,
        jnp.sqrt(kick * share),
        jnp.sqrt(share / kick) * covariance,
        jnp.sqrt(apart * share),
    )


def _position_variance(u: Float[Array, ""]) -> Float[Array, ""]:
    """2 u - 3 + 4 exp(-u) - exp(-2 u), which is about 2 u^3 / 3 for a small u.

    Its terms would cancel there, and its own series is summed instead.
    """
    term, series = jnp.ones_like(u), jnp.zeros_like(u)
    for k in range(1, 14):
        term = term * -u / k
        if k > 2:
            series += (4 - 2.0**k) * term
    whole = 2 * u - 3 + 4 * jnp.exp(-u) - jnp.exp(-2 * u)
    return jnp.where(u < 0.5, series, whole)


def _move(
    key: Key, position: Params, momentum: Params, motion: _Motion
) -> tuple[Params, Params]:
    """Position and momentum after free motion, whose noises are correlated."""
    one, other = (generate_gaussian_noise(k, position) for k in jax.random.split(key))

    def drift(x: Array, p: Array, n: Array, m: Array) -> Array:
        return x + motion.way * p + motion.shared * n + motion.apart * m

    position = jax.tree.map(drift, position, momentum, one, other)
    momentum = optax.tree.add_scale(
        optax.tree.scale(motion.decay, momentum), motion.kick, one
    )
    return position, momentum
