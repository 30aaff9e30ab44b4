"""Images kept as JPEG streams, decoded once."""

import contextlib
import hashlib
import io
import itertools
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from symjax.data import cache
from symjax.data.sources import UNREADABLE, Arrays


def read_jpeg(path: str) -> Arrays:
    """The images of a file that holds them as JPEG streams with one common header.

    Stream i is `jpeg_header` and `jpeg_train[offsets_train[i]:offsets_train[i + 1]]`.
    What was decoded is kept in the folder that SYMJAX_CACHE names (default: symjax in
    the user's cache), under the hash of the file; delete it at any time.

    Args:
        path: Of the file.

    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kept = cache.folder("images") / f"{digest}.npz"
    try:
        with open(kept, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return Arrays(*(arrays[key] for key in Arrays._fields))
    except (*UNREADABLE, KeyError):
        arrays = _decode(path)
    # A full or read-only cache costs the next reader seconds, no more.
    with contextlib.suppress(OSError):
        _keep(kept, arrays)
    return arrays


def _decode(path: str) -> Arrays:
    """The images of all streams.

    Raises:
        ValueError: if an array is missing or a stream is none.
    """
    read = {}
    try:
        with np.load(path, allow_pickle=False) as file, ThreadPoolExecutor() as pool:
            header = file["jpeg_header"].tobytes()
            for kind in ("train", "test"):
                streams = _streams(
                    header, file[f"jpeg_{kind}"], file[f"offsets_{kind}"]
                )
                # Pillow decodes outside of Python's lock.
                read[f"x_{kind}"] = np.stack(list(pool.map(_image, streams)))
                read[f"y_{kind}"] = file[f"y_{kind}"]
    except (*UNREADABLE, KeyError) as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    return Arrays(**read)


def _streams(header: bytes, bodies: np.ndarray, edges: np.ndarray) -> Iterator[bytes]:
    for start, end in itertools.pairwise(edges):
        yield header + bodies[start:end].tobytes()


def _image(stream: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(stream)))


def _keep(kept: Path, arrays: Arrays) -> None:
    """Write the file whole or not at all; several processes may do so at once."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        dir=kept.parent, suffix=".part", delete=False
    ) as part:
        try:
            np.savez(part, **arrays._asdict())
            part.close()
            os.replace(part.name, kept)
        except BaseException:
            os.unlink(part.name)
            raise
