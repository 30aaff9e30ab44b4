"""Correlations of the activations of two networks, accumulated over batches.

Sums within a batch are of values less their mean in that batch, at full float32
precision, and batches are joined without subtracting one sum from another.

References:
    Chan, Golub, LeVeque (1983), Algorithms for computing the sample variance, equation
    1.5.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from symjax.symmetry.matching.blocks import Layout


CONSTANT = 1e-12
"""A unit varies if its variance is above this part of the square of its mean."""


class Moments(NamedTuple):
    """Sums over the samples of one tap, for `fixed` copies of a group.

    Attributes:
        samples: How many samples.
        mean: Of each unit of the reference, or 0 where nothing is centred.
        other_mean: Of each unit of the network.
        square: Sums of squares, less the mean.
        other_square: The same of the network.
        product: Sums of products of each pair of units.
    """

    samples: Float[Array, ""]
    mean: Float[Array, "fixed unit"]
    other_mean: Float[Array, "fixed unit"]
    square: Float[Array, "fixed unit"]
    other_square: Float[Array, "fixed unit"]
    product: Float[Array, "fixed unit unit2"]


def of_batch(
    split: Layout,
    tap: Num[Array, "sample ..."],
    other: Num[Array, "sample ..."],
    *,
    centred: bool,
) -> Moments:
    """The moments of one tap `(sample, *batch, unit)` of a reference and a network.

    Units of all blocks that are permuted stand along one axis.
    """
    one, two = (_arranged(split, values) for values in (tap, other))
    weight = 1.0 if centred else 0.0
    mean, other_mean = (weight * jnp.mean(values, axis=1) for values in (one, two))
    one, two = one - mean[:, None], two - other_mean[:, None]
    return Moments(
        jnp.full((), one.shape[1], one.dtype),
        mean,
        other_mean,
        jnp.sum(one**2, axis=1),
        jnp.sum(two**2, axis=1),
        jnp.einsum("fsu,fsv->fuv", one, two, precision=jax.lax.Precision.HIGHEST),
    )


def _arranged(
    split: Layout, values: Num[Array, "sample ..."]
) -> Float[Array, "fixed sample unit"]:
    fixed, moving = ([1 + i for i in axes] for axes in (split.fixed, split.moving))
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    values = values.transpose(*fixed, 0, *moving, values.ndim - 1)
    copies, samples = values.shape[: len(fixed)], values.shape[len(fixed)]
    return values.reshape(math.prod(copies), samples, -1)


def merge(one: Moments, two: Moments) -> Moments:
    """The moments of two batches together."""
    count = one.samples + two.samples
    share = two.samples / count
    weight = one.samples * share
    step, other_step = two.mean - one.mean, two.other_mean - one.other_mean
    between = step[:, :, None] * other_step[:, None, :]
    return Moments(
        count,
        one.mean + share * step,
        one.other_mean + share * other_step,
        one.square + two.square + weight * step**2,
        one.other_square + two.other_square + weight * other_step**2,
        one.product + two.product + weight * between,
    )


def similarity(
    moments: Moments, *, normalised: bool
) -> Float[Array, "fixed unit unit2"]:
    """Correlations, or mean products if not normalised; 0 for units that don't vary."""
    if not normalised:
        return moments.product / moments.samples
    one = _inverse_norm(moments.square, moments.mean, moments.samples)
    two = _inverse_norm(moments.other_square, moments.other_mean, moments.samples)
    return moments.product * one[:, :, None] * two[:, None, :]


def _inverse_norm(
    square: Float[Array, "fixed unit"],
    mean: Float[Array, "fixed unit"],
    count: Float[Array, ""],
) -> Float[Array, "fixed unit"]:
    # Not-a-number has to stay, so that the caller can tell.
    constant = square <= CONSTANT * count * mean**2
    return jnp.where(constant, 0, jax.lax.rsqrt(jnp.where(constant, 1, square)))
