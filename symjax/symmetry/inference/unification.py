"""Index sets, and the unification that finds which axes of a network are the same.

An axis is a set of indices. It is a leaf (nothing is known of its inside), a sum (a
concatenation of index sets) or a product (a reshape of several, row-major). Operations
of a network demand that two axes are the same set; solving the demands is first-order
unification, as in the inference of types: a leaf takes the structure of what it must
equal, sums are cut at common boundaries and products into common factors. Two leaves
that were unified are one unit kind, and a permutation that moves one moves the other.
"""

from collections.abc import Sequence
from typing import NamedTuple


MAX_PARTS = 64  # beyond this an axis was cut one by one, and no group is left in it


class Cause(NamedTuple):
    """Which operation pinned an axis, and why.

    A `natural` cause (an input, an output, a window) hides no symmetry.
    """

    primitive: str
    source: str
    reason: str
    has_rule: bool = True
    natural: bool = False


class Node:
    """A set of indices; `parent` points to the node that it was unified with."""

    __slots__ = ("form", "parent", "parts", "pin", "positions", "size")

    def __init__(
        self, size: int, form: str = "leaf", parts: Sequence["Node"] = ()
    ) -> None:
        self.size = size
        self.form = form
        self.parts = list(parts)
        self.parent: Node | None = None
        self.pin: Cause | None = None
        self.positions: list[Position] | None = None


class Position(NamedTuple):
    """Where a leaf lies in an axis: at `start + stride * i` for each of `siblings`.

    Attributes:
        leaf: The unit kind.
        start: Offset of its block.
        stride: Between two of its units.
        siblings: `(node, stride)` of the factors that it forms a product with.
    """

    leaf: Node
    start: int
    stride: int
    siblings: tuple[tuple[Node, int], ...]

    def scaled(self, stride: int) -> "Position":
        """The same position in an axis whose steps are `stride` long."""
        siblings = tuple((node, step * stride) for node, step in self.siblings)
        return Position(self.leaf, self.start * stride, self.stride * stride, siblings)

    @property
    def extent(self) -> int:
        """The number of indices of its block."""
        size = self.leaf.size
        for node, _ in self.siblings:
            size *= node.size
        return size

    @property
    def last(self) -> int:
        """The largest index of its block."""
        steps = ((self.leaf, self.stride), *self.siblings)
        return self.start + sum((node.size - 1) * step for node, step in steps)


def find(node: Node) -> Node:
    """The representative of all nodes that `node` was unified with."""
    root = node
    while root.parent is not None:
        root = root.parent
    while node.parent is not None:
        node.parent, node = root, node.parent
    return root


def product(parts: Sequence[Node]) -> Node:
    """The product of index sets, outermost first; a single one is itself."""
    parts = [part for part in parts if part.size != 1] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    size = 1
    for part in parts:
        size *= part.size
    return Node(size, "product", parts)


def concatenation(parts: Sequence[Node]) -> Node:
    """The sum of index sets; a single one is itself."""
    if len(parts) == 1:
        return parts[0]
    return Node(sum(part.size for part in parts), "sum", parts)


def pin(node: Node, cause: Cause) -> None:
    """Forbid that any unit in `node` is permuted."""
    node = find(node)
    if node.form == "leaf":
        node.pin = node.pin or cause
    else:
        for part in node.parts:
            pin(part, cause)


def flat(node: Node, form: str) -> list[Node]:
    """The terms of a sum or the factors of a product, nested ones opened."""
    node = find(node)
    if node.form != form:
        return [node]
    nothing = 0 if form == "sum" else 1
    inner = (leaf for part in node.parts for leaf in flat(part, form))
    return [leaf for leaf in inner if leaf.size != nothing]


def unify(a: Node, b: Node) -> bool:
    """Make two index sets of one size the same; False where their shapes do not fit.

    Where they do not fit, the part that was done stays: it demands more than it must,
    so that symmetries may be missed but never invented. The caller pins both.
    """
    a, b = find(a), find(b)
    if a is b:
        return True
    if b.form == "leaf":
        a, b = b, a
    if a.form == "leaf":
        if a.pin is not None:
            pin(b, a.pin)
        a.parent = b
        return True
    if a.form != b.form:
        if a.form == "sum":
            a, b = b, a
        fits = _unify_product_with_sum(a, b)
    else:
        fits = _align(a, b, a.form)
    if fits and find(a) is not find(b):
        find(a).parent = find(b)
    return fits


def _align(a: Node, b: Node, form: str) -> bool:
    """Cut two sums or two products into the same parts, and unify these."""
    while True:
        left, right = flat(a, form), flat(b, form)
        if max(len(left), len(right)) > MAX_PARTS:
            return False
        pairs = zip(left, right, strict=False)
        p, q = next((pair for pair in pairs if pair[0] is not pair[1]), (None, None))
        if p is None or q is None:
            return len(left) == len(right)
        if p.size == q.size:
            if not unify(p, q):
                return False
            continue
        large, small = (p, q) if p.size > q.size else (q, p)
        cut = cut_sum if form == "sum" else cut_product
        if not cut(large, small.size):
            return False


def _unify_product_with_sum(a: Node, b: Node) -> bool:
    """Rewrite the sum as a product if its terms share inner factors, or vice versa."""
    outer = flat(a, "product")[0].size
    if cut_product(b, outer):
        return _align(a, b, "product")
    boundary = 0
    for term in flat(b, "sum")[:-1]:
        boundary += term.size
        if not cut_sum(a, boundary):
            return False
    return _align(a, b, "sum")


def cut_sum(node: Node, size: int) -> bool:
    """Make `node` a sum with a boundary after its first `size` indices."""
    node = find(node)
    if size in (0, node.size):
        return True
    if node.form == "leaf":
        _become(node, "sum", [Node(size), Node(node.size - size)])
        return True
    if node.form == "sum":
        for part in flat(node, "sum"):
            if size < part.size:
                return size == 0 or cut_sum(part, size)
            size -= part.size
        return True
    outer, *inner = flat(node, "product")
    num_inner = node.size // outer.size
    if size % num_inner or not cut_sum(outer, size // num_inner):
        return False
    terms = [product([term, *inner]) for term in flat(outer, "sum")]
    _become(node, "sum", terms)
    return True


def cut_product(node: Node, outer: int) -> bool:
    """Make `node` a product whose first factors have the size `outer` together."""
    node = find(node)
    if node.size % outer:
        return False
    inner = node.size // outer
    if outer == 1 or inner == 1:
        return True
    if node.form == "leaf":
        _become(node, "product", [Node(outer), Node(inner)])
        return True
    if node.form == "product":
        return _cut_factors(node, outer)
    terms = flat(node, "sum")
    if any(term.size % inner for term in terms):
        return False
    shared, outers = Node(inner), []
    for term in terms:
        if not cut_product(term, term.size // inner):
            return False
        factors, num_outer = flat(term, "product"), []
        while _size(num_outer) < term.size // inner:
            num_outer.append(factors.pop(0))
        if not unify(product(factors), shared):
            return False
        outers.append(product(num_outer) if num_outer else Node(1))
    _become(find(node), "product", [concatenation(outers), shared])
    return True


def _cut_factors(node: Node, outer: int) -> bool:
    for factor in flat(node, "product"):
        if outer % factor.size:
            return factor.size % outer == 0 and cut_product(factor, outer)
        outer //= factor.size
        if outer == 1:
            break
    return True


def _size(nodes: Sequence[Node]) -> int:
    return product(nodes).size if nodes else 1


def _become(node: Node, form: str, parts: Sequence[Node]) -> None:
    if node.pin is not None:
        for part in parts:
            pin(part, node.pin)
    node.form, node.parts = form, list(parts)


def positions(node: Node) -> list[Position]:
    """Where each leaf of a finished axis lies, in order."""
    node = find(node)
    if node.positions is None:
        node.positions = _positions(node)
    return node.positions


def _positions(node: Node) -> list[Position]:
    if node.form == "leaf":
        return [Position(node, 0, 1, ())]
    if node.form == "sum":
        found, offset = [], 0
        for part in flat(node, "sum"):
            found += [p._replace(start=p.start + offset) for p in positions(part)]
            offset += part.size
        return found
    factors = flat(node, "product")
    strides, stride = [], node.size
    for factor in factors:
        stride //= factor.size
        strides.append(stride)
    found = []
    steps = tuple(zip(factors, strides, strict=True))
    for index, (factor, stride) in enumerate(steps):
        others = steps[:index] + steps[index + 1 :]
        found += [
            inner._replace(siblings=inner.siblings + others)
            for inner in (p.scaled(stride) for p in positions(factor))
        ]
    return found
