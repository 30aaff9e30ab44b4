"""LeNet-5."""

from typing import TypeAlias

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation
from symjax.models.images import with_channels
from symjax.models.mlp import MLP


_Array: TypeAlias = Array | np.ndarray


class LeNet(nn.Module):
    """LeNet-5: two convolutions with mean pooling and two hidden layers; smooth.

    The first convolution pads, which for 28 x 28 images is the paper's 32 x 32 frame
    (61,706 parameters with 10 outputs). Pooling has no weights, the second convolution
    sees all maps and the last layer is linear, where the paper has trained pooling, a
    connection table and radial units. Images with a side below 12 pixels are framed
    with zeros to 12.

    Attributes:
        num_outputs: Width of the last, linear layer.
        activation: After every hidden layer.

    References:
        LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to
        document recognition, section II.B.
    """

    num_outputs: int
    activation: Activation = nn.tanh

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        x = with_channels(x)
        frame = [max(0, 12 - side) for side in x.shape[1:3]]
        x = jnp.pad(x, [(0, 0), *((n // 2, n - n // 2) for n in frame), (0, 0)])
        x = self.activation(nn.Conv(6, (5, 5), padding="SAME")(x))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = self.activation(nn.Conv(16, (5, 5), padding="VALID")(x))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        return MLP(self.num_outputs, (120, 84), self.activation)(x)


class LeNetMaxPool(nn.Module):
    """LeNet-5 as HMC has been run on it: three padded convolutions, maximum pooling.

    142,646 parameters for 32 x 32 x 3 images and 10 outputs. Images must have a side
    of at least 15 pixels. The maxima of the pooling, and relu, have kinks.

    Attributes:
        num_outputs: Width of the last, linear layer.
        activation: After every hidden layer.

    References:
        Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
        posteriors really like?; its code, `make_lenet5_fn`.
    """

    num_outputs: int
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`.

        Raises:
            ValueError: if they are so small that pooling leaves nothing.
        """
        x = with_channels(x)
        if min(x.shape[1:3]) < 15:
            raise ValueError(
                f"`x` must be images of at least 15 x 15 pixels, got "
                f"{x.shape[1]} x {x.shape[2]}. Use the model lenet."
            )
        for channels in (6, 16, 120):
            x = self.activation(nn.Conv(channels, (5, 5))(x))
            x = nn.max_pool(x, (3, 3), strides=(2, 2))
        return MLP(self.num_outputs, (84,), self.activation)(x)
