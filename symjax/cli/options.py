"""What can be typed: one frozen dataclass a command."""

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import tyro

from symjax.cli.fits import Dropout, Ensemble, Laplace, Mfvi, Snapshot, Svgd, Swag
from symjax.cli.hyperparameters import (
    AdjustedMclmc,
    Chees,
    DynamicHmc,
    Ghmc,
    Hmc,
    Mala,
    Mclmc,
    Nuts,
    SplitHmc,
)
from symjax.cli.problem import Problem
from symjax.cli.stochastic import Baoab, Izmailov2021, Sghmc, Sgld, Sgnht, SmsUbu


StartName: TypeAlias = Literal["map", "init", "prior"]
"""Where chains can start that no run has to be read for."""


@dataclass(frozen=True)
class Processes:
    """The processes and devices that the chains run on.

    Attributes:
        distributed: One process, off, or one of several, ADDRESS,N,ID: where process 0
            is reached (host:port), how many there are, and which this is, from 0.
            auto: as JAX_COORDINATOR_ADDRESS, SYMJAX_NUM_PROCESSES and
            SYMJAX_PROCESS_ID say, or else Slurm, Open MPI, MPICH (which wants the
            first one too), Kubernetes or a Cloud TPU.
        mesh: How the devices of all processes are shared out, such as chain=4,data=8.
            Default: as many groups of chains as there can be.
        chains_at_once: Chains of a device (of fit, members) that are computed together.
            Fewer take less memory, and for small networks more time; with convolutions,
            on a CPU, half of it. With the same number, such as 1, draws are bit for bit
            the same however chains are shared out over devices of one kind. Default:
            all of a device's. Not for chees, ghmc and svgd, whose chains look at one
            another.
        heartbeat_seconds: Silence after which a process counts as lost, and the others
            stop. Default: SYMJAX_HEARTBEAT_SECONDS, or 30.
        shutdown_seconds: How long they wait for each other at the end. Default:
            SYMJAX_SHUTDOWN_SECONDS, or 30.
        initialization_seconds: How long they wait for each other at the start.
            Default: SYMJAX_INITIALIZATION_SECONDS, or 300.
    """

    distributed: str = "auto"
    mesh: str | None = None
    chains_at_once: int | None = None
    heartbeat_seconds: int | None = None
    shutdown_seconds: int | None = None
    initialization_seconds: int | None = None


@dataclass(frozen=True)
class Estimate:
    """What --dry-run works out for other numbers of devices, on paper.

    Attributes:
        devices: How many, such as 8 64 512.
        kind: Of the devices: v5e, v5p or H200, for the time of an all-reduce.
        gradient_ms: Milliseconds of one chain's gradient of all examples on one of
            them, as measured there; nothing is then measured here. Default: this
            machine's.
    """

    devices: tuple[int, ...] = ()
    kind: Literal["v5e", "v5p", "H200"] = "H200"
    gradient_ms: float | None = None


@dataclass(frozen=True)
class Sample:
    """Run Markov chains and keep them in a run directory.

    Example: symjax sample --data digits --model mlp --sampler hmc
    --hmc.step-size 0.02 --num-chains 4 --num-draws 200 --out runs/digits

    Attributes:
        sampler: Which chain; its own options are those that begin with its name.
        num_chains: Independent chains.
        num_draws: Draws kept of each chain.
        thinning: Iterations for each draw.
        max_minutes: Finish with the draws that there are when the chains have run so
            long, and this time again when the run is resumed.
        start: Start each chain from its own optimised network (map), from the model's
            own initialisation (init), or from a draw of the prior (prior): that has
            the posterior's norm already where the data say little of most weights. At a
            temperature T it is multiplied by the root of T, which makes it a draw of
            the prior at T where that is normal. Or the directory of a finished run of
            the same network: each chain starts at the last draw of that run's chain (or
            member) of its number. So are cold chains reached, from warmer ones.
        map_steps: Optimisation steps before a chain starts, for --start map.
        map_learning_rate: Of Adam, for --start map; it falls to zero along a cosine.
            Under a narrow prior, large ones can end at the network of zeros.
        warmup: auto picks the first step size and the warm-up of a Hamiltonian sampler
            from the prior and the curvature at the starts, and says why; what you give
            stays as it is.
        restart_stuck: Whether chains that stand still half-way through the warm-up go
            on from where a healthy one is.
        bias_check: After a sampler without accept step, go on for a while with half the
            step size and compare the predictive spread; half again the time.
        seed: Of the chains' keys and starts.
        out: The run directory to make, a folder or s3://BUCKET/FOLDER,
            gs://BUCKET/FOLDER. Default: runs/ and a name made of the options.
        resume: Continue this run, with the options that it began with.
        dry_run: Show the plan and what it will take, after timing one gradient.
        estimate: What --dry-run says of other devices too.
    """

    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
    sampler: Literal[
        "hmc",
        "split_hmc",
        "dynamic_hmc",
        "nuts",
        "chees",
        "ghmc",
        "mala",
        "mclmc",
        "adjusted_mclmc",
        "sghmc",
        "sgld",
        "sgnht",
        "baoab",
        "sms_ubu",
        "izmailov2021",
    ] = "hmc"
    hmc: Hmc = Hmc()
    split_hmc: SplitHmc = SplitHmc()
    dynamic_hmc: DynamicHmc = DynamicHmc()
    nuts: Nuts = Nuts()
    chees: Chees = Chees()
    ghmc: Ghmc = Ghmc()
    mala: Mala = Mala()
    mclmc: Mclmc = Mclmc()
    adjusted_mclmc: AdjustedMclmc = AdjustedMclmc()
    sghmc: Sghmc = Sghmc()
    sgld: Sgld = Sgld()
    sgnht: Sgnht = Sgnht()
    baoab: Baoab = Baoab()
    sms_ubu: SmsUbu = SmsUbu()
    izmailov2021: Izmailov2021 = Izmailov2021()
    num_chains: int = 4
    num_draws: int = 200
    thinning: int = 1
    max_minutes: float | None = None
    start: StartName | str = "map"
    map_steps: int = 500
    map_learning_rate: float = 1e-2
    warmup: Literal["given", "auto"] = "given"
    restart_stuck: bool = False
    bias_check: bool = True
    seed: int = 0
    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    estimate: Estimate = Estimate()
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()


@dataclass(frozen=True)
class Fit:
    """Fit an approximate method and keep its draws in a run directory.

    Example: symjax fit --data digits --method ensemble --out runs/ensemble

    Attributes:
        method: Which method; its own options are those that begin with its name.
        num_members: Independent members; of svgd, particles that repel each other.
        num_draws: Networks drawn from each fitted member. Default: 30, and 1 of methods
            whose members are single networks. Of snapshot: --snapshot.num-cycles.
        seed: Of the members' keys and starts.
        out: The run directory to make, a folder or s3://BUCKET/FOLDER,
            gs://BUCKET/FOLDER. Default: runs/ and a name made of the options.
        resume: Continue this run, with the options that it began with.
        dry_run: Show the plan and what it will take, after timing one gradient.
    """

    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
    method: Literal[
        "ensemble", "snapshot", "swag", "dropout", "laplace", "mfvi", "svgd"
    ] = "ensemble"
    ensemble: Ensemble = Ensemble()
    snapshot: Snapshot = Snapshot()
    swag: Swag = Swag()
    dropout: Dropout = Dropout()
    laplace: Laplace = Laplace()
    mfvi: Mfvi = Mfvi()
    svgd: Svgd = Svgd()
    num_members: int = 10
    num_draws: int | None = None
    seed: int = 0
    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()


@dataclass(frozen=True)
class Sweep:
    """Sample at every temperature and prior scale of a grid, and compare.

    Each point of the grid is a run in the folder --out, made by symjax sample with the
    options given. Prints accuracy, NLL and ECE (of a regression, RMSE and NLL) on the
    test set and the R-hat of the predictions, and writes sweep.json, sweep.csv and
    sweep.png. Run it again to continue; the grid may grow.

    Example: symjax sweep --temperatures 0.1 0.3 1 3 --prior-scales 0.1 0.3 --data
    digits --warmup auto --out runs/sweep

    Attributes:
        temperatures: T in posterior^(1/T). Default: --temperature.
        prior_scales: Scales of the prior. Default: --prior-scale.
    """

    sample: Annotated[Sample, tyro.conf.arg(name="")] = Sample()
    temperatures: tuple[float, ...] = ()
    prior_scales: tuple[float, ...] = ()


@dataclass(frozen=True)
class Resuming:
    """What may be typed to continue a run, which has all other options already."""

    resume: Path
    dry_run: bool = False
    estimate: Estimate = Estimate()
    max_minutes: float | None = None
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()


@dataclass(frozen=True)
class Rehearse:
    """Run a command as several processes of this machine, as on several hosts.

    What goes wrong on many hosts goes wrong here first, at no cost. Behind -- stands
    the command as it would be typed alone. Lines are printed behind the number of their
    process; when one fails, the others have --grace seconds before they are killed.
    The exit code is that of the first process that failed.

    Example: symjax rehearse --processes 4 --devices 2 -- sample --data digits --out
    runs/digits

    Attributes:
        processes: How many.
        devices: Of each: virtual ones of the CPU, or GPUs of its own.
        platform: Kind of device.
        max_restarts: How often the run is resumed after an accident, which is any exit
            code but 0, 1 and 2.
        grace: Seconds from the first failure until what still runs is killed.
    """

    processes: int = 2
    devices: int = 2
    platform: Literal["cpu", "cuda"] = "cpu"
    max_restarts: int = 0
    grace: float = 40.0


@dataclass(frozen=True)
class Demo:
    """From nothing to a reference posterior of a network on real data.

    Four HMC chains on the digits, a deep ensemble and SGHMC beside them, a table and a
    report. Run it again to continue where it was interrupted.

    Attributes:
        out: Folder for the runs, summary.json and report.html.
        seed: Of everything random.
    """

    out: Path = Path("demo")
    seed: int = 0


def rebuild(kind: type, values: dict[str, Any]) -> Any:
    """The dataclass `kind` from the JSON of one."""
    known = {field.name: field for field in fields(kind)}
    rebuilt = {}
    for name, value in values.items():
        default = known[name].default
        if is_dataclass(default):
            value = rebuild(type(default), value)
        elif isinstance(value, list):
            value = tuple(value)
        rebuilt[name] = value
    return kind(**rebuilt)
