"""Sequential Monte Carlo from the prior to the posterior, with the log evidence.

Particles drawn from the prior follow prior * likelihood^b while b goes from 0 to 1:
weighed, resampled, and moved by HMC at each b. No particle knows of a start or a
warm-up, so that it is an independent check of chains on small networks.

blackjax's parts are used: the solver for the next b, systematic resampling, and the HMC
kernel. Its `adaptive_tempered` kernel is not: it chooses the next b by particles from
before they are resampled and moved, leaves the last ones weighted, and keeps one step
size for prior and posterior.

References:
    Del Moral, Doucet, Jasra (2006), Sequential Monte Carlo samplers, section 3.3.
    Buchholz, Chopin, Jacob (2021), Adaptive tuning of Hamiltonian Monte Carlo within
    sequential Monte Carlo, sections 2 and 3.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import hmc
from blackjax.smc import ess, resampling, solver
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from symjax import checks, energies, trees
from symjax.types import Key, Params


_TARGET_ACCEPTANCE = 0.8


class Result(NamedTuple):
    """What the particles say.

    Attributes:
        particles: Draws of the posterior, equally weighted, leaves `(particle, ...)`.
        log_evidence: Log of the estimated evidence, in nats. The estimate of the
            evidence itself is nearly unbiased; repeat with other keys to see its error.
        exponents: b of the stages, from 0 to 1.
        acceptance: Mean acceptance rate of the moves of each stage.
    """

    particles: Params
    log_evidence: float
    exponents: Float[np.ndarray, " stage1"]
    acceptance: Float[np.ndarray, " stage"]


def sample(
    key: Key,
    log_prior: Callable[[Params], Float[Array, ""]],
    log_likelihood: Callable[[Params, Any], Float[Array, ""]],
    particles: Params,
    data: Any,
    *,
    num_moves: int = 10,
    num_steps: int = 10,
    target_ess: float = 0.7,
) -> Result:
    """Carry particles from the prior to the posterior.

    All on one device, with all data in one gradient: it costs particles * stages *
    `num_moves` * `num_steps` gradients, and the number of stages grows with the root of
    the number of parameters.

    Args:
        key: One key.
        log_prior: Normalised, in nats; else the evidence is off by its constant. This
            and the next must be hashable; with the same ones nothing is compiled again.
        log_likelihood: `(params, data) -> nats`, as a log posterior's `log_likelihood`.
        particles: Independent draws of the prior, leaves `(particle, ...)`.
        data: What the log likelihood takes.
        num_moves: HMC transitions of each particle in each stage.
        num_steps: Leapfrogs of a transition, of a step size that follows the
            acceptance rate, with the variances of the particles as inverse mass.
        target_ess: Share of the particles that each reweighing leaves effective,
            between 0 and 1; higher is slower and more accurate.

    Returns:
        The particles and the evidence.

    Raises:
        ValueError: if `target_ess` is not between 0 and 1, or the particles are fewer
            than 10 or give log likelihoods that are not finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_prior = lambda x: -jnp.sum(x**2 + jnp.log(2 * jnp.pi)) / 2
        >>> log_likelihood = lambda x, y: -jnp.sum((y - x) ** 2) / 2
        >>> start = jax.random.normal(jax.random.key(0), (100, 2))
        >>> result = sample(
        ...     jax.random.key(1), log_prior, log_likelihood, start, jnp.ones(2)
        ... )
    """
    checks.at_least(1, num_moves=num_moves, num_steps=num_steps)
    if not 0 < target_ess < 1:
        raise ValueError(f"`target_ess` must be between 0 and 1, got {target_ess}.")
    carry = _begin(log_likelihood, particles, data)
    exponents, acceptance, log_evidence = [0.0], [], 0.0
    while exponents[-1] < 1:
        stage_key = jax.random.fold_in(key, len(acceptance))
        carry, gain, rate = _stage(
            log_prior,
            log_likelihood,
            (num_moves, num_steps),
            target_ess,
            stage_key,
            carry,
            data,
        )
        exponent = float(carry[2])
        if not exponent > exponents[-1]:
            raise ValueError(
                f"`log_likelihood` varies too much over the particles: after "
                f"{exponents[-1]:.3g} no step towards 1 leaves a share of {target_ess} "
                "of them effective. Use more particles, or a smaller `target_ess`."
            )
        exponents.append(exponent)
        acceptance.append(float(rate))
        log_evidence += float(gain)
    return Result(carry[0], log_evidence, np.array(exponents), np.array(acceptance))


def _begin(
    log_likelihood: Callable[[Params, Any], Float[Array, ""]],
    particles: Params,
    data: Any,
) -> tuple[Params, Float[Array, " particle"], Float[Array, ""], Float[Array, ""]]:
    """Particles, their log likelihoods, b and the step size, as stages carry them.

    Raises:
        ValueError: if there are too few particles, or some have no likelihood.
    """
    num_particles = len(jax.tree.leaves(particles)[0])
    if num_particles < 10:
        raise ValueError(f"`particles` must be 10 or more, got {num_particles}.")
    particles = jax.tree.map(jnp.asarray, particles)
    values = jax.jit(jax.vmap(log_likelihood, (0, None)))(particles, data)
    if not np.isfinite(values).all():
        raise ValueError(
            "`particles` must have finite log likelihoods, but "
            f"{int(np.sum(~np.isfinite(values)))} of {num_particles} have not."
        )
    num_params = trees.size(particles) // num_particles
    return particles, values, jnp.zeros(()), jnp.asarray(num_params**-0.25)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _stage(
    log_prior: Callable[[Params], Float[Array, ""]],
    log_likelihood: Callable[[Params, Any], Float[Array, ""]],
    counts: tuple[int, int],
    target_ess: float,
    key: Key,
    carry: Any,
    data: Any,
) -> tuple[Any, Float[Array, ""], Float[Array, ""]]:
    """Weigh, resample and move; the gain of log evidence, and the acceptance rate."""
    particles, values, exponent, step_size = carry
    num_moves, num_steps = counts
    num_particles = len(values)
    resample_key, key = jax.random.split(key)
    particles, exponent, gain = _resample(
        resample_key, particles, values, exponent, target_ess
    )
    inverse_mass = jax.tree.map(lambda leaf: jnp.var(leaf, axis=0) + 1e-12, particles)
    metric = energies.metric(inverse_mass)

    def log_density(params: Params) -> Float[Array, ""]:
        return log_prior(params) + exponent * log_likelihood(params, data)

    def move(carry: Any, key: Key) -> tuple[Any, Float[Array, ""]]:
        states, step_size = carry
        kernel: Callable[..., Any] = hmc.build_kernel()
        states, info = jax.vmap(
            lambda key, state: kernel(
                key, state, log_density, step_size, metric, num_steps
            )
        )(jax.random.split(key, num_particles), states)
        rate = jnp.mean(info.acceptance_rate)
        # A factor of 1.2 from accepting all to accepting what is wanted.
        return (states, step_size * jnp.exp(rate - _TARGET_ACCEPTANCE)), rate

    states = jax.vmap(lambda params: hmc.init(params, log_density))(particles)
    keys = jax.random.split(key, num_moves)
    (states, step_size), rates = jax.lax.scan(move, (states, step_size), keys)
    particles = states.position
    values = jax.vmap(log_likelihood, (0, None))(particles, data)
    return (particles, values, exponent, step_size), gain, jnp.mean(rates)


def _resample(
    key: Key,
    particles: Params,
    values: Float[Array, " particle"],
    exponent: Float[Array, ""],
    target_ess: float,
) -> tuple[Params, Float[Array, ""], Float[Array, ""]]:
    """Particles drawn by the weights of the next b; b, and the gain of log evidence."""
    added = ess.ess_solver(
        lambda _: values, particles, target_ess, 1 - exponent, solver.dichotomy
    )
    # The last one is exactly 1, however the sum was rounded.
    exponent = jnp.where(added >= 1 - exponent, 1.0, exponent + added)
    log_weights = added * values
    total = logsumexp(log_weights)
    chosen = resampling.systematic(key, jnp.exp(log_weights - total), len(values))
    particles = jax.tree.map(lambda leaf: leaf[chosen], particles)
    return particles, exponent, total - jnp.log(len(values))
