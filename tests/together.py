"""Programs of several processes on this machine, for tests of many hosts."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from symjax import store


HERE = Path(__file__).parent
HEARTBEAT = 6
"""Seconds of silence after which a host counts as dead, where a test says no other."""

COMMAND = ["-c", "from symjax.cli import main; main()"]
WINE = [
    "sample", "--data", "wine", "--widths", "4", "--num-chains", "4", "--start", "init",
    "--hmc.trajectory-length", "0.1", "--hmc.num-warmup", "10",
]  # fmt: skip
LONG = [*COMMAND, *WINE, "--num-draws", "100000"]


def environment(address, number, identity, devices):
    """Of one process of a program: its place, and virtual devices of its own."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    # Compiled as in this process, but the devices are of the process' own.
    kept = [flag for flag in flags if "device_count" not in flag]
    return os.environ | {
        "XLA_FLAGS": " ".join(kept),
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COORDINATOR_ADDRESS": address,
        "SYMJAX_NUM_PROCESSES": str(number),
        "SYMJAX_PROCESS_ID": str(identity),
        "PYTHONPATH": str(HERE.parent),
        "SYMJAX_HEARTBEAT_SECONDS": str(HEARTBEAT),
        "SYMJAX_INITIALIZATION_SECONDS": "60",
    }


def free_address():
    """A port that nobody uses at the moment."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return f"localhost:{one.getsockname()[1]}"


@contextmanager
def processes(
    commands, devices=2, cwd=HERE, **changes
) -> Iterator[list[subprocess.Popen]]:
    """Start a program, one command a process; none outlives the block.

    Args:
        commands: Arguments of each process for Python.
        devices: Virtual devices of each.
        cwd: Where they run.
        **changes: For all environments.
    """
    address = free_address()
    started = []
    try:
        for identity, command in enumerate(commands):
            env = environment(address, len(commands), identity, devices) | changes
            started.append(
                subprocess.Popen(
                    [sys.executable, *map(str, command)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=env,
                    cwd=cwd,
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.communicate(timeout=30)


def run_all(commands, seconds=150, **options):
    """Run a program to its end: exit codes, outputs, and how long it took."""
    with processes(commands, **options) as started:
        return collect(started, seconds)


def collect(started, seconds=150):
    """Wait for all processes: their exit codes and what they printed."""
    end = time.monotonic() + seconds
    outputs = [
        p.communicate(timeout=max(1, end - time.monotonic()))[0] for p in started
    ]
    return [process.returncode for process in started], outputs


def wait_for_commit(started, path, after=20, seconds=150):
    """Wait until a commit past iteration `after` is on the disk."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert all(process.poll() is None for process in started)
        try:
            done = store.open(path).committed
        except store.StoreError:
            done = store.Commit()
        if done.iteration > after:
            return done
        time.sleep(0.05)
    raise AssertionError("no commit came")
