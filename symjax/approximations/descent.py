"""Steps of an optimiser up a log posterior, which several methods take.

What is minimised is minus the log posterior divided by the number of examples, so that
learning rates mean what they mean in training.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jaxtyping import Array, Float

from symjax.mesh import count_examples
from symjax.posterior import LogPosterior
from symjax.types import Data, Key, Params


def estimate(
    log_posterior: LogPosterior, batch_size: int | None, key: Key, data: Data
) -> Callable[[Params], Float[Array, ""]]:
    """The log posterior in nats: of a minibatch that `key` draws, or whole if None."""

    def log_density(params: Params) -> Float[Array, ""]:
        if batch_size is None:
            return log_posterior(params, data)
        return log_posterior.minibatch(key, params, data, batch_size)

    return log_density


def step(
    optimiser: optax.GradientTransformation,
    log_density: Callable[[Params], Float[Array, ""]],
    params: Params,
    state: Any,
    data: Data,
) -> tuple[Params, Any, Float[Array, ""]]:
    """One step.

    Args:
        optimiser: An optax optimiser.
        log_density: What to climb, in nats of all examples.
        params: Where it is.
        state: Of the optimiser.
        data: For the number of examples.

    Returns:
        Parameters, state of the optimiser, and the log density before the step.
    """
    value, gradient = jax.value_and_grad(log_density)(params)
    return *climb(optimiser, gradient, params, state, data), value


def climb(
    optimiser: optax.GradientTransformation,
    direction: Params,
    params: Params,
    state: Any,
    data: Data,
) -> tuple[Params, Any]:
    """One step along a direction, the gradient of nats of all examples or in its place.

    Args:
        optimiser: An optax optimiser.
        direction: Upwards.
        params: Where it is.
        state: Of the optimiser.
        data: For the number of examples.

    Returns:
        Parameters and state of the optimiser.
    """
    descent = optax.tree.scale(-1.0 / count_examples(data), direction)
    updates, state = optimiser.update(descent, state, params)
    return optax.apply_updates(params, updates), state
