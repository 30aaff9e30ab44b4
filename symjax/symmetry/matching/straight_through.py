"""Match networks by the loss at their midpoint, with a straight-through estimator.

Latent weights are matched by the network, as `match_weights` does. The gradient of the
loss halfway between the reference and the matched network is taken by the matched
weights and given to the latent ones, as if a match were the identity; they move until
another match comes out.

References:
    Ainsworth, Hayase, Srinivasa (2023), Git Re-Basin: merging models modulo permutation
    symmetries, section 3.3 and algorithm 3.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from symjax import checks
from symjax.symmetry.actions import Element, act
from symjax.symmetry.barriers import Measure
from symjax.symmetry.matching import matcher, moves
from symjax.symmetry.matching.matcher import Matcher
from symjax.symmetry.matching.midpoint import Midpoint, of_minibatch
from symjax.symmetry.spec import Spec
from symjax.types import Data, Key, Params


def match_straight_through(
    loss: Measure,
    spec: Spec,
    params: Params,
    reference: Params,
    data: Data,
    key: Key,
    *,
    optimiser: optax.GradientTransformation,
    num_steps: int = 200,
    batch_size: int = 256,
) -> Element:
    """The permutations and signs with the lowest loss at the midpoint that were met.

    A step costs one gradient on a minibatch and one coordinate descent from the match
    before; whenever the match changes, one pass over all data. It starts from the
    network as it is or as `match_weights` moves it, whichever has the lower loss.

    Args:
        loss: `(params, data) -> (example,)`, differentiable in `params`.
        spec: The networks' symmetries.
        params: One network.
        reference: What it is matched to.
        data: The examples that the loss is taken on; those of training.
        key: PRNG key of the minibatches.
        optimiser: Of the latent weights, such as `optax.adam(1e-3)`.
        num_steps: Steps of the optimiser.
        batch_size: Examples in a minibatch.

    Returns:
        The element; its scales are 1.

    References:
        Ainsworth, Hayase, Srinivasa (2023), Git Re-Basin, algorithm 3.
    """
    checks.at_least(1, num_steps=num_steps, batch_size=batch_size)
    size = min(batch_size, len(data.mask))
    midpoint = Midpoint(loss, spec, params, reference, data, size)
    best = midpoint.start()
    now = best.element
    prepared, _ = matcher.prepare(spec, params, max_sweeps=100, max_bytes=None)
    latent, state = reference, optimiser.init(_floating(reference))
    for step_key in jax.random.split(key, num_steps):
        moved = act(spec, now, params)
        latent, state = _learn(
            loss, optimiser, size, step_key, latent, state, moved, reference, data
        )
        new = project(prepared, latent, now)
        if not moves.is_same(new, now):
            now, best = new, best.or_better(midpoint, new)
    return best.element


def project(prepared: Matcher, latent: Params, start: Element) -> Element:
    """The match of the latent weights, by coordinate descent from another."""
    stacked = jax.tree.map(lambda array: np.asarray(array)[None], start)
    target = matcher.cut(prepared.spec, latent)
    found = prepared.descend(target, prepared.begin(stacked))
    return jax.tree.map(lambda array: array[0], moves.without_scales(found.element))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _learn(
    loss: Measure,
    optimiser: optax.GradientTransformation,
    batch_size: int,
    key: Key,
    latent: Params,
    state: Any,
    moved: Params,
    reference: Params,
    data: Data,
) -> tuple[Params, Any]:
    """One step of the optimiser, with the gradient by the moved network."""

    def at_midpoint(floating: list[Any]) -> Any:
        network = _with_floating(moved, floating)
        return of_minibatch(loss, key, batch_size, network, reference, data)

    gradient = jax.grad(at_midpoint)(_floating(moved))
    updates, state = optimiser.update(gradient, state, _floating(latent))
    learnt = optax.apply_updates(_floating(latent), updates)
    return _with_floating(latent, jax.tree.leaves(learnt)), state


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _floating(params: Params) -> list[Any]:
    return list(filter(_is_floating, jax.tree.leaves(params)))


def _with_floating(params: Params, floating: list[Any]) -> Params:
    """Parameters with other floating-point leaves; whole numbers can't be learnt."""
    left = iter(floating)
    return jax.tree.map(lambda leaf: next(left) if _is_floating(leaf) else leaf, params)
