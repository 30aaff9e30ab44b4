"""What `jax.tree` and `optax.tree` lack for pytrees of parameters."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from symjax.types import Params


def paths(tree: Params) -> list[str]:
    """The path of every leaf, in flattening order, such as `params/Dense_0/kernel`."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def shapes(tree: Params) -> list[tuple[int, ...]]:
    """The shape of every leaf (array, number or `ShapeDtypeStruct`), in order."""
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def size(tree: Params) -> int:
    """The number of scalars in all leaves (arrays or `ShapeDtypeStruct`s)."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def num_bytes(tree: Params) -> int:
    """The bytes that all leaves (arrays or `ShapeDtypeStruct`s) take."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)
    )


def stack(trees: Sequence[Params]) -> Params:
    """Stack pytrees of one structure along a new first axis of every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def distance(one: Params, other: Params) -> Float[Array, ""]:
    """Euclidean, over all leaves, in float32 or wider."""
    squares = []
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        wide = jnp.promote_types(jnp.result_type(a, b), jnp.float32)
        squares.append(
            jnp.sum(jnp.abs(jnp.asarray(a, wide) - jnp.asarray(b, wide)) ** 2)
        )
    return jnp.sqrt(jnp.sum(jnp.stack(squares)))


def is_finite(tree: Params) -> Bool[Array, ""]:
    """Whether every number in all leaves is finite."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(leaves))
