"""Images as convolutions take them."""

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num


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
