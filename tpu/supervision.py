"""A slice from creation to end: wait, install, start, watch, recreate, delete."""

import time
from dataclasses import dataclass
from pathlib import Path

from symjax.launching import PREEMPTED, verdict, worth_restarting
from tpu import hosts, tpu_vm
from tpu.hosts import NUM_TRIES, Answers, LeftAlone, Permanent, Unavailable, say
from tpu.plans import Command
from tpu.tpu_vm import Commands, Slice


@dataclass(frozen=True)
class Patience:
    """Seconds between looks, and how often a run is started again.

    Attributes:
        poll: Between two looks at the hosts.
        queue: Between two looks at a request that waits, and between two tries.
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

    def commands(self, attempt: int = 0) -> Commands:
        """What is run for it."""
        return tpu_vm.build(self.wanted, self.command, attempt)

    def state(self) -> str | None:
        """The state of the request; None where there is none."""
        return hosts.state(self.commands().describe, self.patience.queue)


def supervise(job: Job, *, attach: bool = False) -> int:
    """Run the program to its end, through preemptions.

    Args:
        job: The program and its slice.
        attach: Whether it runs already: then only watch, and go on from there.

    Returns:
        0 when it is done; 1 or 2 when a restart cannot help; the last exit code when
        there are no restarts left.
    """
    try:
        code = _attempts(job, attach)
    except KeyboardInterrupt:
        say(
            "you have stopped watching; slice and program go on, and cost money. Watch "
            "again with --attach, end it with the action `delete`."
        )
        return 130
    except LeftAlone as error:
        say(str(error))
        return 1
    except Permanent as error:
        say(str(error))
        code = 1
    _finish(job, code)
    return code


def _attempts(job: Job, attach: bool) -> int:
    """Start the program until it ends for good, or the restarts are used up."""
    attempt = 0
    while True:
        try:
            is_running = attach and attempt == 0
            num_hosts = _attached(job) if is_running else _ready(job, attempt)
            code = _watch(job, num_hosts)
        except Unavailable as error:
            say(f"{error}: deleting it, since it holds quota")
            hosts.run(job.commands().delete)
            code = PREEMPTED
        if not worth_restarting(code) or attempt == job.patience.max_restarts:
            return code
        attempt += 1
        say(f"exit code {code}: restart {attempt} of {job.patience.max_restarts}")


def _attached(job: Job) -> int:
    """The number of hosts of a slice that is there.

    Raises:
        Unavailable: if it isn't.
    """
    if (state := job.state()) != "ACTIVE":
        raise Unavailable(f"the slice is {state or 'gone'}")
    return _count(job)


def _ready(job: Job, attempt: int) -> int:
    """Bring the program up on every host; how many there are.

    Raises:
        LeftAlone: if it runs a program already.
    """
    commands = job.commands(attempt)
    state = job.state()
    if state is None:
        hosts.must(commands.create)
    elif state == "ACTIVE" and attempt == 0:
        found = hosts.answers(hosts.run(commands.poll, is_quiet=True).stdout)
        if any(answer["state"] == "running" for answer in found):
            raise LeftAlone(f"{job.wanted.name} runs a program already: use --attach")
    _wait(job)
    num_hosts = _count(job)
    if attempt == 0 or state != "ACTIVE":
        _install(job, commands, num_hosts)
    _insist(job, commands.start, num_hosts)
    say(f"running on {num_hosts} hosts")
    return num_hosts


def _wait(job: Job) -> None:
    """Wait until the slice is there.

    Raises:
        Unavailable: if it was suspended.
        Permanent: if the request has failed.
    """
    last = None
    while (state := job.state()) != "ACTIVE":
        if state == "FAILED":
            describe = job.commands().describe.argv
            words = (word for word in describe if not word.startswith("--format"))
            hosts.run(Command(tuple(words)))
            raise Permanent("the request for the slice has failed; see above for why")
        if state not in tpu_vm.WAITING:
            raise Unavailable(f"the slice is {state or 'gone'}")
        if state != last:
            say(f"the request is {state}")
        last = state
        time.sleep(job.patience.queue)


def _count(job: Job) -> int:
    return hosts.count(job.commands().count) * job.wanted.num_slices


def _install(job: Job, commands: Commands, num_hosts: int) -> None:
    """Install the same on every host.

    Raises:
        Permanent: if they end up with different versions.
    """
    if not Path(tpu_vm.LOCK).exists():
        for command in commands.lock:
            hosts.must(command)
    for command in commands.upload:
        hosts.must(command)
    found = _insist(job, commands.install, num_hosts)
    if len({answer["packages"] for answer in found}) != 1:
        listed = ", ".join(f"{each['host']} {each['packages']}" for each in found)
        raise Permanent(f"the hosts have installed different versions: {listed}")


def _insist(job: Job, command: Command, num_hosts: int) -> Answers:
    """The answers of all hosts, to something that can be repeated.

    Raises:
        Unavailable: if the slice was lost.
        Permanent: if some host fails again and again.
    """
    for _ in range(NUM_TRIES):
        if (found := hosts.ask(command, num_hosts)) is not None:
            return found
        if (state := job.state()) != "ACTIVE":
            raise Unavailable(f"the slice is {state or 'gone'}")
        time.sleep(job.patience.queue)
    raise Permanent(f"{NUM_TRIES} times not all hosts did this; see above:\n{command}")


def _watch(job: Job, num_hosts: int) -> int:
    """Look until all hosts have ended, and stop all when one has failed.

    Returns:
        The exit code of the whole.

    Raises:
        Unavailable: if the slice is gone, or its hosts don't answer.
    """
    commands = job.commands()
    num_failures = 0
    deadline = float("inf")
    while True:
        found = hosts.ask(commands.poll, num_hosts, is_quiet=True)
        if found is None:
            num_failures += 1
            if (state := job.state()) != "ACTIVE":
                raise Unavailable(f"the slice is {state or 'gone'}")
            if num_failures == NUM_TRIES:
                raise Unavailable(f"{NUM_TRIES} times not all hosts answered")
        else:
            num_failures = 0
            ended = [answer for answer in found if answer["state"] != "running"]
            # A host that was made anew knows of no program: it has lost it.
            ended.sort(key=lambda answer: answer.get("at", float("inf")))
            codes = [answer.get("code", 137) for answer in ended]
            if len(ended) == num_hosts:
                return verdict(codes)
            if any(codes):
                deadline = min(deadline, time.monotonic() + job.patience.grace)
            if time.monotonic() >= deadline:
                say(f"a host ended with exit code {verdict(codes)}: stopping all")
                hosts.ask(commands.stop, num_hosts)
                return verdict(codes)
        time.sleep(min(job.patience.poll, max(0.0, deadline - time.monotonic())))


def _finish(job: Job, code: int) -> None:
    commands = job.commands()
    if code != 0:
        hosts.run(commands.logs)
    if job.keep:
        say(f"the slice is kept, and costs money. To delete it:\n{commands.delete}")
    else:
        hosts.run(commands.delete)
