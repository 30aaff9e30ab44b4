"""The values inside a network: which units they hold, and how to get at them.

`trace` walks the jaxpr of a network as `infer` does and keeps what every operation
reads and gives; `evaluate` runs the jaxpr and hands chosen operations to a visitor, who
may keep their values or change them. Calls (`jit`, `custom_jvp`, `remat`) and `scan`
are opened; inside `while` and `cond` nothing is seen.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.extend import core

from symjax import trees
from symjax.jaxprs import bind, opened, scan_counts
from symjax.symmetry.inference.rules import RULES
from symjax.symmetry.inference.unification import Node, positions
from symjax.symmetry.inference.walk import Relation, Rule, Value, Walk
from symjax.symmetry.spec import Factor, Group
from symjax.types import Params


Path: TypeAlias = tuple[core.Var, ...]
"""An operation, after the calls and loops that it is inside of, by what each gives."""

Visit: TypeAlias = Callable[[list[Any], list[Any]], tuple[list[Any], Any]]
"""From what an operation reads and gives to what it is to give, and what to keep."""

OPENED = {"scan", *(name for name in RULES if RULES[name] is RULES["jit"])}


class Step(NamedTuple):
    """One operation.

    Attributes:
        path: Where it is.
        eqn: The equation.
        operands: What it reads.
        results: What it gives.
    """

    path: Path
    eqn: core.JaxprEqn
    operands: list[Value]
    results: list[Value]


class Trace(NamedTuple):
    """A walked network.

    Attributes:
        closed: Its jaxpr, of `[*leaves of params, *leaves of x]`.
        structure: That of its outputs.
        parameters: Its parameters by path.
        steps: Its operations, in order; those in `while` and `cond` are left out.
        activations: The values that depend on the input.
    """

    closed: core.ClosedJaxpr
    structure: Any
    parameters: dict[str, Value]
    steps: list[Step]
    activations: set[Value]

    def leaves(self, group: Group) -> tuple[Node, tuple[Node, ...]]:
        """The unit kind of a group, and those of its batch."""
        axis = group.axes[0]
        value, starts = self.parameters[axis.path], dict(axis.starts)

        def leaf(factor: Factor) -> Node:
            wanted = (starts[factor.axis], factor.stride, factor.size)
            return next(
                p.leaf
                for p in positions(value.own[factor.axis])
                if (p.start, p.stride, p.leaf.size) == wanted
            )

        return leaf(axis.unit), tuple(map(leaf, axis.batch))

    def run(
        self, params: Params, x: Any, visits: Sequence[tuple[Path, Visit]]
    ) -> tuple[Any, dict[int, Any]]:
        """The outputs, and what each visit kept, by its number."""
        arguments = [*jax.tree.leaves(params), *jax.tree.leaves(x)]
        jaxpr, consts = self.closed.jaxpr, self.closed.consts
        outputs, kept = evaluate(jaxpr, consts, arguments, visits)
        return jax.tree.unflatten(self.structure, outputs), kept


def trace(apply: Callable[[Params, Any], Any], params: Params, x: Any) -> Trace:
    """Walk `apply(params, x)`; nothing is computed."""
    closed, outputs = jax.make_jaxpr(apply, return_shape=True)(params, x)
    steps: list[Step] = []
    stack: list[core.JaxprEqn] = []

    def kept(rule: Rule) -> Rule:
        def walked(
            walk: Walk, eqn: core.JaxprEqn, operands: list[Value]
        ) -> list[Value] | None:
            stack.append(eqn)
            results = rule(walk, eqn, operands)
            if all(outer.primitive.name in OPENED for outer in stack[:-1]):
                path = tuple(outer.outvars[0] for outer in stack)
                steps.append(Step(path, eqn, operands, results or []))
            stack.pop()
            return results

        return walked

    walk = Walk({name: kept(rule) for name, rule in RULES.items()})
    leaves = [walk.fresh(shape) for shape in trees.shapes(params)]
    inputs = [walk.fresh(shape) for shape in trees.shapes(x)]
    walk.run(closed.jaxpr, closed.consts, [*leaves, *inputs])
    parameters = dict(zip(trees.paths(params), leaves, strict=True))
    activations = _reached(inputs, steps, walk.relations)
    return Trace(closed, jax.tree.structure(outputs), parameters, steps, activations)


def _reached(
    start: Sequence[Value], steps: Sequence[Step], relations: Sequence[Relation]
) -> set[Value]:
    """The values that depend on those at the start."""
    following: dict[Value, list[Value]] = defaultdict(list)
    for relation in relations:
        for operand in relation.operands:
            following[operand].append(relation.result)
    for step in steps:
        if step.eqn.primitive.name not in OPENED:
            for operand in step.operands:
                following[operand] += step.results
    reached, waiting = set(start), list(start)
    while waiting:
        new = set(following[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached


def evaluate(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    arguments: Sequence[Any],
    visits: Sequence[tuple[Path, Visit]],
    path: Path = (),
) -> tuple[list[Any], dict[int, Any]]:
    """Run a jaxpr, with visits to some of its operations.

    Args:
        jaxpr: The program.
        consts: Its constants.
        arguments: Its arguments.
        visits: Which operations to visit, and the visitor of each.
        path: The calls and loops that the program is inside of.

    Returns:
        Its results, and what each visit kept by the visit's number; what was kept
        inside a `scan` has the steps as its first axis.
    """
    values = dict(zip(jaxpr.invars, arguments, strict=True))
    values |= dict(zip(jaxpr.constvars, consts, strict=True))
    opened = {where[:end] for where, _ in visits for end in range(1, len(where))}
    visitors = {where: (number, visit) for number, (where, visit) in enumerate(visits)}
    kept: dict[int, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        here = (*path, *eqn.outvars[:1])
        operands = [read(atom) for atom in eqn.invars]
        if here in opened:
            run = _scan if eqn.primitive.name == "scan" else _call
            results, inside = run(eqn, operands, visits, here)
            kept |= inside
        else:
            results = bind(eqn, operands)
        if here in visitors:
            number, visit = visitors[here]
            results, kept[number] = visit(operands, results)
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars], kept


def _call(
    eqn: core.JaxprEqn,
    operands: Sequence[Any],
    visits: Sequence[tuple[Path, Visit]],
    path: Path,
) -> tuple[list[Any], dict[int, Any]]:
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next(eqn.params[name] for name in names if name in eqn.params)
    return evaluate(*opened(inner), operands, visits, path)


def _scan(
    eqn: core.JaxprEqn,
    operands: Sequence[Any],
    visits: Sequence[tuple[Path, Visit]],
    path: Path,
) -> tuple[list[Any], dict[int, Any]]:
    inner = opened(eqn.params["jaxpr"])
    num_consts, num_carry = scan_counts(eqn.params)
    consts, carry = operands[:num_consts], operands[num_consts:][:num_carry]
    stacks = operands[num_consts + num_carry :]

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], Any]:
        arguments = [*consts, *carry, *slices]
        results, kept = evaluate(*inner, arguments, visits, path)
        return results[:num_carry], (results[num_carry:], kept)

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    last, (stacked, kept) = jax.lax.scan(step, list(carry), list(stacks), **options)
    return [*last, *stacked], kept
