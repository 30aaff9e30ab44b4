"""Snapshot ensembles: several networks of one optimisation, one at the end of a cycle.

The learning rate falls along a cosine to nearly zero, where a network is kept, and
jumps up again, to find another one. The networks cost one training together, and are
less independent than those of an ensemble.

It is built as an `Algorithm`, a chain without noise but its minibatches: `run.sample`
keeps, stores and resumes its networks like draws.

References:
    Huang, Li, Pleiss, Liu, Hopcroft, Weinberger (2017), Snapshot ensembles: train 1,
    get M for free, section 3 and eq. 2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.approximations import descent
from symjax.posterior import LogPosterior
from symjax.types import Algorithm, Data, Key, Params


class State(NamedTuple):
    """The network, and the state of the optimiser, which counts the steps."""

    position: Params
    optimiser: Any


class Info(NamedTuple):
    """What the last step of a cycle saw, as scalars.

    Attributes:
        log_density: Log posterior before that step in nats; an estimate if minibatched.
    """

    log_density: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: Callable[..., optax.GradientTransformation],
    learning_rate: float,
    cycle_length: int,
    batch_size: int | None = None,
) -> Algorithm:
    """Snapshot ensembles; one iteration is a whole cycle and its end a draw.

    In step t of C of a cycle, from 0, the learning rate is
    `learning_rate` / 2 (1 + cos(pi t / C)). The optimiser's momentum goes on from cycle
    to cycle. The objective is minus the log posterior divided by the number of
    examples. A cycle costs `cycle_length` gradients.

    Args:
        log_posterior: What is climbed.
        optimiser: `schedule -> optimiser`, such as `optax.sgd`.
        learning_rate: At the start of each cycle.
        cycle_length: Steps of a cycle.
        batch_size: Examples a step takes; None for the whole data set.

    Returns:
        `Algorithm`, for `run.sample` with as many draws as there are cycles.

    Example:
        >>> algorithm = build(
        ...     log_posterior,
        ...     optimiser=optax.adam,
        ...     learning_rate=1e-2,
        ...     cycle_length=1000,
        ...     batch_size=64,
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, cycle_length=cycle_length, batch_size=batch_size)
    checks.positive(learning_rate=learning_rate)

    def schedule(step: Any) -> Any:
        passed = step % cycle_length / cycle_length
        # The same as above, but 1 + cos would round to 0 at the end of a long cycle.
        return learning_rate * jnp.cos(jnp.pi / 2 * passed) ** 2

    cyclical = optimiser(schedule)

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        return State(params, cyclical.init(params))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        def advance(index: Any, carry: tuple[State, Any]) -> tuple[State, Any]:
            own = jax.random.fold_in(key, index)
            log_density = descent.estimate(log_posterior, batch_size, own, data)
            *new, value = descent.step(cyclical, log_density, *carry[0], data)
            return State(*new), value

        first = (state, jnp.zeros(()))
        state, value = jax.lax.fori_loop(0, cycle_length, advance, first)
        return state, Info(value)

    return Algorithm(init, step)
