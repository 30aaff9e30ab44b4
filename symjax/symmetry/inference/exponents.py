"""Exponents of scalings and signs: linear constraints, and what they leave free.

Scale the units of one kind by `s`. Each value of the network that has these units is
then multiplied by `s ** e`, and every operation of the network is a linear constraint
on the exponents `e` of what it reads and writes. The solutions over the rationals are
the scaling group; those over the integers modulo 2, with odd functions in place of
homogeneous ones, are the sign group.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


Number = int | Fraction
"""Exact; an integer where it is one, since most exponents are and Python's are fast."""

Form = Mapping[int, Number]
"""A linear combination of variables."""


def divide(one: Number, other: Number) -> Number:
    """The exact quotient."""
    if other in (1, -1):
        return one * other
    quotient = Fraction(one) / other
    return quotient.numerator if quotient.denominator == 1 else quotient


class Exponents:
    """Variables under linear constraints, each solved as soon as it is given.

    Args:
        modulus: 2 for signs, None for rational exponents.
    """

    def __init__(self, modulus: int | None = None) -> None:
        self.modulus = modulus
        self._solved: list[dict[int, Number] | None] = []

    def variable(self) -> int:
        """Make a free variable; earlier ones are kept free where there is a choice."""
        self._solved.append(None)
        return len(self._solved) - 1

    def resolve(self, form: Form) -> dict[int, Number]:
        """Write a combination in the variables that are free so far."""
        total: dict[int, Number] = {}
        for variable, factor in form.items():
            for free, inner in self._value(variable).items():
                total[free] = total.get(free, 0) + factor * inner
        return self._reduce(total)

    def require_zero(self, form: Form) -> None:
        """Constrain a combination of variables to be zero."""
        resolved = self.resolve(form)
        if resolved:
            pivot = max(resolved)
            factor = resolved.pop(pivot)
            solution = {key: divide(-value, factor) for key, value in resolved.items()}
            self._solved[pivot] = self._reduce(solution)

    def require_equal(self, one: int, other: int) -> None:
        """Constrain two variables to be equal."""
        if one != other:
            self.require_zero({one: 1, other: -1})

    def _value(self, variable: int) -> dict[int, Number]:
        solved = self._solved[variable]
        if solved is None:
            return {variable: 1}
        if any(self._solved[free] is not None for free in solved):
            solved = self._solved[variable] = self.resolve(solved)
        return solved

    def _reduce(self, form: dict[int, Number]) -> dict[int, Number]:
        if self.modulus is None:
            return {key: value for key, value in form.items() if value}
        reduced = ((key, value % self.modulus) for key, value in form.items())
        return {key: 1 for key, value in reduced if value}


Vector = dict[int, Number]
"""Exponents that are not zero, by the number of the place that they belong to."""


def added(
    vectors: Sequence[Vector], known: Sequence[Vector], modulus: int | None
) -> list[int]:
    """The numbers of the vectors that add a dimension to the span of those before.

    Args:
        vectors: What is tested, in order.
        known: Vectors that come before all of them.
        modulus: 2 for signs, None for rational exponents.
    """
    span = Exponents(modulus)
    size = 1 + max((key for vector in (*vectors, *known) for key in vector), default=-1)
    for _ in range(size):
        span.variable()
    for vector in known:
        span.require_zero(vector)
    found = []
    for index, vector in enumerate(vectors):
        if span.resolve(vector):
            span.require_zero(vector)
            found.append(index)
    return found


def reduced(
    vectors: Sequence[Vector], order: Sequence[int], modulus: int | None
) -> list[Vector]:
    """The reduced echelon form of a basis whose columns come in the given order.

    A combination of the vectors that is zero in the first columns is, after this, a
    combination of the last vectors, each of which is zero there.
    """
    rows, found = list(vectors), []
    for column in order:
        pivot = next((row for row in rows if column in row), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows = [_cleared(row, pivot, column, modulus) for row in rows]
        found = [_cleared(row, pivot, column, modulus) for row in found]
        found.append(pivot)
    return found


def _cleared(row: Vector, pivot: Vector, column: int, modulus: int | None) -> Vector:
    if column not in row:
        return row
    factor = divide(row[column], pivot[column])
    total = dict(row)
    for key, value in pivot.items():
        total[key] = total.get(key, 0) - factor * value
    if modulus:
        total = {key: value % modulus for key, value in total.items()}
    return {key: value for key, value in total.items() if value}


def smallest(vector: Vector, modulus: int | None) -> Vector:
    """The multiple in coprime integers whose first entry is positive."""
    if modulus:
        return vector
    denominator = math.lcm(*(value.denominator for value in vector.values()))
    numerators = {key: int(value * denominator) for key, value in vector.items()}
    sign = 1 if numerators[min(numerators)] > 0 else -1
    divisor = sign * math.gcd(*numerators.values())
    return {key: divide(value, divisor) for key, value in numerators.items()}
