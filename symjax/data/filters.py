"""What corruptions are made of: kernels, and matrices for rows and columns."""

from typing import TypeAlias

import numpy as np
import scipy  # Its parts are imported where they are used first.
from jaxtyping import Float


Images: TypeAlias = Float[np.ndarray, "_image _row _column _channel"]

SIDE = 32
"""Of the images for which lengths in pixels are given."""


def disc(radius: float) -> np.ndarray:
    """The kernel that averages the linearly interpolated image over a disc."""
    across = np.linspace(-radius, radius, 101)
    rows, columns = np.meshgrid(across, across, indexing="ij")
    is_inside = rows**2 + columns**2 <= radius**2
    return _kernel(rows[is_inside], columns[is_inside], np.ones(is_inside.sum()))


def streak(std: float, angle: float) -> np.ndarray:
    """The kernel that averages the linearly interpolated image along a line.

    Args:
        std: Of the half-normal weights along the line from the centre, which ends at
            three of them, in pixels.
        angle: From the axis of columns, in degrees.
    """
    along = np.linspace(0, 3 * std, 201)
    radians = np.deg2rad(angle)
    weights = np.exp(-0.5 * (along / std) ** 2)
    return _kernel(along * np.sin(radians), along * np.cos(radians), weights)


def _kernel(rows: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights at places between pixels, given to the four pixels around each."""
    half = int(np.ceil(max(np.abs(rows).max(), np.abs(columns).max())))
    pixels = np.arange(-half, half + 1)[:, None]
    of_row, of_column = (
        np.maximum(0, 1 - np.abs(pixels - places)) for places in (rows, columns)
    )
    kernel = (of_row * weights) @ of_column.T
    return kernel / kernel.sum()


def unit(images: Images) -> float:
    """Pixels of these images that stand for one of an image of `SIDE` pixels."""
    return float(np.sqrt(min(images.shape[1:3]) / SIDE))


def convolve(images: Images, kernel: np.ndarray) -> Images:
    """Apply one kernel to every channel; beyond the edges the image is mirrored."""
    return scipy.ndimage.convolve(images, kernel[None, :, :, None], mode="reflect")


def separable(images: Images, rows: np.ndarray, columns: np.ndarray) -> Images:
    """Apply one matrix to the rows and one to the columns of each image."""
    planes = np.moveaxis(images, 3, 1)
    moved = rows.astype(np.float32) @ planes @ columns.T.astype(np.float32)
    return np.moveaxis(moved, 1, 3)


def linear(size: int, places: np.ndarray) -> np.ndarray:
    """The matrix `(place, size)` of linear interpolation, constant beyond the ends."""
    places = np.clip(places, 0, size - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(size)))


def magnify(size: int, zoom: float) -> np.ndarray:
    """The matrix that magnifies about the centre."""
    centre = (size - 1) / 2
    return linear(size, (np.arange(size) - centre) / zoom + centre)


def coarsen(size: int, count: int) -> np.ndarray:
    """The matrix that averages over equal intervals, and those over each pixel."""
    edges, pixel = np.arange(count + 1) * size / count, np.arange(size)
    low = np.maximum(edges[:-1, None], pixel)
    high = np.minimum(edges[1:, None], pixel + 1)
    overlap = np.maximum(0, high - low)
    return overlap.T @ (overlap * count / size)


def cloud(
    shape: tuple[int, ...], decay: float, generator: np.random.Generator
) -> Images:
    """Noise at all scales in [0, 1], each scale half as wide and 1 / decay as high."""
    rows, columns = shape[1:3]
    total = np.zeros((shape[0], rows, columns, 1), np.float32)
    for level in range(int(np.ceil(np.log2(max(rows, columns)))) + 1):
        count = 2**level + 1
        grid = generator.random((shape[0], count, count, 1), dtype=np.float32)
        across = (
            linear(count, np.linspace(0, count - 1, size)) for size in (rows, columns)
        )
        total += decay**-level * separable(grid, *across)
    total -= total.min(axis=(1, 2), keepdims=True)
    return total / total.max(axis=(1, 2), keepdims=True)
