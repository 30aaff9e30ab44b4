"""From a finished walk to a `Spec`: which unit kinds are free, and where they lie."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from symjax.symmetry.inference.exponents import Vector
from symjax.symmetry.inference.freedom import generators, outer_first
from symjax.symmetry.inference.independence import independent_batches
from symjax.symmetry.inference.places import Place, find_places, strides
from symjax.symmetry.inference.unification import Node, positions
from symjax.symmetry.inference.walk import Relation, Value
from symjax.symmetry.spec import Group, Kind, Pin, Spec


def assemble(
    names: Sequence[tuple[str, tuple[int, ...]]],
    leaves: Sequence[Value],
    relations: Sequence[Relation],
) -> Spec:
    """The groups of a network whose parameters are `leaves`."""
    places = find_places([path for path, _ in names], leaves)
    numbers = {leaf: number for number, leaf in enumerate(places)}
    group = functools.partial(_group, places, numbers)

    def leaf_at(value: Value, axis: int, number: int) -> list[Node]:
        leaf = positions(value.axes[axis])[number].leaf
        return [leaf] if leaf in places else []

    found: dict[Any, set[Node]] = independent_batches(relations, leaves, leaf_at)
    rank = {
        leaf: (not _is_step(leaf), len(found[leaf] & places.keys()), number)
        for leaf, number in numbers.items()
        if leaf.size > 1
    }
    batches = outer_first(found, {leaf: leaf for leaf in places}, rank)
    permutations = [
        group("permutation", leaf, dict.fromkeys(range(len(where)), 1), batches[leaf])
        for leaf, where in places.items()
        if leaf.pin is None and leaf.size > 1
    ]
    scales, redundant_scalings = generators(places, leaves, relations, rank, None)
    signs, redundant_signs = generators(places, leaves, relations, rank, 2)
    return Spec(
        permutations=tuple(sorted(permutations, key=lambda each: -len(each.batch))),
        scalings=tuple(group("scaling", *generator) for generator in scales),
        signs=tuple(group("sign", *generator) for generator in signs),
        shapes=tuple(names),
        pins=_pins(places),
        redundant_scalings=redundant_scalings,
        redundant_signs=redundant_signs,
    )


def _group(
    places: Mapping[Node, Sequence[Place]],
    numbers: Mapping[Node, int],
    kind: Kind,
    leaf: Node,
    exponents: Vector,
    batch: Sequence[Node],
) -> Group:
    return Group(
        kind=kind,
        units=numbers[leaf],
        size=leaf.size,
        axes=tuple(
            strides(places[leaf][index], batch, exponent)
            for index, exponent in sorted(exponents.items())
        ),
        batch=tuple(numbers[other] for other in batch),
        batch_shape=tuple(other.size for other in batch),
    )


def _is_step(leaf: Node) -> bool:
    """Whether it counts the steps of a loop, over which layers are stacked."""
    return leaf.pin is not None and leaf.pin.primitive == "scan"


def _pins(places: dict[Node, list[Place]]) -> tuple[Pin, ...]:
    """What was pinned by operations rather than by the data and the outputs."""
    found: dict[tuple, list[tuple[str, int]]] = {}
    for leaf, where in places.items():
        cause = leaf.pin
        if cause is not None and not cause.natural and not where[0].is_whole:
            axes = found.setdefault(tuple(cause), [])
            axes += [(place.path, place.axis) for place in where]
    return tuple(
        Pin(primitive, source, reason, has_rule, tuple(dict.fromkeys(axes)))
        for (primitive, source, reason, has_rule, _), axes in found.items()
    )
