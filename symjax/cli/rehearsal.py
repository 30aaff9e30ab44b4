"""`symjax rehearse`: a command as many processes of this machine."""

import os
import sys

from symjax import launching
from symjax.cli.options import Rehearse


_SYMJAX = (sys.executable, "-c", "from symjax.cli import main; main()")


def split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The words of `symjax rehearse` itself, and those behind its `--`."""
    if words[:1] != ["rehearse"] or "--" not in words:
        return words, ()
    place = words.index("--")
    behind = words[place + 1 :]
    # As it would be typed without a rehearsal, or without the program's name.
    return words[:place], tuple(behind[behind[:1] == ["symjax"] :])


def rehearse(command: Rehearse, words: tuple[str, ...]) -> int:
    """Run a command of symjax as many processes.

    Args:
        command: How many, of what.
        words: What would be typed behind `symjax`.

    Returns:
        The exit code.

    Raises:
        ValueError: if there is nothing to run.
    """
    if not words:
        raise ValueError(
            "a command was expected behind `--`, such as: symjax rehearse -- sample "
            "--data digits --out runs/digits"
        )

    def plan(chosen: tuple[str, ...]) -> tuple[launching.Process, ...]:
        return launching.processes(
            (*_SYMJAX, *chosen),
            num_processes=command.processes,
            num_devices=command.devices,
            port=launching.free_port(),
            platform=command.platform,
            xla_flags=os.environ.get("XLA_FLAGS", ""),
        )

    return launching.rehearse(
        words, plan, max_restarts=command.max_restarts, grace=command.grace
    )
