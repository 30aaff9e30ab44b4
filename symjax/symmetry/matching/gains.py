"""What a pair of units gains: how well one fits in the place of the other.

The objective is the sum of products of two networks, weight by weight, which is largest
where their squared distance is smallest. As a function of one group's permutation, all
else given, it is a sum over pairs `(unit of the reference, unit of the network)` of
gains, which are products of the weights of both units.

Signs of a unit multiply some of its weights. Gains are kept apart by the signs that
multiply, and the best signs of each pair are found with the gain.

Programs are compiled for a `Recipe`, which is the same for all layers of one make.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symjax.symmetry.matching import boxes, visits
from symjax.symmetry.matching.visits import Flip, Step, Variable, Visit
from symjax.symmetry.spec import Spec


Boxes: TypeAlias = Sequence[Float[Array, "..."]]

Patterns: TypeAlias = tuple[tuple[int, ...], ...]
"""For each array of gains, the numbers of the signs that multiply."""

_MOST_TRIED = 6
"""Signs that others depend on, of which all combinations are tried; more are held."""


class Moved(NamedTuple):
    """What acts on a box: `(number of the array, dimensions)`, in order."""

    signs: tuple[tuple[int, tuple[int, ...]], ...]
    permutations: tuple[tuple[int, tuple[int, ...]], ...]


STILL = Moved((), ())
"""Nothing acts."""


class Features(NamedTuple):
    """How the weights of units are taken from a box.

    Attributes:
        box: Its number.
        copies: Dimensions of the batch that stays.
        units: Dimensions of the units, and of the blocks that move.
        at: `(dimension, index)` that are taken alone.
        sort: Dimensions along which weights are sorted.
        magnitudes: Compare absolute values.
    """

    box: int
    copies: tuple[int, ...]
    units: tuple[int, ...]
    at: tuple[tuple[int, int], ...]
    sort: tuple[int, ...]
    magnitudes: bool


class Compared(NamedTuple):
    """The weights of one group's units, by the signs that multiply."""

    patterns: Patterns
    features: tuple[tuple[Features, ...], ...]


class Recipe(NamedTuple):
    """What a step computes, without names."""

    moved: tuple[Moved, ...]
    compared: tuple[Compared, ...] = ()
    summed: tuple[tuple[int, tuple[int, ...]], ...] = ()


class Prepared(NamedTuple):
    """A recipe, and what in a network it is for.

    Attributes:
        recipe: What is computed.
        boxes: Numbers of its boxes.
        permutations: Numbers of the groups that act there.
        signs: Numbers of the signs that act there.
        variables: For each group that is matched, what its signs are.
    """

    recipe: Recipe
    boxes: tuple[int, ...]
    permutations: tuple[int, ...]
    signs: tuple[int, ...]
    variables: tuple[tuple[Variable, ...], ...] = ()


@functools.cache
def prepare(spec: Spec, step: Step | None) -> Prepared:
    """The recipe of a step; without one, of moving all boxes."""
    cut = boxes.cut(spec)
    used = [i for i, box in enumerate(cut) if step is None or visits.places(box, step)]
    permutations = sorted({p.group for i in used for p in cut[i].permutations})
    signs = sorted({s.group for i in used for s in cut[i].signs})
    moved = tuple(
        Moved(
            tuple((signs.index(s.group), s.dims) for s in cut[i].signs),
            # Groups inside a batch come first.
            tuple(
                (permutations.index(p.group), p.dims)
                for p in sorted(cut[i].permutations, key=lambda place: place.group)
            ),
        )
        for i in used
    )
    recipe, variables = Recipe(moved), ()
    if isinstance(step, Flip):
        places = visits.telling(spec, step)
        summed = tuple((used.index(i), place.dims) for i, place in places)
        recipe = recipe._replace(summed=summed)
    elif step is not None:
        pairs = [_compared(spec, step, number, used) for number in step.groups]
        recipe = recipe._replace(compared=tuple(one for one, _ in pairs))
        variables = tuple(own for _, own in pairs)
    return Prepared(recipe, tuple(used), tuple(permutations), tuple(signs), variables)


def _compared(
    spec: Spec, visit: Visit, number: int, used: list[int]
) -> tuple[Compared, tuple[Variable, ...]]:
    copies, moving = visits.copies_and_blocks(spec, visit, number)
    by_pattern: dict[tuple[Variable, ...], list[Features]] = {}
    for piece in visits.pieces(spec, visit, number):
        dims = piece.place.dims
        features = Features(
            used.index(piece.box),
            tuple(dims[i] for i in copies),
            (*(dims[i] for i in moving), dims[-1]),
            piece.at,
            piece.sort,
            piece.magnitudes,
        )
        by_pattern.setdefault(piece.pattern, []).append(features)
    variables = list(dict.fromkeys(v for pattern in by_pattern for v in pattern))
    patterns = tuple(tuple(map(variables.index, pattern)) for pattern in by_pattern)
    features = tuple(map(tuple, by_pattern.values()))
    return Compared(patterns, features), tuple(variables)


def move(
    recipe: Recipe,
    network: Boxes,
    permutations: Sequence[Int[Array, "..."]],
    signs: Sequence[Int[Array, "..."]],
) -> list[Float[Array, "..."]]:
    """Flip and reorder the boxes of one network."""
    moved = []
    for acting, box in zip(recipe.moved, network, strict=True):
        for number, dims in acting.signs:
            box = boxes.multiply(box, dims, signs[number])
        for number, dims in acting.permutations:
            box = boxes.reorder(box, dims, permutations[number])
        moved.append(box)
    return moved


def gains(
    compared: Compared, reference: Boxes, network: Boxes
) -> list[Float[Array, "copy unit unit2"]]:
    """What pairs of units gain, for each pattern of signs.

    Where blocks move, the units of all blocks are counted together, `(block, unit)`.
    """
    # A sum of products takes half the time of a product of all features in one array.
    return [
        functools.reduce(
            jnp.add,
            [_gains(how, reference[how.box], network[how.box]) for how in parts],
        )
        for parts in compared.features
    ]


def _gains(
    how: Features, reference: Float[Array, "..."], network: Float[Array, "..."]
) -> Float[Array, "copy unit unit2"]:
    one, two = (_features(how, box) for box in (reference, network))
    copies, units = ((0,), (1,)) if how.sort else (how.copies, how.units)
    dims = list(range(one.ndim))
    others = [one.ndim + dim if dim in units else dim for dim in dims]
    out = [*copies, *units, *(others[dim] for dim in units)]
    gain = jnp.einsum(one, dims, two, others, out, precision=jax.lax.Precision.HIGHEST)
    size = math.prod(one.shape[dim] for dim in units)
    return gain.reshape(-1, size, size)


def _features(how: Features, box: Float[Array, "..."]) -> Float[Array, "..."]:
    """The weights as they are, or sorted: `(copy, unit, place, other)`."""
    for dim, index in how.at:
        box = jax.lax.slice_in_dim(box, index, index + 1, axis=dim)
    if how.magnitudes:
        box = jnp.abs(box)
    if not how.sort:
        return box
    taken = {*how.copies, *how.units, *how.sort}
    parts = how.copies, how.units, how.sort, set(range(box.ndim)) - taken
    sizes = [math.prod(box.shape[dim] for dim in part) for part in parts]
    return jnp.sort(box.transpose(*itertools.chain(*parts)).reshape(sizes), axis=2)


def best_signs(
    patterns: Patterns, values: Sequence[Float[Array, "..."]]
) -> tuple[Float[Array, "..."], list[Float[Array, "..."]]]:
    """The largest sum of gains that signs allow, entry by entry, and the signs.

    All values are tried of as many signs as it takes for the others to be independent.
    A sign that makes no difference is 1.

    Args:
        patterns: The signs that multiply each of the gains.
        values: The gains.

    Returns:
        The sums, and each of the signs.
    """
    together = _cover(patterns)
    choices = [(1, -1) if i < _MOST_TRIED else (1,) for i in range(len(together))]
    num_signs = 1 + max((sign for pattern in patterns for sign in pattern), default=-1)
    best = None
    for tried in itertools.product(*choices):
        given = dict(zip(together, tried, strict=True))
        total = jnp.zeros_like(values[0])
        alone = {}
        for pattern, value in zip(patterns, values, strict=True):
            value = value * math.prod(given.get(sign, 1) for sign in pattern)
            free = [sign for sign in pattern if sign not in given]
            if free:
                alone[free[0]] = alone.get(free[0], 0) + value
            else:
                total = total + value
        total = total + sum(map(jnp.abs, alone.values()))
        signs = [
            jnp.where(alone[sign] < 0, -1.0, 1.0)
            if sign in alone
            else jnp.full_like(total, given[sign])
            for sign in range(num_signs)
        ]
        if best is None:
            best = total, signs
        else:
            better = total > best[0]
            best = jax.tree.map(
                lambda new, old, better=better: jnp.where(better, new, old),
                (total, signs),
                best,
            )
    assert best is not None
    return best


def _cover(patterns: Iterable[tuple[int, ...]]) -> list[int]:
    """Signs without which each pattern has at most one."""
    chosen: list[int] = []
    while True:
        left = [[sign for sign in one if sign not in chosen] for one in patterns]
        several = [sign for one in left if len(one) > 1 for sign in one]
        if not several:
            return chosen
        chosen.append(max(sorted(set(several)), key=several.count))


def totals(recipe: Recipe, product: Boxes) -> Float[Array, "..."]:
    """The sum of products over the weights of each unit of a sign."""
    total = jnp.zeros(())
    for number, dims in recipe.summed:
        others = [dim for dim in range(product[number].ndim) if dim not in dims]
        ranks = np.argsort(np.argsort(dims)).tolist()
        total += product[number].sum(others).transpose(ranks)
    return total
