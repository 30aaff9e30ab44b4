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
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from symjax import hamiltonian, isokinetic, warmup
from symjax.hamiltonian import Info, Point, State
from symjax.types import Algorithm, Key, LogDensity, Params


_DECOHERENCE = 1.25
"""The way after which the direction is forgotten, in trajectories. Without noise on
the way, all chains of a trajectory that fits the target badly come back to where they
began."""


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
    the trajectory's length, at the cost of two gradients each and a forward pass at
    its end. Rejected proposals repeat the state, and every state is a draw.

    Args:
        log_density: `(params, data) -> nats`. Its `tally` and `gain` are used if it
            has them; other densities are subtracted.
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
        point = hamiltonian.evaluate(log_density, params, data)
        return State(*point, jnp.array(0), adapting.init(params))

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        size = state.adaptation.step_size
        count = jnp.asarray(count_steps(state.iteration, size))
        direction_key, path_key, accept_key = jax.random.split(key, 3)
        direction = isokinetic.unit_vector(direction_key, state.position)
        start = hamiltonian.integrator_state(state, direction)
        advance = isokinetic.build_step(lambda params: log_density(params, data))
        end, kinetic = _travel(path_key, start, advance, size, count)
        proposal = hamiltonian.arrive(log_density, data, end)
        change = kinetic - hamiltonian.gain(log_density, data, state, proposal)
        new, outcome = hamiltonian.accept(
            accept_key, change, Point(*state[:4]), proposal
        )
        adaptation = adapting.update(
            state.adaptation,
            new.position,
            new.gradient,
            state.iteration,
            outcome.acceptance_rate,
        )
        info = Info(*outcome, new.log_density, size, count)
        return State(*new, state.iteration + 1, adaptation), info

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
