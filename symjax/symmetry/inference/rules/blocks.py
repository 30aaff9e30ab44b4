"""Rules of operations that cut axes into parts and put parts together."""

import math
from collections.abc import Sequence

from jax.extend import core

from symjax.symmetry.inference.rules.elementwise import own_links
from symjax.symmetry.inference.rules.shapes import drop_axes, relabel, with_axis
from symjax.symmetry.inference.unification import (
    Node,
    concatenation,
    cut_product,
    cut_sum,
    flat,
    product,
)
from symjax.symmetry.inference.walk import (
    NOTHING,
    SAME,
    Link,
    Rule,
    Value,
    Walk,
    shape_of,
)


def _concatenate(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    return [join(walk, operands, eqn.params["dimension"])]


def join(walk: Walk, operands: Sequence[Value], axis: int) -> Value:
    """Concatenate along `axis`; the others are tied."""
    operands = [value for value in operands if value.own[axis].size] or operands[:1]
    fit = True
    for operand in operands[1:]:
        pairs = zip(operand.own, operands[0].own, strict=True)
        for index, (one, other) in enumerate(pairs):
            fit &= index == axis or walk.tie(one, other)
    axes = list(operands[0].own)
    axes[axis] = concatenation([operand.own[axis] for operand in operands])
    links, offset = [], 0
    for operand in operands:
        links.append(own_links(operand))
        end = offset + operand.own[axis].size
        links[-1][axis] = Link((axis,), (axis,), target_range=(offset, end - 1))
        offset = end
    law = SAME if fit else NOTHING
    result = walk.value(axes, operands)
    constants = {operand.constant for operand in operands}
    result.constant = constants.pop() if len(constants) == 1 else None
    return walk.relate(result, operands, links, law, law)


def _stack(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    axis = eqn.params["axis"]
    slices = [with_axis(walk, operand, axis, 1) for operand in operands]
    return [join(walk, slices, axis)]


def _unstack(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,), axis = operands, eqn.params["axis"]
    slices = [
        take_range(walk, operand, axis, index, index + 1)
        for index in range(operand.own[axis].size)
    ]
    return [drop_axes(walk, part, [axis], (1,), (1,)) for part in slices]


def _pad(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    operand, filler = operands
    spread = []
    for axis, (low, high, inner) in enumerate(eqn.params["padding_config"]):
        pieces = [operand]
        if low < 0 or high < 0 or inner:
            spread.append(axis)
            continue
        for size, place in ((low, 0), (high, 2)):
            if size:
                shape = [node.size for node in operand.own]
                shape[axis] = size
                margin = relabel(walk, filler, [Node(n) for n in shape], [])
                pieces.insert(place, margin)
        operand = join(walk, pieces, axis) if len(pieces) > 1 else operand
    return [_spread(walk, operand, filler, spread, shape_of(eqn.outvars[0]))]


def _spread(
    walk: Walk,
    operand: Value,
    filler: Value,
    axes: Sequence[int],
    shape: Sequence[int],
) -> Value:
    """Pad between the entries of some axes, or cut their ends off."""
    if not axes:
        return operand
    own = list(operand.own)
    for axis in axes:
        own[axis] = Node(shape[axis])
        for node in (operand.own[axis], own[axis]):
            walk.pin(node, "it is padded between its entries, or its ends are cut off")
    links = [link for link in own_links(operand) if link.source[0] not in axes]
    result = walk.value(own, [operand, filler])
    return walk.relate(result, [operand, filler], [links, []], SAME, SAME)


def take_range(
    walk: Walk, operand: Value, axis: int, start: int, stop: int, stride: int = 1
) -> Value:
    """The indices `start, start + stride, ...` before `stop`, along one axis."""
    node, axes = operand.own[axis], list(operand.own)
    links = own_links(operand)
    if (start, stop, stride) == (0, node.size, 1):
        return operand
    count = max(0, math.ceil((stop - start) / stride))
    axes[axis] = Node(count)
    part = _part(node, start, start + count) if stride == 1 else None
    if stride > 1 and start < stride and node.size == count * stride:
        part = _every(node, start, stride)
    if part is None:
        walk.pin(node, "a part is taken that does not fit how it is cut elsewhere")
        walk.pin(axes[axis], "a part is taken that does not fit")
        del links[axis]
    else:
        axes[axis] = part
        last = start + count - 1 if stride == 1 else start
        links[axis] = Link((axis,), (axis,), source_range=(start, last))
    return relabel(walk, operand, axes, links)


def _part(node: Node, start: int, stop: int) -> Node | None:
    if start == stop or not (cut_sum(node, start) and cut_sum(node, stop)):
        return None
    offset, parts = 0, []
    for part in flat(node, "sum"):
        if start <= offset < stop:
            parts.append(part)
        offset += part.size
    found = concatenation(parts) if parts else None
    return found if found and found.size == stop - start else None


def _every(node: Node, start: int, stride: int) -> Node | None:
    count = node.size // stride
    if not cut_product(node, count):
        return None
    factors, outer, size = flat(node, "product"), [], 1
    while size < count:
        outer.append(factors.pop(0))
        size *= outer[-1].size
    inner = product(factors)
    fits = cut_sum(inner, start) and cut_sum(inner, start + 1)
    return product(outer) if fits and size == count else None


def _slice(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,) = operands
    strides = eqn.params["strides"] or [1] * operand.rank
    starts, stops = eqn.params["start_indices"], eqn.params["limit_indices"]
    for axis in range(operand.rank):
        bounds = (starts[axis], stops[axis], strides[axis])
        operand = take_range(walk, operand, axis, *bounds)
    return [operand]


def _split(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,), start, results = operands, 0, []
    for size in eqn.params["sizes"]:
        stop = start + size
        results.append(take_range(walk, operand, eqn.params["axis"], start, stop))
        start = stop
    return results


RULES: dict[str, Rule] = {
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "pad": _pad,
    "slice": _slice,
    "split": _split,
}
