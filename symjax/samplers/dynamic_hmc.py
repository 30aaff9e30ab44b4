"""HMC with trajectories of changing length, which no period of the target can trap.

blackjax's `dynamic_hmc` counts whole leapfrogs at random, whatever the step size; here
it is the length that changes, so that it keeps its meaning while the step adapts.

References:
    Neal (2011), MCMC using Hamiltonian dynamics, section 3.2 (randomised lengths).
    Hoffman, Radul, Sountsov (2021), An adaptive MCMC scheme for setting trajectory
    lengths in Hamiltonian Monte Carlo, section 3.1 (Halton jitter).
"""

from typing import Any

import jax.numpy as jnp
from blackjax.mcmc.dynamic_hmc import halton_sequence
from jaxtyping import Array, Float, Int

from symjax import checks, hamiltonian, warmup
from symjax.energies import InverseMassMatrix
from symjax.types import Algorithm, LogDensity


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    trajectory_length: float,
    jitter: float = 1.0,
    inverse_mass_matrix: InverseMassMatrix | str = 1.0,
    num_warmup: int = 0,
    target_acceptance: float = 0.8,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """Jittered HMC: transition n has length L (1 + jitter (2 u_n - 1)).

    u_n is Halton's sequence in base 2, spread evenly over (0, 1) and the same for all
    chains, which then take about as many leapfrogs each. Lengths that don't depend on
    the state leave every transition exact.

    Args:
        log_density: As in `samplers.hmc`.
        step_size: Leapfrog step; the first one if there is a warm-up.
        trajectory_length: L, the mean length, rounded up to whole leapfrogs.
        jitter: Between 0, which is HMC, and 1: lengths from 0 to 2 L.
        inverse_mass_matrix: As in `samplers.hmc`.
        num_warmup: First iterations, which adapt.
        target_acceptance: What the warm-up aims at.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm`.

    Raises:
        ValueError: if `jitter` is not between 0 and 1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.5, trajectory_length=1.6)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """
    checks.positive(step_size=step_size, trajectory_length=trajectory_length)
    if not 0 <= jitter <= 1:
        raise ValueError(f"`jitter` must be between 0 and 1, got {jitter}.")
    first = hamiltonian.count_steps(trajectory_length, step_size)

    def count_leapfrogs(
        iteration: Int[Array, ""], size: Float[Array, ""]
    ) -> Int[Array, ""]:
        uniform: Any = halton_sequence(iteration)
        length = trajectory_length * (1 + jitter * (2 * uniform - 1))
        # Without a warm-up no limit holds.
        return hamiltonian.limited_count(
            length, 2 * first, num_warmup, iteration, jnp.asarray(size)
        )

    return hamiltonian.build(
        log_density,
        warmup.build(
            step_size,
            num_warmup=num_warmup,
            target_acceptance=target_acceptance,
            inverse_mass_matrix=inverse_mass_matrix,
        ),
        count_leapfrogs,
        num_warmup=num_warmup,
        divergence_threshold=divergence_threshold,
    )
