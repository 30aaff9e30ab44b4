"""Match networks by what their units do: correlations of activations on data.

Each unit of the reference is paired with the unit of the network whose activations go
with its own over a data set, by one assignment for each group of units. Nothing has to
be iterated, as the activations of one layer do not depend on how others are numbered.

References:
    Li, Yosinski, Clune, Lipson, Hopcroft (2016), Convergent learning: do different
    neural networks learn the same representations?, section 3; Ainsworth, Hayase,
    Srinivasa (2023), Git Re-Basin, section 3.1.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symjax import checks, trees
from symjax.symmetry.actions import Element, identity
from symjax.symmetry.batches import batches
from symjax.symmetry.matching import blocks, flips, moments, stacks
from symjax.symmetry.matching.blocks import Layout
from symjax.symmetry.matching.flips import Pattern
from symjax.symmetry.matching.moments import Moments
from symjax.symmetry.spec import Group, Spec
from symjax.symmetry.taps import taps
from symjax.types import Params


def match_activations(
    apply: Callable[[Params, Any], Any],
    spec: Spec,
    params: Params,
    reference: Params,
    x: Any,
    *,
    centred: bool = True,
    normalised: bool = True,
    batch_size: int = 1024,
    draws_at_once: int = 8,
) -> Element:
    """The permutations and signs after which units do what those of the reference do.

    They maximise the sum over units of the correlation between `reference` and
    `act(spec, element, params)`. A unit whose sign the network leaves free is matched
    by the magnitude of its correlation. What activations can't tell stays as it is:
    scales, the order of units that are constant on the data, and signs that show in no
    activation (those in front of a normalisation); weights can tell.

    Args:
        apply: `apply(params, x) -> outputs`.
        spec: Its symmetries.
        params: One network, or draws with any axes before those of the parameters.
        reference: One network, which all are matched to.
        x: Inputs, examples along the first axis of every leaf.
        centred: Subtract the mean of each unit.
        normalised: Divide by the root mean square of each unit, so that its scale has
            no weight. With neither, it is the objective of Git Re-Basin.
        batch_size: Examples at a time. The last batch may be smaller.
        draws_at_once: Draws whose activations are held in memory together.

    Returns:
        The element, with the leading axes of `params`.

    Raises:
        ValueError: If a group of units shows in no activation, or activations are not
            finite.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.eye(3), "out": jnp.ones((3, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> x = jax.random.normal(jax.random.key(0), (20, 3))
        >>> spec = symmetry.infer(apply, params, x)
        >>> moved = symmetry.permute(spec, [jnp.array([2, 0, 1])], params)
        >>> element = match_activations(apply, spec, moved, params, x)
        >>> symmetry.act(spec, element, moved)["in"].tolist() == jnp.eye(3).tolist()
        True
    """
    checks.at_least(1, batch_size=batch_size, draws_at_once=draws_at_once)
    spec.check(reference)
    stack, leading = stacks.flatten(spec, params)
    at_once = min(draws_at_once, stacks.count(stack))
    stacks.require_finite("params", stack, leading, at_once)
    splits = blocks.layouts(spec.permutations)
    patterns = flips.patterns(apply, spec, reference, next(batches(x, 16))[0])
    _require_taps(spec, splits, patterns)
    elements = []
    for part in stacks.every_part(stack, at_once):
        draws, total = stacks.pick(stack, part), None
        for batch, _ in batches(x, batch_size):
            with jax.default_matmul_precision("highest"):
                new = _moments(apply, spec, centred, draws, reference, batch)
            total = new if total is None else _merge(total, new)
        similar = jax.device_get(_similarities(total, normalised))
        for number, draw in enumerate(part.real):
            own = [[tap[number] for tap in group] for group in similar]
            if not all(np.all(np.isfinite(tap)) for group in own for tap in group):
                raise ValueError(
                    f"`apply` must give finite activations, but not all are of network "
                    f"{draw} of {stacks.count(stack)}, or of `reference`. Leave it out."
                )
            elements.append(_solve(spec, splits, patterns, own))
    return stacks.restore(trees.stack(elements), leading)


def _require_taps(
    spec: Spec, splits: Sequence[Layout], patterns: Sequence[Sequence[Pattern]]
) -> None:
    if not spec.permutations:
        raise ValueError(
            "`spec` must have a group of permutations to match by, and has none. There "
            "is nothing to align."
        )
    parents = {split.parent for split in splits}
    for number, group in enumerate(spec.permutations):
        if not patterns[number] and number not in parents:
            axis = group.axes[0]
            raise ValueError(
                f"`spec` has a group of {group.size} units, on `{axis.path}` axis "
                f"{axis.unit.axis}, that no activation shows by themselves. Match by "
                f"weights."
            )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _moments(
    apply: Callable[[Params, Any], Any],
    spec: Spec,
    centred: bool,
    draws: Params,
    reference: Params,
    x: Any,
) -> list[list[Moments]]:
    splits = blocks.layouts(spec.permutations)
    ours = taps(apply, spec, reference, x)

    def of_draw(params: Params) -> list[list[Moments]]:
        theirs = taps(apply, spec, params, x)
        return [
            [
                moments.of_batch(split, one, two, centred=centred)
                for one, two in zip(*pair, strict=True)
            ]
            for split, *pair in zip(splits, ours, theirs, strict=True)
        ]

    return jax.vmap(of_draw)(draws)


def _is_moments(value: Any) -> bool:
    return isinstance(value, Moments)


@jax.jit
def _merge(one: list[list[Moments]], two: list[list[Moments]]) -> list[list[Moments]]:
    return jax.tree.map(jax.vmap(moments.merge), one, two, is_leaf=_is_moments)


@functools.partial(jax.jit, static_argnames="normalised")
def _similarities(total: list[list[Moments]], normalised: bool) -> list[list[Array]]:
    one = jax.vmap(functools.partial(moments.similarity, normalised=normalised))
    return jax.tree.map(one, total, is_leaf=_is_moments)


def _solve(
    spec: Spec,
    splits: Sequence[Layout],
    patterns: Sequence[Sequence[Pattern]],
    similar: Sequence[Sequence[Float[np.ndarray, "_ _ _"]]],
) -> Element:
    """The element of one network."""
    groups = spec.permutations
    sums = [
        _by_pattern(group, split, own, taps)
        for group, split, own, taps in zip(
            groups, splits, patterns, similar, strict=True
        )
    ]
    best = [flips.best(one) if one else (None, {}) for one in sums]
    total = [None if one is None else np.asarray(one) for one, _ in best]
    matched = blocks.match(groups, splits, total)
    orders = tuple(
        jnp.asarray(blocks.unfold(group, split, one.permutations))
        for group, split, one in zip(groups, splits, matched, strict=True)
    )
    signs = flips.of_matched(spec, splits, matched, [found for _, found in best])
    return Element(orders, identity(spec).scales, tuple(map(jnp.asarray, signs)))


def _by_pattern(
    group: Group,
    split: Layout,
    patterns: Sequence[Pattern],
    similar: Sequence[Float[np.ndarray, "fixed unit unit2"]],
) -> dict[Pattern, Float[Array, "fixed block other one_unit other_unit"]]:
    """Similarities, summed over taps that the same signs flip."""
    copies, count = blocks.sizes(group, split)
    sums: dict[Pattern, Array] = {}
    for pattern, values in zip(patterns, similar, strict=True):
        values = values.reshape(copies, count, group.size, count, group.size)
        values = jnp.asarray(values.transpose(0, 1, 3, 2, 4))
        sums[pattern] = sums[pattern] + values if pattern in sums else values
    return sums
