"""The no-U-turn sampler: trajectories that double until they turn back.

The iterative doubling with multinomial draws is blackjax's. Its kernel is not used: it
draws the momentum itself, where energies relative to the start have to know it.

References:
    Hoffman, Gelman (2014), The No-U-Turn sampler, section 3.
    Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo, appendix A.
    Phan, Pradhan, Jankowiak (2019), Composable effects, appendix A (iterative form).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.mcmc.integrators import velocity_verlet
from blackjax.mcmc.nuts import iterative_nuts_proposal
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, energies, hamiltonian, warmup
from symjax.energies import InverseMassMatrix
from symjax.types import Algorithm, Key, LogDensity, Params
from symjax.warmup import Adaptation


MAX_DOUBLINGS = 30
"""Leapfrogs are counted in 32 bits."""


class Info(NamedTuple):
    """What one transition did, as scalars.

    Attributes:
        acceptance_rate: Mean over the trajectory of what HMC would accept.
        is_accepted: Whether the chain moved.
        is_divergent: The energy rose by more than the threshold, or was not finite;
            the trajectory ended there.
        energy_change: Energy of the state drawn less that of the start, in nats.
        log_density: Log density of the state after the transition, in nats.
        step_size: Leapfrog step size used.
        num_steps: Leapfrog steps (gradients) taken.
        num_doublings: How often the trajectory doubled; the most allowed, where it was
            stopped before it turned.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]
    energy_change: Float[Array, ""]
    log_density: Float[Array, ""]
    step_size: Float[Array, ""]
    num_steps: Int[Array, ""]
    num_doublings: Int[Array, ""]


class State(NamedTuple):
    """A chain between two transitions; the gradient is kept for the next one."""

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    iteration: Int[Array, ""]
    adaptation: Adaptation


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    inverse_mass_matrix: InverseMassMatrix | str = 1.0,
    max_num_doublings: int = 10,
    num_warmup: int = 0,
    target_acceptance: float = 0.8,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """NUTS, full batch.

    A transition takes up to 2^max_num_doublings - 1 leapfrogs, one gradient each, and
    one forward pass at the start, where the density has a `relative_to`: every state
    of a trajectory counts by its energy, and energies are relative to the start. Force
    and energy are of full float32, which on a GPU is slower than HMC's force.

    Chains of one device wait for the longest trajectory among them.

    Args:
        log_density: `(params, data) -> nats`. Its `relative_to` is used if it has one;
            other densities are subtracted.
        step_size: Leapfrog step; the first one if there is a warm-up.
        inverse_mass_matrix: As in `samplers.hmc`.
        max_num_doublings: Limit of a trajectory.
        num_warmup: First iterations, which adapt.
        target_acceptance: What the warm-up aims at.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm`.

    Raises:
        ValueError: if `max_num_doublings` is above `MAX_DOUBLINGS`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.5)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """  # noqa: DOC502
    checks.positive(divergence_threshold=divergence_threshold)
    _check_doublings(max_num_doublings)
    adapting = warmup.build(
        step_size,
        num_warmup=num_warmup,
        target_acceptance=target_acceptance,
        inverse_mass_matrix=inverse_mass_matrix,
    )

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        value, gradient = jax.value_and_grad(log_density)(params, data)
        return State(params, value, gradient, jnp.array(0), adapting.init(params))

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        drawn, outcome = _transition(
            key,
            state,
            energies.relative_density(log_density, state.position, data),
            adapting.inverse_mass_matrix(state.adaptation),
            max_num_doublings,
            divergence_threshold,
        )
        adaptation = adapting.update(
            state.adaptation,
            drawn.position,
            drawn.logdensity_grad,
            state.iteration,
            outcome.acceptance_rate,
        )
        info = _info(state, drawn, outcome)
        at = drawn.position, info.log_density, drawn.logdensity_grad
        return State(*at, state.iteration + 1, adaptation), info

    return Algorithm(init, step, num_warmup)


def _check_doublings(max_num_doublings: int) -> None:
    """Check the limit of a trajectory.

    Raises:
        ValueError: if it is above `MAX_DOUBLINGS`, or below 1.
    """
    checks.at_least(1, max_num_doublings=max_num_doublings)
    if max_num_doublings > MAX_DOUBLINGS:
        raise ValueError(
            f"`max_num_doublings` must be at most {MAX_DOUBLINGS}, a billion "
            f"leapfrogs, got {max_num_doublings}."
        )


def _info(state: State, drawn: Any, outcome: Any) -> Info:
    """What a transition from `state` did, in blackjax's words `outcome`."""
    moved = optax.tree.sub(drawn.position, state.position)
    return Info(
        outcome.acceptance_rate,
        optax.tree.norm(moved) > 0,
        outcome.is_divergent,
        outcome.energy,
        state.log_density + drawn.logdensity,
        state.adaptation.step_size,
        outcome.num_integration_steps,
        outcome.num_trajectory_expansions,
    )


def _transition(
    key: Key,
    state: State,
    density: Callable[[Params], Float[Array, ""]],
    inverse_mass_matrix: InverseMassMatrix,
    max_num_doublings: int,
    divergence_threshold: float,
) -> tuple[Any, Any]:
    """A draw from a trajectory, its log density relative to the start.

    Returns:
        blackjax's `IntegratorState`, and what its proposal found.
    """
    momentum_key, key = jax.random.split(key)
    metric = energies.metric(inverse_mass_matrix)
    momentum = metric.sample_momentum(momentum_key, state.position)

    def kinetic_change(end: Params, position: Params = None) -> Float[Array, ""]:
        del position
        return energies.kinetic_change(inverse_mass_matrix, momentum, end)

    make: Callable[..., Any] = iterative_nuts_proposal
    propose = make(
        velocity_verlet(density, metric.kinetic_energy),
        kinetic_change,
        energies.turning(inverse_mass_matrix, state.position),
        max_num_doublings,
        divergence_threshold,
    )
    start = state._replace(log_density=jnp.zeros_like(state.log_density))
    begin = hamiltonian.integrator_state(start, momentum)
    return propose(key, begin, state.adaptation.step_size)
