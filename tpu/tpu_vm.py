"""Cloud TPU VMs by queued resources: the commands, as a plan.

What the commands are built on (gcloud 528, docs.cloud.google.com/tpu, read in 2026):

- A queued resource goes through CREATING, ACCEPTED, WAITING_FOR_RESOURCES and
  PROVISIONING to ACTIVE; a preempted one through SUSPENDING to SUSPENDED, which never
  becomes active again and holds its quota until it is deleted (with `--force`, since it
  still has nodes). FAILED stays until it is deleted, too.
- The runtime version, by generation (TPU software versions): table below. The API is
  not offered for TPU7x and later.
- `queued-resources ssh --node=all --worker=all` runs a command on every host. It ends
  with a host's exit code if one failed, but stops none of the others; and a node that
  it cannot prepare it leaves out with a warning and exit code 0. So each host answers
  with a line of its own, and the launcher counts them.
- JAX takes the coordinator's port from JAX_COORDINATOR_PORT, otherwise 8482, which some
  networks block; address, number and place of the hosts it reads from the metadata
  server (jax/_src/clusters/cloud_tpu_cluster.py).
- Ubuntu 22.04, which the runtimes are, has Python 3.10. uv brings the one symjax needs.
"""

import re
import shlex
from dataclasses import dataclass

from tpu.plans import SHARED, Command, Remark, Step


RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""Runtime versions by the first part of the accelerator type."""

PYTHON = "3.12"
COORDINATOR_PORT = "8476"
WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
SOURCE = "symjax-source.tar.gz"
LOCK = "symjax-lock.txt"

_LOGS = 'tail -n 100 "$HOME"/symjax-launch/log | sed "s/^/$(hostname): /"'
_QUEUED = ("gcloud", "compute", "tpus", "queued-resources")


@dataclass(frozen=True)
class Slice:
    """What is asked of Cloud TPU.

    Attributes:
        name: Of the queued resource and of its nodes.
        zone: Such as us-central2-b.
        accelerator: Such as v4-64, v5litepod-256, v5p-128, v6e-32.
        project: None for gcloud's own setting.
        num_slices: More than one are joined by the data-centre network.
        spot: Whether it may be preempted, for a lower price.
        runtime: None for the one of the accelerator's generation.
        internal_ips: No external addresses; the hosts then need Cloud NAT to install.
        nfs: SERVER:/SHARE of the file system that all hosts share, such as Filestore's.
            None where the image mounts it.
    """

    name: str
    zone: str
    accelerator: str
    project: str | None = None
    num_slices: int = 1
    spot: bool = False
    runtime: str | None = None
    internal_ips: bool = False
    nfs: str | None = None

    def __post_init__(self) -> None:
        """Check what would otherwise fail after minutes in a queue.

        Raises:
            ValueError: if there is no such name or generation, or no slices.
        """
        if not re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", self.name):
            raise ValueError(
                "`--name` was expected to be at most 63 small letters, digits and -, a "
                f"letter first, got {self.name!r}"
            )
        generation = self.accelerator.partition("-")[0]
        if self.runtime is None and generation not in RUNTIMES:
            raise ValueError(
                f"`--accelerator` was expected to be {'-N, '.join(RUNTIMES)}-N, "
                f"got {self.accelerator}. TPU7x and later are reached by GKE or "
                "Compute Engine: see `launch.py tpu7x`; or give `--runtime`."
            )
        if self.num_slices < 1:
            raise ValueError(
                f"`--slices` was expected to be at least 1, got {self.num_slices}"
            )


@dataclass(frozen=True)
class Commands:
    """Everything that is ever run for a slice; who runs it decides when."""

    lock: tuple[Command, ...]
    create: Command
    describe: Command
    count: Command
    upload: tuple[Command, ...]
    install: Command
    start: Command
    poll: Command
    stop: Command
    logs: Command
    delete: Command


def build(wanted: Slice, command: tuple[str, ...], attempt: int = 0) -> Commands:
    """The commands for a slice and a program.

    Args:
        wanted: The slice.
        command: The program and its arguments, with `--out RUN`.
        attempt: How often it has been started before.
    """
    words = shlex.join(command)
    first = wanted.name if wanted.num_slices == 1 else f"{wanted.name}-0"
    return Commands(
        lock=(lock_command(),),
        create=_create(wanted),
        describe=_queued(wanted, "describe", "--format=value(state.state)"),
        count=Command(
            ("gcloud", "compute", "tpus", "tpu-vm", "describe", first)
            + (*_place(wanted), "--format=json(networkEndpoints)")
        ),
        upload=(
            Command(
                ("git", "archive", "--format=tar.gz", f"--output={SOURCE}", "HEAD")
            ),
            _queued(wanted, "scp", *_hosts(wanted), before=(SOURCE, LOCK), suffix=":"),
        ),
        install=_ssh(wanted, install_script(wanted.nfs)),
        start=_ssh(
            wanted,
            f"export JAX_COORDINATOR_PORT={COORDINATOR_PORT}; "
            + _worker(f"start --attempt {attempt} -- {words}"),
        ),
        poll=_ssh(wanted, _worker("status")),
        stop=_ssh(wanted, _worker("stop")),
        logs=_ssh(wanted, _LOGS),
        delete=_queued(wanted, "delete", "--force", "--quiet"),
    )


def lock_command() -> Command:
    """The command that writes the versions which every host installs."""
    return Command(
        ("uv", "pip", "compile", "pyproject.toml", "--extra=tpu", "--generate-hashes")
        + (f"--python-version={PYTHON}", "--python-platform=x86_64-manylinux_2_35")
        + ("--quiet", f"--output-file={LOCK}")
    )


def install_script(nfs: str | None) -> str:
    """What every host runs once; a second time it changes nothing."""
    mount = [
        f"if ! mountpoint -q {SHARED}; then",
        "  sudo apt-get install --yes --quiet nfs-common",
        f"  sudo mkdir -p {SHARED}",
        f"  sudo mount -t nfs {shlex.quote(nfs or '')} {SHARED}",
        f"  sudo chmod 1777 {SHARED}",
        "fi",
    ]
    return "\n".join(
        [
            "set -eu",
            *(mount if nfs else ()),
            'cd "$HOME"',
            "mkdir -p symjax-launch/source",
            "tar -xzf symjax-source.tar.gz -C symjax-launch/source",
            "cd symjax-launch",
            'export PATH="$HOME/.local/bin:$PATH"',
            "command -v uv >/dev/null || python3 -m pip install --quiet --user uv",
            f"uv venv --quiet --allow-existing --python {PYTHON} venv",
            "export VIRTUAL_ENV=venv",
            f'uv pip sync --quiet --require-hashes "$HOME"/{LOCK}',
            "uv pip install --quiet --no-deps ./source",
            "venv/bin/python source/tpu/worker.py report",
        ]
    )


def steps(wanted: Slice, command: tuple[str, ...]) -> tuple[Step, ...]:
    """The plan to read: what is run, in order, and when again."""
    all_commands = build(wanted, command)
    again = build(wanted, command, attempt=1)
    return (
        Remark("The versions that every host installs; once, where there is no file."),
        *all_commands.lock,
        Remark("\nAsk for the slice, then look until the state is ACTIVE."),
        all_commands.create,
        all_commands.describe,
        Remark("\nHow many hosts must answer; this checkout's HEAD; the installation."),
        all_commands.count,
        *all_commands.upload,
        all_commands.install,
        Remark(
            "\nStart on every host, detached; then ask how they are, again and again."
        ),
        all_commands.start,
        all_commands.poll,
        Remark("\nWhen one host has failed: stop the others, and read what they said."),
        all_commands.stop,
        all_commands.logs,
        Remark(
            "\nWhen the state is SUSPENDED (preempted): delete, which frees the quota, "
            "then\nfrom `create` on again. The run is resumed where it exists:"
        ),
        again.start,
        Remark("\nAt the end."),
        all_commands.delete,
    )


def _create(wanted: Slice) -> Command:
    generation = wanted.accelerator.partition("-")[0]
    runtime = wanted.runtime or RUNTIMES[generation]
    nodes = (
        (f"--node-id={wanted.name}",)
        if wanted.num_slices == 1
        else (f"--node-count={wanted.num_slices}", f"--node-prefix={wanted.name}")
    )
    return _queued(
        wanted,
        "create",
        f"--accelerator-type={wanted.accelerator}",
        f"--runtime-version={runtime}",
        *nodes,
        *(("--spot",) if wanted.spot else ()),
        *(("--internal-ips",) if wanted.internal_ips else ()),
        "--quiet",
    )


def _queued(
    wanted: Slice,
    verb: str,
    *options: str,
    before: tuple[str, ...] = (),
    suffix: str = "",
) -> Command:
    name = f"{wanted.name}{suffix}"
    return Command((*_QUEUED, verb, *before, name, *_place(wanted), *options))


def _ssh(wanted: Slice, script: str) -> Command:
    return _queued(wanted, "ssh", *_hosts(wanted), f"--command={script}")


def _hosts(wanted: Slice) -> tuple[str, ...]:
    inside = ("--internal-ip",) if wanted.internal_ips else ()
    return ("--node=all", "--worker=all", "--batch-size=all", "--quiet", *inside)


def _place(wanted: Slice) -> tuple[str, ...]:
    project = (f"--project={wanted.project}",) if wanted.project else ()
    return (f"--zone={wanted.zone}", *project)


def _worker(words: str) -> str:
    return f'cd "$HOME"/symjax-launch && venv/bin/python source/tpu/worker.py {words}'
