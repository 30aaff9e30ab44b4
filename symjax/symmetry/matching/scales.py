"""Scales at which networks are compared: those of smallest norm.

Of networks that differ by scales alone all become the same, so that distances between
them are those of functions that differ. Where there is no smallest norm, as in front of
a normalisation, scales are levelled instead.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symjax.symmetry.actions import rescale
from symjax.symmetry.canonical.balancing import balance, everything, unbounded_groups
from symjax.symmetry.canonical.levelling import level
from symjax.symmetry.matching import stacks
from symjax.symmetry.spec import Spec
from symjax.types import Params


def smallest_scales(
    spec: Spec, stack: Params, at_once: int
) -> tuple[Float[np.ndarray, "network ..."], ...]:
    """Scales of the smallest norm, as near as it matters for a comparison."""
    if not spec.scalings:
        return ()
    found = stacks.each(
        stacks.every_part(stack, at_once),
        lambda part: jax.device_get(_of_part(spec, stacks.pick(stack, part))),
    )
    return stacks.join(found)


@functools.partial(jax.jit, static_argnums=0)
def _of_part(spec: Spec, stack: Params) -> tuple[Float[Array, "network ..."], ...]:
    has_minimum = not unbounded_groups(spec, everything)

    def one(params: Params) -> tuple[Float[Array, "..."], ...]:
        levels = tuple(jnp.ones(group.shape) for group in spec.scalings)
        if not has_minimum:
            levels = tuple(map(jnp.exp, level(spec, params)))
            params = rescale(spec, levels, params)
        found = balance(
            spec, params, include=everything, tolerance=1e-3, max_sweeps=100
        )
        balances = tuple(map(jnp.exp, found.log_scales))
        return jax.tree.map(jnp.multiply, levels, balances)

    return jax.vmap(one)(stack)
