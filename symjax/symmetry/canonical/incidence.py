"""Which entries of a parameter belong to which unit of a group: sums and spreads."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped
from scipy import sparse

from symjax.symmetry.spec import Axis, Factor


class _Block(NamedTuple):
    """Where the units of an `Axis` lie among the array axes that it involves.

    Attributes:
        involved: The array axes.
        positions: Along each of them, broadcasting to `(*batch, unit, *rest)`.
    """

    involved: tuple[int, ...]
    positions: tuple[np.ndarray, ...]

    def is_whole(self, sizes: Sequence[int]) -> bool:
        """Whether units and array come in the same order, so that a reshape will do."""
        flat = np.ravel_multi_index(np.broadcast_arrays(*self.positions), sizes).ravel()
        return flat.size == math.prod(sizes) and bool(np.all(np.diff(flat) == 1))


def _block(axis: Axis) -> _Block:
    factors = (*axis.batch, axis.unit, *axis.rest)
    starts = dict(axis.starts)
    involved = tuple(sorted({factor.axis for factor in factors} | set(starts)))
    return _Block(
        involved, tuple(_positions(factors, i, starts.get(i, 0)) for i in involved)
    )


def _positions(factors: Sequence[Factor], array_axis: int, start: int) -> np.ndarray:
    steps = [
        np.arange(factor.size) * factor.stride if factor.axis == array_axis else 0
        for factor in factors
    ]
    open_grid = np.ix_(*(np.atleast_1d(step) for step in steps))
    return functools.reduce(np.add, open_grid, np.asarray(start))


def collect(
    axis: Axis, array: Shaped[Array, "..."], reduce: Callable = jnp.sum
) -> Shaped[Array, "..."]:
    """Reduce an array of a parameter's shape over the entries of each unit.

    Args:
        axis: Where the units lie.
        array: One value for each entry of the parameter.
        reduce: `jnp.sum`, `jnp.max` or the like.

    Returns:
        One value for each unit, `(*batch, unit)`.
    """
    block = _block(axis)
    others = tuple(i for i in range(array.ndim) if i not in block.involved)
    within = reduce(array, axis=others)
    if block.is_whole(within.shape):
        within = within.reshape(
            np.broadcast_shapes(*(p.shape for p in block.positions))
        )
    else:
        within = within[block.positions]
    return reduce(within, axis=tuple(range(len(axis.batch) + 1, within.ndim)))


def patterns(axes: Sequence[Axis], shape: Sequence[int]) -> set[tuple[int, ...]]:
    """Which axes meet: the sets of indices into `axes` whose blocks share an entry.

    Args:
        axes: Axes of one parameter.
        shape: Its shape.

    Returns:
        One increasing tuple for each kind of entry of the parameter.
    """
    kinds = []
    for i, size in enumerate(shape):
        inside = np.ones((len(axes), size), bool)
        for row, axis in zip(inside, axes, strict=True):
            block = dict(zip(*_block(axis), strict=True))
            if i in block:
                row[:] = False
                row[block[i]] = True
        kinds.append(np.unique(inside, axis=1).T)
    return {
        tuple(np.flatnonzero(np.logical_and.reduce(kind)).tolist())
        for kind in itertools.product(*kinds)
    }


def orbits(axes: Sequence[Axis], shape: Sequence[int]) -> list[np.ndarray]:
    """Which positions the permutations of units bring to one another.

    Args:
        axes: Axes of one parameter.
        shape: Its shape.

    Returns:
        For each axis of the parameter, a number for each position; positions have the
        same if units move one to the other.
    """
    numbers = []
    for i, size in enumerate(shape):
        pairs = [np.zeros((2, 0), int)]
        for axis in axes:
            if axis.unit.axis == i:
                block = dict(zip(*_block(axis), strict=True))[i]
                units = np.moveaxis(block, len(axis.batch), 0)
                pairs.append(np.stack([units[:-1].ravel(), units[1:].ravel()]))
        one, other = np.concatenate(pairs, axis=1)
        joined = sparse.coo_array((np.ones(len(one)), (one, other)), (size, size))
        numbers.append(sparse.csgraph.connected_components(joined)[1])
    return numbers


def num_entries(axis: Axis, shape: Sequence[int]) -> int:
    """How many entries of a parameter of this shape each unit has."""
    others = (size for i, size in enumerate(shape) if i not in _block(axis).involved)
    return math.prod((*(factor.size for factor in axis.rest), *others))
