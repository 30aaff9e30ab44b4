"""Start JAX's runtime on all hosts, and end all of them together."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
from jax._src import distributed, xla_bridge
from jax.experimental import multihost_utils

from symjax.hosts import last_words
from symjax.hosts.failures import is_of_runtime
from symjax.hosts.meeting import meet
from symjax.hosts.places import find
from symjax.hosts.watch import RESTART, Watch


LINGER = 5.0
"""Seconds that host 0 gives the others to read why it stops."""
_MARGIN = 10
"""Seconds that JAX waits at least longer than the watch for a silent host: it names
nobody. By then `Watch.patience` is over."""


class Timeouts(NamedTuple):
    """Seconds of silence before a host counts as dead, to end, to find each other."""

    heartbeat: int = 30
    shutdown: int = 30
    initialization: int = 300


@dataclass
class _Session:
    """What a program of several processes knows of itself."""

    client: Any
    watch: Watch
    witness: subprocess.Popen[str]
    log: Path | None = None
    run: str | None = None
    resume: str | None = None
    num_polls: int = 0
    ending: threading.Lock = field(default_factory=threading.Lock)
    telling: threading.Lock = field(default_factory=threading.Lock)


_session: _Session | None = None
"""Of this process, as JAX's runtime is: it can be started once."""


def start(word: str = "auto", timeouts: Timeouts | None = None) -> None:
    """Join the other processes of the program, if there are any.

    To be called before anything is computed, and so before `symjax.samplers` are
    imported. SIGTERM stays with Python; an exception that nobody catches ends this
    process at once, and the others soon after.

    Args:
        word: `auto`, `off`, or `ADDRESS,N,ID`; see `places.find`.
        timeouts: How long to wait for what. Default: 30 s, 30 s and 5 minutes.

    Raises:
        ValueError: for a wrong `word`, or hosts that were started differently.
        NotAllCame: if a host is missing.
        RuntimeError: if something was computed before.
    """  # noqa: DOC502
    global _session
    place = find(word)
    if place is None:
        return
    if xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "`hosts.start` must come before anything is computed, also by an import: "
            "blackjax computes when it is imported, and symjax.samplers import it. "
            "Import symjax.hosts and start it first."
        )
    timeouts = timeouts or Timeouts()
    before = signal.getsignal(signal.SIGTERM)
    lose = functools.partial(_stop, RESTART, can_tell=False)
    with meet(place, timeouts.initialization, lose) as names:
        jax.distributed.initialize(
            *place,
            cluster_detection_method="deactivate",
            initialization_timeout=timeouts.initialization,
            heartbeat_timeout_seconds=_patience_of_jax(timeouts.heartbeat),
            shutdown_timeout_seconds=timeouts.shutdown,
        )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # JAX took it.
    client = distributed.global_state.client
    watch = Watch(client, place.identity, names, timeouts.heartbeat, _stop, _suspect)
    witness = subprocess.Popen(
        [sys.executable, "-I", "-S", last_words.__file__, watch.name(place.identity)],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _session = _Session(client, watch, witness)
    sys.excepthook = lambda _, error, __: end_with(error)
    watch.begin()


def _patience_of_jax(heartbeat: int) -> int:
    """The silence in seconds after which JAX ends all processes.

    JAX's hosts beat twice in that time, so that half of it may have passed already when
    one is killed.
    """
    return 2 * (heartbeat + _MARGIN)


def session() -> _Session | None:
    """What was started; None in a program of one process."""
    return _session


def index() -> int:
    """Which host this is, from 0."""
    return 0 if _session is None else _session.watch.own


def count() -> int:
    """How many hosts there are."""
    return 1 if _session is None else len(_session.watch.names)


def is_first() -> bool:
    """Whether this is host 0, which prints, and writes what is written once."""
    return index() == 0


def is_preempted() -> bool:
    """Whether the machines are about to be taken, as JAX's service heard and all know.

    To be called by all hosts, the same number of times.
    """
    if _session is None:
        return False
    _session.num_polls += 1
    return multihost_utils.reached_preemption_sync_point(_session.num_polls)


def write_logs(run: Any, resume: str | None = None) -> None:
    """Log into a run directory from now on, `logs/host-0.log` and so on.

    Of the hosts other than 0, all that is printed goes there too.

    Args:
        run: The directory; what was lost is told by what it holds. Of one in a bucket,
            where nothing can be added to a file, the logs are here, in `NAME.logs`.
        resume: The command that continues it.
    """
    if _session is None:
        return
    first_time = _session.log is None
    _session.run, _session.resume = str(run), resume or _session.resume
    folder = Path(f"{run.name}.logs") if "://" in _session.run else run / "logs"
    file = Path(folder, f"host-{index()}.log")
    file.parent.mkdir(parents=True, exist_ok=True)
    _session.log = file
    _tell_witness(run=_session.run, resume=_session.resume, log=str(file.absolute()))
    if first_time and not is_first():
        sys.stdout.flush()
        sys.stderr.flush()
        log_file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(log_file, 1)
        os.dup2(log_file, 2)
        os.close(log_file)
    log(f"{_session.watch.name(index())} of {count()}, process {os.getpid()}.")


def log(text: str) -> None:
    """Add a line to this host's log, where there is one."""
    if _session is not None and _session.log is not None:
        last_words.write(str(_session.log), text)


def finish() -> None:
    """End a program that is done, when all hosts are. To be called by all hosts."""
    global _session
    if _session is None:
        return
    _session.client.wait_at_barrier("symjax/finish", 1000 * 3600 * 24)
    _session.watch.is_over = True
    log("Done.")
    _tell_witness(ended="done")
    jax.distributed.shutdown()
    sys.excepthook = sys.__excepthook__
    _session = None


def leave(code: int, text: str, can_tell: bool = True) -> NoReturn:
    """End this process at once, and have the others end with the same exit code.

    Without this, JAX would have them wait for each other at the exit.

    Args:
        code: Exit code.
        text: Why, for the logs of all hosts.
        can_tell: Whether host 0 is there to tell the others.
    """
    try:
        if _session is not None:
            _session.ending.acquire()  # For good: who comes second waits for the end.
            _session.watch.is_over = True
            log(text)
            if can_tell:
                # A call over a cut network does not return.
                words = (code, text)
                told = threading.Thread(target=_tell_others, args=words, daemon=True)
                told.start()
                told.join(LINGER + 1)
            _tell_witness(ended=text)
        with contextlib.suppress(OSError, ValueError):  # Nobody reads it any more.
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def end_with(error: BaseException) -> NoReturn:
    """End this process because of an exception that nobody expected.

    One that JAX's runtime raised is mostly the loss of another host: the watch then
    has its time to find out which.
    """
    code = 1
    if _session is not None and is_of_runtime(error):
        log(f"{_first_line(error)}. Looking for a host that was lost.")
        time.sleep(_session.watch.patience)
        code = RESTART
    with contextlib.suppress(OSError):
        traceback.print_exception(error)
    leave(code, _first_line(error))


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _stop(code: int, text: str, can_tell: bool) -> None:
    """What the watch calls, and the meeting that comes before it."""
    saved = last_words.describe(_session.run, _session.resume) if _session else ""
    if saved not in text:  # Another host may have said it.
        text = f"{text.rstrip('.')}. {saved}"
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
    leave(code, text, can_tell)


def _suspect(silent: dict[str, float]) -> None:
    """What the watch calls when hosts fall silent."""
    _tell_witness(silent=silent)


def _tell_others(code: int, text: str) -> None:
    assert _session is not None
    try:
        _session.watch.leave_note(code, text)
        if is_first():
            _session.watch.wait_for_others(LINGER)
    except Exception as error:  # JAX names no type for what its client raises.
        log(f"The others could not be told: {_first_line(error)}")


def _tell_witness(**facts: Any) -> None:
    assert _session is not None
    pipe = _session.witness.stdin
    assert pipe is not None
    with _session.telling, contextlib.suppress(OSError):
        pipe.write(json.dumps(facts) + "\n")
        pipe.flush()
