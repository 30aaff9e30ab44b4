"""Start a symjax command on many processes: here, on TPUs, on a cluster.

    python tpu/launch.py local --processes 4 --devices 2 -- symjax sample ... --out RUN
    python tpu/launch.py tpu-vm --name a --zone ... --accelerator v4-64 -- symjax ...

Behind `--` stands the command as it would be typed on one machine, with `--out RUN`;
the word `symjax` may be left out.
Every backend makes a plan; `--dry-run` prints it as a shell script and does nothing.
`python tpu/launch.py BACKEND --help` explains the options of one.
"""

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


# No package need be installed where this program runs.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from symjax import launching
from tpu import gke, plans, skypilot, slurm, supervision, tpu7x, tpu_vm
from tpu.options import Help, count, limit
from tpu.plans import Command, Remark, Step
from tpu.worker import split


CHECKOUT = Path(__file__).resolve().parents[1]
_BEHIND = "Behind `--` stands the command: -- symjax sample --data digits --out RUN"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was typed.

    Returns:
        The exit code: 2 for what was typed, otherwise what the program's rules say.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    words, command = split(given)
    parser = _parser()
    asked, others = parser.parse_known_args(words)
    if others:
        parser.error(f"{' '.join(others)}: the command stands behind `--`")
    if not command and asked.needs_command(asked):
        print(
            "launch: a command was expected behind `--`, such as: -- symjax sample "
            "--data digits --out runs/digits",
            file=sys.stderr,
        )
        return 2
    try:
        return asked.do(asked, launching.whole(command))
    except (ValueError, OSError) as error:
        print(f"launch: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="launch.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    backends = parser.add_subparsers(dest="backend", required=True, metavar="BACKEND")
    for add in (_add_local, _add_tpu_vm, _add_gke, _add_slurm, _add_skypilot, _add_7x):
        add(backends)
    return parser


def _backend(
    backends: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    about: str,
    do: Callable[[argparse.Namespace, tuple[str, ...]], int],
) -> argparse.ArgumentParser:
    parser = backends.add_parser(
        name,
        help=about,
        description=about,
        epilog=_BEHIND,
        formatter_class=Help,
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan only")
    parser.set_defaults(do=do, needs_command=lambda _: True)
    return parser


def _add_local(backends: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _backend(backends, "local", "processes of this machine", _local)
    add = parser.add_argument
    add("--processes", type=count, default=2, help="how many")
    add("--devices", type=count, default=2, help="of each: virtual CPUs, or GPUs")
    add("--platform", choices=["cpu", "cuda"], default="cpu", help="kind of device")
    add("--grace", type=float, default=launching.GRACE, help="seconds after a failure")
    add("--max-restarts", type=limit, default=0, help="after exit codes but 0, 1 and 2")


def _local(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    def plan(words: tuple[str, ...]) -> tuple[launching.Process, ...]:
        return launching.processes(
            words,
            num_processes=asked.processes,
            num_devices=asked.devices,
            port=launching.free_port(),
            platform=asked.platform,
            xla_flags=os.environ.get("XLA_FLAGS", ""),
        )

    if asked.dry_run:
        steps = [
            Command(each.argv, each.environment, is_background=True)
            for each in plan(command)
        ]
        return _show([*steps, Command(("wait",))])
    if shutil.which(command[0]) is None:
        raise ValueError(
            f"there is no program {command[0]!r} on the PATH: activate the environment "
            "that has it"
        )
    return launching.rehearse(
        command, plan, max_restarts=asked.max_restarts, grace=asked.grace
    )


def _add_tpu_vm(
    backends: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    parser = _backend(backends, "tpu-vm", "Cloud TPU VMs, v2 to v6e", _tpu_vm)
    add = parser.add_argument
    add(
        "action",
        nargs="?",
        default="run",
        choices=["run", "status", "stop", "logs", "delete"],
        help="run does everything; the others look at, or end, what runs",
    )
    add("--name", required=True, help="of the queued resource and its nodes")
    add("--zone", required=True, help="such as us-central2-b")
    add("--accelerator", required=True, help="such as v4-64 or v5litepod-256")
    add("--nfs", metavar="SERVER:/SHARE", help=f"to mount at {plans.SHARED} on all")
    add("--project", help="instead of gcloud's own setting")
    add("--slices", type=count, default=1, help="joined by the data-centre network")
    add("--spot", action="store_true", help="cheaper, may be preempted")
    add("--runtime", help="runtime version, instead of the generation's")
    add("--internal-ips", action="store_true", help="no external addresses")
    add("--max-restarts", type=limit, default=20, help="preemptions and accidents")
    add("--poll", type=count, default=60, help="seconds between two looks")
    add("--attach", action="store_true", help="watch a program that runs already")
    add("--keep", action="store_true", help="do not delete the slice at the end")
    parser.set_defaults(needs_command=lambda asked: asked.action == "run")


def _tpu_vm(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    wanted = tpu_vm.Slice(
        name=asked.name,
        zone=asked.zone,
        accelerator=asked.accelerator,
        project=asked.project,
        num_slices=asked.slices,
        spot=asked.spot,
        runtime=asked.runtime,
        internal_ips=asked.internal_ips,
        nfs=asked.nfs,
    )
    if asked.action != "run":
        actions = tpu_vm.build(wanted, command)
        verb = "poll" if asked.action == "status" else asked.action
        return _do(asked, [getattr(actions, verb)])
    plans.require_shared(launching.run_of(command))
    if asked.dry_run:
        return _show(tpu_vm.steps(wanted, command))
    if not Path("pyproject.toml").exists():
        raise ValueError("this was expected to be run in the folder of the checkout")
    patience = supervision.Patience(poll=asked.poll, max_restarts=asked.max_restarts)
    job = supervision.Job(wanted, command, patience, keep=asked.keep)
    return supervision.supervise(job, attach=asked.attach)


def _add_gke(backends: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _backend(backends, "gke", "a JobSet for Google's Kubernetes", _gke)
    add = parser.add_argument
    add("--name", required=True, help="of the JobSet")
    add("--image", required=True, help="made from tpu/Dockerfile")
    add("--accelerator", required=True, choices=list(gke.ACCELERATORS), help="label")
    add("--topology", required=True, help="of the node pool, such as 2x2x4")
    add("--claim", required=True, help=f"volume claim, mounted at {plans.SHARED}")
    add("--slices", type=count, default=1, help="node pools to use")
    add("--chips-per-host", type=count, default=4, help="of the machine type")
    add("--max-restarts", type=limit, default=20, help="of the JobSet")
    add("--grace", type=limit, default=60, help="seconds for the save")
    add("--namespace", default="default", help="of Kubernetes")
    add("--spot", action="store_true", help="on spot nodes")


def _gke(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    plans.require_shared(launching.run_of(command))
    wanted = _fill(gke.JobSet, asked, num_slices=asked.slices)
    return _do(asked, gke.steps(wanted, command))


def _add_slurm(backends: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _backend(backends, "slurm", "a batch job", _slurm)
    add = parser.add_argument
    add("--name", default="symjax", help="of the job and its files")
    add("--nodes", type=count, required=True, help="how many")
    add("--tasks-per-node", type=count, default=1, help="one for each GPU, or 1")
    add("--gpus-per-node", type=count, help="to ask for")
    add("--time", default="24:00:00", help="Slurm's limit")
    add("--save-seconds", type=limit, default=300, help="to save in, at the end")
    add("--max-requeues", type=limit, default=20, help="restarts by itself")
    add("--python", default=sys.executable, help="where symjax is installed")
    add("--sbatch", action="append", default=[], help="a further option, as one word")


def _slurm(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    if launching.run_of(command) is None:
        raise ValueError(
            "the command was expected to say `--out RUN`, on a file system that all "
            "nodes share, so that the job can resume the run when it is requeued"
        )
    wanted = _fill(
        slurm.Batch, asked, num_nodes=asked.nodes, options=tuple(asked.sbatch)
    )
    return _do(asked, slurm.steps(wanted, command, str(CHECKOUT)))


def _add_skypilot(
    backends: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> None:
    parser = _backend(backends, "skypilot", "a managed job of SkyPilot", _skypilot)
    add = parser.add_argument
    add("--name", default="symjax", help="of the job")
    add("--accelerators", required=True, help="of a node: tpu-v5p-32 or H100:8")
    add("--nodes", type=count, default=1, help="1 for a TPU slice")
    add("--bucket", required=True, help=f"mounted at {plans.SHARED}: gs://NAME")
    add("--infra", default="gcp", help="cloud/region/zone")
    add("--on-demand", action="store_true", help="no spot machines")
    add("--max-restarts", type=limit, default=3, help="after exit codes but 42")


def _skypilot(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    plans.require_shared(launching.run_of(command))
    wanted = _fill(
        skypilot.Task, asked, num_nodes=asked.nodes, spot=not asked.on_demand
    )
    return _do(asked, skypilot.steps(wanted, command))


def _add_7x(backends: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _backend(backends, "tpu7x", "commands for TPU7x, to copy", _tpu7x)
    add = parser.add_argument
    add("--name", required=True, help="of the node pool")
    add("--cluster", required=True, help="of GKE")
    add("--location", required=True, help="zone of the slice")
    add("--topology", required=True, help="such as 2x2x4")
    add("--spot", action="store_true", help="cheaper, may be preempted")
    parser.set_defaults(needs_command=lambda _: False)
    parser.epilog = None


def _tpu7x(asked: argparse.Namespace, command: tuple[str, ...]) -> int:
    return _show(tpu7x.steps(_fill(tpu7x.Pool, asked)))


def _fill(kind: Any, asked: argparse.Namespace, **others: object) -> Any:
    """A dataclass from the options of the same names."""
    names = {field.name for field in dataclasses.fields(kind)} - others.keys()
    return kind(**{name: getattr(asked, name) for name in names}, **others)


def _do(asked: argparse.Namespace, steps: Sequence[Step]) -> int:
    return _show(steps) if asked.dry_run else plans.execute(steps)


def _show(steps: Sequence[Step]) -> int:
    print(plans.render([Remark("Printed, not run."), *steps]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
