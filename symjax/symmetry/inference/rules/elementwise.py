"""Rules of operations that act entry by entry: every axis is tied to its counterpart.

What differs is how they treat a factor: `mul` adds exponents, `add` and `max` need
equal ones, `tanh` passes a sign but no scale, `exp` passes neither.
"""

from collections.abc import Sequence
from fractions import Fraction

import jax
import numpy as np
from jax.extend import core

from symjax.symmetry.inference.unification import Node
from symjax.symmetry.inference.walk import (
    COMPARE,
    NOTHING,
    SAME,
    Law,
    Link,
    Rule,
    Value,
    Walk,
)


# primitive: (law of scales, law of signs)
LAWS: dict[str, tuple[Law, Law]] = {
    "add": (SAME, SAME),
    "add_any": (SAME, SAME),
    "sub": (SAME, SAME),
    "max": (SAME, NOTHING),
    "min": (SAME, NOTHING),
    "mul": ((1, 1), (1, 1)),
    "div": ((1, -1), (1, 1)),
    "neg": ((1,), (1,)),
    "abs": ((1,), (0,)),
    "sign": ((0,), (1,)),
    "square": ((2,), (0,)),
    "sqrt": ((Fraction(1, 2),), NOTHING),
    "rsqrt": ((Fraction(-1, 2),), NOTHING),
    "cbrt": ((Fraction(1, 3),), (1,)),
    "is_finite": ((0,), (0,)),
    "complex": (SAME, SAME),
    "atan2": (COMPARE, NOTHING),
    **dict.fromkeys(("real", "imag", "conj", "copy"), ((1,), (1,))),
    **dict.fromkeys(("reduce_precision", "name", "stop_gradient"), ((1,), (1,))),
    **dict.fromkeys(("sharding_constraint",), ((1,), (1,))),
    # Odd functions.
    **dict.fromkeys(("tanh", "sinh", "asinh", "atanh", "sin", "asin"), (NOTHING, (1,))),
    **dict.fromkeys(
        ("tan", "atan", "erf", "erf_inv", "bessel_i1e", "round"), (NOTHING, (1,))
    ),
    # Even functions.
    **dict.fromkeys(("cos", "cosh", "bessel_i0e", "one_minus_square"), (NOTHING, (0,))),
    # Comparisons of numbers that are scaled alike come out the same.
    **dict.fromkeys(("gt", "ge", "lt", "le"), (COMPARE, NOTHING)),
    **dict.fromkeys(("eq", "ne"), (COMPARE, COMPARE)),
    **dict.fromkeys(
        (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log1p",
            "logistic",
            "acos",
            "acosh",
            "erfc",
            "lgamma",
            "digamma",
            "polygamma",
            "zeta",
            "igamma",
            "igammac",
            "regularized_incomplete_beta",
            "floor",
            "ceil",
            "rem",
            "nextafter",
            "and",
            "or",
            "not",
            "xor",
            "shift_left",
            "shift_right_logical",
            "shift_right_arithmetic",
            "population_count",
            "clz",
            "bitcast_convert_type",
        ),
        (NOTHING, NOTHING),
    ),
}


def own_links(value: Value) -> list[Link]:
    """Every axis of `value` is the same axis of the result."""
    return [Link((axis,), (axis,)) for axis in range(value.rank)]


def entrywise(walk: Walk, operands: Sequence[Value], scale: Law, sign: Law) -> Value:
    """Tie the axes of all operands, and relate them to a new value.

    A scalar and an axis of size 1 are broadcast, and tie nothing.
    """
    axes: list[Node] = []
    links: list[list[Link]] = [[] for _ in operands]
    fit = True
    for axis in range(max(value.rank for value in operands)):
        wide = [value for value in operands if value.rank > axis]
        node = max((value.own[axis] for value in wide), key=lambda node: node.size)
        axes.append(node)
        for value, linked in zip(operands, links, strict=True):
            if value in wide and value.own[axis].size == node.size:
                fit &= walk.tie(value.own[axis], node)
                linked.append(Link((axis,), (axis,)))
    if not fit:
        scale = sign = NOTHING
    return walk.relate(walk.value(axes, operands), operands, links, scale, sign)


def _elementwise(scale: Law, sign: Law) -> Rule:
    def rule(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
        return [entrywise(walk, operands, scale, sign)]

    return rule


def _integer_pow(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    exponent = eqn.params["y"]
    return [entrywise(walk, operands, (exponent,), (exponent % 2,))]


def _pow(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    exponent = operands[1].constant
    law: Law = NOTHING
    if exponent is not None and np.isfinite(exponent):
        law = (Fraction(exponent).limit_denominator(10**6), 0)
        law = law if float(law[0]) == exponent else NOTHING
    return [entrywise(walk, operands, law, NOTHING)]


def _convert(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    (operand,) = operands
    dtype = eqn.params["new_dtype"]
    if jax.numpy.issubdtype(dtype, np.inexact):
        scale, sign = (1,), (1,)
    elif dtype == np.bool_:
        scale, sign = (0,), (0,)
    else:
        scale, sign = NOTHING, NOTHING  # what does not fit wraps around or is clipped
    result = entrywise(walk, operands, scale, sign)
    if scale == (1,) or operand.is_zero:
        result.constant = operand.constant
        if operand.constant is not None:
            with np.errstate(over="ignore"):
                cast = np.asarray(operand.constant).astype(dtype)
            result.constant = float(np.real(cast))  # it has no imaginary part
    return [result]


def _select(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    which, *cases = operands
    result = entrywise(walk, cases, SAME, SAME)
    walk.relate(which, (), (), (), ())  # a choice has no scale
    return [entrywise(walk, [which, result], (0, 1), (0, 1))]


def _clamp(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    low, operand, high = operands
    result = entrywise(walk, [operand, high], SAME, NOTHING)
    return [entrywise(walk, [low, result], SAME, NOTHING)]


def _barrier(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    return operands


RULES: dict[str, Rule] = {
    **{name: _elementwise(*laws) for name, laws in LAWS.items()},
    "integer_pow": _integer_pow,
    "pow": _pow,
    "convert_element_type": _convert,
    "select_n": _select,
    "clamp": _clamp,
    **dict.fromkeys(("optimization_barrier", "device_put"), _barrier),
}
