"""SWAG: a normal with the mean and the covariance of an optimiser's iterates.

After a burn-in, the optimiser goes on at a constant learning rate, and the networks it
passes are collected. Their mean is stochastic weight averaging (SWA). The covariance of
the normal is half diagonal, half of low rank:

    diag(variance) / 2  +  D D^T / (2 (K - 1)),

the columns of D being the last K networks, each less the mean when it was collected;
without them (rank 0) it is diag(variance). It is as wide as the optimiser's noise makes
it, which the learning rate and the batch size set: not, in general, the posterior.

Members are independent fits, vmapped and spread over the mesh like chains: several
together are multi-SWAG.

References:
    Maddox, Garipov, Izmailov, Vetrov, Wilson (2019), A simple baseline for Bayesian
    uncertainty in deep learning, sections 3.2 and 3.3, Algorithm 1.
    Izmailov, Podoprikhin, Garipov, Vetrov, Wilson (2018), Averaging weights leads to
    wider optima and better generalization.
    Wilson, Izmailov (2020), Bayesian deep learning and a probabilistic perspective of
    generalization, section 4 (multi-SWAG).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from symjax import checks
from symjax.approximations import descent, gaussian
from symjax.mesh import same_in_all_chains
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


class State(NamedTuple):
    """A member during its optimisation, and what it has collected.

    Attributes:
        position: The network.
        optimiser: State of the optimiser.
        iteration: Steps behind it.
        num_collected: How many networks were collected.
        mean: Of those, a params pytree.
        squares: Sums of their squared deviations from that mean.
        deviations: The last of them less the mean then, leaves `(rank, ...)`; zero
            where there are none yet.
    """

    position: Params
    optimiser: Any
    iteration: Int[Array, ""]
    num_collected: Int[Array, ""]
    mean: Params
    squares: Params
    deviations: Params


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Log posterior before the step in nats; an estimate if minibatched.
    """

    log_density: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    num_burn_in: int,
    collect_every: int = 1,
    rank: int = 20,
    scale: float = 1.0,
    batch_size: int | None = None,
) -> Approximation:
    """SWAG, one independent fit a member.

    The objective is minus the log posterior divided by the number of examples, so that
    learning rates mean what they mean in training. A step costs a gradient; the state
    takes `rank` + 3 times the memory of the parameters, the optimiser's not counted.

    Args:
        log_posterior: What each member climbs.
        optimiser: An optax optimiser, schedule included, whose learning rate should not
            change after the burn-in.
        num_burn_in: First steps, of which nothing is collected.
        collect_every: Steps for each network that is collected; an epoch in the paper.
        rank: Deviations kept, K; 0 for a diagonal covariance.
        scale: What deviations from the mean are multiplied by in a draw; 0 for SWA,
            whose draws are the mean.
        batch_size: Examples a step takes; None for the whole data set.

    Returns:
        `Approximation` whose `sample` draws from the normal; of a fit that has not
        collected a network, the network where it is.

    Raises:
        ValueError: If `rank` is 1, of which K - 1 is 0, or a number is out of range.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.sgd(0.05), num_burn_in=1000
        ... )  # doctest: +SKIP
    """
    checks.at_least(0, num_burn_in=num_burn_in, rank=rank)
    checks.at_least(1, collect_every=collect_every, batch_size=batch_size)
    if rank == 1:
        raise ValueError("`rank` must be 0 or at least 2, got 1.")
    if not 0 <= scale < float("inf"):
        raise ValueError(f"`scale` must be a number of at least 0, got {scale}.")

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        zeros = optax.tree.zeros_like(params)
        columns = jax.tree.map(
            lambda leaf: jnp.zeros((rank, *jnp.shape(leaf)), leaf.dtype), params
        )
        nothing = jnp.array(0)
        first = optimiser.init(params)
        return State(
            params, first, nothing, nothing, zeros, zeros, columns if rank else None
        )

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        log_density = descent.estimate(log_posterior, batch_size, key, data)
        position, new, value = descent.step(
            optimiser, log_density, state.position, state.optimiser, data
        )
        iteration = state.iteration + 1
        moved = state._replace(position=position, optimiser=new, iteration=iteration)
        passed = same_in_all_chains(iteration) - num_burn_in
        is_due = (passed > 0) & (passed % collect_every == 0)
        return jax.lax.cond(is_due, _collect, lambda state: state, moved), Info(value)

    def sample(key: Key, state: State) -> Params:
        return gaussian.sample(key, _normal(state, rank, scale))

    return Approximation(init, step, sample)


def _collect(state: State) -> State:
    """Take the network in, by Welford's update.

    The mean of squares less the square of the mean, as in the paper, would lose the
    variance of weights that move little, in float32.
    """
    num_before = state.num_collected
    count = num_before + 1
    before = jax.tree.map(jnp.subtract, state.position, state.mean)
    mean = jax.tree.map(lambda m, change: m + change / count, state.mean, before)
    after = jax.tree.map(jnp.subtract, state.position, mean)
    squares = jax.tree.map(lambda s, a, b: s + a * b, state.squares, before, after)
    deviations = jax.tree.map(
        lambda columns, column: columns.at[num_before % len(columns)].set(column),
        state.deviations,
        None if state.deviations is None else after,
    )
    return state._replace(
        num_collected=count, mean=mean, squares=squares, deviations=deviations
    )


def _normal(state: State, rank: int, scale: float) -> gaussian.Gaussian:
    """What was collected, as a normal."""
    is_empty = state.num_collected == 0
    count = jnp.maximum(state.num_collected, 1)
    mean = jax.tree.map(
        lambda m, p: jnp.where(is_empty, p, m), state.mean, state.position
    )
    if not rank:
        std = jax.tree.map(lambda s: scale * jnp.sqrt(s / count), state.squares)
        return gaussian.Gaussian(mean, std)
    num_columns = jnp.clip(state.num_collected, 2, rank)
    factor = scale / jnp.sqrt(2.0 * (num_columns - 1))
    factors = jax.tree.map(lambda columns: factor * columns, state.deviations)

    def deviation(squares: Any, factors: Any) -> Any:
        own = scale**2 * squares / (2 * count)
        return jnp.sqrt(own + jnp.sum(jnp.square(factors), axis=0))

    return gaussian.Gaussian(
        mean, jax.tree.map(deviation, state.squares, factors), factors
    )
