"""Permutations as index arrays: their group, their cycles and how to draw them.

A permutation of `n` units is an array that holds each of `0 .. n - 1` once along its
last axis; axes before the last are a batch. It acts as
`new[..., u] = old[..., permutation[u]]`.

References:
    Arratia, Barbour, Tavaré (2003), Logarithmic Combinatorial Structures, chapter 1:
    the Feller coupling and the conditioning on the number of cycles.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

from symjax import checks
from symjax.types import Key


def compose(
    second: Int[Array, "*batch unit"], first: Int[Array, "*batch unit"]
) -> Int[Array, "*batch unit"]:
    """The permutation that acts as `first` does and then `second`.

    `new[u] = old[first[second[u]]]`.

    Example:
        >>> compose(jnp.array([1, 0, 2]), jnp.array([1, 2, 0])).tolist()
        [2, 1, 0]
    """
    return jnp.take_along_axis(first, second, axis=-1)


def inverse(permutation: Int[Array, "*batch unit"]) -> Int[Array, "*batch unit"]:
    """The permutation that undoes this one: `inverse[permutation[u]] = u`.

    Example:
        >>> inverse(jnp.array([1, 2, 0])).tolist()
        [2, 0, 1]
    """
    return jnp.argsort(permutation, axis=-1).astype(permutation.dtype)


def num_transpositions(permutation: Int[Array, "*batch unit"]) -> Int[Array, "*batch"]:
    """The least number of swaps of two units that make up a permutation.

    It is the number of units less the number of cycles (fixed points are cycles), at
    most `n - 1`. A uniform random permutation has `n - H_n` on average, with `H_n` the
    harmonic number: 505.18 for 512 units. The cost is `log2(n)` passes.

    Args:
        permutation: One permutation, or a batch of them.

    Returns:
        The number for each permutation of the batch.

    Example:
        >>> int(num_transpositions(jnp.array([1, 2, 0, 4, 3, 5])))
        3
    """
    size = permutation.shape[-1]
    units = jnp.broadcast_to(
        jnp.arange(size, dtype=permutation.dtype), permutation.shape
    )

    def double(_: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        # The smallest unit among the 2^k that follow, and the unit after them.
        smallest, jump = state
        beyond = jnp.take_along_axis(smallest, jump, axis=-1)
        return jnp.minimum(smallest, beyond), compose(jump, jump)

    steps = (size - 1).bit_length()
    smallest, _ = jax.lax.fori_loop(0, steps, double, (units, permutation))
    return jnp.sum(smallest != units, axis=-1)


def cycles(permutation: Int[Array | np.ndarray, " unit"]) -> list[list[int]]:
    """The cycles of one permutation, on the host, fixed points included.

    Each starts with its smallest unit and goes on from `u` to `permutation[u]`; they
    are listed by their first unit.

    Raises:
        ValueError: If the array does not hold each of `0 .. n - 1` once.

    Example:
        >>> cycles(jnp.array([1, 2, 0, 4, 3, 5]))
        [[0, 1, 2], [3, 4], [5]]
    """
    following = np.asarray(permutation).tolist()
    if sorted(following) != list(range(len(following))):
        raise ValueError(
            f"`permutation` must hold each of 0 .. {len(following) - 1} once, got "
            f"{np.asarray(permutation)}."
        )
    found, seen = [], set()
    for start in range(len(following)):
        cycle, unit = [], start
        while unit not in seen:
            seen.add(unit)
            cycle.append(unit)
            unit = following[unit]
        if cycle:
            found.append(cycle)
    return found


def random_permutation(
    key: Key, size: int, num_transpositions: int | Int[Array, ""] | None = None
) -> Int[Array, " {size}"]:
    """A uniform random permutation, among all or those of a number of transpositions.

    Both are exact up to the resolution of the random numbers. With a given number,
    cycle lengths are proposed until their number is right, at worst some `sqrt(n)`
    times on average.

    Args:
        key: PRNG key.
        size: How many units.
        num_transpositions: From 0 (the identity) to `size - 1` (one cycle). A value
            traced by `jit` or `vmap` can't be checked, and is clipped to this range.

    Returns:
        The permutation.

    Raises:
        ValueError: If there is no permutation with so many transpositions.

    Example:
        >>> permutation = random_permutation(jax.random.key(0), 512, 40)
        >>> len(cycles(permutation))
        472
    """
    checks.at_least(1, size=size)
    if num_transpositions is None:
        return jax.random.permutation(key, size)
    if not isinstance(num_transpositions, Tracer):
        checks.at_least(0, num_transpositions=int(num_transpositions))
        if num_transpositions >= size:
            raise ValueError(
                f"`num_transpositions` must be below `size`, which is {size}, got "
                f"{num_transpositions}."
            )
    return _with_cycles(key, size, size - jnp.clip(num_transpositions, 0, size - 1))


@functools.partial(jax.jit, static_argnames="size")
def _with_cycles(
    key: Key, size: int, num_cycles: Int[Array, ""]
) -> Int[Array, " {size}"]:
    for_starts, for_order = jax.random.split(key)
    starts = _cycle_starts(for_starts, size, num_cycles)
    units = jnp.arange(size)
    first = jax.lax.cummax(jnp.where(starts, units, 0))
    ends = jnp.roll(starts, -1)
    following = jnp.where(ends, first, units + 1)
    # Which units make up the cycles is uniform, whatever their lengths are.
    order = jax.random.permutation(for_order, size)
    return jnp.zeros_like(units).at[order].set(order[following])


def _cycle_starts(
    key: Key, size: int, num_cycles: Int[Array, ""]
) -> Bool[Array, " {size}"]:
    """Where cycles start when all are written one after another.

    In the Feller coupling place `i` (from 1) starts a cycle with probability `1 / i`,
    independently; the lengths are then those of a uniform random permutation. Given the
    number of cycles, the odds `1 / (i - 1)` may all be multiplied by any `theta`: the
    one that makes the number most likely.
    """
    before = jnp.arange(size, dtype=jnp.float32)

    def probs(log_theta: Array) -> Array:
        return jax.nn.sigmoid(log_theta - jnp.log(before))

    def halve(_: Int[Array, ""], bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        too_few = jnp.sum(probs(middle)) < num_cycles
        return jnp.where(too_few, middle, low), jnp.where(too_few, high, middle)

    # From next to no second cycle to next to no longer cycle.
    log_size = jnp.log(jnp.float32(size))
    low, _ = jax.lax.fori_loop(0, 30, halve, (-log_size, 3 * log_size))
    prob = probs(low)

    def propose(state: tuple[Key, Array]) -> tuple[Key, Array]:
        key, now = jax.random.split(state[0])
        return key, jax.random.bernoulli(now, prob)

    _, starts = jax.lax.while_loop(
        lambda state: jnp.sum(state[1]) != num_cycles,
        propose,
        propose((key, prob)),
    )
    return starts
