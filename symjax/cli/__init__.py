"""The command line: `symjax demo | sample | fit | sweep | evaluate | report ...`."""

import gc
import importlib
import signal
import sys
from typing import Annotated, TypeAlias

import tyro
from rich.console import Console

from symjax.cli import ending, rehearsal
from symjax.cli.analyses import (
    Align,
    Evaluate,
    Export,
    Import,
    List,
    Report,
    Symmetries,
)
from symjax.cli.options import Demo, Fit, Rehearse, Resuming, Sample, Sweep


Command: TypeAlias = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Align, tyro.conf.subcommand("align")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Symmetries, tyro.conf.subcommand("symmetries")]
    | Annotated[Import, tyro.conf.subcommand("import")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Rehearse, tyro.conf.subcommand("rehearse")]
)


def main() -> None:
    """Parse the command line, run the command, and exit.

    Raises:
        SystemExit: with the exit code, if that is not 0.
    """
    words, behind = rehearsal.split(sys.argv[1:])
    with ending.ended_by_reader():
        command = tyro.cli(
            Command,
            prog="symjax",
            args=words,
            description=(
                "Reference posteriors of Bayesian neural networks, and how approximate "
                "methods compare with them. `symjax demo` shows all of it in two "
                "minutes."
            ),
        )
    # A run that samples takes the signal itself, saves, and says how to continue.
    signal.signal(signal.SIGTERM, ending.terminate)
    ending.give_threads()
    try:
        if isinstance(command, Rehearse):
            sys.exit(rehearsal.rehearse(command, behind))
        if isinstance(command, Sample | Fit):
            if command.resume is not None:
                _check_alone(sys.argv[2:])
            ending.begin(command.processes)
        else:
            typed = command.sample.processes if isinstance(command, Sweep) else None
            ending.refuse_buckets(type(command).__name__.lower(), words)
            ending.refuse_several(type(command).__name__.lower(), typed)
        console = Console()
        if not isinstance(command, List | Export | Symmetries):
            _keep_programs(console)
        _dispatch(command, console)
        if isinstance(command, Sample | Fit):
            _finish()
    except SystemExit:
        ending.end_all()
        raise
    except KeyboardInterrupt as error:
        ending.end_by_signal(error)
    except Exception as error:
        ending.end_by_error(error)


def _keep_programs(console: Console) -> None:
    from symjax.cli import compilations

    compilations.keep(console)


def _finish() -> None:
    from symjax import hosts

    hosts.finish()


def _dispatch(command: Command, console: Console) -> None:
    # Imported here, so that --help and typing errors don't wait for JAX, nor what
    # samples for what draws.
    module, name = _ACTIONS[type(command)]
    gc.disable()  # It finds no garbage of imports, and looks for it again and again.
    action = getattr(importlib.import_module(f"symjax.cli.{module}"), name)
    gc.enable()
    action(command, console)


_ACTIONS: dict[type, tuple[str, str]] = {
    Demo: ("demo", "demo"),
    Sample: ("chains", "execute"),
    Fit: ("chains", "execute"),
    Sweep: ("sweeps", "sweep"),
    Align: ("alignment", "align"),
    Evaluate: ("results", "evaluate"),
    Report: ("results", "write_report"),
    Symmetries: ("symmetries", "show"),
    Import: ("importing", "execute"),
    List: ("results", "list_runs"),
    Export: ("results", "export"),
}
"""What does each command's work: a module of this package, and a function there."""


def _check_alone(words: list[str]) -> None:
    """Refuse what is typed beside `--resume`, also where it is an option's default.

    Raises:
        ValueError: if something is.
    """
    _, others = tyro.cli(Resuming, args=words, return_unknown_args=True)
    if others:
        raise ValueError(
            f"`--resume` takes all options from the run, got {' '.join(others)} "
            "besides. Leave that out, or begin a new run."
        )
