"""Fully connected networks: activations, gates, norms, and the forms of parameters."""

import functools

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from symjax import models
from zoo.network import Case, Network, fill, inputs, linen, plain


def mlp(activation):
    return lambda: linen(models.MLP(10, (32, 32), activation), inputs(4, 64))


def nnx_mlp():
    class MLP(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 7, rngs=rngs)
            self.second = nnx.Linear(7, 5, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, deterministic=True)

        def __call__(self, x):
            return self.second(self.dropout(jnp.tanh(self.first(x))))

    graph, state = nnx.split(nnx.eval_shape(lambda: MLP(nnx.Rngs(0))))
    return Network(
        lambda state, x: nnx.merge(graph, state)(x), fill(state), inputs(16, 3)
    )


def equinox_mlp():
    model = eqx.filter_eval_shape(eqx.nn.MLP, 3, 2, 7, 2, key=jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: hasattr(leaf, "dtype"))

    def apply(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    return Network(apply, fill(params), inputs(16, 3))


def tuples():
    """Nested tuples and a scalar; the weights multiply from the left."""

    def apply(params, x):
        (first, shift), second, scale = params
        return scale * (second @ jnp.maximum(first @ x.T + shift[:, None], 0))

    shapes = ((7, 3), (7,)), (2, 7), ()
    leaf = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    return Network(
        apply,
        fill(jax.tree.map(leaf, shapes, is_leaf=lambda s: s == () or s[0] in {2, 7})),
        inputs(16, 3),
    )


def gated(gate):
    """A gated unit: one matrix makes the gate and the value, which are then split."""

    def apply(p, x):
        gates, values = jnp.split(x @ p["in"] + p["bias"], 2, axis=-1)
        return (gate(gates) * values) @ p["out"]

    shapes = {"in": (3, 14), "bias": (14,), "out": (7, 2)}
    return lambda: plain(apply, inputs(16, 3), **shapes)


def swiglu():
    class SwiGLU(nn.Module):
        @nn.compact
        def __call__(self, x):
            gate = nn.silu(nn.Dense(7, use_bias=False)(x))
            return nn.Dense(2)(gate * nn.Dense(7, use_bias=False)(x))

    return linen(SwiGLU(), inputs(16, 3))


def glu():
    class GLU(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.glu(nn.Dense(14)(x)))

    return linen(GLU(), inputs(16, 3))


def interleaved():
    """Gates and values are every other unit of one layer."""

    def apply(p, x):
        units = x @ p["in"] + p["bias"]
        return (jnp.tanh(units[:, ::2]) * units[:, 1::2]) @ p["out"]

    shapes = {"in": (3, 14), "bias": (14,), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def stacked_and_tiled():
    """Two layers are stacked, taken apart and multiplied; three copies are read."""

    def apply(p, x):
        units = jax.nn.relu(x @ p["in"])
        one, two = jnp.unstack(jnp.stack([units, units * p["gain"]], axis=1), axis=1)
        return jnp.tile(one * two, (1, 3)) @ p["out"]

    shapes = {"in": (3, 5), "gain": (5,), "out": (15, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def concatenated():
    """Two layers side by side, read by one; then split again, unevenly elsewhere."""

    def apply(p, x):
        left, right = jax.nn.relu(x @ p["left"]), jnp.tanh(x @ p["right"])
        both = jnp.concatenate([left, right], axis=1)
        left, right = jnp.split(both, [5], axis=1)
        return both @ p["out"] + left @ p["short"]

    return plain(
        apply, inputs(16, 3), left=(3, 5), right=(3, 7), out=(12, 2), short=(5, 2)
    )


def branches():
    """Twelve layers of 2 units side by side, as are their biases."""

    def apply(p, x):
        units = [x @ p[f"in{k}"] for k in range(12)]
        biases = [p[f"bias{k}"] for k in range(12)]
        both = jnp.concatenate(units, axis=1) + jnp.concatenate(biases)
        return jnp.tanh(both) @ p["out"]

    shapes = {f"in{k}": (3, 2) for k in range(12)}
    shapes |= {f"bias{k}": (2,) for k in range(12)}
    return plain(apply, inputs(16, 3), **shapes, out=(24, 2))


def one_unit():
    """A bottleneck of one unit has a scale, and no permutation."""

    def apply(p, x):
        unit = jax.nn.relu(x @ p["in"] + p["bias"])
        return jnp.tanh(unit @ p["hidden"]) @ p["out"]

    shapes = {"in": (3, 1), "bias": (1,), "hidden": (1, 7), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def unread():
    """Parameters that the network does not look at."""

    def apply(p, x):
        return jax.nn.relu(x @ p["in"]) @ p["out"]

    network = plain(
        apply, inputs(16, 3), **{"in": (3, 7), "out": (7, 2), "spare": (4,)}
    )
    return network._replace(params=network.params | {"ids": np.arange(5)})


def squared():
    """x^2 takes scales to the second power and forgets signs."""

    def apply(p, x):
        return jnp.square(x @ p["in"]) @ p["out"]

    return plain(apply, inputs(16, 3), **{"in": (3, 7), "out": (7, 2)})


def powers():
    """Odd, even and fractional powers, of one layer each."""

    def apply(p, x):
        hidden = x @ p["first"]
        hidden = hidden**3 @ p["second"]
        hidden = jnp.sqrt(jnp.abs(hidden)) @ p["third"]
        return jax.lax.integer_pow(hidden, 2) @ p["out"]

    shapes = {"first": (3, 5), "second": (5, 7), "third": (7, 4), "out": (4, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def maxout():
    """7 units, each the largest of 2 linear pieces."""

    def apply(p, x):
        pieces = (x @ p["in"] + p["bias"]).reshape(len(x), 7, 2)
        return jnp.max(pieces, axis=2) @ p["out"]

    return plain(apply, inputs(16, 3), **{"in": (3, 14), "bias": (14,), "out": (7, 2)})


def weight_norm():
    """The direction of each unit's weights, and its length, are parameters."""

    def apply(p, x):
        weights = p["direction"] / jnp.linalg.norm(p["direction"], axis=0)
        return jax.nn.relu(x @ (p["length"] * weights) + p["bias"]) @ p["out"]

    shapes = {"direction": (3, 7), "length": (7,), "bias": (7,), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def normalised():
    """Layer normalisation without an epsilon: the scale of the whole layer is free."""

    def apply(p, x):
        hidden = x @ p["in"]
        hidden = hidden / jnp.sqrt(jnp.mean(hidden**2, axis=-1, keepdims=True))
        return jax.nn.silu(hidden * p["gain"]) @ p["out"]

    return plain(apply, inputs(16, 3), **{"in": (3, 7), "gain": (7,), "out": (7, 2)})


CASES = [
    Case("mlp relu", mlp(nn.relu), "32 32", "32 32"),
    Case("mlp leaky relu", mlp(nn.leaky_relu), "32 32", "32 32"),
    Case("mlp tanh", mlp(nn.tanh), "32 32", "", "32 32"),
    Case("mlp silu", mlp(nn.silu), "32 32"),
    Case("mlp gelu", mlp(nn.gelu), "32 32"),
    Case("mlp linear", mlp(lambda x: x), "32 32", "32 32", "32 32"),
    Case("mlp nnx", nnx_mlp, "7", "", "7"),
    Case("mlp equinox", equinox_mlp, "7 7", "7 7"),
    # The scalar that multiplies the output has a scale and a sign of its own.
    Case("mlp tuples", tuples, "7", "7 1", "1"),
    Case("glu", glu, "7", "7", "7"),
    Case("swiglu", swiglu, "7", "7", "7"),
    Case("swiglu split", gated(jax.nn.silu), "7", "7", "7"),
    Case("reglu", gated(jax.nn.relu), "7", "7 7", "7"),
    Case("bilinear", gated(lambda gate: gate), "7", "7 7", "7 7"),
    # What a slice with steps parts shares its scales and signs: some are not found.
    Case("packed gates", interleaved, "7", "", "7"),
    # The copies may be exchanged; what is stacked shares its scales, as above.
    Case("packed copies", stacked_and_tiled, "5 5x3", "5", ""),
    Case("concatenated", concatenated, "5 7", "5", "7"),
    Case("branches", branches, "2 " * 12, "", "2 " * 12),
    Case("one unit", one_unit, "7", "1", "7"),
    Case("mlp unread", unread, "7", "7"),
    Case("squared", squared, "7", "7", "7"),
    Case("powers", powers, "5 7 4", "5 7 4", "5 7 4"),
    Case("maxout", maxout, "7 7x2", "7"),
    Case("weight norm", weight_norm, "7", "7 7", "7"),
    Case("normalised", normalised, "7", "1", "7"),
]
