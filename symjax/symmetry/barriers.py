"""Loss barriers: what happens to a loss on the straight line between two networks.

References:
    Entezari, Sedghi, Saukh, Neyshabur (2022), The role of permutation invariance in
    linear mode connectivity of neural networks, definition 2.1; Frankle, Dziugaite,
    Roy, Carbin (2020), Linear mode connectivity and the lottery ticket hypothesis,
    section 2.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symjax import checks
from symjax.densities import categorical
from symjax.symmetry.batches import batches
from symjax.types import Data, Params


Measure: TypeAlias = Callable[[Params, Data], Any]
"""`(params, data) -> (example,)`: one number an example, or a pytree of several."""


class Curve(NamedTuple):
    """Measures along the line from one network to another.

    Attributes:
        positions: From 0, the first network, to 1, the other.
        values: The mean over the examples at each position, of each measure.
    """

    positions: Float[np.ndarray, " position"]
    values: Any


def interpolate(
    params: Params, other: Params, position: float | Float[Array, ""]
) -> Params:
    """The network at a position on the line: `(1 - position) params + position other`.

    Leaves of whole numbers stay those of `params`.

    Args:
        params: The network at 0.
        other: That at 1.
        position: Where; `jax.vmap` over an array.
    """

    def between(one: Any, two: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(one), jnp.inexact):
            return one
        return ((1 - position) * one + position * two).astype(jnp.result_type(one))

    return jax.tree.map(between, params, other)


def classification(apply: Callable[[Params, Any], Any]) -> Measure:
    """The loss (nats) and the error (0 or 1) of a classifier.

    Args:
        apply: `(params, x) -> logits (example, class)`.
    """

    def measure(params: Params, data: Data) -> dict[str, Float[Array, " example"]]:
        logits = apply(params, data.x)
        wrong = jnp.argmax(logits, axis=-1) != data.y
        loss = -categorical(logits, jnp.asarray(data.y))
        return {"loss": loss, "error": wrong.astype(loss.dtype)}

    return measure


def curve(
    measure: Measure,
    params: Params,
    other: Params,
    data: Data,
    *,
    num: int = 25,
    batch_size: int = 1024,
) -> Curve:
    """Mean measures at equally spaced positions between two networks, ends included.

    Args:
        measure: What to measure, such as `classification(apply)`.
        params: The network at 0.
        other: That at 1, aligned or not.
        data: Examples to measure on: those of training, or of a test.
        num: How many positions.
        batch_size: Examples at a time.

    Returns:
        The curve.

    Example:
        >>> data = Data(np.ones((2, 1)), np.zeros(2), np.ones(2, bool))
        >>> square = lambda params, data: params**2 * data.x[:, 0]
        >>> found = curve(square, jnp.array(-1.0), jnp.array(1.0), data, num=5)
        >>> found.values.tolist()
        [1.0, 0.25, 0.0, 0.25, 1.0]
    """
    checks.at_least(2, num=num)
    checks.at_least(1, batch_size=batch_size)
    positions = jnp.linspace(0, 1, num)
    size = min(batch_size, len(data.mask))
    values = _along(measure, size, params, other, data, positions)
    return Curve(np.asarray(positions), jax.tree.map(np.asarray, values))


def mean(
    measure: Measure, params: Params, data: Data, *, batch_size: int = 1024
) -> Any:
    """The mean of each measure over the examples.

    Args:
        measure: What to measure.
        params: One network.
        data: The examples.
        batch_size: Examples at a time.
    """
    return _mean(measure, min(batch_size, len(data.mask)), params, data)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _mean(measure: Measure, size: int, params: Params, data: Data) -> Any:
    num_rows = len(data.mask)

    def of_batch(index: Array) -> Any:
        # The last batch reaches back into the one before it, and masks what it repeats.
        start = jnp.minimum(index * size, num_rows - size)
        batch = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), data
        )
        counted = batch.mask & (start + jnp.arange(size) >= index * size)
        return jax.tree.map(
            lambda values: jnp.sum(jnp.where(counted, values, 0)),
            measure(params, batch),
        )

    sums = jax.lax.map(of_batch, jnp.arange(-(-num_rows // size)))
    return jax.tree.map(lambda leaf: jnp.sum(leaf) / jnp.sum(data.mask), sums)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _along(
    measure: Measure,
    size: int,
    params: Params,
    other: Params,
    data: Data,
    positions: Float[Array, " position"],
) -> Any:
    def at(position: Array) -> Any:
        return _mean(measure, size, interpolate(params, other, position), data)

    return jax.lax.map(at, positions)


def barrier(found: Curve) -> Any:
    """The height of each curve above the straight line between its ends.

    max over positions t of f(t) - (1 - t) f(0) - t f(1): at least 0, and 0 where the
    curve is convex.

    Example:
        >>> values = {"loss": np.array([1.0, 3.0, 2.0])}
        >>> barrier(Curve(np.array([0.0, 0.5, 1.0]), values))
        {'loss': 1.5}
    """
    t = found.positions

    def height(values: Float[np.ndarray, " position"]) -> float:
        return float(np.max(values - (1 - t) * values[0] - t * values[-1]))

    return jax.tree.map(height, found.values)


def loss_barrier(
    measure: Measure,
    params: Params,
    other: Params,
    data: Data,
    *,
    num: int = 25,
    batch_size: int = 1024,
) -> Any:
    """The barrier of each measure between two networks: `barrier` of the `curve`."""
    found = curve(measure, params, other, data, num=num, batch_size=batch_size)
    return barrier(found)


def reestimate_batch_norm(
    update: Callable[[Params, Any], Params],
    params: Params,
    x: Any,
    *,
    batch_size: int = 1024,
) -> Params:
    """Give a merged network the normalisation statistics of its own activations.

    Interpolated running statistics are not those of the interpolated network. They are
    replaced with averages, over batches, of the statistics of each batch.

    Args:
        update: `(params, x) -> params` in which the statistics are those of the batch
            `x` alone: a pass in training mode with a momentum that forgets what was
            before (in flax `BatchNorm(use_running_average=False, momentum=0.0)`, and
            `mutable=["batch_stats"]`). What it leaves as it is stays as it is.
        params: The merged network, its statistics included.
        x: Inputs, examples along the first axis of every leaf.
        batch_size: Examples in a batch. The last may be smaller, and counts for less.

    Returns:
        The network with new statistics.

    References:
        Izmailov et al. (2018), Averaging weights leads to wider optima and better
        generalization, section 3.
    """
    checks.at_least(1, batch_size=batch_size)
    run = jax.jit(update)
    mean, seen = None, 0.0
    for batch, share in batches(x, batch_size):
        new = run(params, batch)
        seen += share
        mean = new if mean is None else _step(mean, new, share / seen)
    return mean


def _step(mean: Params, new: Params, share: float) -> Params:
    def step(old: Array, new: Array) -> Array:
        if not jnp.issubdtype(jnp.result_type(old), jnp.inexact):
            return new
        return old + share * (new - old)

    return jax.tree.map(step, mean, new)
