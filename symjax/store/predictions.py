"""Files of predictions, a row an example: probabilities, or means and their noise."""

import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from symjax.store.files import StoreError


Gaussians: TypeAlias = tuple[
    Float[np.ndarray, "chain draw example output"],
    Float[np.ndarray, "chain draw example output"] | None,
]
"""Mean and standard deviation of every draw; None where only the means are known."""

_Parts: TypeAlias = tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."] | None]

_TOLERANCE, _MOST = 1e-3, 0.05
"""Sums may be off 1 by the first, and by the second where few decimals were printed.
Averages of float32 softmax outputs are off by some 1e-6."""


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
            two classes, or a row is no probabilities, see `require_probs`; it names
            file and row.
    """  # noqa: DOC502
    path, name = _split(str(path))
    probs = _from_npz(path, name) if path.suffix == ".npz" else _from_text(path)
    where = f"{path}:{name}" if name else str(path)
    require_probs(probs, where)
    return _with_chains(probs)


def require_probs(probs: Float[np.ndarray, "..."], where: str) -> None:
    """Require rows of probabilities, as exact as the decimals that were printed.

    Numbers of three decimals are each off by half a thousandth, and the sum over ten
    classes by 0.005. Rows stay as they are: who needs sums of 1 divides by them.

    Args:
        probs: `([chain, [draw,]] example, class)`.
        where: Where they come from, for the message.

    Raises:
        StoreError: If they have other axes or fewer than two classes, one is below 0,
            or a sum is off 1 by more than 0.001 and than rounding can have done, by
            half a unit in the last decimal of each class and none below 0, or by more
            than 0.05.
    """
    if probs.ndim not in (2, 3, 4) or probs.shape[-1] < 2 or not probs.size:
        raise StoreError(
            f"{where} must hold a row of probabilities an example, of two classes or "
            "more, as (example, class), (chain, example, class) or (chain, draw, "
            f"example, class); its shape is {probs.shape}."
        )
    sums, is_negative = probs.sum(axis=-1), (probs < 0).any(axis=-1)
    bad = ~(abs(sums - 1) <= _TOLERANCE) | is_negative
    if bad.any():
        bad &= ~_may_be_rounded(probs) | is_negative
    if bad.any():
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        raise StoreError(
            f"{where}: {_row(place)} must be probabilities, none below 0, with the sum "
            f"1; its smallest value is {probs[place].min():.6g} and its sum "
            f"{sums[place]:.6g}. So are {int(bad.sum())} of {bad.size} rows. Logits "
            "have to go through a softmax first."
        )


def _may_be_rounded(probs: Float[np.ndarray, "..."]) -> np.ndarray:
    """Where the numbers, each within half of its last decimal, can have the sum 1."""
    half = _half_unit(probs)
    # A printed 0 was none below it.
    least, most = np.maximum(probs - half, 0).sum(-1), (probs + half).sum(-1)
    is_near = abs(probs.sum(axis=-1) - 1) <= _MOST + 1e-6
    return is_near & (least <= 1 + 1e-6) & (most >= 1 - 1e-6)


def _half_unit(probs: Float[np.ndarray, "..."]) -> float:
    """Half a unit in the last decimal, where all numbers have so few; else 0."""
    for decimals in range(1, 7):
        # Float32 does not hold the decimals either.
        if np.isclose(probs, probs.round(decimals), rtol=0, atol=1e-7).all():
            return 0.5 * 10.0**-decimals
    return 0.0


def read_gaussians(path: str | Path, num_outputs: int) -> Gaussians:
    """What a method predicts of a regression, from a file in the units of the targets.

    Either a NumPy `.npz` of the arrays `mean` and, where there is noise, `std`, or of
    `NAME/mean` and `NAME/std` as `FILE.npz:NAME`, with the axes of `read_probs`,
    outputs in place of classes; or text without header, a row an example: the mean of
    every output, then, if there is noise, the standard deviation of every output.

    Args:
        path: Of the file.
        num_outputs: Of the data.

    Returns:
        The predictions of every draw, in float64.

    Raises:
        StoreError: If there is no such file or array, it has other axes or another
            number of outputs, or a number is not finite or a standard deviation not
            above 0; it names file and row.
    """
    path, name = _split(str(path))
    where = f"{path}:{name}" if name else str(path)
    if path.suffix == ".npz":
        mean, std = _gaussians_from_npz(path, name, num_outputs)
    else:
        mean, std = _gaussians_from_text(path, num_outputs)
    if mean.ndim not in (2, 3, 4) or mean.shape[-1] != num_outputs or not mean.size:
        raise StoreError(
            f"{where}: `mean` must be (example, output), (chain, example, output) or "
            f"(chain, draw, example, output), with {num_outputs} in the place of "
            f"output; its shape is {mean.shape}."
        )
    if std is not None and std.shape != mean.shape:
        raise StoreError(
            f"{where}: `std` must have the shape of `mean`, {mean.shape}, got "
            f"{std.shape}."
        )
    _check(where, "mean", mean, -math.inf)
    if std is None:
        return _with_chains(mean), None
    _check(where, "std", std, 0.0)
    return _with_chains(mean), _with_chains(std)


def _check(where: str, kind: str, array: np.ndarray, above: float) -> None:
    """Require finite numbers above a limit.

    Raises:
        StoreError: If one is not.
    """
    bad = ~((array > above) & np.isfinite(array)).all(axis=-1)
    if bad.any():
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        wanted = "finite" if above < 0 else "finite and above 0"
        raise StoreError(
            f"{where}: {_row(place)} must have a `{kind}` that is {wanted}, got "
            f"{array[place]}. So are {int(bad.sum())} of {bad.size} rows."
        )


def _row(place: Sequence[np.integer | int]) -> str:
    """In words, a row of a chain and a draw if there are any."""
    *outer, row = place
    which = [
        f" of {axis} {int(number)}"
        for axis, number in zip(("chain", "draw"), outer, strict=False)
    ]
    return f"row {int(row) + 1}{''.join(which)}"


def _with_chains(
    array: Float[np.ndarray, "..."],
) -> Float[np.ndarray, "chain draw example output"]:
    """One chain where there is none, and one draw."""
    chains = 1 if array.ndim == 2 else len(array)
    draws = array.shape[1] if array.ndim == 4 else 1
    return array.reshape(chains, draws, *array.shape[-2:])


def _split(text: str) -> tuple[Path, str | None]:
    """The path and the name of `FILE.npz:NAME`.

    Raises:
        StoreError: If there is no such file.
    """
    head, mark, name = text.rpartition(".npz:")
    path, key = (Path(f"{head}.npz"), name) if mark and name else (Path(text), None)
    if not path.is_file():
        raise StoreError(f"There is no file {path} to read predictions from.")
    return path, key


def _from_npz(path: Path, name: str | None) -> Float[np.ndarray, "..."]:
    """One array of an archive.

    Raises:
        StoreError: If it can't be read, has no such array, or several and no name.
    """  # noqa: DOC502

    def choose(names: list[str]) -> list[str]:
        chosen = names[0] if name is None and len(names) == 1 else name
        if chosen not in names:
            held = f"{path} holds the arrays {', '.join(names) or '(none)'}"
            if name is None:
                raise StoreError(f"{held}; say which one as {path}:NAME.")
            raise StoreError(f"{held}; there is no {name!r}.")
        return [chosen]

    (array,) = _arrays(path, choose)
    return array


def _gaussians_from_npz(path: Path, name: str | None, num_outputs: int) -> _Parts:
    """`mean` and `std`, or those of a name.

    Raises:
        StoreError: If it can't be read or has no means.
    """  # noqa: DOC502
    mean, std = (f"{name}/{kind}" if name else kind for kind in ("mean", "std"))

    def choose(names: list[str]) -> list[str]:
        if mean not in names:
            held = ", ".join(names) or "(none)"
            raise StoreError(
                f"{path} must hold an array {mean!r}, and {std!r} where there is noise "
                f"(or NAME/mean and NAME/std, named as FILE.npz:NAME); it holds {held}."
            )
        return [one for one in (mean, std) if one in names]

    found = _arrays(path, choose)
    if num_outputs == 1:
        found = [one[:, None] if one.ndim == 1 else one for one in found]
    return found[0], found[1] if len(found) > 1 else None


def _gaussians_from_text(path: Path, num_outputs: int) -> _Parts:
    """Columns of means, and of standard deviations if there are twice as many.

    Raises:
        StoreError: If there are not as many.
    """
    table = _from_text(path)
    if table.ndim != 2 or table.shape[1] not in (num_outputs, 2 * num_outputs):
        raise StoreError(
            f"{path} must hold a row an example: the mean of every output, then, if "
            "there is noise, the standard deviation of every output, so that there are "
            f"{num_outputs} or {2 * num_outputs} columns; its shape is {table.shape}."
        )
    std = table[:, num_outputs:]
    return table[:, :num_outputs], std if std.size else None


def _arrays(
    path: Path, choose: Callable[[list[str]], list[str]]
) -> list[Float[np.ndarray, "..."]]:
    """Arrays of an archive.

    Args:
        path: Of the archive.
        choose: Which ones, of all names.

    Raises:
        StoreError: If it can't be read.
    """
    try:
        # NumPy leaves a broken file open that it opened itself.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return [
                archive[name].astype(float, casting="same_kind")
                for name in choose(list(archive))
            ]
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
