"""Rules of operations that hold a program: it is walked in their place."""

from collections.abc import Sequence

from jax.extend import core

from symjax.jaxprs import opened, scan_counts
from symjax.symmetry.inference.rules.elementwise import entrywise, own_links
from symjax.symmetry.inference.unification import Node
from symjax.symmetry.inference.walk import NOTHING, SAME, Law, Link, Rule, Value, Walk


def _call(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value] | None:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in eqn.params:
            jaxpr, consts = opened(eqn.params[name])
            if len(jaxpr.invars) == len(operands):
                return walk.run(jaxpr, consts, operands)
    return None


def _equal(walk: Walk, one: Value, other: Value) -> None:
    """Demand that two values of one shape have the same units and exponents."""
    pairs = zip(one.own, other.own, strict=True)
    fit = True
    for a, b in pairs:
        fit &= walk.tie(a, b)
    law: Law = SAME if fit else NOTHING
    walk.relate(one, [other], [own_links(other)], law, law)


def _enter(
    walk: Walk, values: Sequence[Value], operands: Sequence[Value]
) -> list[Value]:
    """What a loop reads, as it is in every step of it."""
    inside = [walk.value(value.own, operands) for value in values]
    for value, outer in zip(inside, values, strict=True):
        walk.relate(value, [outer], [own_links(outer)], SAME, SAME)
    return inside


def _scan(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    num_consts, num_carry = scan_counts(eqn.params)
    jaxpr, jaxpr_consts = opened(eqn.params["jaxpr"])
    consts, carry = operands[:num_consts], operands[num_consts:][:num_carry]
    stacks = operands[num_consts + num_carry :]
    step = Node(eqn.params["length"])
    walk.pin(step, "steps of a loop come in order", natural=True)
    outside, walk.loops = walk.loops, (*walk.loops, step)
    inside = _enter(walk, [*consts, *carry], operands)
    slices = []
    for stack in stacks:
        walk.tie(stack.own[0], step)
        value = walk.value(stack.own[1:], [stack])
        links = [Link((axis,), (axis - 1,)) for axis in range(1, stack.rank)]
        links.append(Link((0,), (len(value.axes) - 1,)))
        slices.append(walk.relate(value, [stack], [links], (1,), (1,)))
    results = walk.run(jaxpr, jaxpr_consts, [*inside, *slices])
    for before, after in zip(inside[num_consts:], results[:num_carry], strict=True):
        _equal(walk, before, after)
    walk.loops = outside
    outs = []
    for value in results[:num_carry]:
        last = walk.value(value.own, [value])
        outs.append(walk.relate(last, [value], [own_links(value)], (1,), (1,)))
    for value in results[num_carry:]:
        stack = walk.value([step, *value.own], [value])
        links = [Link((axis,), (axis + 1,)) for axis in range(value.rank)]
        links.append(Link((len(value.axes) - 1,), (0,)))
        outs.append(walk.relate(stack, [value], [links], (1,), (1,)))
    return outs


def _while(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    num_cond, num_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond_consts, rest = operands[:num_cond], operands[num_cond:]
    body_consts, init = rest[:num_body], rest[num_body:]
    carry = _enter(walk, init, operands)  # how often depends on the condition's, too
    for name, consts in (("cond_jaxpr", cond_consts), ("body_jaxpr", body_consts)):
        jaxpr, jaxpr_consts = opened(eqn.params[name])
        results = walk.run(jaxpr, jaxpr_consts, [*consts, *carry])
    for before, after in zip(carry, results, strict=True):
        _equal(walk, before, after)
    return carry


def _cond(walk: Walk, eqn: core.JaxprEqn, operands: list[Value]) -> list[Value]:
    which, *rest = operands
    walk.relate(which, (), (), (), ())
    branches = []
    for branch in eqn.params["branches"]:
        jaxpr, consts = opened(branch)
        branches.append(walk.run(jaxpr, consts, rest))
    outs = []
    for choices in zip(*branches, strict=True):
        outs.append(entrywise(walk, choices, SAME, SAME))
        outs[-1].depends |= which.depends
    return outs


RULES: dict[str, Rule] = {
    **dict.fromkeys(("jit", "call", "closed_call", "remat2", "composite"), _call),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), _call),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
