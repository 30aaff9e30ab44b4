"""Likelihoods: functions of outputs and targets, in nats per example."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Integer, Num, Real

from symjax import checks
from symjax.types import Params


SCALE_FLOOR = 1e-5
"""The least standard deviation of a learned noise, in units of the targets.

There are data with a noise of a thousandth of their spread (naval, of the UCI sets).
"""

_Array: TypeAlias = Array | np.ndarray
_Likelihood: TypeAlias = Callable[[Any, Any], Array]


def categorical(
    logits: Float[_Array, "example class"], labels: Integer[_Array, " example"]
) -> Float[Array, " example"]:
    """Log probability of each label, in nats; -inf for a label that is no class."""
    return dist.CategoricalLogits(logits=logits).log_prob(labels)


def bernoulli(
    logits: Float[_Array, "example ..."], labels: Real[_Array, " example"]
) -> Float[Array, " example"]:
    """Log probability of each label 0 or 1 given its log odds, in nats.

    Args:
        logits: Log odds of label 1, `(example, 1)` or `(example,)`.
        labels: 0 or 1.
    """
    return dist.BernoulliLogits(logits=logits.reshape(labels.shape)).log_prob(labels)


def gaussian(scale: float) -> _Likelihood:
    """Independent Gaussian noise of a known standard deviation.

    Args:
        scale: Standard deviation, in units of the targets.

    Returns:
        `(means (example, output), targets (example, output) or (example,))` to nats.
    """
    checks.positive(scale=scale)

    def likelihood(
        means: Float[_Array, "example output"], targets: Real[_Array, "example ..."]
    ) -> Float[Array, " example"]:
        targets = targets.reshape(means.shape)
        return dist.Normal(means, scale).log_prob(targets).sum(axis=-1)

    return likelihood


def heteroscedastic(
    outputs: Float[_Array, "example twice_output"], targets: Real[_Array, "example ..."]
) -> Float[Array, " example"]:
    """Independent Gaussian noise whose standard deviation is an output, in nats.

    Args:
        outputs: Means, then raw scales, as `mean_and_scale` reads them.
        targets: `(example, output)`, or `(example,)` where there is one output.
    """
    mean, scale = mean_and_scale(outputs)
    return dist.Normal(mean, scale).log_prob(targets.reshape(mean.shape)).sum(axis=-1)


def mean_and_scale(
    outputs: Float[_Array, "*batch twice_output"],
) -> tuple[Float[Array, "*batch output"], Float[Array, "*batch output"]]:
    """The means and standard deviations in a heteroscedastic network's outputs.

    scale = softplus(raw) + `SCALE_FLOOR`: without the floor the density is unbounded
    where a mean meets its target.
    """
    mean, raw = jnp.split(outputs, 2, axis=-1)
    return mean, jax.nn.softplus(raw) + SCALE_FLOOR


def learned_noise(apply: Callable[[Params, Any], Any]) -> Callable[[Params, Any], Any]:
    """A network of means with one learned noise for all examples.

    Args:
        apply: `(params, x) -> means (example, output)`.

    Returns:
        `apply` over the params of `add_noise`, whose outputs are those of a
        heteroscedastic network; its likelihood is `heteroscedastic`.
    """

    def apply_with_noise(
        params: Params, x: Num[_Array, "example ..."]
    ) -> Float[Array, "example twice_output"]:
        means = apply(params["model"], x)
        raw = jnp.broadcast_to(params["noise"], means.shape)
        return jnp.concatenate([means, raw], axis=-1)

    return apply_with_noise


def add_noise(
    params: Params, *, scale: float, num_outputs: int | None = None
) -> Params:
    """Parameters of a network with learned noise, from those of its means.

    Args:
        params: Of the network of means.
        scale: Standard deviation to start from, in units of the targets.
        num_outputs: For one noise an output; None for one noise in all.

    Returns:
        `{"model": params, "noise": raw}`. The noise has a prior like any parameter:
        its rule's pattern is `noise`.

    Raises:
        ValueError: if `scale` is not above `SCALE_FLOOR`.
    """
    checks.at_least(1, num_outputs=num_outputs)
    if scale <= SCALE_FLOOR:
        raise ValueError(f"`scale` must be above {SCALE_FLOOR}, got {scale}.")
    raw = np.log(np.expm1(scale - SCALE_FLOOR))
    shape = () if num_outputs is None else (num_outputs,)
    return {"model": params, "noise": jnp.full(shape, raw, jnp.float32)}
