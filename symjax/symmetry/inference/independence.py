"""Which units may move differently for each index of another axis.

The units inside the heads of attention can be permuted in each head on its own; the
features of a layer can't be permuted on their own for each example. Units `c` are
independent over `g` if every value that has `c` has `g` alongside, exactly once, and
every operation that carries `c` from one value to another carries `g` along with it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations

from symjax.symmetry.inference.unification import Node, positions
from symjax.symmetry.inference.walk import Link, Relation, Value


def partners(value: Value, axis: int, index: int) -> list[tuple[Node, int]]:
    """The leaves alongside one position of an axis, and on which axis each is."""
    position = positions(value.axes[axis])[index]
    beside = [(node, axis) for node, _ in position.siblings]
    beside += [(n, a) for a, n in enumerate(value.axes) if a != axis]
    found = []
    for node, other in beside:
        inside = positions(node)
        # In a concatenation no leaf is alongside everywhere: counted twice, none
        # counts.
        whole = bool(inside) and inside[0].extent == node.size
        found += [(p.leaf, other) for p in inside for _ in range(1 if whole else 2)]
    return found


Keys = Callable[[Value, int, int], Iterable[Hashable]]


def independent_batches(
    relations: Sequence[Relation], values: Sequence[Value], keys: Keys
) -> dict[Hashable, set[Node]]:
    """For each key, the leaves over whose indices it is independent.

    Args:
        relations: All operations.
        values: Values that may occur in none of them.
        keys: `(value, axis, number of the position)` to what moves these units: the
            unit kind itself for permutations, generators for scalings.
    """
    every = {id(value): value for value in values}
    for relation in relations:
        for value in (relation.result, *relation.operands):
            every[id(value)] = value
    batches: dict[Hashable, set[Node]] = {}
    for value in every.values():
        for axis, node in enumerate(value.axes):
            for number, position in enumerate(positions(node)):
                found = tuple(keys(value, axis, number))
                if not found:
                    continue
                counts = Counter(leaf for leaf, _ in partners(value, axis, number))
                once = {leaf for leaf, count in counts.items() if count == 1}
                once.discard(position.leaf)
                for key in found:
                    batches[key] = batches.get(key, once) & once
    for relation in relations:
        for one, other, links in _carried(relation):
            _require_carried(batches, keys, one, other, links)
    return batches


def _carried(relation: Relation) -> Iterator[tuple[Value, Value, list[Link]]]:
    """Pairs of values that an operation links, with the links between them."""
    for value, links in zip(relation.operands, relation.links, strict=True):
        yield value, relation.result, list(links)
    numbered = list(enumerate(zip(relation.operands, relation.links, strict=True)))
    for (i, (one, left)), (j, (other, right)) in combinations(numbered, 2):
        summed = [link for a, b, link in relation.contracted if (a, b) == (i, j)]
        through = [
            Link(a.source, b.source)
            for a in left
            for b in right
            if a.target == b.target and a.target_range == b.target_range
        ]
        yield one, other, [*through, *summed]


def _require_carried(
    batches: dict[Hashable, set[Node]],
    keys: Keys,
    one: Value,
    other: Value,
    links: Sequence[Link],
) -> None:
    """Take out the batches that some link does not carry along."""
    places = [_axes_of(value) for value in (one, other)]
    for link in links:
        shared = _keys_on(keys, one, link.source) & _keys_on(keys, other, link.target)
        for key in shared:
            for batch in list(batches[key]):
                sources, targets = places[0][batch], places[1][batch]
                if not any(
                    sources <= set(also.source) and targets <= set(also.target)
                    for also in links
                ):
                    batches[key].discard(batch)


def _axes_of(value: Value) -> dict[Node, set[int]]:
    found: dict[Node, set[int]] = defaultdict(set)
    for axis, node in enumerate(value.axes):
        for position in positions(node):
            found[position.leaf].add(axis)
    return found


def _keys_on(keys: Keys, value: Value, axes: Sequence[int]) -> set[Hashable]:
    return {
        key
        for axis in axes
        for number in range(len(positions(value.axes[axis])))
        for key in keys(value, axis, number)
    }
