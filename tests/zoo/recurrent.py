"""Recurrent networks. What a cell gives, o tanh(c), is odd in its state."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.network import Case, inputs, linen, plain, tokens


class TextModel(nn.Module):
    """Features of tokens, a convolution, pooling, a recurrent layer, a class."""

    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, x):
        x = nn.Embed(13, 5)(x)
        x = nn.relu(nn.Conv(6, (3,))(x))
        x = nn.max_pool(x, (2,), (2,))
        return nn.Dense(2)(nn.RNN(self.cell)(x)[:, -1])


class Bidirectional(nn.Module):
    """Two directions side by side, of 5 and 7 units, all steps read."""

    @nn.compact
    def __call__(self, x):
        both = nn.Bidirectional(
            nn.RNN(nn.GRUCell(5, param_dtype=float)),
            nn.RNN(nn.LSTMCell(7, param_dtype=float)),
        )(x)
        return nn.Dense(2)(jnp.mean(both, axis=1))


def text(cell):
    return lambda: linen(TextModel(cell), tokens(13, 3, 8))


def packed_lstm():
    """An LSTM in plain JAX: one matrix for the four gates, a loop that is unrolled."""

    def apply(p, x):
        hidden = cell = jnp.zeros((len(x), 7))
        for step in range(x.shape[1]):
            gates = x[:, step] @ p["input"] + hidden @ p["hidden"] + p["bias"]
            i, f, g, o = gates.reshape(len(x), 4, 7).swapaxes(0, 1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return hidden @ p["out"]

    shapes = {"input": (3, 28), "hidden": (7, 28), "bias": (28,), "out": (7, 2)}
    return plain(apply, inputs(4, 3, 3), **shapes)


def fori():
    """A loop of fixed length around shared weights."""

    def apply(p, x):
        def step(_, hidden):
            return jnp.tanh(hidden @ p["hidden"] + p["bias"])

        return jax.lax.fori_loop(0, 3, step, x @ p["in"]) @ p["out"]

    shapes = {"in": (3, 7), "hidden": (7, 7), "bias": (7,), "out": (7, 2)}
    return plain(apply, inputs(4, 3), **shapes)


def linear_recurrence():
    """A diagonal linear state space: every state has a scale and a sign."""

    def apply(p, x):
        def step(state, now):
            state = jax.nn.sigmoid(p["decay"]) * state + now @ p["in"]
            return state, state @ p["out"]

        start = jnp.zeros((len(x), 7))
        return jax.lax.scan(step, start, x.swapaxes(0, 1))[1]

    return plain(apply, inputs(4, 6, 3), **{"decay": (7,), "in": (3, 7), "out": (7, 2)})


def steps_of_their_own():
    """A linear state that starts at zero; each step has weights of its own.

    What one step writes all later ones read, so that steps share their units.
    """

    def apply(p, x):
        def step(state, slices):
            now, write, read = slices
            state = state / 2 + now @ write
            return state, state @ read

        slices = x.swapaxes(0, 1), p["write"], p["read"]
        return jax.lax.scan(step, jnp.zeros((len(x), 7)), slices)[1]

    return plain(apply, inputs(4, 6, 3), write=(6, 3, 7), read=(6, 7, 2))


CASES = [
    # Features of the tokens pass to the convolution, and its channels through relu and
    # pooling to the cell, whose gates fix no scale of what they read.
    Case("cnn lstm", text(nn.LSTMCell(11, param_dtype=float)), "5 6 11", "5 6", "5 11"),
    Case(
        "cnn optimised lstm",
        text(nn.OptimizedLSTMCell(11, param_dtype=float)),
        "5 6 11",
        "5 6",
        "5 11",
    ),
    Case("cnn gru", text(nn.GRUCell(11, param_dtype=float)), "5 6 11", "5 6", "5 11"),
    Case("cnn mgu", text(nn.MGUCell(11, param_dtype=float)), "5 6 11", "5 6", "5 11"),
    Case(
        "bidirectional",
        lambda: linen(Bidirectional(), inputs(3, 4, 3)),
        "5 7",
        "",
        "5 7",
    ),
    # Gates that a reshape parts share their units: the signs of cells are not found.
    Case("packed lstm", packed_lstm, "7", "", None),
    Case("fori loop", fori, "7", "", "7"),
    Case("linear recurrence", linear_recurrence, "7", "7", "7"),
    Case("steps of their own", steps_of_their_own, "7", "7", "7"),
]
