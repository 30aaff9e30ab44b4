"""Sums of many numbers that keep what rounding takes from them.

A float32 near 10^6 is off by up to 0.03, so that two such sums say little about a
change of order one. Here every addition keeps its rounding error beside it.

References:
    Knuth (1997), The art of computer programming, volume 2, section 4.2.2, theorem B.
    Ogita, Rump, Oishi (2005), Accurate sum and dot product, section 4.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


_FEW = 16
"""Numbers that are added one by one; of more there are about as many rows."""
_WIDTH = 4096
"""Of a row, at most."""


class Sum(NamedTuple):
    """A sum of which `value` is the nearest float, and `rest` what that leaves out."""

    value: Float[Array, "*terms"]
    rest: Float[Array, "*terms"]


def add(one: Sum, other: Sum) -> Sum:
    """The sum of both; of one that is not finite, without a rest."""
    near = one.value + other.value
    added = near - one.value
    lost = (one.value - (near - added)) + (other.value - added)
    rest = one.rest + other.rest + lost
    value = near + rest
    is_finite = jnp.isfinite(value)
    left = jnp.where(is_finite, rest - (value - near), 0)
    return Sum(jnp.where(is_finite, value, near), left)


def merge(parts: Sum) -> Sum:
    """The sum of sums along the first axis, the only one.

    Many are added row by row, as a CPU takes ten times as long for one by one.
    """
    count = len(parts.value)
    if count <= _FEW:
        zero = jnp.zeros((), parts.value.dtype)
        return jax.lax.reduce(
            parts, Sum(zero, zero), lambda a, b: add(Sum(*a), Sum(*b)), (0,)
        )
    width = min(_WIDTH, -(-count // _FEW))
    rows = jax.tree.map(
        lambda leaf: jnp.pad(leaf, (0, -count % width)).reshape(-1, width), parts
    )
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), rows)
    return merge(jax.lax.scan(lambda sums, row: (add(sums, row), None), zeros, rows)[0])


def total(numbers: Float[Array, " terms"]) -> Sum:
    """The sum of `numbers`."""
    return merge(Sum(numbers, jnp.zeros_like(numbers)))


def difference(one: Sum, other: Sum) -> Float[Array, ""]:
    """`one` less `other`, to the precision of the difference."""
    return (one.value - other.value) + (one.rest - other.rest)
