"""The small record that says how much of a run counts."""

from pathlib import Path
from typing import NamedTuple

from symjax.store.files import StoreError, read_json, write_json


class Commit(NamedTuple):
    """How much of a run counts.

    Attributes:
        iteration: Iterations done, warm-up included.
        num_draws: Draws kept of each chain.
        finished: Whether the run reached its end.
        has_state: Whether a sampler state was saved; false until the first commit.
    """

    iteration: int = 0
    num_draws: int = 0
    finished: bool = False
    has_state: bool = False


def read(path: Path) -> Commit:
    """The commit record of the run in `path`, as it is on the disk now.

    Raises:
        StoreError: if it is missing or damaged.
    """
    file = path / "commit.json"
    record = read_json(file)
    if not isinstance(record, dict) or set(record) != set(Commit._fields):
        raise StoreError(f"{file} is not a commit record: put it back from a copy.")
    return Commit(**record)


def write(path: Path, record: Commit) -> None:
    """Replace the commit record of the run in `path`."""
    write_json(path / "commit.json", record._asdict())
