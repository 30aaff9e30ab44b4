"""Squared MMD between the draws of a method and those of the reference."""

import math

import jax
import numpy as np
from jaxtyping import Float, Integer

from symjax import evaluation
from symjax.evaluation.reading import Leaf, take
from symjax.types import Params


_MOST_DRAWS = 256
"""Of each side."""

_MOST_QUANTITIES = 20_000
"""Of a draw."""


def mmd(draws: Params, reference: Params) -> float | None:
    """The squared MMD of two sets of draws, see `evaluation.mmd`.

    Of at most some 256 draws of each, evenly spaced in every chain, and, where there
    are more, of a random sample of 20,000 quantities, the same at each call.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf, which may be read
            when indexed; of weights or of predictions.
        reference: The same of the reference.

    Returns:
        The estimate; None where a side has one draw.
    """
    one, two = jax.tree.leaves(draws), jax.tree.leaves(reference)
    if min(math.prod(side[0].shape[:2]) for side in (one, two)) < 2:
        return None
    sizes = [math.prod(leaf.shape[2:]) for leaf in one]
    share, random = _MOST_QUANTITIES / sum(sizes), np.random.default_rng(0)
    columns = [np.flatnonzero(random.random(size) < share) for size in sizes]
    return evaluation.mmd(_rows(one, columns), _rows(two, columns))


def _rows(
    leaves: list[Leaf], columns: list[np.ndarray]
) -> Float[np.ndarray, "draw quantity"]:
    """Some draws of the quantities in `columns` of all leaves."""
    num_chains, num_draws = leaves[0].shape[:2]
    chains = _spaced(num_chains, _MOST_DRAWS)
    draws = _spaced(num_draws, max(1, _MOST_DRAWS // len(chains)))
    taken = [
        take(leaf, chosen)[np.ix_(chains, draws)]
        for leaf, chosen in zip(leaves, columns, strict=True)
    ]
    return np.concatenate(taken, axis=2).reshape(len(chains) * len(draws), -1)


def _spaced(total: int, most: int) -> Integer[np.ndarray, " place"]:
    """At most `most` of `total` places, evenly spaced."""
    return np.linspace(0, total - 1, min(total, most)).astype(int)
