"""Assignments of units, and of the blocks (heads, experts) that hold units.

Which head of one network is which of another depends on how well their units fit once
these are matched. So the units are matched first, between every head of the one and
every head of the other, and what each pair of heads gains is what the heads are matched
by.

Gains have the axes `(fixed, block, other block, unit, other unit)`: `fixed` counts the
copies of a group that stay where they are (the layers of a loop), `block` and `other
block` the blocks of the reference and of the network, outer ones first.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int, Shaped

from symjax.symmetry.matching import assignment
from symjax.symmetry.spec import Group


Gains: TypeAlias = Float[np.ndarray, "fixed block other unit unit2"]


class Layout(NamedTuple):
    """How the batch of a group splits.

    Attributes:
        fixed: The axes of its batch whose units are not permuted.
        moving: Those whose units are, the outer ones first.
        parent: The number of the group that permutes the last of these, or None.
    """

    fixed: tuple[int, ...]
    moving: tuple[int, ...]
    parent: int | None


class Matched(NamedTuple):
    """The assignment of one group.

    Attributes:
        permutations: For each copy and each block of the network, the unit that comes
            to each place.
        origins: For each copy and block of the network, the block of the reference that
            it is matched to.
    """

    permutations: Int[np.ndarray, "fixed block unit"]
    origins: Int[np.ndarray, "fixed block"]


def layouts(groups: Sequence[Group]) -> list[Layout]:
    """How the batch of each group splits.

    Raises:
        NotImplementedError: If blocks of two kinds overlap and neither holds the other.
    """
    movers = {group.units: number for number, group in enumerate(groups)}

    def depth(units: int) -> int:
        return sum(outer in movers for outer in groups[movers[units]].batch)

    found = []
    for group in groups:
        numbers = range(len(group.batch))
        fixed = tuple(i for i in numbers if group.batch[i] not in movers)
        moving = [i for i in numbers if group.batch[i] in movers]
        moving.sort(key=lambda i: depth(group.batch[i]))
        units = [group.batch[i] for i in moving]
        for outer, inner in zip(range(len(units)), units, strict=True):
            batch = groups[movers[inner]].batch
            held = {outer for outer in batch if outer in movers}
            if held != set(units[:outer]) or not set(batch) <= set(group.batch):
                raise NotImplementedError(
                    f"Matching needs blocks that hold one another, but the units on "
                    f"`{group.axes[0].path}` are in blocks of several kinds that "
                    f"overlap. Match by weights."
                )
        parent = movers[units[-1]] if units else None
        found.append(Layout(fixed, tuple(moving), parent))
    return found


def sizes(group: Group, layout: Layout) -> tuple[int, int]:
    """How many fixed copies and how many moving blocks a group has."""
    shape = group.batch_shape
    fixed = math.prod(shape[i] for i in layout.fixed)
    return fixed, math.prod(shape[i] for i in layout.moving)


def unfold(
    group: Group, split: Layout, values: Shaped[np.ndarray, "fixed block unit"]
) -> Shaped[np.ndarray, "..."]:
    """Values of units, in the shape of an element of the group."""
    axes = (*split.fixed, *split.moving)
    values = values.reshape(*(group.batch_shape[i] for i in axes), group.size)
    return values.transpose(*np.argsort(axes), len(axes))


def match(
    groups: Sequence[Group],
    splits: Sequence[Layout],
    gains: Sequence[Float[np.ndarray, "_ _ _ _ _"] | None],
) -> list[Matched]:
    """The permutations of largest gain: those of units first, then those of blocks.

    Args:
        groups: Permutation groups, those inside a block before those of the blocks.
        splits: Their `layouts`.
        gains: What each pair of units gains; None for groups that gain by what they
            hold alone.

    Returns:
        The assignment of each group.
    """
    totals = list(gains)
    pairs: list[np.ndarray] = []
    for number, (group, split) in enumerate(zip(groups, splits, strict=True)):
        total = totals[number]
        if total is None:
            copies, blocks = sizes(group, split)
            total = np.zeros((copies, blocks, blocks, group.size, group.size))
        permutations, value = _assign(total)
        pairs.append(permutations)
        if split.parent is not None:
            outer = groups[split.parent], splits[split.parent]
            handed, before = _hand_up(group, split, *outer, value), totals[split.parent]
            totals[split.parent] = handed if before is None else before + handed
    matched: dict[int, Matched] = {}
    for number in reversed(range(len(groups))):
        group, split = groups[number], splits[number]
        copies, blocks = sizes(group, split)
        origins = np.zeros((copies, blocks), int)
        if split.parent is not None:
            parent = groups[split.parent], matched[split.parent]
            origins = _origins(group, split, *parent, splits[split.parent])
        copy, block = np.ix_(range(copies), range(blocks))
        matched[number] = Matched(pairs[number][copy, origins, block], origins)
    return [matched[number] for number in range(len(groups))]


def _assign(
    gains: Gains,
) -> tuple[
    Int[np.ndarray, "fixed block other unit"], Float[np.ndarray, "fixed block other"]
]:
    """The best assignment of each pair of blocks, and what it gains."""
    size = gains.shape[-1]
    best = assignment.solve(gains.reshape(-1, size, size)).reshape(gains.shape[:-1])
    gained = np.take_along_axis(gains, best[..., None], axis=-1)
    return best, gained.sum(axis=(-2, -1))


def _hand_up(
    group: Group,
    split: Layout,
    outer: Group,
    outer_split: Layout,
    value: Float[np.ndarray, "fixed block other"],
) -> Float[np.ndarray, "copies outer outer unit unit"]:
    """What pairs of blocks gain, as gains of the units of the group that moves them."""
    _, blocks = sizes(outer, outer_split)
    fixed = [group.batch_shape[i] for i in split.fixed]
    value = value.reshape(*fixed, blocks, outer.size, blocks, outer.size)
    units = [group.batch[i] for i in split.fixed]
    kept = [units.index(outer.batch[i]) for i in outer_split.fixed]
    summed = [i for i in range(len(fixed)) if i not in kept]
    last = len(fixed)
    value = value.transpose(*kept, last, last + 2, last + 1, last + 3, *summed)
    value = value.sum(axis=tuple(range(len(kept) + 4, value.ndim)))
    return value.reshape(-1, blocks, blocks, outer.size, outer.size)


def _origins(
    group: Group, split: Layout, outer: Group, above: Matched, outer_split: Layout
) -> Int[np.ndarray, "fixed block"]:
    """Which block of the reference each block of the network is matched to."""
    places = np.argsort(above.permutations, axis=-1)
    origins = above.origins[:, :, None] * outer.size + places
    origins = origins.reshape(len(origins), -1)
    units = [group.batch[i] for i in split.fixed]
    kept = [units.index(outer.batch[i]) for i in outer_split.fixed]
    if not kept:
        return np.repeat(origins, sizes(group, split)[0], axis=0)
    copies = np.indices([group.batch_shape[i] for i in split.fixed])
    shape = [outer.batch_shape[i] for i in outer_split.fixed]
    return origins[np.ravel_multi_index(tuple(copies[kept]), shape).ravel()]
