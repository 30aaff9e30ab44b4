"""Corruptions of images in the style of CIFAR-10-C.

Each function takes images `(image, row, column, channel)` in [0, 1], a severity 1 to 5
and a generator, and may leave [0, 1]; `corrupt` clips. Strengths are of the order of
those of CIFAR-10-C, but results with them are not to be compared with published ones.
Lengths in pixels are those for images of 32 x 32, times the square root of side / 32:
half-way between one number of pixels and one share of the image, since that share of
an image of 8 x 8 is less than a pixel.

References:
    Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common
    corruptions and perturbations", section 3 and appendix A.
"""

import io
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import ndimage


Images: TypeAlias = Float[np.ndarray, "_image _row _column _channel"]

SIDE = 32
"""Of the images for which lengths in pixels are given."""

ANGLES = tuple(5.0 * step for step in range(-9, 10))
"""Degrees of the motion blurs, one of which is drawn for each image."""


def corrupt(name: str, images: Images, severity: int, seed: int) -> Images:
    """Corrupt images; noises and fields of one seed are the same at every severity.

    Args:
        name: One of `CORRUPTIONS`.
        images: In [0, 1].
        severity: 1 to 5.
        seed: Of what is drawn at random.

    Returns:
        Images in [0, 1], float32.
    """
    generator = np.random.default_rng([seed, list(CORRUPTIONS).index(name)])
    corrupted = CORRUPTIONS[name](images.astype(np.float32), severity, generator)
    return np.clip(corrupted, 0, 1).astype(np.float32)


def gaussian_noise(
    images: Images, severity: int, generator: np.random.Generator
) -> Images:
    """Add independent normal noise to every pixel."""
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    noise = generator.standard_normal(images.shape, dtype=np.float32)
    return images + np.float32(std) * noise


def shot_noise(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Count photons: Poisson with a mean of so many for a white pixel."""
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return generator.poisson(images * photons) / photons


def impulse_noise(
    images: Images, severity: int, generator: np.random.Generator
) -> Images:
    """Make a share of the values black or white, as likely one as the other."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    uniform = generator.random(images.shape, dtype=np.float32)
    # One number says whether and what, so that a severity keeps what a lower one hit.
    white, black = uniform < share / 2, uniform > 1 - share / 2
    return np.where(white, 1, np.where(black, 0, images))


def defocus_blur(
    images: Images, severity: int, generator: np.random.Generator
) -> Images:
    """Average over a disc."""
    del generator
    radius = (0.7, 1.0, 1.3, 1.7, 2.2)[severity - 1] * _pixels(images)
    return _convolve(images, disc(radius))


def motion_blur(
    images: Images, severity: int, generator: np.random.Generator
) -> Images:
    """Average along a line that fades out, for each image in a direction of its own."""
    std = (1.0, 1.5, 2.0, 2.5, 3.0)[severity - 1] * _pixels(images)
    chosen = generator.integers(len(ANGLES), size=len(images))
    blurred = np.empty_like(images)
    for index, angle in enumerate(ANGLES):
        kernel = streak(std, angle)
        blurred[chosen == index] = _convolve(images[chosen == index], kernel)
    return blurred


def zoom_blur(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Average over magnifications about the centre."""
    del generator
    largest = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    zooms = np.linspace(1, largest, 11)
    matrices = [[_zoom(size, zoom) for zoom in zooms] for size in images.shape[1:3]]
    total = np.zeros_like(images)
    for rows, columns in zip(*matrices, strict=True):
        total += _separable(images, rows, columns)
    return total / len(zooms)


def brightness(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Raise the value of hue, saturation and value, which of grey is the grey."""
    del generator
    added = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = images.max(axis=3, keepdims=True)
    raised = np.clip(value + added, 0, 1)
    return np.where(value > 0, images * (raised / np.where(value > 0, value, 1)), added)


def contrast(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Draw every value towards the mean of its channel of its image."""
    del generator
    kept = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = images.mean(axis=(1, 2), keepdims=True)
    return kept * (images - mean) + mean


def fog(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Add a cloud of noise at all scales, and keep the largest value of the image."""
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[
        severity - 1
    ]
    largest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy = images + thickness * _cloud(images.shape, decay, generator)
    return foggy * largest / (largest + thickness)


def pixelate(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Average over fewer, larger squares."""
    del generator
    share = (0.9, 0.8, 0.65, 0.5, 0.35)[severity - 1]
    return _separable(images, *(_coarsen(size, share) for size in images.shape[1:3]))


def elastic(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Move every pixel by a smooth random field of a given root mean square."""
    distance = (0.4, 0.7, 1.0, 1.35, 1.75)[severity - 1] * _pixels(images)
    field = generator.standard_normal((2, *images.shape[:3]), dtype=np.float32)
    width = np.array(images.shape[1:3]) / 10
    field = ndimage.gaussian_filter(field, (0, 0, *width), mode="reflect")
    size = np.sqrt(np.mean(np.sum(field**2, axis=0), axis=(1, 2)))
    field *= distance / size[:, None, None]
    image, row, column = np.indices(images.shape[:3], dtype=np.float32)
    places = np.stack([image, row + field[0], column + field[1]])
    # Linear between pixels, and at whole numbers of the first axis no other image.
    channels = [
        ndimage.map_coordinates(images[..., channel], places, order=1, mode="reflect")
        for channel in range(images.shape[3])
    ]
    return np.stack(channels, axis=-1)


def jpeg(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Compress by JPEG; colours together, other numbers of channels each by itself."""
    from PIL import Image

    del generator
    quality = (80, 65, 58, 50, 40)[severity - 1]
    bytes_ = np.round(255 * images).astype(np.uint8)
    if images.shape[3] != 3:
        bytes_ = np.moveaxis(bytes_, 3, 1).reshape(-1, *images.shape[1:3])
    compressed = []
    for image in bytes_:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        compressed.append(np.asarray(Image.open(buffer)))
    out = np.stack(compressed)
    if images.shape[3] != 3:
        out = np.moveaxis(out.reshape(len(images), -1, *images.shape[1:3]), 1, 3)
    return out / 255


def rotate(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Turn anticlockwise about the centre, by 15 degrees a severity; outside is 0."""
    del generator
    return ndimage.rotate(
        images, 15 * severity, axes=(2, 1), reshape=False, order=1, mode="constant"
    )


CORRUPTIONS: dict[str, Callable[[Images, int, np.random.Generator], Images]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        motion_blur,
        zoom_blur,
        brightness,
        contrast,
        fog,
        pixelate,
        elastic,
        jpeg,
        rotate,
    )
}
"""By name. New ones come last: the place in this table is part of the seed."""


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


def _pixels(images: Images) -> float:
    """Pixels of these images that stand for one of an image of `SIDE` pixels."""
    return float(np.sqrt(min(images.shape[1:3]) / SIDE))


def _convolve(images: Images, kernel: np.ndarray) -> Images:
    return ndimage.convolve(images, kernel[None, :, :, None], mode="reflect")


def _separable(images: Images, rows: np.ndarray, columns: np.ndarray) -> Images:
    """Apply one matrix to the rows and one to the columns of each image."""
    planes = np.moveaxis(images, 3, 1)
    moved = rows.astype(np.float32) @ planes @ columns.T.astype(np.float32)
    return np.moveaxis(moved, 1, 3)


def _linear(size: int, places: np.ndarray) -> np.ndarray:
    """The matrix `(place, size)` of linear interpolation, constant beyond the ends."""
    places = np.clip(places, 0, size - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(size)))


def _zoom(size: int, zoom: float) -> np.ndarray:
    centre = (size - 1) / 2
    return _linear(size, (np.arange(size) - centre) / zoom + centre)


def _coarsen(size: int, share: float) -> np.ndarray:
    """The matrix that averages over equal intervals, and those over each pixel."""
    count = max(1, round(size * share))
    edges, pixel = np.arange(count + 1) * size / count, np.arange(size)
    low = np.maximum(edges[:-1, None], pixel)
    high = np.minimum(edges[1:, None], pixel + 1)
    overlap = np.maximum(0, high - low)
    return overlap.T @ (overlap * count / size)


def _cloud(
    shape: tuple[int, ...], decay: float, generator: np.random.Generator
) -> Images:
    """Noise at all scales in [0, 1], each scale half as wide and 1 / decay as high."""
    rows, columns = shape[1:3]
    total = np.zeros((shape[0], rows, columns, 1), np.float32)
    for level in range(int(np.ceil(np.log2(max(rows, columns)))) + 1):
        count = 2**level + 1
        grid = generator.random((shape[0], count, count, 1), dtype=np.float32)
        across = (
            _linear(count, np.linspace(0, count - 1, size)) for size in (rows, columns)
        )
        total += decay**-level * _separable(grid, *across)
    total -= total.min(axis=(1, 2), keepdims=True)
    return total / total.max(axis=(1, 2), keepdims=True)
