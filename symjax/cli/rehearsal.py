"""`symjax rehearse`: a command as many processes of this machine."""

import os
import sys

from symjax import launching
from symjax.cli.options import Rehearse


_SYMJAX = (sys.executable, "-c", "from symjax.cli import main; main()")


def split(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The words of `symjax rehearse` itself, and those of the command behind them."""
    begins = ("--", "symjax", *launching.VERBS)  # None of them is a value of its own.
    places = [place for place, word in enumerate(words) if word in begins]
    if words[:1] != ["rehearse"] or not places:
        return words, ()
    behind = words[places[0] :]
    for optional in ("--", "symjax"):
        behind = behind[behind[:1] == [optional] :]
    return words[: places[0]], tuple(behind)


def rehearse(command: Rehearse, words: tuple[str, ...]) -> int:
    """Run a command of symjax as many processes.

    Args:
        command: How many, of what.
        words: What would be typed behind `symjax`.

    Returns:
        The exit code.

    Raises:
        ValueError: if there is nothing to run, or it does not run as several.
    """
    if words[:1] not in [(verb,) for verb in launching.VERBS]:
        raise ValueError(
            f"{' or '.join(launching.VERBS)} was expected behind `--`, such as: symjax "
            "rehearse -- sample --data digits --out runs/digits; got "
            f"{' '.join(words) or 'nothing'}"
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
