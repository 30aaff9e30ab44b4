"""Which process of how many this is: typed, in the environment, or of a cluster."""

import os
import re
import warnings
import zlib
from collections.abc import Mapping
from typing import NamedTuple


ADDRESS = "JAX_COORDINATOR_ADDRESS"
NUMBER = "SYMJAX_NUM_PROCESSES"
IDENTITY = "SYMJAX_PROCESS_ID"
"""Where host 0 is reached (host:port), how many processes there are, and which of them
this is, from 0. JAX itself reads only the first one."""


_BY_HAND = (
    "Give `--distributed HOST:PORT,N,ID`, or `--distributed off` for processes that "
    "have nothing to do with each other."
)


class Place(NamedTuple):
    """A process among others.

    Attributes:
        address: host:port of process 0.
        number: How many processes there are.
        identity: Which of them this is.
        devices: Which GPUs of its machine are its own; all that it sees, if None.
    """

    address: str
    number: int
    identity: int
    devices: tuple[int, ...] | None = None


def find(word: str, environ: Mapping[str, str] = os.environ) -> Place | None:
    """The place of this process.

    Args:
        word: `auto`, `off` or `ADDRESS,N,ID`. `auto` takes the three variables of the
            environment, else what Slurm, Open MPI, MPICH, Kubernetes or a Cloud TPU
            say.
        environ: The environment.

    Returns:
        None for a program of one process.

    Raises:
        ValueError: naming what is missing or wrong.
    """
    if word == "off":
        return None
    if word != "auto":
        parts = word.rsplit(",", 2)
        if len(parts) != 3:
            raise ValueError(
                "`--distributed` must be auto, off or ADDRESS,N,ID, such as "
                f"10.0.0.1:8476,4,0, got {word!r}."
            )
        return _checked("`--distributed`", *parts)
    names = (NUMBER, IDENTITY)
    if any(name in environ for name in names):
        missing = [name for name in (ADDRESS, *names) if name not in environ]
        if missing:
            raise ValueError(
                f"The environment must have all of {ADDRESS}, {NUMBER} and {IDENTITY}, "
                f"but lacks {' and '.join(missing)}. Set it, or give `--distributed`."
            )
        return _checked("The environment", *(environ[n] for n in (ADDRESS, *names)))
    return _detect(environ)


def _checked(where: str, address: str, number: str, identity: str) -> Place:
    """The place as numbers.

    Raises:
        ValueError: if it is none.
    """
    match = re.fullmatch(r".+:(\d{1,5})", address)
    if match is None or not 0 < int(match[1]) < 2**16:
        raise ValueError(
            f"{where} must give the address of host 0 as host:port, with a port from "
            f"1 to 65535, got {address!r}."
        )
    if not (number.isdecimal() and identity.isdecimal()):
        raise ValueError(
            f"{where} must give the number of processes and the one this is, from 0, "
            f"got {number!r} and {identity!r}."
        )
    place = Place(address, int(number), int(identity))
    if place.number == 0:
        raise ValueError(f"{where} must give at least 1 process, got 0.")
    if place.identity >= place.number:
        raise ValueError(
            f"{where} must give a process from 0 to {place.number - 1} of "
            f"{place.number}, got {place.identity}."
        )
    return place


def _detect(environ: Mapping[str, str]) -> Place | None:
    """What a cluster says, if it started several processes.

    Raises:
        ValueError: if it did so, and does not say where the first one is.
    """
    if _is_of_hydra(environ):
        return _of_hydra(environ)
    if not _has_siblings(environ):
        return None
    if _is_of_mpi(environ) and "OMPI_MCA_orte_hnp_uri" not in environ:
        # JAX knows only version 4. In an allocation of Slurm, what that says is of the
        # daemons of Open MPI.
        return _of_open_mpi_5(environ)
    # JAX offers what it detects only with starting its runtime, which ends the process
    # if another one is missing.
    from jax._src.clusters import ClusterEnv

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            address, number, identity, devices = (
                ClusterEnv.auto_detect_unset_distributed_params(
                    None, None, None, None, None, 300
                )
            )
        except RuntimeError as error:
            raise ValueError(f"{error} {_BY_HAND}") from error
    if address is None or number is None or identity is None or number == 1:
        return None
    if devices is None or _sees_its_own(environ):
        return Place(address, number, identity)
    return Place(address, number, identity, tuple(devices))


def _of_open_mpi_5(environ: Mapping[str, str]) -> Place:
    """What `mpirun` says since version 5: process 0 is where it was typed, or all are.

    Its job is called prterun-MACHINE-PID@JOB, the same in all processes.

    Raises:
        ValueError: if process 0 is elsewhere, or cannot be told.
    """
    number, identity, of_machine, own = (
        int(environ[f"OMPI_COMM_WORLD_{name}"])
        for name in ("SIZE", "RANK", "LOCAL_SIZE", "LOCAL_RANK")
    )
    job = environ.get("PMIX_NAMESPACE", "")
    match = re.fullmatch(r"\w+-(.+)-\d+@\d+", job)
    first = match[1] if match else ""
    here = environ.get("PMIX_HOSTNAME", first)
    if of_machine == number:
        first = "localhost"
    elif not first or (identity == 0 and here != first):
        raise ValueError(
            f"Open MPI does not say where process 0 is: its job is {job!r}, on "
            f"{here or 'a machine without a name'}. Type mpirun on the machine of "
            f"process 0. {_BY_HAND} N and ID are in $OMPI_COMM_WORLD_SIZE and "
            "$OMPI_COMM_WORLD_RANK."
        )
    # As JAX makes it of the job's number for version 4.
    port = environ.get("JAX_COORDINATOR_PORT", 61440 + zlib.crc32(job.encode()) % 2**12)
    devices = None if _sees_its_own(environ) else (own,)
    return Place(f"{first}:{port}", number, identity, devices)


def _of_hydra(environ: Mapping[str, str]) -> Place:
    """What the `mpiexec` of MPICH and Intel MPI says, which is all but the address.

    In an allocation of Slurm, what that says is of the daemons of this launcher.

    Raises:
        ValueError: if the address is not in the environment.
    """
    number, identity = environ["PMI_SIZE"], environ["PMI_RANK"]
    if ADDRESS not in environ:
        raise ValueError(
            f"mpiexec has started this process as {identity} of {number}, and does not "
            f"say where process 0 is: type mpiexec -genv {ADDRESS} HOST:PORT ..., with "
            "the first machine and a port of it that is free, such as localhost:8476 "
            f"for processes of one machine. {_BY_HAND}"
        )
    place = _checked("The environment", environ[ADDRESS], number, identity)
    devices = None if _sees_its_own(environ) else (int(environ["MPI_LOCALRANKID"]),)
    return place._replace(devices=devices)


def _sees_its_own(environ: Mapping[str, str]) -> bool:
    """Whether JAX is not to choose among the GPUs that this process sees.

    Of a machine's processes it gives each the GPU of its number among them: a process
    alone would leave all others idle, and one that sees a single GPU have none.
    """
    is_said = "JAX_LOCAL_DEVICE_IDS" in environ  # Which JAX reads later.
    is_one = "," not in environ.get("CUDA_VISIBLE_DEVICES", ",")
    by_slurm = environ.get("SLURM_STEP_TASKS_PER_NODE", "")  # As in 2(x3),1.
    # Under mpirun, that is of its daemons.
    by_mpi = environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", by_slurm)
    tasks = environ.get("MPI_LOCALNRANKS", by_mpi)
    is_alone = re.fullmatch(r"1(\(x\d+\))?", tasks) is not None
    return is_said or is_one or is_alone


def _has_siblings(environ: Mapping[str, str]) -> bool:
    """Whether a launcher started several tasks; an interactive shell is alone."""
    slurm = "SLURM_STEP_NODELIST" in environ and _above_one(environ, "SLURM_NTASKS")
    kubernetes = (
        "KUBERNETES_SERVICE_HOST" in environ and "JOB_COMPLETION_INDEX" in environ
    )
    workers = environ.get("TPU_PROCESS_ADDRESSES") or environ.get(
        "TPU_WORKER_HOSTNAMES", ""
    )
    slices = _above_one(environ, "MEGASCALE_NUM_SLICES")  # Each may be of one host.
    tpus = "," in workers or slices or _is_pod_of_tpus()
    return slurm or _is_of_mpi(environ) or kubernetes or tpus


def _is_of_mpi(environ: Mapping[str, str]) -> bool:
    return _above_one(environ, "OMPI_COMM_WORLD_SIZE")


def _is_of_hydra(environ: Mapping[str, str]) -> bool:
    # Slurm's own launcher may say the first one, but not the second.
    return _above_one(environ, "PMI_SIZE") and "MPI_LOCALRANKID" in environ


def _above_one(environ: Mapping[str, str], name: str) -> bool:
    word = environ.get(name, "")
    return word.isdecimal() and int(word) > 1


def _is_pod_of_tpus() -> bool:
    """Whether the metadata of a Cloud TPU VM name several workers."""
    from jax._src.clusters.cloud_tpu_cluster import GceTpuCluster

    return GceTpuCluster.is_env_present() and GceTpuCluster.get_process_count() > 1
