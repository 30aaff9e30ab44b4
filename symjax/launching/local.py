"""Several processes of one program on this machine: the rehearsal of many hosts."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from symjax.launching.begun import has_begun
from symjax.launching.plan import Process
from symjax.launching.rules import (
    begin_or_resume,
    run_of,
    shell_code,
    verdict,
    worth_restarting,
)


GRACE = 40.0
"""Seconds that the others get to stop by themselves when one process has failed.

They notice within the heartbeat time-out (30 s), and say which one died.
"""

_POLL = 0.05

_GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    word, group = line.split()
    (groups.add if word == "started" else groups.discard)(int(group))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
"""Ends the processes when its input does, which is when the launcher is no more."""


@dataclass(frozen=True)
class Outcome:
    """How the processes ended, as one exit code; and whether they were told to."""

    code: int
    was_stopped: bool = False


def rehearse(
    command: Sequence[str],
    plan: Callable[[tuple[str, ...]], tuple[Process, ...]],
    *,
    max_restarts: int = 0,
    grace: float = GRACE,
) -> int:
    """Run a command as many processes; after an accident, again.

    Args:
        command: With `--out RUN`, where it is to be restarted.
        plan: Makes the processes of the command that begins or resumes the run.
        max_restarts: How often it is started again; not after an exit code 1 or 2, and
            not when this process was told to stop.
        grace: Seconds from the first failure until what still runs is killed.

    Returns:
        The exit code.

    Raises:
        ValueError: if a number is below 0, or there is no `--out` and restarts are
            wanted.
    """
    for name, value in {"max-restarts": max_restarts, "grace": grace}.items():
        if not value >= 0:
            raise ValueError(f"`--{name}` was expected to be at least 0, got {value}")
    kept = run_of(command)
    if max_restarts and kept is None:
        raise ValueError(
            "the command was expected to say `--out RUN`, so that it can be resumed; "
            f"got {' '.join(command)}"
        )
    words, left = tuple(command), max_restarts
    while True:
        outcome = run(plan(words), grace=grace)
        if outcome.was_stopped or not left or not worth_restarting(outcome.code):
            return outcome.code
        left -= 1
        _say(f"exit code {outcome.code}: starting again, {left} restarts left")
        words = begin_or_resume(command, has_begun(kept))


def run(plan: Sequence[Process], *, grace: float = GRACE) -> Outcome:
    """Run processes until all have ended, and leave none behind.

    Each line of theirs is printed behind the number of its process. When one fails, the
    others have `grace` seconds, and are then killed with all that they started. SIGINT
    and SIGTERM are passed on as SIGTERM, upon which symjax saves and stops; a second
    one kills. If this process is killed itself, a small guard process does the killing.

    Args:
        plan: The processes.
        grace: Seconds from the first failure until what still runs is killed.

    Returns:
        The exit code of the first process that failed, or 0.
    """
    started: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    requests: list[int] = []
    with _guard() as tell, _signals(requests):
        try:
            for process in plan:
                started.append(_start(process, tell))
                number = len(started) - 1
                reader = threading.Thread(
                    target=_print_lines, args=(number, started[-1]), daemon=True
                )
                reader.start()
                readers.append(reader)
            codes = _wait(started, requests, grace, tell)
        finally:
            for popen in started:
                if popen.poll() is None:
                    _kill_group(popen)
                    popen.wait()
    for reader in readers:
        reader.join(timeout=5)
    return Outcome(verdict(codes), was_stopped=bool(requests))


def _start(process: Process, tell: Callable[[str], None]) -> subprocess.Popen[str]:
    popen = subprocess.Popen(
        process.argv,
        env={**os.environ, **process.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    tell(f"started {popen.pid}")
    return popen


def _wait(
    started: list[subprocess.Popen[str]],
    requests: list[int],
    grace: float,
    tell: Callable[[str], None],
) -> list[int]:
    """Exit codes in the order in which the processes ended."""
    running = dict(enumerate(started))
    codes: list[int] = []
    deadline = float("inf")
    num_passed_on = 0
    while running:
        for number, popen in list(running.items()):
            if popen.poll() is None:
                continue
            del running[number]
            _kill_group(popen)
            tell(f"ended {popen.pid}")
            code = shell_code(popen.returncode)
            codes.append(code)
            if code != 0:
                _say(f"process {number} ended with exit code {code}")
                deadline = min(deadline, time.monotonic() + grace)
        if len(requests) > num_passed_on:
            num_passed_on = len(requests)
            deadline = _pass_on(running, num_passed_on, deadline)
        if running and time.monotonic() > deadline:
            numbers = ", ".join(map(str, running))
            _say(f"killing what still runs: {numbers}")
            for popen in running.values():
                _kill_group(popen)
            deadline = float("inf")
        time.sleep(_POLL)
    return codes


def _pass_on(
    running: dict[int, subprocess.Popen[str]], num_requests: int, deadline: float
) -> float:
    """Pass a request to stop on; the new deadline, which a second request makes now."""
    if num_requests > 1:
        return time.monotonic()
    _say("asked to stop: passing it on; once more kills")
    for popen in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGTERM)
    return deadline


def _kill_group(popen: subprocess.Popen[str]) -> None:
    """Kill a process and what it started, or what it left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)


@contextlib.contextmanager
def _guard() -> Iterator[Callable[[str], None]]:
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert guard.stdin is not None
    pipe = guard.stdin

    def tell(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            pipe.write(line + "\n")
            pipe.flush()

    try:
        yield tell
    finally:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
        guard.wait()


@contextlib.contextmanager
def _signals(requests: list[int]) -> Iterator[None]:
    """Note SIGINT and SIGTERM instead of dying of them; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda number, _: requests.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_lines(number: int, popen: subprocess.Popen[str]) -> None:
    assert popen.stdout is not None
    for line in popen.stdout:
        # Where nobody reads any more, the process must go on being read.
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(f"[{number}] {line.rstrip()}\n")
            sys.stdout.flush()
    popen.stdout.close()


def _say(message: str) -> None:
    print(f"launch: {message}", file=sys.stderr, flush=True)
