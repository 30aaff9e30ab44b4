"""Match networks by the loss at their midpoint, through soft permutations.

Every permutation is relaxed to a doubly stochastic matrix: the exponential of a latent
matrix over a temperature, with rows and columns normalised in turn (Sinkhorn). The
latent matrices are learnt by gradient while the temperature falls, and the permutations
nearest to them are what comes out.

References:
    Peña, Medeiros, Dubail, Aminbeidokhti, Granger, Pedersoli (2023), Re-basin via
    implicit Sinkhorn differentiation; Mena, Belanger, Linderman, Snoek (2018), Learning
    latent permutations with Gumbel-Sinkhorn networks, section 2.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from symjax import checks, trees
from symjax.symmetry.actions import Element, flip
from symjax.symmetry.barriers import Measure
from symjax.symmetry.matching import assignment, boxes, moves
from symjax.symmetry.matching.midpoint import Midpoint, of_minibatch
from symjax.symmetry.spec import Spec
from symjax.types import Data, Key, Params


_STAY = 0.4
"""What a unit starts with in its place, at the first temperature.

Of 10 networks with 4 units, trained by themselves, the best permutation was found, by
the learning rate, in 4 from all alike, in 2 to 4 from 0.4, in 0 to 2 from 0.9.
"""

_NUM_ROUNDS = 20
"""Normalisations of rows and columns."""

_LOOK_EVERY = 10
"""Steps between two looks at the permutations nearest to the soft ones."""


def match_sinkhorn(
    loss: Measure,
    spec: Spec,
    params: Params,
    reference: Params,
    data: Data,
    key: Key,
    *,
    optimiser: optax.GradientTransformation,
    num_steps: int = 500,
    batch_size: int = 256,
    temperatures: tuple[float, float] = (1.0, 0.1),
) -> Element:
    """The permutations with the lowest loss at the midpoint that were met.

    A step costs one gradient on a minibatch, through the soft permutations. It starts
    from the network as it is or as `match_weights` moves it, whichever has the lower
    loss, and keeps the signs of this start.

    Args:
        loss: `(params, data) -> (example,)`, differentiable in `params`.
        spec: The networks' symmetries.
        params: One network.
        reference: What it is matched to.
        data: The examples that the loss is taken on; those of training.
        key: PRNG key of the minibatches.
        optimiser: Of the latent matrices, whose entries are of order 1, such as
            `optax.adam(0.1)`.
        num_steps: Steps of the optimiser.
        batch_size: Examples in a minibatch.
        temperatures: The first and the last; it falls by the same factor every step.

    Returns:
        The element; its scales are 1.
    """
    checks.at_least(1, num_steps=num_steps, batch_size=batch_size)
    checks.positive(first_temperature=temperatures[0], last_temperature=temperatures[1])
    size = min(batch_size, len(data.mask))
    midpoint = Midpoint(loss, spec, params, reference, data, size)
    best = midpoint.start()
    now = best.element
    flipped = flip(spec, now.signs, params)
    latent = [temperatures[0] * _near(order) for order in now.permutations]
    state = optimiser.init(latent)
    keys = jax.random.split(key, num_steps)
    for step, temperature in enumerate(np.geomspace(*temperatures, num_steps)):
        latent, state = _learn(
            *(loss, spec, optimiser, size, keys[step], float(temperature)),
            *((latent, state), flipped, reference, data),
        )
        if step % _LOOK_EVERY == _LOOK_EVERY - 1 or step == num_steps - 1:
            new = now._replace(permutations=tuple(map(_nearest, latent)))
            if not moves.is_same(new, now):
                now, best = new, best.or_better(midpoint, new)
    return best.element


def _near(order: Array) -> Float[Array, "*batch unit unit2"]:
    """A latent matrix that softly permutes so, with `_STAY` in the right place."""
    size = order.shape[-1]
    stay = math.log(_STAY / (1 - _STAY) * max(1, size - 1))
    return stay * jax.nn.one_hot(order, size)


def _nearest(latent: Float[Array, "*batch unit unit2"]) -> Array:
    """The permutation of largest sum of entries."""
    gains = np.asarray(latent)
    size = gains.shape[-1]
    found = assignment.solve(gains.reshape(-1, size, size))
    return jnp.asarray(found.reshape(gains.shape[:-1]))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _learn(
    loss: Measure,
    spec: Spec,
    optimiser: optax.GradientTransformation,
    batch_size: int,
    key: Key,
    temperature: float | Array,
    learnt: tuple[list[Array], Any],
    params: Params,
    reference: Params,
    data: Data,
) -> tuple[list[Array], Any]:
    """One step of the optimiser, from latent matrices and its state."""
    latent, state = learnt

    def at_midpoint(latent: list[Array]) -> Float[Array, ""]:
        soft = [doubly_stochastic(one / temperature) for one in latent]
        mixed = mix(spec, soft, params)
        return of_minibatch(loss, key, batch_size, mixed, reference, data)

    updates, state = optimiser.update(jax.grad(at_midpoint)(latent), state, latent)
    return jax.tree.leaves(optax.apply_updates(latent, updates)), state


def doubly_stochastic(
    logits: Float[Array, "*batch unit unit2"],
) -> Float[Array, "*batch unit unit2"]:
    """Exponentials with rows and columns normalised in turn, columns last."""

    def normalise(_: Any, logits: Array) -> Array:
        logits = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return logits - jax.nn.logsumexp(logits, axis=-2, keepdims=True)

    return jnp.exp(jax.lax.fori_loop(0, _NUM_ROUNDS, normalise, logits))


def mix(spec: Spec, matrices: Sequence[Float[Array, "..."]], params: Params) -> Params:
    """Permute softly: `new[.., u, ..] = sum over v of matrix[u, v] old[.., v, ..]`.

    With the matrices of permutations it is `permute`.
    """
    leaves, structure = jax.tree.flatten(params)
    by_path = dict(zip(trees.paths(params), map(jnp.asarray, leaves), strict=True))
    for box in boxes.cut(spec):
        values = box.extract(by_path[box.path])
        for place in sorted(box.permutations, key=lambda place: place.group):
            values = _mix_box(values, place.dims, matrices[place.group])
        sizes = [len(table) for table in box.tables]
        whole = by_path[box.path]
        new = jnp.atleast_1d(whole).at[np.ix_(*box.tables)].set(values.reshape(sizes))
        by_path[box.path] = new.reshape(whole.shape)
    return jax.tree.unflatten(structure, by_path.values())


def _mix_box(
    values: Float[Array, "..."],
    dims: tuple[int, ...],
    matrix: Float[Array, "*batch unit unit2"],
) -> Float[Array, "..."]:
    first = tuple(range(len(dims)))
    moved = jnp.moveaxis(values, dims, first)
    flat = moved.reshape(*moved.shape[: len(dims)], -1)
    return jnp.moveaxis((matrix @ flat).reshape(moved.shape), first, dims)
