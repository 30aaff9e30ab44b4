"""Units, copies and groups that do not move independently of each other."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from zoo.control import (
    ORDER,
    PERMUTED,
    SCALED,
    SCALES,
    hidden,
    multiplied,
    permuted,
    whole,
)
from zoo.network import inputs


TWICE = {"in": (3, 7), "hidden": (7, 7), "out": (7, 2)}


def _transposed(activation):
    """The second use of the matrix is transposed."""

    def apply(p, x):
        units = activation(x @ p["in"])
        units = activation(units @ p["hidden"])
        return activation(units @ p["hidden"].T) @ p["out"]

    return apply


def _used_twice(p, x):
    units = jnp.tanh(x @ p["in"])
    return jnp.tanh(units @ p["hidden"]) @ p["hidden"] @ p["out"]


def _shared_bias(p, x):
    units = jnp.tanh(x @ p["in"] + p["bias"])
    return jnp.tanh(units @ p["hidden"] + p["bias"]) @ p["out"]


def _gram_of_heads(p, x):
    """All pairs of heads meet, so that their units permute together."""
    heads = jnp.einsum("nx,hxd->nhd", x, p["in"])
    grams = jax.nn.silu(jnp.einsum("nhd,nkd->nhk", heads, heads))
    return jnp.einsum("nhk,hko->no", grams, p["out"])


def _reversed_heads(p, x):
    """Each head meets the one on the other side, so that both have the same units."""
    heads = jnp.einsum("nx,hxd->nhd", x, p["in"])
    return jnp.einsum("nhd,hdo->no", jnp.tanh(heads + heads[:, ::-1]), p["out"])


def _repeated(p, x):
    """What a loop hands on is what it reads."""

    def repeat(state):
        return state[0] + 1, jnp.tanh(state[1] @ p["hidden"])

    start = 0, jnp.tanh(x @ p["in"])
    return jax.lax.while_loop(lambda state: state[0] < 2, repeat, start)[1] @ p["out"]


def _gram_of_examples(p, x):
    units = jnp.tanh(x @ p["in"])
    return jnp.einsum("hk,hko->o", jnp.tanh(units.T @ units), p["out"])


def _first_copy(**axes):
    """Permute the units of the first copy alone: copies on axis 0, units on another."""

    def move(value, axis):
        first = value[0].take(ORDER, axis - 1)
        return np.concatenate([first[None], value[1:]])

    return lambda p: p | {name: move(p[name], axis) for name, axis in axes.items()}


def _query_norm(p, x):
    """Normalised queries and keys of 3 heads with 7 units; heads share the gains."""

    def norm(y, gain):
        return y * jax.lax.rsqrt(jnp.mean(y**2, axis=-1, keepdims=True) + 0.1) * gain

    q, k, v = (jnp.einsum("nlx,hxd->nhld", x, p[name]) for name in "qkv")
    q, k = norm(q, p["q_gain"]), norm(k, p["k_gain"])
    weights = jax.nn.softmax(jnp.einsum("nhqd,nhkd->nhqk", q, k))
    return jnp.einsum("nhqk,nhkd,hdo->nqo", weights, v, p["out"])


def _carried(p, x):
    """The units that one layer hands on are those that the next one reads."""

    def layer(units, weights):
        return jnp.tanh(units @ weights), None

    return jax.lax.scan(layer, x @ p["in"], p["layers"])[0] @ p["out"]


def _cumulated(p, x):
    """Every layer adds to the carry, so that all have its units."""

    def layer(total, weights):
        return total + jnp.tanh(x @ weights), total @ p["out"]

    return jax.lax.scan(layer, x @ p["in"], p["layers"])[1]


def _group_norm(h, p):
    groups = h.reshape(len(h), 2, 3)
    mean = groups.mean(axis=2, keepdims=True)
    variance = groups.var(axis=2, keepdims=True)
    return jnp.tanh(((groups - mean) * jax.lax.rsqrt(variance + 0.1)).reshape(h.shape))


def _grouped(p, x):
    conv = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    maps = jnp.tanh(conv(x, p["in"]))
    maps = jax.nn.silu(conv(maps, p["grouped"], feature_group_count=2))
    return jnp.einsum("nwc,co->no", maps, p["out"])


def _one_shift(h, p):
    return nn.relu(h + p["shift"])


def _centred(h, p):
    return h - h.mean(axis=1, keepdims=True)


def _largest(h, p):
    return jnp.max(h, axis=1, keepdims=True)


def _logits(h, p):
    return jax.nn.logsumexp(h, axis=1)


_scale_in = multiplied(SCALES, **{"in": 1})

SIX = {"in": (3, 6), "out": (6, 2)}
ACROSS = permuted([0, 3, 2, 1, 4, 5], **{"in": 1, "out": 0})
HEADS = dict.fromkeys("qkv", (3, 5, 7)) | {"q_gain": (7,), "k_gain": (7,)}


CONTROLS = [
    whole(
        "transposed",
        _transposed(nn.relu),
        TWICE,
        multiplied(SCALES, hidden=1),
        "7 7",
        "7 1",
        "",
    ),
    whole(
        "transposed odd",
        _transposed(nn.tanh),
        TWICE,
        multiplied(SCALES, hidden=1),
        "7 7",
        "",
        "7 7",
    ),
    # The matrix may flip as a whole: tanh passes its sign on, and it meets itself.
    whole("used twice", _used_twice, TWICE, permuted(hidden=1, out=0), "7", "", "7 1"),
    whole(
        "shared bias",
        _shared_bias,
        TWICE | {"bias": (7,)},
        permuted(hidden=1, out=0),
        "7",
        "",
        "7",
    ),
    whole(
        "gram of heads",
        _gram_of_heads,
        {"in": (3, 4, 7), "out": (3, 3, 2)},
        _first_copy(**{"in": 2}),
        "3 7",
        "",
        "7",
        x=inputs(4, 4),
    ),
    whole(
        "heads in reverse",
        _reversed_heads,
        {"in": (4, 3, 7), "out": (4, 7, 2)},
        _first_copy(**{"in": 2, "out": 1}),
        "7",
        "",
        "7",
        x=inputs(4, 3),
    ),
    whole("repeated", _repeated, TWICE, permuted(hidden=1, out=0), "7", "", "7"),
    whole(
        "gram of examples",
        _gram_of_examples,
        {"in": (3, 7), "out": (7, 7, 2)},
        permuted(**{"in": 1, "out": 0}),
        "7",
        "",
        "7",
    ),
    whole(
        "query norm",
        _query_norm,
        HEADS | {"out": (3, 7, 2)},
        _first_copy(q=2, k=2),
        "3 7 3x7",
        "7 3x7",
        "3x7 7 7 3x7",
        x=inputs(2, 4, 5),
    ),
    whole(
        "carried",
        _carried,
        {"in": (3, 7), "layers": (4, 7, 7), "out": (7, 2)},
        _first_copy(layers=1),
        "7",
        "",
        "7",
    ),
    whole(
        "cumulated",
        _cumulated,
        {"in": (3, 7), "layers": (4, 3, 7), "out": (7, 2)},
        _first_copy(layers=2),
        "7",
        "",
        "7",
    ),
    hidden("group norm", _group_norm, ACROSS, "2 2x3", "", "2", **SIX),
    whole(
        "grouped convolution",
        _grouped,
        {"in": (1, 3, 6), "grouped": (3, 3, 4), "out": (4, 2)},
        permuted([0, 3, 2, 1, 4, 5], **{"in": 2}),
        "2 2x3 2x2",
        "",
        "2x3",
        x=inputs(2, 5, 3),
    ),
    # One shift for all units: they can only be scaled together.
    hidden("one shift", _one_shift, SCALED, "7", "1", "", shift=()),
    hidden("centred", _centred, SCALED, "7", "1", "1"),
    hidden("largest", _largest, _scale_in, "7", "1", "", out=(1, 2)),
    hidden("softmax", lambda h, p: jax.nn.softmax(h), SCALED, "7", "", ""),
    hidden("logits", _logits, _scale_in, "7", "", "", out=(16, 2)),
    whole(
        "example as large as the units",
        lambda p, x: jnp.tanh(x @ p["in"]).T @ jnp.tanh(x @ p["in"]) @ p["out"],
        {"in": (7, 7), "out": (7, 2)},
        PERMUTED,
        x=inputs(7, 7),
    ),
]
