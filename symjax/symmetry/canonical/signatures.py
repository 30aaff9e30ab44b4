"""Labels of units that do not depend on the order or the signs in which units come.

The label of a unit is a complex number: a sum over its weights, each with a phase that
says where the weight lies. A position that no group moves (an input, an output, a pixel
of a kernel) has a fixed, generic phase; a position that is a unit has a phase made from
the label of that unit, so that labels can be refined. They are continuous in the
weights: rounding moves them little.

The sign of a unit is that of a sum over the weights on which no other open sign acts,
so that signs spread from inputs and outputs through the network. A weight on which an
open sign acts counts in labels by its absolute value.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from symjax.symmetry.canonical.incidence import collect, num_entries, orbits
from symjax.symmetry.placement import spread
from symjax.symmetry.spec import Axis, Group, Spec


class _Slot(NamedTuple):
    """One axis on which a group acts, with constants that tell it from others."""

    axis: Axis
    rate: complex
    weight: float


class Layout(NamedTuple):
    """What is fixed while labels are refined.

    Attributes:
        weights: A bounded, odd function of each parameter that a group acts on.
        phases: For each axis of each parameter, open to the others, phases of the
            positions: the same for all to which a group moves one.
        permutations: For each group, where it acts.
        signs: For each group, where it flips.
    """

    weights: dict[str, Float[Array, "..."]]
    phases: dict[str, tuple[Float[np.ndarray, "..."], ...]]
    permutations: tuple[tuple[_Slot, ...], ...]
    signs: tuple[tuple[_Slot, ...], ...]


class Signatures(NamedTuple):
    """Labels and signs so far.

    Attributes:
        labels: For each group of permutations, one for each unit.
        marks: What is added to labels to tell units apart that are alike.
        signs: 1 or -1; 1 while it is open.
        decided: Which signs are final.
    """

    labels: tuple[Complex[Array, "..."], ...]
    marks: tuple[Float[Array, "..."], ...]
    signs: tuple[Float[Array, "..."], ...]
    decided: tuple[Bool[Array, "..."], ...]


def start(
    spec: Spec, leaves: Mapping[str, Float[Array, "..."]]
) -> tuple[Layout, Signatures]:
    """Labels that tell nothing apart, and open signs.

    Args:
        spec: The network's symmetries.
        leaves: The parameters by path.

    Returns:
        What stays fixed, and the first signatures. Signs that flip no weight count as
        decided.
    """
    layout = _layout(spec, leaves)
    dtype = jnp.result_type(jnp.float32, *layout.weights.values())
    signatures = Signatures(
        tuple(
            jnp.zeros(group.shape, jnp.result_type(dtype, jnp.complex64))
            for group in spec.permutations
        ),
        tuple(jnp.zeros(group.shape, dtype) for group in spec.permutations),
        tuple(jnp.ones(group.shape, dtype) for group in spec.signs),
        tuple(_weightless(layout, slots) for slots in layout.signs),
    )
    return layout, signatures


def weightless(layout: Layout) -> tuple[Bool[Array, "..."], ...]:
    """For each group of permutations, the units all whose weights are 0."""
    return tuple(_weightless(layout, slots) for slots in layout.permutations)


def _weightless(layout: Layout, slots: Sequence[_Slot]) -> Bool[Array, "..."]:
    all_zero = [
        collect(slot.axis, layout.weights[slot.axis.path] == 0, jnp.all)
        for slot in slots
    ]
    return functools.reduce(jnp.logical_and, all_zero)


def _layout(spec: Spec, leaves: Mapping[str, Float[Array, "..."]]) -> Layout:
    generic = np.random.default_rng(0)

    def slots(group: Group) -> tuple[_Slot, ...]:
        return tuple(
            _Slot(axis, complex(*generic.uniform(0.25, 0.5, 2)), generic.uniform(1, 2))
            for axis in group.axes
            if axis.exponent % 2
        )

    permutations = tuple(slots(group) for group in spec.permutations)
    signs = tuple(slots(group) for group in spec.signs)
    moved = {slot.axis.path for group in (*permutations, *signs) for slot in group}
    phases = {}
    for path, shape in spec.shapes:
        axes = [s.axis for group in permutations for s in group if s.axis.path == path]
        if path in moved:
            ids = orbits(axes, shape or (1,))
            along = [generic.uniform(0, 2 * np.pi, len(i))[i] for i in ids]
            phases[path] = np.ix_(*along)
    weights = {path: _bounded(leaves[path]) for path in phases}
    return Layout(weights, phases, permutations, signs)


def _bounded(leaf: Float[Array, "..."]) -> Float[Array, "..."]:
    leaf = jnp.atleast_1d(leaf).astype(jnp.result_type(leaf, jnp.float32))
    largest = jnp.max(jnp.abs(leaf))
    unit = leaf / jnp.where(largest > 0, largest, 1)
    square = _exactly(jnp.sum, jnp.square(unit), unit.size) / unit.size
    return jnp.arctan(unit / jnp.where(square > 0, jnp.sqrt(square), 1))


def refine(layout: Layout, signatures: Signatures) -> Signatures:
    """Decide the signs that can be, and make labels that use those of before."""
    phases = {path: _phase(layout, signatures, path) for path in layout.weights}
    for group in range(len(signatures.signs)):
        signatures = _decide_signs(layout, signatures, phases, group)
    return signatures._replace(labels=_labels(layout, signatures, phases))


def _phase(layout: Layout, signatures: Signatures, path: str) -> Float[Array, "..."]:
    shape, dtype = layout.weights[path].shape, layout.weights[path].dtype
    fixed = (jnp.asarray(phase, dtype) for phase in layout.phases[path])
    phase = sum(fixed, jnp.zeros((), dtype))
    for slots, label in zip(layout.permutations, signatures.labels, strict=True):
        for slot in slots:
            if slot.axis.path == path:
                phase = phase + spread(slot.axis, (slot.rate * label).real, shape)
    return phase


def _flipped(
    layout: Layout, signatures: Signatures, path: str
) -> tuple[Float[Array, "..."], Int[Array, "..."]]:
    """Weights with the signs so far, and how many open signs act on each."""
    weight = layout.weights[path]
    num_open = jnp.zeros((1,) * weight.ndim, int)
    for slots, sign, decided in zip(
        layout.signs, signatures.signs, signatures.decided, strict=True
    ):
        for slot in slots:
            if slot.axis.path == path:
                weight = weight * (1 + spread(slot.axis, sign - 1, weight.shape))
                open_signs = jnp.where(decided, 0, 1)
                num_open = num_open + spread(slot.axis, open_signs, weight.shape)
    return weight, num_open


def _decide_signs(
    layout: Layout,
    signatures: Signatures,
    phases: Mapping[str, Float[Array, "..."]],
    group: int,
) -> Signatures:
    sign, decided = signatures.signs[group], signatures.decided[group]
    total = size = jnp.zeros_like(sign)
    for slot in layout.signs[group]:
        path = slot.axis.path
        weight, num_open = _flipped(layout, signatures, path)
        term = jnp.where(num_open == 1, weight * jnp.cos(phases[path]), 0)
        total = total + _sum(slot, term)
        size = size + _sum(slot, jnp.abs(term))
    clear = ~decided & (jnp.abs(total) > tolerance(sign) * size)
    sign = jnp.where(clear, jnp.sign(total), sign)
    return signatures._replace(
        signs=replaced(signatures.signs, group, sign),
        decided=replaced(signatures.decided, group, decided | clear),
    )


def _labels(
    layout: Layout,
    signatures: Signatures,
    phases: Mapping[str, Float[Array, "..."]],
) -> tuple[Complex[Array, "..."], ...]:
    terms = {}
    for path, phase in phases.items():
        weight, num_open = _flipped(layout, signatures, path)
        weight = jnp.where(num_open > 0, jnp.abs(weight), weight)
        terms[path] = weight * jnp.stack([jnp.cos(phase), jnp.sin(phase)])
    labels = []
    for slots, mark in zip(layout.permutations, signatures.marks, strict=True):
        parts = [
            jax.vmap(functools.partial(_sum, slot))(terms[slot.axis.path])
            for slot in slots
        ]
        labels.append(mark + jax.lax.complex(*functools.reduce(jnp.add, parts)))
    return tuple(labels)


def _sum(slot: _Slot, terms: Float[Array, "..."]) -> Float[Array, "..."]:
    """Sum terms up to pi / 2 over the weights of each unit, to a number of order 1."""
    number = num_entries(slot.axis, terms.shape)
    total = _exactly(functools.partial(collect, slot.axis), terms, 2 * number)
    return total * slot.weight / math.sqrt(number)


def _exactly(
    add: Callable, terms: Float[Array, "..."], bound: int
) -> Float[Array, "..."]:
    """Sum on the finest grid of integers up to the bound: in any order the same."""
    integer = jnp.int64 if terms.dtype == jnp.float64 else jnp.int32
    grid = 2.0 ** (jnp.iinfo(integer).bits - 2 - math.ceil(math.log2(bound)))
    return add(jnp.round(terms * grid).astype(integer)).astype(terms.dtype) / grid


def tolerance(values: Float[Array, "..."]) -> float:
    """Below which differences of labels of order 1 may be rounding."""
    return float(jnp.finfo(values.dtype).eps) ** 0.5


def replaced(values: tuple, index: int, value: Array) -> tuple:
    """A tuple with one value replaced."""
    return (*values[:index], value, *values[index + 1 :])
