"""Files of predictive probabilities, one row an example, of one or several chains."""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float

from symjax.store.files import StoreError


# Averages of float32 softmax outputs are off by some 1e-6, printed ones by more.
_TOLERANCE = 1e-3


def read_probs(path: str | Path) -> Float[np.ndarray, "chain draw example cls"]:
    """Predictive probabilities from a file: of a published reference, or of any method.

    Either a NumPy `.npz` of one array, or of several as `FILE.npz:NAME`; or text
    without header, a row an example, with commas or white space between the classes.
    Text is one chain of one draw, as is an array `(example, class)`; others are
    `(chain, example, class)`, averages over the draws of each chain (or members of an
    ensemble), and `(chain, draw, example, class)`.

    Args:
        path: Of the file.

    Returns:
        The probabilities, as the file has them, in float64; one draw where the file
        has none, one chain where it has none.

    Raises:
        StoreError: If there is no such file or array, it has other axes or fewer than
            two classes, or a row is no probabilities; it names file and row.
    """
    path, name = _split(str(path))
    if not path.is_file():
        raise StoreError(f"There is no file {path} to read predictions from.")
    probs = _from_npz(path, name) if path.suffix == ".npz" else _from_text(path)
    where = f"{path}:{name}" if name else str(path)
    if probs.ndim not in (2, 3, 4) or probs.shape[-1] < 2 or not probs.size:
        raise StoreError(
            f"{where} must hold a row of probabilities an example, of two classes or "
            "more, as (example, class), (chain, example, class) or (chain, draw, "
            f"example, class); its shape is {probs.shape}."
        )
    sums = probs.sum(axis=-1)
    bad = ~(abs(sums - 1) <= _TOLERANCE) | (probs < 0).any(axis=-1)
    if bad.any():
        *place, row = np.unravel_index(int(bad.argmax()), bad.shape)
        which = [
            f" of {axis} {int(number)}"
            for axis, number in zip(("chain", "draw"), place, strict=False)
        ]
        raise StoreError(
            f"{where}: row {row + 1}{''.join(which)} must be probabilities, none below "
            f"0, with the sum 1; its smallest value is {probs[*place, row].min():.6g} "
            f"and its sum {sums[*place, row]:.6g}. So are {int(bad.sum())} of "
            f"{bad.size} rows. Logits have to go through a softmax first."
        )
    chains = 1 if probs.ndim == 2 else len(probs)
    draws = probs.shape[1] if probs.ndim == 4 else 1
    return probs.reshape(chains, draws, *probs.shape[-2:])


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
        # NumPy leaves a broken file open that it opened itself.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
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
