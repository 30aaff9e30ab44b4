"""Where data sets are read from: scikit-learn, .npz files, TensorFlow Datasets."""

import difflib
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Arrays(NamedTuple):
    """A data set as it is stored, example by example."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


EMBEDDED = ("digits", "breast_cancer", "wine", "diabetes")
"""The sets that scikit-learn's package holds."""

FOLDER_VARIABLE = "SYMJAX_DATA"
DEFAULT_FOLDER = "../shared/data"

UNREADABLE = (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile)
"""What NumPy raises for a file that it can't read."""


def read_embedded(name: str, seed: int, test_fraction: float) -> Arrays:
    """One of `EMBEDDED`, split at random with equal shares of every class.

    Args:
        name: Of the set.
        seed: Of the split.
        test_fraction: Share of the examples in the test set.
    """
    # Takes half a second to import, which runs on other data need not spend.
    from sklearn import datasets, model_selection

    bunch: Any = getattr(datasets, f"load_{name}")()
    x, y = bunch.data, bunch.target
    if name == "digits":
        x = x.reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = model_selection.train_test_split(
        x,
        y,
        test_size=test_fraction,
        random_state=seed,
        stratify=y if y.dtype.kind == "i" else None,
    )
    return Arrays(*map(np.asarray, (x_train, y_train, x_test, y_test)))


def read_npz(path: str) -> Arrays:
    """The arrays of a file that `numpy.savez` wrote.

    Args:
        path: Of the file.

    Raises:
        ValueError: if there is no such file, or it lacks an array or can't be read.
    """
    if not Path(path).is_file():
        raise ValueError(f"`name` must be an existing .npz file, but {path} is none.")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in Arrays._fields if key not in file.files]
            if missing:
                raise ValueError(
                    f"it lacks {', '.join(missing)} and has {', '.join(file.files)}"
                )
            return Arrays(*(file[key] for key in Arrays._fields))
    except UNREADABLE as error:
        raise ValueError(
            f"{path} can't be read: {error}. Write it with `numpy.savez(path, "
            "x_train=..., y_train=..., x_test=..., y_test=...)`, numeric arrays."
        ) from error


def tfds_files(name: str) -> list[Path]:
    """The files of a prepared data set; none where it is not there.

    Args:
        name: As TensorFlow Datasets knows it.
    """
    try:
        import tensorflow_datasets as tfds

        folder = tfds.builder(name, data_dir=os.environ.get("TFDS_DATA_DIR")).data_dir
    except Exception:  # Whatever it is, `read_tfds` says it.
        return []
    return sorted(Path(folder).glob("*"))


def read_tfds(name: str) -> Arrays:
    """The splits train and test of a prepared array_record data set.

    Args:
        name: As TensorFlow Datasets knows it.

    Raises:
        ImportError: if the extra is not installed.
        ValueError: if there is no such set, or it is not prepared, or has no single
            input and target.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            f"tfds:{name} is read by TensorFlow Datasets: "
            'pip install "symjax-posteriors[tfds]"'
        ) from error
    # TensorFlow Datasets itself reads the variable once, when it is imported.
    folder = os.environ.get("TFDS_DATA_DIR")
    try:
        builder = tfds.builder(name, data_dir=folder)
    except tfds.core.DatasetNotFoundError as error:
        known = tfds.list_builders(with_community_datasets=False)
        raise ValueError(
            f"`name` must be a data set of TensorFlow Datasets, got tfds:{name}."
            f"{did_you_mean(name, known)}"
        ) from error
    splits = set(builder.info.splits)
    keys: Any = builder.info.supervised_keys
    prepare = (
        f"Prepare it with `tfds build {name} --file_format=array_record` (many sets "
        "need tensorflow for that, on any machine); TFDS_DATA_DIR names the folder."
    )
    if not {"train", "test"} <= splits:
        raise ValueError(
            f"tfds:{name} must have the splits train and test, but in "
            f"{builder.data_dir} has {', '.join(sorted(splits)) or 'none'}. {prepare}"
        )
    if keys is None or [type(key) for key in keys] != [str, str]:
        raise ValueError(
            f"tfds:{name} must have one input and one target (its supervised_keys), "
            f"got {keys}. Save its arrays as an .npz file."
        )
    try:
        source: Any = builder.as_data_source()
    except NotImplementedError as error:
        raise ValueError(f"tfds:{name} is not stored by record. {prepare}") from error
    return Arrays(
        *(
            _stack(name, source[split], key)
            for split in ("train", "test")
            for key in keys
        )
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest of `known`; empty where none is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _stack(name: str, source: Any, key: str) -> np.ndarray:
    arrays = [np.asarray(example[key]) for example in source]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        raise ValueError(
            f"tfds:{name} must have examples of one shape, got {shapes[:3]} in {key}. "
            "Resize them and save the arrays as an .npz file."
        )
    return np.array(arrays)
