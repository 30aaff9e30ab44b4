"""What is said when a process ends without a word.

JAX ends a process at once when host 0 is lost, the kernel when memory is short; neither
lets Python speak. A small process at its side reads from a pipe: if that is closed
before it was told of the end, it says what was saved and how to go on. It is run as a
file, without JAX.
"""

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any


def describe(run: str | None, resume: str | None) -> str:
    """What a run directory holds now, and how it is continued."""
    how = f" Continue with: {resume}" if resume else ""
    if run is None:
        return "Nothing is saved yet."
    if "://" in run:
        return f"What is saved is told by {run}/commit.json.{how}"
    try:
        Path(run, "config.json").stat()  # Without it, the run was not laid out wholly.
        record = json.loads(Path(run, "commit.json").read_text(encoding="utf-8"))
        saved = f"{record['iteration']} iterations, {record['num_draws']} draws a chain"
    except (OSError, ValueError, LookupError):
        return f"Nothing is saved in {run}; start again."
    return f"Saved in {run}: {saved}.{how}"


def stamp(text: str) -> str:
    """A line of a log."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n"


def write(file: str | None, text: str) -> None:
    """Add a line to a log, if there is one and it can be written.

    That its disk is full must not keep a host from saying so to the others, and ending.
    """
    if file is not None:
        with (
            contextlib.suppress(OSError),
            Path(file).open("a", encoding="utf-8") as log,
        ):
            log.write(stamp(text))


def watch(who: str) -> None:
    """Read facts, one JSON object a line; say at the end what is to be said."""
    facts: dict[str, Any] = {}
    for line in sys.stdin:
        facts |= json.loads(line)
    if "ended" in facts:
        return
    lost = _lost(who, facts.get("silent", {}))
    text = (
        f"{who} ended without a word: it was killed, or JAX ended it because {lost}. "
        f"{describe(facts.get('run'), facts.get('resume'))}"
    )
    write(facts.get("log"), text)
    print(text, file=sys.stderr, flush=True)


def _lost(who: str, silent: dict[str, float]) -> str:
    """Which hosts were lost, as far as this one knows."""
    now = time.monotonic()  # One clock for all processes of a machine.
    if silent:
        told = [f"{host} for {now - heard:.0f} s" for host, heard in silent.items()]
        return f"a host was lost: it had not heard of {', '.join(told)}"
    return f"{'another host' if who.startswith('Host 0 ') else 'host 0'} was lost"


if __name__ == "__main__":
    watch(sys.argv[1])
