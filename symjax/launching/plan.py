"""The plan of a rehearsal: what each of several processes runs, and its environment."""

import itertools
import os
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


_GPU = re.compile(r"\d+$|GPU-|MIG-")


@dataclass(frozen=True)
class Process:
    """One process: what it runs, and what its environment has besides this one's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def free_port() -> int:
    """A TCP port of this machine that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _find_gpus() -> list[str]:
    """The GPUs that a program here may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        # CUDA reads up to the first name that is none: -1, or Slurm's NoDevFiles.
        names = [name.strip() for name in given.split(",")]
        return list(itertools.takewhile(_GPU.match, names))
    command = ("nvidia-smi", "--list-gpus")
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = told.stdout.splitlines()  # Parts of a GPU are listed below it, indented.
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in lines))]


def processes(  # noqa: PLR0913
    command: Sequence[str],
    *,
    num_processes: int,
    num_devices: int,
    port: int,
    platform: str = "cpu",
    gpus: Sequence[str] | None = None,
    xla_flags: str = "",
) -> tuple[Process, ...]:
    """The plan: the same command for every process, and its own place in each.

    Args:
        command: Program and arguments.
        num_processes: How many.
        num_devices: Of each process: virtual ones on a CPU, GPUs of its own on cuda.
        port: Of the first process, where the others meet it.
        platform: cpu or cuda.
        gpus: Those to share out, as CUDA_VISIBLE_DEVICES names them. Default: those
            that this environment names there, or else all of this machine.
        xla_flags: XLA_FLAGS of this environment. On a CPU, a number of devices in it
            is taken out: JAX refuses two numbers.

    Raises:
        ValueError: if there are no processes, no devices, no such platform, or too few
            GPUs.
    """
    for name, value in {"processes": num_processes, "devices": num_devices}.items():
        if value < 1:
            raise ValueError(f"`{name}` was expected to be at least 1, got {value}")
    if platform not in ("cpu", "cuda"):
        raise ValueError(f"`platform` was expected to be cpu or cuda, got {platform!r}")
    common = {
        "JAX_PLATFORMS": platform,
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "SYMJAX_NUM_PROCESSES": str(num_processes),
        "PYTHONUNBUFFERED": "1",
    }
    if platform == "cpu":
        common["JAX_NUM_CPU_DEVICES"] = str(num_devices)
        # XLA makes as many threads as there are cores: of several devices, sums and
        # decompositions can then wait for each other's threads for ever.
        common["NPROC"] = str(max(32, 4 * num_devices))
        flags = xla_flags.split()
        kept = [flag for flag in flags if "host_platform_device_count" not in flag]
        if kept != flags:
            common["XLA_FLAGS"] = " ".join(kept)
    own = [{"SYMJAX_PROCESS_ID": str(number)} for number in range(num_processes)]
    if platform == "cuda":
        usable = _find_gpus() if gpus is None else gpus
        shared_out = _share_out(usable, num_processes, num_devices)
        for place, names in zip(own, shared_out, strict=True):
            place["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    return tuple(Process(tuple(command), common | place) for place in own)


def _share_out(
    gpus: Sequence[str], num_processes: int, num_devices: int
) -> list[Sequence[str]]:
    """The GPUs of each process; two that share one could not add up.

    Raises:
        ValueError: if there are too few.
    """
    number = num_processes * num_devices
    if len(gpus) < number:
        raise ValueError(
            f"{num_processes} processes with {num_devices} GPUs each were asked for, "
            f"which are {number}, but here are {len(gpus)}. Ask for fewer; GPUs that "
            "`nvidia-smi --list-gpus` does not list can be named in "
            "CUDA_VISIBLE_DEVICES."
        )
    return [gpus[i : i + num_devices] for i in range(0, number, num_devices)]
