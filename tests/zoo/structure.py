"""Weights shared, stacked, or side by side, and JAX's transformations."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.network import Case, inputs, linen, plain


def residual():
    """A linear stream of 7, a layer in it behind a learned gate (ReZero)."""

    def apply(p, x):
        stream = x @ p["in"]
        stream = stream + p["gate"] * (jax.nn.silu(stream @ p["up"]) @ p["down"])
        return stream @ p["out"]

    shapes = {"in": (3, 7), "up": (7, 5), "down": (5, 7), "gate": (), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def shared():
    """One square matrix used twice ties the units of three layers."""

    def apply(p, x):
        hidden = jax.nn.relu(x @ p["in"])
        for _ in range(2):
            hidden = jax.nn.relu(hidden @ p["hidden"] + p["bias"])
        return hidden @ p["out"]

    shapes = {"in": (3, 7), "hidden": (7, 7), "bias": (7,), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def autoencoder():
    """Tied weights: the decoder is the encoder transposed."""

    def apply(p, x):
        return jnp.tanh(x @ p["weight"] + p["bias"]) @ p["weight"].T

    return plain(apply, inputs(16, 3), weight=(3, 7), bias=(7,))


def experts():
    """A soft mixture of 5 experts, each with 7 units."""

    def apply(p, x):
        weights = jax.nn.softmax(x @ p["router"])
        hidden = jax.nn.relu(jnp.einsum("nd,edh->enh", x, p["up"]) + p["bias"][:, None])
        return jnp.einsum("ne,enh,eho->no", weights, hidden, p["down"])

    shapes = {"router": (3, 5), "up": (5, 3, 7), "bias": (5, 7), "down": (5, 7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


def stacked(step):
    """`lax.scan` over 4 residual layers of 5 units, in a stream of 7."""

    def apply(p, x):
        def layer(stream, weights):
            up, bias, down = weights
            return stream + jax.nn.relu(stream @ up + bias) @ down, None

        layers = p["up"], p["bias"], p["down"]
        stream, _ = jax.lax.scan(step(layer), x @ p["in"], layers)
        return stream @ p["out"]

    shapes = {"in": (3, 7), "up": (4, 7, 5), "bias": (4, 5), "down": (4, 5, 7)}
    return lambda: plain(apply, inputs(16, 3), **shapes, out=(7, 2))


def linen_scan():
    """`nn.scan` over 3 rematerialised layers with layer normalisation, 5 units each."""

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, stream, _):
            hidden = nn.tanh(nn.Dense(5)(nn.LayerNorm()(stream)))
            return stream + nn.Dense(7)(hidden), None

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            layers = nn.scan(
                nn.remat(Layer, prevent_cse=False),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=3,
            )
            stream, _ = layers()(nn.Dense(7)(x), None)
            return nn.Dense(2)(stream)

    return linen(Network(), inputs(4, 11))


def transformed():
    """`jit`, `checkpoint`, `custom_jvp` and `custom_vjp` inside."""

    @jax.custom_jvp
    def squashed(x):
        return x / (1 + jnp.abs(x))

    squashed.defjvps(lambda t, _, x: t / jnp.square(1 + jnp.abs(x)))

    @jax.custom_vjp
    def positive(x):
        return jnp.where(x > 0, x, 0.0)

    positive.defvjp(lambda x: (positive(x), x), lambda x, t: (t * (x > 0),))

    @jax.jit
    def first(p, x):
        return squashed(x @ p["first"])

    @jax.checkpoint
    def second(p, hidden):
        return positive(hidden @ p["second"])

    def apply(p, x):
        return second(p, first(p, x)) @ p["out"]

    return plain(apply, inputs(16, 3), first=(3, 7), second=(7, 5), out=(5, 2))


def vmapped(mean):
    """`vmap` over 5 networks of 7 units: averaged, or 5 outputs side by side."""

    def member(weights, bias, out, x):
        return jax.nn.relu(x @ weights + bias) @ out

    def apply(p, x):
        members = jax.vmap(member, (0, 0, 0, None))
        outputs = members(p["in"], p["bias"], p["out"], x)
        return jnp.mean(outputs, axis=0) if mean else outputs

    shapes = {"in": (5, 3, 7), "bias": (5, 7), "out": (5, 7, 2)}
    return lambda: plain(apply, inputs(16, 3), **shapes)


def low_rank():
    """A weight with a correction of rank 5."""

    def apply(p, x):
        return jnp.tanh(x @ (p["weight"] + p["left"] @ p["right"])) @ p["out"]

    shapes = {"weight": (3, 7), "left": (3, 5), "right": (5, 7), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


CASES = [
    # The gate's scale and sign pass to the layer behind it.
    Case("residual", residual, "7 5", "7 1", "7 1"),
    Case("shared", shared, "7", "7"),
    Case("autoencoder", autoencoder, "7", "", "7"),
    Case("experts", experts, "5 5x7", "5x7"),
    Case("scan", stacked(lambda layer: layer), "7 4x5", "7 4x5", "7"),
    Case("scan checkpoint", stacked(jax.checkpoint), "7 4x5", "7 4x5", "7"),
    # Each normalisation frees the scales and signs of what it hands on; the stream's
    # own sign flips as a whole.
    Case("scan linen", linen_scan, "7 3x5", "3x7", "3x7 3x5 1"),
    Case("transformed", transformed, "7 5", "5", "7"),
    Case("vmap mean", vmapped(True), "5 5x7", "5x7"),
    Case("vmap", vmapped(False), "5x7", "5x7"),
    Case("low rank", low_rank, "7 5", "5", "7 5"),
]
