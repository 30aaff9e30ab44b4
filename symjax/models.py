"""Networks in flax.linen: pure functions of their parameters, without state.

There is no BatchNorm and no dropout here: with either, the output for one example is no
function of the parameters and that example, and there is no likelihood to sample from.
Matrices multiply at the precision of `jax.default_matmul_precision`, which is the
caller's choice.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax import checks


Activation: TypeAlias = Callable[[Any], Any]
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
        x = _images(x)
        frame = [max(0, 12 - side) for side in x.shape[1:3]]
        x = jnp.pad(x, [(0, 0), *((n // 2, n - n // 2) for n in frame), (0, 0)])
        x = self.activation(nn.Conv(6, (5, 5), padding="SAME")(x))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = self.activation(nn.Conv(16, (5, 5), padding="VALID")(x))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        return MLP(self.num_outputs, (120, 84), self.activation)(x)


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
        return jnp.maximum(gamma * x * jax.lax.rsqrt(mean_square + 1e-6) + beta, tau)


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
        maps = self.activation(ConvFRN(self.width)(_images(x)))
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


MODELS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "lenet": LeNet,
    "resnet20_frn": ResNet20FRN,
}

ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.relu,
    "tanh": nn.tanh,
    "silu": nn.silu,
    "gelu": nn.gelu,
}


def build(name: str, num_outputs: int, **options: Any) -> nn.Module:
    """A network by name.

    Args:
        name: `mlp`, `lenet` or `resnet20_frn`.
        num_outputs: Outputs an example: classes, or (twice, with a variance head) the
            targets.
        **options: Attributes of `MLP`, `LeNet` or `ResNet20FRN`; `activation` by name:
            relu, tanh, silu or gelu. relu has a kink, where the leapfrog's error is of
            first order.

    Raises:
        ValueError: if the name, an option or an activation is unknown.

    Example:
        >>> model = build("mlp", 10, widths=(32,), activation="silu")
        >>> params = model.init(jax.random.key(0), jnp.zeros((1, 64)))
        >>> model.apply(params, jnp.zeros((5, 64))).shape
        (5, 10)
    """
    if name not in MODELS:
        raise ValueError(f"`name` must be one of {', '.join(MODELS)}, got {name!r}.")
    fields = {field.name for field in dataclasses.fields(MODELS[name])}
    known = sorted(fields - {"num_outputs", "parent", "name"})
    for option in options:
        if option not in known:
            raise ValueError(
                f"`{option}` is no option of {name}, which takes {', '.join(known)}."
            )
    if "activation" in options:
        options["activation"] = _activation(options["activation"])
    if "widths" in options:
        options["widths"] = tuple(options["widths"])
        for width in options["widths"]:
            checks.at_least(1, widths=width)
    checks.at_least(1, num_outputs=num_outputs, width=options.get("width"))
    return MODELS[name](num_outputs=num_outputs, **options)


def _activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {', '.join(ACTIVATIONS)}, got {name!r}."
        )
    return ACTIVATIONS[name]


def _images(
    x: Num[_Array, "example ..."],
) -> Num[Array, "example height width channel"]:
    if x.ndim == 3:
        return jnp.asarray(x)[..., None]
    if x.ndim != 4:
        raise ValueError(
            f"`x` must hold images (example, height, width[, channel]), got shape "
            f"{x.shape}. Use the model mlp, or reshape the inputs."
        )
    return jnp.asarray(x)
