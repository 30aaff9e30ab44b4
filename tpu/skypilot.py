"""A task file for SkyPilot's managed jobs.

Source: SkyPilot's schema (skypilot-org/skypilot, sky/utils/schemas.py) and its pages on
managed jobs and on distributed jobs, read in 2026.

A managed job is made anew after a preemption. `recover_on_exit_codes` starts it again
after 42 (preempted and saved), without limit, and `max_restarts_on_errors` after any
other code, a limited number of times: SkyPilot cannot tell an accident from an error
that no restart mends.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Any

from symjax.launching import PREEMPTED
from tpu import yaml_text
from tpu.plans import SHARED, Command, File, Remark, Step
from tpu.tpu_vm import COORDINATOR_PORT, LOCK, PYTHON


@dataclass(frozen=True)
class Task:
    """What is asked of SkyPilot.

    Attributes:
        name: Of the job.
        accelerators: Of each node: tpu-v5p-32 or H100:8.
        bucket: Mounted on all hosts, such as gs://NAME.
        num_nodes: 1 for a TPU slice, whatever the number of its hosts.
        infra: Cloud, region and zone, such as gcp/us-east5/us-east5-a.
        spot: Whether it may be preempted, for a lower price.
        max_restarts: After exit codes other than 42.
    """

    name: str
    accelerators: str
    bucket: str
    num_nodes: int = 1
    infra: str = "gcp"
    spot: bool = True
    max_restarts: int = 3

    def __post_init__(self) -> None:
        """Check the name, and what would be taken for a folder of this machine.

        Raises:
            ValueError: if the name is none, or the bucket has no scheme.
        """
        if not re.fullmatch("[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?", self.name):
            raise ValueError(f"`--name` was expected to be a word, got {self.name!r}")
        if "://" not in self.bucket:
            raise ValueError(
                "`--bucket` was expected to be an address, such as gs://NAME, got "
                f"{self.bucket}"
            )


def steps(wanted: Task, command: tuple[str, ...]) -> tuple[Step, ...]:
    """Write the file and launch the job."""
    path = f"{wanted.name}.yaml"
    return (
        File(path, yaml_text.dump(task(wanted, command))),
        Command(("sky", "jobs", "launch", "--yes", f"--name={wanted.name}", path)),
        Remark(
            "How it is, what it says, and its end:\nsky jobs queue\n"
            f"sky jobs logs --name {wanted.name}\nsky jobs cancel --name {wanted.name}"
        ),
    )


def task(wanted: Task, command: tuple[str, ...]) -> dict[str, Any]:
    """The task as SkyPilot takes it."""
    is_tpu = wanted.accelerators.startswith("tpu-")
    extra = "tpu" if is_tpu else "cuda"
    setup = [
        "set -e",
        'export PATH="$HOME/.local/bin:$PATH"',
        "command -v uv || python3 -m pip install --user uv",
        f"uv venv --allow-existing --python {PYTHON} .venv",
        f"# {LOCK} comes from: uv pip compile pyproject.toml --extra {extra} ...",
        f"VIRTUAL_ENV=.venv uv pip sync --require-hashes {LOCK}",
        "VIRTUAL_ENV=.venv uv pip install --no-deps .",
    ]
    # On a TPU slice JAX finds the hosts by itself.
    places = [] if is_tpu else _places()
    run = [
        *places,
        f"exec .venv/bin/python tpu/worker.py exec -- {shlex.join(command)}",
    ]
    return {
        "name": wanted.name,
        "workdir": ".",
        "num_nodes": wanted.num_nodes,
        "resources": {
            "infra": wanted.infra,
            "accelerators": wanted.accelerators,
            "use_spot": wanted.spot,
            "job_recovery": {
                "max_restarts_on_errors": wanted.max_restarts,
                "recover_on_exit_codes": [PREEMPTED],
            },
        },
        "file_mounts": {SHARED: {"source": wanted.bucket, "mode": "MOUNT"}},
        "envs": {"JAX_COORDINATOR_PORT": COORDINATOR_PORT},
        "setup": "\n".join(setup) + "\n",
        "run": "\n".join(run) + "\n",
    }


def _places() -> list[str]:
    return [
        'export JAX_COORDINATOR_ADDRESS="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
        f':{COORDINATOR_PORT}"',
        "export SYMJAX_NUM_PROCESSES=$SKYPILOT_NUM_NODES",
        "export SYMJAX_PROCESS_ID=$SKYPILOT_NODE_RANK",
    ]
