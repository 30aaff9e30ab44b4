"""ResNet-20-FRN's function with fused kernels, for a gradient on a GPU."""

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax import rounding
from symjax.models.fused.block import Layer, residual_block
from symjax.models.images import with_channels
from symjax.models.resnet import EPSILON
from symjax.types import Params


_Array: TypeAlias = Array | np.ndarray
_SIDES = {32: 16, 16: 32}
"""Sides of the maps for which the kernels are faster than XLA, with the channels."""


def apply(
    params: Params,
    x: Num[_Array, "example height width channel"],
    *,
    dtype: Any,
    in_pairs: bool = False,
) -> Float[Array, "example output"]:
    """What `ResNet20FRN` with silu returns, to the rounding of `dtype`.

    Maps are stored as `dtype`; statistics, sums and the outputs are float32. The
    gradient has custom rules, so that there is no second derivative. Blocks that no
    kernel fits (images of other sizes, networks of other widths) are left to XLA.

    Args:
        params: Of `ResNet20FRN`.
        x: Images.
        dtype: Of the maps: bfloat16 or float16.
        in_pairs: Whether kernels are sums of two such numbers.
    """
    norm_conv = partial(_conv_frn, in_pairs)
    leaves = params["params"]
    layers = (_layer(leaves[f"ConvFRN_{i}"]) for i in range(21))
    maps = _swish(norm_conv(with_channels(x).astype(dtype), next(layers)))
    for stage in range(3):
        for block in range(3):
            if stage > 0 and block == 0:
                change = _swish(norm_conv(maps, next(layers), 2))
                change = norm_conv(change, next(layers))
                maps = _swish(norm_conv(maps, next(layers), 2) + change)
            elif _SIDES.get(maps.shape[1]) == maps.shape[3] and _is_square(maps):
                maps = residual_block(
                    maps, next(layers), next(layers), in_pairs=in_pairs
                )
            else:
                change = _swish(norm_conv(maps, next(layers)))
                maps = _swish(maps + norm_conv(change, next(layers)))
    means = jnp.mean(maps.astype(jnp.float32), axis=(1, 2))
    head = leaves["Dense_0"]
    return jnp.dot(means, head["kernel"]) + head["bias"]


def _layer(leaves: Any) -> Layer:
    conv, norm = leaves["Conv_0"], leaves["FilterResponseNorm_0"]
    return Layer(conv["kernel"], conv["bias"], norm["gamma"], norm["beta"], norm["tau"])


def _is_square(maps: Any) -> bool:
    return maps.shape[1] == maps.shape[2]


def _conv_frn(in_pairs: bool, maps: Any, layer: Layer, stride: int = 1) -> Any:
    """The normalised convolution; its arithmetic is float32, its result as `maps`."""

    def convolve(maps: Any, kernel: Any, dtype: Any) -> Any:
        return jax.lax.conv_general_dilated(
            maps,
            kernel,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=dtype,
        )

    rounded = rounding.product(convolve, maps.dtype, True, False, in_pairs=in_pairs)
    wide = rounded(maps.astype(jnp.float32), layer.kernel) + layer.bias
    square = jnp.mean(wide * wide, axis=(1, 2), keepdims=True)
    scaled = layer.gamma * wide * jax.lax.rsqrt(square + EPSILON) + layer.beta
    return jnp.maximum(scaled, layer.tau).astype(maps.dtype)


def _swish(maps: Any) -> Any:
    return jax.nn.silu(maps.astype(jnp.float32)).astype(maps.dtype)
