"""Networks' functions with fused GPU kernels, where those were measured to pay.

For gradients alone: the same function to rounding, without second derivatives.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from symjax.models.resnet import ResNet20FRN


def find(model: nn.Module) -> Callable[..., Any] | None:
    """`(params, x, *, dtype, in_pairs) -> outputs` with fused kernels, or None.

    There is one for `ResNet20FRN` with silu, on a GPU.

    Args:
        model: From `models.build`.
    """
    if jax.default_backend() != "gpu" or not isinstance(model, ResNet20FRN):
        return None
    if model.activation is not nn.silu:
        return None
    from symjax.models.fused import resnet

    return resnet.apply
