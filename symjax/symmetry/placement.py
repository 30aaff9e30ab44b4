"""One axis of one parameter: reorder or multiply its units."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Num, Shaped

from symjax.symmetry.spec import Axis


def reorder(
    axis: Axis,
    permutation: Int[Array, "..."],
    leaf: Shaped[Array | np.ndarray, "..."],
) -> Shaped[Array, "..."]:
    """Put at unit `u` of each block what was at unit `permutation[u]`.

    Args:
        axis: Where the units lie.
        permutation: One for each block, `(*batch, unit)`.
        leaf: The parameter.

    Returns:
        The parameter, reordered.
    """
    unit = axis.unit
    shift = unit.stride * (permutation - jnp.arange(unit.size))
    others = tuple(i for i in range(leaf.ndim) if i != unit.axis)
    here = np.expand_dims(np.arange(leaf.shape[unit.axis]), others)
    source = here + spread(axis, shift, leaf.shape)
    return jnp.take_along_axis(jnp.asarray(leaf), source, unit.axis)


def multiply(
    axis: Axis, factor: Num[Array, "..."], leaf: Num[Array | np.ndarray, "..."]
) -> Num[Array, "..."]:
    """Multiply each unit of each block, rounding once to the dtype of the parameter.

    Args:
        axis: Where the units lie.
        factor: One number for each unit, `(*batch, unit)`.
        leaf: The parameter.

    Returns:
        The parameter, multiplied.
    """
    product = jnp.multiply(leaf, spread(axis, factor, leaf.shape or (1,), outside=1))
    return product.astype(leaf.dtype).reshape(leaf.shape)


def spread(
    axis: Axis, values: Num[Array, "..."], shape: Sequence[int], *, outside: int = 0
) -> Num[Array, "..."]:
    """Give every entry of a parameter the value of its unit.

    Args:
        axis: Where the units lie.
        values: One value for each unit, `(*batch, unit)`.
        shape: The parameter's shape.
        outside: The value of entries that belong to no unit.

    Returns:
        An array that broadcasts to `shape`.
    """
    units = _units(axis, shape)
    if np.array_equal(units.ravel(), np.arange(values.size)):
        return values.reshape(units.shape)
    others = jnp.full(1, outside, values.dtype)
    return jnp.concatenate([values.ravel(), others])[units]


def _units(axis: Axis, shape: Sequence[int]) -> Int[np.ndarray, "..."]:
    """The unit, counted over all blocks, that lies at each place of the involved axes.

    Places outside the blocks have a number one higher; axes that are not involved have
    length 1, so that the table is as small as can be.
    """
    factors = (*axis.batch, axis.unit, *axis.rest)
    places = {axis_of: np.asarray(start) for axis_of, start in axis.starts}
    for factor, step in zip(
        factors, np.ix_(*(np.arange(factor.size) for factor in factors)), strict=True
    ):
        places[factor.axis] = places.get(factor.axis, 0) + factor.stride * step
    involved = sorted(places)
    blocks = (*(factor.size for factor in axis.batch), axis.unit.size)
    num_units = int(np.prod(blocks))
    table = np.full([shape[i] for i in involved], num_units)
    table[tuple(places[i] for i in involved)] = np.arange(num_units).reshape(
        *blocks, *(1 for _ in axis.rest)
    )
    return np.expand_dims(table, tuple(i for i in range(len(shape)) if i not in places))
