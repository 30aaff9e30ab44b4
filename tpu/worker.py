"""What runs on each host: one program, begun or resumed, and a note of how it ended.

    python tpu/worker.py exec [--codes FOLDER] -- symjax sample ... --out RUN
    python tpu/worker.py start --attempt N -- symjax sample ... --out RUN
    python tpu/worker.py status | stop | report

`exec` stays in the foreground: Kubernetes, Slurm and SkyPilot start it. `start` leaves
the program running when the connection closes; `status`, `stop` and `report` print one
line that the launcher reads. Both resume the run where it exists, and begin it where it
does not. Each host decides for itself, and all decide alike: symjax writes the run's
first file only after all hosts have met.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


# Before anything is installed, symjax is found beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from symjax.launching import begin_or_resume, has_begun, run_of, shell_code


ANSWER = "symjax-host "
"""How a line begins that is meant for the launcher."""

_STOP_SECONDS = 20.0


def home() -> Path:
    """Where a host keeps what belongs to its program."""
    return Path(os.environ.get("SYMJAX_LAUNCH_HOME", "~/symjax-launch")).expanduser()


def hostname() -> str:
    """What this host is called; in Kubernetes, what the pod is."""
    return os.environ.get("HOSTNAME") or socket.gethostname()


def main() -> int:
    """Do what was asked; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "action", choices=["exec", "start", "supervise", "status", "stop", "report"]
    )
    parser.add_argument("--attempt", type=int, default=0)
    parser.add_argument("--codes", type=Path, help="folder for a file of the exit code")
    words, command = split(sys.argv[1:])
    asked = parser.parse_args(words)
    # What is installed beside this Python, `symjax` above all, is found first.
    beside = str(Path(sys.executable).parent)
    os.environ["PATH"] = f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    match asked.action:
        case "exec":
            return _exec(command, asked.codes)
        case "start":
            return _start(command, asked.attempt)
        case "supervise":
            return _supervise(command, asked.attempt)
        case "status":
            _answer(_status())
        case "stop":
            _stop()
        case "report":
            _answer({"packages": packages()})
    return 0


def split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """What stands before the first `--`, and the command behind it."""
    if "--" not in words:
        return words, ()
    place = words.index("--")
    return words[:place], tuple(words[place + 1 :])


def chosen(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command that begins or resumes the run."""
    return begin_or_resume(command, has_begun(run_of(command)))


def _exec(command: tuple[str, ...], codes: Path | None) -> int:
    words = chosen(command)
    print("+", *words, file=sys.stderr, flush=True)
    if codes is None:
        os.execvp(words[0], words)
    # Slurm signals the whole process group: the program, if it is there, has a copy.
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    popen = subprocess.Popen(words)
    for number in told:
        popen.send_signal(number)
    code = shell_code(popen.wait())
    # The order of the files' times is the order in which the processes ended.
    codes.mkdir(parents=True, exist_ok=True)
    name = os.environ.get("SLURM_PROCID", hostname())
    Path(codes, name).write_text(f"{code}\n")
    return code


def _start(command: tuple[str, ...], attempt: int) -> int:
    """Start the program so that it outlives this connection."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    status = _status()
    if status["state"] == "running":
        if status["attempt"] == attempt:  # asked a second time
            _answer(status)
            return 0
        print("this host runs a program already: stop it first", file=sys.stderr)
        return 1
    _write({"attempt": attempt, "state": "starting", "pid": os.getpid()})
    with open(folder / "log", "ab") as log:
        subprocess.Popen(
            [sys.executable, __file__, "supervise", "--attempt", str(attempt), "--"]
            + list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    for _ in range(200):
        if _read().get("state") != "starting":
            break
        time.sleep(0.05)
    _answer(_status())
    return 0


def _supervise(command: tuple[str, ...], attempt: int) -> int:
    _write({"attempt": attempt, "state": "running", "pid": os.getpid()})
    try:
        words = chosen(command)
        print("+", *words, flush=True)
        popen = subprocess.Popen(words, process_group=0)
    except (OSError, ValueError) as error:
        print(error, flush=True)
        _write({"attempt": attempt, "state": "ended", "code": 2})
        return 2
    _write({"attempt": attempt, "state": "running", "pid": popen.pid})
    code = shell_code(popen.wait())
    _write({"attempt": attempt, "state": "ended", "code": code, "at": time.time()})
    return code


def _status() -> dict[str, Any]:
    """How the program is. A host that was restarted has lost it."""
    status = _read()
    if status.get("state") in ("running", "starting"):
        try:
            os.kill(status["pid"], 0)
        except ProcessLookupError:
            # Its supervisor writes at once; nobody wrote, so both are gone.
            time.sleep(0.3)
            status = _read()
            if status["state"] != "ended":
                status = {**status, "state": "ended", "code": 137}
    return status


def _stop() -> None:
    """Ask the program to stop, then make it."""
    status = _status()
    if status["state"] == "running":
        group = status["pid"]
        deadline = time.monotonic() + _STOP_SECONDS
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
            while time.monotonic() < deadline and _read()["state"] == "running":
                time.sleep(0.1)
            os.killpg(group, signal.SIGKILL)
            time.sleep(0.3)
    _answer(_status())


def packages() -> str:
    """One hash of Python's version and of every installed package and its version."""
    from importlib import metadata  # slow, and the other actions don't need it

    installed = sorted(
        f"{each.metadata['Name']}=={each.version}" for each in metadata.distributions()
    )
    text = "\n".join([sys.version, *installed])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _answer(status: dict[str, Any]) -> None:
    line = ANSWER + json.dumps({"host": hostname(), **status}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())  # at once: hosts share a terminal


def _read() -> dict[str, Any]:
    try:
        return json.loads((home() / "status.json").read_text())
    except FileNotFoundError:
        return {"state": "none"}


def _write(status: dict[str, Any]) -> None:
    """Replace the note at once: a reader never sees half of one."""
    path = home() / "status.json"
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(status))
    os.replace(scratch, path)


if __name__ == "__main__":
    sys.exit(main())
