"""Deep ensembles: independent modes of the posterior, each found from its own start.

Members are vmapped and spread over the mesh like chains. With a prior in the objective
each member is a MAP estimate, which also serves as the start of a chain.

References:
    Lakshminarayanan, Pritzel, Blundell (2017), Simple and scalable predictive
    uncertainty estimation using deep ensembles.
"""

from typing import Any, NamedTuple

import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.approximations import descent
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


class State(NamedTuple):
    """A member during its optimisation."""

    position: Params
    optimiser: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Log posterior before the step in nats; an estimate if minibatched.
    """

    log_density: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    batch_size: int | None = None,
) -> Approximation:
    """A deep ensemble, one member a chain.

    The objective is minus the log posterior divided by the number of examples, so that
    learning rates mean what they mean in training. A step costs a gradient; a member
    takes the memory of its parameters and of the optimiser's state (of Adam, twice as
    much again), so that a thousand small ones fit in one program.

    Args:
        log_posterior: What each member climbs.
        optimiser: An optax optimiser, schedule included.
        batch_size: Examples a step takes; None for the whole data set.

    Returns:
        `Approximation` whose `sample` returns the member itself.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.adam(1e-2), batch_size=64
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, batch_size=batch_size)

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        return State(params, optimiser.init(params))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        log_density = descent.estimate(log_posterior, batch_size, key, data)
        *new, value = descent.step(optimiser, log_density, *state, data)
        return State(*new), Info(value)

    def sample(key: Key, state: State) -> Params:
        del key
        return state.position

    return Approximation(init, step, sample)
