"""Which units may move differently for each index of another axis.

The units inside the heads of attention can be permuted in each head on its own; the
features of a layer can't be permuted on their own for each example. Units `c` are
independent over `g` if every value that has `c` has `g` alongside, exactly once, and
every operation that carries `c` from one value to another carries `g` along with it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from symjax.symmetry.unification import Node, positions
from symjax.symmetry.walk import Link, Relation, Value


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


def independent_batches(
    relations: Sequence[Relation], values: Sequence[Value]
) -> dict[Node, set[Node]]:
    """For each leaf, the leaves over whose indices it is independent."""
    every = {id(value): value for value in values}
    for relation in relations:
        for value in (relation.result, *relation.operands):
            every[id(value)] = value
    batches: dict[Node, set[Node]] = {}
    for value in every.values():
        for axis, node in enumerate(value.axes):
            for index, position in enumerate(positions(node)):
                counts = Counter(leaf for leaf, _ in partners(value, axis, index))
                once = {leaf for leaf, count in counts.items() if count == 1}
                leaf = position.leaf
                batches[leaf] = batches.get(leaf, once) & (once - {leaf})
    for relation in relations:
        for one, other, links in _carried(relation):
            _require_carried(batches, one, other, links)
    return batches


def _carried(relation: Relation) -> Iterator[tuple[Value, Value, list[Link]]]:
    """Pairs of values that an operation links, with the links between them."""
    for value, links in zip(relation.operands, relation.links, strict=True):
        yield value, relation.result, list(links)
    for one, other, _ in relation.contracted:
        left, right = relation.links[one], relation.links[other]
        through = [
            Link(a.source, b.source)
            for a in left
            for b in right
            if a.target == b.target
        ]
        summed = [link for i, j, link in relation.contracted if (i, j) == (one, other)]
        yield relation.operands[one], relation.operands[other], [*through, *summed]


def _require_carried(
    batches: dict[Node, set[Node]], one: Value, other: Value, links: Sequence[Link]
) -> None:
    places = [_axes_of(value) for value in (one, other)]
    for link in links:
        shared = _leaves(one, link.source) & _leaves(other, link.target)
        for leaf in shared:
            for batch in list(batches[leaf]):
                sources, targets = places[0][batch], places[1][batch]
                if not any(
                    sources <= set(also.source) and targets <= set(also.target)
                    for also in links
                ):
                    batches[leaf].discard(batch)


def _axes_of(value: Value) -> dict[Node, set[int]]:
    found: dict[Node, set[int]] = defaultdict(set)
    for axis, node in enumerate(value.axes):
        for position in positions(node):
            found[position.leaf].add(axis)
    return found


def _leaves(value: Value, axes: Sequence[int]) -> set[Node]:
    return {p.leaf for axis in axes for p in positions(value.axes[axis])}
