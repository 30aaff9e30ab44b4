"""`load_shifted`: the test set corrupted, with its labels."""

import numbers
import os
from pathlib import Path

import numpy as np

from symjax.data.corruptions import CORRUPTIONS, corrupt
from symjax.data.datasets import Dataset
from symjax.data.images import as_inputs, as_pixels
from symjax.data.sources import DEFAULT_FOLDER, FOLDER_VARIABLE, did_you_mean
from symjax.types import Data


SHIFT_NAMES = tuple(CORRUPTIONS)
"""The shifts that need no file."""

FILES = "CIFAR-10-C"
"""The folder of the published corrupted images, and how their names begin here."""

SEVERITIES = (1, 2, 3, 4, 5)


def load_shifted(dataset: Dataset, name: str, severity: int, seed: int = 0) -> Data:
    """The corrupted test set, normalised as the clean one is.

    | name | shift |
    |---|---|
    | gaussian_noise, shot_noise, impulse_noise | of every value by itself |
    | defocus_blur, motion_blur, zoom_blur | a disc, a fading line, magnifications |
    | brightness, contrast, fog | weather |
    | pixelate, elastic, jpeg | coarse, bent, compressed |
    | rotate | by 15, 30, 45, 60, 75 degrees |
    | CIFAR-10-C/NAME | the published file NAME.npy |

    All but the last are in the style of CIFAR-10-C, for images of any size: strengths
    are for pixels from black to white (`Dataset.input_range`), lengths scale with the
    square root of the side. They are not the published images; those are read from
    CIFAR-10-C/NAME.npy and labels.npy in the folder that SYMJAX_DATA names.

    Args:
        dataset: Images, from `load`.
        name: As in the table.
        severity: 1 to 5.
        seed: Of noises, directions, fields and clouds.

    Raises:
        ValueError: if the name, severity or seed is wrong, or the data are no images.

    Example:
        >>> load_shifted(load("digits"), "gaussian_noise", severity=3).x.shape
        (360, 8, 8, 1)

    References:
        Hendrycks and Dietterich (2019), "Benchmarking neural network robustness to
        common corruptions and perturbations".
    """
    if severity not in SEVERITIES:
        raise ValueError(f"`severity` must be 1, 2, 3, 4 or 5, got {severity!r}.")
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(f"`seed` must be a whole number from 0 on, got {seed!r}.")
    if name.startswith(f"{FILES}/"):
        return _read(dataset, name.removeprefix(f"{FILES}/"), severity)
    if name not in CORRUPTIONS:
        raise ValueError(
            f"`name` must be one of {', '.join(SHIFT_NAMES)}, or {FILES}/NAME for the "
            f"published file NAME.npy, got {name!r}.{did_you_mean(name, SHIFT_NAMES)}"
        )
    pixels = as_pixels(dataset)
    corrupted = corrupt(name, pixels, int(severity), seed)
    return Data(as_inputs(corrupted, dataset), dataset.test.y, dataset.test.mask)


def _read(dataset: Dataset, name: str, severity: int) -> Data:
    """One severity of a file of CIFAR-10-C, which holds all five after each other.

    Raises:
        ValueError: if there is no such file, or it is not like the data set.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER), FILES)
    files = folder / f"{name}.npy", folder / "labels.npy"
    for file in files:
        if not file.is_file():
            names = [path.stem for path in sorted(folder.glob("*.npy"))]
            raise ValueError(
                f"`name` must be a file of {FILES} that is on this machine, but there "
                f"is no {file.absolute()} ({FOLDER_VARIABLE} names the folder above)."
                f"{did_you_mean(name, names)}"
            )
    try:
        images, labels = (np.load(file, mmap_mode="r") for file in files)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{files[0]} or its labels can't be read: {error}") from error
    shape = dataset.test.x.shape[1:]
    if images.shape[1:] != shape or images.dtype != np.uint8:
        raise ValueError(
            f"`name` must be images like those of {dataset.name}, uint8 of shape "
            f"{shape}, but {files[0]} has {images.dtype} of shape {images.shape[1:]}."
        )
    if len(images) % 5 or labels.shape != (len(images),):
        raise ValueError(
            f"{files[0]} must hold five severities of the same images, each with its "
            f"label, got {len(images)} images and labels of shape {labels.shape}."
        )
    if labels.max() != dataset.num_outputs - 1:
        raise ValueError(
            f"{files[1]} must hold labels of 0 to {dataset.num_outputs - 1}, those of "
            f"{dataset.name}, got 0 to {labels.max()}."
        )
    count = len(images) // 5
    part = slice((severity - 1) * count, severity * count)
    inputs = as_inputs(images[part] / np.float32(255), dataset)
    return Data(inputs, np.asarray(labels[part], np.int32), np.ones(count, bool))
