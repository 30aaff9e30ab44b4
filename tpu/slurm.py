"""A batch script for Slurm.

Sources: the manual pages sbatch(1), srun(1) and scontrol(1); jax's
_src/clusters/slurm_cluster.py, which reads the hosts and the coordinator's port from
Slurm's variables and gives each task the GPU of its SLURM_LOCALID (symjax: the only
task of a node all of them).

- `srun --kill-on-bad-exit=1` ends the step when one task fails. What srun says then is
  the highest exit code, mostly that of a task which Slurm has killed; so each task
  notes its own, and the first one that failed decides.
- `--requeue` lets Slurm start the job again after a lost node or a preemption; after an
  exit code that a restart mends the job requeues itself, a limited number of times.
- `--signal=TERM@seconds` tells the tasks, not the script, before the time is over.
"""

import re
import shlex
from dataclasses import dataclass

from tpu.plans import Command, File, Remark, Step


@dataclass(frozen=True)
class Batch:
    """What is asked of Slurm.

    Attributes:
        name: Of the job and of its files.
        num_nodes: Nodes.
        tasks_per_node: Processes of each: one for each GPU, or one for all of them.
        gpus_per_node: None where there are none to ask for.
        time: Slurm's limit, such as 24:00:00.
        save_seconds: Before that limit, when the program is told to save and stop.
        max_requeues: How often the job starts itself again.
        options: Further lines of #SBATCH, such as --partition=gpu.
        python: Which the tasks run; symjax is installed there.
    """

    name: str
    num_nodes: int
    tasks_per_node: int = 1
    gpus_per_node: int | None = None
    time: str = "24:00:00"
    save_seconds: int = 300
    max_requeues: int = 20
    options: tuple[str, ...] = ()
    python: str = "python"

    def __post_init__(self) -> None:
        """Check the numbers, and that no option breaks its line.

        Raises:
            ValueError: if there are no nodes or tasks, no such time or name, or an
                option is not one line.
        """
        if self.num_nodes < 1 or self.tasks_per_node < 1:
            raise ValueError(
                "`--nodes` and `--tasks-per-node` were expected to be at least 1, got "
                f"{self.num_nodes} and {self.tasks_per_node}"
            )
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(
                f"`--name` was expected to be a word, got {self.name!r}: files of the "
                "job are called so"
            )
        if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}|UNLIMITED", self.time):
            raise ValueError(
                "`--time` was expected to be like 24:00:00 or 2-00:00:00, got "
                f"{self.time!r}"
            )
        for option in self.options:
            if len(option.split()) != 1 or not option.startswith("--"):
                raise ValueError(
                    "`--sbatch` was expected to be one option of sbatch, such as "
                    f"--partition=gpu, got {option!r}"
                )


def steps(wanted: Batch, command: tuple[str, ...], checkout: str) -> tuple[Step, ...]:
    """Write the script and submit it."""
    path = f"{wanted.name}.sbatch"
    return (
        File(path, script(wanted, command, checkout)),
        Command(("sbatch", path)),
        Remark(
            f"How it is: squeue --name={wanted.name}\n"
            f"Tell it to save and to stop: scancel --name={wanted.name}"
        ),
    )


def script(wanted: Batch, command: tuple[str, ...], checkout: str) -> str:
    """The batch script.

    Args:
        wanted: What is asked of Slurm.
        command: The program and its arguments; `--out RUN` on a shared file system.
        checkout: The folder of symjax, on a shared file system.
    """
    worker = (wanted.python, f"{checkout}/tpu/worker.py")
    run = shlex.join((*worker, "exec", "--codes"))
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {option}" for option in _directives(wanted)),
            "",
            "# scancel, and Slurm's own preemption, tell this script as well as the",
            "# tasks: then it is not for the job to start itself again.",
            "stopped=no",
            "trap 'stopped=yes' TERM",
            "restarts=${SLURM_RESTART_COUNT:-0}",
            f"codes=$PWD/{shlex.quote(wanted.name)}-$SLURM_JOB_ID.codes",
            'rm -rf "$codes"',
            "",
            f'srun --kill-on-bad-exit=1 {run} "$codes" -- \\',
            f"  {shlex.join(command)} &",
            "wait $!",
            "code=$?",
            "# A signal ends the first wait early.",
            '[ "$stopped" = no ] || { wait $!; code=$?; }',
            "# The first task that failed is the cause (oldest file first).",
            'for file in $(ls -tr "$codes" 2>/dev/null); do',
            '  task=$(cat "$codes/$file")',
            '  if [ "$task" != 0 ]; then code=$task; break; fi',
            "done",
            'rm -rf "$codes"',
            'echo "attempt $restarts ended with exit code $code"',
            "",
            *_ending(wanted.max_requeues),
            "",
        ]
    )


def _directives(wanted: Batch) -> list[str]:
    """The options of sbatch; those of the user last, which count."""
    directives = [
        f"--job-name={wanted.name}",
        f"--nodes={wanted.num_nodes}",
        f"--ntasks-per-node={wanted.tasks_per_node}",
        f"--time={wanted.time}",
        f"--signal=TERM@{wanted.save_seconds}",
        "--requeue",
        "--open-mode=append",
        f"--output={wanted.name}-%j.log",
    ]
    if wanted.gpus_per_node is not None:
        directives.append(f"--gpus-per-node={wanted.gpus_per_node}")
    return [*directives, *wanted.options]


def _ending(max_requeues: int) -> list[str]:
    """What the script does at the end of an attempt, with its exit code."""
    return [
        "case $code in",
        "0 | 1 | 2) exit $code ;;",
        "esac",
        '[ "$stopped" = no ] || exit $code',
        f'if [ "$restarts" -ge {max_requeues} ]; then',
        f'  echo "not requeued: {max_requeues} restarts are used up"',
        "  exit $code",
        "fi",
        'scontrol requeue "$SLURM_JOB_ID"',
        "sleep 60 # until Slurm ends this script",
    ]
