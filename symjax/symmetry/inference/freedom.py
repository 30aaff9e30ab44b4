"""Generators of scalings and signs: what the constraints on exponents leave free."""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from symjax.symmetry.inference.constraints import Labels
from symjax.symmetry.inference.exponents import Number, Vector, added, reduced, smallest
from symjax.symmetry.inference.independence import independent_batches, partners
from symjax.symmetry.inference.places import Cell, Place, cells
from symjax.symmetry.inference.unification import Node
from symjax.symmetry.inference.walk import Relation, Value


class Generator(NamedTuple):
    """A scale or sign of each unit of one kind.

    Attributes:
        leaf: The unit kind.
        exponents: By the number of the place of that kind.
        batch: The kinds over whose indices it is independent.
    """

    leaf: Node
    exponents: Vector
    batch: list[Node]


def generators(
    places: Mapping[Node, list[Place]],
    leaves: Sequence[Value],
    relations: Sequence[Relation],
    rank: Mapping[Node, Any],
    modulus: int | None,
) -> tuple[list[Generator], int]:
    """A basis, and how many of its scales the others can undo.

    Args:
        places: Of every unit kind.
        leaves: The parameters.
        relations: All operations.
        rank: Of the kinds that may be a batch, outer ones first.
        modulus: 2 for signs, None for scales.
    """
    labels = Labels(modulus)
    for value in leaves:
        labels.of(value)
    for relation in relations:
        labels.constrain(relation)
    everything = [
        (leaf, vector)
        for leaf, where in places.items()
        for vector in _basis(labels, where, modulus)
    ]
    keys = _scaled_by(labels, places, everything)
    found = independent_batches(relations, leaves, keys)
    batches = outer_first(
        found, {k: leaf for k, (leaf, _) in enumerate(everything)}, rank
    )
    kept = _without_coarse(
        [Generator(*each, batches[k]) for k, each in enumerate(everything)],
        places,
        modulus,
    )
    return kept, _num_redundant(kept, places, modulus)


def _scaled_by(
    labels: Labels,
    places: Mapping[Node, Sequence[Place]],
    everything: Sequence[tuple[Node, Vector]],
) -> Callable[[Value, int, int], list[int]]:
    """A function that says which generators scale the units at an axis of a value."""
    weights: dict[int, dict[int, Number]] = defaultdict(dict)
    for generator, (leaf, vector) in enumerate(everything):
        for index, exponent in vector.items():
            place = places[leaf][index]
            variable = labels.of(place.value)[place.axis][place.number]
            weights[variable][generator] = exponent
    modulus = labels.exponents.modulus

    @functools.cache
    def of_variable(variable: int) -> list[int]:
        total: dict[int, Number] = defaultdict(int)
        for free, factor in labels.exponents.resolve({variable: 1}).items():
            for generator, weight in weights.get(free, {}).items():
                total[generator] += factor * weight
        return [key for key, sum_ in total.items() if (sum_ % 2 if modulus else sum_)]

    return lambda value, axis, number: of_variable(labels.of(value)[axis][number])


def outer_first(
    batches: Mapping[Any, set[Node]],
    owner: Mapping[Any, Node],
    rank: Mapping[Node, Any],
) -> dict[Any, list[Node]]:
    """The batches that lie in the parameters, in a fixed order.

    Two kinds may each be independent over the other; then the first in rank is the
    batch, so that what acts inside a batch always comes before what moves the batch.

    Args:
        batches: What each key is independent over.
        owner: The unit kind of each key.
        rank: Of the kinds that may be a batch.
    """
    over: dict[Node, set[Node]] = defaultdict(set)
    for key, found in batches.items():
        over[owner[key]] |= found

    def is_outer(batch: Node, leaf: Node) -> bool:
        mutual = leaf in over[batch]
        return batch in rank and not (mutual and rank[batch] > rank[leaf])

    return {
        key: sorted(
            (
                each
                for each in found
                if owner[key] in rank and is_outer(each, owner[key])
            ),
            key=rank.__getitem__,
        )
        for key, found in batches.items()
    }


def _basis(labels: Labels, where: Sequence[Place], modulus: int | None) -> list[Vector]:
    """Exponents over the places of a unit kind, one vector for each that is free.

    The places with least beside them come first, so that as many vectors as possible
    leave them alone and are independent over more.
    """
    basis: dict[int, Vector] = defaultdict(dict)
    for index, place in enumerate(where):
        form = labels.form(place.value, place.axis, place.number)
        for free, factor in form.items():
            basis[free][index] = factor
    beside = [len(partners(place.value, place.axis, place.number)) for place in where]
    order = sorted(range(len(where)), key=lambda index: (beside[index], index))
    return reduced([basis[free] for free in sorted(basis)], order, modulus)


def _without_coarse(
    everything: Sequence[Generator],
    places: Mapping[Node, list[Place]],
    modulus: int | None,
) -> list[Generator]:
    """Leave out what scales all units of a batch, or whole parameters, alike."""
    of_leaf: dict[Node, list[Generator]] = defaultdict(list)
    for generator in everything:
        of_leaf[generator.leaf].append(generator)
    kept: list[Generator] = []
    for leaf, basis in of_leaf.items():
        finer = [g for g in everything if leaf in g.batch]
        if places[leaf][0].is_whole:
            finer = kept
        numbers: dict[Cell, int] = {}
        known, vectors = (
            [_constant(generator, places, numbers, modulus) for generator in members]
            for members in (finer, basis)
        )
        kept += [
            basis[index]._replace(exponents=smallest(basis[index].exponents, modulus))
            for index in added(vectors, known, modulus)
        ]
    return kept


def _constant(
    generator: Generator,
    places: Mapping[Node, list[Place]],
    numbers: dict[Cell, int],
    modulus: int | None,
) -> Vector:
    """The exponents of scaling all units alike, by uncut parts of the parameters."""
    total: Vector = defaultdict(int)
    for index, exponent in generator.exponents.items():
        for cell in cells(places[generator.leaf][index]):
            total[numbers.setdefault(cell, len(numbers))] += exponent
    if modulus:
        total = {number: exponent % modulus for number, exponent in total.items()}
    return {number: exponent for number, exponent in total.items() if exponent}


def _num_redundant(
    kept: Sequence[Generator],
    places: Mapping[Node, list[Place]],
    modulus: int | None,
) -> int:
    """How many scales can be undone by others.

    Kinds of unit that are not nested can only undo each other where each scales all of
    its units alike, over the whole network or in one index of a batch that they share.
    """

    def excess(members: Sequence[Generator]) -> int:
        numbers: dict[Cell, int] = {}
        vectors = [_constant(each, places, numbers, modulus) for each in members]
        return len(vectors) - len(added(vectors, [], modulus))

    total = excess(kept)
    for batch in dict.fromkeys(
        batch for generator in kept for batch in generator.batch
    ):
        members = [g for g in kept if batch in g.batch or g.leaf is batch]
        total += excess(members) * (batch.size - 1)
    return total
