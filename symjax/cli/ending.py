"""How a command begins on several processes, and how it ends: its exit code.

0 done; 42 preempted, and what there is is saved; 1 and 2 for what another start would
not mend; 75 and all others for what it would.
"""

import contextlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

from symjax.cli.options import Processes
from symjax.launching import PREEMPTED


TERMINATED = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM, where no run takes it to save."""


def terminate(*_: Any) -> None:
    """The handler of SIGTERM.

    Raises:
        Terminated: always.
    """
    raise Terminated


def give_threads() -> None:
    """Give XLA threads enough for the virtual devices of one CPU.

    It makes as many as there are cores. Where devices take them all to wait for each
    other's sums, what they sum waits for a thread for ever. To be called before JAX
    looks for devices.
    """
    number = os.environ.get("JAX_NUM_CPU_DEVICES", "")
    asked = re.findall(r"device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    devices = int(asked[-1]) if asked else int(number) if number.isdecimal() else 1
    if devices > 1 and devices >= (os.cpu_count() or 1):
        os.environ.setdefault("NPROC", str(max(32, 4 * devices)))


def begin(processes: Processes) -> None:
    """Join the other processes, if there are any.

    Raises:
        ValueError: for a number of seconds that is none.
    """
    from symjax import checks, hosts

    seconds = {}
    for name in hosts.Timeouts._fields:
        given = getattr(processes, f"{name}_seconds")
        variable = f"SYMJAX_{name.upper()}_SECONDS"
        if given is None and variable in os.environ:
            if not os.environ[variable].isdecimal():
                raise ValueError(
                    f"{variable} must be whole seconds, got {os.environ[variable]!r}."
                )
            given = int(os.environ[variable])
        if given is not None:
            checks.at_least(1, **{f"{name}_seconds": given})
            seconds[name] = given
    hosts.start(processes.distributed, hosts.Timeouts(**seconds))


def refuse_buckets(name: str, words: list[str]) -> None:
    """Require folders, for a command that keeps what it makes beside the draws.

    Args:
        name: Of the command.
        words: What was typed.

    Raises:
        ValueError: naming the first that is of a bucket.
    """
    found = re.search(r"(gs|s3)://\S+", " ".join(words))
    if found is None:
        return
    copy = "gcloud storage cp -r" if found[1] == "gs" else "aws s3 cp --recursive"
    raise ValueError(
        f"symjax {name} works on folders, got {found[0]}: copy the run to one "
        f"({copy} {found[0]} FOLDER). symjax sample and symjax fit write to buckets."
    )


def refuse_several(name: str, processes: Processes | None) -> None:
    """Require one process for a command that computes on one.

    Args:
        name: Of the command.
        processes: What was typed, if anything could be.

    Raises:
        ValueError: if this is one of several.
    """
    number = os.environ.get("SYMJAX_NUM_PROCESSES", "1")
    # Devices there may be several of.
    own = {"mesh": None, "chains_at_once": None}
    several = None if processes is None else replace(processes, **own)
    typed = several not in (None, Processes(), Processes(distributed="off"))
    if number != "1" or typed:
        how = "these options" if typed else f"SYMJAX_NUM_PROCESSES, which is {number}"
        raise ValueError(
            f"symjax {name} runs on one process: leave out {how}. symjax sample and "
            "symjax fit run on several."
        )


def end_by_signal(error: KeyboardInterrupt) -> NoReturn:
    """End after Ctrl-C or SIGTERM outside of a run."""
    fail(
        "Interrupted. What run directories hold is safe; what had not begun to be "
        "saved is to be started again.",
        TERMINATED if isinstance(error, Terminated) else 1,
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """For programs: signals, and errors that symjax raised, end it with a message."""
    try:
        yield
    except KeyboardInterrupt as error:
        end_by_signal(error)
    except Exception as error:
        end_by_error(error)


@contextlib.contextmanager
def ended_by_reader() -> Iterator[None]:
    """End silently where nobody reads any further, as rich does: `--help | head -1`.

    Raises:
        SystemExit: with 1.
    """  # noqa: DOC502
    try:
        try:
            yield
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        # For what Python itself flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def end_all() -> None:
    """Of several processes, end the others with one that exits by itself.

    As rich has it exit when nobody reads what it prints, such as a terminal that was
    closed: JAX would have it wait for the others, and these for it.
    """
    hosts = sys.modules.get("symjax.hosts")  # Without it, this is the only process.
    if hosts is not None and hosts.count() > 1:
        hosts.leave(1, "it exited, maybe since nobody reads what it prints")


def end_by_error(error: Exception) -> NoReturn:
    """End with the message of an error that symjax raised, or with a traceback.

    Raises:
        Exception: what is a defect.
    """  # noqa: DOC502
    from symjax import hosts
    from symjax.hosts.meeting import NotAllCame
    from symjax.run import Preempted, Stopped

    is_failure_of_runtime = hosts.count() > 1 and hosts.is_of_runtime(error)
    is_explained = isinstance(error, Stopped) or _is_explained(error)
    if is_failure_of_runtime or not is_explained:
        if hosts.count() > 1:
            hosts.end_with(error)
        raise error
    if isinstance(error, Preempted):
        fail(str(error), PREEMPTED)
    if isinstance(error, NotAllCame):
        fail(str(error), hosts.RESTART)
    fail(str(error), 2 if isinstance(error, ValueError | TypeError) else 1)


def _is_explained(error: Exception) -> bool:
    """Whether symjax itself raised the error, in words for the user.

    What other packages raise from within is a defect here, and keeps its traceback.
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(__file__).parents[1] in Path(last.filename).parents


def fail(message: str, code: int) -> NoReturn:
    """Say why, and end this process; of several, all of them."""
    with contextlib.suppress(OSError, SystemExit):  # Which rich raises if nobody reads.
        Console(stderr=True).print(
            f"[bold red]Error:[/bold red] {escape(message)}",
            highlight=False,
            soft_wrap=True,
        )
    from symjax import hosts

    if hosts.count() > 1:
        hosts.leave(code, message)
    sys.exit(code)
