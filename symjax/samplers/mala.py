"""The Metropolis-adjusted Langevin algorithm: HMC with one leapfrog.

One leapfrog of step h proposes x + h^2/2 grad(x) + h n, which is a Langevin step of
e = h^2/2, and its change of energy is the log of MALA's acceptance ratio. blackjax's
`mala` computes that ratio from two large sums; here the change itself is computed.

References:
    Roberts, Tweedie (1996), Exponential convergence of Langevin distributions and their
    discrete approximations, section 1.4.
    Neal (2011), MCMC using Hamiltonian dynamics, section 5.2.
"""

import math

from symjax import checks, hamiltonian, warmup
from symjax.energies import InverseMassMatrix
from symjax.types import Algorithm, LogDensity


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    inverse_mass_matrix: InverseMassMatrix | str = 1.0,
    num_warmup: int = 0,
    target_acceptance: float = 0.574,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """MALA: propose x + e M^-1 grad(x) + sqrt(2 e M^-1) n, accept or refuse it.

    One transition costs one gradient and a forward pass. It moves by a step: thin its
    draws.

    Args:
        log_density: As in `samplers.hmc`.
        step_size: e, in squared units of the parameters, as in `samplers.sgld`; the
            first one if there is a warm-up. `Info.step_size` is h = sqrt(2 e), the
            leapfrog's.
        inverse_mass_matrix: As in `samplers.hmc`.
        num_warmup: First iterations, which adapt.
        target_acceptance: What the warm-up aims at; the default is optimal for many
            independent parameters.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.3)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """
    checks.positive(step_size=step_size)
    return hamiltonian.build(
        log_density,
        warmup.build(
            math.sqrt(2 * step_size),
            num_warmup=num_warmup,
            target_acceptance=target_acceptance,
            inverse_mass_matrix=inverse_mass_matrix,
        ),
        lambda iteration, size: 1,
        num_warmup=num_warmup,
        divergence_threshold=divergence_threshold,
    )
