"""Which unit of a network goes with which of the reference, by what pairs gain."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from symjax.symmetry.matching import assignment, blocks, visits
from symjax.symmetry.matching.blocks import Layout
from symjax.symmetry.matching.visits import Variable, Visit
from symjax.symmetry.spec import Group, Spec


def solve(
    spec: Spec,
    visit: Visit,
    totals: Sequence[Float[np.ndarray, "network _ _ _"] | None],
    active: Bool[np.ndarray, " network"],
) -> tuple[list[Int[np.ndarray, "..."]], list[Int[np.ndarray, "..."]]]:
    """The permutations of largest gain, on the host.

    Args:
        spec: The networks' symmetries.
        visit: Which groups.
        totals: For each group what pairs of units gain with the best signs; None if it
            gains by the units inside alone.
        active: The networks to solve for; others stay.

    Returns:
        For each group the unit that comes to each unit of the reference, counted over
        all blocks that move, and the permutations, which act inside blocks first.
    """
    if visit.nested:
        return _solve_nested(spec, visit, totals, active)
    (total,), (number,) = totals, visit.groups
    assert total is not None, "a group without weights"
    group = spec.permutations[number]
    chosen = total if active.all() else total[active]
    best = assignment.solve(chosen.reshape(-1, *chosen.shape[2:]))
    sources = _stay(total.shape[:-1])
    sources[active] = best.reshape(chosen.shape[:-1])
    return [sources], [sources.reshape(len(active), *group.shape)]


def _solve_nested(
    spec: Spec,
    visit: Visit,
    totals: Sequence[Float[np.ndarray, "network _ _ _"] | None],
    active: Bool[np.ndarray, " network"],
) -> tuple[list[Int[np.ndarray, "..."]], list[Int[np.ndarray, "..."]]]:
    """Units between all pairs of blocks, then blocks; network by network."""
    groups = [spec.permutations[number] for number in visit.groups]
    every = blocks.layouts(spec.permutations)
    splits = [
        split._replace(
            parent=None if split.parent is None else visit.groups.index(split.parent)
        )
        for split in (every[number] for number in visit.groups)
    ]
    sources, permutations = [], []
    for group, split in zip(groups, splits, strict=True):
        copies, count = blocks.sizes(group, split)
        sources.append(_stay((len(active), copies, count * group.size)))
        permutations.append(_stay((len(active), *group.shape)))
    for network in np.flatnonzero(active):
        own = [
            None if total is None else _by_block(group, split, total[network])
            for group, split, total in zip(groups, splits, totals, strict=True)
        ]
        for k, one in enumerate(blocks.match(groups, splits, own)):
            order = blocks.unfold(groups[k], splits[k], one.permutations)
            permutations[k][network] = order
            sources[k][network] = _sources(one)
    return sources, permutations


def _stay(shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    """Permutations that move nothing."""
    return np.zeros(shape, int) + np.arange(shape[-1])


def _by_block(
    group: Group, split: Layout, total: Float[np.ndarray, "copy all all2"]
) -> Float[np.ndarray, "copy block other unit unit2"]:
    copies, count = blocks.sizes(group, split)
    total = total.reshape(copies, count, group.size, count, group.size)
    return total.transpose(0, 1, 3, 2, 4)


def _sources(one: blocks.Matched) -> Int[np.ndarray, "copy all"]:
    """The unit, counted over all blocks, that comes to each unit of the reference."""
    copies, count, size = one.permutations.shape
    sources = np.zeros((copies, count, size), int)
    copy, block = np.ix_(range(copies), range(count))
    sources[copy, one.origins] = block[..., None] * size + one.permutations
    return sources.reshape(copies, -1)


def put_signs(
    spec: Spec,
    visit: Visit,
    number: int,
    variables: Sequence[Variable],
    values: Sequence[Float[np.ndarray, "network copy unit"]],
    flips: dict[int, np.ndarray],
) -> None:
    """Write signs of a group's units where they belong in `flips`, by sign group."""
    group = spec.permutations[number]
    copies, moving = visits.copies_and_blocks(spec, visit, number)
    order = (*copies, *moving, len(group.batch))
    kinds = (*group.batch, group.units)
    for (sign, index), value in zip(variables, values, strict=True):
        value = value.reshape(len(value), *(group.shape[i] for i in order))
        value = value.transpose(0, *(1 + np.argsort(order)))
        all_kinds = (*spec.signs[sign].batch, spec.signs[sign].units)
        own = [kinds.index(kind) for kind in all_kinds if kind in kinds]
        shape = len(value), *spec.signs[sign].shape
        flips.setdefault(sign, np.ones(shape, np.int8))
        at = tuple(slice(None) if i is None else i for i in index)
        flips[sign][(slice(None), *at)] = value.transpose(0, *(1 + i for i in own))
