"""Stochastic-gradient Langevin dynamics, with an optional diagonal preconditioner.

The step is blackjax's `diffusions.overdamped_langevin`. It takes one step size for all
parameters; with a preconditioner it moves the parameters divided by their scale.

References:
    Welling, Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics,
    eq. 4; their step size is twice the one here.
    Li, Chen, Carlson, Carin (2016), Preconditioned stochastic gradient Langevin
    dynamics for deep neural networks, Algorithm 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.sgmcmc import diffusions
from jaxtyping import Array, Float, Int

from symjax import checks, gradients, trees
from symjax.samplers import Schedule, as_schedule, full_noise
from symjax.types import Algorithm, Key, Params


PRECONDITIONERS = ("rmsprop", "adaptive_rmsprop", "corrected_rmsprop")

_WIDTH = 1e-3
"""Of the differences of gradients that make second derivatives, as a share of the usual
size of a parameter: far above rounding."""


class State(NamedTuple):
    """Position of a chain, how many steps it has made, and what it carries along.

    Attributes:
        position: Parameters.
        mean_square: Running mean of the squared gradient, like the parameters; empty
            without a preconditioner.
        iteration: Steps made.
        estimate: What its gradients carry along.
    """

    position: Params
    mean_square: Params
    iteration: Int[Array, ""]
    estimate: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Minibatch estimate of the log posterior before the step, in nats.
        step_size: Step size used.
    """

    log_density: Float[Array, ""]
    step_size: Float[Array, ""]


def build(
    log_posterior: Any,
    *,
    step_size: float | Schedule,
    batch_size: int,
    batches: str = "replacement",
    anchor: int | str | None = None,
    preconditioner: str | None = None,
    decay: float = 0.99,
    damping: float = 1.0,
    noise: Schedule = full_noise,
    num_warmup: int = 0,
) -> Algorithm:
    """SGLD: an unadjusted sampler, biased by its step size and its gradient noise.

    With step size e, preconditioner G (1 without one) and standard normal n, one step

        x <- x + e G grad(x) + sqrt(2 e G) n

    costs one minibatch gradient. On a Gaussian of variance s^2 with an exact gradient
    the variance of the chain is s^2 / (1 - e G / (2 s^2)). The temperature is the log
    posterior's own.

    The preconditioner is G = 1 / (damping + sqrt(v)), v the running mean of the squared
    gradient, without its bias towards zero. A G that follows x calls for another drift,
    Gamma = sum_j dG_ij / dx_j, which takes second derivatives.

    - `rmsprop` learns G in the warm-up and keeps it from then on: Gamma is zero, and
      the target is the posterior.
    - `adaptive_rmsprop` goes on learning and drops Gamma, as Li et al. do. Where v
      follows x faster than x moves, a parameter alone then has the density posterior /
      G instead, which is broader.
    - `corrected_rmsprop` goes on learning and adds e Gamma to the step: its target is
      the posterior again. The second derivatives of the batch are estimated without
      bias along one random direction of signs (Hutchinson), which takes two more
      gradients and adds noise where parameters are many and depend on each other.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`.
        step_size: e, in squared units of the parameters (with a preconditioner, in
            units of the parameters), or an optax schedule of the iteration.
        batch_size: Examples a gradient takes, over all devices of a chain.
        batches: How they are chosen: `replacement`, `epoch` or `sweep`, as in
            `gradients.build`.
        anchor: Control variates, to lessen gradient noise: None, `start` or a number
            of steps, as in `gradients.build`.
        preconditioner: `rmsprop`, `adaptive_rmsprop`, `corrected_rmsprop` or None.
        decay: Weight of the past in v, in [0, 1).
        damping: In nats per unit of the parameters; gradients well below it count as
            equal. The gradient is that of the whole log posterior: Li et al.'s lambda
            times the number of examples.
        noise: Schedule of what multiplies the variance of n; 0 descends without noise.
        num_warmup: First iterations, which are not kept.

    Returns:
        `Algorithm`.

    Example:
        >>> algorithm = build(
        ...     log_posterior, step_size=1e-6, batch_size=64
        ... )  # doctest: +SKIP
    """
    checks.positive(damping=damping)
    checks.at_least(0, num_warmup=num_warmup)
    _check_preconditioner(preconditioner, decay, num_warmup)
    num_learning = num_warmup if preconditioner == "rmsprop" else jnp.inf
    schedule = as_schedule(step_size)
    estimator = gradients.build(
        log_posterior, batch_size=batch_size, batches=batches, anchor=anchor
    )
    move: Callable[..., Any] = diffusions.overdamped_langevin()

    def init(key: Key, params: Params, data: Any) -> State:
        mean_square = optax.tree.zeros_like(params) if preconditioner else ()
        estimate = estimator.init(key, params, data)
        return State(params, mean_square, jnp.array(0), estimate)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        batch_key, noise_key = jax.random.split(key)
        size, share = schedule(state.iteration), noise(state.iteration)
        value, gradient, estimate = estimator.estimate(
            batch_key, state.estimate, state.position, data
        )
        if preconditioner is None:
            position = move(noise_key, state.position, gradient, size, share)
            return State(position, (), state.iteration + 1, estimate), Info(value, size)
        mean_square, root = _precondition(state, gradient, num_learning, decay, damping)
        # The change alone, from zero: dividing the position and multiplying it again
        # would round it at every step.
        origin = optax.tree.zeros_like(state.position)
        scaled = optax.tree.mul(root, gradient)
        change = move(noise_key, origin, scaled, size, share)
        position = optax.tree.add(state.position, optax.tree.mul(root, change))
        if preconditioner == "corrected_rmsprop":
            curvature = _second_derivatives(batch_key, state, data, estimator)
            slope = _slope(state, gradient, curvature, mean_square, decay, damping)
            position = optax.tree.add_scale(position, size, slope)
        state = State(position, mean_square, state.iteration + 1, estimate)
        return state, Info(value, size)

    return Algorithm(init, step, num_warmup, schedule)


def _check_preconditioner(
    preconditioner: str | None, decay: float, num_warmup: int
) -> None:
    """Check what belongs to it.

    Raises:
        ValueError: if there is no such preconditioner, if `rmsprop` has no warm-up to
            learn in, or if `decay` is not in [0, 1).
    """
    if preconditioner not in (None, *PRECONDITIONERS):
        raise ValueError(
            f"`preconditioner` must be one of {', '.join(PRECONDITIONERS)} or None, "
            f"got {preconditioner!r}."
        )
    if preconditioner == "rmsprop" and num_warmup == 0:
        raise ValueError(
            "`num_warmup` must be at least 1 for the preconditioner rmsprop, which is "
            "learnt in the warm-up, got 0."
        )
    if not 0 <= decay < 1:
        raise ValueError(f"`decay` must be at least 0 and below 1, got {decay}.")


def _precondition(
    state: State,
    gradient: Params,
    num_learning: int | float,
    decay: float,
    damping: float,
) -> tuple[Params, Params]:
    """The running mean square after this step, and the square root of G."""
    mean_square = optax.tree.where(
        state.iteration < num_learning,
        optax.tree.update_moment_per_elem_norm(gradient, state.mean_square, decay, 2),
        state.mean_square,
    )
    count = jnp.minimum(state.iteration + 1, num_learning)
    unbiased = optax.tree.bias_correction(mean_square, decay, count)
    root = jax.tree.map(lambda v: jax.lax.rsqrt(damping + jnp.sqrt(v)), unbiased)
    return mean_square, root


def _second_derivatives(key: Key, state: State, data: Any, estimator: Any) -> Params:
    """An estimate of each parameter's own, from the step's batch."""
    signs = optax.tree.random_like(
        jax.random.fold_in(key, 1), state.position, jax.random.rademacher
    )
    usual = optax.tree.norm(state.position) / trees.size(state.position) ** 0.5
    width = _WIDTH * jnp.maximum(usual, _WIDTH)
    ends = [
        estimator.estimate(
            key,
            state.estimate,
            optax.tree.add_scale(state.position, sign * width, signs),
            data,
        )[1]
        for sign in (1, -1)
    ]
    change = optax.tree.scale(1 / (2 * width), optax.tree.sub(*ends))
    return optax.tree.mul(signs, change)


def _slope(
    state: State,
    gradient: Params,
    curvature: Params,
    mean_square: Params,
    decay: float,
    damping: float,
) -> Params:
    """Gamma: the derivative of each parameter's G by that parameter."""
    weight = (1 - decay) / (1 - decay ** (state.iteration + 1.0))
    unbiased = optax.tree.bias_correction(mean_square, decay, state.iteration + 1)

    def one(g: Array, h: Array, v: Array) -> Array:
        root = jnp.sqrt(v)
        # Where no gradient was seen there is no slope either.
        direction = jnp.where(root > 0, g / jnp.where(root > 0, root, 1), 0)
        return -weight * direction * h / (damping + root) ** 2

    return jax.tree.map(one, gradient, curvature, unbiased)
