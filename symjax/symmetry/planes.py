"""A loss on the plane through three networks.

References:
    Garipov, Izmailov, Podoprikhin, Vetrov, Wilson (2018), Loss surfaces, mode
    connectivity, and fast ensembling of DNNs, section 4 and figure 1.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from symjax import checks
from symjax.symmetry.barriers import Measure, mean
from symjax.types import Data, Params


class Plane(NamedTuple):
    """A measure on a grid of the plane through three networks.

    Attributes:
        x: Along the line from the first network to the second, in units of weights:
            the first is at 0, the second at their distance.
        y: Across it, towards the third network.
        values: The mean over the examples at each point, for each that is measured.
        points: Where the three networks are, `(x, y)` each.
    """

    x: Float[np.ndarray, " column"]
    y: Float[np.ndarray, " row"]
    values: Any
    points: Float[np.ndarray, "3 2"]


def plane(
    measure: Measure,
    networks: tuple[Params, Params, Params],
    data: Data,
    *,
    num: int = 25,
    margin: float = 0.2,
    batch_size: int = 1024,
) -> Plane:
    """Measure on a grid over the plane through three networks.

    Args:
        measure: One number an example; see `barriers.Measure`.
        networks: Three networks that lie on no line; leaves of whole numbers stay those
            of the first.
        data: Examples to measure on.
        num: Points along each side of the grid.
        margin: How far the grid reaches beyond the networks, in parts of their extent.
        batch_size: Examples at a time.

    Returns:
        The grid. Distances on it are those between weights.

    Raises:
        ValueError: If the networks lie on a line.

    Example:
        >>> data = Data(np.ones((2, 1)), np.zeros(2), np.ones(2, bool))
        >>> square = lambda params, data: jnp.sum(params**2) * data.x[:, 0]
        >>> corners = tuple(map(jnp.array, ([0.0, 0.0], [2.0, 0.0], [1.0, 1.0])))
        >>> found = plane(square, corners, data, num=3, margin=0.0)
        >>> found.points.tolist()
        [[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]
        >>> found.values[0].tolist()
        [0.0, 1.0, 4.0]
    """
    checks.at_least(2, num=num)
    checks.at_least(1, batch_size=batch_size)
    first, second, third = networks
    along, across = (_step(first, other) for other in (second, third))
    length = _product(along, along) ** 0.5
    along = optax.tree.scale(1 / max(length, 1e-30), along)
    foot = _product(along, across)
    across = optax.tree.sub(across, optax.tree.scale(foot, along))
    height = _product(across, across) ** 0.5
    if not (length > 0 and height > 1e-6 * length):
        raise ValueError(
            "`networks` must be three that lie on no line, but they do: give networks "
            "that differ, such as draws of three chains."
        )
    across = optax.tree.scale(1 / height, across)
    points = np.array([(0, 0), (length, 0), (foot, height)])
    x, y = (
        np.linspace(low - margin * (high - low), high + margin * (high - low), num)
        for low, high in zip(points.min(axis=0), points.max(axis=0), strict=True)
    )
    size = min(batch_size, len(data.mask))
    grid = jnp.stack(jnp.meshgrid(jnp.asarray(x), jnp.asarray(y)), axis=-1)
    values = _over(measure, size, first, along, across, data, grid.reshape(-1, 2))
    values = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(num, num), values)
    return Plane(x, y, values, points)


def _step(first: Params, other: Params) -> Params:
    """From one network to another; 0 for leaves of whole numbers, which stay."""

    def between(a: Any, b: Any) -> jax.Array:
        dtype = jnp.result_type(a)
        if not jnp.issubdtype(dtype, jnp.inexact):
            return jnp.zeros(jnp.shape(a))
        return jnp.asarray(b, jnp.promote_types(dtype, jnp.float32)) - a

    return jax.tree.map(between, first, other)


def _product(one: Params, other: Params) -> float:
    return float(np.asarray(optax.tree.vdot(one, other)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _over(
    measure: Measure,
    size: int,
    origin: Params,
    along: Params,
    across: Params,
    data: Data,
    places: Float[jax.Array, "place 2"],
) -> Any:
    def at(place: Float[jax.Array, "2"]) -> Any:
        def moved(leaf: Any, one: jax.Array, other: jax.Array) -> Any:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                return leaf
            return leaf + (place[0] * one + place[1] * other).astype(leaf.dtype)

        network = jax.tree.map(moved, origin, along, across)
        return mean(measure, network, data, batch_size=size)

    return jax.lax.map(at, places)
