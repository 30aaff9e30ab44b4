"""What a run directory records of the command that made it, and that command again."""

import time
from dataclasses import asdict
from typing import Any

from symjax import hosts, store
from symjax.cli import posteriors
from symjax.cli.analyses import Import
from symjax.cli.options import Fit, Sample, rebuild
from symjax.cli.posteriors import Posterior
from symjax.store import Place, Run


NOT_OF_THE_RUN = (
    "out",
    "resume",
    "dry_run",
    "estimate",
    "max_minutes",
    "processes",
)
"""Options that say where and how, not what; a run does not record them."""


def verb(command: Sample | Fit | Import) -> str:
    """Which of symjax's commands it is."""
    return type(command).__name__.lower()


def describe(command: Sample | Fit, built: Posterior) -> dict[str, Any]:
    """What a run directory records of its command."""
    return {
        "command": verb(command),
        "options": describe_options(command),
        "data_fingerprint": built.dataset.fingerprint,
    }


def describe_options(command: Sample | Fit) -> dict[str, Any]:
    """The options that say what is run."""
    options = asdict(command)
    for name in NOT_OF_THE_RUN:
        options.pop(name, None)
    return options


def check_data(kept: Run, built: Posterior) -> None:
    """Require the data that a run was made with.

    Raises:
        ValueError: if they have changed.
    """
    if built.dataset.fingerprint != kept.config["data_fingerprint"]:
        raise ValueError(
            f"{kept.path} was made with other data than {built.dataset.name} holds "
            "now: put the data back, or make the run again."
        )


def posterior_of(kept: Run) -> Posterior:
    """The posterior that a run is of.

    Raises:
        ValueError: if it has no draws yet, or its data have changed.
    """
    if not kept.committed.num_draws:
        raise ValueError(
            f"{kept.path} has no draws yet. Continue it with --resume {kept.path}."
        )
    command = rebuild_command(kept)
    with posteriors.named(f"{kept.path}"):
        built = posteriors.build(command.problem)
    check_data(kept, built)
    return built


def rebuild_command(kept: Run) -> Sample | Fit | Import:
    """The command that made a run.

    Raises:
        ValueError: if the run was not made by `symjax sample`, `fit` or `import`.
    """
    kinds = {"sample": Sample, "fit": Fit, "import": Import}
    if kept.config.get("command") not in kinds:
        raise ValueError(
            f"{kept.path} was not made by symjax sample, fit or import: its config.json"
            " does not say which data and network it is of. Read it with store.open."
        )
    return rebuild(kinds[kept.config["command"]], kept.config["options"])


def add_seconds(path: Place, start: float) -> None:
    """Count the time since `start`, of `time.monotonic`, as a run's."""
    if hosts.is_first():
        total = seconds(path) + time.monotonic() - start
        store.write_json(path / "timing.json", {"seconds": total})


def seconds(path: Place) -> float:
    """Wall-clock seconds of a run, without those lost when it was killed."""
    file = path / "timing.json"
    return store.read_json(file)["seconds"] if file.exists() else 0.0
