"""In what order the groups of a network are matched.

To begin with nothing is known but what no group moves: inputs, outputs, the pixels of a
kernel. The group whose units have most weights there is matched first, and what is
matched tells more about its neighbours; so it spreads through the network. Afterwards
groups are matched in the same order again and again, each given all others.
"""

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from symjax.symmetry.matching import blocks, boxes, visits
from symjax.symmetry.matching.boxes import Box, Place
from symjax.symmetry.matching.visits import Flip, Step, Visit
from symjax.symmetry.spec import Spec


_ENOUGH = 8
"""Weights that are enough to decide the sign of a unit."""


class Schedule(NamedTuple):
    """What is matched in which order.

    Attributes:
        first: From nothing matched to everything.
        again: Repeated until nothing changes.
        rounds: Numbers of those that don't depend on one another, taken at once.
        wakes: `wakes[i, j]`: a change by the i-th of these may let the j-th change.
        is_exact: One step solves the whole problem, whatever the start.
    """

    first: tuple[Step, ...]
    again: tuple[Step, ...]
    rounds: tuple[tuple[int, ...], ...]
    wakes: Bool[np.ndarray, "step other"]
    is_exact: bool


@functools.cache
def plan(spec: Spec) -> Schedule:
    """The schedule of a network."""
    first = tuple(_spread(spec))
    again: list[Step] = []
    for step in first:
        if isinstance(step, Visit):
            again += _repeated(spec, step.groups)
    tied = {sign for step in again for sign in _tied(spec, step)}
    again += [Flip(number) for number in range(len(spec.signs)) if number not in tied]
    wakes = np.array([[_wakes(spec, one, two) for two in again] for one in again])
    is_exact = len(again) == 1 and not wakes.any()
    return Schedule(first, tuple(again), _rounds(wakes), wakes, is_exact)


def _rounds(wakes: Bool[np.ndarray, "step other"]) -> tuple[tuple[int, ...], ...]:
    """Each step in the first round where it meets none that it depends on."""
    rounds: list[list[int]] = []
    for step in range(len(wakes)):
        for others in rounds:
            every = [*others, step]
            if not wakes[np.ix_(every, every)].any():
                others.append(step)
                break
        else:
            rounds.append([step])
    return tuple(map(tuple, rounds))


def families(spec: Spec) -> list[tuple[int, ...]]:
    """Groups whose blocks hold one another, inner ones first; most are alone."""
    groups = spec.permutations
    try:
        splits = blocks.layouts(groups)
    except NotImplementedError:
        return [(number,) for number in range(len(groups))]

    def root(number: int) -> int:
        parent = splits[number].parent
        return number if parent is None else root(parent)

    roots = [root(number) for number in range(len(groups))]
    return [
        tuple(number for number in range(len(groups)) if roots[number] == top)
        for top in dict.fromkeys(roots)
    ]


def _repeated(spec: Spec, family: tuple[int, ...]) -> list[Visit]:
    """A family at once; one by one too where some meet in one parameter."""
    singles = [Visit((number,), nested=False) for number in family]
    if len(family) == 1:
        return singles
    if not visits.meets_itself(spec, Visit(family, nested=True)):
        return [Visit(family, nested=True)]
    return [Visit(family, nested=True, open_permutations=frozenset(family)), *singles]


def _tied(spec: Spec, step: Step) -> dict[int, int]:
    """The signs that a step solves, with how many weights a unit has to tell each."""
    if isinstance(step, Flip):
        return {step.sign: _num_telling(spec, step)}
    counts: dict[tuple, int] = {}
    for number in step.groups:
        for piece in visits.pieces(spec, step, number):
            for variable in piece.pattern:
                weights = piece.num_weights(boxes.cut(spec)[piece.box])
                counts[variable] = counts.get(variable, 0) + weights
    signs = {sign for sign, _ in counts}
    return {s: min(n for (sign, _), n in counts.items() if sign == s) for s in signs}


def _num_telling(spec: Spec, flip: Flip) -> int:
    cut = boxes.cut(spec)
    return sum(_num_rest(cut[i], place) for i, place in visits.telling(spec, flip))


def _num_rest(box: Box, place: Place) -> int:
    return math.prod(box.shape) // box.size_of(place.dims)


def _num_all(spec: Spec, sign: int) -> int:
    """How many weights a sign multiplies."""
    return sum(
        _num_rest(box, place)
        for box in boxes.cut(spec)
        for place in box.signs
        if place.group == sign
    )


def _spread(spec: Spec) -> Iterable[Step]:
    """Greedily, what most weights tell about."""
    waiting = families(spec)
    signs = set(range(len(spec.signs)))
    while True:
        open_groups = frozenset(number for family in waiting for number in family)
        open_signs = frozenset(signs)
        steps: list[Step] = [
            Visit(family, len(family) > 1, open_groups, open_signs)
            for family in waiting
        ]
        steps += [Flip(sign, open_groups, open_signs) for sign in sorted(signs)]
        scores = [_score(spec, step) for step in steps]
        if not steps or (not waiting and max(scores)[0] == 0):
            return
        step = steps[max(range(len(steps)), key=scores.__getitem__)]
        yield step
        if isinstance(step, Visit):
            waiting.remove(step.groups)
        signs -= {
            sign
            for sign, telling in _tied(spec, step).items()
            if isinstance(step, Flip)
            or telling >= min(_ENOUGH, _num_all(spec, sign) / 2)
        }


def _score(spec: Spec, step: Step) -> tuple[float, float]:
    """Weights that a unit is compared by: those that are certain, and all."""
    if isinstance(step, Flip):
        telling = float(_num_telling(spec, step))
        return telling, telling
    cut = boxes.cut(spec)
    certain = every = 0.0
    for number in step.groups:
        for piece in visits.pieces(spec, step, number):
            weights = piece.num_weights(cut[piece.box])
            every += weights
            certain += weights * (1 if piece.is_exact else 0 if piece.sort else 0.5)
    return certain / len(step.groups), every / len(step.groups)


def _wakes(spec: Spec, one: Step, two: Step) -> bool:
    """Whether a change by one step may let another change something."""
    if one == two:
        return visits.meets_itself(spec, one)
    return any(
        visits.places(box, one) and visits.places(box, two) for box in boxes.cut(spec)
    )
