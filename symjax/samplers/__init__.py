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
from symjax.types import Params


Schedule: TypeAlias = Callable[[Any], Any]
"""`iteration (from 0) -> number`, as optax makes them."""


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
