"""What can be typed: one frozen dataclass a command."""

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from symjax.cli.hyperparameters import (
    AdjustedMclmc,
    Baoab,
    Chees,
    DynamicHmc,
    Ensemble,
    Ghmc,
    Hmc,
    Izmailov2021,
    Mala,
    Mclmc,
    Nuts,
    Sghmc,
    Sgld,
    Sgnht,
    SmsUbu,
    SplitHmc,
)


@dataclass(frozen=True)
class Problem:
    """The posterior: a data set, a network, a prior and a temperature.

    Attributes:
        data: digits, breast_cancer, wine, diabetes, a file.npz with x_train,
            y_train, x_test and y_test, or tfds:NAME.
        model: mlp, lenet or resnet20_frn.
        widths: Hidden widths of an mlp, such as 64 32. Default: 32.
        activation: relu, tanh, silu or gelu. Default: the model's own, which is
            smooth.
        prior: Of every weight: normal, laplace, student_t, logistic, or mixture (of
            a wide and a ten times narrower normal).
        prior_scale: Scale of the prior; of a normal one, its standard deviation; of
            a mixture, that of the wide part.
        noise: Of a regression: learned, heteroscedastic, or a number: the noise's
            standard deviation in units of the normalised targets.
        temperature: T in posterior^(1/T).
        micro_batch: Examples a gradient holds in memory. Default: what fits the
            device.
    """

    data: str = "digits"
    model: str = "mlp"
    widths: tuple[int, ...] | None = None
    activation: str | None = None
    prior: str = "normal"
    prior_scale: float = 1.0
    noise: str = "learned"
    temperature: float = 1.0
    micro_batch: int | None = None


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
        max_minutes: Finish with the draws that there are when this time is up.
        start: Start each chain from its own optimised network, or from the model's
            own initialisation.
        map_steps: Optimisation steps before a chain starts, for --start map.
        bias_check: After a sampler without accept step, go on for a while with half the
            step size and compare the predictive spread; half again the time.
        seed: Of the chains' keys and starts.
        out: The run directory to make. Default: runs/ and a name made of the
            options.
        resume: Continue this run, with the options that it began with.
        dry_run: Show the plan and what it will take, after timing one gradient.
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
    start: Literal["map", "init"] = "map"
    map_steps: int = 500
    bias_check: bool = True
    seed: int = 0
    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Fit:
    """Fit an approximate method and keep its draws in a run directory.

    Example: symjax fit --data digits --method ensemble --out runs/ensemble

    Attributes:
        method: Which method; its own options are those that begin with its name.
        num_members: Independent members.
        seed: Of the members' keys and starts.
        out: The run directory to make. Default: runs/ and a name made of the
            options.
        resume: Continue this run, with the options that it began with.
        dry_run: Show the plan and what it will take, after timing one gradient.
    """

    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
    method: Literal["ensemble"] = "ensemble"
    ensemble: Ensemble = Ensemble()
    num_members: int = 10
    seed: int = 0
    out: Path | None = None
    resume: Path | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Resuming:
    """What may be typed to continue a run, which has all other options already."""

    resume: Path
    dry_run: bool = False
    max_minutes: float | None = None


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


@dataclass(frozen=True)
class Evaluate:
    """Compare runs with a reference run: print the table, write summary.json.

    Example: symjax evaluate demo/hmc demo/ensemble demo/sghmc

    Attributes:
        runs: The reference first, then the methods to compare with it.
        out: Folder for what is written. Default: the reference's.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None


@dataclass(frozen=True)
class Report:
    """Compare runs with a reference run and write report.html and summary.json.

    Example: symjax report demo/hmc demo/ensemble demo/sghmc

    Attributes:
        runs: The reference first, then the methods to compare with it.
        out: Folder for what is written. Default: the reference's.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None


@dataclass(frozen=True)
class Symmetries:
    """Print the permutations, scalings and signs that leave a network unchanged.

    They are found from the network itself. Each line is one group: its size (such as
    4 x 16: for each of 4 heads, 16 units), then the parameters and axes it acts on.

    Example: symjax symmetries --model resnet20_frn --check

    Attributes:
        input_shape: Shape of one input, such as 32 32 3. Default: what a named
            model was made for.
        num_outputs: Outputs of a named model.
        check: Try random elements of every group on the network, in float64 if it
            can.
        strict: Refuse a network with an operation that symjax has no rule for.
        seed: Of the random elements.
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
    input_dtype: Annotated[
        Literal["float32", "int32"],
        tyro.conf.arg(
            help="Of the inputs that are drawn for a module: float32 for normal "
            "numbers, int32 for token ids (0 and 1, which every vocabulary has)."
        ),
    ] = "float32"
    num_outputs: int = 10
    check: bool = False
    strict: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Align:
    """Align the draws of a run: move each to the copy nearest to a reference.

    Permutations and signs of units leave a network's function as it is, so that every
    draw has many copies. Writes a new run; run it again to continue.

    Example: symjax align demo/hmc

    Attributes:
        run: The run directory.
        reference: Run whose first chain all draws are brought next to, as it was at
            the end of its warm-up (or at its first draw). Default: the run itself.
        method: What is compared: weights (nearest in distance), activations on
            training data (most correlated), or the training loss halfway to the
            reference (slow: about 4 s a draw of a small network on a CPU).
        out: The run directory to make. Default: RUN-aligned, beside the run.
    """

    run: tyro.conf.Positional[Path]
    reference: Path | None = None
    method: Literal["weights", "activations", "straight-through"] = "weights"
    out: Path | None = None


@dataclass(frozen=True)
class List:
    """List the runs below a folder, and how far each of them is.

    Attributes:
        folder: Where to look.
    """

    folder: tyro.conf.Positional[Path] = Path(".")


@dataclass(frozen=True)
class Export:
    """Write a run's draws for other tools: .npz, or .nc for ArviZ.

    Example: symjax export demo/hmc draws.npz

    Attributes:
        run: The run directory.
        file: File to write; its ending chooses the format.
    """

    run: tyro.conf.Positional[Path]
    file: tyro.conf.Positional[Path]


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
