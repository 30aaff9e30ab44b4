"""The plan of a rehearsal: what each of several processes runs, and its environment."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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


def processes(
    command: Sequence[str],
    *,
    num_processes: int,
    num_devices: int,
    port: int,
    platform: str = "cpu",
    xla_flags: str = "",
) -> tuple[Process, ...]:
    """The plan: the same command for every process, and its own place in each.

    Args:
        command: Program and arguments.
        num_processes: How many.
        num_devices: Of each process: virtual ones on a CPU, GPUs of its own on cuda.
        port: Of the first process, where the others meet it.
        platform: cpu or cuda.
        xla_flags: XLA_FLAGS of this environment. On a CPU, a number of devices in it
            is taken out: JAX refuses two numbers.

    Raises:
        ValueError: if there are no processes, no devices, or no such platform.
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
    plan = []
    for number in range(num_processes):
        own = {"SYMJAX_PROCESS_ID": str(number)}
        if platform == "cuda":
            first = number * num_devices
            gpus = range(first, first + num_devices)
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        plan.append(Process(tuple(command), common | own))
    return tuple(plan)
