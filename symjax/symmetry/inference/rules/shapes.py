"""Rules of operations that rearrange axes or sum over them."""

from collections.abc import Sequence

from jax.extend import core

from symjax.symmetry.inference.unification import (
    Node,
    product,
)
from symjax.symmetry.inference.walk import NOTHING, Law, Link, Rule, Value, Walk


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


def drop_axes(
    walk: Walk, operand: Value, dropped: Sequence[int], scale: Law, sign: Law
) -> Value:
    """The result of an operation that removes axes."""
    kept = [axis for axis in range(operand.rank) if axis not in dropped]
    links = [Link((source,), (target,)) for target, source in enumerate(kept)]
    result = walk.value([operand.own[axis] for axis in kept], [operand])
    return walk.relate(result, [operand], [links], scale, sign)


def _squeeze(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    result = drop_axes(walk, operands[0], eqn.params["dimensions"], *PASS)
    result.constant = operands[0].constant
    return [result]


def _reduce(scale: Law, sign: Law, reason: str = "") -> Rule:
    """Symmetric in the entries of the reduced axes, unless there is a reason to pin."""

    def rule(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
        (operand,) = operands
        if reason:
            for axis in eqn.params["axes"]:
                walk.pin(operand.own[axis], reason)
        return [drop_axes(walk, operand, eqn.params["axes"], scale, sign)]

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


def with_axis(walk: Walk, operand: Value, axis: int, size: int) -> Value:
    """The operand repeated along a new axis."""
    own = [*operand.own[:axis], Node(size), *operand.own[axis:]]
    links = [Link((old,), (old + (old >= axis),)) for old in range(operand.rank)]
    return relabel(walk, operand, own, links)


def _tile(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,) = operands
    for axis, repeats in enumerate(eqn.params["reps"]):
        if repeats != 1:
            shape = [node.size for node in operand.own]
            shape[axis] *= repeats
            operand = regroup(walk, with_axis(walk, operand, axis, repeats), shape)
    return [operand]


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
    "tile": _tile,
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
