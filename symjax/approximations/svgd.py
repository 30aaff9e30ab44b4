"""Particles that repel each other: SVGD in weight space, or in that of the functions.

Every particle is a network; together they stand for the posterior. With k(a, b) =
exp(-|a - b|^2 / h), h = median^2 / log n of the distances between the n particles, each
step climbs along phi. In weight space that is Stein variational gradient descent,

    phi_i = 1/n sum_j [k(w_j, w_i) grad log p(w_j) + grad_{w_j} k(w_j, w_i)],

and among functions the repulsive ensemble's kernel density flow,

    phi_i = grad log p(w_i) - J_i^T sum_j grad_{f_i} k(f_i, f_j) / sum_j k(f_i, f_j),

with f_i the outputs at some inputs and J_i their Jacobian. There the likelihood's part
is the paper's, J^T times the functional gradient; the prior is that of the weights,
where the paper estimates one of functions. Networks that are permuted versions of one
another repel each other in weight space; among functions they are one.

In many dimensions SVGD's particles come together: their variance is too small, the more
so the fewer they are beside the dimensions (Ba et al. 2022, The limitations of SVGD).

blackjax's `svgd` moves all particles in one state on one device, and forms each pair's
gradient by itself. Here each is a member, on any device, and a pair costs a number.

References:
    Liu, Wang (2016), Stein variational gradient descent, Algorithm 1, section 5.
    D'Angelo, Fortuin (2021), Repulsive deep ensembles are Bayesian, sections 3 and 4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symjax import checks, mesh
from symjax.approximations import descent
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


class State(NamedTuple):
    """A particle during its way."""

    position: Params
    optimiser: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Log posterior before the step in nats; an estimate if minibatched.
        bandwidth: h, in squared units of the weights or of the outputs.
    """

    log_density: Float[Array, ""]
    bandwidth: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    space: str = "weights",
    batch_size: int | None = None,
    inputs: Any = None,
) -> Approximation:
    """SVGD, or a repulsive ensemble of functions, one particle a member.

    The objective is as in `ensemble`, divided by the number of examples; a single
    particle climbs as a member there does. All particles take the same batch.

    A step costs a gradient, and among functions about two. Every device holds all
    particles' parameters and gradients for it; among functions all particles' outputs
    at the batch, the whole data set included, whatever the micro-batch.

    Args:
        log_posterior: What the particles stand for, its temperature included.
        optimiser: An optax optimiser, schedule included.
        space: Where particles repel each other: `weights` or `functions`.
        batch_size: Examples a step takes; None for the whole data set.
        inputs: Where functions are compared, `(input, ...)`; None for the inputs of the
            step's examples.

    Returns:
        `Approximation` whose `sample` returns the particle itself.

    Raises:
        ValueError: if `space` is none of the two, or `inputs` are given for weights.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.adam(1e-2), batch_size=64
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, batch_size=batch_size)
    if space not in ("weights", "functions"):
        raise ValueError(f"`space` must be weights or functions, got {space!r}.")
    if inputs is not None and space == "weights":
        raise ValueError(
            "`inputs` must be left out for space='weights', which compares no outputs."
        )

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        return State(params, optimiser.init(params))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        density, batch = _choose(log_posterior, key, data, batch_size)
        value, gradient = jax.value_and_grad(density)(state.position)
        if space == "weights":
            climb, bandwidth = _stein(state.position, gradient)
        else:
            push, bandwidth = _repel(log_posterior.apply, state.position, batch, inputs)
            climb = optax.tree.add(gradient, push)
        new = descent.climb(optimiser, climb, *state, data)
        return State(*new), Info(value, bandwidth)

    def sample(key: Key, state: State) -> Params:
        del key
        return state.position

    return Approximation(init, step, sample)


def _choose(
    log_posterior: LogPosterior, key: Key, data: Data, batch_size: int | None
) -> tuple[Callable[[Params], Float[Array, ""]], Data]:
    """The log density of a step, and its examples: the same ones for all particles."""
    if batch_size is None:
        return descent.estimate(log_posterior, None, key, data), data
    words = mesh.gather_chains(jax.random.key_data(key))[0]
    shared = jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
    num_examples = mesh.count_examples(data)
    indices = jax.random.randint(shared, (batch_size,), 0, num_examples)
    weight = num_examples / batch_size
    return (
        lambda params: log_posterior.batch(params, data, indices, weight),
        mesh.take(data, indices),
    )


def _stein(position: Params, gradient: Params) -> tuple[Params, Float[Array, ""]]:
    """SVGD's direction, and the bandwidth."""
    positions, gradients = mesh.gather_chains((position, gradient))
    squares = [
        jnp.sum(jnp.square(all - own), axis=range(1, all.ndim))
        for own, all in zip(*map(jax.tree.leaves, (position, positions)), strict=True)
    ]
    kernel, bandwidth = _kernel(sum(squares, start=jnp.zeros(())))

    def along(own: Array, all: Array, slopes: Array) -> Array:
        """Both parts, the second 2 / h sum_j k_ij (w_i - w_j)."""
        drive = jnp.tensordot(kernel, slopes, 1, precision="highest")
        others = jnp.tensordot(kernel, all, 1, precision="highest")
        push = jnp.sum(kernel) * own - others
        return (drive + 2 / bandwidth * push) / len(kernel)

    return jax.tree.map(along, position, positions, gradients), bandwidth


def _repel(
    apply: Callable[[Params, Any], Any], position: Params, batch: Data, inputs: Any
) -> tuple[Params, Float[Array, ""]]:
    """The gradient of minus the log of the particles' density of functions.

    Of the batch each device knows its own examples, of given inputs all.
    """
    is_given = inputs is not None
    total = (lambda part: part) if is_given else mesh.sum_over_data
    x = inputs if is_given else batch.x
    outputs, pull = jax.vjp(lambda params: apply(params, x), position)
    if not is_given:
        is_row = batch.mask.reshape(-1, *[1] * (outputs.ndim - 1))
        outputs = jnp.where(is_row, outputs, 0)
    every = mesh.gather_chains(outputs)
    squares = jnp.sum(jnp.square(every - outputs), axis=range(1, every.ndim))
    kernel, bandwidth = _kernel(total(squares))
    share = kernel / jnp.sum(kernel)
    others = jnp.tensordot(share, every, 1, precision="highest")
    # Masked rows are zero in all particles, so that nothing is pulled back from them.
    (push,) = pull(2 / bandwidth * (outputs - others))
    return total(push), bandwidth


def _kernel(
    squares: Float[Array, " chain"],
) -> tuple[Float[Array, " chain"], Float[Array, ""]]:
    """Of squared distances to all particles: the kernel, and the median's bandwidth."""
    num_particles = mesh.num_chains()
    if num_particles == 1:
        return jnp.ones(1), jnp.ones(())
    rows, columns = jnp.tril_indices(num_particles, k=-1)
    pairs = mesh.gather_chains(squares)[rows, columns]
    # The square of the median, as blackjax has it: not the median of the squares.
    median = jnp.square(jnp.median(jnp.sqrt(pairs)))
    bandwidth = median / jnp.log(float(num_particles))
    # Particles that all start at one point do not repel each other.
    bandwidth = jnp.where(bandwidth > 0, bandwidth, 1.0)
    return jnp.exp(-squares / bandwidth), bandwidth
