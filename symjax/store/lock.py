"""One process at a time may write a run.

The kernel's lock on an open file, not the file's being there: it ends with the process
that holds it, however that ends. After a SIGKILL no lock is left to be judged by a
process id, which in a container is the same each time.
"""

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from symjax.store.buckets import Bucket, Place
from symjax.store.files import StoreError, explained


@contextmanager
def hold(path: Place) -> Iterator[None]:
    """Keep other processes from writing a run; readers are free.

    On a file system without locks, such as some network ones, nothing is kept from it,
    nor in a bucket, where an object that is a lock would outlive who is killed. Two
    programs that write the same run there spoil it.

    Args:
        path: The run directory.

    Raises:
        StoreError: if another process holds it.
    """
    if isinstance(path, Bucket):
        yield
        return
    file = path / "lock"
    with explained("open", file):
        lock = file.open("a+", encoding="utf-8")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read() or "another process"
            raise StoreError(
                f"{path} is being written by {holder}. Wait until that is done, or "
                "stop it; then resume."
            ) from None
        except OSError:
            yield
            return
        lock.truncate(0)
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        lock.write(f"process {os.getpid()} on {platform.node()} since {now}")
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)
