"""The leapfrogs of a Hamiltonian trajectory, with few copies of the parameters.

blackjax's integrators hold more: they end each step with half a kick, and XLA keeps
what a step began with until it has ended.

References:
    Neal (2011), MCMC using Hamiltonian dynamics, section 5.2.3.3, and the program in
    figure 5.2, which joins half kicks too.
"""

from collections.abc import Callable
from typing import Any

import jax
from blackjax.mcmc.integrators import IntegratorState
from jaxtyping import Array, Float, Int

from symjax import energies
from symjax.energies import InverseMassMatrix
from symjax.types import Params


def integrate(
    log_density: Callable[[Params], Float[Array, ""]],
    inverse_mass_matrix: InverseMassMatrix,
    begin: Any,
    step_size: Float[Array, ""],
    num_leapfrogs: Int[Array, ""] | int,
) -> Any:
    """Leapfrogs whose half kicks between two gradients are one kick.

    The numbers are those of blackjax's `velocity_verlet` up to rounding.

    Args:
        log_density: `params -> nats`.
        inverse_mass_matrix: M^-1.
        begin: blackjax's `IntegratorState`.
        step_size: Of a leapfrog.
        num_leapfrogs: At least 1.

    Returns:
        The end, likewise.
    """

    def kick(state: Any, size: Float[Array, ""]) -> Params:
        return _along(state.momentum, size, state.logdensity_grad)

    def leapfrog(_: Any, state: Any) -> Any:
        velocity = energies.velocity(inverse_mass_matrix, state.momentum)
        position = _along(state.position, step_size, velocity)
        found = position, state.momentum, *jax.value_and_grad(log_density)(position)
        state = make(*found)
        return state._replace(momentum=kick(state, step_size))

    make: Any = IntegratorState
    momentum = kick(begin, step_size / 2)
    # Where nothing ties them to the momentum, XLA copies the others before it draws the
    # momentum, which takes memory of its own.
    position = _along(begin.position, 0.0, momentum)
    gradient = _along(begin.logdensity_grad, 0.0, momentum)
    begin = make(position, momentum, begin.logdensity, gradient)
    end = jax.lax.fori_loop(0, num_leapfrogs, leapfrog, begin)
    return end._replace(momentum=kick(end, -step_size / 2))


def _along(params: Params, size: Float[Array, ""] | float, direction: Params) -> Params:
    return jax.tree.map(lambda x, d: x + size * d, params, direction)
