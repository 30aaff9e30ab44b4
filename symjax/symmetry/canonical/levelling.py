"""Scales that depend on no earlier ones, whatever has a minimum and whatever is zero.

They bring the logs of all weights that are not 0 as near to 0 as can be, in the sense
of least squares. That is a linear problem, and unlike the smallest norm it always has a
solution; log-scales that it leaves open change no weight.
"""

import jax
import jax.numpy as jnp
from jax.scipy.sparse import linalg
from jaxtyping import Array, Float

from symjax import trees
from symjax.symmetry.canonical.balancing import axes_by_path
from symjax.symmetry.placement import spread
from symjax.symmetry.spec import Spec
from symjax.types import Params


def level(spec: Spec, params: Params) -> tuple[Float[Array, "..."], ...]:
    """Log-scales that make the sum of the squares of all logs of weights the least.

    Args:
        spec: The network's symmetries.
        params: One setting.

    Returns:
        For each of `spec.scalings`, in nats, an array of `group.shape`. Equivalent
        parameters become the same with it, up to signs, order and rounding.
    """
    if not spec.scalings:
        return ()
    leaves = dict(zip(trees.paths(params), jax.tree.leaves(params), strict=True))
    axes = axes_by_path(spec)
    logs = {path: jnp.log(jnp.abs(jnp.atleast_1d(leaves[path]))) for path in axes}
    dtype = jnp.result_type(jnp.float32, *logs.values())
    start = tuple(jnp.zeros(group.shape, dtype) for group in spec.scalings)

    def distance(log_scales: tuple[Float[Array, "..."], ...]) -> Float[Array, ""]:
        total = jnp.zeros((), dtype)
        for path, log in logs.items():
            scaled = jnp.where(jnp.isneginf(log), 0, log.astype(dtype))
            for g, axis in axes[path]:
                change = spread(axis, float(axis.exponent) * log_scales[g], log.shape)
                scaled = scaled + jnp.where(jnp.isneginf(log), 0, change)
            total = total + jnp.sum(jnp.square(scaled))
        return total

    slope, curvature = jax.linearize(jax.grad(distance), start)
    log_scales, _ = linalg.cg(
        curvature,
        jax.tree.map(jnp.negative, slope),
        tol=float(jnp.finfo(dtype).eps),
        maxiter=200,
    )
    return log_scales
