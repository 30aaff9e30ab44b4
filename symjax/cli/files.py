"""Methods and references that are files of predictions."""

import math
import warnings
import zipfile
from pathlib import Path

import numpy as np

from symjax import store
from symjax.report import Method


def is_file(word: str) -> bool:
    """Whether a reference is a file of predictions, not a run."""
    return ".npz" in word or Path(word).is_file()


def read(
    option: str, word: str, num_targets: int | None = None, *, name: str | None = None
) -> Method:
    """A method of the probabilities of chains and draws, its logits their logarithms.

    Args:
        option: Where it was typed, for the message.
        word: The file, or `FILE.npz:NAME`.
        num_targets: Of a test point of a regression; the file is then of means and
            standard deviations.
        name: What it is called. Default: the file's name.

    Raises:
        ValueError: if it holds something else.
    """
    name = name or Path(word).name
    try:
        if num_targets is not None:
            return Method(name, *store.read_gaussians(word, num_targets))
        probs = store.read_probs(word)
    except store.StoreError as error:
        raise ValueError(f"`{option}`: {error}") from error
    # The rows sum to 1 to a few digits only; a probability of 0 has no logarithm.
    probs = probs / probs.sum(axis=-1, keepdims=True)
    return Method(name, np.log(np.maximum(probs, np.finfo(float).tiny)))


def refuse_impossible(method: Method, labels: np.ndarray) -> None:
    """Require some probability for the class of every test point.

    Raises:
        ValueError: if there are not as many rows as test points, or one gives its class
            none, which makes the log likelihood minus infinity.
    """
    if method.outputs.shape[2] != len(labels):
        raise ValueError(
            f"{method.name} must have a row for each of the {len(labels):,} test "
            f"points, got {method.outputs.shape[2]:,}."
        )
    rows = np.arange(len(labels))
    of_label = np.asarray(method.outputs)[:, :, rows, labels].max(axis=(0, 1))
    bad = np.flatnonzero(of_label <= math.log(np.finfo(float).tiny))
    if bad.size:
        raise ValueError(
            f"{method.name} must give every true class some probability, but row "
            f"{bad[0] + 1} gives class {labels[bad[0]]} none, as do {bad.size} rows in "
            "all: its log likelihood is minus infinity. Leave out `--labels`, or write "
            "the probabilities with more digits."
        )


def read_labels(word: str, num_examples: int, num_classes: int) -> np.ndarray:
    """The true classes, from text of one number a line or an array of an .npz file.

    Args:
        word: The file, or `FILE.npz:NAME`.
        num_examples: How many there must be.
        num_classes: They are below it.

    Raises:
        ValueError: if it holds something else.
    """
    name, array = word, None
    try:
        if ".npz" in word:
            file, _, key = word.partition(".npz")
            # NumPy leaves a broken file open that it opened itself.
            with (
                Path(f"{file}.npz").open("rb") as opened,
                np.load(opened, allow_pickle=False) as archive,
            ):
                key = key.removeprefix(":") or "labels"
                if key not in archive:
                    raise ValueError(
                        f"there is no array {key!r}, but {', '.join(archive)}; name "
                        "one as FILE.npz:NAME"
                    )
                array = archive[key]
        else:
            with warnings.catch_warnings(action="ignore"):  # Of an empty file.
                array = np.loadtxt(word, dtype=np.int64, ndmin=1)
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        why = str(error).rstrip(".")
        raise ValueError(f"`--labels`: {name} can't be read: {why}.") from error
    if array.dtype.kind not in "iu" or array.shape != (num_examples,):
        raise ValueError(
            f"`--labels`: {name} must hold {num_examples} whole numbers, one for each "
            f"row of the predictions, got {array.dtype} {array.shape}."
        )
    if array.min() < 0 or array.max() >= num_classes:
        raise ValueError(
            f"`--labels`: {name} must hold classes from 0 to {num_classes - 1}, got "
            f"{array.min()} to {array.max()}."
        )
    return array.astype(np.int64)
