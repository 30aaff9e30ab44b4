"""Networks without a symmetry that a naive reading of them would report.

Each has an explicit transformation of its parameters, the one that the naive reading
promises to leave the outputs alone, and that changes them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from zoo.network import Case, Network, inputs, plain


class Control(NamedTuple):
    case: Case
    naive: Callable[[dict], dict]


SIZE = 7
SHAPES = {"in": (3, SIZE), "out": (SIZE, 2)}
ORDER = np.array([2, 0, 5, 1, 6, 3, 4])
SCALES = np.exp(np.linspace(-0.5, 0.7, SIZE))
SIGNS = np.array([1, -1, -1, 1, -1, 1, 1])


def permuted(order=ORDER, **axes):
    """Permute the named parameters along one axis each."""
    return lambda p: p | {name: p[name].take(order, a) for name, a in axes.items()}


def multiplied(factors, **axes):
    """Multiply the named parameters along one axis; divide along it where `~axis`."""

    def one(value, axis):
        shape = np.ones(value.ndim, int)
        along = axis if axis >= 0 else ~axis
        shape[along] = value.shape[along]
        return value * np.reshape(factors if axis >= 0 else 1 / factors, shape)

    return lambda p: p | {name: one(p[name], axis) for name, axis in axes.items()}


PERMUTED = permuted(**{"in": 1, "out": 0})
SCALED = multiplied(SCALES, **{"in": 1, "out": ~0})
FLIPPED = multiplied(SIGNS, **{"in": 1, "out": 0})


def hidden(name, layer, naive, permutations="", scalings=None, signs=None, **shapes):
    """A control with one layer of 7 units between two matrices: `layer(units, p)`."""

    def apply(p, x):
        return layer(x @ p["in"], p) @ p["out"]

    def make() -> Network:
        return plain(apply, inputs(16, 3), **(SHAPES | shapes))

    return Control(Case(name, make, permutations, scalings, signs), naive)


def whole(
    name, apply, shapes, naive, permutations="", scalings=None, signs=None, x=None
):
    def make() -> Network:
        return plain(apply, inputs(4, 3) if x is None else x, **shapes)

    return Control(Case(name, make, permutations, scalings, signs), naive)
