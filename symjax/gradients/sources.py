"""Which examples the next gradient is of.

They are drawn anew for every step, or taken in the order of a shuffle, which every
chain makes for itself. A shuffle is a function of a key, evaluated where a batch asks
for it: nothing is stored, whatever the number of examples, and the batches are the same
on any number of devices.

References:
    Hoang, Morris, Rogaway (2012), An enciphering scheme based on a card shuffle,
    fig. 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt32

from symjax import checks, mesh
from symjax.types import Data, Key, Params


_NUM_ROUNDS = 32
"""Rounds of a shuffle. Where two examples go together is uniform but for about
2^-rounds, the probability that no round told them apart."""


class Order(NamedTuple):
    """Where a chain is in its shuffled examples.

    Attributes:
        words: The key of the chain's shuffles.
        round: Shuffles behind it.
        place: Examples behind it in this shuffle; of `sweep`, batches.
    """

    words: UInt32[Array, " word"]
    round: Int[Array, ""]
    place: Int[Array, ""]


class Source(NamedTuple):
    """What chooses examples.

    `draw` is `(key, state, data) -> (log density of this batch, state)`.
    """

    init: Callable[[Key, Any], Any]
    draw: Callable[[Key, Any, Any], tuple[Callable[[Params], Any], Any]]


def build(log_posterior: Any, batch_size: int, batches: str) -> Source:
    """What chooses the examples of gradients.

    Args:
        log_posterior: From `posterior.build`, or anything with its `minibatch`; for
            `epoch` and `sweep` with its `batch`.
        batch_size: Examples a gradient takes, over all devices of a chain.
        batches: `replacement`, `epoch` or `sweep`.

    Returns:
        `Source`.

    Raises:
        TypeError: if `log_posterior` lacks what the choice asks for.
        ValueError: if `batches` is none of the choices.
    """
    checks.at_least(1, batch_size=batch_size)
    kinds = {"replacement": _replacement, "epoch": _epoch, "sweep": _sweep}
    if batches not in kinds:
        raise ValueError(
            f"`batches` must be one of {', '.join(kinds)}, got {batches!r}."
        )
    method = "minibatch" if batches == "replacement" else "batch"
    if not hasattr(log_posterior, method):
        raise TypeError(
            f"`log_posterior` must have a `{method}` estimate for `batches={batches}`, "
            f"got {type(log_posterior).__name__}. Make it with `posterior.build`."
        )
    source = kinds[batches](log_posterior, batch_size)

    def init(key: Key, data: Any) -> Any:
        _check_data(data, batch_size, batches)
        return source.init(key, data)

    return source._replace(init=init)


def _check_data(data: Any, batch_size: int, batches: str) -> None:
    """Check what can be known of the data when the chains start.

    Raises:
        TypeError: if examples are asked for of what has none.
        ValueError: if a batch is larger than the data.
    """
    if not isinstance(data, Data):
        if batches == "replacement":
            return
        raise TypeError(
            f"`data` must be `Data` for `batches={batches}`, which counts its "
            f"examples, got {type(data).__name__}."
        )
    # Padding counts: which rows it takes is known on the device only.
    num_rows = mesh.num_rows(data)
    if batch_size > num_rows:
        raise ValueError(
            f"`batch_size` must be at most the {num_rows} examples of `data`, got "
            f"{batch_size}. With batches='epoch' a batch of that many is all of them."
        )


def _replacement(log_posterior: Any, batch_size: int) -> Source:
    def draw(key: Key, state: Any, data: Any) -> Any:
        def log_density(params: Params) -> Any:
            return log_posterior.minibatch(key, params, data, batch_size)

        return log_density, state

    return Source(lambda key, data: (), draw)


def _first_order(key: Key, data: Data) -> Order:
    del data
    return Order(jax.random.key_data(key), jnp.array(0), jnp.array(0))


def _epoch(log_posterior: Any, batch_size: int) -> Source:
    def draw(key: Key, state: Order, data: Data) -> Any:
        del key
        num_examples = mesh.count_examples(data)
        places = state.place + jnp.arange(batch_size)
        is_next = (places >= num_examples).astype(int)
        rounds = state.round + jnp.arange(2)
        codes = jax.vmap(_code, (None, 0))(state.words, rounds)[is_next]
        indices = _shuffle(codes, places % num_examples, num_examples)

        def log_density(params: Params) -> Any:
            weight = num_examples / batch_size
            return log_posterior.batch(params, data, indices, weight)

        place = state.place + batch_size
        passed = place // num_examples
        order = Order(state.words, state.round + passed, place % num_examples)
        return log_density, order

    return Source(_first_order, draw)


def _sweep(log_posterior: Any, batch_size: int) -> Source:
    def draw(key: Key, state: Order, data: Data) -> Any:
        del key
        num_examples = mesh.count_examples(data)
        num_batches = -(-num_examples // batch_size)
        batch = jnp.minimum(state.place, 2 * num_batches - 1 - state.place)
        places = batch * batch_size + jnp.arange(batch_size)
        code = _code(state.words, state.round)[None]
        shuffled = _shuffle(code, places % num_examples, num_examples)
        indices = jnp.where(places < num_examples, shuffled, mesh.NO_EXAMPLE)

        def log_density(params: Params) -> Any:
            return log_posterior.batch(params, data, indices, num_batches)

        place = state.place + 1
        is_over = place >= 2 * num_batches
        order = Order(state.words, state.round + is_over, jnp.where(is_over, 0, place))
        return log_density, order

    return Source(_first_order, draw)


def _code(
    words: UInt32[Array, " word"], number: Int[Array, ""]
) -> UInt32[Array, "round 2"]:
    """What shuffle `number` of a chain is made with."""
    key = jax.random.fold_in(jax.random.wrap_key_data(words), number)
    return jax.random.bits(key, (_NUM_ROUNDS, 2), jnp.uint32)


def _shuffle(
    codes: UInt32[Array, "#place round 2"],
    places: Int[Array, " place"],
    num_examples: Int[Array, ""],
) -> Int[Array, " place"]:
    """The examples at some places of a random order: each place by itself.

    Hoang et al.'s swap-or-not: a round pairs the examples off as x and turn - x, modulo
    their number, and swaps a pair or not as a hash of it says. It needs no table and
    takes any number of examples, even one that only the device knows.
    """

    def swap(places: Array, code: Array) -> tuple[Array, None]:
        turn = (code[:, 0] % num_examples.astype(jnp.uint32)).astype(places.dtype)
        partners = turn - places
        partners = jnp.where(partners < 0, partners + num_examples, partners)
        pairs = jnp.maximum(places, partners).astype(jnp.uint32)
        return jnp.where(_toss(pairs ^ code[:, 1]), partners, places), None

    # Unrolled in part: on a GPU each turn of a loop costs the start of a kernel.
    rounds = jnp.moveaxis(codes, 1, 0)
    return jax.lax.scan(swap, places, rounds, unroll=8)[0]


def _toss(x: UInt32[Array, " place"]) -> Bool[Array, " place"]:
    """A coin for each number: the top bit, which products mix all others into."""
    for factor in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> 16)) * jnp.uint32(factor)
    return (x >> 31).astype(bool)
