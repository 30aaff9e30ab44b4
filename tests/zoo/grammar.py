"""Random networks: a grammar of layers, drawn by hypothesis, in plain JAX.

A value is an array (example, position, channel). A layer is a tuple of the name of a
function here and its options; `take(*shape)` gives it its next parameter.
"""

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

from zoo.network import Network, fill, inputs


WIDTHS = (2, 3, 4, 6)
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "leaky": jax.nn.leaky_relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "abs": jnp.abs,
    "square": jnp.square,
    "softsign": jax.nn.soft_sign,
    "softmax": jax.nn.softmax,
    "hard": lambda v: jnp.clip(v, -0.5, 0.7),
    "ramp": lambda v: v * jnp.arange(1, v.shape[2] + 1),
    "rolled": lambda v: v + jnp.roll(v, 1, axis=2),
    "reversed": lambda v: jnp.tanh(v) + v[..., ::-1],
    "cumulated": lambda v: jnp.cumsum(v, axis=2),
    "first": lambda v: jnp.concatenate([jnp.tanh(v[..., :1]), v[..., 1:]], axis=2),
    "centred": lambda v: v - jnp.mean(v, axis=2, keepdims=True),
    "turned": lambda v: jnp.swapaxes(v, 1, 2) if v.shape[1] == v.shape[2] else v,
    "checkpoint": jax.checkpoint(jnp.tanh),
}

PLAIN = (
    *("relu", "leaky", "tanh", "silu", "sin", "cos", "abs", "square", "softsign"),
    *("softmax", "checkpoint"),
)


def activation(v, take, name):
    return ACTIVATIONS[name](v)


def dense(v, take, width, bias):
    v = v @ take(v.shape[2], width)
    return v + take(width) if bias else v


def convolution(v, take, width, groups):
    groups = groups if v.shape[2] % groups == 0 and width % groups == 0 else 1
    kernel = take(3, v.shape[2] // groups, width)
    layout = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(
        v, kernel, (1,), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def norm(v, take, kind):
    channels = v.shape[2]
    if kind == "batch":
        centred = v - take(channels)
        v = centred * lax.rsqrt(jnp.square(take(channels)) + 0.1)
    elif kind == "group":
        parts = v.reshape(*v.shape[:2], 2 if channels % 2 == 0 else 1, -1)
        parts = parts - jnp.mean(parts, axis=(1, 3), keepdims=True)
        square = jnp.mean(parts**2, axis=(1, 3), keepdims=True)
        v = (parts * lax.rsqrt(square + 0.1)).reshape(v.shape)
    else:
        axis = {"rms": 2, "response": 1}[kind]
        v = v * lax.rsqrt(jnp.mean(v**2, axis=axis, keepdims=True) + 0.1)
    return v * take(channels) + take(channels)


def gain(v, take, each):
    return v * take(v.shape[2]) if each else v * take()


def gate(v, take, name):
    if v.shape[2] % 2:
        return v
    left, right = jnp.split(v, 2, axis=2)
    return left * ACTIVATIONS[name](right)


def bilinear(v, take, width):
    return dense(v, take, width, False) * dense(v, take, width, True)


def shared(v, take, name, transposed):
    square = take(v.shape[2], v.shape[2])
    v = ACTIVATIONS[name](v @ square)
    return v @ (square.T if transposed else square)


def attention(v, take, heads):
    def project():
        return jnp.einsum("nld,dhe->nlhe", v, take(v.shape[2], heads, 3))

    weights = jnp.einsum("nqhe,nkhe->nhqk", project(), project())
    mixed = jnp.einsum("nhqk,nkhe->nqhe", jax.nn.softmax(weights), project())
    return jnp.einsum("nqhe,hed->nqd", mixed, take(heads, 3, v.shape[2]))


def stacked(v, take, name, residual):
    def step(v, weights):
        change = ACTIVATIONS[name](v @ weights[0]) @ weights[1]
        return (v + change if residual else change), None

    return lax.scan(step, v, (take(2, v.shape[2], 3), take(2, 3, v.shape[2])))[0]


def pool(v, take, largest):
    if v.shape[1] < 4:
        return v
    if largest:
        return lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 1), (1, 2, 1), "VALID")
    return v.reshape(v.shape[0], -1, 2, v.shape[2]).mean(axis=2)


def flatten(v, take, width):
    positions = v.shape[1]
    v = v.reshape(len(v), -1)
    return jnp.tile((v @ take(v.shape[1], width))[:, None], (1, positions, 1))


def residual(v, take, layers):
    change = run(layers, v, take)
    return v + change @ take(change.shape[2], v.shape[2])


def parallel(v, take, left, right):
    return jnp.concatenate([run(left, v, take), run(right, v, take)], axis=2)


LAYERS = {
    function.__name__: function
    for function in (
        *(activation, dense, convolution, norm, gain, gate, bilinear, shared),
        *(attention, stacked, pool, flatten, residual, parallel),
    )
}


def run(layers, v, take):
    for name, *options in layers:
        v = LAYERS[name](v, take, *options)
    return v


def network(layers) -> Network:
    """Layers between a dense layer and the outputs; parameters are a list."""

    def outputs(x, take):
        v = run(layers, dense(x, take, 4, True), take).reshape(len(x), -1)
        return v @ take(v.shape[1], 2) + take(2)

    def apply(params, x):
        left = iter(params)
        return outputs(x, lambda *_: next(left))

    shapes = []

    def declare(*shape):
        shapes.append(jax.ShapeDtypeStruct(shape, jnp.float32))
        return jnp.zeros(shape)

    x = inputs(3, 4, 2)
    jax.eval_shape(lambda x: outputs(x, declare), x)
    return Network(apply, fill(shapes), x)


def _layer(name, *options):
    return st.tuples(st.just(name), *options)


def _networks(activations, norms, groups, flags, *more):
    width, name, flag = st.sampled_from(WIDTHS), st.sampled_from(activations), flags
    simple = st.one_of(
        _layer("activation", name),
        _layer("dense", width, st.booleans()),
        _layer("convolution", width, st.sampled_from(groups)),
        _layer("norm", st.sampled_from(norms)),
        _layer("gain", flag),
        _layer("bilinear", width),
        _layer("shared", name, st.booleans()),
        _layer("attention", st.sampled_from((1, 2))),
        _layer("stacked", name, flag),
        *more,
    )
    inner = st.lists(simple, min_size=1, max_size=2)
    layer = st.one_of(
        simple,
        _layer("residual", inner),
        _layer("parallel", inner, inner),
        _layer("pool", st.booleans()),
    )
    return st.lists(layer, min_size=1, max_size=4).map(tuple)


NETWORKS = _networks(
    tuple(ACTIVATIONS),
    ("batch", "group", "rms", "response"),
    (1, 2),
    st.booleans(),
    _layer("gate", st.sampled_from(tuple(ACTIVATIONS))),
    _layer("flatten", st.sampled_from(WIDTHS)),
)
# Without what may hide a scale: an order that shows, groups and halves of channels, one
# gain for a part of a concatenation, and what is between the layers of a loop.
PLAIN_NETWORKS = _networks(PLAIN, ("batch", "rms", "response"), (1,), st.just(True))
