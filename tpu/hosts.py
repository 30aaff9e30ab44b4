"""What gcloud and the hosts of a slice say, and what it means when they say nothing."""

import contextlib
import json
import re
import subprocess
import time
from typing import Any

from tpu.plans import Command
from tpu.worker import ANSWER


NUM_TRIES = 5
"""Looks in a row that may fail before what was looked at counts as lost."""

Answers = list[dict[str, Any]]


class Unavailable(Exception):
    """The slice is not there, or not any more: it is to be made anew."""


class Permanent(Exception):
    """Something that a restart doesn't mend."""


class LeftAlone(Exception):
    """The slice may be at work: it is neither stopped nor deleted."""


def state(describe: Command, pause: float) -> str | None:
    """The state of the request for a slice; None where there is none.

    Args:
        describe: The command that says it.
        pause: Seconds between two tries.

    Raises:
        LeftAlone: if gcloud cannot say, several times.
    """
    for _ in range(NUM_TRIES):
        done = run(describe, is_quiet=True)
        if done.returncode == 0:
            return done.stdout.strip()
        if "NOT_FOUND" in done.stderr:
            return None
        time.sleep(pause)
    raise LeftAlone(
        "gcloud does not say how the slice is (above). If a program runs there, it "
        "goes on, and costs money: watch it with --attach."
    )


def count(describe: Command) -> int:
    """How many hosts a node has.

    Raises:
        Unavailable: if it is not there.
    """
    done = run(describe, is_quiet=True)
    if done.returncode != 0:
        raise Unavailable("the nodes of the slice are not there")
    return len(json.loads(done.stdout)["networkEndpoints"])


def ask(command: Command, num_hosts: int, is_quiet: bool = False) -> Answers | None:
    """The answers of all hosts, or None: gcloud may leave hosts out in silence."""
    done = run(command, is_quiet=is_quiet)
    found = answers(done.stdout)
    if done.returncode != 0 or len(found) != num_hosts:
        say(
            f"{len(found)} of {num_hosts} hosts answered, exit code {done.returncode}: "
            f"{command}"
        )
        return None
    return found


def answers(text: str) -> Answers:
    """What the hosts say, one answer of each.

    gcloud puts the output of all hosts together, at times without the line breaks.
    """
    found = {}
    for place in re.finditer(ANSWER, text):
        with contextlib.suppress(json.JSONDecodeError):
            answer, _ = json.JSONDecoder().raw_decode(text, place.end())
            found[answer["host"]] = answer
    return list(found.values())


def run(command: Command, is_quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command; show it and what it says, unless it is quiet and succeeds."""
    if not is_quiet:
        print(f"+ {command}", flush=True)
    done = subprocess.run(command.argv, capture_output=True, text=True)
    said = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))
    if said and (not is_quiet or done.returncode != 0):
        print(said, flush=True)
    return done


def must(command: Command) -> None:
    """Run a command that has to succeed.

    Raises:
        Permanent: if it doesn't.
    """
    code = run(command).returncode
    if code != 0:
        raise Permanent(f"this ended with exit code {code}: {command}")


def say(message: str) -> None:
    """Tell the user."""
    print(f"launch: {message}", flush=True)
