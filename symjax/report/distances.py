"""Squared MMD between the draws of a method and those of the reference."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Integer

from symjax import evaluation
from symjax.evaluation.reading import Leaf, pieces
from symjax.types import Params


MOST_DRAWS = 256
"""Of each side."""

_MOST_QUANTITIES = 20_000
"""Of a draw."""

_MOST_BYTES = 2**28
"""Of whole draws that are held to be transformed."""

_NUM_PERMUTATIONS = 999


class Distance(NamedTuple):
    """How far two sets of draws are apart.

    Attributes:
        mmd: The squared MMD, see `evaluation.mmd`; NaN where a draw is not finite.
        p_value: How often sets made by exchanging whole chains, or members, are as far
            apart, see `evaluation.compare_draws`; None where it can't be had.
        smallest_p_value: No test of as many chains gives less.
        num_draws: Of the first set that were used.
        num_reference_draws: Of the second.
    """

    mmd: float
    p_value: float | None
    smallest_p_value: float | None
    num_draws: int
    num_reference_draws: int


def sample(
    draws: Params, transform: Callable[[Params], Params] | None = None
) -> Float[np.ndarray, "chain draw quantity"]:
    """Some quantities of some draws, read in one pass, 64 MB at a time.

    Of at most some 256 draws, evenly spaced in every chain, and, where there are more,
    of a random sample of 20,000 quantities, the same at each call. To be transformed
    they are held whole, and are fewer where 256 take more than 256 MB.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf, which may be read
            when indexed; of weights or of predictions.
        transform: From draws with these leading axes to others, before the sample of
            quantities is taken.
    """
    leaves, treedef = jax.tree.flatten(draws)
    num_chains, num_draws = leaves[0].shape[:2]
    most = MOST_DRAWS
    if transform is not None:
        size = sum(math.prod(leaf.shape[2:]) * leaf.dtype.itemsize for leaf in leaves)
        most = min(most, max(2, _MOST_BYTES // size))
    chains = spaced(num_chains, most)
    kept = spaced(num_draws, max(1, most // len(chains)))
    if transform is not None:
        whole = [
            _taken(leaf, chains, kept, None).reshape(
                len(chains), len(kept), *leaf.shape[2:]
            )
            for leaf in leaves
        ]
        leaves = jax.tree.leaves(transform(jax.tree.unflatten(treedef, whole)))
        leaves = [np.asarray(leaf) for leaf in leaves]
        chains, kept = np.arange(len(chains)), np.arange(len(kept))
    sizes = [math.prod(leaf.shape[2:]) for leaf in leaves]
    share, random = _MOST_QUANTITIES / sum(sizes), np.random.default_rng(0)
    columns = [np.flatnonzero(random.random(size) < share) for size in sizes]
    parts = [
        _taken(leaf, chains, kept, chosen)
        for leaf, chosen in zip(leaves, columns, strict=True)
    ]
    return np.concatenate(parts, axis=2)


def compare(
    one: Float[np.ndarray, "chain draw quantity"],
    two: Float[np.ndarray, "chain2 draw2 quantity"],
) -> Distance | None:
    """The squared MMD of two sets, each from `sample`, and its test.

    The test needs chains of one length, for which it thins the longer ones: its MMD is
    then of fewer draws than that which is returned.

    Returns:
        The distance; None where a side has one draw.
    """
    (c, s, _), (d, t, _) = one.shape, two.shape
    if min(c * s, d * t) < 2:
        return None
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return Distance(math.nan, None, None, c * s, d * t)
    p_value = smallest = None
    if min(c, d) * min(s, t) >= 2:
        test = evaluation.compare_draws({"": one}, {"": two}, _NUM_PERMUTATIONS)
        p_value, smallest = test.p_value, _smallest_p_value(c, d)
    mmd = evaluation.mmd(one.reshape(c * s, -1), two.reshape(d * t, -1))
    return Distance(mmd, p_value, smallest, c * s, d * t)


def _smallest_p_value(one: int, two: int) -> float:
    """One over the ways to choose the chains; both halves of as many are one way."""
    ways = math.comb(one + two, one) / (2 if one == two else 1)
    return max(1 / ways, 1 / (_NUM_PERMUTATIONS + 1))


def _taken(
    leaf: Leaf,
    chains: Integer[np.ndarray, " place"],
    kept: Integer[np.ndarray, " place2"],
    columns: Integer[np.ndarray, " column"] | None,
) -> Float[np.ndarray, "chain draw column"]:
    """The draws `kept` of some chains, of the quantities in `columns` or of all."""
    width = math.prod(leaf.shape[2:]) if columns is None else len(columns)
    taken = np.empty((len(chains), len(kept), width), leaf.dtype)
    places = {int(chain): place for place, chain in enumerate(chains)}
    for chain, draws, values in pieces(leaf):
        inside = (kept >= draws.start) & (kept < draws.stop)
        if chain in places and inside.any():
            rows = values[kept[inside] - draws.start]
            taken[places[chain], inside] = rows if columns is None else rows[:, columns]
    return taken


def spaced(total: int, most: int) -> Integer[np.ndarray, " place"]:
    """At most `most` of `total` places, evenly spaced."""
    return np.linspace(0, total - 1, min(total, most)).astype(int)
