"""Draws of many weights seen along random directions.

References:
    Johnson, Lindenstrauss (1984), "Extensions of Lipschitz mappings into a Hilbert
    space". Bonneel, Rabin, Peyré, Pfister (2015), "Sliced and Radon Wasserstein
    barycenters of measures", section 2.
"""

import math

import jax
import numpy as np
from jaxtyping import Array, Float

from symjax import checks
from symjax.evaluation import arguments, transport
from symjax.evaluation.discrepancy.chains import chain_leaves
from symjax.evaluation.reading import pieces
from symjax.types import Key, Params


# Values of the part of the random matrix that is held, 256 MB in float32.
_MATRIX_VALUES = 2**26


def project(
    draws: Params, num_dimensions: int, key: Key
) -> Float[np.ndarray, "chain draw dimension"]:
    """Random projections of draws: what stands for the weights of a large network.

    All leaves together are multiplied by one matrix of independent normal numbers of
    variance `1 / num_dimensions`, so that squared distances are kept on average and to
    a relative standard deviation of `sqrt(2 / num_dimensions)`. Equal keys and shapes
    give an equal matrix, so that projections of two runs can be compared. Draws are
    read 64 MB at a time, once for every 2**26 / num_dimensions weights of a leaf, and
    the matrix is never held as a whole.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf: NumPy, JAX, or
            `reading.Leaf`, such as `run.lazy()`.
        num_dimensions: Directions.
        key: Of the matrix.

    Returns:
        The projections, in float64 from products in float32.

    Example:
        >>> draws = {"w": np.ones((2, 5, 30, 20)), "b": np.ones((2, 5, 20))}
        >>> project(draws, 8, jax.random.key(0)).shape
        (2, 5, 8)
    """
    checks.at_least(1, num_dimensions=num_dimensions)
    leaves = chain_leaves(draws, "draws")
    result = np.zeros((*leaves[0].shape[:2], num_dimensions))
    width = max(1, _MATRIX_VALUES // num_dimensions)
    for i, leaf in enumerate(leaves):
        of_leaf, size = jax.random.fold_in(key, i), math.prod(leaf.shape[2:])
        for block, start in enumerate(range(0, size, width)):
            columns = slice(start, min(start + width, size))
            shape = (columns.stop - start, num_dimensions)
            of_block = jax.random.fold_in(of_leaf, block)
            matrix = np.asarray(jax.random.normal(of_block, shape, np.float32))
            for chain, rows, values in pieces(leaf):
                result[chain, rows] += values[:, columns] @ matrix
    return result / math.sqrt(num_dimensions)


def sliced_wasserstein(
    one: Float[np.ndarray | Array, "draw quantity"],
    two: Float[np.ndarray | Array, "draw2 quantity2"],
    num_projections: int = 128,
    seed: int = 0,
) -> float:
    """The sliced Wasserstein-2 distance of two sets of draws, in their unit.

    `sqrt(mean_u W2(u . one, u . two)^2)` over random directions `u` of length 1, the
    one-dimensional distances exact. Two sets a constant `c` apart have
    `|c| / sqrt(quantities)`; finite sets of one distribution are above 0. Its square is
    an average over directions: their number sets its Monte-Carlo error.

    Args:
        one: Draws.
        two: The others. Their number may differ.
        num_projections: Directions.
        seed: Of the directions.

    Returns:
        The distance.

    Raises:
        ValueError: If a set is empty, the quantities differ in number, or a draw is not
            finite.

    Example:
        >>> one = np.random.default_rng(0).normal(size=(50, 3))
        >>> round(sliced_wasserstein(one, one[::-1]), 6)
        0.0
    """
    checks.at_least(1, num_projections=num_projections)
    one, two = arguments.finite(one, "one"), arguments.finite(two, "two")
    if one.shape[1] != two.shape[1] or not min(one.size, two.size):
        raise ValueError(
            "`one` and `two` must have draws of the same quantities, one or more; got "
            f"the shapes {one.shape} and {two.shape}."
        )
    random = np.random.default_rng(seed)
    directions = random.normal(size=(one.shape[1], num_projections))
    directions /= np.linalg.norm(directions, axis=0)
    squared = transport.mean_cost(one @ directions, two @ directions, 2)
    return float(np.sqrt(squared.mean()))
