"""What samplers with leapfrogs and an accept step at their end share.

The choice between start and proposal is blackjax's. The accept step computes the change
of energy itself instead of subtracting two large energies, the metric works on the
pytree as it is, and leapfrogs hold fewer copies of it than blackjax's.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.integrators import IntegratorState
from blackjax.mcmc.proposal import static_binomial_sampling
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, energies, leapfrogs, sums
from symjax.energies import InverseMassMatrix
from symjax.types import Algorithm, Key, LogDensity, Params
from symjax.warmup import Adaptation, Warmup


MAX_GROWTH = 8
"""While the step size adapts, trajectories take at most this many times the leapfrogs
first asked for: a step that is tried out far too small shall not cost hours."""

_WHOLE = 1 - 1e-6
"""Of a number of leapfrogs: whole ones that float32 has rounded up stay as many."""


class Point(NamedTuple):
    """Parameters, with what is known there.

    Attributes:
        position: The parameters.
        log_density: There, in nats, as it comes with the gradient.
        gradient: Of the log density.
        tally: What the accept step compares, see `energies.tally`.
    """

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    tally: Any


class State(NamedTuple):
    """A chain between two transitions: a `Point`, and how far it is."""

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    tally: Any
    iteration: Int[Array, ""]
    adaptation: Adaptation


class Outcome(NamedTuple):
    """The first fields of `Info`, as the accept step finds them."""

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]
    energy_change: Float[Array, ""]


class Info(NamedTuple):
    """What one transition did, as scalars.

    Attributes:
        acceptance_rate: Probability of accepting the proposal.
        is_accepted: Whether it was accepted; always true while the accept step is off.
        is_divergent: The energy rose by more than the threshold, or was not finite.
        energy_change: Energy of the proposal less that of the start, in nats.
        log_density: Log density of the state after the transition, in nats.
        step_size: Leapfrog step size used.
        num_steps: Leapfrog steps (gradients) taken.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]
    energy_change: Float[Array, ""]
    log_density: Float[Array, ""]
    step_size: Float[Array, ""]
    num_steps: Int[Array, ""]


def evaluate(log_density: LogDensity, params: Params, data: Any) -> Point:
    """The point at `params`, at the cost of a gradient and a forward pass."""
    value, gradient = jax.value_and_grad(log_density)(params, data)
    return Point(params, value, gradient, energies.tally(log_density, params, data))


def build(
    log_density: LogDensity,
    warmup: Warmup,
    count_leapfrogs: Callable[..., Int[Array, ""] | int],
    *,
    num_warmup: int,
    num_unadjusted: int = 0,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """Fresh momentum, leapfrogs, accept or refuse; the warm-up goes on beside it.

    Args:
        log_density: `(params, data) -> nats`.
        warmup: How the step size and the mass matrix adapt.
        count_leapfrogs: `(iteration, step_size) -> leapfrogs` of a trajectory.
        num_warmup: Iterations that adapt.
        num_unadjusted: First iterations without accept step.
        divergence_threshold: Rise of the energy, in nats, called a divergence.
    """
    checks.positive(divergence_threshold=divergence_threshold)
    checks.at_least(0, num_unadjusted=num_unadjusted)

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        point = evaluate(log_density, params, data)
        return State(*point, jnp.array(0), warmup.init(params))

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        adaptation = state.adaptation
        size = adaptation.step_size
        num_leapfrogs = count_leapfrogs(state.iteration, size)
        point, outcome, _ = transition(
            key,
            Point(*state[:4]),
            log_density,
            data,
            step_size=size,
            inverse_mass_matrix=warmup.inverse_mass_matrix(adaptation),
            num_leapfrogs=num_leapfrogs,
            accept_all=state.iteration < num_unadjusted,
            divergence_threshold=divergence_threshold,
        )
        adaptation = warmup.update(
            adaptation,
            point.position,
            point.gradient,
            state.iteration,
            outcome.acceptance_rate,
        )
        info = Info(*outcome, point.log_density, size, jnp.asarray(num_leapfrogs))
        return State(*point, state.iteration + 1, adaptation), info

    return Algorithm(init, step, max(num_warmup, num_unadjusted))


def transition(
    key: Key,
    start: Point,
    log_density: LogDensity,
    data: Any,
    *,
    step_size: Float[Array, ""],
    inverse_mass_matrix: InverseMassMatrix,
    num_leapfrogs: Int[Array, ""] | int,
    accept_all: Bool[Array, ""] | bool = False,
    divergence_threshold: float = 1000.0,
) -> tuple[Point, Outcome, Any]:
    """One transition of HMC.

    Returns:
        The new point, what the accept step found, and the end of the trajectory
        (blackjax's `IntegratorState`), accepted or not.
    """
    metric = energies.metric(inverse_mass_matrix)
    momentum_key, accept_key = jax.random.split(key)
    momentum = metric.sample_momentum(momentum_key, start.position)
    kinetic = energies.kinetic(inverse_mass_matrix, momentum)
    end = leapfrogs.integrate(
        lambda params: log_density(params, data),
        inverse_mass_matrix,
        integrator_state(start, momentum),
        step_size,
        num_leapfrogs,
    )
    proposal = arrive(log_density, data, end)
    at_end = energies.kinetic(inverse_mass_matrix, end.momentum)
    change = sums.difference(at_end, kinetic)
    change -= gain(log_density, data, start, proposal)
    new, outcome = accept(
        accept_key, change, start, proposal, accept_all, divergence_threshold
    )
    return new, outcome, end


def arrive(log_density: LogDensity, data: Any, end: Any) -> Point:
    """The point where a trajectory ended, at the cost of a forward pass.

    Args:
        log_density: As in `transition`.
        data: What it takes.
        end: blackjax's `IntegratorState`.
    """
    tally = energies.tally(log_density, end.position, data)
    return Point(end.position, end.logdensity, end.logdensity_grad, tally)


def gain(
    log_density: LogDensity, data: Any, start: Any, proposal: Point
) -> Float[Array, ""]:
    """The log density of the proposal less that of the start, see `energies.gain`."""
    positions = start.position, proposal.position
    tallies = start.tally, proposal.tally
    return energies.gain(log_density, *positions, data, *tallies)


def accept(
    key: Key,
    change: Float[Array, ""],
    start: Point,
    proposal: Point,
    accept_all: Bool[Array, ""] | bool = False,
    divergence_threshold: float = 1000.0,
) -> tuple[Point, Outcome]:
    """The end of a trajectory or its beginning, by Metropolis' rule.

    Args:
        key: Decides.
        change: Of the energy, in nats.
        start: Where the trajectory began.
        proposal: Where it ended.
        accept_all: Whether only divergent ends are refused.
        divergence_threshold: Rise of the energy, in nats, called a divergence.
    """
    value = proposal.log_density
    acceptance, is_divergent = judge(change, value, divergence_threshold)
    log_used = jnp.where(accept_all & ~is_divergent, 0.0, acceptance)
    choose: Any = static_binomial_sampling
    new, (is_accepted, _, _) = choose(key, log_used, start, proposal)
    return new, Outcome(jnp.exp(acceptance), is_accepted, is_divergent, change)


def integrator_state(point: Any, momentum: Params) -> Any:
    """A point and a momentum as blackjax's integrators take them."""
    make: Any = IntegratorState
    return make(point.position, momentum, point.log_density, point.gradient)


def judge(
    change: Float[Array, ""], log_density: Float[Array, ""], divergence_threshold: float
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The log probability of accepting an end, and whether it diverged."""
    is_finite = jnp.isfinite(change) & jnp.isfinite(log_density)
    is_divergent = ~is_finite | (change > divergence_threshold)
    return jnp.where(is_finite, jnp.minimum(-change, 0.0), -jnp.inf), is_divergent


def fixed_or_length(
    step_size: float,
    num_steps: int | None,
    trajectory_length: float | None,
    num_warmup: int,
) -> Callable[..., Int[Array, ""] | int]:
    """`count_leapfrogs` for a number of leapfrogs or a length of the trajectory.

    Raises:
        ValueError: if not exactly one of number and length is given.
    """
    checks.positive(step_size=step_size, trajectory_length=trajectory_length)
    checks.at_least(1, num_steps=num_steps)
    if num_steps is not None and trajectory_length is None:
        return lambda iteration, size: num_steps
    if num_steps is not None or trajectory_length is None:
        raise ValueError(
            "Give exactly one of `num_steps` and `trajectory_length`, got "
            f"{num_steps} and {trajectory_length}."
        )
    first = count_steps(trajectory_length, step_size)
    if num_warmup == 0:
        return lambda iteration, size: first
    return partial(limited_count, trajectory_length, first, num_warmup)


def limited_count(
    trajectory_length: float | Float[Array, ""],
    first: int,
    num_warmup: int,
    iteration: Int[Array, ""],
    step_size: Float[Array, ""],
) -> Int[Array, ""]:
    """Leapfrogs of a length, at least one, and not too many in the warm-up."""
    count = jnp.ceil(_WHOLE * (trajectory_length / step_size)).astype(int)
    limited = jnp.minimum(count, MAX_GROWTH * first)
    return jnp.maximum(1, jnp.where(iteration < num_warmup, limited, count))


def count_steps(trajectory_length: float, step_size: float) -> int:
    """The leapfrogs of a trajectory: its length, rounded up to whole steps."""
    return math.ceil(_WHOLE * (trajectory_length / step_size))
