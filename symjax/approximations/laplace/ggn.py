"""The generalised Gauss-Newton matrix of a log likelihood, as rows or as products.

G = sum_i J_i^T H_i J_i with J_i the Jacobian of an example's outputs and H_i minus the
Hessian of its log likelihood in the outputs. H_i is positive semi-definite for classes
and for Gaussian noise of a known scale. Where noise is learned it need not be: an
example far from its mean has more curvature towards a larger noise than against it.
Negative eigenvalues of H_i are then set to zero, so that G is the nearest matrix of
that form that a Gaussian can have as a precision.

Everything is in units of the prior: the column of a parameter is multiplied by its
prior standard deviation, so that the prior's own precision is the identity.
"""

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symjax import trees
from symjax.mesh import num_chains
from symjax.posterior import LogPosterior
from symjax.types import Data, Params


ROW_BYTES = 2**28
"""Memory that the rows of a micro-batch may take, over all members."""


class Part(NamedTuple):
    """The parameters that are uncertain; the others stay at the mode.

    Attributes:
        leaves: Their arrays.
        merge: From such arrays to all params.
        names: Paths of the arrays.
        scales: Standard deviation of the prior of each array.
        locs: Mean of the prior of each array.
    """

    leaves: list[Array]
    merge: Callable[[list[Any]], Params]
    names: list[str]
    scales: list[float]
    locs: list[float]

    @property
    def size(self) -> int:
        """How many numbers."""
        return sum(leaf.size for leaf in self.leaves)


def select(log_posterior: LogPosterior, params: Params, pattern: str) -> Part:
    """The leaves whose path matches the pattern, and their priors.

    Raises:
        ValueError: if there are none.
    """
    leaves, structure = jax.tree.flatten(params)
    names = trees.paths(params)
    chosen = [i for i, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not chosen:
        raise ValueError(
            f"`leaves` must match parameters, but {pattern!r} matches none of "
            f"{', '.join(names)}."
        )

    def merge(selected: list[Any]) -> Params:
        every = list(leaves)
        for index, leaf in zip(chosen, selected, strict=True):
            every[index] = leaf
        return jax.tree.unflatten(structure, every)

    stds = jax.tree.leaves(log_posterior.prior.std(params))
    normals = log_posterior.prior._distributions(params)
    return Part(
        [leaves[i] for i in chosen],
        merge,
        [names[i] for i in chosen],
        [stds[i] for i in chosen],
        [float(np.asarray(getattr(normals[i], "loc", 0.0))) for i in chosen],
    )


def sum_of_rows(
    function: Callable[[list[Array]], Any],
    log_posterior: LogPosterior,
    part: Part,
    data: Data,
) -> Any:
    """Add up `function(rows)` over micro-batches: one pass, one sum over the devices.

    Rows are R with G = R^T R: of each example as many as there are outputs.

    Args:
        function: Takes the rows of a micro-batch, an array `(row, *shape)` for each
            leaf of the part; its value is a pytree of sums over rows.
        log_posterior: Of which the apply and the likelihood are taken.
        part: The parameters that the matrix is of.
        data: This device's examples.
    """

    def one(selected: list[Array], x: Any, y: Any, is_real: Any) -> list[Array]:
        def forward(selected: list[Array]) -> Array:
            return log_posterior.apply(part.merge(selected), x[None])[0]

        outputs, pull = jax.vjp(forward, selected)
        factor = _factor(log_posterior.likelihood, outputs, y, is_real)
        return jax.vmap(lambda column: pull(column)[0])(factor.T)

    def batch(selected: list[Array], rows: Data) -> Any:
        made = jax.vmap(one, (None, 0, 0, 0))(selected, rows.x, rows.y, rows.mask)
        scaled = [
            scale * leaf.reshape(-1, *leaf.shape[2:])
            for scale, leaf in zip(part.scales, made, strict=True)
        ]
        return function(scaled)

    shape = jax.eval_shape(
        log_posterior.apply, part.merge(part.leaves), jnp.asarray(data.x[:1])
    )
    row_bytes = 4 * part.size * shape.shape[-1] * num_chains()
    size = max(1, ROW_BYTES // row_bytes)
    size = min(size, log_posterior.micro_batch or len(data.mask))
    small = replace(log_posterior, micro_batch=size)
    return small.sum_over_examples(batch, part.leaves, data)


def multiply(
    log_posterior: LogPosterior,
    part: Part,
    data: Data,
    vectors: Float[Array, "vector weight"],
) -> Float[Array, "vector weight"]:
    """G times every vector: one pass, of the cost of a gradient for each."""

    def batch(selected: list[Array], rows: Data) -> Float[Array, "vector weight"]:
        def forward(selected: list[Array]) -> Array:
            return log_posterior.apply(part.merge(selected), rows.x)

        outputs, push = jax.linearize(forward, selected)
        pull = jax.linear_transpose(push, selected)
        factors = jax.vmap(_factor, (None, 0, 0, 0))(
            log_posterior.likelihood, outputs, rows.y, rows.mask
        )

        def one(vector: Float[Array, " weight"]) -> Float[Array, " weight"]:
            change = push(scaled(part, split(part, vector)))
            along = jnp.einsum("nck,nc->nk", factors, change)
            back = pull(jnp.einsum("nck,nk->nc", factors, along))[0]
            return join(scaled(part, back))

        return jax.lax.map(one, vectors)

    return log_posterior.sum_over_examples(batch, part.leaves, data)


def scaled(part: Part, leaves: list[Any]) -> list[Any]:
    """Each array times the prior's standard deviation."""
    return [scale * leaf for scale, leaf in zip(part.scales, leaves, strict=True)]


def join(leaves: list[Any]) -> Float[Array, " weight"]:
    """All arrays in one vector."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])


def split(part: Part, vector: Float[Array, " weight"]) -> list[Array]:
    """The arrays that are one after another in a vector."""
    stops = np.cumsum([leaf.size for leaf in part.leaves])[:-1]
    pieces = jnp.split(vector, stops)
    return [
        piece.reshape(leaf.shape)
        for piece, leaf in zip(pieces, part.leaves, strict=True)
    ]


def _factor(
    likelihood: Callable[[Any, Any], Any], outputs: Any, y: Any, is_real: Any
) -> Float[Array, "output output"]:
    """S, with S S^T minus the Hessian of an example's nats, clipped at zero."""

    def nats(outputs: Any) -> Any:
        return likelihood(outputs[None], jnp.asarray(y)[None])[0]

    values, vectors = jnp.linalg.eigh(-jax.hessian(nats)(outputs))
    factor = vectors * jnp.sqrt(jnp.maximum(values, 0))
    return jnp.where(is_real, factor, 0)
