"""What is solved at once, and by which weights.

Units of a group are compared by their weights in every box. Where a group that is not
matched yet (it is open) acts too, weights can't be compared one by one. The weights of
each unit are then sorted along the dimension of that group, and magnitudes are compared
where it is an open sign: such comparisons do not depend on it.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from symjax.symmetry.matching import blocks, boxes
from symjax.symmetry.matching.boxes import Box, Place
from symjax.symmetry.spec import Spec


Variable: TypeAlias = tuple[int, tuple[int | None, ...]]
"""A sign of each unit: `(sign group, index)`, None along the kinds of the unit."""

Pattern: TypeAlias = tuple[Variable, ...]
"""The signs that multiply a weight."""

_MANY = 64
"""Signs of one unit beyond which they are held while it is matched."""


class Visit(NamedTuple):
    """Groups of permutations that are solved together, with the signs of their units.

    Attributes:
        groups: Their numbers, those inside a block before those of the blocks.
        nested: Match the units between all pairs of blocks; otherwise blocks stay.
        open_permutations: Groups not matched yet.
        open_signs: Signs not matched yet.
    """

    groups: tuple[int, ...]
    nested: bool
    open_permutations: frozenset[int] = frozenset()
    open_signs: frozenset[int] = frozenset()


class Flip(NamedTuple):
    """A group of signs that is solved alone.

    Attributes:
        sign: Its number.
        open_permutations: Groups not matched yet.
        open_signs: Signs not matched yet, this one among them.
    """

    sign: int
    open_permutations: frozenset[int] = frozenset()
    open_signs: frozenset[int] = frozenset()


Step: TypeAlias = Visit | Flip


class Piece(NamedTuple):
    """Weights of the units of a group, in one box, that are compared in one way.

    Attributes:
        box: Number of the box.
        place: Where the group acts in it.
        pattern: The signs of these units that multiply here.
        at: `(dimension, index)` that are taken alone.
        sort: Dimensions along which weights are sorted.
        magnitudes: Compare absolute values.
    """

    box: int
    place: Place
    pattern: Pattern
    at: tuple[tuple[int, int], ...]
    sort: tuple[int, ...]
    magnitudes: bool

    @property
    def is_exact(self) -> bool:
        """Whether weights are compared with the ones that they belong to."""
        return not self.sort and not self.magnitudes

    def num_weights(self, box: Box) -> int:
        """How many a unit has."""
        alone = (*self.place.dims, *(dim for dim, _ in self.at))
        return math.prod(box.shape) // box.size_of(alone)


def pieces(spec: Spec, visit: Visit, number: int) -> Iterator[Piece]:
    """All weights of the units of a group."""
    for index, box in enumerate(boxes.cut(spec)):
        for place in box.permutations:
            if place.group == number and not (
                visit.nested and _has_inner(box, place, visit.groups)
            ):
                yield from _pieces_of_box(spec, visit, index, box, place)


def _has_inner(box: Box, place: Place, groups: Sequence[int]) -> bool:
    """Whether the weights here count as those of units inside the blocks of a place."""
    return any(
        other.group in groups and set(place.dims) < set(other.dims)
        for other in box.permutations
    )


def _pieces_of_box(
    spec: Spec, visit: Visit, index: int, box: Box, place: Place
) -> Iterator[Piece]:
    own, extra = _own_signs(box, place)
    foreign_open = any(
        sign.group in visit.open_signs for sign in box.signs if sign not in own
    )
    sort = {
        other.dims[-1]
        for other in box.permutations
        if other.group in visit.open_permutations and other.dims[-1] not in place.dims
    }
    if sort or foreign_open:
        magnitudes = bool(own) or foreign_open
        yield Piece(index, place, (), (), tuple(sorted(sort)), magnitudes)
        return
    for at in itertools.product(*(range(box.shape[dim]) for dim in extra)):
        where = dict(zip(extra, at, strict=True))
        pattern = tuple(
            (sign.group, tuple(where.get(dim) for dim in sign.dims)) for sign in own
        )
        yield Piece(index, place, pattern, tuple(where.items()), (), magnitudes=False)


def _own_signs(box: Box, place: Place) -> tuple[list[Place], list[int]]:
    """The signs of the units of a place, and the other dimensions that these have."""
    moved = {other.dims[-1] for other in box.permutations}
    own = [
        sign
        for sign in box.signs
        if set(place.dims) <= set(sign.dims)
        and not moved & (set(sign.dims) - set(place.dims))
    ]
    extra = sorted({dim for sign in own for dim in sign.dims} - set(place.dims))
    return ([], []) if box.size_of(extra) > _MANY else (own, extra)


def copies_and_blocks(
    spec: Spec, visit: Visit, number: int
) -> tuple[list[int], list[int]]:
    """Which axes of a group's batch stay, and which are blocks that may move."""
    group = spec.permutations[number]
    if not visit.nested:
        return list(range(len(group.batch))), []
    split = blocks.layouts(spec.permutations)[number]
    return list(split.fixed), list(split.moving)


def telling(spec: Spec, flip: Flip) -> list[tuple[int, Place]]:
    """Where a sign acts and nothing else that is open does: `(box, place)`."""
    return [
        (index, place)
        for index, box in enumerate(boxes.cut(spec))
        for place in box.signs
        if place.group == flip.sign
        and not any(
            other.group in flip.open_signs for other in box.signs if other is not place
        )
        and not any(other.group in flip.open_permutations for other in box.permutations)
    ]


def places(box: Box, step: Step) -> list[Place]:
    """Where a step acts in a box."""
    if isinstance(step, Flip):
        return [place for place in box.signs if place.group == step.sign]
    return [place for place in box.permutations if place.group in step.groups]


def meets_itself(spec: Spec, step: Step) -> bool:
    """Whether it acts twice on the same weights, so that its gains are not exact."""
    return any(
        not set(one.dims) <= set(two.dims) and not set(two.dims) <= set(one.dims)
        for box in boxes.cut(spec)
        for one in places(box, step)
        for two in places(box, step)
    )
