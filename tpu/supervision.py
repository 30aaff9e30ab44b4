"""A slice from its creation to its end: wait, install, start, watch, recreate, delete."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symjax.launching import verdict, worth_restarting
from tpu import tpu_vm
from tpu.plans import Command
from tpu.tpu_vm import Slice
from tpu.worker import ANSWER


NUM_TRIES = 5
"""Polls in a row that may fail before the hosts count as lost."""


class Unavailable(Exception):
    """The slice is not there, or not any more: it is to be made anew."""


class Permanent(Exception):
    """Something that a restart doesn't mend."""


class LeftAlone(Exception):
    """The slice may be at work: it is neither stopped nor deleted."""


@dataclass(frozen=True)
class Patience:
    """Seconds between looks, and how often a run is started again.

    Attributes:
        poll: Between two looks at the hosts.
        queue: Between two looks at a request that waits.
        grace: That the other hosts get to stop by themselves when one has failed.
        max_restarts: After preemptions and accidents together.
    """

    poll: float = 60.0
    queue: float = 30.0
    grace: float = 45.0
    max_restarts: int = 20


@dataclass(frozen=True)
class Job:
    """A program on a slice.

    Attributes:
        wanted: The slice.
        command: The program, with `--out RUN`.
        patience: How long to wait for what.
        keep: Whether the slice stays when the program has ended.
    """

    wanted: Slice
    command: tuple[str, ...]
    patience: Patience = Patience()
    keep: bool = False


def supervise(job: Job, *, attach: bool = False) -> int:
    """Run the program to its end, through preemptions.

    Args:
        job: The program and its slice.
        attach: Whether it runs already: then only watch, and go on from there.

    Returns:
        0 when it is done; 1 or 2 when a restart cannot help; the last exit code when
        there are no restarts left.
    """
    code = 1
    try:
        for attempt in range(job.patience.max_restarts + 1):
            try:
                num_hosts = _ready(job, attempt, attach and attempt == 0)
                code = _watch(job, num_hosts)
            except Unavailable as error:
                _say(f"{error}: deleting it, since it holds quota, and asking again")
                _run(_commands(job).delete, is_fatal=False)
                code = 42
            if not worth_restarting(code):
                break
            _say(f"exit code {code}; started {attempt + 1} times")
    except KeyboardInterrupt:
        _say(
            "you have stopped watching; the slice and the program go on, and cost money. "
            "Watch again with --attach, end it with the action `delete`."
        )
        return 130
    except LeftAlone as error:
        _say(str(error))
        return 1
    except Permanent as error:
        _say(str(error))
        code = 1
    _finish(job, code)
    return code


def _ready(job: Job, attempt: int, is_running: bool) -> int:
    """Bring the program up on every host; how many there are.

    Raises:
        LeftAlone: if it runs a program already.
        Unavailable: if the slice is lost meanwhile.
    """
    commands = tpu_vm.build(job.wanted, job.command, attempt)
    state = _state(job)
    if is_running:
        if state != "ACTIVE":
            raise Unavailable(f"the slice is {state or 'gone'}")
        return _count(job, commands.count)
    if state is None:
        _run(commands.create)
    elif state == "ACTIVE" and attempt == 0:
        answers = _answers(_run(commands.poll, is_fatal=False, is_quiet=True))
        if any(answer["state"] == "running" for answer in answers):
            raise LeftAlone(f"{job.wanted.name} runs a program already: use --attach")
    _wait(job)
    num_hosts = _count(job, commands.count)
    if attempt == 0 or state != "ACTIVE":
        _install(job, commands, num_hosts)
    _ask(job, commands.start, num_hosts)
    _say(f"running on {num_hosts} hosts")
    return num_hosts


def _install(job: Job, commands: tpu_vm.Commands, num_hosts: int) -> None:
    """Install the same on every host.

    Raises:
        Permanent: if they end up with different versions.
    """
    if not Path(tpu_vm.LOCK).exists():
        for command in commands.lock:
            _run(command)
    for command in commands.upload:
        _run(command)
    answers = _ask(job, commands.install, num_hosts)
    found = {answer["packages"] for answer in answers}
    if len(found) != 1:
        listed = ", ".join(f"{each['host']} {each['packages']}" for each in answers)
        raise Permanent(f"the hosts have installed different versions: {listed}")


def _wait(job: Job) -> None:
    """Wait until the slice is there.

    Raises:
        Unavailable: if it was suspended.
        Permanent: if the request has failed.
    """
    last = None
    while (state := _state(job)) != "ACTIVE":
        if state == "FAILED":
            describe = _commands(job).describe.argv
            argv = [word for word in describe if not word.startswith("--format")]
            _run(Command(tuple(argv)), is_fatal=False)
            raise Permanent("the request for the slice has failed; see above for why")
        if state not in tpu_vm.WAITING:
            raise Unavailable(f"the slice is {state or 'gone'}")
        if state != last:
            _say(f"the request is {state}")
        last = state
        time.sleep(job.patience.queue)


def _watch(job: Job, num_hosts: int) -> int:
    """Look until all hosts have ended, and stop all when one has failed.

    Returns:
        The exit code of the whole.

    Raises:
        Unavailable: if the slice is gone, or its hosts don't answer.
    """
    commands = _commands(job)
    num_failures = 0
    deadline = float("inf")
    while True:
        status = _try(commands.poll, num_hosts, is_quiet=True)
        if status is None:
            num_failures += 1
            if (state := _state(job)) != "ACTIVE":
                raise Unavailable(f"the slice is {state or 'gone'}")
            if num_failures >= NUM_TRIES:
                raise Unavailable(f"not all {num_hosts} hosts answered, {NUM_TRIES} times")
        else:
            num_failures = 0
            ended = [each for each in status if each["state"] != "running"]
            # A host that was made anew knows of no program: it has lost it.
            ended.sort(key=lambda each: each.get("at", float("inf")))
            codes = [each.get("code", 137) for each in ended]
            if len(ended) == num_hosts:
                return verdict(codes)
            if any(codes):
                deadline = min(deadline, time.monotonic() + job.patience.grace)
            if time.monotonic() >= deadline:
                _say(f"{ended[0]['host']} ended with {codes[0]}: stopping all hosts")
                _try(commands.stop, num_hosts)
                return verdict(codes)
        time.sleep(min(job.patience.poll, max(0.0, deadline - time.monotonic())))


def _finish(job: Job, code: int) -> None:
    commands = _commands(job)
    if code != 0:
        _run(commands.logs, is_fatal=False)
    if job.keep:
        _say(f"the slice is kept, and costs money. To delete it:\n{commands.delete}")
    else:
        _run(commands.delete, is_fatal=False)


def _commands(job: Job) -> tpu_vm.Commands:
    return tpu_vm.build(job.wanted, job.command)


def _count(job: Job, count: Command) -> int:
    """How many hosts the slice has.

    Raises:
        Unavailable: if its nodes are not there.
    """
    done = _run(count, is_fatal=False, is_quiet=True)
    if done.returncode != 0:
        raise Unavailable("the nodes of the slice are not there")
    return len(json.loads(done.stdout)["networkEndpoints"]) * job.wanted.num_slices


def _state(job: Job) -> str | None:
    """The state of the request; None where there is none.

    Raises:
        LeftAlone: if gcloud cannot say, several times.
    """
    describe = _commands(job).describe
    for _ in range(NUM_TRIES):
        done = _run(describe, is_fatal=False, is_quiet=True)
        if done.returncode == 0:
            return done.stdout.strip()
        if "NOT_FOUND" in done.stderr:
            return None
        time.sleep(job.patience.queue)
    raise LeftAlone(
        f"gcloud does not say how {job.wanted.name} is (above). If a program runs there, "
        "it goes on, and costs money: watch it with --attach."
    )


def _ask(job: Job, command: Command, num_hosts: int) -> list[dict[str, Any]]:
    """The answers of all hosts.

    Raises:
        Unavailable: if the slice was lost.
        Permanent: if one of them failed.
    """
    answers = _try(command, num_hosts)
    if answers is None:
        if (state := _state(job)) != "ACTIVE":
            raise Unavailable(f"the slice is {state or 'gone'}")
        raise Permanent(f"not all {num_hosts} hosts did this; see above:\n{command}")
    return answers


def _try(
    command: Command, num_hosts: int, is_quiet: bool = False
) -> list[dict[str, Any]] | None:
    """The answers of all hosts, or None: gcloud may leave hosts out without an error."""
    done = _run(command, is_fatal=False, is_quiet=is_quiet)
    answers = _answers(done)
    if done.returncode != 0 or len(answers) != num_hosts:
        _say(f"{len(answers)} of {num_hosts} hosts answered; exit code {done.returncode}")
        return None
    return answers


def _answers(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What the hosts say, one answer of each."""
    answers = {}
    for line in done.stdout.splitlines():
        if line.startswith(ANSWER):
            answer = json.loads(line.removeprefix(ANSWER))
            answers[answer["host"]] = answer
    return list(answers.values())


def _run(
    command: Command, is_fatal: bool = True, is_quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command; show it and what it says, unless it is quiet and succeeds.

    Raises:
        Permanent: if it fails and that is fatal.
    """
    if not is_quiet:
        print(f"+ {command}", flush=True)
    done = subprocess.run(command.argv, capture_output=True, text=True)
    said = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))
    if said and (not is_quiet or done.returncode != 0):
        print(said, flush=True)
    if is_fatal and done.returncode != 0:
        raise Permanent(f"this ended with exit code {done.returncode}: {command}")
    return done


def _say(message: str) -> None:
    print(f"launch: {message}", flush=True)
