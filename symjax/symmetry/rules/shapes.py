"""Rules of operations that rearrange axes or sum over them."""

import math
from collections.abc import Sequence

from jax.extend import core

from symjax.symmetry.rules.elementwise import own_links
from symjax.symmetry.unification import (
    Node,
    concatenation,
    cut_product,
    cut_sum,
    flat,
    product,
)
from symjax.symmetry.walk import NOTHING, SAME, Law, Link, Rule, Value, Walk


PASS: tuple[Law, Law] = ((1,), (1,))


def relabel(
    walk: Walk, operand: Value, axes: Sequence[Node], links: Sequence[Link]
) -> Value:
    """The entries of `operand` in another arrangement."""
    result = walk.value(axes, [operand])
    result.constant = operand.constant
    return walk.relate(result, [operand], [links], *PASS)


def _broadcast_in_dim(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
) -> list[Value] | None:
    operand, *dynamic = operands
    if dynamic:
        return None
    axes = [Node(size) for size in eqn.params["shape"]]
    links = []
    for source, target in enumerate(eqn.params["broadcast_dimensions"]):
        if operand.own[source].size == axes[target].size:
            axes[target] = operand.own[source]
            links.append(Link((source,), (target,)))
    return [relabel(walk, operand, axes, links)]


def _transpose(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,) = operands
    order = eqn.params["permutation"]
    links = [Link((source,), (target,)) for target, source in enumerate(order)]
    return [relabel(walk, operand, [operand.own[axis] for axis in order], links)]


def _keep(
    walk: Walk, operand: Value, dropped: Sequence[int], scale: Law, sign: Law
) -> Value:
    """The result of an operation that removes axes."""
    kept = [axis for axis in range(operand.rank) if axis not in dropped]
    links = [Link((source,), (target,)) for target, source in enumerate(kept)]
    result = walk.value([operand.own[axis] for axis in kept], [operand])
    return walk.relate(result, [operand], [links], scale, sign)


def _squeeze(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    result = _keep(walk, operands[0], eqn.params["dimensions"], *PASS)
    result.constant = operands[0].constant
    return [result]


def _reduce(scale: Law, sign: Law, reason: str = "") -> Rule:
    """Symmetric in the entries of the reduced axes, unless there is a reason to pin."""

    def rule(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
        (operand,) = operands
        if reason:
            for axis in eqn.params["axes"]:
                walk.pin(operand.own[axis], reason)
        return [_keep(walk, operand, eqn.params["axes"], scale, sign)]

    return rule


def _reshape(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
) -> list[Value] | None:
    operand, *dynamic = operands
    shape = eqn.params["new_sizes"]
    if dynamic or eqn.params["dimensions"] is not None or 0 in shape:
        return None
    return [regroup(walk, operand, shape)]


def regroup(walk: Walk, operand: Value, shape: Sequence[int]) -> Value:
    """Reshape: axes are merged into products or split into factors."""
    axes, links = [Node(int(size)) for size in shape], []
    for source, target in _runs([node.size for node in operand.own], shape):
        if len(source) == len(target) == 1:
            axes[target[0]] = operand.own[source[0]]
        elif not walk.tie(
            product([operand.own[axis] for axis in source]),
            product([axes[axis] for axis in target]),
        ):
            continue
        links.append(Link(source, target))
    return relabel(walk, operand, axes, links)


def _runs(
    old: Sequence[int], new: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Smallest consecutive groups of axes with equal products, old against new."""
    runs = []
    source, target = list(range(len(old))), list(range(len(new)))
    while source and target:
        left, right = [source.pop(0)], [target.pop(0)]
        one, other = old[left[0]], new[right[0]]
        if (one == 1) != (other == 1):
            # An axis of size 1 that appears or disappears corresponds to nothing.
            if other == 1:
                source.insert(0, left[0])
            else:
                target.insert(0, right[0])
            continue
        while one != other:
            if one < other:
                left.append(source.pop(0))
                one *= old[left[-1]]
            else:
                right.append(target.pop(0))
                other *= new[right[-1]]
        keep = len(left) == len(right) == 1
        runs.append(
            (
                tuple(axis for axis in left if keep or old[axis] != 1),
                tuple(axis for axis in right if keep or new[axis] != 1),
            )
        )
    return runs


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


def _pad(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value] | None:
    operand, filler = operands
    config = eqn.params["padding_config"]
    if any(low < 0 or high < 0 or inner for low, high, inner in config):
        return None
    for axis, (low, high, _) in enumerate(config):
        pieces = [operand]
        for size, place in ((low, 0), (high, 2)):
            if size:
                shape = [node.size for node in operand.own]
                shape[axis] = size
                margin = relabel(walk, filler, [Node(n) for n in shape], [])
                pieces.insert(place, margin)
        operand = join(walk, pieces, axis) if len(pieces) > 1 else operand
    return [operand]


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


def _iota(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value] | None:
    if operands:
        return None
    result = walk.fresh(eqn.params["shape"])
    walk.pin(result.own[eqn.params["dimension"]], "the index itself enters")
    return [walk.relate(result, (), (), (), ())]


RULES: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "reshape": _reshape,
    "concatenate": _concatenate,
    "pad": _pad,
    "slice": _slice,
    "split": _split,
    "iota": _iota,
    "reduce_sum": _reduce(*PASS),
    "reduce_max": _reduce((1,), NOTHING),
    "reduce_min": _reduce((1,), NOTHING),
    "reduce_prod": _reduce(NOTHING, NOTHING),
    "reduce_and": _reduce(NOTHING, NOTHING),
    "reduce_or": _reduce(NOTHING, NOTHING),
    "reduce_xor": _reduce(NOTHING, NOTHING),
    "argmax": _reduce((0,), NOTHING, reason="the index of its largest entry enters"),
    "argmin": _reduce((0,), NOTHING, reason="the index of its smallest entry enters"),
}
