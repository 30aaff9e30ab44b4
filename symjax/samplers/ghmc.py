"""Generalised HMC: one leapfrog a transition, a momentum that is kept; and MEADS.

The accept step is Neal's, without reversal most of the time; blackjax's
`nonreversible_slice_sampling`. blackjax's `ghmc` kernel subtracts two large energies,
and its `meads_adaptation` runs its chains itself on one device, in folds that adapt
each other. Here all chains adapt together, and only in the warm-up: what they learn is
then fixed, so that no fold is needed for the draws to be exact.

References:
    Horowitz (1991), A generalized guided Monte Carlo algorithm.
    Neal (2020), Non-reversibly updating a uniform [0,1] value for accept/reject.
    Hoffman, Sountsov (2022), Tuning-free generalized Hamiltonian Monte Carlo
    (MEADS), Algorithm 3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from blackjax.adaptation.meads_adaptation import maximum_eigenvalue
from blackjax.mcmc.integrators import velocity_verlet
from blackjax.mcmc.proposal import nonreversible_slice_sampling
from blackjax.util import generate_gaussian_noise
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, energies, hamiltonian, mesh
from symjax.hamiltonian import Info, Point
from symjax.types import Algorithm, Key, LogDensity, Params


LEAST_CHAINS = 4
"""Fewer do not tell a spread."""


_LEAST_GAIN = -60.0
"""In nats; what is lower is refused all the same."""


class Adaptation(NamedTuple):
    """Logs of what the chains find together, and their means over the second half.

    Attributes:
        step_size: Leapfrog step in units of `scale`.
        damping: How fast the momentum is forgotten, per unit of time.
        scale: Standard deviation of each parameter, like the parameters.
    """

    step_size: Float[Array, ""]
    damping: Float[Array, ""]
    scale: Params


class State(NamedTuple):
    """A chain between two transitions.

    Attributes:
        position: Parameters.
        log_density: There, in nats.
        gradient: Of the log density.
        tally: What the accept step compares.
        momentum: In units in which its variance is 1.
        slice: Neal's u, in (-1, 1), which decides what is accepted.
        iteration: Transitions made.
        adaptation: What the next transition uses.
    """

    position: Params
    log_density: Float[Array, ""]
    gradient: Params
    tally: Any
    momentum: Params
    slice: Float[Array, ""]
    iteration: Int[Array, ""]
    adaptation: Adaptation


def build(
    log_density: LogDensity,
    *,
    step_size: float | None = None,
    damping: float | None = None,
    num_warmup: int = 0,
    divergence_threshold: float = 1000.0,
) -> Algorithm:
    """Generalised HMC, its step size and damping given, or found by many chains.

    One transition refreshes the momentum a little, p <- sqrt(1 - a) p + sqrt(a) n with
    a = 1 - exp(-2 e damping), and takes one leapfrog of e: one gradient. A refusal
    turns the momentum round. Draws that follow one another are alike: thin them.

    With a warm-up (MEADS) the scale of each parameter is the chains' spread, e is 0.5 /
    sqrt(largest eigenvalue of the scaled gradients' second moment), and the damping 1 /
    sqrt(that of the scaled positions' covariance). Each of its iterations gathers all
    chains' parameters on every device. Sixteen chains or more.

    Args:
        log_density: As in `samplers.hmc`.
        step_size: e, in units of the parameters; only without a warm-up.
        damping: Per unit of time; only without a warm-up.
        num_warmup: First iterations, in which all chains adapt together.
        divergence_threshold: Rise of the energy, in nats, called a divergence.

    Returns:
        `Algorithm`; `init` raises a `ValueError` if a warm-up has too few chains.

    Raises:
        ValueError: if not exactly one of a warm-up and both numbers is given.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=0.5, damping=1.0)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """  # noqa: DOC502
    checks.positive(divergence_threshold=divergence_threshold)
    _check(step_size, damping, num_warmup)

    def init(key: Key, params: Params, data: Any) -> State:
        if num_warmup:
            _require_chains()
        momentum_key, slice_key = jax.random.split(key)
        first = Adaptation(
            jnp.log(jnp.asarray(step_size or 1e-3, float)),
            jnp.log(jnp.asarray(damping or 1.0, float)),
            optax.tree.zeros_like(params),
        )
        return State(
            *hamiltonian.evaluate(log_density, params, data),
            generate_gaussian_noise(momentum_key, params),
            jax.random.uniform(slice_key, minval=-1.0, maxval=1.0),
            jnp.array(0),
            first,
        )

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        adaptation = state.adaptation
        if num_warmup:
            adaptation = _adapt(state, num_warmup)
        return _transition(
            key,
            state._replace(adaptation=adaptation),
            log_density,
            data,
            divergence_threshold,
        )

    return Algorithm(init, step, num_warmup)


def _check(step_size: float | None, damping: float | None, num_warmup: int) -> None:
    """Require a warm-up, or what it would find.

    Raises:
        ValueError: if there are both or neither.
    """
    checks.positive(step_size=step_size, damping=damping)
    checks.at_least(0, num_warmup=num_warmup)
    given = (step_size is not None) + (damping is not None)
    if given != (0 if num_warmup else 2):
        raise ValueError(
            "Give either a `num_warmup` or both `step_size` and `damping`, got "
            f"{num_warmup}, {step_size} and {damping}."
        )


def _require_chains() -> None:
    """Require as many chains as a warm-up takes, where their number is known.

    Raises:
        ValueError: if there are fewer.
    """
    if mesh.knows_chains() and mesh.num_chains() < LEAST_CHAINS:
        raise ValueError(
            f"A warm-up of generalised HMC needs at least {LEAST_CHAINS} chains, "
            f"whose spread it uses; got {mesh.num_chains()}. Give `step_size` and "
            "`damping`, or use `hmc`."
        )


def _transition(
    key: Key, state: State, log_density: LogDensity, data: Any, threshold: float
) -> tuple[State, Info]:
    """Refresh the momentum, take a leapfrog, accept it or turn round."""
    size, damping, scale = jax.tree.map(jnp.exp, state.adaptation)
    share = -jnp.expm1(-2 * size * damping)
    fresh = generate_gaussian_noise(key, state.momentum)
    unit = jax.tree.map(
        lambda old, new: jnp.sqrt(1 - share) * old + jnp.sqrt(share) * new,
        state.momentum,
        fresh,
    )
    level = (state.slice + 1 + share / 2) % 2 - 1
    # At exactly 0 anything would be accepted, even what is not finite.
    level = jnp.where(level == 0, 1e-7, level)
    momentum = jax.tree.map(jnp.divide, unit, scale)
    proposal, end_momentum, change = _leapfrog(
        state, momentum, size, scale, log_density, data
    )
    _, is_divergent = hamiltonian.judge(change, proposal.log_density, threshold)
    # Of a refusal, blackjax multiplies exp(-gain) by zero: it has to be finite.
    gain = jnp.where(is_divergent, _LEAST_GAIN, jnp.maximum(-change, _LEAST_GAIN))
    back = jax.tree.map(jnp.negative, momentum)
    choose: Callable[..., Any] = nonreversible_slice_sampling
    ends = (Point(*state[:4]), back), (proposal, end_momentum)
    chosen, (is_accepted, acceptance, level) = choose(level, gain, *ends)
    point: Point = chosen[0]
    info = Info(
        acceptance,
        is_accepted,
        is_divergent,
        change,
        point.log_density,
        size,
        jnp.array(1),
    )
    momentum = jax.tree.map(jnp.multiply, chosen[1], scale)
    iteration = state.iteration + 1
    return State(*point, momentum, level, iteration, state.adaptation), info


def _leapfrog(
    state: State,
    momentum: Params,
    size: Float[Array, ""],
    scale: Params,
    log_density: LogDensity,
    data: Any,
) -> tuple[Point, Params, Float[Array, ""]]:
    """Where one step leads, with what momentum, and how it changes the energy."""
    inverse_mass_matrix = jax.tree.map(jnp.square, scale)
    metric = energies.metric(inverse_mass_matrix)
    make: Any = velocity_verlet
    verlet = make(lambda p: log_density(p, data), metric.kinetic_energy)
    end = verlet(hamiltonian.integrator_state(state, momentum), size)
    proposal = hamiltonian.arrive(log_density, data, end)
    kinetic = energies.kinetic_change(inverse_mass_matrix, momentum, end.momentum)
    gain = hamiltonian.gain(log_density, data, state, proposal)
    return proposal, end.momentum, kinetic - gain


def _adapt(state: State, num_warmup: int) -> Adaptation:
    """What all chains together say, in the warm-up; their mean from its middle on."""
    iteration = mesh.same_in_all_chains(state.iteration)
    num_averaged = jnp.maximum(1, iteration - num_warmup // 2 + 1)

    def look() -> Adaptation:
        seen = _look(state.position, state.gradient, iteration)
        return jax.tree.map(
            lambda old, new: old + (new - old) / num_averaged, state.adaptation, seen
        )

    return jax.lax.cond(iteration < num_warmup, look, lambda: state.adaptation)


def _look(
    position: Params, gradient: Params, iteration: Int[Array, ""] | Bool[Array, ""]
) -> Adaptation:
    """MEADS's rules, from the positions and gradients of all chains."""
    positions, gradients = mesh.gather_chains((position, gradient))
    spread = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), positions)
    # Chains that all start at one point have no spread yet.
    scale = jax.tree.map(lambda s: jnp.where(s > 0, s, 1.0), spread)
    slopes = jax.tree.map(jnp.multiply, gradients, scale)
    size = jnp.minimum(1.0, 0.5 / _root(slopes))
    centred = jax.tree.map(lambda x, s: (x - x.mean(0)) / s, positions, scale)
    damping = jnp.maximum(1 / _root(centred), 1 / ((iteration + 1) * size))
    return jax.tree.map(jnp.log, Adaptation(size, damping, scale))


def _root(matrix: Params) -> Float[Array, ""]:
    """Of the largest eigenvalue, which few chains may estimate below zero."""
    estimate: Callable[..., Any] = maximum_eigenvalue
    value = estimate(matrix)
    # Of zeros it is not a number, which `maximum` would let through.
    return jnp.sqrt(jnp.where(value > 1e-6, value, 1e-6))
