"""A small vision transformer."""

from typing import TypeAlias

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax.models.activations import Activation
from symjax.models.images import with_channels


_Array: TypeAlias = Array | np.ndarray


class ViT(nn.Module):
    """A transformer over patches, normalised before each layer, without dropout.

    Patches get a learned position; the class is read from the mean of the last stream.
    207,946 parameters for 32 x 32 x 3 images and 10 outputs. It is smooth.

    Attributes:
        num_outputs: Width of the last, linear layer.
        width: Features of a patch; a multiple of the 4 heads.
        depth: Blocks of attention and of a hidden layer four times as wide.
        patch: Side of a patch, which divides those of the images.
        activation: Of the hidden layers.

    References:
        Dosovitskiy et al. (2021), An image is worth 16x16 words, section 3.1; Beyer,
        Zhai, Kolesnikov (2022), Better plain ViT baselines (the mean).
    """

    num_outputs: int
    width: int = 64
    depth: int = 4
    patch: int = 4
    activation: Activation = nn.gelu

    @nn.compact
    def __call__(self, x: Num[_Array, "example ..."]) -> Float[Array, "example output"]:
        """Return outputs of images `(example, height, width[, channel])`.

        Raises:
            ValueError: if patches don't fill the images, or heads the features.
        """
        x = with_channels(x)
        if any(side % self.patch for side in x.shape[1:3]) or self.width % 4:
            raise ValueError(
                f"`patch` must divide the sides of the images and 4 the `width`, got "
                f"{self.patch}, {x.shape[1]} x {x.shape[2]} and {self.width}."
            )
        sides = (self.patch, self.patch)
        stream = nn.Conv(self.width, sides, sides, name="patches")(x)
        stream = stream.reshape(len(x), -1, self.width)
        init = nn.initializers.normal(0.02)
        stream = stream + self.param("position", init, stream.shape[1:])
        for _ in range(self.depth):
            stream = stream + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(stream))
            hidden = self.activation(nn.Dense(4 * self.width)(nn.LayerNorm()(stream)))
            stream = stream + nn.Dense(self.width)(hidden)
        means = jnp.mean(nn.LayerNorm()(stream), axis=1)
        return nn.Dense(self.num_outputs)(means)
