"""A Gaussian with a mean and a standard deviation for every weight, fitted to draws.

Fitted to draws as they are it is the paper's q_d; to draws that were aligned with one
reference, the compact posterior q_r. Its covariance is diagonal, or diagonal plus a few
directions in which weights vary together.

There is nothing to optimise, so that it is no `Approximation`: `fit` reads the draws of
a run, a piece at a time, and `sample` draws networks to predict with.

References:
    Xiao, Liu, Bamler (2023), A compact representation for Bayesian neural networks by
    removing permutation symmetry, section 3 (q_d, q_r, pruning).
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.util import generate_gaussian_noise
from jaxtyping import Float

from symjax import checks, trees
from symjax.types import Key, Params


_PIECE_BYTES = 2**26
_GRAM_PIECE_BYTES = 2**28


class Gaussian(NamedTuple):
    """Independent normals, or normals that share a few directions.

    With z standard normal, a draw is `mean + residual * z + sum_k factor_k * z_k`, and
    `residual**2 = std**2 - sum_k factor_k**2`.

    Attributes:
        mean: Params pytree.
        std: The same: standard deviation of every weight, shared directions included.
        factors: None, or the same with leaves `(rank, ...)`.
    """

    mean: Params
    std: Params
    factors: Params = None


def fit(draws: Params, *, rank: int = 0) -> Gaussian:
    """The mean and the covariance of all chains' draws together.

    Standard deviations are those of the draws (unbiased variance). The factors are the
    principal components of the draws; what they leave is made independent, so that
    every weight keeps its standard deviation. Draws are read once, 64 MB at a time; for
    the factors, 256 MB at a time and as often as there are such pieces.

    Args:
        draws: A pytree with leading `(chain, draw)` on every leaf: NumPy, JAX, or
            anything with `shape` and `dtype` that gives an array when indexed by
            `[chain, slice]`, such as `store.Run.lazy()`.
        rank: How many factors, below the number of draws.

    Returns:
        The Gaussian, with NumPy leaves of the draws' dtype.

    Raises:
        ValueError: If leaves differ in the leading axes, or there are too few draws.

    Example:
        >>> draws = np.array([[1.0, 3.0], [5.0, 7.0]])
        >>> fitted = fit(draws)
        >>> float(fitted.mean), round(float(fitted.std), 3)
        (4.0, 2.582)
    """
    checks.at_least(0, rank=rank)
    leaves, structure = jax.tree.flatten(draws)
    # Indexing a JAX array by other numbers would compile once more each time.
    leaves = [np.asarray(a) if isinstance(a, jax.Array) else a for a in leaves]
    sizes = {leaf.shape[:2] for leaf in leaves}
    if len(sizes) != 1 or len(min(sizes)) < 2:
        raise ValueError(
            "`draws` must have the same leading axes (chain, draw) on every leaf; they "
            f"are {sorted(sizes)}."
        )
    count = math.prod(min(sizes))
    if count < 2 or rank >= count:
        raise ValueError(
            f"`draws` must hold at least {max(2, rank + 1)} draws, for standard "
            f"deviations and {rank} factors; got {count}."
        )
    pairs = zip(trees.paths(draws), leaves, strict=True)
    means, variances = zip(*(_moments(*pair) for pair in pairs), strict=True)

    def params(columns: Any, lead: tuple[int, ...] = ()) -> Params:
        return structure.unflatten(
            np.asarray(column, leaf.dtype).reshape((*lead, *leaf.shape[2:]))
            for column, leaf in zip(columns, leaves, strict=True)
        )

    factors = _factors(leaves, means, rank) if rank else None
    return Gaussian(
        params(means),
        params(map(np.sqrt, variances)),
        None if factors is None else params(factors, (rank,)),
    )


def sample(key: Key, gaussian: Gaussian) -> Params:
    """One draw of the parameters; `jax.vmap` over keys for more."""
    own, shared = jax.random.split(key)
    noise = generate_gaussian_noise(own, gaussian.mean)
    if gaussian.factors is None:
        return jax.tree.map(lambda m, s, z: m + s * z, *gaussian[:2], noise)
    leaves = jax.tree.leaves(gaussian.factors)
    z = jax.random.normal(shared, (len(leaves[0]),))

    def draw(mean: Any, std: Any, factors: Any, noise: Any) -> Any:
        # Never negative but by rounding.
        rest = jnp.maximum(jnp.square(std) - jnp.sum(jnp.square(factors), axis=0), 0)
        along = jnp.tensordot(z, factors, 1, precision="highest")
        return mean + jnp.sqrt(rest) * noise + along

    return jax.tree.map(draw, *gaussian, noise)


def information(gaussian: Gaussian, prior_std: Params) -> Params:
    """What the draws say beyond the prior, in nats, of every weight by itself.

    KL(q || prior) of the weight's marginal and a normal prior of mean zero: 0 where the
    posterior is the prior, as for the weights of a pixel that is blank in all training
    examples; 0.01 where the standard deviation is a tenth below the prior's.

    Estimated from S independent draws, it is on average 1 / S too large.

    Args:
        gaussian: Fitted to draws.
        prior_std: Params pytree, one number or array a leaf, such as `Prior.std`.
    """

    def leaf(mean: Any, std: Any, prior: Any) -> Any:
        ratio = np.square(np.asarray(std, float) / prior)
        with np.errstate(divide="ignore"):
            return (np.square(mean / prior) + ratio - 1 - np.log(ratio)) / 2

    return jax.tree.map(leaf, gaussian.mean, gaussian.std, prior_std)


def keep_informed(
    gaussian: Gaussian, prior_std: Params, *, min_nats: float = 0.01
) -> Gaussian:
    """Only the weights that the data inform; the others are zero, without deviation.

    A weight that keeps its prior adds noise of the prior's size to each draw. In the
    posterior itself that noise is cancelled by other weights, or multiplied by an input
    that is always zero; among independent normals nothing cancels it. Zero is its prior
    mean, so that leaving it out changes no estimate.

    Args:
        gaussian: Fitted to draws.
        prior_std: As in `information`.
        min_nats: Weights with less `information` are left out.
    """
    checks.positive(min_nats=min_nats)
    known = jax.tree.map(lambda i: i >= min_nats, information(gaussian, prior_std))

    def keep(part: Params) -> Params:
        return jax.tree.map(lambda k, a: np.where(k, a, np.zeros_like(a)), known, part)

    factors = None if gaussian.factors is None else keep(gaussian.factors)
    return Gaussian(keep(gaussian.mean), keep(gaussian.std), factors)


def prune(params: Params, std: Params, share: float) -> Params:
    """Set the weights of the largest standard deviation to zero.

    Args:
        params: One network, such as the mean.
        std: Standard deviation of every weight, a pytree of the same shapes.
        share: Of all weights, leaves together, to set to zero.

    Returns:
        The network, with NumPy leaves.

    Raises:
        ValueError: If the share is not from 0 to 1.

    Example:
        >>> params, std = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.4, 0.2, 0.3])
        >>> prune(params, std, 0.5).tolist()
        [1.0, 0.0, 3.0, 0.0]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must be from 0 to 1, got {share}.")
    leaves, structure = jax.tree.flatten(params)
    order = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(std)])
    order = np.argsort(-order, kind="stable")
    kept = np.ones(order.size, bool)
    kept[order[: round(share * order.size)]] = False
    parts = np.split(kept, np.cumsum([np.size(leaf) for leaf in leaves])[:-1])
    return structure.unflatten(
        np.where(part.reshape(np.shape(leaf)), leaf, np.zeros_like(leaf))
        for leaf, part in zip(leaves, parts, strict=True)
    )


def _pieces(
    leaf: Any, num_bytes: int
) -> Iterator[tuple[slice, Float[np.ndarray, "row weight"]]]:
    """All draws in one line, chain by chain: their places there, and some of them."""
    num_chains, num_draws, *shape = leaf.shape
    size = math.prod(shape)
    rows = max(1, num_bytes // max(1, size * leaf.dtype.itemsize))
    dtype = np.promote_types(leaf.dtype, np.float32)
    for chain in range(num_chains):
        for start in range(0, num_draws, rows):
            stop = min(start + rows, num_draws)
            values = np.asarray(leaf[chain, start:stop], dtype)
            first = chain * num_draws
            yield slice(first + start, first + stop), values.reshape(-1, size)


def _moments(
    path: str, leaf: Any
) -> tuple[Float[np.ndarray, " weight"], Float[np.ndarray, " weight"]]:
    """Mean and unbiased variance, pieces merged by Chan, Golub and LeVeque's rule.

    Raises:
        ValueError: If draws are not finite.
    """
    count = 0
    mean = squares = np.zeros(math.prod(leaf.shape[2:]))
    for rows, values in _pieces(leaf, _PIECE_BYTES):
        values = values.astype(float)
        if not np.all(np.isfinite(values)):
            raise ValueError(
                f"`draws` must be finite, but {path or 'the leaf'} is not in one of "
                f"the draws {rows.start} to {rows.stop - 1}, chain by chain."
            )
        new, total = values.mean(axis=0), count + len(values)
        squares = squares + np.square(values - new).sum(axis=0)
        squares = squares + np.square(new - mean) * (count * len(values) / total)
        mean = mean + (new - mean) * (len(values) / total)
        count = total
    return mean, squares / (count - 1)


def _factors(
    leaves: list[Any], means: tuple[np.ndarray, ...], rank: int
) -> list[Float[np.ndarray, "rank weight"]]:
    """The first principal components, each of the length of its standard deviation."""

    def centred(
        leaf: Any, mean: np.ndarray
    ) -> Iterator[tuple[slice, Float[np.ndarray, "row weight"]]]:
        for rows, values in _pieces(leaf, _GRAM_PIECE_BYTES):
            yield rows, values - mean.astype(values.dtype)

    count = math.prod(leaves[0].shape[:2])
    gram = np.zeros((count, count))
    for leaf, mean in zip(leaves, means, strict=True):
        for rows, values in centred(leaf, mean):
            for columns, others in centred(leaf, mean):
                gram[rows, columns] += values @ others.T
                if columns == rows:  # Only the lower triangle is read.
                    break
    _, vectors = np.linalg.eigh(gram, UPLO="L")
    weights = vectors[:, : -rank - 1 : -1].T / math.sqrt(count - 1)
    return [
        np.sum([weights[:, rows] @ values for rows, values in centred(*pair)], axis=0)
        for pair in zip(leaves, means, strict=True)
    ]
