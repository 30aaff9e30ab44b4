"""Parameters cut into boxes, in each of which the same groups act everywhere.

A `Box` is the part of a parameter that the same axes of groups cover, as an array with
one dimension for each kind of unit (and others for what no group moves). There a
permutation reorders one dimension, for each index of its batch, and signs multiply
along dimensions, however units were flattened, packed or interleaved in the parameter.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Num, Shaped

from symjax.symmetry.spec import Axis, Group, Spec


class Place(NamedTuple):
    """Where a group acts in a box.

    Attributes:
        group: Its number in `spec.permutations` or `spec.signs`.
        dims: The dimensions of its batch, then that of its units.
    """

    group: int
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Box:
    """One part of one parameter.

    Attributes:
        path: The parameter.
        tables: For each axis of the parameter, which positions are taken, in order.
        shape: Of the box.
        permutations: The permutations that act here.
        signs: The signs that act here.
    """

    path: str
    tables: tuple[Int[np.ndarray, " _"], ...]
    shape: tuple[int, ...]
    permutations: tuple[Place, ...]
    signs: tuple[Place, ...]

    def size_of(self, dims: Sequence[int]) -> int:
        """The number of indices along some dimensions."""
        return math.prod(self.shape[dim] for dim in dims)

    def extract(self, leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """The box of a parameter."""
        leaf = jnp.atleast_1d(leaf)
        for axis, table in enumerate(self.tables):
            start, size = int(table[0]), len(table)
            if np.array_equal(table, np.arange(start, start + size)):
                leaf = jax.lax.slice_in_dim(leaf, start, start + size, axis=axis)
            else:
                leaf = jnp.take(leaf, table, axis=axis)
        return leaf.reshape(self.shape)


@functools.cache
def cut(spec: Spec) -> tuple[Box, ...]:
    """The boxes of all parameters that permutations or signs act on."""
    return tuple(
        box
        for path, shape in spec.shapes
        for box in _cut_one(path, shape or (1,), _acting(spec, path, shape or (1,)))
    )


def reorder(
    box: Shaped[Array, "..."], dims: Sequence[int], permutation: Int[Array, "..."]
) -> Shaped[Array, "..."]:
    """Put at unit `u` of each batch what was at unit `permutation[u]`.

    Args:
        box: What is reordered.
        dims: Its dimensions of the batch, then that of the units.
        permutation: One for each index of the batch.

    Returns:
        The box.
    """
    *batch, unit = dims
    # A gather of rows, which is far quicker than one of single numbers.
    move = functools.partial(jnp.take, axis=unit - sum(dim < unit for dim in batch))
    for depth, dim in reversed(list(enumerate(batch))):
        at = dim - sum(outer < dim for outer in batch[:depth])
        move = jax.vmap(move, in_axes=(at, 0), out_axes=at)
    return move(box, permutation)


def multiply(
    box: Num[Array, "..."], dims: Sequence[int], signs: Num[Array, "..."]
) -> Num[Array, "..."]:
    """Multiply each unit; `dims` as in `reorder`."""
    signs = signs.transpose(np.argsort(dims).tolist()).astype(box.dtype)
    return box * jnp.expand_dims(signs, [i for i in range(box.ndim) if i not in dims])


class _Acting(NamedTuple):
    """A group at one of its axes.

    Attributes:
        group: The group.
        number: Its number among those of its kind.
        inside: For each axis of the parameter, which positions it covers.
        digits: For each axis of the parameter, `(slot, units)` of each kind of unit
            that lies along it: the unit at each position. Slots count the batch, then
            the units.
    """

    group: Group
    number: int
    inside: tuple[np.ndarray, ...]
    digits: tuple[tuple[tuple[int, np.ndarray], ...], ...]


def _acting(spec: Spec, path: str, shape: Sequence[int]) -> list[_Acting]:
    found = []
    for groups in (spec.permutations, spec.signs):
        for number, group in enumerate(groups):
            for axis in group.axes:
                odd = group.kind == "permutation" or axis.exponent % 2
                if axis.path == path and odd:
                    parts = [_along_axis(axis, i, size) for i, size in enumerate(shape)]
                    found.append(_Acting(group, number, *zip(*parts, strict=True)))
    return found


def _along_axis(
    axis: Axis, array_axis: int, size: int
) -> tuple[np.ndarray, tuple[tuple[int, np.ndarray], ...]]:
    """Which positions along an array axis are covered, and by which units."""
    labelled = list(enumerate((*axis.batch, axis.unit)))
    here = [
        (slot, factor)
        for slot, factor in (*labelled, *((None, factor) for factor in axis.rest))
        if factor.axis == array_axis
    ]
    if not here:
        return np.ones(size, bool), ()
    grid = np.indices([factor.size for _, factor in here]).reshape(len(here), -1)
    positions = dict(axis.starts)[array_axis] + sum(
        factor.stride * digit for (_, factor), digit in zip(here, grid, strict=True)
    )
    inside = np.zeros(size, bool)
    inside[positions] = True
    digits = []
    for (slot, _), digit in zip(here, grid, strict=True):
        if slot is not None:
            units = np.full(size, -1)
            units[positions] = digit
            digits.append((slot, units))
    return inside, tuple(digits)


def _cut_one(path: str, shape: Sequence[int], acting: list[_Acting]) -> list[Box]:
    if not acting:
        return []
    parts = []
    for i in range(len(shape)):
        covered = np.stack([one.inside[i] for one in acting])
        _, part = np.unique(covered, axis=1, return_inverse=True)
        parts.append([np.flatnonzero(part == k) for k in range(part.max() + 1)])
    boxes = []
    for positions in itertools.product(*parts):
        here = [
            one
            for one in acting
            if all(one.inside[i][p[0]] for i, p in enumerate(positions))
        ]
        if here:
            boxes.append(_box(path, positions, here))
    return boxes


def _box(path: str, positions: Sequence[np.ndarray], acting: list[_Acting]) -> Box:
    tables, shape = [], []
    dims: dict[tuple[int, int], int] = {}  # by group acting and slot
    for i, taken in enumerate(positions):
        labels: dict[tuple, int] = {}
        for which, one in enumerate(acting):
            for slot, units in one.digits[i]:
                kind = (*one.group.batch, one.group.units)[slot]
                label = kind, tuple(units[taken].tolist())
                dims[which, slot] = len(shape) + labels.setdefault(label, len(labels))
        units = [np.array(label[1]) for label in labels]
        sizes = [int(unit.max()) + 1 for unit in units]
        rest = len(taken) // math.prod(sizes)
        # Positions of one unit keep their order, which moving the units doesn't change.
        order = np.lexsort((taken, *reversed(units)))
        assert all(
            np.array_equal(unit[order], digit)
            for unit, digit in zip(
                units,
                np.indices((*sizes, rest)).reshape(len(sizes) + 1, -1),
                strict=False,
            )
        ), "units don't lie on a grid"
        tables.append(taken[order])
        shape += [*sizes, rest]
    places: dict[str, list[Place]] = {"permutation": [], "sign": []}
    for which, one in enumerate(acting):
        slots = range(len(one.group.shape))
        place = Place(one.number, tuple(dims[which, slot] for slot in slots))
        places[one.group.kind].append(place)
    return Box(
        path,
        tuple(tables),
        tuple(shape),
        tuple(places["permutation"]),
        tuple(places["sign"]),
    )
