"""Hamiltonian Monte Carlo whose force is split over blocks of the data.

A leapfrog goes through the blocks forwards and backwards, each kick from the gradient
of one block, so that memory holds one block where HMC's holds all data. The accept step
takes the whole data set: the sampler is exact.

blackjax has no such integrator: its coefficients are of one potential.

References:
    Cobb, Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural
    networks with symmetric splitting, section 4, algorithm 1.
    Shahbaba, Lan, Johnson, Neal (2014), Split Hamiltonian Monte Carlo, section 4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Float, Int

from symjax import checks, energies, hamiltonian, warmup
from symjax.hamiltonian import Info, Point
from symjax.types import Algorithm, Key, Params
from symjax.warmup import Adaptation


class State(NamedTuple):
    """A chain between two transitions."""

    position: Params
    log_density: Float[Array, ""]
    tally: Any
    iteration: Int[Array, ""]
    adaptation: Adaptation


def build(
    log_posterior: Any,
    *,
    step_size: float,
    trajectory_length: float,
    num_blocks: int,
    num_warmup: int = 0,
    target_acceptance: float = 0.8,
) -> Algorithm:
    """Symmetric split HMC: exact, with the memory of a block of the data.

    One step of size e with M blocks kicks by e/2 times the gradients of blocks
    1, 2, ..., M, M, ..., 2, 1, and drifts by e / (2 (M - 1)) between two kicks. It is
    reversible, keeps volumes and is of second order. It costs nearly two gradients of
    the whole data, for steps that need not be as short as HMC's (a fifth longer with
    ten blocks of a small network): what it saves is memory. The accept step takes two
    passes forward, which micro-batches divide as usual. With one block it would be HMC.

    Args:
        log_posterior: From `posterior.build`, or anything with its `block`; its
            `tally` and `gain` are used if it has them.
        step_size: e, in units of the parameters (unit mass); the first one if there is
            a warm-up.
        trajectory_length: Step size times number of steps, rounded up to whole steps.
        num_blocks: M, two or more. Block m is every M-th example from the m-th.
        num_warmup: First iterations, in which dual averaging moves the step size
            towards the target acceptance.
        target_acceptance: Between 0 and 1.

    Returns:
        `Algorithm`.

    Raises:
        TypeError: if `log_posterior` has no blocks.

    Example:
        >>> algorithm = build(
        ...     log_posterior, step_size=0.01, trajectory_length=0.5, num_blocks=8
        ... )  # doctest: +SKIP
    """  # noqa: DOC502
    _check(log_posterior, num_blocks)
    adapting = warmup.build(
        step_size, num_warmup=num_warmup, target_acceptance=target_acceptance
    )
    count_steps = hamiltonian.fixed_or_length(
        step_size, None, trajectory_length, num_warmup
    )
    gradient = jax.grad(log_posterior.block)

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        value = log_posterior(params, data)
        tally = energies.tally(log_posterior, params, data)
        return State(params, value, tally, jnp.array(0), adapting.init(params))

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        size = state.adaptation.step_size
        count = jnp.asarray(count_steps(state.iteration, size))
        momentum_key, accept_key = jax.random.split(key)
        momentum = generate_gaussian_noise(momentum_key, state.position)
        position, end_momentum = integrate(
            lambda params, index: gradient(params, data, index, num_blocks),
            num_blocks,
            (state.position, momentum),
            size,
            count,
        )
        tally = energies.tally(log_posterior, position, data)
        start = Point(state.position, state.log_density, (), state.tally)
        proposal = Point(position, log_posterior(position, data), (), tally)
        kinetic = energies.kinetic_change(1.0, momentum, end_momentum)
        change = kinetic - hamiltonian.gain(log_posterior, data, start, proposal)
        new, outcome = hamiltonian.accept(accept_key, change, start, proposal)
        adaptation = adapting.update(
            state.adaptation,
            new.position,
            new.gradient,
            state.iteration,
            outcome.acceptance_rate,
        )
        info = Info(*outcome, new.log_density, size, count)
        at = new.position, new.log_density, new.tally
        return State(*at, state.iteration + 1, adaptation), info

    return Algorithm(init, step, num_warmup)


def _check(log_posterior: Any, num_blocks: int) -> None:
    """Require blocks, and two or more of them.

    Raises:
        TypeError: if `log_posterior` has none.
    """
    checks.at_least(2, num_blocks=num_blocks)
    if not hasattr(log_posterior, "block"):
        raise TypeError(
            "`log_posterior` must have a `block` of the data, got "
            f"{type(log_posterior).__name__}. Make it with `posterior.build`."
        )


def integrate(
    gradient: Callable[[Params, Int[Array, ""]], Params],
    num_blocks: int,
    start: tuple[Params, Params],
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""] | int,
) -> tuple[Params, Params]:
    """Steps of the symmetric splitting.

    Kicks that meet, of the last block in the middle of a step and of the first one
    between two steps, are one of twice the size.

    Args:
        gradient: `(params, index) -> gradient` of a block's log density.
        num_blocks: M.
        start: Position and momentum.
        step_size: e.
        num_steps: How many.

    Returns:
        Position and momentum at the end.
    """
    period = 2 * (num_blocks - 1)
    last = num_steps * period

    def kick_and_drift(
        number: Int[Array, ""], carry: tuple[Params, Params]
    ) -> tuple[Params, Params]:
        position, momentum = carry
        phase = number % period
        block = jnp.minimum(phase, period - phase)
        is_end = (number == 0) | (number == last)
        is_turn = (block == 0) | (block == num_blocks - 1)
        kick = jnp.where(is_turn & ~is_end, step_size, step_size / 2)
        momentum = optax.tree.add_scale(momentum, kick, gradient(position, block))
        drift = jnp.where(number == last, 0.0, step_size / period)
        return optax.tree.add_scale(position, drift, momentum), momentum

    return jax.lax.fori_loop(0, last + 1, kick_and_drift, start)


def gradients_per_step(num_blocks: int) -> float:
    """What a step costs, in gradients of the whole data."""
    return 2 * (num_blocks - 1) / num_blocks
