"""Fully connected networks."""

from typing import TypeAlias

import flax.linen as nn
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation


_Array: TypeAlias = Array | np.ndarray


class MLP(nn.Module):
    """A fully connected network on flattened inputs.

    Attributes:
        num_outputs: Width of the last, linear layer.
        widths: Of the hidden layers, first to last; none is a linear model.
        activation: After every hidden layer.
    """

    num_outputs: int
    widths: tuple[int, ...] = (32,)
    activation: Activation = nn.silu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs: logits, or means."""
        x = x.reshape(len(x), -1)
        for width in self.widths:
            x = self.activation(nn.Dense(width)(x))
        return nn.Dense(self.num_outputs)(x)
