"""A convolution and an LSTM for texts."""

from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symjax.models.activations import Activation


_Array: TypeAlias = Array | np.ndarray

GATES = ("input", "cell", "forget", "output")
"""Of an LSTM, in the order in which their kernels lie side by side."""

FORGET_OFFSET = 1.0
"""Added to the forget gate, so that an LSTM with zero biases remembers."""


UNROLLED = 32
"""Steps that a GPU takes without a loop, whose copies are a quarter of the time."""


class LSTM(nn.Module):
    """A long short-term memory: what it holds after the last step of a sequence.

    With i, f, o = sigmoid and g = tanh of a gate's linear function of the input and the
    last output, c = sigmoid(f + 1) c + i g and the output is o tanh(c). The one, which
    is no parameter, makes a network remember whose parameters are all small.

    Attributes:
        size: Units.
    """

    size: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "example step feature"]
    ) -> Float[Array, "example size"]:
        """Return the output of the last step."""
        # A kernel a gate, which can be told apart; multiplied side by side.
        before = [
            nn.Dense(self.size, name=f"{gate}_x", use_bias=False) for gate in GATES
        ]
        inputs = jnp.concatenate([layer(x) for layer in before], axis=-1)
        kernels, biases = [], []
        for gate in GATES:
            shape = (self.size, self.size)
            init = nn.initializers.orthogonal()
            kernels.append(self.param(f"{gate}_h", init, shape))
            biases.append(self.param(f"{gate}_b", nn.initializers.zeros, shape[:1]))
        kernel, bias = jnp.concatenate(kernels, axis=1), jnp.concatenate(biases)

        def step(
            state: tuple[Array, Array], now: Array
        ) -> tuple[tuple[Array, Array], None]:
            cell, output = state
            i, g, f, o = jnp.split(now + output @ kernel + bias, 4, axis=-1)
            cell = jax.nn.sigmoid(f + FORGET_OFFSET) * cell
            cell = cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (cell, jax.nn.sigmoid(o) * jnp.tanh(cell)), None

        start = jnp.zeros((len(x), self.size), jnp.result_type(inputs, kernel))
        steps = jnp.moveaxis(inputs, 1, 0)
        is_unrolled = jax.default_backend() == "gpu" and len(steps) <= UNROLLED
        (_, output), _ = jax.lax.scan(
            step, (start, start), steps, unroll=len(steps) if is_unrolled else 1
        )
        return output


class CNNLSTM(nn.Module):
    """Features of words, a convolution over five, pooling over four, and an LSTM.

    2,700,098 parameters for 20,000 words and 2 outputs.

    Attributes:
        num_outputs: Width of the last, linear layer.
        num_words: Size of the vocabulary.
        activation: After the convolution.

    References:
        Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
        posteriors really like?, section 3; its code, `make_cnn_lstm`.
    """

    num_outputs: int
    num_words: int = 20_000
    activation: Activation = nn.relu

    @nn.compact
    def __call__(
        self, x: Int[_Array, "example word"]
    ) -> Float[Array, "example output"]:
        """Return outputs of the ids of words, from 0 on.

        Raises:
            ValueError: if there are no ids, or too few for one pool.
        """
        if x.ndim != 2 or x.shape[1] < 8:
            raise ValueError(
                f"`x` must hold ids (example, word) of at least 8 words, got shape "
                f"{x.shape}."
            )
        features = nn.Embed(self.num_words, 128)(jnp.asarray(x))
        features = self.activation(nn.Conv(64, (5,), padding="VALID")(features))
        features = nn.max_pool(features, (4,), strides=(4,))
        return nn.Dense(self.num_outputs)(LSTM(128)(features))
