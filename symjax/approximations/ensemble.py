"""Deep ensembles: independent modes of the posterior, each found from its own start.

Members are vmapped and spread over the mesh like chains. With a prior in the objective
each member is a MAP estimate, which also serves as the start of a chain.

References:
    Lakshminarayanan, Pritzel, Blundell (2017), Simple and scalable predictive
    uncertainty estimation using deep ensembles.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symjax import checks
from symjax.mesh import sum_over_data
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
    learning rates mean what they mean in training.

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
        def log_density(params: Params) -> Float[Array, ""]:
            if batch_size is None:
                return log_posterior(params, data)
            return log_posterior.minibatch(key, params, data, batch_size)

        value, gradient = jax.value_and_grad(log_density)(state.position)
        num_examples = sum_over_data(jnp.sum(data.mask))
        descent = optax.tree.scale(-1.0 / num_examples, gradient)
        updates, new = optimiser.update(descent, state.optimiser, state.position)
        return State(optax.apply_updates(state.position, updates), new), Info(value)

    def sample(key: Key, state: State) -> Params:
        del key
        return state.position

    return Approximation(init, step, sample)
