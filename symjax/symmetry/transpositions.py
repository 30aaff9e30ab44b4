"""How many swaps of units lie between networks: experiments on trained networks.

References:
    Xiao, Liu, Bamler (2023), A compact representation for Bayesian neural networks by
    removing permutation symmetry.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symjax import checks, trees
from symjax.symmetry.actions import Element, act, identity
from symjax.symmetry.barriers import interpolate
from symjax.symmetry.elements import total_transpositions
from symjax.symmetry.permutations import random_permutation
from symjax.symmetry.spec import Spec
from symjax.types import Key, Params


def random_transpositions(key: Key, spec: Spec, number: int) -> Element:
    """A random element of permutations with a given number of transpositions.

    They are shared out at random over all groups and their copies, where each of the
    `n - 1` that fit into `n` units has the same chance; given the number of each, its
    permutation is uniform.

    Args:
        key: PRNG key.
        spec: The network's symmetries.
        number: Of transpositions, in all groups together.

    Returns:
        The element; its scales and signs are 1.

    Raises:
        ValueError: If the groups do not have so many.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 1))}
        >>> apply = lambda params, x: jax.nn.silu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> element = random_transpositions(jax.random.key(0), spec, 4)
        >>> int(symmetry.total_transpositions(element))
        4
    """
    checks.at_least(0, number=number)
    sizes = [g.size for g in spec.permutations for _ in range(g.num_copies)]
    owners = np.repeat(np.arange(len(sizes)), np.array(sizes, int) - 1)
    if number > len(owners):
        raise ValueError(
            f"`number` must be at most {len(owners)}, the most transpositions that the "
            f"groups of `spec` have together, got {number}."
        )
    for_share, *keys = jax.random.split(key, 1 + len(sizes))
    chosen = np.asarray(jax.random.permutation(for_share, len(owners)))[:number]
    counts = np.bincount(owners[chosen], minlength=len(sizes)).tolist()
    drawn = map(random_permutation, keys, sizes, counts)
    orders = []
    for group in spec.permutations:
        copies = [next(drawn) for _ in range(group.num_copies)]
        orders.append(jnp.stack(copies).reshape(group.shape))
    return identity(spec)._replace(permutations=tuple(orders))


def transpositions_along(
    match: Callable[[Params, Params], Element],
    params: Params,
    other: Params,
    positions: Sequence[float] | Float[np.ndarray, " position"],
) -> Int[Array, " position"]:
    """How many transpositions bring networks on the line to the one at its start.

    Args:
        match: `(params, reference) -> element`, with leading axes if `params` has them,
            such as `functools.partial(match_weights, spec)`.
        params: The network at 0, which is the reference.
        other: That at 1.
        positions: Where, from 0 to 1.

    Returns:
        The number in all groups, at each position.
    """
    along = jax.vmap(interpolate, (None, None, 0))
    found = match(along(params, other, jnp.asarray(positions)), params)
    return jax.vmap(total_transpositions)(found)


class Trial(NamedTuple):
    """A network that was permuted before training, compared with one that was not.

    Attributes:
        given: Transpositions of the permutation.
        found: Those of the element that matches the trained networks.
        distance: Between all weights after training.
        distance_matched: The same after matching.
        barrier: Between both after training.
        barrier_matched: The same after matching.
    """

    given: int
    found: int
    distance: float
    distance_matched: float
    barrier: Any
    barrier_matched: Any


def permuted_trials(
    key: Key,
    spec: Spec,
    params: Params,
    numbers: Sequence[int],
    *,
    train: Callable[[Params], Params],
    match: Callable[[Params, Params], Element],
    barrier: Callable[[Params, Params], Any],
) -> list[Trial]:
    """Train a network, and again from permuted starts, and compare what comes out.

    Args:
        key: PRNG key of the permutations.
        spec: The network's symmetries.
        params: What training starts from.
        numbers: Transpositions to permute it by, one trial each.
        train: `params -> params`, the same every time.
        match: `(params, reference) -> element`, such as
            `functools.partial(match_weights, spec)`.
        barrier: `(params, other) -> barrier`, such as `loss_barrier` on some data.

    Returns:
        One trial for each number.
    """
    first = train(params)
    trials = []
    for trial_key, number in zip(
        jax.random.split(key, len(numbers)), numbers, strict=True
    ):
        element = random_transpositions(trial_key, spec, number)
        other = train(act(spec, element, params))
        found = match(other, first)
        matched = act(spec, found, other)
        trials.append(
            Trial(
                given=number,
                found=int(total_transpositions(found)),
                distance=_distance(first, other),
                distance_matched=_distance(first, matched),
                barrier=barrier(first, other),
                barrier_matched=barrier(first, matched),
            )
        )
    return trials


def _distance(params: Params, other: Params) -> float:
    return float(trees.distance(params, other))
