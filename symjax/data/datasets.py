"""`load`: from a name to train and test examples."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from symjax.data import arrays as raw, prepared
from symjax.data.known import JPEG, KNOWN, TOKENS, files_of, read_known
from symjax.data.sources import (
    EMBEDDED,
    Arrays,
    did_you_mean,
    read_embedded,
    read_npz,
    read_tfds,
    tfds_files,
)
from symjax.data.uci import UCI, read_uci
from symjax.types import Data


REFERENCE_MEAN, REFERENCE_STD = (0.49, 0.48, 0.44), (0.2, 0.2, 0.2)
"""By which CIFAR's channels are normalised where HMC has been run on it."""

CIFAR = ("cifar10", "cifar100", "cifar10_lossless_subset", JPEG)

PIXELS = ("normalised", "unit")
"""How inputs can be scaled: see `load`."""


class Dataset(NamedTuple):
    """Train and test examples, as NumPy arrays.

    Attributes:
        name: What `load` was given.
        train: Training examples, float32 inputs; images keep their shape. Words are
            int32 ids `(example, word)`.
        test: Test examples, normalised as the training examples are.
        task: "classification" with int32 labels `(example,)`, or "regression" with
            float32 targets `(example, output)`.
        num_outputs: Number of classes, or of targets.
        fingerprint: SHA-256 (hex) of the arrays before they were normalised, so that it
            is the same on every machine.
        target_mean: For a regression `(output,)`, what was subtracted from the targets.
        target_std: For a regression `(output,)`, what they were then divided by:
            original = normalised * target_std + target_mean.
        input_mean: What was subtracted from the inputs, `(column,)` or `(channel,)`; of
            images without channels and of unit pixels, a number; None of words.
        input_std: What they were then divided by; 0 where they do not vary.
        input_range: Of images, black and white in the units of the file: 0 and 255 of
            uint8, else the smallest and largest number of the training images.
        train_bytes: Training inputs as they were read, where those are uint8, in the
            shape of `train.x`: a quarter of its size. `models.from_bytes` normalises
            them on a device, to the same numbers.
        pixels: How inputs are scaled, as `load` was asked.
    """

    name: str
    train: Data
    test: Data
    task: Literal["classification", "regression"]
    num_outputs: int
    fingerprint: str
    target_mean: np.ndarray | None = None
    target_std: np.ndarray | None = None
    input_mean: np.ndarray | None = None
    input_std: np.ndarray | None = None
    input_range: tuple[float, float] | None = None
    train_bytes: np.ndarray | None = None
    pixels: str = "normalised"


def load(
    name: str,
    *,
    seed: int = 0,
    test_fraction: float = 0.2,
    split: int | str | None = None,
    pixels: str = "normalised",
) -> Dataset:
    """Load a data set; inputs and real targets are normalised by the training set.

    | name | data |
    |---|---|
    | digits, breast_cancer, wine | scikit-learn's classifications; digits: 8 x 8 |
    | diabetes | scikit-learn's regression |
    | path/to/file.npz | x_train, y_train, x_test, y_test; integer y: classes |
    | mnist, fashion_mnist, kmnist | NAME.npz in a local folder, or tfds:NAME |
    | cifar10, cifar100, svhn_cropped | the same |
    | cifar10_jpeg, cifar10_lossless_subset | CIFAR-10, compressed or in part |
    | imdb | 20,000 and 25,000 reviews of 100 word ids |
    | uci:NAME | boston, concrete, energy, yacht, naval, kin8nm, power, wine, protein, \
        wilson_elevators, wilson_pol, wilson_skillcraft: regressions with many splits |
    | tfds:NAME | TensorFlow Datasets' splits train and test, without TensorFlow |

    Inputs are normalised by column, those of images by channel: CIFAR's by the mean
    0.49, 0.48, 0.44 and std 0.2 of the reference, all others by their own. The
    environment variable SYMJAX_DATA names the local folder (default: ../shared/data).
    A tfds data set must have been prepared as array_record, in the folder that
    TFDS_DATA_DIR names. Nothing is downloaded.

    A set of more than 16 MB that is read from files is read, checked and normalised
    once: its arrays are kept in the folder `prepared` of the one that SYMJAX_CACHE
    names (default: symjax in the user's cache), and are from then on mapped from there,
    read-only, so that only the rows that are touched are read. CIFAR-10 takes 0.9 GB,
    most of it for the inputs in float32. A set whose file or whose code has changed is
    read anew, and what was kept of it removed. Delete the folder at any time; a folder
    that can't be written, or is nearly full, costs nothing but the time.

    Args:
        name: As in the table.
        seed: Of the split of scikit-learn's sets, which keeps the shares of the
            classes; the others come with their split.
        test_fraction: Share of the examples in the test set, of scikit-learn's sets.
        split: Of a uci set, which of its splits, from 0 on (default: 0), or
            "izmailovSEED": 90 % of the rows in the order in which the reference takes
            them. Of imdb, "validation": the other 5,000 training reviews as test set.
        pixels: "unit", of images alone: black (`Dataset.input_range`) is 0 and white is
            1, so that a pixel that is blank in all images gives its weights nothing.

    Raises:
        ValueError: if the name, split or test fraction is wrong, the data are unusable,
            or pixels are asked for and are not there.

    Example:
        >>> load("digits").train.x.shape
        (1437, 8, 8, 1)

    References:
        Izmailov, Vikram, Hoffman, Wilson (2021), What are Bayesian neural network
        posteriors really like?, appendix; its code, `data_utils.py`. Hernandez-Lobato,
        Adams (2015), Probabilistic backpropagation, section 5.1 (the splits).
    """
    if not 0 < test_fraction < 1:
        raise ValueError(
            f"`test_fraction` must be between 0 and 1, got {test_fraction}."
        )
    if pixels not in PIXELS:
        raise ValueError(f"`pixels` must be normalised or unit, got {pixels!r}.")
    part = None if split is None else str(split)
    if name.startswith("uci:"):
        return _dataset(name, read_uci(name.removeprefix("uci:"), part), pixels)
    if part is not None and name != TOKENS:
        raise ValueError(
            f"`split` is for uci:NAME and {TOKENS}; {name} has one, got {split!r}."
        )
    if name in EMBEDDED:
        return _dataset(name, read_embedded(name, seed, test_fraction), pixels)
    asked = name, part, pixels
    if name in KNOWN:
        return _prepared(*asked, files_of(name), lambda: read_known(name, part))
    if name.endswith(".npz"):
        return _prepared(*asked, [Path(name)], lambda: read_npz(name))
    if name.startswith("tfds:"):
        short = name.removeprefix("tfds:")
        return _prepared(*asked, tfds_files(short), lambda: read_tfds(short))
    names = (*EMBEDDED, *KNOWN, *(f"uci:{one}" for one in UCI))
    raise ValueError(
        f"`name` must be one of {', '.join(names)}, a path/to/file.npz or tfds:NAME, "
        f"got {name!r}.{did_you_mean(name, names)}"
    )


def _prepared(
    name: str,
    split: str | None,
    pixels: str,
    files: list[Path],
    make: Callable[[], Arrays],
) -> Dataset:
    """The data set that was prepared before, or is now, if that pays."""
    # A file is the same one however it is named: by which folder, through which link.
    known = os.path.realpath(name) if name.endswith(".npz") else name
    place = prepared.place([known, str(split), pixels], files)
    if place is None:
        return _dataset(name, make(), pixels)
    entry = prepared.read(place)
    if entry is None:
        dataset = _dataset(name, make(), pixels)
        arrays, facts = _taken_apart(dataset)
        if sum(array.nbytes for array in arrays.values()) <= prepared.LEAST_BYTES:
            return dataset
        prepared.write(place, prepared.Entry(arrays, facts))
        # From here on mapped, unless it could not be kept.
        entry = prepared.read(place)
        if entry is None:
            return dataset
    return _put_together(*entry)._replace(name=name)


PARTS = ("train", "test")


def _taken_apart(dataset: Dataset) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays by name, and the rest."""
    fields: dict[str, Any] = dataset._asdict()
    arrays = {
        f"{part}_{axis}": getattr(fields[part], axis) for part in PARTS for axis in "xy"
    }
    arrays |= {k: v for k, v in fields.items() if isinstance(v, np.ndarray)}
    facts = {k: v for k, v in fields.items() if k not in (*PARTS, *arrays)}
    return arrays, facts


def _put_together(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Dataset:
    """The data set that was taken apart."""
    fields: dict[str, Any] = arrays | facts
    for part in PARTS:
        x, y = (fields.pop(f"{part}_{axis}") for axis in "xy")
        fields[part] = Data(x, y, np.ones(len(x), bool))
    if fields["input_range"] is not None:
        fields["input_range"] = tuple(fields["input_range"])
    return Dataset(**fields)


def _dataset(name: str, arrays: Arrays, pixels: str) -> Dataset:
    raw.check(name, arrays)
    shades = raw.pixel_range(arrays.x_train)
    x_train, x_test, input_mean, input_std = (
        _inputs(name, arrays)
        if pixels == "normalised"
        else _pixels(name, arrays, shades)
    )
    is_classification = arrays.y_train.dtype.kind in "iub"
    if is_classification:
        y_train, y_test = raw.labels(name, arrays)
        mean = std = None
    else:
        y_train, y_test, mean, std = raw.normalise(arrays.y_train, arrays.y_test)
        if not np.all(std):
            raise ValueError(f"{name}: `y_train` must vary in every column.")
    return Dataset(
        name,
        Data(x_train, y_train, np.ones(len(x_train), bool)),
        Data(x_test, y_test, np.ones(len(x_test), bool)),
        "classification" if is_classification else "regression",
        int(y_train.max()) + 1 if is_classification else y_train.shape[1],
        raw.fingerprint(arrays),
        mean,
        std,
        input_mean,
        input_std,
        shades,
        arrays.x_train.reshape(x_train.shape)
        if arrays.x_train.dtype == np.uint8 and input_mean is not None
        else None,
        pixels,
    )


def _inputs(name: str, arrays: Arrays) -> tuple[Any, ...]:
    """The inputs of train and test examples, and their mean and std if they have."""
    train, test = arrays.x_train, arrays.x_test
    if name == TOKENS:
        return train.astype(np.int32), test.astype(np.int32), None, None
    is_coloured = train.dtype == np.uint8 and train.shape[3:] == (3,)
    if is_coloured and name.removeprefix("tfds:") in CIFAR:
        return raw.scale(train, test, REFERENCE_MEAN, REFERENCE_STD)
    return raw.normalise(train, test)


def _pixels(
    name: str, arrays: Arrays, shades: tuple[float, float] | None
) -> tuple[Any, ...]:
    """The same of images, from black to white.

    Raises:
        ValueError: if the inputs are none.
    """
    if shades is None:
        raise ValueError(
            f"`pixels` must be normalised for {name}, got unit: inputs of shape "
            f"{arrays.x_train.shape[1:]} are no images (row, column[, channel]), or "
            "are all of one grey. Leave it out, or take images."
        )
    return raw.unit(arrays.x_train, arrays.x_test, *shades)
