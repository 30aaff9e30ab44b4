"""Large data sets as they are used, kept in files that are mapped into memory.

To read a data set, check it, normalise it and number it takes all of it. That is done
once: what came of it is kept as .npy files, of which a process then reads what it
touches, such as the rows of its own devices. An entry is used as long as neither the
files that it came from nor this package's code has changed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symjax.data import cache as caches
from symjax.data.sources import UNREADABLE


LEAST_BYTES = 16 * 2**20
"""Of the arrays of a data set that is kept; smaller ones are read as fast."""

MAPPED_BYTES = 2**20
"""Of an array that is mapped; smaller ones are read whole."""

ABANDONED_SECONDS = 3600.0
"""After which whoever began to write an entry is taken for dead."""

FACTS = "facts.json"


class Entry(NamedTuple):
    """A data set that was prepared.

    Attributes:
        arrays: By name. Large ones are mapped, and read-only.
        facts: JSON values.
    """

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


class Place(NamedTuple):
    """The folder of an entry.

    Attributes:
        root: Of all entries.
        owner: Hash of what was asked for: the name, the split and the files' paths.
        version: Hash of the owner, the state of the files, and the code.
    """

    root: Path
    owner: str
    version: str

    @property
    def folder(self) -> Path:
        """That holds the arrays."""
        return self.root / f"{self.owner}-{self.version}"


def place(words: Iterable[str], files: Iterable[Path]) -> Place | None:
    """Where the data set that is read from these files is kept.

    Args:
        words: What else tells it from others, such as its name and split.
        files: All that it is read from.

    Returns:
        The place; None where a file is missing, or there is none, or no place.
    """
    try:
        paths = [path.resolve(strict=True) for path in files]
        states = [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        root = caches.folder("prepared")
    except (OSError, RuntimeError):  # The latter where the user has no home.
        return None
    if not paths:
        return None
    owner = _hash([*words, *map(str, paths)])
    version = _hash([owner, states, _code(), np.__version__])
    return Place(root, owner, version)


def read(place: Place) -> Entry | None:
    """What is kept there, or None if nothing is that can be used."""
    try:
        with open(place.folder / FACTS) as stream:
            record = json.load(stream)
        arrays = {
            name: _open(place.folder / f"{name}.npy", *described)
            for name, described in record["arrays"].items()
        }
        return Entry(arrays, record["facts"])
    except (*UNREADABLE, KeyError, AttributeError):
        return None


def write(place: Place, entry: Entry) -> None:
    """Keep an entry, whole or not at all, and remove those that it takes over from.

    A read-only folder keeps none, nor a disk that would then be nearly full. Of several
    processes one writes.
    """
    num_bytes = sum(array.nbytes for array in entry.arrays.values())
    part = place.folder.with_suffix(".part")
    with contextlib.suppress(OSError):
        place.root.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(place.root).free < 2 * num_bytes:
            return
        if part.exists() and time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(part)
        os.mkdir(part)  # Fails where another process has begun.
        try:
            _fill(part, entry)
            if place.folder.exists():  # It could not be read.
                shutil.rmtree(place.folder)
            os.rename(part, place.folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        for other in place.root.glob(f"{place.owner}-*"):
            if other not in (place.folder, part):
                shutil.rmtree(other, ignore_errors=True)


def _fill(folder: Path, entry: Entry) -> None:
    for name, array in entry.arrays.items():
        with open(folder / f"{name}.npy", "wb") as stream:
            np.save(stream, array, allow_pickle=False)
            # A machine that fails must not leave a file of zeros under a good name.
            stream.flush()
            os.fsync(stream.fileno())
    described: Mapping[str, Any] = {
        name: (array.dtype.str, array.shape) for name, array in entry.arrays.items()
    }
    with open(folder / FACTS, "w") as stream:
        json.dump({"facts": entry.facts, "arrays": described}, stream)


def _open(file: Path, dtype: str, shape: list[int]) -> np.ndarray:
    """The array of a file, which is mapped if it is large.

    Raises:
        ValueError: if the file holds another one, or a part.
    """
    is_large = file.stat().st_size > MAPPED_BYTES
    array = np.load(file, mmap_mode="r" if is_large else None, allow_pickle=False)
    if (array.dtype.str, list(array.shape)) != (dtype, shape):
        raise ValueError(f"{file} must hold {dtype} {shape}.")
    # Not of NumPy's subclass for such arrays, which not everything takes for one.
    return np.asarray(array)


@cache
def _code() -> str:
    """Hash of the modules that read and normalise."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _hash(words: list[Any]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:24]
