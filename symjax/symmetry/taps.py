"""Taps: the activations of the units of each permutation group.

What a layer reads: the values that are multiplied with a parameter and summed over the
units. Where units are read by no parameter (queries and keys, whose products are
summed; the pieces of a maxout) it is what else sums over them, and where nothing does
(heads, experts that are averaged) the last value that has them on an axis.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from symjax.symmetry.inference.independence import partners
from symjax.symmetry.inference.places import Place, strides
from symjax.symmetry.inference.unification import Node, positions
from symjax.symmetry.inference.walk import Value
from symjax.symmetry.spec import Axis, Factor, Group, Spec
from symjax.symmetry.tracing import Path, Step, Trace, trace
from symjax.types import Params


def taps(
    apply: Callable[[Params, Any], Any], spec: Spec, params: Params, x: Any
) -> tuple[tuple[Num[Array, "..."], ...], ...]:
    """The activations of the units of every permutation group.

    They are found in the computation of the network, not by name. Pure: it runs under
    `jit` and, over draws, `vmap`. No gradient passes a function with a rule of its own
    for derivatives.

    Args:
        apply: `apply(params, x) -> outputs`.
        spec: Its symmetries.
        params: One setting of the parameters.
        x: Inputs.

    Returns:
        For each group of `spec.permutations` its taps, each `(sample, *batch, unit)`
        with the group's batch. Samples are all else that the value has: examples, and
        pixels, tokens, or steps of a loop. None where no value holds the group's units
        without those of another group beside them, or only a `while` or `cond` does.
    """
    spec.check(params)
    traced = trace(apply, params, x)
    chosen = [_choose(traced, spec, group) for group in spec.permutations]
    wanted = list(dict.fromkeys(tap.path for group in chosen for tap in group))
    visits = [(path, lambda operands, results: (results, operands)) for path in wanted]
    _, kept = traced.run(params, x, visits)

    def units(tap: "_Tap") -> list[Array]:
        return list(_units(tap, kept[wanted.index(tap.path)][tap.operand]))

    return tuple(
        tuple(array for tap in group for array in units(tap)) for group in chosen
    )


def signs_of(spec: Spec, group: Group) -> list[int]:
    """Which of `spec.signs` belong to the units of a permutation group.

    They have one sign for each of its units, or several, such as one in each layer of a
    loop.
    """

    def kinds(one: Group) -> set[int]:
        return {one.units, *one.batch}

    def owner(signs: Group) -> Group | None:
        inside = [one for one in spec.permutations if kinds(one) <= kinds(signs)]
        return max(inside, key=lambda one: len(one.batch), default=None)

    return [number for number, signs in enumerate(spec.signs) if owner(signs) is group]


class _Kind(NamedTuple):
    """The unit kinds that tell whether a value is a tap of a group.

    Attributes:
        unit: That of the group.
        batch: Those of its batch.
        moved: Those of all groups.
        apart: Those over which the signs of the units are independent.
    """

    unit: Node
    batch: tuple[Node, ...]
    moved: set[Node]
    apart: set[Node]


class _Tap(NamedTuple):
    """An operand of an operation, and where the units lie in it.

    Attributes:
        path: The operation.
        operand: Its number.
        value: The operand.
        axis: Where the units lie in its axes.
        num_apart: How many of the batch axes, the first ones, are not of the group:
            each of their indices is a tap of its own.
    """

    path: Path
    operand: int
    value: Value
    axis: Axis
    num_apart: int


def _choose(traced: Trace, spec: Spec, group: Group) -> list[_Tap]:
    unit, batch = traced.leaves(group)
    moved = {traced.leaves(other)[0] for other in spec.permutations}
    apart: set[Node] = set()
    for signs in signs_of(spec, group):
        sign_unit, sign_batch = traced.leaves(spec.signs[signs])
        apart |= {sign_unit, *sign_batch}
    kind = _Kind(unit, batch, moved, apart - {unit, *batch})
    by_rank: list[dict[Value, _Tap]] = [{}, {}, {}]
    for step in traced.steps:
        for operand, value in enumerate(step.operands):
            if value not in traced.activations:
                continue
            for axis, node in enumerate(value.axes):
                held = [p.leaf is unit for p in positions(node)]
                if sum(held) != 1:
                    continue
                place = Place("", value, axis, held.index(True))
                tap = _tap(step.path, operand, place, kind)
                if tap is not None:
                    rank = _rank(step, operand, axis, traced.activations)
                    by_rank[rank].setdefault(value, tap)
    read, summed, other = (list(found.values()) for found in by_rank)
    return read or summed or other[-1:]


def _rank(step: Step, number: int, axis: int, activations: set[Value]) -> int:
    """0 if a product with a parameter sums over the axis, 1 if anything does, or 2."""
    params, name = step.eqn.params, step.eqn.primitive.name
    if name == "dot_general":
        summed = params["dimension_numbers"][0][number]
    elif name == "conv_general_dilated":
        summed = [params["dimension_numbers"].lhs_spec[1]] if number == 0 else []
    elif name in ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"):
        return 1 if axis in params["axes"] else 2
    else:
        return 2
    if axis not in summed:
        return 2
    return int(step.operands[1 - number] in activations)


def _tap(path: Path, operand: int, place: Place, kind: _Kind) -> _Tap | None:
    """An operand as a tap, if nothing else that moves lies beside the units."""
    beside = Counter(leaf for leaf, _ in partners(*place[1:]))
    if any(beside[leaf] != 1 for leaf in kind.batch) or any(
        leaf in kind.moved and leaf not in kind.batch for leaf in beside
    ):
        return None
    apart = [leaf for leaf in kind.apart if beside[leaf] == 1]
    axis = strides(place, [*apart, *kind.batch], 1)
    return _Tap(path, operand, place.value, axis, len(apart))


def _units(tap: _Tap, array: Num[Array, "..."]) -> Num[Array, "..."]:
    """The units of an operand, `(apart, sample, *batch, unit)`."""
    # Kept with the loops first; a value has them last, after one axis for the whole.
    num_loops = array.ndim - tap.value.rank
    array = jnp.moveaxis(array, range(num_loops), range(-num_loops, 0))
    array = jnp.expand_dims(array, tap.value.rank)
    last = (*tap.axis.batch, tap.axis.unit)
    dimensions: list[int | Factor] = []
    for number in reversed(range(array.ndim)):
        factors = [f for f in (*last, *tap.axis.rest) if f.axis == number]
        if not factors:
            dimensions.insert(0, number)
            continue
        factors.sort(key=lambda factor: -factor.stride)
        steps = np.ix_(*(np.arange(factor.size) * factor.stride for factor in factors))
        places = sum(steps, np.asarray(dict(tap.axis.starts)[number]))
        if not np.array_equal(places.ravel(), np.arange(array.shape[number])):
            array = jnp.take(array, places.ravel(), axis=number)
        before, after = array.shape[:number], array.shape[number + 1 :]
        array = array.reshape(*before, *places.shape, *after)
        dimensions = [*factors, *dimensions]
    kept = [dimensions.index(factor) for factor in last]
    samples = [i for i in range(array.ndim) if i not in kept]
    apart, units = kept[: tap.num_apart], kept[tap.num_apart :]
    array = array.transpose(*apart, *samples, *units)
    shape = [factor.size for factor in last]
    num_apart = math.prod(shape[: tap.num_apart])
    return array.reshape(num_apart, -1, *shape[tap.num_apart :])
