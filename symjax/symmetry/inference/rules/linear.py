"""Rules of matrix products and convolutions: axes that are summed over cancel."""

from jax.extend import core

from symjax.symmetry.inference.rules.shapes import relabel
from symjax.symmetry.inference.unification import Node, product
from symjax.symmetry.inference.walk import (
    NOTHING,
    Law,
    Link,
    Rule,
    Value,
    Walk,
    shape_of,
)


BOTH: tuple[Law, Law] = ((1, 1), (1, 1))


def _dot_general(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (contracted, batch) = eqn.params["dimension_numbers"]
    left, right = operands
    fit = True
    for one, other in (*zip(*contracted, strict=True), *zip(*batch, strict=True)):
        fit &= walk.tie(left.own[one], right.own[other])
    free = [
        [axis for axis in range(value.rank) if axis not in (*summed, *tied)]
        for value, summed, tied in zip(operands, contracted, batch, strict=True)
    ]
    order = ((*batch[0], *free[0]), free[1])
    own = [left.own[a] for a in order[0]] + [right.own[a] for a in order[1]]
    links = [
        [Link((a,), (target,)) for target, a in enumerate(order[0])],
        [Link((a,), (target,)) for target, a in enumerate(batch[1])]
        + [Link((a,), (len(order[0]) + k,)) for k, a in enumerate(free[1])],
    ]
    cancel = [(0, 1, Link((a,), (b,))) for a, b in zip(*contracted, strict=True)]
    laws = BOTH if fit else (NOTHING, NOTHING)
    result = walk.value(own, operands)
    return [walk.relate(result, operands, links, *laws, cancel)]


def _convolution(
    walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
) -> list[Value] | None:
    if eqn.params["batch_group_count"] != 1:
        return None
    numbers = eqn.params["dimension_numbers"]
    image, kernel, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups = eqn.params["feature_group_count"]
    left, right = operands
    shape = shape_of(eqn.outvars[0])
    spatial = [Node(int(shape[axis])) for axis in out[2:]]
    windows = [left.own[a] for a in image[2:]] + [right.own[a] for a in kernel[2:]]
    for node in (*windows, *spatial):
        walk.pin(node, "a window slides along it", natural=True)
    # As a product: (batch, group, in, ...) x (group, out, in, ...), summed over `in`.
    left = _split_axis(walk, left, image[1], groups)
    right = _split_axis(walk, right, kernel[0], groups)
    moved = [axis + (axis > kernel[0]) for axis in kernel]
    row, group, summed = image[0] + (image[0] > image[1]), image[1], image[1] + 1
    fit = walk.tie(left.own[group], right.own[kernel[0]])
    fit &= walk.tie(left.own[summed], right.own[moved[1]])
    own = [left.own[row], left.own[group], right.own[kernel[0] + 1], *spatial]
    links = [
        [Link((row,), (0,)), Link((group,), (1,))],
        [Link((kernel[0],), (1,)), Link((kernel[0] + 1,), (2,))],
    ]
    cancel = [(0, 1, Link((summed,), (moved[1],)))]
    laws = BOTH if fit else (NOTHING, NOTHING)
    result = walk.value(own, operands)
    result = walk.relate(result, [left, right], links, *laws, cancel)
    return [_arrange(walk, result, out)]


def _split_axis(walk: Walk, value: Value, axis: int, outer: int) -> Value:
    """Split an axis into (outer, inner)."""
    node = value.own[axis]
    parts = [Node(outer), Node(node.size // outer)]
    if outer == 1:
        parts[1] = node
    elif outer == node.size:
        parts[0] = node
    own = [*value.own[:axis], *parts, *value.own[axis + 1 :]]
    links = [Link((a,), (a + (a > axis),)) for a in range(value.rank) if a != axis]
    if node in parts or walk.tie(node, product(parts)):
        links.append(Link((axis,), (axis, axis + 1)))
    return relabel(walk, value, own, links)


def _arrange(walk: Walk, value: Value, out: tuple[int, ...]) -> Value:
    """Merge (batch, group, out, spatial...) into the layout of the result."""
    merged = [value.own[0], product(value.own[1:3]), *value.own[3:]]
    own = [merged[out.index(axis)] for axis in range(len(out))]
    links = [Link((0,), (out[0],)), Link((1, 2), (out[1],))]
    links += [Link((k + 1,), (axis,)) for k, axis in enumerate(out) if k > 1]
    return relabel(walk, value, own, links)


RULES: dict[str, Rule] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
}
