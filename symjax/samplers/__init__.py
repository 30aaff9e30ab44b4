"""Markov chains, one kernel a module: `build(...) -> Algorithm`.

Samplers don't import each other. What they share stands here, or in `symjax.energies`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from blackjax.adaptation.step_size import (
    DualAveragingAdaptationState,
    dual_averaging_adaptation,
)
from jaxtyping import Array, Float, Int

from symjax import checks, trees
from symjax.types import Data, Key, Params


ADAPTATION_GAMMA = 0.5
"""Shrinkage of dual averaging. In thousands of dimensions acceptance falls from 1 to 0
within a factor of two of the step size; the usual 0.05 then throws the step size up and
down by factors of ten, and its average comes out too small."""

Adaptation: TypeAlias = DualAveragingAdaptationState

Schedule: TypeAlias = Callable[[Any], Any]
"""`iteration (from 0) -> number`, as optax makes them."""


class StepSizeWarmup(NamedTuple):
    """How the step size of a chain adapts during its first iterations.

    Attributes:
        init: `() -> adaptation`, its state before the first iteration.
        update: `(adaptation, step_size, iteration, acceptance_rate) -> (adaptation,
            step_size)` after iteration `iteration` (from 0) with that step size;
            neither changes after the warm-up.
    """

    init: Callable[[], Adaptation]
    update: Callable[..., tuple[Adaptation, Float[Array, ""]]]


def step_size_warmup(
    step_size: float, *, num_warmup: int, target_acceptance: float
) -> StepSizeWarmup:
    """Dual averaging of the step size towards an acceptance probability.

    Args:
        step_size: The first one.
        num_warmup: Iterations that adapt it; from then on it is their average.
        target_acceptance: What it aims at, between 0 and 1.

    Returns:
        Its two functions.

    Raises:
        ValueError: if `target_acceptance` is not between 0 and 1.

    References:
        Hoffman and Gelman (2014), The No-U-Turn sampler, section 3.2.
    """
    checks.positive(step_size=step_size)
    checks.at_least(0, num_warmup=num_warmup)
    if not 0 < target_acceptance < 1:
        raise ValueError(
            f"`target_acceptance` must be between 0 and 1, got {target_acceptance}."
        )
    begin, average, final = dual_averaging_adaptation(
        target_acceptance, gamma=ADAPTATION_GAMMA
    )

    def init() -> Adaptation:
        # blackjax draws the step size towards ten times the first one, for those who
        # have no idea of it; here it was given.
        adaptation = begin(step_size)._replace(mu=math.log(step_size))
        return jax.tree.map(jnp.asarray, adaptation)

    def update(
        adaptation: Adaptation,
        step_size: Float[Array, ""],
        iteration: Int[Array, ""],
        acceptance_rate: Float[Array, ""],
    ) -> tuple[Adaptation, Float[Array, ""]]:
        if not num_warmup:
            return adaptation, step_size
        is_warmup = iteration < num_warmup
        adaptation = jax.tree.map(
            lambda new, old: jnp.where(is_warmup, new, old),
            average(adaptation, acceptance_rate),
            adaptation,
        )
        tried = jnp.exp(adaptation.log_step_size)
        is_last = iteration + 1 >= num_warmup
        return adaptation, jnp.where(is_last, final(adaptation), tried)

    return StepSizeWarmup(init, update)


def minibatch_gradient(
    log_posterior: Any, batch_size: int
) -> Callable[[Key, Params, Data], tuple[Float[Array, ""], Params]]:
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
        key: Key, params: Params, data: Data
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
