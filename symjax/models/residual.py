"""Residual networks as PyTorch's users train them, and one that can be sampled."""

from collections.abc import Sequence
from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation
from symjax.models.images import with_channels
from symjax.models.resnet import ConvFRN


_Array: TypeAlias = Array | np.ndarray


class ConvBN(nn.Module):
    """A convolution, then batch normalisation by statistics that training has left.

    Mean and variance are parameters here, so that a network is a function of its
    parameters and one example. No training is meant by that: they are no weights.

    Attributes:
        features: Channels out.
        kernel: Side of the square kernel, odd.
        stride: In both directions.

    References:
        Ioffe, Szegedy (2015), Batch normalization, algorithm 2.
    """

    features: int
    kernel: int = 3
    stride: int = 1

    @nn.compact
    def __call__(
        self, x: Num[Array, "example height width channel"]
    ) -> Float[Array, "example height_out width_out features"]:
        """Return the normalised feature maps."""
        # PyTorch's padding, which with a stride is not that of "SAME".
        edge = (self.kernel // 2, self.kernel // 2)
        x = nn.Conv(
            self.features,
            (self.kernel, self.kernel),
            self.stride,
            padding=(edge, edge),
            use_bias=False,
            kernel_init=nn.initializers.he_normal(),
        )(x)
        shape = (self.features,)
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean = self.param("mean", nn.initializers.zeros, shape)
        variance = self.param("variance", nn.initializers.ones, shape)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


class Block(nn.Module):
    """Two convolutions around which the input passes, projected where it must be.

    Attributes:
        layer: `ConvBN` or `ConvFRN`.
        features: Channels out.
        stride: Of the first convolution and the projection.
        activation: After the first convolution, and after the sum.
    """

    layer: type[nn.Module]
    features: int
    stride: int
    activation: Activation

    @nn.compact
    def __call__(
        self, x: Num[Array, "example height width channel"]
    ) -> Float[Array, "example height_out width_out features"]:
        """Return the block's feature maps."""
        layer, stride = self.layer, self.stride
        change = layer(self.features, stride=stride, name="conv1")(x)
        change = layer(self.features, name="conv2")(self.activation(change))
        if stride > 1 or x.shape[-1] != self.features:
            x = layer(self.features, kernel=1, stride=stride, name="shortcut")(x)
        return self.activation(x + change)


class ResNet18(nn.Module):
    """ResNet-18 for small images, with batch normalisation; to be read, not sampled.

    11,173,962 weights for 10 outputs, and 9,600 means and variances. Batch
    normalisation that is trained makes an example's output depend on others, so that
    there is no likelihood; samplers refuse it.

    Attributes:
        num_outputs: Width of the last, linear layer.
        width: Channels of the first stage.
        activation: relu in published checkpoints.

    References:
        He et al. (2016), Deep residual learning, table 1; Laurent, Aldea, Franchi
        (2024), A symmetry-aware exploration of Bayesian neural network posteriors.
    """

    num_outputs: int
    width: int = 64
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        means = _stages(x, ConvBN, self.width, (2, 2, 2, 2), self.activation)
        return nn.Dense(self.num_outputs, name="linear")(means)


class ResNet20(nn.Module):
    """ResNet-20 with batch normalisation and projections; to be read, not sampled.

    Attributes:
        num_outputs: Width of the last, linear layer.
        width: Channels of the first stage.
        activation: relu in published checkpoints.

    References:
        He et al. (2016), Deep residual learning, section 4.2.
    """

    num_outputs: int
    width: int = 16
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        means = _stages(x, ConvBN, self.width, (3, 3, 3), self.activation)
        return nn.Dense(self.num_outputs, name="linear")(means)


class ResNet18FRN(nn.Module):
    """ResNet-18 with filter response normalisation, of which there is a posterior.

    11,183,562 parameters for 3 channels and 10 outputs.

    Attributes:
        num_outputs: Width of the last, linear layer.
        width: Channels of the first stage.
        activation: After every normalisation but those that meet in a sum, and after
            the sum.
    """

    num_outputs: int
    width: int = 64
    activation: Activation = nn.silu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        means = _stages(x, ConvFRN, self.width, (2, 2, 2, 2), self.activation)
        return nn.Dense(self.num_outputs, name="linear")(means)


def _stages(
    x: Num[_Array, "example ..."],
    layer: type[nn.Module],
    width: int,
    blocks: Sequence[int],
    activation: Activation,
) -> Float[Array, "example feature"]:
    """The mean over pixels of the last of some stages, each twice as wide."""
    maps = activation(layer(width, name="stem")(with_channels(x)))
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            stride = 2 if stage > 1 and block == 0 else 1
            features = width * 2 ** (stage - 1)
            name = f"layer{stage}_{block}"
            maps = Block(layer, features, stride, activation, name=name)(maps)
    return jnp.mean(maps, axis=(1, 2))
