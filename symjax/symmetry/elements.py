"""The group that elements form: draw them, invert and compose them.

Permutations act after scales and signs, and those that move a batch after those inside
it, so the group is a semidirect product: what one element does to units is renumbered
by the permutations of the other.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from symjax.symmetry.actions import Element, check_element
from symjax.symmetry.permutations import (
    compose as compose_permutations,
    inverse as inverse_permutation,
    num_transpositions,
)
from symjax.symmetry.placement import reorder
from symjax.symmetry.spec import Axis, Factor, Group, Spec
from symjax.types import Key


@functools.partial(jax.jit, static_argnames="spec")
def random_element(
    key: Key, spec: Spec, *, log_scale_std: float | Float[Array, ""] = 0.5
) -> Element:
    """Uniform permutations and signs, and log-normal scales, independent everywhere.

    Args:
        key: PRNG key; `jax.vmap` over keys for one element a draw.
        spec: The network's symmetries.
        log_scale_std: Standard deviation, in nats, of the log of what the largest
            power of each scale multiplies weights by.

    Returns:
        The element.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 1))}
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> element = random_element(jax.random.key(0), spec)
        >>> sorted(element.permutations[0].tolist())
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    for_permutations, for_scales, for_signs = jax.random.split(key, 3)
    # One draw for all groups, as each takes long to compile. Two of `n` units have the
    # same 32 bits, and then keep their order, once in `2^33 / n^2` permutations.
    bits = jax.random.bits(for_permutations, (_num_units(spec.permutations),))
    logs = log_scale_std * jax.random.normal(for_scales, (_num_units(spec.scalings),))
    largest = [
        max(1.0, *(abs(float(axis.exponent)) for axis in group.axes))
        for group in spec.scalings
    ]
    logs /= np.repeat(largest, [math.prod(group.shape) for group in spec.scalings])
    signs = jax.random.rademacher(for_signs, (_num_units(spec.signs),), jnp.int8)
    return Element(
        tuple(jnp.argsort(part, axis=-1) for part in _dealt(bits, spec.permutations)),
        _dealt(jnp.exp(logs), spec.scalings),
        _dealt(signs, spec.signs),
    )


def _num_units(groups: Sequence[Group]) -> int:
    return sum(math.prod(group.shape) for group in groups)


def _dealt(
    values: Shaped[Array, " all"], groups: Sequence[Group]
) -> tuple[Shaped[Array, "..."], ...]:
    """One value for each unit of each group, from all in one array."""
    ends = np.cumsum([math.prod(group.shape) for group in groups])
    parts = jnp.split(values, ends[:-1].tolist()) if groups else []
    return tuple(
        part.reshape(group.shape) for part, group in zip(parts, groups, strict=True)
    )


@functools.partial(jax.jit, static_argnames="spec")
def inverse(spec: Spec, element: Element) -> Element:
    """The element that undoes this one.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 2)), "out": jnp.ones((2, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> element = Element((jnp.array([1, 0]),), (jnp.array([0.5, 4.0]),), ())
        >>> inverse(spec, element).scales[0].tolist()
        [0.25, 2.0]
    """
    check_element(spec, element)
    undone = Element(
        tuple(map(inverse_permutation, element.permutations)),
        tuple(1 / scale for scale in element.scales),
        element.signs,
    )
    return _renumbered(spec, element.permutations, undone)


@functools.partial(jax.jit, static_argnames="spec")
def compose(spec: Spec, second: Element, first: Element) -> Element:
    """The element that acts as `first` does and then `second`.

    With permutations `p`, scales `s` and inner permutations `q[k]` of block `k`:

        p = p1[p2],  s[u] = s1[u] * s2[p1^-1[u]],  q[k] = q1[k][q2[p1^-1[k]]]

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 2)), "out": jnp.ones((2, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> swap = Element((jnp.array([1, 0]),), (jnp.array([1.0, 1.0]),), ())
        >>> grow = Element((jnp.array([0, 1]),), (jnp.array([1.0, 9.0]),), ())
        >>> compose(spec, grow, swap).scales[0].tolist()
        [9.0, 1.0]
    """
    check_element(spec, second)
    back = inverse(spec, first).permutations
    second = _renumbered(spec, back, second)
    return Element(
        tuple(map(compose_permutations, second.permutations, first.permutations)),
        tuple(map(jnp.multiply, second.scales, first.scales)),
        tuple(map(jnp.multiply, second.signs, first.signs)),
    )


@jax.jit
def total_transpositions(element: Element) -> Int[Array, ""]:
    """The number of transpositions, summed over all groups and their copies.

    Units that are carried along with their block (a head) are not counted.

    Example:
        >>> swaps = jnp.array([1, 0, 2]), jnp.array([[1, 0], [1, 0]])
        >>> int(total_transpositions(Element(swaps, (), ())))
        3
    """
    counts = [jnp.sum(num_transpositions(one)) for one in element.permutations]
    return jnp.sum(jnp.array(counts, int))


def _renumbered(
    spec: Spec, permutations: Sequence[Int[Array, "..."]], element: Element
) -> Element:
    """Move the arrays of an element along with their units and batches."""

    def along(group: Group, array: Array) -> Array:
        numbers = (*group.batch, group.units)
        for other, permutation in zip(spec.permutations, permutations, strict=True):
            if other is not group and other.units in numbers:
                array = reorder(_axis_of(other, numbers), permutation, array)
        return array

    return Element(
        tuple(map(along, spec.permutations, element.permutations)),
        tuple(map(along, spec.scalings, element.scales)),
        tuple(map(along, spec.signs, element.signs)),
    )


def _axis_of(group: Group, numbers: Sequence[int]) -> Axis:
    """Where the units of a group lie in an array whose axes are these kinds of unit.

    Raises:
        ValueError: If the group has a batch that no axis is of.
    """
    missing = set(group.batch) - set(numbers)
    if missing:
        raise ValueError(
            f"`spec` must have batches that hold their own batches: units "
            f"{group.units} are permuted for each of units {missing.pop()}, but a "
            f"group is indexed by units {list(numbers)} alone."
        )
    unit, *batch = (
        Factor(numbers.index(number), size, 1)
        for number, size in zip(
            (group.units, *group.batch), (group.size, *group.batch_shape), strict=True
        )
    )
    return Axis("", unit, tuple(batch))
