"""Folders of object stores, `gs://BUCKET/FOLDER` and `s3://BUCKET/FOLDER`.

Read and written through tensorstore, with the credentials that it finds: those of
Google's tools, or AWS_ACCESS_KEY_ID and its like, AWS_PROFILE or the machine's role.
AWS_ENDPOINT_URL names another store that speaks S3's language, AWS_REGION its region.

An object appears whole or not at all, and is seen by all once it was written; so a
commit record is replaced by writing it. There are no locks.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import tensorstore as ts


_DRIVERS = {"gs": "gcs", "s3": "s3"}


@dataclass(frozen=True, order=True)
class Bucket:
    """An object of a bucket or a folder, with as much of `pathlib.Path` as runs need.

    Attributes:
        scheme: gs or s3.
        parts: Name of the bucket, then of folders and object.
    """

    scheme: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(self.parts)}"

    def __truediv__(self, name: str) -> "Bucket":
        return Bucket(self.scheme, (*self.parts, *name.split("/")))

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]

    @property
    def parent(self) -> "Bucket":
        """The folder that it is in."""
        return Bucket(self.scheme, self.parts[:-1])

    @property
    def parents(self) -> "list[Bucket]":
        """All folders that it is in, the nearest one first."""
        counts = range(len(self.parts) - 1, 0, -1)
        return [Bucket(self.scheme, self.parts[:count]) for count in counts]

    def spec(self, *, is_folder: bool = True) -> dict[str, Any]:
        """What tensorstore calls it."""
        key = "/".join(self.parts[1:]) + ("/" if is_folder else "")
        found: dict[str, Any] = {"driver": _DRIVERS[self.scheme], "path": key}
        found["bucket"] = self.parts[0]
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        if self.scheme == "s3" and endpoint:
            found["endpoint"] = endpoint
            found["aws_region"] = os.environ.get("AWS_REGION", "us-east-1")
        if self.scheme == "s3" and "AWS_ACCESS_KEY_ID" in os.environ:
            # Else tensorstore complains of files that need not be there.
            found["aws_credentials"] = {"type": "environment"}
        return found

    def exists(self) -> bool:
        """Whether there is such an object, or one below it."""
        alone = self._open(is_folder=False).read(b"").result()
        return alone.state == "value" or next(self._keys(), None) is not None

    def is_dir(self) -> bool:
        """Whether there is an object below it."""
        return next(self._keys(), None) is not None

    def absolute(self) -> "Bucket":
        """Itself."""
        return self

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Nothing to do: folders are parts of names."""

    def iterdir(self) -> "Iterator[Bucket]":
        """What is in the folder."""
        for name in sorted({key.split("/")[0] for key in self._keys()}):
            yield self / name

    def read_text(self, encoding: str = "utf-8") -> str:
        """The object's text.

        Raises:
            FileNotFoundError: if there is none.
        """
        found = self._open(is_folder=False).read(b"").result()
        if found.state != "value":
            raise FileNotFoundError(f"{self} does not exist")
        return found.value.decode(encoding)

    def write_text(self, text: str) -> None:
        """Replace the object in one step."""
        self._open(is_folder=False).write(b"", text.encode()).result()

    def rename(self, other: "Bucket") -> None:
        """Write an object under another name, then delete this one."""
        other.write_text(self.read_text())
        self.remove()

    def remove(self) -> None:
        """Delete the object, and all below it."""
        self._open(is_folder=False).write(b"", None).result()
        self._open().delete_range(ts.KvStore.KeyRange()).result()

    def _open(self, *, is_folder: bool = True) -> ts.KvStore:
        return ts.KvStore.open(self.spec(is_folder=is_folder)).result()

    def _keys(self) -> Iterator[str]:
        return (key.decode() for key in self._open().list().result())


Place: TypeAlias = Path | Bucket
"""Where a run is."""


def place(path: Any) -> Place:
    """A path as it was typed: a folder, or a bucket's.

    Args:
        path: Text or a path; also what `pathlib` makes of gs://NAME, with one slash.

    Raises:
        ValueError: if a bucket's address names no folder in it.
    """
    if isinstance(path, Bucket):
        return path
    scheme, mark, rest = str(path).partition(":/")
    if not mark or scheme not in _DRIVERS:
        return Path(path)
    parts = tuple(part for part in rest.split("/") if part)
    if len(parts) < 2:
        raise ValueError(
            f"A run in a bucket must have a folder of its own, such as "
            f"{scheme}://BUCKET/runs/first, got {scheme}://{'/'.join(parts)}."
        )
    return Bucket(scheme, parts)
