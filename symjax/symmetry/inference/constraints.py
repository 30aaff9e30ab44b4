"""The constraints that the operations of a network put on exponents."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from symjax.symmetry.inference.exponents import Exponents, Number
from symjax.symmetry.inference.unification import Position, positions
from symjax.symmetry.inference.walk import (
    ANYTHING,
    COMPARE,
    NOTHING,
    Link,
    Relation,
    Value,
)


ELSEWHERE = [-1]  # this part of a concatenation comes from another operand


class Labels:
    """One exponent for each value, axis and unit kind on it."""

    def __init__(self, modulus: int | None = None) -> None:
        self.exponents = Exponents(modulus)
        self._variables: dict[int, list[list[int]]] = {}

    def of(self, value: Value) -> list[list[int]]:
        """The variables of a value: for each axis, one for each of its `positions`."""
        if id(value) not in self._variables:
            self._variables[id(value)] = [
                [self.exponents.variable() for _ in positions(node)]
                for node in value.axes
            ]
        return self._variables[id(value)]

    def flat(self, value: Value) -> list[int]:
        """All variables of a value."""
        return [variable for axis in self.of(value) for variable in axis]

    def form(self, value: Value, axis: int, number: int) -> dict[int, Number]:
        """The exponent of one position of a value, in the variables left free."""
        return self.exponents.resolve({self.of(value)[axis][number]: 1})

    def zero(self, variables: Iterator[int] | Sequence[int]) -> None:
        """Forbid any scale."""
        for variable in variables:
            self.exponents.require_zero({variable: 1})

    def constrain(self, relation: Relation) -> None:
        """Apply the law of one operation."""
        law = relation.sign if self.exponents.modulus else relation.scale
        result, operands = relation.result, relation.operands
        if law == ANYTHING:
            return
        if law == NOTHING:
            for value in (result, *operands):
                self.zero(self.flat(value))
            return
        # Even where the result fits any scale: its operands still meet elsewhere.
        cancelled = self._cancel(relation)
        if result.fits(self.exponents.modulus):
            return
        self._fix_divisors(relation)
        sources = [
            self._sources(value, result, links, cancelled[index])
            for index, (value, links) in enumerate(
                zip(operands, relation.links, strict=True)
            )
        ]
        varying = [
            source
            for source, value in zip(sources, operands, strict=True)
            if not value.fits(self.exponents.modulus)
        ]
        for target in self.flat(result):
            if isinstance(law, tuple):
                self._sum(target, sources, law)
            elif law == COMPARE:
                self.zero([target])
                self._equate([source.get(target, []) for source in varying])
            else:
                reached = (source.get(target, []) for source in varying)
                self._equate(
                    [[target], *(group for group in reached if group != ELSEWHERE)]
                )

    def _fix_divisors(self, relation: Relation) -> None:
        """Divisors keep their signs, since the entries that are 0 keep theirs.

        Where a unit is flipped but its zeros (of a margin, a mask, a first state) are
        not, what is divided by them would keep its sign, against all others.
        """
        scales, signs = relation.scale, relation.sign
        if not (isinstance(scales, tuple) and isinstance(signs, tuple)):
            return
        for value, scale, sign in zip(relation.operands, scales, signs, strict=False):
            keeps_sign = self.exponents.modulus and sign % 2
            if scale < 0 and (keeps_sign or value.is_zero):
                self.zero(self.flat(value))

    def _sum(
        self, target: int, sources: Sequence[dict[int, list[int]]], law: tuple
    ) -> None:
        form = {target: -1}
        for source, factor in zip(sources, law, strict=True):
            for first, *others in filter(None, [source.get(target)]):
                form[first] = form.get(first, 0) + factor
                for other in others:
                    self.exponents.require_equal(first, other)
        self.exponents.require_zero(form)

    def _equate(self, groups: Sequence[Sequence[int]]) -> None:
        """All variables equal; zero where a group has none, and nothing is scaled."""
        variables = [variable for group in groups for variable in group]
        if any(not group for group in groups):
            self.zero(variables)
        for one, other in zip(variables, variables[1:], strict=False):
            self.exponents.require_equal(one, other)

    def _cancel(self, relation: Relation) -> dict[int, set[int]]:
        """Exponents of summed axes cancel; returns the variables that were treated."""
        treated: dict[int, set[int]] = defaultdict(set)
        for one, other, link in relation.contracted:
            left, right = relation.operands[one], relation.operands[other]
            for a, b in self.pairs(link, left, right):
                form = defaultdict(int)  # a may be b, in a Gram matrix
                form[a] += 1
                form[b] += 1
                self.exponents.require_zero(form)
                treated[one].add(a)
                treated[other].add(b)
        return treated

    def _sources(
        self, value: Value, result: Value, links: Sequence[Link], treated: set[int]
    ) -> dict[int, list[int]]:
        """For each variable of the result, those of one operand that it continues.

        What the operation sums over, and what has no counterpart, can't be scaled.
        """
        sources: dict[int, list[int]] = defaultdict(list)
        matched = set(treated)
        for link in links:
            for a, b in self.pairs(link, value, result):
                sources[b].append(a)
                matched.add(a)
            matched |= self._outside(value, link.source, link.source_range)
            for b in self._outside(result, link.target, link.target_range):
                sources[b] = ELSEWHERE
        if not value.fits(self.exponents.modulus):
            self.zero(
                variable for variable in self.flat(value) if variable not in matched
            )
        return sources

    def _outside(
        self, value: Value, axes: Sequence[int], within: tuple[int, int] | None
    ) -> set[int]:
        """The variables of linked axes that lie outside the part that is linked."""
        if within is None:
            return set()
        inside = {variable for variable, _ in self._ranged(value, axes, within)}
        return {v for axis in axes for v in self.of(value)[axis]} - inside

    def pairs(self, link: Link, one: Value, other: Value) -> Iterator[tuple[int, int]]:
        """The variables of two values that stand for the same units."""
        left: dict[int, list[int]] = defaultdict(list)
        right: dict[int, list[int]] = defaultdict(list)
        for variable, position in self._ranged(one, link.source, link.source_range):
            left[id(position.leaf)].append(variable)
        for variable, position in self._ranged(other, link.target, link.target_range):
            right[id(position.leaf)].append(variable)
        for leaf in left.keys() & right.keys():
            if len(left[leaf]) == len(right[leaf]):
                yield from zip(left[leaf], right[leaf], strict=True)
            else:
                # The same units, cut differently on the two sides: one exponent for
                # all.
                yield from ((a, b) for a in left[leaf] for b in right[leaf])

    def _ranged(
        self, value: Value, axes: Sequence[int], within: tuple[int, int] | None
    ) -> Iterator[tuple[int, Position]]:
        for axis in axes:
            pairs = zip(self.of(value)[axis], positions(value.axes[axis]), strict=True)
            for variable, position in pairs:
                if within is None or (
                    position.start <= within[1] and position.last >= within[0]
                ):
                    yield variable, position
