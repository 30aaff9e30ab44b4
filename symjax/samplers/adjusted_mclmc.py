"""Metropolis-adjusted microcanonical Langevin Monte Carlo: exact, at constant speed.

A trajectory of MCLMC, then an accept step by the change of its energy. blackjax's
kernel is not used: it subtracts two log densities of the whole data set, where the
accept step needs their change, and its integrator loses kinetic energy in float32 (see
`isokinetic`).

References:
    Robnik, Cohn-Gordon, Seljak (2025), Metropolis adjusted microcanonical Hamiltonian
    Monte Carlo, sections 3 and 4.
    Riou-Durand, Vogrinc (2022), Metropolis adjusted Langevin trajectories (why the
    direction is refreshed on the way).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from blackjax.mcmc.integrators import IntegratorState
from jaxtyping import Array, Float, Int

from symjax import energies, hamiltonian, isokinetic, warmup
from symjax.hamiltonian import Info
from symjax.types import Algorithm, Key, LogDensity, Params
from symjax.warmup import Adaptation


_DECOHERENCE = 1.25
"""The way after which the direction is forgotten, in trajectories. Without noise on
the way, all chains of a trajectory that fits the target badly come back to where they
began."""


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
    trajectory_length: float,
    num_warmup: int = 0,
    target_acceptance: float = 0.9,
) -> Algorithm:
    """Adjusted MCLMC: exact, by an accept step on the full data.

    A transition starts in a fresh direction and takes as many integrator steps as cover
    the trajectory's length, at the cost of two gradients each and, where the density
    has a `difference`, a forward pass at both ends. Rejected proposals repeat the
    state, and every state is a draw.

    Args:
        log_density: `(params, data) -> nats`. Its `difference` is used if it has one;
            other densities are subtracted.
        step_size: Way of one step, Euclidean over all parameters together; the first
            one if there is a warm-up.
        trajectory_length: Way of a trajectory, rounded up to whole steps;
            `rule_length` is the usual first choice.
        num_warmup: First iterations, in which dual averaging moves the step size
            towards the target acceptance.
        target_acceptance: Between 0 and 1. The higher order of the integrator makes
            a higher one than HMC's best.

    Returns:
        `Algorithm`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.5, trajectory_length=2.0)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """
    adapting = warmup.build(
        step_size, num_warmup=num_warmup, target_acceptance=target_acceptance
    )
    count_steps = hamiltonian.fixed_or_length(
        step_size, None, trajectory_length, num_warmup
    )

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        isokinetic.require_two_numbers(params, "adjusted MCLMC")
        value, gradient = jax.value_and_grad(log_density)(params, data)
        return State(params, value, gradient, jnp.array(0), adapting.init(params))

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        size = state.adaptation.step_size
        count = jnp.asarray(count_steps(state.iteration, size))
        direction_key, path_key, accept_key = jax.random.split(key, 3)
        direction = isokinetic.unit_vector(direction_key, state.position)
        start = cast("Any", IntegratorState)(
            state.position, direction, state.log_density, state.gradient
        )
        advance = isokinetic.build_step(lambda params: log_density(params, data))
        end, kinetic = _travel(path_key, start, advance, size, count)
        gain = energies.gain(log_density, data, start.position, end.position)
        new, outcome = hamiltonian.accept(accept_key, kinetic - gain, start, end)
        adaptation = adapting.update(
            state.adaptation,
            new.position,
            new.logdensity_grad,
            state.iteration,
            outcome.acceptance_rate,
        )
        position, _, value, gradient = new
        info = Info(*outcome, value, size, count)
        iteration = state.iteration + 1
        return State(position, value, gradient, iteration, adaptation), info

    return Algorithm(init, step, num_warmup)


def _travel(
    key: Key,
    start: Any,
    advance: Callable[..., Any],
    size: Float[Array, ""],
    count: Int[Array, ""],
) -> tuple[Any, Float[Array, ""]]:
    """Where the trajectory ends, and the change of the kinetic energy on it."""
    share = 0.5 / (_DECOHERENCE * count)

    def one(index: Int[Array, ""], carry: Any) -> Any:
        state, kinetic = carry
        keys = jax.random.split(jax.random.fold_in(key, index))
        turned = isokinetic.refresh(keys[0], state.momentum, share)
        state, change = advance(state._replace(momentum=turned), size)
        turned = isokinetic.refresh(keys[1], state.momentum, share)
        return state._replace(momentum=turned), kinetic + change

    zero = jnp.zeros_like(start.logdensity)
    return jax.lax.fori_loop(0, count, one, (start, zero))


def rule_length(prior_std: float, num_params: int) -> float:
    """The way across the typical set: prior std times the root of the dimension.

    Args:
        prior_std: Of a parameter, or its standard deviation under the posterior where
            that is known.
        num_params: How many parameters.
    """
    return prior_std * math.sqrt(num_params)
