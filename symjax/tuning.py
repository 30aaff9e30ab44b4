"""First guesses for Hamiltonian samplers, from the prior and the chains' starts."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.util import generate_gaussian_noise
from jax.sharding import Mesh, PartitionSpec as P
from jaxtyping import Array, Float

from symjax import checks, mesh as meshes, trees
from symjax.types import Data, Key, LogDensity, Params


NUM_POWER_ITERATIONS = 30
"""Gradients that the largest curvature takes, twice; its error is then a few per cent
where the next curvature is not nearly as large."""

NUM_WARMUP = 100
"""Iterations in which the step size settles, from a first one of the right order."""

WHY_NUM_WARMUP = "the step size has its order already, and the mass is 1"


class Suggestion(NamedTuple):
    """What to begin with, and why.

    Attributes:
        step_size: First leapfrog step.
        trajectory_length: pi * prior std / 2.
        num_warmup: Iterations that adapt the step size.
        reasons: A sentence on each.
    """

    step_size: float
    trajectory_length: float
    num_warmup: int
    reasons: tuple[str, ...]


def suggest(
    log_density: LogDensity,
    params: Params,
    data: Any,
    *,
    prior_std: float,
    mesh: Mesh | None = None,
    chains_at_once: int | None = None,
) -> Suggestion:
    """A first step size, a trajectory length and a warm-up, for unit mass.

    The step size is the smaller of 1.4 prior std D^(-1/4), at which HMC would accept
    most proposals under the prior of D parameters, and 0.8 / sqrt(largest curvature at
    the starts): leapfrogs are stable up to 2 / sqrt(it).

    Args:
        log_density: `(params, data) -> nats`.
        params: Where the chains start, leaves `(chain, ...)`.
        data: What the log density takes.
        prior_std: Standard deviation of the prior; the smallest, where there are
            several.
        mesh: As in `run.sample`.
        chains_at_once: The same.

    Returns:
        `Suggestion`.

    References:
        Beskos, Pillai, Roberts, Sanz-Serna, Stuart (2013), Optimal tuning of the
        hybrid Monte Carlo algorithm, section 3 (D^(-1/4)).
        Izmailov et al. (2021), section 3.2 (length).
    """
    checks.positive(prior_std=prior_std)
    num_chains = jax.tree.leaves(params)[0].shape[0]
    num_params = trees.size(params) // num_chains
    under_prior = 1.4 * prior_std * num_params**-0.25
    curvatures = largest_curvatures(
        log_density, params, data, mesh=mesh, chains_at_once=chains_at_once
    )
    steepest = float(np.max(curvatures))
    limit = 0.8 / math.sqrt(steepest) if steepest > 0 else math.inf
    step_size = min(under_prior, limit)
    length = math.pi * prior_std / 2
    why = (
        f"0.8 / sqrt({steepest:,.4g}), the largest curvature at the starts; under the "
        f"prior it could be {under_prior:.3g}"
        if limit < under_prior
        else f"1.4 x prior std x D^(-1/4) for D = {num_params:,} parameters; the "
        f"curvature at the starts would allow {limit:.3g}"
    )
    num_leapfrogs = math.ceil(length / step_size)
    return Suggestion(
        step_size,
        length,
        NUM_WARMUP,
        (
            f"first step size {step_size:.3g}: {why}",
            f"trajectory length {length:.3g}: pi / 2 x prior std, a quarter turn under "
            f"the prior; {num_leapfrogs:,} leapfrogs of that step",
            f"{NUM_WARMUP} iterations of warm-up: {WHY_NUM_WARMUP}",
        ),
    )


def largest_curvatures(
    log_density: LogDensity,
    params: Params,
    data: Any,
    *,
    mesh: Mesh | None = None,
    chains_at_once: int | None = None,
) -> Float[np.ndarray, " chain"]:
    """The largest eigenvalue of minus the Hessian at each chain's start.

    By power iteration; products with the Hessian are differences of gradients, so that
    any log density will do. Where the largest in size is negative it is that one.

    Args:
        log_density: `(params, data) -> nats`.
        params: Leaves `(chain, ...)`.
        data: What the log density takes.
        mesh: As in `run.sample`.
        chains_at_once: The same.
    """
    num_chains = jax.tree.leaves(params)[0].shape[0]
    mesh = meshes.make_mesh(num_chains) if mesh is None else mesh
    is_data = isinstance(data, Data)
    data = meshes.place_data(mesh, data) if is_data else data
    keys = meshes.place_chains(mesh, jax.random.split(jax.random.key(0), num_chains))
    one = partial(_largest_curvature, jax.grad(log_density))
    largest = meshes.compile_for_chains(
        mesh,
        meshes.vmap_chains(one, (0, 0, None)),
        *(P("chain"), P("chain"), P("data") if is_data else P()),
        chains_at_once=chains_at_once,
    )
    params = meshes.place_chains(mesh, jax.tree.map(jnp.asarray, params))
    return meshes.read_all(largest(keys, params, data)).values


def _largest_curvature(
    gradient: Any, key: Key, params: Params, data: Any
) -> Float[Array, ""]:
    scale = optax.tree.norm(params) / math.sqrt(trees.size(params))
    # Far above rounding, and well inside what a curvature is for.
    width = 1e-2 * jnp.maximum(scale, 1e-3)

    def curvature_along(direction: Params) -> Params:
        ends = [
            gradient(optax.tree.add_scale(params, sign * width, direction), data)
            for sign in (-1, 1)
        ]
        return optax.tree.scale(1 / (2 * width), optax.tree.sub(*ends))

    def turn(_: Any, carry: Any) -> Any:
        direction, _ = carry
        product = curvature_along(direction)
        size = optax.tree.vdot(direction, product)
        norm = jnp.maximum(optax.tree.norm(product), jnp.finfo(width.dtype).tiny)
        return optax.tree.scale(1 / norm, product), size

    noise = generate_gaussian_noise(key, params)
    first = optax.tree.scale(1 / optax.tree.norm(noise), noise)
    start = (first, jnp.zeros_like(width))
    return jax.lax.fori_loop(0, NUM_POWER_ITERATIONS, turn, start)[1]
