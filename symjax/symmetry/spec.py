"""What a symmetry group of a network is: which axes of which parameters it acts on.

A `Group` moves the units of one kind (the channels of a layer, the heads of an
attention, the features of a residual stream). Where the units come in independent
batches (the units inside each head, the hidden units of each scanned layer) the group
has one copy for each batch index. The units lie on one or several axes of the
parameters; an `Axis` says where, as strides into that axis, so that a flattened,
concatenated or grouped axis needs no special case.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from os.path import commonprefix
from typing import Literal

from symjax import trees
from symjax.types import Params


Kind = Literal["permutation", "scaling", "sign"]


@dataclass(frozen=True)
class Factor:
    """Positions `stride * i`, for `i` below `size`, along one axis of an array."""

    axis: int
    size: int
    stride: int


@dataclass(frozen=True)
class Axis:
    """Where the units of a group lie in one parameter; a number counts as shape (1,).

    Unit `u` of batch index `b` has, along `unit.axis`, the positions
    `start + unit.stride * u + (strides of the batch and rest factors on that axis)`. A
    batch factor may lie on another axis of the same parameter.

    Attributes:
        path: The parameter, as `symjax.trees.paths` names it.
        unit: The factor that the units index.
        batch: One factor for each batch dimension of the group.
        rest: The factors of the involved axes whose positions move along together.
        starts: `(axis, offset)` of the block, for each involved axis.
        exponent: Scalings multiply the parameter by `scale ** exponent`; signs flip it
            where the exponent is odd; 1 for permutations.
    """

    path: str
    unit: Factor
    batch: tuple[Factor, ...] = ()
    rest: tuple[Factor, ...] = ()
    starts: tuple[tuple[int, int], ...] = ()
    exponent: Fraction | int = 1


@dataclass(frozen=True)
class Group:
    """One symmetry group, or one for each index of a batch.

    Attributes:
        kind: Permutations of the units, positive scalings, or signs of each unit.
        units: Number of the kind of unit that it acts on. A permutation of these units
            also reorders the scales and signs of groups with the same number.
        size: How many units.
        batch: Numbers of the kinds of unit that index the independent copies.
        batch_shape: Their sizes. An element has shape `(*batch_shape, size)`.
        axes: Where it acts.
    """

    kind: Kind
    units: int
    size: int
    axes: tuple[Axis, ...]
    batch: tuple[int, ...] = ()
    batch_shape: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an element: one permutation, scale or sign a unit."""
        return (*self.batch_shape, self.size)

    @property
    def num_copies(self) -> int:
        """How many independent copies the batch holds."""
        return math.prod(self.batch_shape)

    @property
    def log_order(self) -> float:
        """Log of the number of elements, in nats; 0 for the continuous scalings."""
        one = {
            "permutation": math.lgamma(self.size + 1),
            "scaling": 0.0,
            "sign": self.size * math.log(2),
        }
        return self.num_copies * one[self.kind]


@dataclass(frozen=True)
class Pin:
    """What one operation of the network made immovable.

    Attributes:
        primitive: Name of the JAX primitive.
        source: File and line that called it.
        reason: Why it pins.
        has_rule: False where symjax has no rule for the primitive, so that it may have
            hidden a symmetry.
        axes: The `(parameter path, axis)` that lost a symmetry here first.
    """

    primitive: str
    source: str
    reason: str
    has_rule: bool
    axes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """The operation, where it is called, and why it pins."""
        place = f" at {self.source.rsplit('/', 1)[-1]}" if self.source else ""
        return f"{self.primitive}{place} ({self.reason})"


@dataclass(frozen=True)
class Spec:
    """The symmetry groups of a network: static, hashable and comparable.

    Attributes:
        permutations: Groups of permutations, those inside a batch before those that
            move the batch.
        scalings: Groups of positive scalings.
        signs: Groups of signs.
        redundant_scalings: How many of the scales other groups can undo. It is not zero
            where two kinds of unit that are not nested, such as heads and the units in
            all of them, scale the same parameters.
        redundant_signs: The same of signs.
        shapes: `(path, shape)` of every parameter.
        pins: What was given up, and which operation is why.
    """

    permutations: tuple[Group, ...]
    scalings: tuple[Group, ...]
    signs: tuple[Group, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    pins: tuple[Pin, ...] = ()
    redundant_scalings: int = 0
    redundant_signs: int = 0

    def __iter__(self) -> Iterator[Group]:
        """All groups: permutations, then scalings, then signs."""
        yield from (*self.permutations, *self.scalings, *self.signs)

    @property
    def log_order(self) -> float:
        """Log of the number of permutations and signs of parameters, in nats."""
        orders = sum(group.log_order for group in self)
        return orders - self.redundant_signs * math.log(2)

    @property
    def num_scalings(self) -> int:
        """Dimension of the scaling group."""
        free = sum(math.prod(group.shape) for group in self.scalings)
        return free - self.redundant_scalings

    @property
    def num_signs(self) -> int:
        """How many signs may be flipped independently."""
        free = sum(math.prod(group.shape) for group in self.signs)
        return free - self.redundant_signs

    def __str__(self) -> str:
        """One line a group, then what was pinned by what."""
        sizes = [math.prod(shape) for _, shape in self.shapes]
        prefix = _shared_folder([path for path, _ in self.shapes])
        inside = f", all inside {prefix}" if prefix else ""
        lines = [
            f"{len(sizes)} parameter arrays of {sum(sizes):,} weights{inside}",
            f"log(number of equivalent settings) = {self.log_order:.1f} nats "
            f"(10^{self.log_order / math.log(10):.1f}), of which signs "
            f"{self.num_signs * math.log(2):.1f}; {self.num_scalings} free scales",
        ]
        for kind, groups in (
            ("permutations", self.permutations),
            ("scalings", self.scalings),
            ("signs", self.signs),
        ):
            plural = "s" if len(groups) > 1 else ""
            found = f"{len(groups)} group{plural}" if groups else "none"
            lines.append(f"{kind}: {found}")
            lines += [
                f"  {_sizes(group):>9}  {_listed(map(_place, group.axes), prefix)}"
                for group in groups
            ]
        for pin in self.pins:
            axes = _listed((f"{path}[{axis}]" for path, axis in pin.axes), prefix)
            lines.append(f"pinned by {pin}: {axes or 'nothing that was free'}")
        return "\n".join(lines)

    def check(self, params: Params) -> None:
        """Require parameters of the paths and shapes that this spec was inferred from.

        Raises:
            ValueError: if a path is missing, is new, or has another shape.
        """
        leaves = dict(zip(trees.paths(params), trees.shapes(params), strict=True))
        expected = dict(self.shapes)
        for path, shape in expected.items():
            if path not in leaves:
                raise ValueError(
                    f"`params` has no leaf `{path}`, which this spec was inferred with "
                    f"(its leaves: {', '.join(leaves)}). Infer a spec from this "
                    f"network."
                )
            if leaves[path] != shape:
                raise ValueError(
                    f"`params` has shape {leaves[path]} at `{path}`, but this spec was "
                    f"inferred with {shape}. Infer a spec from this network; for draws "
                    f"with leading axes, use `jax.vmap` over them."
                )
        extra = [path for path in leaves if path not in expected]
        if extra:
            raise ValueError(
                f"`params` has the leaf `{extra[0]}`, which this spec was not inferred "
                f"with. Infer a spec from this network."
            )


def _sizes(group: Group) -> str:
    """Such as `16`, or `4 x 16` for four independent copies."""
    return " x ".join(map(str, (*group.batch_shape, group.size)))


def _place(axis: Axis) -> str:
    """Such as `Dense_0/kernel[1]`, with its part of a longer axis, and the exponent."""
    unit, start = axis.unit, dict(axis.starts)[axis.unit.axis]
    part = f"{unit.axis}"
    if start:
        part += f", from {start}"
    if unit.stride != 1:
        part += f", every {unit.stride}"
    power = "" if axis.exponent == 1 else f"^{axis.exponent}"
    return f"{axis.path or 'params'}[{part}]{power}"


def _shared_folder(paths: Sequence[str]) -> str:
    """The first folders that all paths share, with the last slash."""
    folder, slash, _ = commonprefix(list(paths)).rpartition("/")
    return folder + slash


def _listed(names: Iterable[str], prefix: str, most: int = 6) -> str:
    names = [name.removeprefix(prefix) for name in names]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
