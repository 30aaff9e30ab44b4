"""Where the unit kinds of a network lie in its parameters."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from symjax.symmetry.inference.exponents import Number
from symjax.symmetry.inference.independence import partners
from symjax.symmetry.inference.unification import Node, Position, find, flat, positions
from symjax.symmetry.inference.walk import Value
from symjax.symmetry.spec import Axis, Factor


class Place(NamedTuple):
    """One position of a unit kind on one axis of one parameter.

    The kind of the whole lies on an axis beyond those of the array.
    """

    path: str
    value: Value
    axis: int
    number: int

    @property
    def position(self) -> Position:
        """Offset and strides along the axis."""
        return positions(self.value.axes[self.axis])[self.number]

    @property
    def is_whole(self) -> bool:
        """Whether it is the parameter as a whole."""
        return self.axis == self.value.rank


def find_places(
    paths: Sequence[str], leaves: Sequence[Value]
) -> dict[Node, list[Place]]:
    """The places of every unit kind; kinds come in the order of parameters and axes."""
    places: dict[Node, list[Place]] = defaultdict(list)
    wholes: dict[Node, list[Place]] = defaultdict(list)
    for path, value in zip(paths, leaves, strict=True):
        if any(node.size == 0 for node in value.own):
            continue
        for axis, node in enumerate(value.own):
            for number, position in enumerate(positions(node)):
                places[position.leaf].append(Place(path, value, axis, number))
        whole = positions(value.axes[value.rank])[0].leaf
        wholes[whole].append(Place(path, value, value.rank, 0))
    return {**places, **wholes}


def strides(place: Place, batch: Sequence[Node], exponent: Number) -> Axis:
    """The place as strides along the axes of the array that it needs."""
    if place.is_whole:
        whole = [Factor(0, node.size, 1) for node in place.value.own[:1]]
        return _axis(place, Factor(0, 1, 1), [], whole, {0: 0}, exponent)
    position = place.position
    starts = {place.axis: position.start}
    factors = [
        (node, Factor(place.axis, node.size, stride))
        for node, stride in position.siblings
    ]
    for other, axis in partners(place.value, place.axis, place.number):
        if other in batch and axis != place.axis:
            inside = positions(place.value.axes[axis])
            found = next(p for p in inside if p.leaf is other)
            starts[axis] = found.start
            factors.append((other, Factor(axis, other.size, found.stride)))
            factors += [(n, Factor(axis, n.size, step)) for n, step in found.siblings]
    of_batch = [
        next(factor for node, factor in factors if _leaf(node) is other)
        for other in batch
    ]
    rest = list(dict.fromkeys(f for _, f in factors if f not in of_batch))
    unit = Factor(place.axis, position.leaf.size, position.stride)
    return _axis(place, unit, of_batch, rest, starts, exponent)


def _axis(
    place: Place,
    unit: Factor,
    batch: Sequence[Factor],
    rest: Sequence[Factor],
    starts: dict[int, int],
    exponent: Number,
) -> Axis:
    return Axis(
        path=place.path,
        unit=unit,
        batch=tuple(batch),
        rest=tuple(rest),
        starts=tuple(starts.items()),
        exponent=exponent,
    )


def _leaf(node: Node) -> Node | None:
    inside = positions(node)
    return inside[0].leaf if len(inside) == 1 else None


Cell = tuple[str, tuple[int, ...]]
"""A part of a parameter in which no axis is cut."""


def cells(place: Place) -> list[Cell]:
    """The parts of its parameter that the units of a place lie in."""
    picked = [_uncut(find(node)) for node in place.value.own]
    chosen = [
        [
            k
            for k, part in enumerate(parts)
            if axis != place.axis or place.number in part
        ]
        for axis, parts in enumerate(picked)
    ]
    return [(place.path, index) for index in product(*chosen)]


def _uncut(node: Node) -> list[set[int]]:
    """The parts of an axis, each as the numbers of the positions that lie in it."""
    if node.form == "leaf":
        return [{0}]
    parts: list[set[int]] = [] if node.form == "sum" else [set()]
    count = 0
    for inner in flat(node, node.form):
        shifted = [{count + number for number in part} for part in _uncut(inner)]
        if node.form == "sum":
            parts += shifted
        else:
            parts = [one | other for one, other in product(parts, shifted)]
        count += len(positions(inner))
    return parts
