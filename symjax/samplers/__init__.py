"""Markov chains, one kernel a module: `build(...) -> Algorithm`.

Samplers don't import each other. What they share stands here, or, for Hamiltonian ones,
in `symjax.energies`, `symjax.hamiltonian` and `symjax.warmup`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symjax import checks, trees
from symjax.types import Key, Params


Schedule: TypeAlias = Callable[[Any], Any]
"""`iteration (from 0) -> number`, as optax makes them."""


def minibatch_gradient(
    log_posterior: Any, batch_size: int
) -> Callable[[Key, Params, Any], tuple[Float[Array, ""], Params]]:
    """The estimate that stochastic-gradient samplers follow.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`.
        batch_size: Examples a gradient takes, over all devices of a chain.

    Returns:
        `(key, params, data) -> (log posterior in nats, its gradient)`.

    Raises:
        TypeError: if `log_posterior` has no minibatch estimate.
    """
    checks.at_least(1, batch_size=batch_size)
    if not hasattr(log_posterior, "minibatch"):
        raise TypeError(
            "`log_posterior` must have a `minibatch` estimate, got "
            f"{type(log_posterior).__name__}. Make it with `posterior.build`."
        )
    estimate = jax.value_and_grad(log_posterior.minibatch, argnums=1)

    def value_and_gradient(
        key: Key, params: Params, data: Any
    ) -> tuple[Float[Array, ""], Params]:
        return estimate(key, params, data, batch_size)

    return value_and_gradient


def as_schedule(step_size: float | Schedule) -> Schedule:
    """A step size for every iteration, as float arrays.

    Args:
        step_size: One for all, or a schedule.
    """
    if not callable(step_size):
        checks.positive(step_size=step_size)
        step_size = optax.constant_schedule(step_size)
    schedule = step_size
    return lambda iteration: jnp.asarray(schedule(iteration), float)


def full_noise(iteration: Any) -> float:
    """The `noise` schedule of a sampler: 1, all that the target asks for."""
    del iteration
    return 1.0


def check_friction(step_size: float | Schedule, friction: float) -> None:
    """Require that one step does not turn the momentum round.

    Raises:
        ValueError: if step size times friction exceeds 1.
    """
    checks.positive(friction=friction)
    if not callable(step_size) and step_size * friction > 1:
        raise ValueError(
            "`step_size` * `friction` must be at most 1, got "
            f"{step_size} * {friction} = {step_size * friction:.3g}."
        )


def kinetic_temperature(momentum: Params) -> Float[Array, ""]:
    """The mean squared momentum, 1 on average at the target's temperature."""
    return optax.tree.norm(momentum, squared=True) / trees.size(momentum)
