"""Elements of many networks, changed on the host; arrays have a network axis first."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from symjax.symmetry.actions import Element
from symjax.symmetry.spec import Group, Spec


class Elements(NamedTuple):
    """What an `Element` is, for each of many networks, in arrays of NumPy."""

    permutations: tuple[Int[np.ndarray, "network ..."], ...]
    scales: tuple[Num[np.ndarray, "network ..."], ...]
    signs: tuple[Num[np.ndarray, "network ..."], ...]


def on_host(element: Element | Elements) -> Elements:
    """The elements of many networks as arrays of NumPy."""
    return Elements(*jax.tree.map(np.asarray, tuple(element)))


class Move(NamedTuple):
    """What changes, of units as they are numbered now.

    Attributes:
        permutations: By the number of the group.
        signs: By the number of the group; these act first.
    """

    permutations: Mapping[int, Int[np.ndarray, "network ..."]]
    signs: Mapping[int, Int[np.ndarray, "network ..."]]


def apply(
    spec: Spec, move: Move, element: Elements, active: Bool[np.ndarray, " network"]
) -> tuple[Elements, Bool[np.ndarray, " network"]]:
    """What acts as the element does and then the move, as `elements.compose` says.

    Args:
        spec: The networks' symmetries.
        move: Of each network.
        element: Of each network.
        active: Networks whose element changes; others keep theirs.

    Returns:
        The elements, and which of them are not the same as before.
    """
    back = _inverse(spec, element.permutations)
    permutations, signs = list(element.permutations), list(element.signs)
    changed = np.zeros(len(active), bool)
    for number, moved in move.permutations.items():
        group = spec.permutations[number]
        moved = _renumber(spec, back, group, moved)
        new = np.take_along_axis(permutations[number], moved, axis=-1)
        permutations[number], differs = _choose(active, new, permutations[number])
        changed |= differs
    for number, flips in move.signs.items():
        flips = _renumber(spec, back, spec.signs[number], flips)
        new = signs[number] * flips.astype(signs[number].dtype)
        signs[number], differs = _choose(active, new, signs[number])
        changed |= differs
    return Elements(tuple(permutations), element.scales, tuple(signs)), changed


def merge(old: Elements, changed: Sequence[Elements]) -> Elements:
    """The elements after several moves of different groups, each made from the old."""

    def one(before: np.ndarray, *after: np.ndarray) -> np.ndarray:
        return next((array for array in after if array is not before), before)

    return jax.tree.map(one, old, *changed)


def choose(
    which: Bool[np.ndarray, " network"], new: Elements, old: Elements
) -> Elements:
    """The new elements of some networks, the old ones of the others."""
    return jax.tree.map(lambda one, two: _choose(which, one, two)[0], new, old)


def _choose(
    which: Bool[np.ndarray, " network"], new: np.ndarray, old: np.ndarray
) -> tuple[np.ndarray, Bool[np.ndarray, " network"]]:
    """The chosen array, and where it is not the old one."""
    chosen = np.where(which.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
    return chosen, (chosen != old).reshape(len(old), -1).any(axis=1)


def _inverse(
    spec: Spec, permutations: Sequence[Int[np.ndarray, "network ..."]]
) -> list[Int[np.ndarray, "network ..."]]:
    pairs = zip(spec.permutations, permutations, strict=True)
    return [
        _renumber(spec, permutations, group, np.argsort(permutation, axis=-1))
        for group, permutation in pairs
    ]


def _renumber(
    spec: Spec,
    permutations: Sequence[Int[np.ndarray, "network ..."]],
    group: Group,
    array: Shaped[np.ndarray, "network ..."],
) -> Shaped[np.ndarray, "network ..."]:
    """Move the array of a group along with its units and batches."""
    numbers = (*group.batch, group.units)
    for other, permutation in zip(spec.permutations, permutations, strict=True):
        if other is not group and other.units in numbers:
            dims = [1 + numbers.index(kind) for kind in (*other.batch, other.units)]
            others = [i for i in range(1, array.ndim) if i not in dims]
            ordered = permutation.transpose(0, *(1 + np.argsort(dims)))
            index = np.expand_dims(ordered, others)
            array = np.take_along_axis(array, index, axis=dims[-1])
    return array


def is_same(one: Element | Elements, two: Element | Elements) -> bool:
    """Whether elements are equal."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def without_scales(element: Elements) -> Element:
    """Elements that permute and flip only, on device."""
    scales = tuple(np.ones_like(scale) for scale in element.scales)
    return Element(*jax.tree.map(jnp.asarray, tuple(element._replace(scales=scales))))
