"""The rules that every launcher keeps: what an exit code means, and how to resume.

Exit codes of a symjax process: 0 it is done; 42 it was told to stop and has saved;
1 and 2 it cannot be helped (an error, or what was typed); every other one, among them
death by a signal, is an accident after which the same command is worth starting again.
"""

from collections.abc import Iterable, Sequence


# Options that say how, not what: those of a resumed run too.
_OF_EVERY_START = (
    "--max-minutes",
    "--distributed",
    "--mesh",
    "--chains-at-once",
    "--heartbeat-seconds",
    "--shutdown-seconds",
    "--initialization-seconds",
)

VERBS = ("sample", "fit")
"""What runs as several processes, and can be resumed."""

PREEMPTED = 42
PERMANENT = (1, 2)


def shell_code(returncode: int) -> int:
    """The exit code as a shell says it: a death by signal n is 128 + n."""
    return 128 - returncode if returncode < 0 else returncode


def worth_restarting(code: int) -> bool:
    """Whether the same command may end better when it is started again."""
    return code != 0 and code not in PERMANENT


def verdict(codes: Iterable[int]) -> int:
    """The exit code of a whole from those of its processes.

    The first failure is the cause. Those that follow may be anything: what a process
    says that has lost its peer, or the signal that a launcher ended it with.

    Args:
        codes: As a shell says them, in the order in which the processes ended.
    """
    return next((code for code in codes if code != 0), 0)


def whole(command: Sequence[str]) -> tuple[str, ...]:
    """The command with the program's name, which may be left out before a verb."""
    has_none = command[:1] and command[0] in VERBS
    return ("symjax", *command) if has_none else tuple(command)


def run_of(command: Sequence[str]) -> str | None:
    """The run directory that a `symjax sample` or `symjax fit` command writes."""
    return _value(command, "--out") or _value(command, "--resume")


def _value(command: Sequence[str], option: str) -> str | None:
    """The last one that is given; symjax takes _ for - in names."""
    found = None
    words = iter(command)
    for word in words:
        name, mark, value = word.partition("=")
        if name.replace("_", "-") == option:
            found = value if mark else next(words, found)
    return found


def begin_or_resume(command: Sequence[str], exists: bool) -> tuple[str, ...]:
    """The command that makes a run, or the one that continues it.

    A run that exists knows what it is, so resuming takes `--resume`, and of the others
    only those that say on which processes, which devices and for how long.

    Args:
        command: As it is typed the first time, with `--out RUN`.
        exists: Whether there is a run, see `has_begun`.

    Raises:
        ValueError: if the run exists and the command is none that continues one.
    """
    if not exists or "--resume" in command:
        return tuple(command)
    run = run_of(command)
    verbs = [place for place, word in enumerate(command) if word in VERBS]
    if run is None or not verbs:
        raise ValueError(
            "the command was expected to be `symjax sample` or `symjax fit` with "
            f"`--out RUN`, so that it can be resumed; got {' '.join(command)}"
        )
    given = {option: _value(command, option) for option in _OF_EVERY_START}
    kept = [word for pair in given.items() if pair[1] is not None for word in pair]
    return (*command[: verbs[0] + 1], "--resume", run, *map(str, kept))
