"""What single test points show: their pictures, their predictive intervals."""

import numpy as np
from jaxtyping import Float, Num
from scipy import special

from symjax.report.scores import Numbers


def as_images(
    x: Num[Numbers, "example ..."],
) -> Num[np.ndarray, "example height width ..."] | None:
    """The inputs as images, or None where they have no height and width.

    Images are inputs of the shape (height, width), or (height, width, channel) with 1
    or 3 channels.
    """
    x = np.asarray(x)
    if x.ndim == 3 or (x.ndim == 4 and x.shape[3] in {1, 3}):
        return x
    return None


def mixture_quantile(
    mean: Float[np.ndarray, "chain draw *shape"],
    std: Float[np.ndarray, "chain draw *shape"],
    share: float,
) -> Float[np.ndarray, "*shape"]:
    """A quantile of the average of the draws' Gaussians, by bisection.

    Args:
        mean: The mean of every draw.
        std: The standard deviation of every draw.
        share: The probability below the quantile.

    Returns:
        The quantile, to 1e-9 of the range of the Gaussians.
    """
    tail = special.ndtri(share)
    low = (mean + tail * std).min(axis=(0, 1))
    high = (mean + tail * std).max(axis=(0, 1))
    for _ in range(30):
        middle = (low + high) / 2
        below = special.ndtr((middle - mean) / std).mean(axis=(0, 1)) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
