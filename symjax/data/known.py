"""Data sets known by name: .npz files in a local folder, or TensorFlow Datasets."""

import os
from pathlib import Path

from symjax.data.jpeg import read_jpeg
from symjax.data.sources import (
    DEFAULT_FOLDER,
    FOLDER_VARIABLE,
    Arrays,
    read_npz,
    read_tfds,
    tfds_files,
)


JPEG = "cifar10_jpeg"

TOKENS = "imdb"
"""The set whose inputs are the ids of words."""

NUM_TRAIN = 20_000
"""Of the 25,000 reviews that IMDB has for training; the others are for validation."""

KNOWN = (
    "mnist",
    "fashion_mnist",
    "kmnist",
    "cifar10",
    "cifar10_lossless_subset",
    JPEG,
    "cifar100",
    "svhn_cropped",
    TOKENS,
)
"""The sets that a local folder may hold, most under names of TensorFlow Datasets."""


def files_of(name: str) -> list[Path]:
    """What one of `KNOWN` is read from; nothing, if it is in neither place.

    Args:
        name: Of the set.
    """
    file = _local(name)
    return [file] if file.is_file() or name == TOKENS else tfds_files(name)


def read_known(name: str, split: str | None = None) -> Arrays:
    """One of `KNOWN`: from the local folder if it is there, else as a tfds set.

    Args:
        name: Of the set.
        split: For imdb, "validation" to have those reviews as the test set.

    Raises:
        ValueError: if it is in neither place, saying where it was looked for.
    """
    file = _local(name)
    if name == TOKENS:
        return _reviews(file, split)
    if file.is_file():
        return read_jpeg(str(file)) if name == JPEG else read_npz(str(file))
    try:
        return read_tfds(name)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"`name` must be a set that is on this machine, but there is no "
            f"{file.absolute()} with x_train, y_train, x_test and y_test "
            f"({FOLDER_VARIABLE} names its folder), and as a tfds set: {error}"
        ) from error


def _local(name: str) -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER), f"{name}.npz")


def _reviews(file: Path, split: str | None) -> Arrays:
    """IMDB, of which the last reviews of the training set are kept for validation.

    Raises:
        ValueError: if there is no such file or split, or the inputs are no word ids.
    """
    if split not in (None, "validation"):
        raise ValueError(f"`split` of {TOKENS} must be validation, got {split!r}.")
    if not file.is_file():
        raise ValueError(
            f"`name` must be a set that is on this machine, but there is no "
            f"{file.absolute()} ({FOLDER_VARIABLE} names its folder). Write it with "
            "`numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)`: x "
            "(review, 100), the ids of the last 100 words as Keras numbers the 20,000 "
            "most frequent, 0 in front of shorter reviews; y 0 or 1."
        )
    arrays = read_npz(str(file))
    for x in (arrays.x_train, arrays.x_test):
        if x.dtype.kind not in "iu" or x.ndim != 2 or x.min(initial=0) < 0:
            raise ValueError(
                f"{file} must hold word ids (review, word), integers from 0 on, got "
                f"{x.dtype} of shape {x.shape}."
            )
    x, y = arrays.x_train, arrays.y_train
    if split == "validation":
        return Arrays(x[:NUM_TRAIN], y[:NUM_TRAIN], x[NUM_TRAIN:], y[NUM_TRAIN:])
    return arrays._replace(x_train=x[:NUM_TRAIN], y_train=y[:NUM_TRAIN])
