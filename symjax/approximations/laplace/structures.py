"""What is kept of a curvature W, and what can be done with it.

W is the generalised Gauss-Newton matrix in units of the prior (see `ggn`), so that the
precision of the approximation is W + d I with d the factor on the prior's precision.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symjax.approximations.laplace import ggn
from symjax.approximations.laplace.ggn import Part
from symjax.posterior import LogPosterior
from symjax.types import Data, Key


MAX_SIDE = 5000
"""Largest matrix that is decomposed, of rows."""
EXTRA_VECTORS = 10
"""Vectors of the subspace iteration beyond the rank."""
SUBSPACE_ITERATIONS = 8


class Structure(NamedTuple):
    """How a curvature is kept.

    Attributes:
        measure: `(key, log_posterior, part, data, rank) -> curvature`.
        eigenvalues: Of a curvature, in one vector; those left out are zero.
        shrink: `(curvature, d, noise) -> (I + W / d)^(-1/2) noise`, of arrays like the
            part's.
    """

    measure: Callable[[Key, LogPosterior, Part, Data, int], Any]
    eigenvalues: Callable[[Any], Float[Array, " eigenvalue"]]
    shrink: Callable[[Any, Any, list[Array]], list[Array]]


class Directions(NamedTuple):
    """W = sum_k eigenvalue_k direction_k direction_k^T."""

    eigenvalues: Float[Array, " rank"]
    directions: Float[Array, "weight rank"]


class Factors(NamedTuple):
    """The block of a leaf, rows ⊗ columns, by its eigenvectors."""

    eigenvalues: Float[Array, "row column"]
    rows: Float[Array, "row row"]
    columns: Float[Array, "column column"]


def check(structure: str, part: Part) -> None:
    """Require matrices that can be decomposed.

    Raises:
        ValueError: if one is too large, naming the parameters.
    """
    if structure == "full" and part.size > MAX_SIDE:
        raise ValueError(
            f"`structure` full is for up to {MAX_SIDE} parameters, got {part.size}. "
            "Take kronecker, low_rank or diagonal, or fewer `leaves`."
        )
    if structure != "kronecker":
        return
    for name, leaf in zip(part.names, part.leaves, strict=True):
        if max(_sides(leaf.shape)) > MAX_SIDE:
            raise ValueError(
                f"`structure` kronecker is for factors of up to {MAX_SIDE} rows, but "
                f"{name} of shape {leaf.shape} has {max(_sides(leaf.shape))}. Take "
                "low_rank or diagonal, or other `leaves`."
            )


def count_gradients(structure: str, rank: int, num_outputs: int) -> int:
    """What a curvature costs a member, in gradients of the whole data set."""
    if structure == "low_rank":
        return SUBSPACE_ITERATIONS * (rank + EXTRA_VECTORS)
    return num_outputs


def _measure_diagonal(
    key: Key, log_posterior: LogPosterior, part: Part, data: Data, rank: int
) -> list[Array]:
    del key, rank

    def squares(rows: list[Array]) -> list[Array]:
        return [jnp.sum(jnp.square(leaf), axis=0) for leaf in rows]

    return ggn.sum_of_rows(squares, log_posterior, part, data)


def _shrink_diagonal(curvature: list[Array], d: Any, noise: list[Array]) -> list[Array]:
    return [
        z / jnp.sqrt(1 + values / d) for values, z in zip(curvature, noise, strict=True)
    ]


def _measure_full(
    key: Key, log_posterior: LogPosterior, part: Part, data: Data, rank: int
) -> Directions:
    del key, rank

    def square(rows: list[Array]) -> Array:
        flat = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in rows], axis=1)
        return flat.T @ flat

    return Directions(*_eigh(ggn.sum_of_rows(square, log_posterior, part, data)))


def _measure_low_rank(
    key: Key, log_posterior: LogPosterior, part: Part, data: Data, rank: int
) -> Directions:
    """The largest eigenvalues, by subspace iteration (Halko et al. 2011, 4.4)."""
    width = min(rank + EXTRA_VECTORS, part.size)
    basis = _orthonormal(jax.random.normal(key, (part.size, width)))

    def iterate(_: Any, carry: Any) -> Any:
        basis = _orthonormal(carry[1])
        return basis, ggn.multiply(log_posterior, part, data, basis.T).T

    carry = (basis, basis)
    basis, image = jax.lax.fori_loop(0, SUBSPACE_ITERATIONS, iterate, carry)
    inner = basis.T @ image
    values, vectors = _eigh((inner + inner.T) / 2)
    return Directions(values[-rank:], (basis @ vectors)[:, -rank:])


def _shrink_directions(
    curvature: Directions, d: Any, noise: list[Array]
) -> list[Array]:
    flat = ggn.join(noise)
    factor = 1 / jnp.sqrt(1 + curvature.eigenvalues / d) - 1
    along = factor * (curvature.directions.T @ flat)
    moved = flat + curvature.directions @ along
    pieces, start = [], 0
    for leaf in noise:
        pieces.append(moved[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return pieces


def _measure_kronecker(
    key: Key, log_posterior: LogPosterior, part: Part, data: Data, rank: int
) -> list[Factors]:
    """A block for each leaf: one step of power iteration from the identity.

    With M_r a row of the root as a matrix, and t = sum_r |M_r|^2, the block is

        (sum_r M_r M_r^T) ⊗ (sum_r M_r^T M_r) / t.

    That is exact where the block is a Kronecker product, has the block's trace, and
    needs to know nothing of layers. A dense layer's M_r is an outer product of its
    input and a gradient, whose lengths K-FAC takes as independent.
    """
    del key, rank

    def products(rows: list[Array]) -> list[tuple[Array, Array]]:
        made = []
        for leaf in rows:
            matrices = leaf.reshape(len(leaf), *_sides(leaf.shape[1:]))
            left = jnp.einsum("rij,rkj->ik", matrices, matrices)
            made.append((left, jnp.einsum("rij,rik->jk", matrices, matrices)))
        return made

    factors = []
    for left, right in ggn.sum_of_rows(products, log_posterior, part, data):
        (low, rows), (high, columns) = _eigh(left), _eigh(right)
        trace = jnp.maximum(jnp.trace(left), jnp.finfo(left.dtype).tiny)
        factors.append(Factors(low[:, None] / trace * high, rows, columns))
    return factors


def _shrink_kronecker(
    curvature: list[Factors], d: Any, noise: list[Array]
) -> list[Array]:
    moved = []
    for one, z in zip(curvature, noise, strict=True):
        inside = one.rows.T @ z.reshape(one.eigenvalues.shape) @ one.columns
        inside = inside / jnp.sqrt(1 + one.eigenvalues / d)
        moved.append((one.rows @ inside @ one.columns.T).reshape(z.shape))
    return moved


# Of several members one after the other: devices of one CPU that each share a batch out
# among the same threads wait for each other for ever (jaxlib 0.10).
@jax.custom_batching.sequential_vmap
def _orthonormal(matrix: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """A basis of the span of the columns."""
    return jnp.linalg.qr(matrix)[0]


@jax.custom_batching.sequential_vmap
def _eigh(matrix: Float[Array, "n n"]) -> tuple[Array, Array]:
    """Eigenvalues, ascending, those negative by rounding at zero; and vectors."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(values, 0), vectors


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """A leaf as a matrix: its last axis beside the others; a vector is one column."""
    size = 1
    for length in shape[:-1]:
        size *= length
    if len(shape) < 2:
        return (shape[0] if shape else 1), 1
    return size, shape[-1]


STRUCTURES = {
    "full": Structure(_measure_full, lambda c: c.eigenvalues, _shrink_directions),
    "diagonal": Structure(_measure_diagonal, ggn.join, _shrink_diagonal),
    "low_rank": Structure(
        _measure_low_rank, lambda c: c.eigenvalues, _shrink_directions
    ),
    "kronecker": Structure(
        _measure_kronecker,
        lambda c: ggn.join([one.eigenvalues for one in c]),
        _shrink_kronecker,
    ),
}
