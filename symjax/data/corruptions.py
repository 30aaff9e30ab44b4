"""Corruptions of images in the style of CIFAR-10-C.

Each function takes images `(image, row, column, channel)` in [0, 1], a severity 1 to 5
and a generator, and may leave [0, 1]; `corrupt` clips. Strengths are those of the code
that made CIFAR-10-C; where one differs, its function says how and why. The published
images are whole 255ths, cut off, and these are not rounded: results are not to be
compared with published ones. Lengths in pixels are those for images of 32 x 32, times
the square root of side / 32: half-way between one number of pixels and one share of
the image, since that share of an image of 8 x 8 is less than a pixel.

References:
    Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to common
    corruptions and perturbations", section 3 and appendix A; strengths from
    `ImageNet-C/create_c/make_cifar_c.py` of github.com/hendrycks/robustness, commit
    ca36008.
"""

import io
from collections.abc import Callable

import numpy as np
import scipy  # Its parts are imported where they are used first.

from symjax.data import filters
from symjax.data.filters import Images


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
    """Average over a disc.

    CIFAR-10-C's kernels are 3 x 3: a pixel under normals of 0.4, 0.5 and 0.6, a plus
    and a square, whose variances along an axis are 0.081, 0.213, 0.333, 0.400 and
    0.667. These discs have the same, and a size that follows the image's.
    """
    del generator
    radius = (0.19, 0.50, 0.78, 0.94, 1.42)[severity - 1] * filters.unit(images)
    return filters.convolve(images, filters.disc(radius))


def motion_blur(
    images: Images, severity: int, generator: np.random.Generator
) -> Images:
    """Average along a line that fades out, for each image in a direction of its own.

    CIFAR-10-C's severities 3 and 4 are the same line of standard deviation 2, cut off
    where nothing is left of it; here 4 lies between 3 and 5.
    """
    std = (1.0, 1.5, 2.0, 2.25, 2.5)[severity - 1] * filters.unit(images)
    chosen = generator.integers(len(ANGLES), size=len(images))
    blurred = np.empty_like(images)
    for index, angle in enumerate(ANGLES):
        kernel = filters.streak(std, angle)
        blurred[chosen == index] = filters.convolve(images[chosen == index], kernel)
    return blurred


def zoom_blur(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Average over magnifications about the centre, the image itself counted twice.

    Of 7 to 26 magnifications in steps of 0.01 in CIFAR-10-C, here always 11.
    """
    del generator
    largest = (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1]
    zooms = np.linspace(1, largest, 11)
    matrices = [
        [filters.magnify(size, zoom) for zoom in zooms] for size in images.shape[1:3]
    ]
    total = images.copy()
    for rows, columns in zip(*matrices, strict=True):
        total += filters.separable(images, rows, columns)
    return total / (len(zooms) + 1)


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
    """Add a cloud of noise at all scales, and keep the largest value of the image.

    CIFAR-10-C's cloud is a periodic fractal, this one is interpolated noise, so that
    images need no power of two. On 32 x 32 their means are 0.50, their standard
    deviations 0.15 to 0.17 and 0.19 to 0.20, and neighbours differ by 0.026, 0.027,
    0.031, 0.037 and 0.022, 0.024, 0.031, 0.039 for the four decays.
    """
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[
        severity - 1
    ]
    largest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy = images + thickness * filters.cloud(images.shape, decay, generator)
    return foggy * largest / (largest + thickness)


def pixelate(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Average over fewer, larger squares.

    Of a side as many as in CIFAR-10-C, and fewer than its pixels by the severity or
    more: small images would stay as they are. A pixel on the edge between squares
    becomes their mean, where Pillow's box filter takes one of them.
    """
    del generator
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    counts = [max(1, min(n - severity, int(n * share))) for n in images.shape[1:3]]
    return filters.separable(images, *map(filters.coarsen, images.shape[1:3], counts))


def elastic(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Move every pixel by a smooth random field of a given root mean square.

    Not CIFAR-10-C's: there a random affine map, which shrinks with the severity, comes
    before a field that grows and roughens. Root mean squares are 2.4, 2.1, 1.9,
    1.6 and 1.2 pixels of both, 0, 0.1, 0.3, 0.6 and 0.8 of the field, smoothed over 6.4
    to 0.96 pixels. Here one field, smoothed over 3.2, moves pixels further at each
    severity.
    """
    distance = (0.4, 0.7, 1.0, 1.35, 1.75)[severity - 1] * filters.unit(images)
    field = generator.standard_normal((2, *images.shape[:3]), dtype=np.float32)
    width = np.array(images.shape[1:3]) / 10
    field = scipy.ndimage.gaussian_filter(field, (0, 0, *width), mode="reflect")
    size = np.sqrt(np.mean(np.sum(field**2, axis=0), axis=(1, 2)))
    field *= distance / size[:, None, None]
    image, row, column = np.indices(images.shape[:3], dtype=np.float32)
    places = np.stack([image, row + field[0], column + field[1]])
    # Linear between pixels, and at whole numbers of the first axis no other image.
    channels = [
        scipy.ndimage.map_coordinates(
            images[..., channel], places, order=1, mode="reflect"
        )
        for channel in range(images.shape[3])
    ]
    return np.stack(channels, axis=-1)


def jpeg(images: Images, severity: int, generator: np.random.Generator) -> Images:
    """Compress by JPEG; colours together, other numbers of channels each by itself.

    Of colours Pillow halves the resolution, as in CIFAR-10-C; grey loses less.
    """
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
    """Turn anticlockwise about the centre, by 15 degrees a severity; outside is 0.

    Not of CIFAR-10-C: for MNIST and its like.
    """
    del generator
    return scipy.ndimage.rotate(
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
