"""What can be typed: one frozen dataclass a command."""

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True)
class Problem:
    """The posterior: a data set, a network, a prior and a temperature."""

    data: str = "digits"
    """digits, breast_cancer, wine, diabetes, a file.npz with x_train, y_train, x_test
    and y_test, or tfds:NAME."""
    model: str = "mlp"
    """mlp, lenet or resnet20_frn."""
    widths: tuple[int, ...] | None = None
    """Hidden widths of an mlp, such as 64 32. Default: 32."""
    activation: str | None = None
    """relu, tanh, silu or gelu. Default: the model's own, which is smooth."""
    prior: str = "normal"
    """Of every weight: normal, laplace, student_t, logistic, or mixture (of a wide and
    a ten times narrower normal)."""
    prior_scale: float = 1.0
    """Scale of the prior; of a normal one, its standard deviation; of a mixture, that
    of the wide part."""
    noise: str = "learned"
    """Of a regression: learned, heteroscedastic, or a number: the noise's standard
    deviation in units of the normalised targets."""
    temperature: float = 1.0
    """T in posterior^(1/T)."""
    micro_batch: int | None = None
    """Examples a gradient holds in memory. Default: what fits the device."""


@dataclass(frozen=True)
class Hmc:
    """Full-batch Hamiltonian Monte Carlo."""

    step_size: float = 0.02
    """Leapfrog step; the first one, if there is a warm-up."""
    trajectory_length: float | Literal["rule"] = "rule"
    """Step size times leapfrogs; `rule` is pi * prior std / 2, the reference's."""
    num_steps: int | None = None
    """Leapfrogs of every trajectory, instead of its length."""
    num_warmup: int = 50
    """First iterations, which adapt the step size and are not kept."""
    num_unadjusted: int = 0
    """First iterations without accept step, as the reference burn-in did."""
    target_acceptance: float = 0.8
    """What the warm-up aims at."""


@dataclass(frozen=True)
class Sghmc:
    """Stochastic-gradient HMC: cheap, and biased by its step size."""

    step_size: float = 0.002
    """In units of the parameters."""
    friction: float = 20.0
    """Per unit of time; step size times friction is at most 1."""
    batch_size: int = 128
    """Examples of a gradient."""
    num_warmup: int = 2000
    """First steps, which are not kept."""


@dataclass(frozen=True)
class Ensemble:
    """Deep ensemble of optimised networks."""

    num_steps: int = 1500
    """Optimisation steps of a member."""
    learning_rate: float = 1e-2
    """Of Adam, at the start; it falls to zero along a cosine."""
    batch_size: int | None = 128
    """Examples of a step; None for all."""


@dataclass(frozen=True)
class Sample:
    """Run Markov chains and keep them in a run directory.

    Example: symjax sample --data digits --model mlp --sampler hmc
    --hmc.step-size 0.02 --num-chains 4 --num-draws 200 --out runs/digits
    """

    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
    sampler: Literal["hmc", "sghmc"] = "hmc"
    """Which chain; its own options are those that begin with its name."""
    hmc: Hmc = Hmc()
    sghmc: Sghmc = Sghmc()
    num_chains: int = 4
    """Independent chains."""
    num_draws: int = 200
    """Draws kept of each chain."""
    thinning: int = 1
    """Iterations for each draw."""
    start: Literal["map", "init"] = "map"
    """Start each chain from its own optimised network, or from the model's own
    initialisation."""
    map_steps: int = 500
    """Optimisation steps before a chain starts, for --start map."""
    seed: int = 0
    """Of the chains' keys and starts."""
    out: Path | None = None
    """The run directory to make. Default: runs/ and a name made of the options."""
    resume: Path | None = None
    """Continue this run, with the options that it began with."""
    dry_run: bool = False
    """Show the plan and what it will take, after timing one gradient."""


@dataclass(frozen=True)
class Fit:
    """Fit an approximate method and keep its draws in a run directory.

    Example: symjax fit --data digits --method ensemble --out runs/ensemble
    """

    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
    method: Literal["ensemble"] = "ensemble"
    """Which method; its own options are those that begin with its name."""
    ensemble: Ensemble = Ensemble()
    num_members: int = 10
    """Independent members."""
    seed: int = 0
    """Of the members' keys and starts."""
    out: Path | None = None
    """The run directory to make. Default: runs/ and a name made of the options."""
    resume: Path | None = None
    """Continue this run, with the options that it began with."""
    dry_run: bool = False
    """Show the plan and what it will take, after timing one gradient."""


@dataclass(frozen=True)
class Resuming:
    """What may be typed to continue a run, which has all other options already."""

    resume: Path
    dry_run: bool = False


@dataclass(frozen=True)
class Demo:
    """From nothing to a reference posterior of a network on real data.

    Four HMC chains on the digits, a deep ensemble and SGHMC beside them, a table and a
    report. Run it again to continue where it was interrupted.
    """

    out: Path = Path("demo")
    """Folder for the runs, summary.json and report.html."""
    seed: int = 0
    """Of everything random."""


@dataclass(frozen=True)
class Evaluate:
    """Compare runs with a reference run: print the table, write summary.json.

    Example: symjax evaluate demo/hmc demo/ensemble demo/sghmc
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """The reference first, then the methods to compare with it."""
    out: Path | None = None
    """Folder for what is written. Default: the reference's."""


@dataclass(frozen=True)
class Report:
    """Compare runs with a reference run and write report.html and summary.json.

    Example: symjax report demo/hmc demo/ensemble demo/sghmc
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """The reference first, then the methods to compare with it."""
    out: Path | None = None
    """Folder for what is written. Default: the reference's."""


@dataclass(frozen=True)
class Symmetries:
    """Print the permutations, scalings and signs that leave a network unchanged.

    They are found from the network itself. Each line is one group: its size (such as
    4 x 16: for each of 4 heads, 16 units), then the parameters and axes it acts on.

    Example: symjax symmetries --model resnet20_frn --check
    """

    # As an argument, since tyro shows the lines of a docstring as they are.
    model: Annotated[
        str,
        tyro.conf.arg(
            help="mlp, lenet, resnet20_frn, or path/to/file.py:name, where name is a "
            "flax.linen module or a function without arguments that returns one, or "
            "returns (apply, params, x)."
        ),
    ] = "mlp"
    input_shape: tuple[int, ...] | None = None
    """Shape of one input, such as 32 32 3. Default: what a named model was made for."""
    input_dtype: Annotated[
        Literal["float32", "int32"],
        tyro.conf.arg(
            help="Of the inputs that are drawn for a module: float32 for normal "
            "numbers, int32 for token ids (0 and 1, which every vocabulary has)."
        ),
    ] = "float32"
    num_outputs: int = 10
    """Outputs of a named model."""
    check: bool = False
    """Try random elements of every group on the network, in float64 if it can."""
    strict: bool = False
    """Refuse a network with an operation that symjax has no rule for."""
    seed: int = 0
    """Of the random elements."""


@dataclass(frozen=True)
class Align:
    """Align the draws of a run: move each to the copy nearest to a reference.

    Permutations and signs of units leave a network's function as it is, so that every
    draw has many copies. Writes a new run; run it again to continue.

    Example: symjax align demo/hmc
    """

    run: tyro.conf.Positional[Path]
    """The run directory."""
    reference: Path | None = None
    """Run whose first chain all draws are brought next to, as it was at the end of its
    warm-up (or at its first draw). Default: the run itself."""
    method: Literal["weights", "activations", "straight-through"] = "weights"
    """What is compared: weights (nearest in distance), activations on training data
    (most correlated), or the training loss halfway to the reference (slow)."""
    out: Path | None = None
    """The run directory to make. Default: RUN-aligned, beside the run."""


@dataclass(frozen=True)
class List:
    """List the runs below a folder, and how far each of them is."""

    folder: tyro.conf.Positional[Path] = Path(".")
    """Where to look."""


@dataclass(frozen=True)
class Export:
    """Write a run's draws for other tools: .npz, or .nc for ArviZ.

    Example: symjax export demo/hmc draws.npz
    """

    run: tyro.conf.Positional[Path]
    """The run directory."""
    file: tyro.conf.Positional[Path]
    """File to write; its ending chooses the format."""


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
