"""A second reading of `Spec`: elements act on parameters by plain index arithmetic."""

from collections import Counter

import jax
import numpy as np

from symjax import trees


def table(groups) -> Counter:
    """The shapes of groups, with the order of batch dimensions left out."""
    return Counter((*sorted(group.batch_shape), group.size) for group in groups)


def shapes(text: str) -> Counter:
    """The same of a table such as "4 3x5": one of size 4, one of 5 for each of 3."""
    parts = ([int(size) for size in word.split("x")] for word in text.split())
    return Counter((*sorted(batch), size) for *batch, size in parts)


def draw(group, generator):
    """A random element of a group that moves units in every copy of it."""
    if group.kind == "scaling":
        sides = generator.choice([-1, 1], size=group.shape)
        return np.exp(sides * generator.uniform(0.2, 1.0, size=group.shape))
    if group.kind == "sign":
        signs = generator.choice([-1.0, 1.0], size=group.shape)
        signs[..., 0] = -1
        return signs
    order = np.broadcast_to(np.arange(group.size), group.shape)
    while np.any(np.all(order == np.arange(group.size), axis=-1)):
        order = generator.permuted(order, axis=-1)
    return order


def _places(axis):
    """The array axes that are involved, and the index of every entry along each."""
    factors = (*axis.batch, axis.unit, *axis.rest)
    starts = dict(axis.starts)
    involved = sorted({factor.axis for factor in factors} | set(starts))
    steps = np.ix_(*(np.arange(factor.size) * factor.stride for factor in factors))
    zeros = np.zeros([factor.size for factor in factors], int)
    return involved, tuple(
        starts.get(a, 0)
        + sum((s for f, s in zip(factors, steps, strict=True) if f.axis == a), zeros)
        for a in involved
    )


def move(group, values, params):
    """Act on parameters with an element of one group."""
    leaves, structure = jax.tree.flatten(params)
    arrays = dict(zip(trees.paths(params), map(np.array, leaves), strict=True))
    for axis in group.axes:
        involved, places = _places(axis)
        array = arrays[axis.path]
        array = array.reshape(
            array.shape or (1,)
        )  # the axis of a scalar holds one unit
        view = np.moveaxis(array, involved, range(len(involved)))
        block = view[places]
        wide = values.reshape(values.shape + (1,) * (block.ndim - values.ndim))
        if group.kind == "permutation":
            view[places] = np.take_along_axis(block, wide, axis=len(axis.batch))
        elif group.kind == "scaling":
            view[places] = block * wide ** float(axis.exponent)
        else:
            view[places] = block * wide ** int(axis.exponent)
    return jax.tree.unflatten(structure, list(arrays.values()))


def generators(groups, params):
    """How each unit of each group acts on every scalar: exponents, one row a unit."""
    ones = jax.tree.map(lambda leaf: np.ones(np.shape(leaf)), params)
    rows = []
    for group in groups:
        for unit in np.ndindex(group.shape):
            values = np.ones(group.shape)
            values[unit] = np.e if group.kind == "scaling" else -1
            moved = jax.tree.leaves(move(group, values, ones))
            rows.append(np.concatenate([np.ravel(leaf) for leaf in moved]))
    if not rows:
        return np.zeros((0, 1))
    return np.log(rows) if groups[0].kind == "scaling" else np.array(rows) < 0


def rank(matrix) -> int:
    """The number of independent rows, over the rationals or (booleans) modulo 2."""
    if matrix.dtype != bool:
        return np.linalg.matrix_rank(matrix)
    rows, found = list(matrix), 0
    while rows:
        pivot = rows.pop()
        if np.any(pivot):
            found += 1
            column = np.argmax(pivot)
            rows = [row ^ pivot if row[column] else row for row in rows]
    return found
