"""The AlexNet-like network of the 2021 competition."""

from typing import TypeAlias

import flax.linen as nn
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation
from symjax.models.images import with_channels
from symjax.models.mlp import MLP


_Array: TypeAlias = Array | np.ndarray


class AlexNet(nn.Module):
    """Five convolutions with two poolings and two hidden layers, without normalisation.

    1,488,202 parameters for 32 x 32 x 3 images and 10 outputs. The maxima of the
    pooling, and relu, have kinks.

    Attributes:
        num_outputs: Width of the last, linear layer.
        activation: After every hidden layer.

    References:
        Wilson, Izmailov, Hoffman et al. (2022), Evaluating approximate inference in
        Bayesian deep learning; its starting kit, `make_cifar_alexnet`.
    """

    num_outputs: int
    activation: Activation = nn.relu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        x = with_channels(x)
        for channels, kernel, pools in (
            (64, 3, True),
            (128, 3, True),
            (256, 2, False),
            (128, 2, False),
            (64, 2, False),
        ):
            x = self.activation(nn.Conv(channels, (kernel, kernel))(x))
            if pools:
                x = nn.max_pool(x, (2, 2), strides=(2, 2))
        return MLP(self.num_outputs, (256, 256), self.activation)(x)
