"""Activation functions by name."""

from collections.abc import Callable
from typing import Any, TypeAlias

import flax.linen as nn


Activation: TypeAlias = Callable[[Any], Any]

ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.relu,
    "tanh": nn.tanh,
    "silu": nn.silu,
    "gelu": nn.gelu,
}
