"""Files of predictive probabilities, one row an example."""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float

from symjax.store.files import StoreError


# Averages of float32 softmax outputs are off by some 1e-6, printed ones by more.
_TOLERANCE = 1e-3


def read_probs(path: str | Path) -> Float[np.ndarray, "example cls"]:
    """Predictive probabilities from a file: of a published reference, or of any method.

    Either a NumPy `.npz` of one array, or of several as `FILE.npz:NAME`; or text
    without header, a row an example, with commas or white space between the classes.

    Args:
        path: Of the file.

    Returns:
        The probabilities, `(example, class)`, as the file has them, in float64.

    Raises:
        StoreError: If there is no such file or array, it is no table of numbers of at
            least two classes, or a row is no probabilities; it names file and row.
    """
    path, name = _split(str(path))
    if not path.is_file():
        raise StoreError(f"There is no file {path} to read predictions from.")
    probs = _from_npz(path, name) if path.suffix == ".npz" else _from_text(path)
    where = f"{path}:{name}" if name else str(path)
    if probs.ndim != 2 or probs.shape[1] < 2 or not len(probs):
        raise StoreError(
            f"{where} must hold a row of probabilities an example, of two classes or "
            f"more; its shape is {probs.shape}."
        )
    sums = probs.sum(axis=1)
    bad = ~(abs(sums - 1) <= _TOLERANCE) | (probs < 0).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise StoreError(
            f"{where}: row {row + 1} must be probabilities, none below 0, with the sum "
            f"1; its smallest value is {probs[row].min():.6g} and its sum "
            f"{sums[row]:.6g}. So are {int(bad.sum())} of {len(bad)} rows. Logits have "
            "to go through a softmax first."
        )
    return probs


def _split(text: str) -> tuple[Path, str | None]:
    """The path and the name of `FILE.npz:NAME`."""
    head, mark, name = text.rpartition(".npz:")
    return (Path(f"{head}.npz"), name) if mark and name else (Path(text), None)


def _from_npz(path: Path, name: str | None) -> Float[np.ndarray, "..."]:
    """One array of an archive.

    Raises:
        StoreError: If it can't be read, has no such array, or several and no name.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive)
            if name is None and len(names) == 1:
                name = names[0]
            if name not in names:
                held = f"{path} holds the arrays {', '.join(names) or '(none)'}"
                if name is None:
                    raise StoreError(f"{held}; say which one as {path}:NAME.")
                raise StoreError(f"{held}; there is no {name!r}.")
            return archive[name].astype(float, casting="same_kind")
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"{path} can't be read as an array of numbers: {error}"
        ) from error


def _from_text(path: Path) -> Float[np.ndarray, "..."]:
    """A table of numbers, rows of equal length.

    Raises:
        StoreError: If a value is no number, or rows differ in length.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} can't be read as text: {error}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not (parts := line.replace(",", " ").split()):
            continue
        try:
            rows.append([float(part) for part in parts])
        except ValueError as error:
            raise StoreError(
                f"{path}: line {number} must be numbers, between commas or white "
                f"space, and there is no header; {error}."
            ) from error
        if len(rows[-1]) != len(rows[0]):
            raise StoreError(
                f"{path}: line {number} has {len(rows[-1])} values where the first has "
                f"{len(rows[0])}."
            )
    return np.array(rows, dtype=float)
