"""Hamiltonian Monte Carlo with a full-batch gradient and an exact accept step.

The kernel is blackjax's; plugged into it are an accept step that computes the change of
energy itself instead of subtracting two large energies, and a metric that works on the
pytree as it is.

References:
    Neal (2011), MCMC using Hamiltonian dynamics, sections 5.2 and 5.3.
    Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
    posteriors really like?, section 3 (trajectory length pi * prior std / 2).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc import hmc
from blackjax.mcmc.proposal import static_binomial_sampling
from blackjax.mcmc.trajectory import static_integration
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, energies
from symjax.samplers import Adaptation, step_size_warmup
from symjax.types import Algorithm, Key, LogDensity, Params


MAX_GROWTH = 8
"""While the step size adapts, trajectories take at most this many times the leapfrogs
first asked for: a step that is tried out far too small shall not cost hours."""


class State(NamedTuple):
    """A chain between two transitions; the gradient is kept for the next one."""

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    iteration: Int[Array, ""]
    step_size: Float[Array, ""]
    adaptation: Adaptation


class _Outcome(NamedTuple):
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


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    num_steps: int | None = None,
    trajectory_length: float | None = None,
    inverse_mass_matrix: float | Params = 1.0,
    num_warmup: int = 0,
    num_unadjusted: int = 0,
    target_acceptance: float = 0.8,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """Full-batch HMC.

    Rejected proposals repeat the state, and every state is a draw. One transition costs
    `num_steps` gradients and, where the density has a `difference`, a forward pass at
    both ends.

    During the first `num_warmup` iterations dual averaging moves the step size towards
    the target acceptance, which also frees chains that start where the step is far too
    large. With `trajectory_length` the number of leapfrogs follows the step size.

    Args:
        log_density: `(params, data) -> nats`. Its `difference` is used if it has one;
            other densities are subtracted.
        step_size: Leapfrog step, in units of the parameters (unit mass); the first one
            if there is a warm-up.
        num_steps: Leapfrogs of a trajectory. Give exactly one of this and
            `trajectory_length`.
        trajectory_length: step size times number of leapfrogs, rounded up to whole
            leapfrogs; `rule_length` is the reference rule.
        inverse_mass_matrix: Diagonal of M^-1: a number, or a pytree like the
            parameters (numbers or arrays).
        num_warmup: First iterations, in which the step size adapts.
        num_unadjusted: First iterations without accept step (divergent proposals are
            still refused), as the reference burn-in did.
        target_acceptance: What the warm-up aims at, between 0 and 1.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm` whose `num_warmup` is the larger of the two phases.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.5, num_steps=4)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """
    checks.positive(divergence_threshold=divergence_threshold)
    checks.at_least(0, num_unadjusted=num_unadjusted)
    warmup = step_size_warmup(
        step_size, num_warmup=num_warmup, target_acceptance=target_acceptance
    )
    first_num_steps = _first_num_steps(step_size, num_steps, trajectory_length)

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        value, gradient = jax.value_and_grad(log_density)(params, data)
        return State(
            params, value, gradient, jnp.array(0), jnp.array(step_size), warmup.init()
        )

    def count_leapfrogs(state: State) -> Int[Array, ""] | int:
        if trajectory_length is None or num_warmup == 0:
            return first_num_steps
        count = jnp.ceil(trajectory_length / state.step_size - 1e-6).astype(int)
        limited = jnp.minimum(count, MAX_GROWTH * first_num_steps)
        return jnp.where(state.iteration < num_warmup, limited, count)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        accept_all = state.iteration < num_unadjusted
        change = partial(energies.change, log_density, inverse_mass_matrix, data)
        kernel: Callable[..., Any] = hmc.build_kernel(
            divergence_threshold=divergence_threshold,
            build_proposal=partial(_build_proposal, change, accept_all),
        )
        num_leapfrogs = count_leapfrogs(state)
        (position, value, gradient), outcome = kernel(
            key,
            (state.position, state.log_density, state.gradient),
            lambda params: log_density(params, data),
            state.step_size,
            energies.diagonal_metric(inverse_mass_matrix),
            num_leapfrogs,
        )
        adaptation, next_size = warmup.update(
            state.adaptation, state.step_size, state.iteration, outcome.acceptance_rate
        )
        info = Info(
            *outcome,
            log_density=value,
            step_size=state.step_size,
            num_steps=jnp.asarray(num_leapfrogs),
        )
        iteration = state.iteration + 1
        return State(position, value, gradient, iteration, next_size, adaptation), info

    return Algorithm(init, step, max(num_warmup, num_unadjusted))


def count_steps(trajectory_length: float, step_size: float) -> int:
    """The leapfrogs of a trajectory: its length, rounded up to whole steps."""
    return math.ceil(trajectory_length / step_size - 1e-6)


def rule_length(prior_std: float) -> float:
    """The trajectory length pi * prior std / 2: a quarter turn under the prior.

    On N(0, prior_std^2) with unit mass such a trajectory is independent of its start.

    Args:
        prior_std: Standard deviation of the prior; the smallest, where there are
            several.

    References:
        Izmailov et al. (2021), section 3.2.
    """
    return math.pi * prior_std / 2


def _first_num_steps(
    step_size: float, num_steps: int | None, trajectory_length: float | None
) -> int:
    """The leapfrogs of the first trajectory.

    Raises:
        ValueError: if not exactly one of number and length is given.
    """
    checks.at_least(1, num_steps=num_steps)
    checks.positive(trajectory_length=trajectory_length)
    if num_steps is not None and trajectory_length is None:
        return num_steps
    if num_steps is None and trajectory_length is not None:
        return count_steps(trajectory_length, step_size)
    raise ValueError(
        "Give exactly one of `num_steps` and `trajectory_length`, got "
        f"{num_steps} and {trajectory_length}."
    )


def _build_proposal(
    energy_change: Callable[..., Float[Array, ""]],
    accept_all: Bool[Array, ""],
    integrator: Callable[..., Any],
    kinetic_energy: Callable[..., Any],
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""] | int,
    divergence_threshold: float,
) -> Callable[..., Any]:
    """The `build_proposal` of blackjax's kernel, with the change of energy given."""
    del kinetic_energy
    integrate = static_integration(integrator)

    choose: Callable[..., Any] = static_binomial_sampling

    def generate(key: Key, start: Any) -> tuple[Any, _Outcome, None]:
        end = integrate(start, step_size, num_steps)
        change = energy_change(start, end)
        is_finite = jnp.isfinite(change) & jnp.isfinite(end.logdensity)
        is_divergent = ~is_finite | (change > divergence_threshold)
        log_acceptance = jnp.where(is_finite, jnp.minimum(-change, 0.0), -jnp.inf)
        log_used = jnp.where(accept_all & ~is_divergent, 0.0, log_acceptance)
        new, (is_accepted, _, _) = choose(key, log_used, start, end)
        acceptance = jnp.exp(log_acceptance)
        return new, _Outcome(acceptance, is_accepted, is_divergent, change), None

    return generate
