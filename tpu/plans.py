"""A plan: commands, files and remarks, built without doing anything.

Whatever starts something here is made in two steps. Functions build a plan, which is
plain data; another one prints it as a shell script to read, copy and paste, or carries
it out. A test looks at the plan, and nothing is quoted by hand.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from symjax import launching


@dataclass(frozen=True)
class Command:
    """A command to run here: never a shell's text, always its words."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_background: bool = False

    def __str__(self) -> str:
        """As typed in a shell."""
        variables = [
            f"{name}={shlex.quote(value)}" for name, value in self.environment.items()
        ]
        end = " &" if self.is_background else ""
        return " ".join([*variables, shlex.join(self.argv)]) + end


@dataclass(frozen=True)
class File:
    """A file to write here."""

    path: str
    text: str

    def __str__(self) -> str:
        """As a here-document, whose text no shell touches."""
        end = "END_OF_FILE"
        while end in self.text:
            end += "_"
        return f"cat > {shlex.quote(self.path)} <<'{end}'\n{self.text}{end}"


@dataclass(frozen=True)
class Remark:
    """What the reader of the plan is told."""

    text: str

    def __str__(self) -> str:
        """As comments."""
        return "\n".join(f"# {line}".rstrip() for line in self.text.splitlines())


Step = Command | File | Remark

SHARED = "/mnt/symjax"
"""Where every host of a cloud finds the file system that all share."""


def require_shared(run: str | None) -> None:
    """Require a run that all hosts reach and that outlives them.

    Raises:
        ValueError: if it is elsewhere.
    """
    if run is None or not (run.startswith(f"{SHARED}/") or launching.is_bucket(run)):
        raise ValueError(
            f"the command was expected to say `--out {SHARED}/RUN`, got {run}: that is "
            "where the hosts find the file system which they share. Their own disks go "
            "with them. Or `--out gs://BUCKET/RUN`, where they may write to a bucket."
        )


def render(steps: Sequence[Step]) -> str:
    """The plan as a shell script."""
    return "\n".join(str(step) for step in steps) + "\n"


def execute(steps: Sequence[Step]) -> int:
    """Carry a plan out, one step after the other, until one fails.

    Returns:
        The exit code of the command that failed, or 0.
    """
    for step in steps:
        match step:
            case Remark():
                print(step, flush=True)
            case File():
                Path(step.path).write_text(step.text)
                print(f"# wrote {step.path}", flush=True)
            case Command():
                print(f"+ {step}", flush=True)
                environment = {**os.environ, **step.environment}
                code = subprocess.run(step.argv, env=environment).returncode
                if code != 0:
                    return 128 - code if code < 0 else code
    return 0
