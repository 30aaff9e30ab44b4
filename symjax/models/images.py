"""Images as they come, in bytes, and as convolutions take them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num


_Array: TypeAlias = Array | np.ndarray


def with_channels(
    x: Num[_Array, "example ..."],
) -> Num[Array, "example height width channel"]:
    """Images with an axis of channels.

    Raises:
        ValueError: if the inputs are no images.
    """
    if x.ndim == 3:
        return jnp.asarray(x)[..., None]
    if x.ndim != 4:
        raise ValueError(
            f"`x` must hold images (example, height, width[, channel]), got shape "
            f"{x.shape}. Use the model mlp, or reshape the inputs."
        )
    return jnp.asarray(x)


def from_bytes(
    apply: Callable[..., Any],
    mean: Float[np.ndarray, "..."],
    std: Float[np.ndarray, "..."],
) -> Callable[..., Any]:
    """A network's function that normalises inputs of uint8 where it runs.

    `(x - mean) / std`, to the very numbers that `data.load` makes of the same bytes, so
    that a device is sent, and holds, a quarter of them. Other inputs pass as they are.

    Args:
        apply: `(params, x, **options) -> outputs`.
        mean: In the units of the bytes, of the last axis or a number.
        std: The same; 0 where the inputs do not vary, which makes them 0.
    """
    varies = std > 0
    factor = np.where(varies, 1 / np.where(varies, std, 1), 0).astype(np.float32)
    offset = np.asarray(mean, np.float32)

    def apply_to_bytes(params: Any, x: Any, **options: Any) -> Any:
        if x.dtype == jnp.uint8:
            x = (jnp.asarray(x).astype(jnp.float32) - offset) * factor
        return apply(params, x, **options)

    return apply_to_bytes
