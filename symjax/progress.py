"""A progress bar on a terminal, plain lines everywhere else."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)


LINE_SECONDS = 10.0
"""Plain lines come at most this often, in seconds."""

Update = Callable[[int, str], None]
"""`update(done, note)`: how many units are done, and what to say beside the bar."""


@contextmanager
def bar(
    title: str, total: int, *, done: int = 0, show: bool = True
) -> Iterator[Update]:
    """Show progress on standard error while the block runs.

    Args:
        title: What is being done.
        total: Units of work.
        done: Units done before.
        show: False for silence.

    Yields:
        `update(done, note)`.
    """
    console = Console(stderr=True)
    if not show:
        yield lambda done, note: None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim"),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(title, total=total, completed=done, note="")
            yield lambda done, note: progress.update(task, completed=done, note=note)
    else:
        yield _lines(console, title, total, done)


def _lines(console: Console, title: str, total: int, first: int) -> Update:
    start = time.monotonic()
    last = start

    def update(done: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < LINE_SECONDS:
            return
        last = now
        left = (now - start) / max(1, done - first) * (total - done)
        console.print(
            f"{title}: {done}/{total}, {left:.0f} s left"
            + (f", {note}" if note else ""),
            highlight=False,
            soft_wrap=True,
        )

    return update
