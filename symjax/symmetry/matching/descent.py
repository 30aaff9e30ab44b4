"""Single steps of coordinate descent, on several networks at a time.

Weights stay as they are, in boxes along whose first axis the networks lie. What changes
is each network's element, on the host; a step applies it to the boxes that it needs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from symjax import trees
from symjax.symmetry.actions import rescale
from symjax.symmetry.matching import boxes, gains, moves, pairing, visits
from symjax.symmetry.matching.gains import Boxes, Patterns, Prepared, Recipe
from symjax.symmetry.matching.moves import Elements
from symjax.symmetry.matching.visits import Flip, Step, Visit
from symjax.symmetry.spec import Spec
from symjax.types import Params


_BETTER = 1e-6
"""What a step must gain to be taken, relative to what is there."""

_Arrays: TypeAlias = Sequence[Shaped[Array, "..."]]
_HostArrays: TypeAlias = list[Shaped[np.ndarray, "network ..."]]


class _Given(NamedTuple):
    """What a step is solved by: boxes, and the arrays that act on them."""

    reference: Boxes
    networks: Boxes
    permutations: _HostArrays
    signs: _HostArrays


@functools.partial(jax.jit, static_argnums=0)
def load(
    spec: Spec, stack: Params, scales: tuple[Float[Array, "..."], ...]
) -> tuple[Float[Array, "..."], ...]:
    """The boxes of networks, scaled, in float32 or wider."""

    def one(params: Params, scales: tuple[Float[Array, "..."], ...]) -> tuple:
        if scales:
            params = rescale(spec, scales, params)
        leaves = dict(zip(trees.paths(params), jax.tree.leaves(params), strict=True))
        wide = [jnp.float32, *leaves.values()]
        dtype = jnp.result_type(*(w for w in wide if jnp.issubdtype(w, jnp.inexact)))
        return tuple(
            box.extract(jnp.asarray(leaves[box.path], dtype)) for box in boxes.cut(spec)
        )

    return jax.vmap(one)(stack, scales)


@functools.partial(jax.jit, static_argnums=0)
def load_one(
    spec: Spec, stack: Params, scales: tuple[Float[Array, "..."], ...]
) -> tuple[Float[Array, "..."], ...]:
    """The boxes of the only network of a stack."""
    return tuple(box[0] for box in load(spec, stack, scales))


def moved(spec: Spec, networks: Boxes, element: Elements) -> list[Float[Array, "..."]]:
    """All boxes after the elements."""
    prepared = gains.prepare(spec, None)
    return _moved(prepared.recipe, networks, *_acting(prepared, element))


def similarity(
    spec: Spec, reference: Boxes, networks: Boxes, element: Elements
) -> Float[np.ndarray, " network"]:
    """The objective: the sum of products, weight by weight."""
    prepared = gains.prepare(spec, None)
    sums = _similarity(
        prepared.recipe, reference, networks, *_acting(prepared, element)
    )
    return np.sum(np.asarray(sums, np.float64), axis=1)


def take(
    spec: Spec,
    step: Step,
    reference: Boxes,
    networks: Boxes,
    element: Elements,
    active: Bool[np.ndarray, " network"],
    *,
    improve: bool,
) -> tuple[Elements, Bool[np.ndarray, " network"]]:
    """Solve one step for the networks that are active.

    Args:
        spec: The networks' symmetries.
        step: What to solve.
        reference: Boxes of what to match.
        networks: Boxes as they were loaded.
        element: What the networks are moved by so far.
        active: Which networks to move.
        improve: Leave networks as they are that would not come nearer.

    Returns:
        The elements after the step, and which of them have changed.
    """
    prepared = gains.prepare(spec, step)
    permutations, signs = _acting(prepared, element)
    given = _Given(
        [reference[number] for number in prepared.boxes],
        [networks[number] for number in prepared.boxes],
        permutations,
        signs,
    )
    if isinstance(step, Flip):
        total = np.asarray(_sums(prepared.recipe, *given))
        move = moves.Move({}, {step.sign: np.where(total < 0, -1, 1)})
        better = np.ones(len(active), bool)
    else:
        move, better = _match(spec, step, prepared, given, active)
    new, changed = moves.apply(spec, move, element, active & (better | (not improve)))
    if improve and visits.meets_itself(spec, step) and changed.any():
        before, after = (
            similarity(spec, reference, networks, one) for one in (element, new)
        )
        changed &= after - before > _BETTER * np.abs(before)
        new = moves.choose(changed, new, element)
    return new, changed


def _acting(prepared: Prepared, element: Elements) -> tuple[_HostArrays, _HostArrays]:
    """The arrays of an element that act on a step's boxes."""
    return (
        [element.permutations[number] for number in prepared.permutations],
        [element.signs[number] for number in prepared.signs],
    )


def _match(
    spec: Spec,
    visit: Visit,
    prepared: Prepared,
    given: _Given,
    active: Bool[np.ndarray, " network"],
) -> tuple[moves.Move, Bool[np.ndarray, " network"]]:
    """Match the units of some groups, and say whether the network gains by it."""
    recipe = prepared.recipe
    if _is_identity(given):
        recipe = recipe._replace(moved=(gains.STILL,) * len(recipe.moved))
    totals, parts, stay = _compiled_measure()(recipe, *given)
    totals = jax.device_get(totals)
    sources, orders = pairing.solve(spec, visit, totals, active)
    gained = size = np.zeros(len(active))
    flips: dict[int, np.ndarray] = {}
    for k, number in enumerate(visit.groups):
        total, source = totals[k], sources[k]
        if total is None:
            continue
        own = np.take_along_axis(total, source[..., None], axis=-1)[..., 0]
        before = np.asarray(stay[k], np.float64)
        # Units that stay say nothing of what the others gain, however large they are.
        changed = own != before
        gained = gained + np.sum(own - before, axis=(1, 2))
        sizes = np.abs(own) + np.abs(before)
        size = size + np.sum(sizes, axis=(1, 2), where=changed)
        compared, variables = prepared.recipe.compared[k], prepared.variables[k]
        if variables:
            back = np.argsort(source, axis=-1)
            values = _signs(compared.patterns, parts[k], source, back)
            pairing.put_signs(
                spec, visit, number, variables, jax.device_get(values), flips
            )
    return (
        moves.Move(dict(zip(visit.groups, orders, strict=True)), flips),
        gained > _BETTER * size,
    )


def _is_identity(given: _Given) -> bool:
    """Whether nothing has to be moved, as in the only step of one hidden layer."""
    stays = [
        np.array_equal(array, np.broadcast_to(np.arange(array.shape[-1]), array.shape))
        for array in given.permutations
    ]
    return all(stays) and all(np.all(array == 1) for array in given.signs)


@functools.partial(jax.jit, static_argnums=0)
def _moved(
    recipe: Recipe, networks: Boxes, permutations: _Arrays, signs: _Arrays
) -> list[Float[Array, "..."]]:
    return jax.vmap(functools.partial(gains.move, recipe))(
        networks, permutations, signs
    )


@functools.partial(jax.jit, static_argnums=0)
def _similarity(
    recipe: Recipe,
    reference: Boxes,
    networks: Boxes,
    permutations: _Arrays,
    signs: _Arrays,
) -> Float[Array, "network box"]:
    def one(network: Boxes, permutations: _Arrays, signs: _Arrays) -> Array:
        boxes = gains.move(recipe, network, permutations, signs)
        pairs = zip(reference, boxes, strict=True)
        return jnp.stack([jnp.sum(ours * theirs) for ours, theirs in pairs])

    return jax.vmap(one)(networks, permutations, signs)


@functools.partial(jax.jit, static_argnums=0)
def _sums(
    recipe: Recipe,
    reference: Boxes,
    networks: Boxes,
    permutations: _Arrays,
    signs: _Arrays,
) -> Float[Array, "network ..."]:
    """The sum of products over the weights that each sign multiplies."""

    def one(network: Boxes, permutations: _Arrays, signs: _Arrays) -> Array:
        boxes = gains.move(recipe, network, permutations, signs)
        pairs = zip(reference, boxes, strict=True)
        return gains.totals(recipe, [ours * theirs for ours, theirs in pairs])

    return jax.vmap(one)(networks, permutations, signs)


@functools.cache
def _compiled_measure() -> Callable[..., Any]:
    """`_measure`, of which every step of a descent has a program of its own.

    On a GPU a program takes .5 s to compile, and 8 s where the fastest kernel of each
    product is looked for first, which many alignments do not earn again.
    """
    is_gpu = jax.default_backend() == "gpu"
    options = {"xla_gpu_autotune_level": 0} if is_gpu else None
    return jax.jit(_measure, static_argnums=0, compiler_options=options)


def _measure(
    recipe: Recipe,
    reference: Boxes,
    networks: Boxes,
    permutations: _Arrays,
    signs: _Arrays,
) -> tuple[list[Array | None], list[list[Array]], list[Array | None]]:
    """For each group its gains with the best signs, and by sign; what units gain now.

    Gains by sign are empty where no sign multiplies.
    """

    def one(network: Boxes, permutations: _Arrays, signs: _Arrays) -> tuple:
        boxes = gains.move(recipe, network, permutations, signs)
        parts = [gains.gains(own, reference, boxes) for own in recipe.compared]
        totals = [
            gains.best_signs(own.patterns, part)[0] if part else None
            for own, part in zip(recipe.compared, parts, strict=True)
        ]
        stay = [
            jnp.diagonal(sum(part), axis1=1, axis2=2) if part else None
            for part in parts
        ]
        signed = [
            part if any(own.patterns) else []
            for own, part in zip(recipe.compared, parts, strict=True)
        ]
        return totals, signed, stay

    return jax.vmap(one)(networks, permutations, signs)


@functools.partial(jax.jit, static_argnums=0)
def _signs(
    patterns: Patterns,
    parts: list[Float[Array, "network copy unit unit2"]],
    source: Int[Array, "network copy unit"],
    back: Int[Array, "network copy unit"],
) -> list[Float[Array, "network copy unit"]]:
    """The best signs of the units that come to each place, in the order of units."""
    chosen = [
        jnp.take_along_axis(part, source[..., None], axis=-1)[..., 0] for part in parts
    ]
    _, signs = gains.best_signs(patterns, chosen)
    return [jnp.take_along_axis(sign, back, axis=-1) for sign in signs]
