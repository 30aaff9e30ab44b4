"""Between the inputs of a data set and pixels from black to white."""

import numpy as np

from symjax.data.datasets import Dataset
from symjax.data.filters import Images


def as_pixels(dataset: Dataset) -> Images:
    """The test images in [0, 1], with an axis of channels."""
    low, high = _range(dataset)
    raw = dataset.test.x * np.asarray(dataset.input_std)
    raw = raw + np.asarray(dataset.input_mean)
    whole = np.rint(raw)
    if dataset.train_bytes is not None and abs(raw - whole).max() < 1e-3:
        # Bytes again: what rounding leaves of grey and black would have a hue.
        raw = whole
    pixels = np.clip((raw - low) / (high - low), 0, 1).astype(np.float32)
    return pixels[..., None] if pixels.ndim == 3 else pixels


def as_inputs(pixels: Images, like: Dataset) -> np.ndarray:
    """Images in [0, 1] as inputs: of the shape and normalisation of `like`."""
    low, high = _range(like)
    if like.test.x.ndim == 3:
        pixels = pixels[..., 0]
    std = np.asarray(like.input_std)
    raw = low + (high - low) * pixels.astype(np.float32)
    factor = np.where(std > 0, 1 / np.where(std > 0, std, 1), 0)
    return ((raw - np.asarray(like.input_mean)) * factor).astype(np.float32)


def fit(pixels: Images, shape: tuple[int, ...]) -> Images:
    """Images of another size and number of channels.

    A new pixel is the mean of the area that it covers, as the pixels of scikit-learn's
    digits are means of squares; grey is repeated in every channel, and grey of colours
    is their mean.

    Args:
        pixels: In [0, 1].
        shape: `(row, column, channel)` to have.
    """
    if pixels.shape[3] != shape[2]:
        pixels = np.repeat(pixels.mean(axis=3, keepdims=True), shape[2], axis=3)
    if pixels.shape[1:3] == shape[:2]:
        return pixels
    rows, columns = (
        _areas(size, new)
        for size, new in zip(pixels.shape[1:3], shape[:2], strict=True)
    )
    planes = rows @ np.moveaxis(pixels, 3, 1) @ columns.T
    # A mean of ones may be a rounding above one.
    return np.clip(np.moveaxis(planes, 1, 3), 0, 1)


def _areas(size: int, new: int) -> np.ndarray:
    """The share of each new pixel that lies in each pixel, `(new, size)`."""
    edges, pixel = np.arange(new + 1) * size / new, np.arange(size)
    low = np.maximum(edges[:-1, None], pixel)
    high = np.minimum(edges[1:, None], pixel + 1)
    return (np.maximum(0, high - low) * new / size).astype(np.float32)


def _range(dataset: Dataset) -> tuple[float, float]:
    """Black and white.

    Raises:
        ValueError: if the inputs are no images.
    """
    if dataset.test.x.ndim not in (3, 4):
        raise ValueError(
            f"`dataset` must hold images (example, row, column[, channel]), but inputs "
            f"of {dataset.name} have shape {dataset.test.x.shape[1:]}."
        )
    if dataset.input_range is None:
        raise ValueError("`dataset` must come from `load`: it lacks `input_range`.")
    return dataset.input_range
