"""`load_ood`: inputs that are not of the training distribution."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from symjax.data.datasets import Dataset
from symjax.data.filters import Images
from symjax.data.images import as_inputs, as_pixels, fit
from symjax.data.known import read_known
from symjax.data.sources import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    UNREADABLE,
    did_you_mean,
)
from symjax.types import Data


_SAME = ("cifar10", "cifar10_lossless_subset", "cifar10_jpeg")
"""Names of the same photographs."""

FILES = (
    "mnist",
    "fashion_mnist",
    "kmnist",
    "notmnist",
    "cifar10",
    "cifar10_lossless_subset",
    "cifar100",
    "svhn_cropped",
)

OOD_NAMES = ("noise", "permuted", "digits", *FILES)
"""What `load_ood` knows; the first three need no file."""

SEED = 0
"""Of noise and permutation, which are to be the same for every method."""


def load_ood(name: str, like: Dataset) -> Data:
    """Inputs that are out of distribution for a network trained on `like`.

    | name | inputs |
    |---|---|
    | noise | independent normal, standard in normalised units; not for words |
    | permuted | the test images, their pixels in one random order |
    | digits | scikit-learn's digits, 8 x 8 |
    | mnist, fashion_mnist, kmnist | test images: digits, clothes, Japanese letters |
    | notmnist | letters A to J in many types |
    | cifar10, cifar10_lossless_subset | photographs; a tenth of them |
    | cifar100 | photographs of a hundred other classes |
    | svhn_cropped | house numbers |

    Files are NAME_test.npz with x_test, or what `load` reads, in the folder that
    SYMJAX_DATA names. Images get the size of those of `like` by averaging areas, their
    number of channels (grey is the mean of colours), their range from black to white,
    and the normalisation that `like` was trained with. Noise among unit pixels has the
    mean and standard deviation of those of the test images, by channel.

    Args:
        name: As in the table.
        like: The data set of the training, from `load`.

    Returns:
        Normalised inputs; targets are zeros, which mean nothing.

    Raises:
        ValueError: if the name is wrong or that of `like`, the file is not there, or
            `like` holds no images.

    Example:
        >>> load_ood("noise", like=load("wine")).x.shape
        (36, 13)
    """
    if name not in OOD_NAMES:
        raise ValueError(
            f"`name` must be one of {', '.join(OOD_NAMES)}, got {name!r}."
            f"{did_you_mean(name, OOD_NAMES)}"
        )
    trained_on = like.name.removeprefix("tfds:")
    if name == trained_on or {name, trained_on} <= set(_SAME):
        raise ValueError(
            f"`name` must be another set than `like`, got {name} for {like.name}."
        )
    generator = np.random.default_rng(SEED)
    if name == "noise":
        if like.test.x.dtype.kind in "iu":
            raise ValueError(f"`name` must not be noise for the words of {like.name}.")
        noise = generator.normal(size=like.test.x.shape)
        if like.pixels == "unit":
            noise = noise * like.test.x.std((0, 1, 2)) + like.test.x.mean((0, 1, 2))
        return _as_data(noise, like)
    pixels = as_pixels(like)
    if name == "permuted":
        flat = pixels.reshape(len(pixels), -1, pixels.shape[3])
        moved = flat[:, generator.permutation(flat.shape[1])].reshape(pixels.shape)
        return _as_data(as_inputs(moved, like), like)
    return _as_data(as_inputs(fit(_read(name), pixels.shape[1:]), like), like)


def _as_data(inputs: np.ndarray, like: Dataset) -> Data:
    count = len(inputs)
    targets = np.zeros((count, *like.test.y.shape[1:]), like.test.y.dtype)
    return Data(inputs.astype(np.float32), targets, np.ones(count, bool))


def _read(name: str) -> Images:
    """The test images in [0, 1].

    Raises:
        ValueError: if there is no such file, or no images in it.
    """
    if name == "digits":
        from sklearn.datasets import load_digits

        bunch: Any = load_digits()
        return bunch.images[..., None].astype(np.float32) / 16
    folder = os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)
    file = Path(folder, f"{name}_test.npz")
    if file.is_file():
        try:
            with np.load(file, allow_pickle=False) as arrays:
                images = arrays["x_test"]
        except (*UNREADABLE, KeyError) as error:
            raise ValueError(f"{file} must hold `x_test`: {error}") from error
    else:
        try:
            images = read_known(name).x_test
        except ValueError as error:
            raise ValueError(f"There is no {file.absolute()}, and {error}") from error
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise ValueError(
            f"{name}: `x_test` must be uint8 images, got {images.dtype} of shape "
            f"{images.shape}."
        )
    images = images[..., None] if images.ndim == 3 else images
    return images.astype(np.float32) / 255
