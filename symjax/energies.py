"""Energies of Hamiltonian samplers: a metric on the pytree, and changes of energy."""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import optax
from blackjax.mcmc import metrics
from blackjax.mcmc.metrics import LowRankInverseMassMatrix
from blackjax.util import generate_gaussian_noise
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from symjax import sums, trees
from symjax.sums import Sum
from symjax.types import Key, LogDensity, Params


InverseMassMatrix: TypeAlias = Any
"""M^-1: one number; or its diagonal, a pytree like the parameters of numbers or arrays;
or blackjax's `LowRankInverseMassMatrix` of the ravelled parameters."""

BLOCK = 2**20
"""Numbers that are drawn together."""

_SMALL = 2**15
"""Numbers of a leaf that may be copied to join others."""


def tally(log_density: LogDensity, params: Params, data: Any) -> Any:
    """What `gain` needs of a point, at the cost of a forward pass.

    Args:
        log_density: Its `tally` is used if it has one. Of others it is the log density
            at full matrix precision.
        params: The point.
        data: What the log density takes.
    """
    own = getattr(log_density, "tally", None)
    if own is not None:
        return own(params, data)
    with jax.default_matmul_precision("highest"):
        return log_density(params, data)


def gain(
    log_density: LogDensity,
    params: Params,
    proposal: Params,
    data: Any,
    before: Any,
    after: Any,
) -> Float[Array, ""]:
    """The log density at `proposal` less that at `params`, in nats.

    Without subtracting two large sums where possible: in float32 those of 10^7
    parameters are each off by 0.7.

    Args:
        log_density: Its `gain` is used if it has a `tally`. Others are subtracted.
        params: Where a trajectory starts.
        proposal: Where it ends.
        data: What the log density takes.
        before: The tally at `params`.
        after: The tally at `proposal`.
    """
    if hasattr(log_density, "tally"):
        return cast("Any", log_density).gain(params, proposal, data, before, after)
    return after - before


def kinetic(inverse_mass_matrix: InverseMassMatrix, momentum: Params) -> Sum:
    """The kinetic energy, in nats, as a sum that loses next to nothing.

    Two of them tell the change on a trajectory when its first momentum is gone. A few
    numbers at a time are added as usual, which saves memory: of 10^7 parameters that
    costs less than a thousandth.
    """
    energy = jax.tree.leaves(
        jax.tree.map(
            lambda p, v: jnp.ravel(p * v) / 2,
            momentum,
            velocity(inverse_mass_matrix, momentum),
        )
    )
    # Small ones together, as many sums take long to compile.
    small = [jnp.zeros(0), *(leaf for leaf in energy if len(leaf) <= _SMALL)]
    large = [leaf for leaf in energy if len(leaf) > _SMALL]
    few = [
        jnp.pad(flat, (0, -len(flat) % 32)).reshape(-1, 32).sum(axis=1)
        for flat in (jnp.concatenate(small), *large)
    ]
    return sums.total(jnp.concatenate(few))


def kinetic_change(
    inverse_mass_matrix: InverseMassMatrix, start: Params, end: Params
) -> Float[Array, ""]:
    """The kinetic energy of momentum `end` less that of `start`, in nats.

    Not subtracted either: each would be off as the log density is.
    """
    mean_velocity = velocity(
        inverse_mass_matrix, jax.tree.map(lambda p, q: (p + q) / 2, start, end)
    )
    return jnp.asarray(optax.tree.vdot(optax.tree.sub(end, start), mean_velocity))


def relative_density(
    log_density: LogDensity, start: Params, data: Any
) -> Callable[[Params], Float[Array, ""]]:
    """The log density less that at `start`, as a function of the parameters alone.

    Args:
        log_density: Its `relative_to` is used if it has one. Others are subtracted, at
            full matrix precision.
        start: Where it is zero.
        data: What the log density takes.
    """
    relative_to = getattr(log_density, "relative_to", None)
    if relative_to is not None:
        return relative_to(start, data)

    def density(params: Params) -> Float[Array, ""]:
        with jax.default_matmul_precision("highest"):
            return log_density(params, data)

    base = density(start)
    return lambda params: density(params) - base


def velocity(inverse_mass_matrix: InverseMassMatrix, momentum: Params) -> Params:
    """M^-1 p."""
    if isinstance(inverse_mass_matrix, LowRankInverseMassMatrix):
        sigma, vectors, values = inverse_mass_matrix
        flat, unravel = ravel_pytree(momentum)
        scaled = sigma * flat
        along = (values - 1) * (vectors.T @ scaled)
        return unravel(sigma * (scaled + vectors @ along))
    return jax.tree.map(
        jnp.multiply, _broadcast(inverse_mass_matrix, momentum), momentum
    )


def metric(inverse_mass_matrix: InverseMassMatrix) -> metrics.Metric:
    """A Gaussian metric on the pytree itself; blackjax's own diagonal one ravels it.

    Args:
        inverse_mass_matrix: M^-1.

    Returns:
        blackjax's `Metric`, for kernels that check no turning and scale nothing.
    """
    if isinstance(inverse_mass_matrix, LowRankInverseMassMatrix):
        return metrics.gaussian_euclidean_low_rank(*inverse_mass_matrix)

    def sample_momentum(key: Key, position: Params) -> Params:
        noise = _normal_like(key, position)
        return jax.tree.map(
            lambda n, m: n / jnp.sqrt(m), noise, _broadcast(inverse_mass_matrix, noise)
        )

    def kinetic_energy(momentum: Params, position: Params = None) -> Float[Array, ""]:
        del position
        twice = optax.tree.vdot(momentum, velocity(inverse_mass_matrix, momentum))
        return jnp.asarray(twice / 2)

    def unused(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("This metric neither checks turning nor scales.")

    return metrics.Metric(sample_momentum, kinetic_energy, unused, unused)


def _normal_like(key: Key, position: Params) -> Params:
    """Independent standard normals.

    Few draws for all leaves, as a draw a leaf takes XLA ten times as long to compile;
    but many parameters in blocks, as it holds six times as many numbers meanwhile.
    """
    if trees.size(position) <= BLOCK:
        return generate_gaussian_noise(key, position)
    flat, unravel = ravel_pytree(position)
    keys = jax.random.split(key, -(-flat.size // BLOCK))
    blocks = jax.lax.map(lambda k: jax.random.normal(k, (BLOCK,), flat.dtype), keys)
    return unravel(blocks.ravel()[: flat.size])


def turning(
    inverse_mass_matrix: InverseMassMatrix, like: Params
) -> Callable[[Params, Params, Params], Bool[Array, ""]]:
    """Whether a trajectory turns back, from its two end momenta and their sum.

    Args:
        inverse_mass_matrix: M^-1.
        like: Parameters, for their shapes.

    Returns:
        blackjax's `CheckTurning`, of momenta like the parameters or ravelled.

    References:
        Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo,
        appendix A.4.2; halves of the ends are left out of the sum, as in Stan.
    """
    if not isinstance(inverse_mass_matrix, LowRankInverseMassMatrix):
        full = jax.tree.map(
            lambda m, leaf: jnp.broadcast_to(jnp.asarray(m, leaf.dtype), leaf.shape),
            _broadcast(inverse_mass_matrix, like),
            like,
        )
        inverse_mass_matrix = ravel_pytree(full)[0]

    def is_turning(left: Params, right: Params, total: Params) -> Bool[Array, ""]:
        first, last, every = (ravel_pytree(tree)[0] for tree in (left, right, total))
        between = every - (first + last) / 2
        return (velocity(inverse_mass_matrix, first) @ between <= 0) | (
            velocity(inverse_mass_matrix, last) @ between <= 0
        )

    return is_turning


def _broadcast(inverse_mass_matrix: InverseMassMatrix, params: Params) -> Params:
    """One number, or one number or array a leaf, as a pytree like `params`."""
    if jax.tree_util.all_leaves([inverse_mass_matrix]) and (
        jnp.ndim(inverse_mass_matrix) == 0
    ):
        return jax.tree.map(lambda _: inverse_mass_matrix, params)
    return inverse_mass_matrix
