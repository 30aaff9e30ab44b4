"""ChEES-HMC: jittered HMC whose chains adapt one step size and one length together.

blackjax's `chees_adaptation` runs its chains itself, all on one device; here each chain
takes its step and the chains meet in sums. Its jitter and its optimiser are the same.

References:
    Hoffman, Radul, Sountsov (2021), An adaptive MCMC scheme for setting trajectory
    lengths in Hamiltonian Monte Carlo, sections 3 and 4, Algorithm 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.mcmc.dynamic_hmc import halton_sequence
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, energies, hamiltonian, mesh, warmup
from symjax.hamiltonian import Info, Point
from symjax.types import Algorithm, Key, LogDensity, Params


_CLIP = 0.35
"""Most that the log of the length changes in an iteration, as in blackjax."""

_DECAY = 0.5
"""Iteration n has the weight n^-0.5 in the running mean of the log of the length."""


class State(NamedTuple):
    """A chain between two transitions; what follows `adaptation` is of the length.

    Attributes:
        position: Parameters.
        log_density: There, in nats.
        gradient: Of the log density.
        tally: What the accept step compares.
        iteration: Transitions made.
        adaptation: Of the step size.
        log_length: Log of the mean trajectory length, as last moved.
        mean_log_length: Its running mean, which is kept after the warm-up.
        optimiser: Adam's state.
    """

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    tally: Any
    iteration: Int[Array, ""]
    adaptation: warmup.Adaptation
    log_length: Float[Array, ""]
    mean_log_length: Float[Array, ""]
    optimiser: Any


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    num_warmup: int,
    trajectory_length: float | None = None,
    max_num_steps: int = 1000,
    target_acceptance: float = 0.651,
    learning_rate: float = 0.025,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """ChEES-HMC, for many chains: no chain waits for another's trajectory.

    Transition n has length 2 u_n L, u_n from Halton's sequence. In the warm-up the
    chains move L up the gradient of the change in the expected square, ChEES = E[(|x' -
    E x'|^2 - |x - E x|^2)^2] / 4, and their step size towards the target of the
    harmonic mean of their acceptance. Afterwards both stand still. The mass is 1.

    Ten chains or more tell the criterion well; a single one tells nothing of it, and is
    refused.

    Args:
        log_density: As in `samplers.hmc`.
        step_size: The first one.
        num_warmup: First iterations, which adapt.
        trajectory_length: The first L; by default the first step size.
        max_num_steps: Most leapfrogs of a trajectory.
        target_acceptance: Of the harmonic mean; the default is optimal for HMC in high
            dimension.
        learning_rate: Of Adam, on the log of L.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm`; `init` raises a `ValueError` for a single chain on a mesh.

    Example:
        >>> algorithm = build(
        ...     log_density, step_size=0.1, num_warmup=500
        ... )  # doctest: +SKIP
        >>> chains = run.sample(
        ...     key, algorithm, starts, data, num_draws=500
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, num_warmup=num_warmup, max_num_steps=max_num_steps)
    checks.positive(
        trajectory_length=trajectory_length,
        learning_rate=learning_rate,
        divergence_threshold=divergence_threshold,
    )
    adapting = warmup.build(
        step_size, num_warmup=num_warmup, target_acceptance=target_acceptance
    )
    optimiser = optax.adam(learning_rate, b1=0.0, b2=0.95)
    first_length = trajectory_length or step_size

    def init(key: Key, params: Params, data: Any) -> State:
        del key
        _require_several_chains()
        point = hamiltonian.evaluate(log_density, params, data)
        length = jnp.log(jnp.asarray(first_length, float))
        of_length = length, length, optimiser.init(length)
        return State(*point, jnp.array(0), adapting.init(params), *of_length)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        is_warmup = state.iteration < num_warmup
        size = state.adaptation.step_size
        time = _time(state, is_warmup)
        count = _count(time / size, max_num_steps)
        point, outcome, end = hamiltonian.transition(
            key,
            Point(*state[:4]),
            log_density,
            data,
            step_size=size,
            inverse_mass_matrix=1.0,
            num_leapfrogs=count,
            divergence_threshold=divergence_threshold,
        )
        adaptation = adapting.update(
            state.adaptation,
            point.position,
            point.gradient,
            state.iteration,
            _harmonic_mean(outcome.acceptance_rate),
        )
        slope = time * _slope(state.position, end, outcome.acceptance_rate)
        of_length = _climb(slope, state, is_warmup, optimiser, max_num_steps * size)
        info = Info(*outcome, point.log_density, size, count)
        return State(*point, state.iteration + 1, adaptation, *of_length), info

    return Algorithm(init, step, num_warmup)


def _require_several_chains() -> None:
    """Require more than one chain, where their number is known.

    Raises:
        ValueError: if there is one.
    """
    if mesh.knows_chains() and mesh.num_chains() == 1:
        raise ValueError(
            "ChEES needs several chains, whose spread tells it the length; got 1. "
            "Use `dynamic_hmc` or `nuts` for one."
        )


def _time(state: State, is_warmup: Bool[Array, ""]) -> Float[Array, ""]:
    """The length of the next trajectory, the same in all chains."""
    log_length = jnp.where(is_warmup, state.log_length, state.mean_log_length)
    uniform: Any = halton_sequence(state.iteration)
    return 2 * uniform * jnp.exp(log_length)


def _count(steps: Float[Array, ""], most: int) -> Int[Array, ""]:
    """Leapfrogs, from how many steps the length is; known to be equal in all chains."""
    return mesh.same_in_all_chains(jnp.clip(jnp.ceil(steps).astype(int), 1, most))


def _climb(
    slope: Float[Array, ""],
    state: State,
    is_warmup: Bool[Array, ""],
    optimiser: optax.GradientTransformation,
    most: Float[Array, ""],
) -> Any:
    """The next log of the length, at most that of `most`; its mean; Adam's state.

    After the warm-up, those of `state`.
    """
    update, moved = optimiser.update(-slope, state.optimiser)
    change: Any = optax.tree.clip(update, -_CLIP, _CLIP)
    length = jnp.minimum(state.log_length + change, jnp.log(most))
    weight = (state.iteration + 1.0) ** -_DECAY
    mean = (1 - weight) * state.mean_log_length + weight * length
    kept = state.log_length, state.mean_log_length, state.optimiser
    return optax.tree.where(is_warmup, (length, mean, moved), kept)


def _harmonic_mean(acceptance_rate: Float[Array, ""]) -> Float[Array, ""]:
    """Over the chains; one that refuses everything pulls it to almost nothing."""
    inverse = 1 / jnp.maximum(acceptance_rate, 1e-3)
    return mesh.num_chains() / mesh.sum_over_chains(inverse)


def _slope(start: Params, end: Any, acceptance_rate: Any) -> Float[Array, ""]:
    """The derivative of ChEES by the time of a trajectory, from all chains.

    A proposal counts by its probability of being accepted (their eq. 7); one that is
    not finite does not count.
    """
    weight = jnp.where(jnp.isfinite(end.logdensity), acceptance_rate, 0.0)
    proposal, momentum = jax.tree.map(
        lambda leaf: jnp.where(weight > 0, leaf, 0.0), (end.position, end.momentum)
    )
    total = mesh.sum_over_chains(weight) + 1e-20
    sums = mesh.sum_over_chains((optax.tree.scale(weight, proposal), start))
    after = optax.tree.sub(proposal, optax.tree.scale(1 / total, sums[0]))
    before = optax.tree.sub(start, optax.tree.scale(1 / mesh.num_chains(), sums[1]))
    gain = optax.tree.norm(after, squared=True) - optax.tree.norm(before, squared=True)
    along = optax.tree.vdot(after, energies.velocity(1.0, momentum))
    return mesh.sum_over_chains(weight * gain * along) / total
