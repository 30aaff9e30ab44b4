"""The small record that says how much of a run counts, and when it may say so."""

from typing import TYPE_CHECKING, Any, NamedTuple

from symjax import hosts
from symjax.store.bucket_states import BucketSaving
from symjax.store.buckets import Place
from symjax.store.files import StoreError, read_json, write_json


if TYPE_CHECKING:
    from symjax.store.states import Saving


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


def read(path: Place) -> Commit:
    """The commit record of the run in `path`, as it is on the disk now.

    Raises:
        StoreError: if it is missing or damaged.
    """
    file = path / "commit.json"
    record = read_json(file)
    if not isinstance(record, dict) or set(record) != set(Commit._fields):
        raise StoreError(f"{file} is not a commit record: put it back from a copy.")
    return Commit(**record)


def write(path: Place, record: Commit) -> None:
    """Replace the commit record of the run in `path`."""
    write_json(path / "commit.json", record._asdict())


def check(record: Commit, last: Commit, iteration: int, num_draws: int) -> None:
    """Require a record that follows the last one.

    Args:
        record: To be written.
        last: The one before.
        iteration: Iterations whose Info was appended.
        num_draws: Draws appended.

    Raises:
        ValueError: if it would go back, or past what was appended.
    """
    for name, done, written in (
        ("iteration", last.iteration, iteration),
        ("num_draws", last.num_draws, num_draws),
    ):
        value = getattr(record, name)
        if not done <= value <= written:
            raise ValueError(
                f"`{name}` must be between the {done} committed and the {written} "
                f"appended, got {value}."
            )


def require_state(path: Place, record: Commit) -> int:
    """The iteration of the state that a record names.

    Raises:
        StoreError: if it names none yet.
    """
    if not record.has_state:
        raise StoreError(
            f"{path} has no saved state yet (`committed.has_state` is false): start "
            "the chains from their beginning."
        )
    return record.iteration


class Ledger:
    """What makes the draws of a run count: first their state is saved, then it is said.

    Attributes:
        path: The run directory.
        last: The record as known here: a file that another host replaced is seen late.
    """

    def __init__(self, path: Place) -> None:
        self.path = path
        self.last = read(path)
        self._saving: Saving | BucketSaving | None = None
        self._next: Commit | None = None

    def begin(self, record: Commit, state: Any) -> None:
        """Begin to save a state; `record` takes effect when that is done.

        At an iteration whose state is saved already, nothing is left to be waited for.
        To be called by all hosts, when draws and Info are written, and after `settle`.

        Args:
            record: What is to count then.
            state: Pytree of arrays, typed PRNG keys included.
        """
        from symjax.store import states  # Its Orbax takes long to import.

        hosts.barrier("draws")
        step = self.last.iteration if self.last.has_state else None
        if record.iteration != step:
            folder = self.path / "state"
            self._saving = states.save(folder, record.iteration, state, step)
        self._next = record

    @property
    def is_saved(self) -> bool:
        """Whether what was begun can be recorded without waiting, as seen from here.

        Raises:
            StoreError: if this host could not save its part; nothing is then recorded.
        """
        try:
            return self._saving is None or self._saving.is_done
        except StoreError:
            self._saving = self._next = None
            raise

    def settle(self) -> None:
        """Wait for the state, and replace the record. To be called by all hosts."""
        saving, record = self._saving, self._next
        self._saving = self._next = None
        if record is None:
            return
        if saving is not None:
            saving.wait()
        if hosts.is_first():
            write(self.path, record)
        hosts.barrier("commit")
        self.last = record
        hosts.log(f"Saved iteration {record.iteration}, {record.num_draws} draws.")
