"""ResNet-20 with filter response normalisation."""

from typing import TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation
from symjax.models.images import with_channels


_Array: TypeAlias = Array | np.ndarray
EPSILON = 1e-6
"""Added to the mean square in filter response normalisation."""


class FilterResponseNorm(nn.Module):
    """Filter response normalisation with its threshold: max(gamma x / nu + beta, tau).

    nu^2 is the mean square of an example's channel over its pixels, so that examples
    don't mix. The maximum has a kink.

    References:
        Singh, Krishnan (2020), Filter response normalization layer, equations 1 to 4.
    """

    @nn.compact
    def __call__(
        self, x: Num[Array, "example height width channel"]
    ) -> Float[Array, "example height width channel"]:
        """Return the normalised, thresholded activations."""
        shape = x.shape[-1:]
        gamma = self.param("gamma", nn.initializers.ones, shape)
        beta = self.param("beta", nn.initializers.zeros, shape)
        tau = self.param("tau", nn.initializers.zeros, shape)
        mean_square = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True)
        return jnp.maximum(gamma * x * jax.lax.rsqrt(mean_square + EPSILON) + beta, tau)


class ConvFRN(nn.Module):
    """A convolution with bias, then filter response normalisation.

    Attributes:
        features: Channels out.
        kernel: Side of the square kernel.
        stride: In both directions.
    """

    features: int
    kernel: int = 3
    stride: int = 1

    @nn.compact
    def __call__(
        self, x: Num[Array, "example height width channel"]
    ) -> Float[Array, "example height_out width_out features"]:
        """Return the normalised feature maps."""
        x = nn.Conv(
            self.features,
            (self.kernel, self.kernel),
            self.stride,
            kernel_init=nn.initializers.he_normal(),
        )(x)
        return FilterResponseNorm()(x)


class ResNet20FRN(nn.Module):
    """ResNet-20 with filter response normalisation, as HMC has been run on CIFAR-10.

    Three stages of three residual blocks, channels doubled and sides halved between
    stages by a projected shortcut; 274,042 parameters for 32 x 32 x 3 images and 10
    outputs. The activation is smooth, but the normalisation's max(y, tau) is not: where
    a step crosses a kink the leapfrog's error is of first order, and step sizes come
    out smaller than for a smooth network of this size.

    Attributes:
        num_outputs: Width of the last, linear layer.
        width: Channels of the first stage.
        activation: After every normalisation but those that meet in a sum, and after
            the sum; silu (swish) in the reference, relu adds another kink.

    References:
        Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
        posteriors really like?, section 3 and appendix; He et al. (2016), section 4.2.
    """

    num_outputs: int
    width: int = 16
    activation: Activation = nn.silu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`."""
        maps = self.activation(ConvFRN(self.width)(with_channels(x)))
        for stage in range(3):
            features = self.width * 2**stage
            for block in range(3):
                stride = 2 if stage > 0 and block == 0 else 1
                change = self.activation(ConvFRN(features, stride=stride)(maps))
                change = ConvFRN(features)(change)
                if stride == 2:
                    maps = ConvFRN(features, kernel=1, stride=2)(maps)
                maps = self.activation(maps + change)
        means = jnp.mean(maps, axis=(1, 2))
        head = nn.Dense(self.num_outputs, kernel_init=nn.initializers.he_normal())
        return head(means)
