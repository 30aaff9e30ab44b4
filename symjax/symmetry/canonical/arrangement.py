"""A canonical order and canonical signs of the units of a network.

As in colour refinement, `signatures` are refined until they tell no more units apart.
What they do not tell apart is taken for a symmetry of these very parameters (copies of
one unit, say): one unit or sign is chosen from them, and refinement goes on.

References:
    McKay, Piperno (2014), Practical graph isomorphism II, Journal of Symbolic
    Computation 60, section 2, for refinement and individualisation.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int

from symjax.symmetry.canonical import signatures
from symjax.symmetry.canonical.signatures import Signatures, replaced, tolerance
from symjax.symmetry.spec import Spec


_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
"""Its multiples differ, modulo 1, as much as so many numbers can."""


class _Search(NamedTuple):
    """Refinement so far.

    Attributes:
        found: Labels and signs.
        num_known: Labels that differ and signs that are decided, the most so far.
        num_marks: How often units were marked.
        done: Nothing is left to tell apart.
    """

    found: Signatures
    num_known: Int[Array, ""]
    num_marks: Int[Array, ""]
    done: Bool[Array, ""]


def arrange(
    spec: Spec, leaves: Mapping[str, Float[Array, "..."]]
) -> tuple[tuple[Int[Array, "..."], ...], tuple[Float[Array, "..."], ...]]:
    """Find the order and the signs that equivalent parameters have in common.

    Args:
        spec: The network's symmetries.
        leaves: The parameters by path, with their scales already fixed.

    Returns:
        A permutation for each group of `spec.permutations` and signs for each of
        `spec.signs`, both for the units in the order that they have in `leaves`.
    """
    layout, first = signatures.start(spec, leaves)
    # Of units without weights, any order is the same.
    weightless = signatures.weightless(layout)
    known = {(group.units, group.shape): i for i, group in enumerate(spec.permutations)}
    keys = [known.get((group.units, group.shape)) for group in spec.signs]

    def advance(search: _Search) -> _Search:
        found = signatures.refine(layout, search.found)
        num_distinct = [jnp.sum(~_is_like_next(label)) for label in found.labels]
        num_decided = [jnp.sum(decided) for decided in found.decided]
        num_known = sum((*num_distinct, *num_decided), jnp.zeros((), int))
        stuck = num_known <= search.num_known
        found, chosen = _choose_sign(keys, found, stuck)
        found, marked = _mark(found, weightless, search.num_marks, stuck & ~chosen)
        return _Search(
            found,
            jnp.maximum(num_known, search.num_known),
            search.num_marks + marked,
            stuck & ~chosen & ~marked,
        )

    search = jax.lax.while_loop(
        lambda search: ~search.done,
        advance,
        _Search(first, jnp.zeros((), int), jnp.zeros((), int), jnp.zeros((), bool)),
    )
    return tuple(map(_order, search.found.labels)), search.found.signs


def _choose_sign(
    keys: Sequence[int | None], found: Signatures, stuck: Bool[Array, ""]
) -> tuple[Signatures, Bool[Array, ""]]:
    """Keep the sign of the first unit whose sign is open, if nothing decides it."""
    chosen = jnp.zeros((), bool)
    for group, key in enumerate(keys):
        decided = found.decided[group].ravel()
        label = jnp.zeros(decided.shape) if key is None else found.labels[key].real
        first = jnp.argmin(jnp.where(decided, jnp.inf, label.ravel()))
        here = stuck & ~chosen & ~jnp.all(decided)
        decided = decided | (here & (jnp.arange(decided.size) == first))
        decided = decided.reshape(found.decided[group].shape)
        found = found._replace(decided=replaced(found.decided, group, decided))
        chosen = chosen | here
    return found, chosen


def _mark(
    found: Signatures,
    weightless: Sequence[Bool[Array, "..."]],
    num_marks: Int[Array, ""],
    stuck: Bool[Array, ""],
) -> tuple[Signatures, Bool[Array, ""]]:
    """Set one unit apart from those that it is like, in the first group with such."""
    marked = jnp.zeros((), bool)
    mark = 1 + 2 * jnp.modf((1 + num_marks) * _GOLDEN_RATIO)[0]
    for group, (label, marks) in enumerate(zip(found.labels, found.marks, strict=True)):
        order = _order(label)
        has_weight = jnp.take_along_axis(~weightless[group], order, axis=-1)
        tied = _is_like_next(label) & has_weight
        here = stuck & ~marked & jnp.any(tied)
        # In all blocks at once, since these have no order yet.
        first = jnp.argmax(tied, axis=-1, keepdims=True)
        unit = jnp.where(jnp.any(tied, axis=-1, keepdims=True), first, -1)
        chosen = jnp.argsort(order, axis=-1) == unit
        marks = jnp.where(here & chosen, mark.astype(marks.dtype), marks)
        found = found._replace(marks=replaced(found.marks, group, marks))
        marked = marked | here
    return found, marked


def _order(label: Complex[Array, "..."]) -> Int[Array, "..."]:
    return jnp.argsort(label, axis=-1)


def _is_like_next(label: Complex[Array, "..."]) -> Bool[Array, "..."]:
    """In their order, whether the label of a unit is that of the next one."""
    ordered = jnp.take_along_axis(label, _order(label), axis=-1)
    alike = jnp.abs(jnp.diff(ordered, axis=-1)) <= tolerance(label.real)
    return jnp.concatenate([alike, jnp.zeros_like(label[..., :1], bool)], axis=-1)
