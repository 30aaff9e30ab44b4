"""Temperature scaling: divide the logits by one number that labels choose.

References:
    Guo, Pleiss, Sun, Weinberger (2017), "On calibration of modern neural networks",
    section 4.2.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # Its parts are imported where they are used first.
from jaxtyping import Array, Float, Integer

from symjax.evaluation import arguments


_MOST = 20.0


def fit(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> float:
    """The temperature `T` with the smallest negative log likelihood, in [1/20, 20].

    Every draw's logits are divided by `T` and the softmax averaged over draws; the
    negative log likelihood of that mixture is minimised. For one draw it is convex in
    `1 / T`; for several this is a point where its derivative in `log T` is 0, to 1e-6.
    An end of the range is returned where the likelihood still grows there, as it does
    at 1/20 when every label is predicted right. About ten passes over the logits, in
    float32 on the default device.

    Args:
        logits: The outputs of every draw.
        labels: True classes.

    Returns:
        The temperature; above 1 for predictions that were too sure.
    """
    logits = arguments.logits(logits)
    labels = arguments.labels(labels, *logits.shape[2:])
    members = jnp.asarray(logits.reshape(-1, *logits.shape[2:]), jnp.float32)
    truth = jnp.asarray(labels)
    limit = math.log(_MOST)
    slope = lambda at: float(_slope(jnp.asarray(at, jnp.float32), members, truth))
    if slope(-limit) >= 0:
        return 1 / _MOST
    if slope(limit) <= 0:
        return _MOST
    found = scipy.optimize.root_scalar(slope, bracket=(-limit, limit), xtol=1e-6)
    return math.exp(found.root)


def cross_fit(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> Float[np.ndarray, "chain draw example cls"]:
    """The logits of a test set, scaled without using an example's own label.

    The examples at even places are divided by the temperature that those at odd places
    fitted, and the other way around: a measure of the result is not flattered.

    Args:
        logits: The outputs of every draw, of two examples or more.
        labels: True classes.

    Returns:
        The scaled logits, float32 as `predict` gives them.

    Example:
        >>> logits = np.random.default_rng(0).normal(size=(4, 50, 100, 10))
        >>> labels = logits[0, 0].argmax(axis=1)
        >>> cross_fit(logits, labels).shape
        (4, 50, 100, 10)
    """
    return divide(logits, fit_halves(logits, labels))


def fit_halves(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    labels: Integer[np.ndarray | Array, " label"],
) -> tuple[float, float]:
    """The temperatures for the examples at even and at odd places.

    Each is fitted to the examples at the other places.

    Args:
        logits: The outputs of every draw, of two examples or more.
        labels: True classes.

    Returns:
        The two temperatures, see `fit`.

    Raises:
        ValueError: If there are fewer than two examples.
    """
    logits = arguments.logits(logits)
    labels = arguments.labels(labels, *logits.shape[2:])
    if labels.size < 2:
        raise ValueError(
            f"`labels` must hold two examples or more, one a half; got {labels.size}."
        )
    even, odd = (fit(logits[:, :, h::2], labels[h::2]) for h in (1, 0))
    return even, odd


def divide(
    logits: Float[np.ndarray | Array, "chain draw example cls"],
    temperatures: tuple[float, float],
) -> Float[np.ndarray, "chain draw example cls"]:
    """The logits divided by one temperature at even, by the other at odd places.

    Args:
        logits: The outputs of every draw.
        temperatures: From `fit_halves`.

    Returns:
        The scaled logits, in float32.
    """
    logits = arguments.logits(logits)
    scaled = np.empty(logits.shape, np.float32)
    for half, temperature in enumerate(temperatures):
        scaled[:, :, half::2] = logits[:, :, half::2] / temperature
    return scaled


@jax.jit
def _slope(
    log_temperature: Float[Array, ""],
    members: Float[Array, "member example cls"],
    labels: Integer[Array, " example"],
) -> Float[Array, ""]:
    """The derivative of the negative log likelihood in the log of the temperature."""

    def loss(log_temperature: Float[Array, ""]) -> Float[Array, ""]:
        scaled = members * jnp.exp(-log_temperature)
        norm = jax.nn.logsumexp(scaled, axis=2)
        of_label = jnp.take_along_axis(scaled, labels[None, :, None], axis=2)[..., 0]
        return -jax.nn.logsumexp(of_label - norm, axis=0).mean()

    one = jnp.ones_like(log_temperature)
    return jax.jvp(loss, (log_temperature,), (one,))[1]
