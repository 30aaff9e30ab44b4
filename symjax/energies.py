"""Energies of Hamiltonian samplers: a metric on the pytree, and changes of energy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc import metrics
from blackjax.mcmc.proposal import static_binomial_sampling
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Bool, Float

from symjax.types import Key, LogDensity, Params


_DIVERGENCE = 1000.0
"""Rise of the energy, in nats, that no step size worth having leads to."""


def change(
    log_density: LogDensity,
    inverse_mass_matrix: float | Params,
    data: Any,
    start: Any,
    end: Any,
) -> Float[Array, ""]:
    """H(end) - H(start) in nats, without subtracting two large sums where possible.

    In float32 H(start) and H(end) of 10^7 parameters are each off by 0.7.

    Args:
        log_density: Its `difference` is used if it has one. Others are subtracted, at
            full matrix precision.
        inverse_mass_matrix: Diagonal of M^-1, as in `diagonal_metric`.
        data: What the log density takes.
        start: blackjax's `IntegratorState`: position and momentum.
        end: The same, at the end of a trajectory.
    """
    kinetic = jax.tree.map(
        lambda p, q, m: jnp.sum(m * (q - p) * (q + p)) / 2,
        start.momentum,
        end.momentum,
        _broadcast(inverse_mass_matrix, start.momentum),
    )
    return _total(kinetic) - gain(log_density, data, start.position, end.position)


def gain(
    log_density: LogDensity, data: Any, params: Params, proposal: Params
) -> Float[Array, ""]:
    """The log density at `proposal` less that at `params`, in nats, as in `change`.

    Args:
        log_density: Its `difference` is used if it has one.
        data: What the log density takes.
        params: Where a trajectory starts.
        proposal: Where it ends.
    """
    difference = getattr(log_density, "difference", None)
    if difference is not None:
        return difference(params, proposal, data)
    with jax.default_matmul_precision("highest"):
        return log_density(proposal, data) - log_density(params, data)


class Outcome(NamedTuple):
    """What an accept step decided, as scalars.

    Attributes:
        acceptance_rate: Probability of accepting the proposal.
        is_accepted: Whether it was accepted.
        is_divergent: The energy rose by more than 1000 nats, or was not finite.
        energy_change: Energy of the proposal less that of the start, in nats.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]
    energy_change: Float[Array, ""]


def accept(
    key: Key, energy_change: Float[Array, ""], start: Any, end: Any
) -> tuple[Any, Outcome]:
    """The end of a trajectory, or its start, by Metropolis' rule.

    Args:
        key: Decides.
        energy_change: From start to end, in nats.
        start: blackjax's `IntegratorState`.
        end: The same, at the end of a trajectory; refused if it is not finite.
    """
    is_finite = jnp.isfinite(energy_change) & jnp.isfinite(end.logdensity)
    log_acceptance = jnp.where(is_finite, jnp.minimum(-energy_change, 0.0), -jnp.inf)
    choose: Any = static_binomial_sampling
    new, (is_accepted, _, _) = choose(key, log_acceptance, start, end)
    is_divergent = ~is_finite | (energy_change > _DIVERGENCE)
    acceptance = jnp.exp(log_acceptance)
    return new, Outcome(acceptance, is_accepted, is_divergent, energy_change)


def diagonal_metric(inverse_mass_matrix: float | Params) -> metrics.Metric:
    """A diagonal metric on the pytree itself; blackjax's own ravels it.

    Args:
        inverse_mass_matrix: Diagonal of M^-1: one number, or one number or array for
            each leaf.

    Returns:
        blackjax's `Metric`, for kernels that check no turning and scale nothing.
    """

    def sample_momentum(key: Key, position: Params) -> Params:
        # One draw for all leaves: a draw a leaf takes XLA ten times as long to compile.
        noise = generate_gaussian_noise(key, position)
        return jax.tree.map(
            lambda n, m: n / jnp.sqrt(m), noise, _broadcast(inverse_mass_matrix, noise)
        )

    def kinetic_energy(momentum: Params, position: Params = None) -> Float[Array, ""]:
        del position
        return _total(
            jax.tree.map(
                lambda p, m: jnp.sum(m * p * p) / 2,
                momentum,
                _broadcast(inverse_mass_matrix, momentum),
            )
        )

    def unused(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("This metric neither checks turning nor scales.")

    return metrics.Metric(sample_momentum, kinetic_energy, unused, unused)


def _broadcast(inverse_mass_matrix: float | Params, params: Params) -> Params:
    """One number, or one number or array a leaf, as a pytree like `params`."""
    if jax.tree_util.all_leaves([inverse_mass_matrix]) and (
        jnp.ndim(inverse_mass_matrix) == 0
    ):
        return jax.tree.map(lambda _: inverse_mass_matrix, params)
    return inverse_mass_matrix


def _total(tree: Params) -> Float[Array, ""]:
    return jnp.sum(jnp.stack(jax.tree.leaves(tree)))
