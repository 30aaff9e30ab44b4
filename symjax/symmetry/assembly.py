"""From a finished walk to a `Spec`: which unit kinds are free, and where they lie."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from symjax.symmetry.constraints import Labels
from symjax.symmetry.exponents import Vector, independent
from symjax.symmetry.independence import independent_batches, partners
from symjax.symmetry.spec import Axis, Factor, Group, Kind, Pin, Spec
from symjax.symmetry.unification import Node, positions
from symjax.symmetry.walk import Relation, Value


class Place(NamedTuple):
    """One position of a unit kind on one axis of one parameter."""

    path: str
    value: Value
    axis: int
    number: int


def assemble(
    names: Sequence[tuple[str, tuple[int, ...]]],
    leaves: Sequence[Value],
    relations: Sequence[Relation],
) -> Spec:
    """The groups of a network whose parameters are `leaves`."""
    places: dict[Node, list[Place]] = defaultdict(list)
    for (path, _), value in zip(names, leaves, strict=True):
        for axis, node in enumerate(value.own):
            for index, position in enumerate(positions(node)):
                places[position.leaf].append(Place(path, value, axis, index))
    batches = _outer_first(independent_batches(relations, leaves), list(places))
    kinds = _Kinds(places, batches)
    permutations = [
        kinds.group("permutation", leaf, dict.fromkeys(range(len(where)), Fraction(1)))
        for leaf, where in places.items()
        if leaf.pin is None and leaf.size > 1
    ]
    permutations.sort(key=lambda group: -len(group.batch))
    scalings = kinds.exponent_groups("scaling", leaves, relations)
    signs = kinds.exponent_groups("sign", leaves, relations)
    return Spec(
        tuple(permutations), tuple(scalings), tuple(signs), tuple(names), _pins(places)
    )


def _outer_first(
    batches: dict[Node, set[Node]], leaves: Sequence[Node]
) -> dict[Node, list[Node]]:
    """The batches of each leaf that has a place in the parameters, in a fixed order.

    Two kinds may each be independent over the other; then the first to appear is the
    batch, so that what acts inside a batch always comes before what moves the batch.
    """
    rank = {leaf: number for number, leaf in enumerate(leaves)}
    return {
        leaf: sorted(
            (
                batch
                for batch in batches.get(leaf, ())
                if batch in rank
                and batch.size > 1
                and not (leaf in batches[batch] and rank[batch] > rank[leaf])
            ),
            key=rank.__getitem__,
        )
        for leaf in leaves
    }


class _Kinds:
    """The unit kinds of the parameters, and the groups that act on them."""

    def __init__(
        self, places: dict[Node, list[Place]], batches: dict[Node, list[Node]]
    ) -> None:
        self.places = places
        self.batches = batches
        self.number = {leaf: number for number, leaf in enumerate(places)}

    def group(self, kind: Kind, leaf: Node, exponents: Vector) -> Group:
        """A group that acts on a unit kind, where its exponents are not zero."""
        batch, places = self.batches[leaf], self.places[leaf]
        axes = [
            self._axis(places[index], batch, exponent)
            for index, exponent in sorted(exponents.items())
        ]
        return Group(
            kind=kind,
            units=self.number[leaf],
            size=leaf.size,
            axes=tuple(axes),
            batch=tuple(self.number[other] for other in batch),
            batch_shape=tuple(other.size for other in batch),
        )

    def _axis(self, place: Place, batch: Sequence[Node], exponent: Fraction) -> Axis:
        """Where a unit kind lies, as strides along the axes that it needs."""
        position = positions(place.value.axes[place.axis])[place.number]
        unit = Factor(place.axis, position.leaf.size, position.stride)
        starts = {place.axis: position.start}
        factors = [
            (node, Factor(place.axis, node.size, stride))
            for node, stride in position.siblings
        ]
        alongside = partners(place.value, place.axis, place.number)
        for other, axis in alongside:
            if other in batch and axis != place.axis:
                inside = positions(place.value.axes[axis])
                found = next(p for p in inside if p.leaf is other)
                starts[axis] = found.start
                factors.append((other, Factor(axis, other.size, found.stride)))
                factors += [
                    (node, Factor(axis, node.size, stride))
                    for node, stride in found.siblings
                ]
        of_batch = [
            next(factor for node, factor in factors if _leaf(node) is other)
            for other in batch
        ]
        rest = dict.fromkeys(f for _, f in factors if f not in of_batch)
        return Axis(
            path=place.path,
            unit=unit,
            batch=tuple(of_batch),
            rest=tuple(rest),
            starts=tuple(starts.items()),
            exponent=int(exponent) if exponent.denominator == 1 else exponent,
        )

    def exponent_groups(
        self, kind: Kind, leaves: Sequence[Value], relations: Sequence[Relation]
    ) -> list[Group]:
        """Groups from the exponents that all constraints leave free."""
        modulus = 2 if kind == "sign" else None
        labels = Labels(modulus)
        for value in leaves:
            labels.of(value)
        for relation in relations:
            labels.constrain(relation)
        bases = {leaf: self._basis(labels, leaf) for leaf in self.places if leaf.size}
        groups = []
        for leaf, basis in bases.items():
            finer = [
                self._as_coarse(leaf, inner, vector)
                for inner, vectors in bases.items()
                if leaf in self.batches[inner]
                for vector in vectors
            ]
            groups += [
                self.group(kind, leaf, vector)
                for vector in independent(basis, finer, modulus)
            ]
        return groups

    def _basis(self, labels: Labels, leaf: Node) -> list[Vector]:
        """One vector of exponents, over the places of a unit kind, a free variable."""
        basis: dict[int, Vector] = defaultdict(dict)
        for index, place in enumerate(self.places[leaf]):
            variable = labels.of(place.value)[place.axis][place.number]
            form = labels.exponents.resolve({variable: Fraction(1)})
            for free, factor in form.items():
                basis[free][index] = factor
        return [basis[free] for free in sorted(basis)]

    def _as_coarse(self, leaf: Node, inner: Node, vector: Vector) -> Vector:
        """The exponents at `leaf` of scaling all units of `inner` in a batch alike."""
        total: Vector = defaultdict(Fraction)
        for index, exponent in vector.items():
            place = self.places[inner][index]
            for number, outer in enumerate(self.places[leaf]):
                if outer.value is place.value and self._beside(place, outer):
                    total[number] += exponent
        return {number: exponent for number, exponent in total.items() if exponent}

    def _beside(self, place: Place, outer: Place) -> bool:
        """Whether a batch lies alongside the units that it holds."""
        if outer.axis != place.axis:
            return True
        one = positions(place.value.axes[place.axis])[place.number]
        other = positions(outer.value.axes[outer.axis])[outer.number]
        return other.start <= one.start and one.last <= other.last


def _leaf(node: Node) -> Node | None:
    inside = positions(node)
    return inside[0].leaf if len(inside) == 1 else None


def _pins(places: dict[Node, list[Place]]) -> tuple[Pin, ...]:
    """What was pinned by operations rather than by the data and the outputs."""
    found: dict[tuple, list[tuple[str, int]]] = {}
    for leaf, where in places.items():
        cause = leaf.pin
        if cause is not None and not cause.natural:
            axes = found.setdefault(tuple(cause), [])
            axes += [(place.path, place.axis) for place in where]
    return tuple(
        Pin(primitive, source, reason, has_rule, tuple(dict.fromkeys(axes)))
        for (primitive, source, reason, has_rule, _), axes in found.items()
    )
