"""Small files that are there or not there, and errors a user can act on."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from symjax.store.buckets import Bucket, Place


class StoreError(RuntimeError):
    """A run directory can't be read or written: which file, why, and the way out."""


_FULL = "Free some space on the disk (or in your quota), then resume."
_SHUT = "Make the folder writable, or choose another one."
_TAKEN = "Choose another directory."
_DAMAGED = "Put the file back from a copy, or begin the run again in a new directory."
_REMEDIES = {
    os.strerror(errno.ENOSPC): _FULL,
    os.strerror(errno.EDQUOT): _FULL,
    os.strerror(errno.EFBIG): _FULL,
    os.strerror(errno.EACCES): _SHUT,
    os.strerror(errno.EPERM): _SHUT,
    os.strerror(errno.EROFS): _SHUT,
    os.strerror(errno.EEXIST): _TAKEN,
    os.strerror(errno.ENOTDIR): _TAKEN,
    os.strerror(errno.ENOENT): _DAMAGED,
    # What tensorstore says of chunks and their metadata.
    "Not enough data": _DAMAGED,
    "Digest mismatch": _DAMAGED,
    "Invalid JSON": _DAMAGED,
    "is missing": _DAMAGED,
    "does not exist": _DAMAGED,
}


@contextmanager
def explained(doing: str, path: Place, otherwise: str = "") -> Iterator[None]:
    """Turn what the libraries raise into a `StoreError` that names file and way out.

    Args:
        doing: What is being done, such as "write"; the path follows it.
        path: The file or folder, named where the error itself names none.
        otherwise: What to do if the cause is none of the known ones.

    Raises:
        StoreError: from any error of the operating system, tensorstore or Orbax.
    """
    try:
        yield
    except StoreError:
        raise
    except (OSError, ValueError, RuntimeError, LookupError, TypeError) as error:
        cause = str(error).split(" [tensorstore_spec")[0]
        named = re.search(r'local file "([^"]+)"', cause)
        file = named[1] if named else path
        for sign, remedy in _REMEDIES.items():
            if sign in cause:
                cause, otherwise = sign, remedy
                break
        said = f"Could not {doing} {file}: {cause.rstrip('. ')}. {otherwise}"
        raise StoreError(said.rstrip()) from error


def write_json(path: str | os.PathLike[str] | Bucket, value: Any) -> None:
    """Replace a JSON file in one step: readers see the old one or the new one, whole.

    Args:
        path: The file, made if it isn't there.
        value: What `json.dumps` takes.
    """
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: str | os.PathLike[str] | Bucket, text: str) -> None:
    """Replace a text file in one step, as `write_json` does."""
    if isinstance(path, Bucket):
        with explained("write", path):
            path.write_text(text)
        return
    path = Path(path)
    partial = path.with_name(path.name + ".tmp")
    with explained("write", path):
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        flush(path.parent, deep=False)


def read_json(path: Place) -> Any:
    """Read a JSON file of a run."""
    with explained("read", path, _DAMAGED):
        return json.loads(path.read_text(encoding="utf-8"))


def as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it is after it was written and read.

    Raises:
        TypeError: if it holds what JSON does not know.
    """
    try:
        return json.loads(json.dumps(config))
    except TypeError as error:
        raise TypeError(
            f"`config` must hold numbers, strings, lists and dicts only: {error}. "
            "Turn it into these first."
        ) from error


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """`sampler.step_size` -> its value as JSON, so that NaN equals NaN."""
    entries = {}
    for key, value in config.items():
        if isinstance(value, dict):
            entries |= flatten(value, f"{prefix}{key}.")
        else:
            entries[f"{prefix}{key}"] = json.dumps(value)
    return entries


def rename(path: Place, name: str) -> None:
    """Give a file another name in its folder."""
    if isinstance(path, Bucket):
        path.rename(path.parent / name)
    else:
        path.rename(path.with_name(name))


def remove(path: Place) -> None:
    """Delete a file or a folder and all below it, if it is there."""
    if isinstance(path, Bucket):
        path.remove()
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def local(path: Place) -> Path:
    """A folder, for what can't be done in a bucket.

    Raises:
        StoreError: if it is a bucket's.
    """
    if isinstance(path, Bucket):
        raise StoreError(f"{path} is in a bucket: copy the run to a folder first.")
    return path


def flush(path: Place, *, deep: bool = True) -> None:
    """Wait until a file, or a folder and all below it, is on the disk."""
    if isinstance(path, Bucket):
        return  # It is there as soon as it was written.
    if deep and path.is_dir():
        for entry in path.iterdir():
            flush(entry)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
