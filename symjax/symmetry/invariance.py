"""Does a spec fit its network? Random elements of every group, tried on the outputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Float, Int

from symjax import checks
from symjax.symmetry.actions import Element, act, identity
from symjax.symmetry.elements import random_element
from symjax.symmetry.spec import Spec
from symjax.types import Key, Params


class Invariance(NamedTuple):
    """How much random elements change the outputs of a network.

    All changes are relative: the largest absolute change of any entry of a leaf, over
    the largest magnitude in that leaf, and the worst leaf counts. NaN means that an
    output or parameter is not finite.

    Attributes:
        largest: Of the outputs, over all groups alone and all of them together.
            Rounding is some 1e-6 in float32 and 1e-14 in float64, more where a network
            is deep, and that of `narrowest_dtype` where it computes in less.
        per_group: Of the outputs, for each group in the order of `iter(spec)`.
        moved: Of the parameters, for each group; 0 if no element moved anything, as
            where all that the group acts on are zeros or equal numbers.
    """

    largest: Float[Array, ""]
    per_group: Float[Array, " group"]
    moved: Float[Array, " group"]


def check_invariance(
    apply: Callable[[Params, Any], Any],
    spec: Spec,
    params: Params,
    x: Any,
    key: Key,
    *,
    num_elements: int = 4,
) -> Invariance:
    """Try random elements of each group alone, and of all groups together.

    It calls `apply` once, and then `num_elements` times for each group and for all of
    them, one after another in a compiled loop. No permutation is the identity, and
    some sign of every group is flipped. Parameters should be generic: zeros (biases at
    initialisation) hide what moves them.

    Args:
        apply: `apply(params, x) -> outputs`, any pytree of arrays.
        spec: The symmetries to be checked.
        params: Parameters of the network.
        x: Inputs, best random ones.
        key: PRNG key for the elements.
        num_elements: How many of each group.

    Returns:
        The changes.

    Example:
        >>> from symjax import symmetry
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> params = {
        ...     "in": jax.random.normal(keys[0], (3, 8)),
        ...     "out": jax.random.normal(keys[1], (8, 2)),
        ... }
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> x = jax.random.normal(keys[2], (5, 3))
        >>> spec = symmetry.infer(apply, params, x)
        >>> invariance = check_invariance(apply, spec, params, x, jax.random.key(1))
        >>> bool(invariance.largest < 1e-5), bool(jnp.all(invariance.moved > 0.1))
        (True, True)
    """
    spec.check(params)
    checks.at_least(1, num_elements=num_elements)
    num_groups = len(tuple(spec))
    before = jax.jit(apply)(params, x)

    def changes(args: tuple[Int[Array, ""], Key]) -> tuple[Array, Array]:
        group, key = args
        element = _keep(spec, _moving(random_element(key, spec)), group)
        moved = act(spec, element, params)
        return (
            _relative_change(before, apply(moved, x)),
            _relative_change(params, moved),
        )

    groups = jnp.repeat(jnp.arange(num_groups + 1), num_elements)
    outputs, moved = (
        jnp.max(change.reshape(-1, num_elements), axis=1)
        for change in jax.lax.map(changes, (groups, jax.random.split(key, len(groups))))
    )
    return Invariance(jnp.max(outputs), outputs[:-1], moved[:-1])


def narrowest_dtype(
    apply: Callable[[Params, Any], Any], params: Params, x: Any
) -> jnp.dtype:
    """The floating-point type of the coarsest rounding inside a network.

    Sums of it come out in another order when units are permuted, so that its epsilon,
    and not that of the parameters, says how exactly outputs can agree.

    Args:
        apply: `apply(params, x) -> outputs`, any pytree of arrays.
        params: Parameters of the network.
        x: Inputs.

    Returns:
        The type of largest epsilon among all results of the network's operations, its
        parameters and its inputs; that of Python's numbers if none is floating.

    Example:
        >>> apply = lambda params, x: x @ params.astype(jnp.bfloat16)
        >>> print(narrowest_dtype(apply, jnp.ones((3, 2)), jnp.ones((5, 3))))
        bfloat16
    """
    dtypes = {jnp.result_type(leaf) for leaf in jax.tree.leaves((params, x))}
    dtypes |= _dtypes(jax.make_jaxpr(apply)(params, x).jaxpr)
    rounded = [jnp.finfo(one) for one in dtypes if jnp.issubdtype(one, jnp.inexact)]
    coarsest = max(rounded, key=lambda info: info.eps, default=jnp.finfo(float))
    return coarsest.dtype


def _dtypes(jaxpr: core.Jaxpr) -> set[Any]:
    """Of all results, in calls, loops and branches too; of keys, no NumPy dtype."""
    # Not of constants, which are rounded alike for every element. Tokens have no type.
    results: list[Any] = [var.aval for eqn in jaxpr.eqns for var in eqn.outvars]
    found = {aval.dtype for aval in results if hasattr(aval, "dtype")}
    return found.union(*map(_dtypes, core.subjaxprs(jaxpr)))


def _moving(element: Element) -> Element:
    """The element with every identity in it replaced by one that moves all units."""

    def move(permutation: Int[Array, "*batch unit"]) -> Int[Array, "*batch unit"]:
        units = jnp.arange(permutation.shape[-1], dtype=permutation.dtype)
        still = jnp.all(permutation == units, axis=-1, keepdims=True)
        return jnp.where(still, jnp.roll(units, 1), permutation)

    def flip(signs: Int[Array, "*batch unit"]) -> Int[Array, "*batch unit"]:
        return jnp.where(jnp.all(signs == 1, axis=-1, keepdims=True), -signs, signs)

    return element._replace(
        permutations=tuple(map(move, element.permutations)),
        signs=tuple(map(flip, element.signs)),
    )


def _keep(spec: Spec, element: Element, group: Int[Array, ""]) -> Element:
    """The part of an element in one group; all of it if there is no such group."""
    arrays, structure = jax.tree.flatten(element)
    kept = [
        jnp.where((group == number) | (group == len(arrays)), array, start)
        for number, (array, start) in enumerate(
            zip(arrays, jax.tree.leaves(identity(spec)), strict=True)
        )
    ]
    return jax.tree.unflatten(structure, kept)


def _relative_change(before: Any, after: Any) -> Float[Array, ""]:
    changes = [jnp.zeros(())]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if new is old:
            continue
        if jnp.issubdtype(jnp.result_type(old), jax.dtypes.prng_key):
            old, new = jax.random.key_data(old), jax.random.key_data(new)
        wide = jnp.result_type(old, jnp.float32)
        change = jnp.abs(jnp.asarray(new, wide) - jnp.asarray(old, wide))
        size = jnp.max(jnp.abs(jnp.asarray(old, wide)), initial=0)
        changes.append(jnp.max(change, initial=0) / jnp.where(size > 0, size, 1))
    return jnp.max(jnp.stack(changes))
