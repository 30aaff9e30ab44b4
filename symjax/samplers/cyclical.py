"""Cyclical step sizes around any stochastic-gradient sampler.

Each cycle starts with large steps and no noise, to find another mode, and ends with
small ones and noise, to sample it. (blackjax's `csgld` is another method, contour
SGLD.)

References:
    Zhang, Li, Zhang, Chen, Wilson (2020), Cyclical stochastic gradient MCMC for
    Bayesian deep learning, eq. 1 and Algorithm 1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from symjax import checks
from symjax.samplers import Schedule
from symjax.types import Algorithm, Key


def build(
    sampler: Callable[..., Algorithm],
    *,
    step_size: float,
    cycle_length: int,
    exploration: float = 0.8,
) -> Algorithm:
    """A sampler whose step size falls and rises, without draws while it explores.

    An iteration is one step of the sampling phase. The first one of a cycle makes the
    whole exploration before it, so that every draw is of a sampling phase, whatever the
    thinning; `num_sampling` iterations are a cycle.

    Args:
        sampler: `(step_size, noise) -> Algorithm`, both by name and schedules of the
            sampler's own steps.
        step_size: That of the first step of a cycle, in the sampler's units.
        cycle_length: Steps of a cycle, each a gradient.
        exploration: The share of a cycle that explores, from 0 to below 1; rounded
            to whole steps, of which one is left to sample.

    Returns:
        `Algorithm`; its `num_warmup` is the sampler's.

    Example:
        >>> from functools import partial
        >>> from symjax.samplers import sgld
        >>> algorithm = build(
        ...     partial(sgld.build, log_posterior, batch_size=64),
        ...     step_size=1e-5,
        ...     cycle_length=1000,
        ... )  # doctest: +SKIP
    """
    checks.positive(step_size=step_size)
    num_exploring = cycle_length - num_sampling(cycle_length, exploration)

    def noise(iteration: Any) -> Any:
        return jnp.where(iteration % cycle_length < num_exploring, 0.0, 1.0)

    inner = sampler(step_size=cosine(step_size, cycle_length), noise=noise)

    def step(key: Key, state: Any, data: Any) -> tuple[Any, Any]:
        is_start = state.iteration % cycle_length == 0
        num_steps = jnp.where(is_start, num_exploring + 1, 1)
        _, shapes = jax.eval_shape(inner.step, key, state, data)
        info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def advance(index: Any, carry: Any) -> Any:
            return inner.step(jax.random.fold_in(key, index), carry[0], data)

        return jax.lax.fori_loop(0, num_steps, advance, (state, info))

    return Algorithm(inner.init, step, inner.num_warmup)


def num_sampling(cycle_length: int, exploration: float) -> int:
    """The steps of a cycle that sample, at least one.

    Raises:
        ValueError: if `exploration` is below 0, or 1 or more.
    """
    checks.at_least(1, cycle_length=cycle_length)
    if not 0 <= exploration < 1:
        raise ValueError(
            f"`exploration` must be at least 0 and below 1, got {exploration}."
        )
    return max(1, cycle_length - round(exploration * cycle_length))


def cosine(step_size: float, cycle_length: int) -> Schedule:
    """The schedule step_size / 2 (1 + cos(pi r)), r the part of the cycle behind it."""

    def schedule(iteration: Any) -> Any:
        passed = iteration % cycle_length / cycle_length
        # 1 + cos(pi r) would round to 0 at the end of a long cycle.
        return step_size * jnp.cos(jnp.pi / 2 * passed) ** 2

    return schedule
