"""The smallest parameters among all that scalings make equivalent.

Weight decay pulls towards them, and how far a trained network is from them can be
measured. `balancing` says how they are found.

A scaling is a symmetry of the function and of the likelihood, not of a Gaussian prior
and so not of the posterior (permutations and signs are of both). Rescaled draws are
summaries of functions; they are no draws from the posterior.

References:
    Stock, Graham, Gribonval, Jégou (2019), Equi-normalization of neural networks, for
    networks of ReLUs.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, trees
from symjax.symmetry.actions import Element, act, identity
from symjax.symmetry.canonical.balancing import balance, everything
from symjax.symmetry.spec import Spec
from symjax.types import Params


class MinimumNorm(NamedTuple):
    """The equivalent parameters of the smallest squared norm, and what it took.

    Attributes:
        params: The scaled parameters.
        element: `act(spec, element, params)` made them; its permutations and signs are
            the identity.
        mass_before: Sum of squares of the included parameters as given.
        mass_after: And at the minimum.
        dead: For each scaling, the units whose included weights are all zero on one
            side (of positive exponents or of negative ones). They have no minimum and
            keep their scale.
        unbounded: For each scaling, whether the mass has no minimum along it even if no
            weight is zero, as where a normalisation makes the scale of the included
            weights irrelevant, or where `include` leaves out one side. They keep their
            scale.
        num_sweeps: Over all units.
        converged: Whether the last sweep moved no log-scale by more than `tolerance`.
    """

    params: Params
    element: Element
    mass_before: Float[Array, ""]
    mass_after: Float[Array, ""]
    dead: tuple[Bool[Array, "..."], ...]
    unbounded: tuple[Bool[Array, ""], ...]
    num_sweeps: Int[Array, ""]
    converged: Bool[Array, ""]


def minimum_norm(
    spec: Spec,
    params: Params,
    *,
    include: Callable[[str], bool] = everything,
    tolerance: float = 1e-6,
    max_sweeps: int = 1000,
) -> MinimumNorm:
    """The scaling of a network that minimises the squared norm of its parameters.

    A sweep reads each parameter some four times. Runs under `jit` and `vmap`. Scaling
    leaves the function unchanged, but not the density of a Gaussian prior: rescaled
    draws are summaries, not draws from the posterior.

    Args:
        spec: The network's symmetries.
        params: One setting; `jax.vmap` over draws.
        include: Which parameters count, by their path as `trees.paths` names it:
            `lambda path: "bias" not in path` leaves out biases, and the running
            statistics of batch normalisation should be left out. All are scaled.
        tolerance: In nats of log-scale: the sweeps end with one that moves no unit by
            more. Float32 reaches 1e-6, float64 1e-13.
        max_sweeps: Where to give up; `converged` is then False.

    Returns:
        The scaled parameters and what is known of the minimum.

    Raises:
        ValueError: If no path of `spec` is included.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.full((3, 8), 4.0), "out": jnp.full((8, 3), 1.0)}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> smallest = symmetry.minimum_norm(spec, params)
        >>> float(smallest.mass_before), float(smallest.mass_after)
        (408.0, 192.0)
    """
    spec.check(params)
    checks.positive(tolerance=tolerance)
    checks.at_least(1, max_sweeps=max_sweeps)
    if not any(include(path) for path, _ in spec.shapes):
        raise ValueError(
            "`include` must accept at least one path, and accepts none of "
            f"{', '.join(path for path, _ in spec.shapes)}."
        )
    return _minimum_norm(spec, params, include, tolerance, max_sweeps)


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _minimum_norm(
    spec: Spec,
    params: Params,
    include: Callable[[str], bool],
    tolerance: float,
    max_sweeps: int,
) -> MinimumNorm:
    found = balance(
        spec, params, include=include, tolerance=tolerance, max_sweeps=max_sweeps
    )
    scales = tuple(jnp.exp(log_scale) for log_scale in found.log_scales)
    element = identity(spec)._replace(scales=scales)
    scaled = act(spec, element, params)
    return MinimumNorm(
        scaled, element, _mass(params, include), _mass(scaled, include), *found[1:]
    )


def _mass(params: Params, include: Callable[[str], bool]) -> Float[Array, ""]:
    leaves = zip(trees.paths(params), jax.tree.leaves(params), strict=True)
    masses = [
        jnp.sum(jnp.square(jnp.abs(leaf)))
        for path, leaf in leaves
        if include(path) and jnp.issubdtype(leaf.dtype, jnp.number)
    ]
    return jnp.sum(jnp.stack(masses))
