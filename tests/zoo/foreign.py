"""Networks made of what other libraries ship: flax NNX, Equinox and Haiku."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from zoo.network import Case, Network, fill, inputs, tokens


# -- flax NNX --------------------------------------------------------------------------


class Convolutional(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 5, (3, 3), rngs=rngs)
        self.batch = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)
        self.second = nnx.Conv(5, 6, (3, 3), strides=2, rngs=rngs)
        self.group = nnx.GroupNorm(6, num_groups=2, rngs=rngs)
        self.out = nnx.Linear(6, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.batch(self.first(x)))
        x = nnx.silu(self.group(self.second(x)))
        return self.out(jnp.mean(x, axis=(1, 2)))


class Attentive(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(7, 11, dtype=float, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            3, 11, qkv_features=12, out_features=5, decode=False, rngs=rngs
        )
        self.out = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.attention(self.embed(x)))


class Recurrent(nnx.Module):
    def __init__(self, cell, rngs):
        self.layer = nnx.RNN(cell(3, 7, param_dtype=float, rngs=rngs))
        self.out = nnx.Linear(7, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(self.layer(x)[:, -1])


def from_nnx(make, x):
    def network():
        model = nnx.eval_shape(lambda: make(nnx.Rngs(0)))
        graph, state, streams = nnx.split(model, (nnx.Param, nnx.BatchStat), ...)
        streams = jax.tree.map(_stream, streams)

        def apply(state, x):
            return nnx.merge(graph, state, streams, copy=True)(x)

        return Network(apply, fill(state), x)

    return network


def _stream(leaf):
    """A key or a counter of random numbers, which start states would be drawn with."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key(0) if is_key else np.zeros(leaf.shape, leaf.dtype)


# -- Equinox ---------------------------------------------------------------------------


class Image(eqx.Module):
    """Channels come first, images one by one; channels in 2 groups of 3."""

    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(3, 6, 3, key=keys[0]),
            eqx.nn.GroupNorm(2, 6),
            jax.nn.tanh,
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(6, 5, 3, groups=1, key=keys[1]),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(20, 2, key=keys[2]),
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Attention(eqx.Module):
    """Heads of 4 units, made by a reshape; layer normalisation before."""

    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(11)
        self.attention = eqx.nn.MultiheadAttention(
            3, 11, qk_size=4, vo_size=5, output_size=7, key=keys[0]
        )
        self.out = eqx.nn.Linear(7, 2, key=keys[1])

    def __call__(self, x):
        x = jax.vmap(self.norm)(x)
        return jax.vmap(self.out)(self.attention(x, x, x))


class Cells(eqx.Module):
    """An LSTM of 7 units feeds a GRU of 5."""

    lstm: eqx.nn.LSTMCell
    gru: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.lstm = eqx.nn.LSTMCell(3, 7, key=keys[0])
        self.gru = eqx.nn.GRUCell(7, 5, key=keys[1])
        self.out = eqx.nn.Linear(5, 2, key=keys[2])

    def __call__(self, x):
        def step(state, x):
            lstm = self.lstm(x, state[0])
            return (lstm, self.gru(lstm[0], state[1])), None

        zeros = jnp.zeros(7, x.dtype)
        start = (zeros, zeros), jnp.zeros(5, x.dtype)
        (_, hidden), _ = jax.lax.scan(step, start, x)
        return self.out(hidden)


def from_equinox(make, x):
    def network():
        model = eqx.filter_eval_shape(make, jax.random.key(0))
        params, static = eqx.partition(model, lambda leaf: hasattr(leaf, "dtype"))

        def apply(params, x):
            return jax.vmap(eqx.combine(params, static))(x)

        return Network(apply, fill(params), x)

    return network


# -- Haiku -----------------------------------------------------------------------------


def mobile(x, training=False):
    """Convolutions by depth, batch normalisation after each."""
    network = hk.nets.MobileNetV1(strides=(1, 2), channels=(4, 6), num_classes=2)
    return network(x, is_training=training)


def pre_activated(x, training=False):
    """ResNet v2: normalisation and relu come before each convolution."""
    network = hk.nets.ResNet(
        (1, 1, 1, 1),
        2,
        bottleneck=False,
        channels_per_group=(3, 4, 5, 6),
        initial_conv_config={"output_channels": 7},
        resnet_v2=True,
    )
    return network(x, is_training=training)


def from_haiku(function, x):
    def network():
        model = hk.transform_with_state(function)
        params = jax.eval_shape(lambda x: model.init(jax.random.key(0), x, True), x)

        def apply(params, x):
            return model.apply(*params, None, x)[0]

        return Network(apply, fill(params), x)

    return network


SEQUENCES = inputs(3, 4, 3)

CASES = [
    Case(
        "nnx convolutions",
        from_nnx(Convolutional, inputs(2, 6, 6, 3)),
        "5 2 2x3",
        "5 5",
        "5 2",
    ),
    Case(
        "nnx attention",
        from_nnx(Attentive, tokens(7, 3, 4)),
        "11 3 3x4 3x4 5",
        "11 3x4 3x4 5",
        "11 3x4 3x4 5",
    ),
    *(
        Case(
            f"nnx {cell.__name__}",
            from_nnx(lambda rngs, cell=cell: Recurrent(cell, rngs), SEQUENCES),
            "7",
            "",
            "7",
        )
        for cell in (nnx.LSTMCell, nnx.OptimizedLSTMCell, nnx.GRUCell)
    ),
    Case(
        "equinox image",
        from_equinox(Image, inputs(2, 3, 10, 10)),
        "2 2x3 5",
        "5",
        "2",
    ),
    Case(
        "equinox attention",
        from_equinox(Attention, inputs(2, 4, 11)),
        "3 3x4 3x5 7",
        "11 3x4 3x5 7",
        "11 3x4 3x5 7",
    ),
    Case("equinox cells", from_equinox(Cells, SEQUENCES), "7 5", "", "7 5"),
    # Each normalisation frees a scale and a sign before it, relu a scale after it.
    Case(
        "haiku mobile net",
        from_haiku(mobile, inputs(2, 28, 28, 3)),
        "32 4 6",
        "32 32 32 32 4 4 4 4 6 6",
        "32 32 4 4 6",
    ),
    # The first stream passes a max pool, which has no sign.
    Case(
        "haiku resnet v2",
        from_haiku(pre_activated, inputs(2, 16, 16, 3)),
        "7 3 3 4 4 5 5 6 6",
        "7 7 " + "3 " * 4 + "4 " * 4 + "5 " * 4 + "6 " * 4,
        "3 3 4 4 5 5 6 6",
    ),
]
