"""Rules of operations in which some axes are indexed, ordered or slid over."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core

from symjax.symmetry.inference.rules.elementwise import own_links
from symjax.symmetry.inference.unification import Node
from symjax.symmetry.inference.walk import (
    ANYTHING,
    NOTHING,
    SAME,
    Law,
    Link,
    Rule,
    Value,
    Walk,
    shape_of,
)


def _links_without(value: Value, axes: Sequence[int]) -> list[Link]:
    return [link for link in own_links(value) if link.source[0] not in axes]


def _fix(
    walk: Walk, operand: Value, axes: Sequence[int], reason: str, scale: Law, sign: Law
) -> Value:
    """A result of the operand's shape in which the order along some axes matters."""
    own = list(operand.own)
    for axis in axes:
        walk.pin(own[axis], reason)
    result = walk.value(own, [operand])
    return walk.relate(result, [operand], [_links_without(operand, axes)], scale, sign)


def _reverse(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    axes = eqn.params["dimensions"]
    return [_fix(walk, operands[0], axes, "it is reversed", (1,), (1,))]


def _cumulative(scale: Law, sign: Law) -> Rule:
    def rule(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
        axes = [eqn.params["axis"]]
        return [_fix(walk, operands[0], axes, "it is accumulated along", scale, sign)]

    return rule


def _sort(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    axis = eqn.params["dimension"]
    for operand in operands[1:]:
        for one, other in zip(operand.own, operands[0].own, strict=True):
            walk.tie(one, other)
    # Sorting compares the keys, so their signs along other axes matter.
    for operand in operands:
        walk.relate(
            operand,
            [operands[0]],
            [_links_without(operand, [axis])],
            ANYTHING,
            ANYTHING,
        )
    scale: Law = (1,) if len(operands) == 1 else NOTHING
    return [_fix(walk, v, [axis], "it is sorted", scale, NOTHING) for v in operands]


def _top_k(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,) = operands
    axis = eqn.params.get("axis", operand.rank - 1) % operand.rank
    walk.pin(operand.own[axis], "the largest entries along it are picked")
    results = []
    for scale in ((1,), (0,)):
        own = list(operand.own)
        own[axis] = Node(eqn.params["k"])
        walk.pin(own[axis], "the largest entries along it are picked")
        result = walk.value(own, operands)
        links = [_links_without(operand, [axis])]
        results.append(walk.relate(result, operands, links, scale, NOTHING))
    return results


def _window(scale: Law, sign: Law) -> Rule:
    def rule(
        walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
    ) -> list[Value] | None:
        if len(operands) != 1:
            return None
        (operand,) = operands
        own, slid = list(operand.own), []
        for axis, node in enumerate(operand.own):
            if not _leaves_alone(eqn.params, axis):
                slid.append(axis)
                own[axis] = Node(int(shape_of(eqn.outvars[0])[axis]))
                for side in (node, own[axis]):
                    walk.pin(side, "a window slides along it", natural=True)
        result = walk.value(own, operands)
        return [
            walk.relate(result, operands, [_links_without(operand, slid)], scale, sign)
        ]

    return rule


def _leaves_alone(params: dict[str, Any], axis: int) -> bool:
    """Whether a window does nothing along an axis: no sum, step, margin or gap."""
    steps = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    found = [params[name][axis] for name in steps if params.get(name)]
    return set(found) == {1} and tuple(params["padding"][axis]) == (0, 0)


def _partial(
    walk: Walk, whole: Value, sizes: Sequence[int]
) -> tuple[list[int], list[Node]]:
    """The axes of which only a part is read or written, pinned, and the part's axes."""
    partly, own = [], list(whole.own)
    for axis, size in enumerate(sizes):
        if int(size) != own[axis].size:
            walk.pin(own[axis], "a part is taken whose place is computed")
            own[axis] = Node(int(size))
            walk.pin(own[axis], "a part is taken whose place is computed")
            partly.append(axis)
    return partly, own


def _dynamic_slice(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
) -> list[Value]:
    operand, *starts = operands
    partly, own = _partial(walk, operand, eqn.params["slice_sizes"])
    _fixed(walk, starts)
    result = walk.value(own, operands)
    links = [_links_without(operand, partly)]
    return [walk.relate(result, [operand], links, (1,), (1,))]


def _dynamic_update_slice(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
) -> list[Value]:
    operand, update, *starts = operands
    partly, _ = _partial(walk, operand, [node.size for node in update.own])
    _fixed(walk, starts)
    fit = True
    for axis, (one, other) in enumerate(zip(operand.own, update.own, strict=True)):
        if axis in partly:
            walk.pin(other, "a part is written whose place is computed")
        else:
            fit &= walk.tie(one, other)
    law = SAME if fit else NOTHING
    result = walk.value(operand.own, operands)
    links = [own_links(operand), _links_without(update, partly)]
    return [walk.relate(result, [operand, update], links, law, law)]


def _fixed(walk: Walk, indices: Sequence[Value]) -> None:
    """Indices can't be scaled."""
    for value in indices:
        walk.relate(value, (), (), (), ())


def _gather(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    operand, indices = operands
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    _fixed(walk, [indices])
    result = walk.fresh(shape_of(eqn.outvars[0]), operands)
    own, links, index_links = list(result.own), [], []
    rest = [axis for axis in range(result.rank) if axis not in numbers.offset_dims]
    for source, target in enumerate(rest):
        own[target] = indices.own[source]
        index_links.append(Link((source,), (target,)))
    offsets = iter(numbers.offset_dims)
    for axis, node in enumerate(operand.own):
        if axis in numbers.operand_batching_dims:
            place = numbers.operand_batching_dims.index(axis)
            target = rest[numbers.start_indices_batching_dims[place]]
            if walk.tie(node, own[target]):
                links.append(Link((axis,), (target,)))
            continue
        target = None if axis in numbers.collapsed_slice_dims else next(offsets)
        indexed = axis in numbers.start_index_map
        if target is not None and not indexed and sizes[axis] == node.size:
            own[target] = node
            links.append(Link((axis,), (target,)))
        else:
            walk.pin(node, "its entries are looked up by index")
            if target is not None:
                walk.pin(own[target], "its entries are looked up by index")
    result = walk.value(own, operands)
    # What is read outside the operand may be filled with a number that has no scale.
    fill = eqn.params.get("fill_value")
    law: Law = (1, 0) if fill is None or np.isnan(fill) or fill == 0 else NOTHING
    return [walk.relate(result, operands, [links, index_links], law, law)]


def _scatter(sign: Law) -> Rule:
    def rule(
        walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
    ) -> list[Value] | None:
        if eqn.primitive.name == "scatter" and not _overwrites(eqn):
            return None
        return [_scattered(walk, eqn, operands, sign)]

    return rule


def _overwrites(eqn: core.JaxprEqn) -> bool:
    """Whether new entries replace the old; `x.at[i].apply(f)` is a scatter too."""
    update = eqn.params["update_jaxpr"]
    if update is None:
        return True
    jaxpr = getattr(update, "jaxpr", update)
    return not jaxpr.eqns and jaxpr.outvars == jaxpr.invars[1:]


def _scattered(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value], sign: Law
) -> Value:
    operand, indices, updates = operands
    numbers = eqn.params["dimension_numbers"]
    _fixed(walk, [indices])
    links, index_links, fit = [], [], True
    rest = [a for a in range(updates.rank) if a not in numbers.update_window_dims]
    windows = iter(numbers.update_window_dims)
    for axis, node in enumerate(operand.own):
        if axis in numbers.operand_batching_dims:
            place = numbers.operand_batching_dims.index(axis)
            index_axis = numbers.scatter_indices_batching_dims[place]
            source = rest[index_axis]
            fit &= walk.tie(node, updates.own[source])
            fit &= walk.tie(node, indices.own[index_axis])
            links.append(Link((source,), (axis,)))
            index_links.append(Link((index_axis,), (axis,)))
            continue
        source = None if axis in numbers.inserted_window_dims else next(windows)
        indexed = axis in numbers.scatter_dims_to_operand_dims
        if source is not None and not indexed and updates.own[source].size == node.size:
            fit &= walk.tie(node, updates.own[source])
            links.append(Link((source,), (axis,)))
        else:
            walk.pin(node, "entries are written to it by index")
            if source is not None:
                walk.pin(updates.own[source], "it is written by index")
    for source, axis in enumerate(rest):
        walk.pin(updates.own[axis], "it is written by index")
        walk.pin(indices.own[source], "it indexes what is written")
    laws = (SAME, sign) if fit else (NOTHING, NOTHING)
    result = walk.value(operand.own, operands)
    result = walk.relate(result, [operand, updates], [own_links(operand), links], *laws)
    walk.relate(result, [indices], [index_links], ANYTHING, ANYTHING)
    return result


RULES: dict[str, Rule] = {
    "rev": _reverse,
    "cumsum": _cumulative((1,), (1,)),
    "cummax": _cumulative((1,), NOTHING),
    "cummin": _cumulative((1,), NOTHING),
    "cumprod": _cumulative(NOTHING, NOTHING),
    "cumlogsumexp": _cumulative(NOTHING, NOTHING),
    "sort": _sort,
    "top_k": _top_k,
    "reduce_window_sum": _window((1,), (1,)),
    "reduce_window_max": _window((1,), NOTHING),
    "reduce_window_min": _window((1,), NOTHING),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter-sub"), _scatter(SAME)),
    **dict.fromkeys(("scatter-max", "scatter-min"), _scatter(NOTHING)),
}
