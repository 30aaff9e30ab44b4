"""Parallel tempering: chains at several temperatures, which swap places.

A hot chain crosses between modes; swaps hand what it finds down to the cold ones.
Chains of the mesh are the ladder: c has temperature number c modulo their number.

References:
    Geyer (1991), Markov chain Monte Carlo maximum likelihood.
    Syed, Bouchard-Cote, Deligiannidis, Doucet (2022), Non-reversible parallel
    tempering, section 3 (swaps of even and odd pairs in turn).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from symjax import checks, energies, mesh
from symjax.types import Algorithm, Key, LogDensity, Params


class Info(NamedTuple):
    """What one transition did, as scalars.

    Attributes:
        acceptance_rate: Of the chain's own transition.
        is_accepted: Whether that moved.
        is_divergent: Whether it diverged.
        log_density: Log density after it and the swap, at temperature 1, in nats.
        step_size: What the transition used.
        temperature: Of this chain.
        is_swap_tried: Whether a swap with the next hotter chain was tried.
        swap_rate: The probability of that swap; 0 where none was tried.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]
    log_density: Float[Array, ""]
    step_size: Float[Array, ""]
    temperature: Float[Array, ""]
    is_swap_tried: Bool[Array, ""]
    swap_rate: Float[Array, ""]


def build(
    make: Callable[[LogDensity], Algorithm],
    log_density: LogDensity,
    *,
    temperatures: Sequence[float],
    swap_every: int = 1,
) -> Algorithm:
    """Parallel tempering around any Hamiltonian sampler.

    Chain c samples density^(1/T) with T = temperatures[c % K]. After every `swap_every`
    transitions neighbours on the ladder exchange their parameters with the probability
    that leaves the joint density as it is: pairs that begin at an even rung and those
    that begin at an odd one in turn. Each chain keeps its temperature and what it has
    adapted, so that the draws of temperature 1 are those of the chains 0, K, 2 K, ...:
    `leaf[::K]`.

    A swap gathers the parameters and gradients of all chains on every device. It takes
    no pass over the data, but of a sampler that keeps no tally of the density it is
    given, such as NUTS, one.

    Args:
        make: `log density -> Algorithm`, such as `lambda density: hmc.build(density,
            step_size=0.1, num_steps=10, num_warmup=500)`; each rung adapts its own
            step size. Its state must hold `log_density` and `gradient`.
        log_density: The density at temperature 1.
        temperatures: Of the rungs, from 1 upwards; `numpy.geomspace(1, 20, 8)` is a
            usual ladder. `swap_rates` says whether neighbours are near enough.
        swap_every: Transitions between swaps.

    Returns:
        `Algorithm`, for a multiple of K chains: `init` raises a `ValueError` for other
        numbers.

    Raises:
        ValueError: if the ladder does not begin with 1 and rise.

    Example:
        >>> algorithm = build(
        ...     make, log_density, temperatures=(1.0, 2.0, 4.0)
        ... )  # doctest: +SKIP
        >>> chains = run.sample(
        ...     key, algorithm, starts, data, num_draws=500
        ... )  # doctest: +SKIP
        >>> cold = jax.tree.map(lambda leaf: leaf[::3], chains.draws)  # doctest: +SKIP
    """  # noqa: DOC502
    checks.at_least(1, swap_every=swap_every)
    ladder = _check_ladder(temperatures)

    def rung() -> tuple[Any, Any]:
        index = mesh.chain_index() % len(ladder)
        return index, jnp.asarray(ladder, float)[index]

    def init(key: Key, params: Params, data: Any) -> Any:
        _check_chains(len(ladder))
        state = make(_Tempered(log_density, rung()[1])).init(key, params, data)
        _check_state(state)
        return state

    def step(key: Key, state: Any, data: Any) -> tuple[Any, Info]:
        index, temperature = rung()
        step_key, swap_key = jax.random.split(key)
        tempered = make(_Tempered(log_density, temperature))
        state, info = tempered.step(step_key, state, data)
        clock = mesh.same_in_all_chains(state.iteration)
        state, rate, is_tried = jax.lax.cond(
            clock % swap_every == 0,
            lambda: _swap(
                swap_key,
                state,
                index,
                ladder,
                clock // swap_every,
                log_density,
                data,
            ),
            lambda: (state, jnp.zeros(()), jnp.array(False)),
        )
        base = state.log_density * temperature
        of_step = (info.acceptance_rate, info.is_accepted, info.is_divergent)
        return state, Info(*of_step, base, info.step_size, temperature, is_tried, rate)

    # What is warmed up does not depend on the density.
    return Algorithm(init, step, make(log_density).num_warmup)


def _check_ladder(temperatures: Sequence[float]) -> np.ndarray:
    """The temperatures as an array.

    Raises:
        ValueError: if they do not begin with 1 and rise.
    """
    ladder = np.asarray(temperatures, float)
    if len(ladder) < 2 or ladder[0] != 1 or np.any(np.diff(ladder) <= 0):
        raise ValueError(
            "`temperatures` must be at least two numbers that begin with 1 and rise, "
            f"got {tuple(temperatures)}."
        )
    return ladder


def _check_chains(num_temperatures: int) -> None:
    """Require whole ladders of chains, where their number is known.

    Raises:
        ValueError: if one is not whole.
    """
    if mesh.knows_chains() and mesh.num_chains() % num_temperatures:
        raise ValueError(
            f"The chains must be a multiple of the {num_temperatures} `temperatures`, "
            f"got {mesh.num_chains()} chains."
        )


def _check_state(state: Any) -> None:
    """Require what a swap exchanges.

    Raises:
        TypeError: if the state of the sampler lacks it.
    """
    if not hasattr(state, "log_density") or not hasattr(state, "gradient"):
        raise TypeError(
            "`make` must build a sampler whose state holds `log_density` and "
            f"`gradient`, such as hmc, got {type(state).__module__}."
        )


def swap_rates(info: Info, num_temperatures: int) -> Float[np.ndarray, " pair"]:
    """How likely each rung's swap with the next hotter one is, in the mean.

    Args:
        info: Of a run, fields `(chain, iteration)`.
        num_temperatures: K.

    Returns:
        K - 1 probabilities. Below about 0.2 the neighbours are too far apart.
    """
    rates = np.asarray(info.swap_rate)
    tried = np.asarray(info.is_swap_tried)
    return np.array(
        [
            rates[i::num_temperatures][tried[i::num_temperatures]].mean()
            for i in range(num_temperatures - 1)
        ]
    )


class _Tally(NamedTuple):
    """A tally at temperature 1: samplers that are given others keep tallies of those.

    They do where `make` wraps the density in a function of its own.
    """

    cold: Any


class _Tempered(NamedTuple):
    """A log density divided by a temperature."""

    log_density: LogDensity
    temperature: Float[Array, ""]

    def __call__(self, params: Params, data: Any) -> Float[Array, ""]:
        return self.log_density(params, data) / self.temperature

    def tally(self, params: Params, data: Any) -> _Tally:
        return _Tally(energies.tally(self.log_density, params, data))

    def gain(
        self, params: Params, proposal: Params, data: Any, before: Any, after: Any
    ) -> Any:
        ends = params, proposal, data, before.cold, after.cold
        return energies.gain(self.log_density, *ends) / self.temperature

    def relative_to(self, start: Params, data: Any) -> Callable[[Params], Any]:
        relative = energies.relative_density(self.log_density, start, data)
        return lambda params: relative(params) / self.temperature


def _swap(
    key: Key,
    state: Any,
    index: Any,
    ladder: np.ndarray,
    turn: Any,
    density: LogDensity,
    data: Any,
) -> tuple[Any, Float[Array, ""], Bool[Array, ""]]:
    """Exchange parameters with the neighbour whose turn it is, or don't.

    Two large log densities are not subtracted, see `energies.gain`.

    Returns:
        The state, the probability, and whether the partner is the hotter one.
    """
    inverse = jnp.asarray(1 / ladder, float)
    is_lower = index % 2 == turn % 2
    other = jnp.where(is_lower, index + 1, index - 1)
    exists = (other >= 0) & (other < len(ladder))
    other = jnp.clip(other, 0, len(ladder) - 1)
    here = mesh.chain_index()
    partner = jnp.where(exists, here + other - index, here)
    own = state._replace(
        log_density=state.log_density / inverse[index],
        gradient=optax.tree.scale(1 / inverse[index], state.gradient),
    )
    tally: Any = getattr(state, "tally", None)
    is_kept = isinstance(tally, _Tally)
    if not is_kept:
        tally = _Tally(energies.tally(density, own.position, data))
    mine = (own.log_density, own.position, own.gradient, tally)
    theirs = jax.tree.map(lambda leaf: leaf[partner], mesh.gather_chains(mine))
    ends = mine[1], theirs[1], data, mine[3].cold, theirs[3].cold
    nats = (inverse[index] - inverse[other]) * energies.gain(density, *ends)
    rate = jnp.where(exists, jnp.exp(jnp.minimum(nats, 0.0)), 0.0)
    # Both of a pair look at the same answer, that of the colder one.
    answers = mesh.gather_chains(jax.random.uniform(key) < rate)
    is_swapped = answers[jnp.minimum(here, partner)]
    log_density, position, gradient, tally = jax.tree.map(
        lambda a, b: jnp.where(is_swapped, a, b), theirs, mine
    )
    state = state._replace(
        position=position,
        log_density=log_density * inverse[index],
        gradient=optax.tree.scale(inverse[index], gradient),
        **({"tally": tally} if is_kept else {}),
    )
    is_tried = exists & is_lower
    return state, jnp.where(is_tried, rate, 0.0), is_tried
