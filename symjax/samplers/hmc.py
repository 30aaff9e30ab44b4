"""Hamiltonian Monte Carlo with a full-batch gradient and an exact accept step.

References:
    Neal (2011), MCMC using Hamiltonian dynamics, sections 5.2 and 5.3.
    Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
    posteriors really like?, section 3 (trajectory length pi * prior std / 2).
"""

import math

from symjax import hamiltonian, warmup
from symjax.energies import InverseMassMatrix
from symjax.types import Algorithm, LogDensity


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    num_steps: int | None = None,
    trajectory_length: float | None = None,
    inverse_mass_matrix: InverseMassMatrix | str = 1.0,
    num_warmup: int = 0,
    num_unadjusted: int = 0,
    target_acceptance: float = 0.8,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """Full-batch HMC.

    Rejected proposals repeat the state, and every state is a draw. One transition costs
    `num_steps` gradients and a forward pass at the end.

    During the first `num_warmup` iterations dual averaging moves the step size towards
    the target acceptance, which also frees chains that start where the step is far too
    large. With `trajectory_length` the number of leapfrogs follows the step size.

    Args:
        log_density: `(params, data) -> nats`. Its `tally` and `gain` are used if it
            has them; other densities are subtracted.
        step_size: Leapfrog step, in units of the parameters (unit mass); the first one
            if there is a warm-up.
        num_steps: Leapfrogs of a trajectory. Give exactly one of this and
            `trajectory_length`.
        trajectory_length: step size times number of leapfrogs, rounded up to whole
            leapfrogs; `rule_length` is the reference rule.
        inverse_mass_matrix: Diagonal of M^-1: a number, or a pytree like the
            parameters (numbers or arrays); or what the warm-up is to learn: `diagonal`
            or `low_rank`. Steps and lengths are then in units of what is learnt, so
            that pi / 2 is a quarter turn.
        num_warmup: First iterations, which adapt; at least 80 to learn a diagonal mass
            matrix, 135 for one of low rank.
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
    return hamiltonian.build(
        log_density,
        warmup.build(
            step_size,
            num_warmup=num_warmup,
            target_acceptance=target_acceptance,
            inverse_mass_matrix=inverse_mass_matrix,
        ),
        hamiltonian.fixed_or_length(
            step_size, num_steps, trajectory_length, num_warmup
        ),
        num_warmup=num_warmup,
        num_unadjusted=num_unadjusted,
        divergence_threshold=divergence_threshold,
    )


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
