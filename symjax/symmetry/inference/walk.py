"""A walk over a jaxpr that writes down what each operation ties together.

Values know the index set of each axis. A rule (see `rules`) unifies the axes that its
operation ties, pins those that it distinguishes, and records a `Relation`: which axes
correspond, and by which law the exponents of scalings and signs pass from operands to
result. Inside a `scan` every value has one more axis, the step, so that the units of a
stacked layer are as independent of each other as the units of attention heads are.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core, source_info_util

from symjax.symmetry.inference import unification
from symjax.symmetry.inference.unification import Cause, Node


class Value:
    """A value of the network.

    Attributes:
        axes: Index sets of its axes, then one of a single index that stands for the
            value as a whole, then those of the steps of the loops around it.
        rank: How many of the axes are its own.
        constant: The number that all entries equal, where that is known.
        depends: Whether it depends on the parameters.
    """

    __slots__ = ("axes", "constant", "depends", "rank")

    def __init__(
        self,
        axes: Sequence[Node],
        rank: int,
        *,
        constant: float | None = None,
        depends: bool = True,
    ) -> None:
        self.axes = tuple(axes)
        self.rank = rank
        self.constant = constant
        self.depends = depends

    @property
    def own(self) -> tuple[Node, ...]:
        """The axes that the array has."""
        return self.axes[: self.rank]

    @property
    def is_zero(self) -> bool:
        """Whether all entries are known to be zero."""
        return self.constant == 0

    def fits(self, modulus: int | None) -> bool:
        """Whether any scale (or sign, of modulus 2) leaves its entries as they are."""
        if self.constant is None:
            return False
        return (
            self.is_zero
            or math.isnan(self.constant)
            or (math.isinf(self.constant) and modulus is None)
        )


class Link(NamedTuple):
    """Axes `source` of one value and `target` of another hold the same units, in order.

    Attributes:
        source_range: First and last index of the part that is meant; None for all.
        target_range: The same on the other side.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    source_range: tuple[int, int] | None = None
    target_range: tuple[int, int] | None = None


SAME = "same"  # all operands and the result have one exponent
COMPARE = "compare"  # all operands have one exponent, the result has none
NOTHING = "nothing"  # neither operands nor the result may be scaled
ANYTHING = "anything"  # no demand

Law = str | tuple[Fraction | int, ...]
"""How exponents pass; a tuple holds the factor of each operand, which are summed."""


class Relation(NamedTuple):
    """One operation: its result, its operands, how their axes correspond, and laws.

    Attributes:
        result: The value made.
        operands: Values read.
        links: For each operand, its links to the result.
        scale: Law of the exponents of scalings.
        sign: Law of the exponents of signs.
        contracted: `(operand, other operand, link)` of axes that are summed over in a
            product, so that their exponents cancel.
    """

    result: Value
    operands: tuple[Value, ...]
    links: tuple[tuple[Link, ...], ...]
    scale: Law
    sign: Law
    contracted: tuple[tuple[int, int, Link], ...] = ()


_PRINTING = {"debug_callback", "debug_print"}  # these change no output

Rule = Callable[["Walk", core.JaxprEqn, list[Value]], list[Value] | None]


class Walk:
    """Walks a jaxpr with a table of rules; holds the relations that it found."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.relations: list[Relation] = []
        self.unknown: list[Cause] = []
        self.whole = Node(1)
        self.loops: tuple[Node, ...] = ()
        self._eqns: list[core.JaxprEqn] = []

    # -- values ---------------------------------------------------------------------

    def value(self, axes: Sequence[Node], operands: Sequence[Value] = ()) -> Value:
        """A new value inside the loops that the walk is in."""
        depends = any(operand.depends for operand in operands)
        return Value((*axes, self.whole, *self.loops), len(axes), depends=depends)

    def fresh(self, shape: Sequence[int], operands: Sequence[Value] = ()) -> Value:
        """A new value of which nothing is known but its shape."""
        return self.value([Node(int(size)) for size in shape], operands)

    def constant(self, array: Any) -> Value:
        """A literal or a constant of the jaxpr: pinned along axes where it varies."""
        value = self.fresh(np.shape(array))
        self.relations.append(Relation(value, (), (), (), ()))
        if not isinstance(getattr(array, "dtype", np.dtype(float)), np.dtype):  # keys
            for node in value.own:
                self.pin(node, "a constant varies along it")
            return value
        array = np.asarray(array)
        for axis, node in enumerate(value.own):
            if not _is_constant(array, axis):
                self.pin(node, "a constant varies along it")
        is_uniform = array.size and all(
            _is_constant(array, a) for a in range(array.ndim)
        )
        if is_uniform and np.isrealobj(array):
            value.constant = float(array.flat[0])
        return value

    # -- what rules say ---------------------------------------------------------------

    def cause(self, reason: str, **flags: bool) -> Cause:
        """The operation that the walk is at, as the cause of a pin."""
        if not self._eqns:
            return Cause("constant", "", reason, **flags)
        # Inside a cached call of the library the lines of the user are not recorded.
        lines = (source_info_util.summarize(e.source_info) for e in self._eqns[::-1])
        source = next((line for line in lines if line), "unknown")
        return Cause(self._eqns[-1].primitive.name, source, reason, **flags)

    def pin(self, node: Node, reason: str, *, natural: bool = False) -> None:
        """Forbid permutations of an axis."""
        unification.pin(node, self.cause(reason, natural=natural))

    def tie(self, one: Node, other: Node) -> bool:
        """Demand that two axes are the same; where they do not fit, pin both."""
        if one.size == other.size and unification.unify(one, other):
            return True
        for node in (one, other):
            self.pin(node, "it is cut in ways that do not fit each other")
        return False

    def relate(
        self,
        result: Value,
        operands: Sequence[Value],
        links: Sequence[Sequence[Link]],
        scale: Law,
        sign: Law,
        contracted: Sequence[tuple[int, int, Link]] = (),
    ) -> Value:
        """Record a relation, with the wholes and the loops linked to each other."""

        def of_rest(one: Value, other: Value) -> list[Link]:
            shared = min(len(one.axes) - one.rank, len(other.axes) - other.rank)
            return [Link((one.rank + k,), (other.rank + k,)) for k in range(shared)]

        pairs = zip(operands, links, strict=True)
        linked = tuple((*own, *of_rest(value, result)) for value, own in pairs)
        self.relations.append(
            Relation(result, tuple(operands), linked, scale, sign, tuple(contracted))
        )
        return result

    def give_up(self, operands: Sequence[Value], results: Sequence[Value]) -> None:
        """Pin all that an operation without a rule touches."""
        known = self._eqns[-1].primitive.name in self.rules
        reason = "symjax has no rule for it" + " with these parameters" * known
        cause = self.cause(reason, has_rule=False)
        if any(operand.depends for operand in operands):
            self.unknown.append(cause)
        for value in (*operands, *results):
            for node in value.axes:
                unification.pin(node, cause)
            links = tuple(() for _ in operands)
            self.relations.append(
                Relation(value, tuple(operands), links, NOTHING, NOTHING)
            )

    # -- the walk ---------------------------------------------------------------------

    def run(
        self, jaxpr: core.Jaxpr, consts: Sequence[Any], arguments: Sequence[Value]
    ) -> list[Value]:
        """Walk a jaxpr from its arguments to its results."""
        values: dict[core.Var, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
        values |= {
            var: self.constant(const)
            for var, const in zip(jaxpr.constvars, consts, strict=True)
        }

        def read(atom: Any) -> Value:
            if isinstance(atom, core.Literal):
                return self.constant(atom.val)
            return values[atom]

        for eqn in map(_plain, _live(jaxpr)):
            self._eqns.append(eqn)
            operands = [read(atom) for atom in eqn.invars]
            rule = self.rules.get(eqn.primitive.name)
            results = None if rule is None else rule(self, eqn, operands)
            if results is None:
                results = [self.fresh(shape_of(var), operands) for var in eqn.outvars]
                self.give_up(operands, results)
            values.update(zip(eqn.outvars, results, strict=True))
            self._eqns.pop()
        return [read(atom) for atom in jaxpr.outvars]


def _is_constant(array: np.ndarray, axis: int) -> bool:
    """Whether all entries along an axis are the same, bit by bit: 0 is not -0."""
    if array.size == 0:
        return True
    first = np.broadcast_to(array.take([0], axis), array.shape)
    one, other = (np.ascontiguousarray(a).view(np.uint8) for a in (array, first))
    return np.array_equal(one, other)


def shape_of(var: core.Var) -> tuple[int, ...]:
    """The shape of a variable; that of a token is empty."""
    return tuple(getattr(var.aval, "shape", ()))


def _plain(eqn: core.JaxprEqn) -> core.JaxprEqn:
    """The equation with Python integers, where JAX recorded some of NumPy."""

    def convert(entry: Any) -> Any:
        if isinstance(entry, np.integer):
            return int(entry)
        if isinstance(entry, tuple):
            parts = map(convert, entry)
            return type(entry)(*parts) if hasattr(entry, "_fields") else tuple(parts)
        return entry

    return eqn.replace(params={key: convert(v) for key, v in eqn.params.items()})


def _live(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
    """The equations that the results depend on, in order.

    What writes to a mutable array gives no result, but others read what it wrote.
    """
    needed = {var for var in jaxpr.outvars if not isinstance(var, core.Literal)}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        acts = eqn.effects and eqn.primitive.name not in _PRINTING
        if acts or any(var in needed for var in eqn.outvars):
            kept.append(eqn)
            needed |= {v for v in eqn.invars if not isinstance(v, core.Literal)}
    return kept[::-1]
