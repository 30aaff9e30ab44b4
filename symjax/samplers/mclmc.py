"""Microcanonical Langevin Monte Carlo: no accept step, a velocity of constant length.

It needs few gradients for each independent draw, but is unadjusted: its step size
biases it, and no R-hat shows that. The energy, which exact dynamics would leave as it
is, tells by how much it changes how coarse the steps are.

blackjax's kernel is not used: it answers a large change of energy with a fresh
direction, where turning round keeps what the dynamics keep. Nor is its tuner: on a
small network it settled at a step size that inflated the predictive spread by a third.
Here the step size follows the same rule, but the length after which the velocity is
forgotten is given.

References:
    Robnik, De Luca, Silverstein, Seljak (2023), Microcanonical Hamiltonian Monte Carlo,
    sections 3 and 4. Robnik, Seljak (2024), Fluctuation without dissipation:
    microcanonical Langevin Monte Carlo.
"""

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from blackjax.mcmc.integrators import IntegratorState
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, isokinetic, trees
from symjax.types import Algorithm, Key, LogDensity, Params


LIMIT = 10.0
"""A step is refused if its energy changes by more than this many times the root mean
square that the warm-up aims at.

On the digits (5,370 weights, four chains of 8,000 steps at a target of 5e-4) steps
without the limit changed the energy by up to 10,000 nats, and the log density fell by
3,000. With it 4 to 176 of 16,000 steps are refused and the log density falls by 250; at
1e-4, the default, 4 to 25, and by 200. The spread of predictions is then 0.0454,
and 0.0460 by HMC.
"""

_MEMORY = 150
"""Steps over which the energy changes are averaged, while the step size adapts."""

_TRUST = 1.5
"""In nats of the step size: how far from the target an energy change still counts."""


_NO_LIMIT = 1e30
"""Of the step size, until it diverges; finite, as all of a state must be."""


class Adaptation(NamedTuple):
    """What the warm-up knows; step sizes are relative to the first.

    Attributes:
        weight: Sum of the weights of past steps.
        error: Sum of what they say of the energy's error, for steps of size 1.
        largest: What no step size may exceed.
        log_mean: Mean of the logs of the step sizes in the second half.
    """

    weight: Float[Array, ""]
    error: Float[Array, ""]
    largest: Float[Array, ""]
    log_mean: Float[Array, ""]


class State(NamedTuple):
    """A chain between two steps; `momentum` is the direction of motion, of length 1."""

    position: Params
    momentum: Params
    log_density: Float[Array, ""]
    gradient: Params
    iteration: Int[Array, ""]
    step_size: Float[Array, ""]
    adaptation: Adaptation


class Info(NamedTuple):
    """What one step did, as scalars.

    Attributes:
        energy_change: By the integrator's error, in nats, 0 if not finite. Its mean
            square for each parameter is what the warm-up brings to the target.
        is_divergent: It was beyond `LIMIT`, or not finite; the chain stays, and turns
            round.
        log_density: Of the state after the step, in nats.
        step_size: The way of this step.
    """

    energy_change: Float[Array, ""]
    is_divergent: Bool[Array, ""]
    log_density: Float[Array, ""]
    step_size: Float[Array, ""]


def build(
    log_density: LogDensity,
    *,
    step_size: float,
    decoherence_length: float,
    num_warmup: int = 0,
    target_energy_variance: float = 1e-4,
) -> Algorithm:
    """MCLMC: an unadjusted sampler, biased by its step size.

    One step is one of McLachlan's integrator, at the cost of two gradients, with half a
    refreshment of the direction before and after. Draws that follow one another are
    alike: thin them.

    During the first `num_warmup` steps the step size h is set so that the mean square
    of the energy change, which grows as h^6, is `target_energy_variance` for each
    parameter. Bias grows with it. A step whose energy changes by more than `LIMIT`
    times the root of that is refused: where the posterior is steep, steps near the edge
    of stability would climb thousands of nats.

    Args:
        log_density: `(params, data) -> nats`.
        step_size: h, the way of one step, Euclidean over all parameters together; the
            first one if there is a warm-up. A quarter of L is a usual one.
        decoherence_length: L, the way after which the direction is forgotten.
            `rule_length` is the usual first choice.
        num_warmup: First steps, which adapt the step size and are not kept.
        target_energy_variance: Nats squared for each parameter; the limit follows it
            without a warm-up too.

    Returns:
        `Algorithm`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> log_density = lambda x, data: -jnp.sum(x**2) / 2
        >>> algorithm = build(log_density, step_size=1.0, decoherence_length=2.0)
        >>> state = algorithm.init(jax.random.key(0), jnp.zeros(3), None)
        >>> state, info = jax.jit(algorithm.step)(jax.random.key(1), state, None)
    """
    checks.positive(
        step_size=step_size,
        decoherence_length=decoherence_length,
        target_energy_variance=target_energy_variance,
    )
    checks.at_least(0, num_warmup=num_warmup)

    def init(key: Key, params: Params, data: Any) -> State:
        isokinetic.require_two_numbers(params, "MCLMC")
        direction = isokinetic.unit_vector(key, params)
        value, gradient = jax.value_and_grad(log_density)(params, data)
        adaptation = Adaptation(
            jnp.zeros(()), jnp.zeros(()), jnp.array(_NO_LIMIT), jnp.zeros(())
        )
        size = jnp.array(step_size)
        return State(params, direction, value, gradient, jnp.array(0), size, adaptation)

    def step(key: Key, state: State, data: Any) -> tuple[State, Info]:
        new, change = _move(key, state, log_density, data, decoherence_length)
        is_finite = trees.is_finite((new, change))
        change = jnp.where(is_finite, change, 0.0)
        squares = change**2 / (trees.size(state.position) * target_energy_variance)
        is_divergent = ~is_finite | (squares > LIMIT**2)
        back = _integrator_state(state)._replace(
            momentum=optax.tree.scale(-1.0, state.momentum)
        )
        point: Any = optax.tree.where(is_divergent, back, new)
        adaptation, next_size = _learn(state, squares, is_finite, step_size, num_warmup)
        info = Info(change, is_divergent, point.logdensity, state.step_size)
        position, momentum, value, gradient = point
        now = state.iteration + 1, next_size, adaptation
        return State(position, momentum, value, gradient, *now), info

    return Algorithm(init, step, num_warmup)


def _move(
    key: Key,
    state: State,
    log_density: LogDensity,
    data: Any,
    decoherence_length: float,
) -> tuple[Any, Float[Array, ""]]:
    """One step with half a refreshment on both sides; its change of energy."""
    keys = jax.random.split(key)
    share = state.step_size / (2 * decoherence_length)
    start = _integrator_state(state)
    turned = isokinetic.refresh(keys[0], start.momentum, share)
    advance = isokinetic.build_step(lambda params: log_density(params, data))
    new, kinetic = advance(start._replace(momentum=turned), state.step_size)
    turned = isokinetic.refresh(keys[1], new.momentum, share)
    change = kinetic - (new.logdensity - start.logdensity)
    return new._replace(momentum=turned), change


def _integrator_state(state: State) -> Any:
    return cast("Any", IntegratorState)(
        state.position, state.momentum, state.log_density, state.gradient
    )


def rule_length(posterior_std: float, num_params: int) -> float:
    """The way across the typical set: posterior std times the root of the dimension.

    Args:
        posterior_std: Of a parameter; that of the prior where nothing better is known.
        num_params: How many parameters.

    References:
        Robnik et al. (2023), section 4.
    """
    return posterior_std * math.sqrt(num_params)


def _learn(
    state: State,
    squares: Float[Array, ""],
    is_finite: Bool[Array, ""],
    first_size: float,
    num_warmup: int,
) -> tuple[Adaptation, Float[Array, ""]]:
    """What the warm-up knows after a step, and the next step size; then both stay."""
    adaptation, relative = _adapt(
        state.adaptation,
        state.step_size / first_size,
        squares,
        ~is_finite,
        state.iteration - num_warmup // 2,
    )
    is_last = state.iteration + 1 >= num_warmup
    relative = jnp.where(is_last, jnp.exp(adaptation.log_mean), relative)
    return jax.tree.map(
        lambda new, old: jnp.where(state.iteration < num_warmup, new, old),
        (adaptation, first_size * relative),
        (state.adaptation, state.step_size),
    )


def _adapt(
    adaptation: Adaptation,
    step_size: Float[Array, ""],
    squares: Float[Array, ""],
    is_divergent: Bool[Array, ""],
    num_averaged: Int[Array, ""],
) -> tuple[Adaptation, Float[Array, ""]]:
    """The next step size, if `squares` is the energy's square in units of its target.

    It grows as h^6, so that each step estimates the h that meets the target. Steps far
    from it count little; a divergence cuts the step size for good. Errors of a network
    are small for long and then large for a few steps, and the step size goes up and
    down with them: what is kept is the mean over the second half.
    """
    squares = squares + 1e-8
    weight = jnp.exp(-(jnp.log(squares) ** 2) / (2 * (6 * _TRUST) ** 2))
    weight = jnp.where(is_divergent, 0.0, weight)
    keep = (_MEMORY - 1) / (_MEMORY + 1)
    total = keep * adaptation.weight + weight
    error = keep * adaptation.error + weight * squares / step_size**6
    largest = jnp.where(is_divergent, 0.8 * step_size, adaptation.largest)
    wanted = jnp.where(total > 0, (error / total) ** (-1 / 6), step_size)
    wanted = jnp.minimum(wanted, largest)
    share = 1 / jnp.maximum(1, num_averaged + 1)
    log_mean = (1 - share) * adaptation.log_mean + share * jnp.log(wanted)
    return Adaptation(total, error, largest, log_mean), wanted
