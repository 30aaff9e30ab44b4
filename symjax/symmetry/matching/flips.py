"""Signs that activations tell: those of units whose taps they flip."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symjax.symmetry.actions import flip
from symjax.symmetry.matching import gains
from symjax.symmetry.matching.blocks import Gains, Layout, Matched, unfold
from symjax.symmetry.spec import Group, Spec
from symjax.symmetry.taps import signs_of, taps
from symjax.types import Params


Variable: TypeAlias = tuple[int, tuple[int | None, ...]]
"""A sign of each unit: `(sign group, index)`, None along the kinds of the unit."""

Pattern: TypeAlias = frozenset[Variable]
"""The signs that flip a tap."""


def patterns(
    apply: Callable[[Params, Any], Any], spec: Spec, params: Params, x: Any
) -> list[list[Pattern]]:
    """For each permutation group and each of its taps, the signs that flip the tap.

    It is tried: all units are flipped at once.
    """
    run = jax.jit(functools.partial(taps, apply, spec))
    before = run(params, x) if spec.signs else jax.eval_shape(run, params, x)
    flipping = [[set[Variable]() for _ in group] for group in before]
    owned = [list(_variables(spec, group)) for group in spec.permutations]
    for variable in dict.fromkeys(itertools.chain(*owned)):
        signs = [np.ones(one.shape, np.int8) for one in spec.signs]
        signs[variable[0]][_index(variable)] = -1
        after = run(flip(spec, signs, params), x)
        for own, *tapped in zip(owned, flipping, before, after, strict=True):
            for found, old, new in zip(*tapped, strict=True):
                if variable in own and jnp.sum(old * new) < 0:
                    found.add(variable)
    return [list(map(frozenset, group)) for group in flipping]


def _variables(spec: Spec, group: Group) -> Iterator[Variable]:
    """The signs that may flip all of a group's units.

    Arrays of one sign for each unit, one array for each index that is not of the units;
    and single signs, such as that of a whole residual stream.
    """
    units = (group.units, *group.batch)
    owned = signs_of(spec, group)
    for number, signs in enumerate(spec.signs):
        if number in owned or math.prod(signs.shape) == 1:
            own = [kind in units for kind in (*signs.batch, signs.units)]
            sizes = (1 if mine else n for mine, n in zip(own, signs.shape, strict=True))
            for index in np.ndindex(*sizes):
                pairs = zip(own, index, strict=True)
                yield number, tuple(None if mine else i for mine, i in pairs)


def _index(variable: Variable) -> tuple[int | slice, ...]:
    return tuple(slice(None) if i is None else i for i in variable[1])


def best(
    similar: Mapping[Pattern, Float[Array, "..."]],
) -> tuple[Float[Array, "..."], dict[Variable, Float[Array, "..."]]]:
    """The largest similarity of each pair of units that signs allow, and the signs."""
    variables = list(dict.fromkeys(itertools.chain(*similar)))
    numbers = tuple(tuple(map(variables.index, pattern)) for pattern in similar)
    total, signs = gains.best_signs(numbers, list(similar.values()))
    return total, dict(zip(variables, signs, strict=True))


def of_matched(
    spec: Spec,
    splits: Sequence[Layout],
    matched: Sequence[Matched],
    chosen: Sequence[Mapping[Variable, Float[Array, "..."]]],
) -> tuple[Int[np.ndarray, "..."], ...]:
    """All signs of a network, once its units are matched.

    Args:
        spec: The network's symmetries.
        splits: How the batches of the permutation groups split.
        matched: Which pairs of units are matched.
        chosen: For each group the best signs of each pair of units, as its `Gains`.

    Returns:
        Signs for each of `spec.signs`; 1 for what no tap tells.
    """
    signs = tuple(np.ones(one.shape, np.int8) for one in spec.signs)
    votes = np.zeros(len(signs))
    each = zip(spec.permutations, splits, matched, chosen, strict=True)
    for group, split, one, found in each:
        own = (*group.batch, group.units)
        for variable, values in found.items():
            number = variable[0]
            units = unfold(group, split, _of_pairs(np.asarray(values), one))
            kinds = (*spec.signs[number].batch, spec.signs[number].units)
            order = [own.index(kind) for kind in kinds if kind in own]
            if order:
                signs[number][_index(variable)] = units.transpose(order)
            else:
                votes[number] += units.sum()
    for number in np.flatnonzero(votes < 0):
        signs[number][...] = -1
    return signs


def _of_pairs(values: Gains, matched: Matched) -> Float[np.ndarray, "fixed block unit"]:
    """What belongs to each unit of the network and its match."""
    order = matched.permutations
    copy, block, unit = np.ix_(*map(range, order.shape))
    pairs = values[copy, matched.origins[:, :, None], block, unit, order]
    return np.take_along_axis(pairs, np.argsort(order, axis=-1), axis=-1)
