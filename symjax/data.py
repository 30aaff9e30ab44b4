"""Data sets: train and test examples as arrays, split and normalised reproducibly.

scikit-learn's embedded sets need no network. A `.npz` file brings its own split; a
`tfds:` name is read with `tfds.data_source`, without TensorFlow.
"""

import difflib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import sklearn.datasets
from jaxtyping import Num, Shaped
from sklearn.model_selection import train_test_split

from symjax.types import Data


class Dataset(NamedTuple):
    """Train and test examples of one task.

    Attributes:
        name: As it was asked for.
        train: Train examples, inputs normalised by their own means and deviations.
        test: Test examples, normalised by those of the train examples.
        task: `classification` has integer labels from 0, `regression` real targets
            `(example, output)` normalised like the inputs.
        num_outputs: Classes, or targets an example.
        fingerprint: SHA-256 of all arrays, in hex.
        target_mean: What was taken off the targets, in their own units.
        target_std: What they were then divided by; 0 and 1 for labels.
    """

    name: str
    train: Data
    test: Data
    task: Literal["classification", "regression"]
    num_outputs: int
    fingerprint: str
    target_mean: Any = 0.0
    target_std: Any = 1.0


EMBEDDED: dict[str, Callable[[], Any]] = {
    "digits": sklearn.datasets.load_digits,
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "wine": sklearn.datasets.load_wine,
    "diabetes": sklearn.datasets.load_diabetes,
}
"""scikit-learn's own sets; digits are images (8, 8, 1), diabetes is a regression."""


def load(name: str, *, seed: int = 0, test_fraction: float = 0.2) -> Dataset:
    """Load a data set by name.

    Inputs and real targets are normalised by the train examples: tables and targets
    column by column, images channel by channel (the last axis). What is constant
    becomes 0.

    Args:
        name: `digits`, `breast_cancer`, `wine`, `diabetes`; a path that ends in `.npz`,
            of a file with `x_train`, `y_train`, `x_test`, `y_test` (integer targets are
            classes); or `tfds:NAME`, looked for where `TFDS_DATA_DIR` says.
        seed: Of the split of an embedded set, stratified by class.
        test_fraction: Share of an embedded set's examples that is kept for testing.

    Returns:
        The data set, on the host.

    Raises:
        ValueError: if there is no such data set, or its arrays can't be used.
    """
    if name.startswith("tfds:"):
        return _finish(name, *_read_tfds(name.removeprefix("tfds:")))
    if name.endswith(".npz"):
        return _finish(name, *_read_npz(Path(name)))
    if name not in EMBEDDED:
        near = difflib.get_close_matches(name, EMBEDDED, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"`name` must be one of {', '.join(EMBEDDED)}, a path to a .npz file, or "
            f"tfds:NAME, got {name!r}.{hint}"
        )
    if not 0 < test_fraction < 1:
        raise ValueError(
            f"`test_fraction` must be between 0 and 1, got {test_fraction}."
        )
    bunch = EMBEDDED[name]()
    x = bunch.images[..., None] if "images" in bunch else bunch.data
    y = bunch.target
    is_label = np.issubdtype(y.dtype, np.integer)
    split = train_test_split(
        np.arange(len(y)),
        test_size=test_fraction,
        random_state=seed,
        stratify=y if is_label else None,
    )
    (x_train, y_train), (x_test, y_test) = ((x[rows], y[rows]) for rows in split)
    return _finish(name, x_train, y_train, x_test, y_test)


def _read_npz(path: Path) -> tuple[np.ndarray, ...]:
    names = ("x_train", "y_train", "x_test", "y_test")
    if not path.is_file():
        raise ValueError(f"`name` must be a file that exists, got {path}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names if name in file}
    except (OSError, EOFError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is no .npz file of arrays ({error}). Write it with numpy.savez."
        ) from error
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} must hold {', '.join(names)}, but lacks {', '.join(missing)}."
        )
    return tuple(arrays[name] for name in names)


def _read_tfds(name: str) -> tuple[np.ndarray, ...]:
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            'tfds: data sets need the extra: pip install "symjax-posteriors[tfds]"'
        ) from error
    folder = os.environ.get("TFDS_DATA_DIR")
    try:
        builder: Any = tfds.builder(name, data_dir=folder, file_format="array_record")
    except Exception as error:
        raise ValueError(
            f"`name` must be a data set of TensorFlow Datasets, got {name!r} "
            f"({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from error
    keys = builder.info.supervised_keys
    if keys is None:
        raise ValueError(
            f"`name` must be a data set of inputs and one target, but {name!r} has no "
            "supervised keys. Write its arrays to a .npz file."
        )
    if not Path(builder.data_dir).exists():
        builder.download_and_prepare(file_format="array_record")
    arrays = []
    for split in ("train", "test"):
        if split not in builder.info.splits:
            raise ValueError(
                f"`name` must be a data set with the splits train and test, but "
                f"{name!r} has {', '.join(builder.info.splits)}."
            )
        examples = list(builder.as_data_source(split))
        arrays += [np.stack([example[key] for example in examples]) for key in keys]
    return tuple(arrays)


def _finish(
    name: str,
    x_train: Shaped[np.ndarray, "..."],
    y_train: Shaped[np.ndarray, "..."],
    x_test: Shaped[np.ndarray, "..."],
    y_test: Shaped[np.ndarray, "..."],
) -> Dataset:
    """Check, normalise, fingerprint.

    Raises:
        ValueError: if the arrays can't be used.
    """
    _check(name, "train", x_train, y_train)
    _check(name, "test", x_test, y_test)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise ValueError(
            f"x_train and x_test of {name} must have examples of one shape, got "
            f"{x_train.shape[1:]} and {x_test.shape[1:]}."
        )
    # Images by channel, tables by column.
    mean, std = _moments(x_train, axes=tuple(range(x_train.ndim - 1)) or (0,))
    inputs = [((x - mean) / std).astype(np.float32) for x in (x_train, x_test)]
    if np.issubdtype(y_train.dtype, np.integer):
        num_outputs = _count_classes(name, y_train, y_test)
        task, shift, scale = "classification", 0.0, 1.0
        targets = [y.astype(np.int32) for y in (y_train, y_test)]
    else:
        columns = [y.reshape(len(y), -1).astype(float) for y in (y_train, y_test)]
        shift, scale = _moments(columns[0], axes=(0,))
        task, num_outputs = "regression", columns[0].shape[1]
        targets = [((y - shift) / scale).astype(np.float32) for y in columns]
    train, test = (
        Data(x, y, np.ones(len(x), bool)) for x, y in zip(inputs, targets, strict=True)
    )
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return Dataset(
        name, train, test, task, num_outputs, digest.hexdigest(), shift, scale
    )


def _check(
    name: str, split: str, x: Shaped[np.ndarray, "..."], y: Shaped[np.ndarray, "..."]
) -> None:
    for array, kind in ((x, "x"), (y, "y")):
        if array.ndim == 0 or not len(array):
            raise ValueError(f"{kind}_{split} of {name} must hold examples, has none.")
        if not np.issubdtype(array.dtype, np.number) and array.dtype != bool:
            raise ValueError(
                f"{kind}_{split} of {name} must hold numbers, got {array.dtype}."
            )
        bad = ~np.isfinite(array)
        if bad.any():
            row = np.argwhere(bad)[0][0]
            raise ValueError(
                f"{kind}_{split} of {name} must be finite, but example {row} is not. "
                "Remove or impute such examples."
            )
    if len(x) != len(y):
        raise ValueError(
            f"x_{split} and y_{split} of {name} must have one length, got {len(x)} and "
            f"{len(y)}."
        )


def _count_classes(
    name: str, y_train: Num[np.ndarray, "..."], y_test: Num[np.ndarray, "..."]
) -> int:
    if y_train.ndim != 1 or y_test.ndim != 1:
        raise ValueError(
            f"Labels of {name} must have shape (example,), got {y_train.shape} and "
            f"{y_test.shape}. Real targets must be stored as floating-point numbers."
        )
    found = np.unique(y_train)
    if len(found) < 2 or not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"Labels of {name} must be 0, 1, 2, ... with none left out, got "
            f"{found[:10].tolist()} in the train examples. Number the classes from 0; "
            "real targets must be stored as floating-point numbers."
        )
    unknown = np.setdiff1d(y_test, found)
    if len(unknown):
        raise ValueError(
            f"Labels of {name} in y_test must occur in y_train, but "
            f"{unknown[:10].tolist()} do not."
        )
    return len(found)


def _moments(
    values: Num[np.ndarray, "example ..."], *, axes: tuple[int, ...]
) -> tuple[Any, Any]:
    """Mean and standard deviation over `axes`; 1 instead of a deviation of 0."""
    mean = values.mean(axis=axes, dtype=float)
    std = values.std(axis=axes, dtype=float)
    return mean, np.where(std > 1e-8 * (1 + np.abs(mean)), std, 1.0)
