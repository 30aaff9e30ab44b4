"""What can be typed of the commands that read runs and networks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from symjax.cli.problem import Problem


@dataclass(frozen=True)
class Compared:
    """What is compared with what, and on which inputs.

    Attributes:
        runs: The methods, of one data set; without --reference the first is it.
        reference: What to compare with: a run, a bundle (of symjax export --bundle, or
            bundle:digits, which comes with symjax), or a file as of --predictions.
        predictions: Files of predictive probabilities: text, a row an example, with
            commas or spaces; or FILE.npz or FILE.npz:NAME, an array (example, class),
            (chain, example, class) or (chain, draw, example, class). Of a regression,
            of which a run or a bundle is named too, in units of the targets: text, the
            mean of every output, then the standard deviation of every output; or
            FILE.npz with the arrays mean and std, or FILE.npz:NAME with NAME/mean and
            NAME/std, output in place of class. Without std there is no NLL.
        labels: For files alone their true classes: text, one a line, or FILE.npz:NAME.
        ood: Other inputs to be told from the test points, such as kmnist.
        shift: Corruptions of the test points, such as gaussian_noise.
        severities: Of the corruptions, from 1 to 5.
        temperature_scaling: Show each method with its logits divided by a temperature
            too, which each half of the test points gets from the other half, and each
            half of other inputs as well.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    reference: str | None = None
    predictions: tuple[str, ...] = ()
    labels: str | None = None
    ood: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    temperature_scaling: bool = False


@dataclass(frozen=True)
class Evaluate:
    """Compare methods with a reference: print tables; write them as JSON, CSV, LaTeX.

    Example: symjax evaluate demo/hmc demo/ensemble demo/sghmc

    Example: symjax evaluate demo/ensemble --reference bundle:digits

    Example: symjax evaluate --reference hmc.npz:cifar10 --predictions mine.csv

    Predictions of a run are kept in its folder, and read by the next evaluation.

    Attributes:
        out: Folder for what is written. Default: the reference's, or the present one.
    """

    compared: Annotated[Compared, tyro.conf.arg(name="")] = Compared()
    out: Path | None = None


@dataclass(frozen=True)
class Report:
    """Compare methods with a reference, as evaluate does, and write report.html too.

    Example: symjax report demo/hmc demo/ensemble demo/sghmc

    Attributes:
        out: Folder for what is written. Default: the reference's, or the present one.
    """

    compared: Annotated[Compared, tyro.conf.arg(name="")] = Compared()
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
            help="mlp, lenet, lenet_maxpool, alexnet, resnet20_frn, resnet18_frn, vit, "
            "cnn_lstm, resnet20, resnet18, or path/to/file.py:name, where name is a "
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
class Import:
    """Make a run of samples or checkpoints from elsewhere, to evaluate, align, report.

    Pickles of haiku's parameters, such as the HMC samples of Izmailov et al. (2021):
    each file is a draw, whose arrays may have a first axis of chains. Of a pickle
    nothing is run. Files that end in .safetensors, of PyTorch's ResNet-18 or -20: each
    is an independent network.

    Example: symjax import samples/*.pt --data cifar10 --model resnet20_frn
    --prior-scale 0.447 --out runs/izmailov

    Attributes:
        files: In the order of the draws.
        out: The run directory to make. Default: runs/ and the model's name.
    """

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    problem: Annotated[Problem, tyro.conf.arg(name="")] = Problem()
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
    """Write a run for other tools: its draws as .npz or, for ArviZ, .nc; or a bundle.

    A bundle is one file with all that others need to score a method against this
    reference without sampling: the posterior's definition, draws in float16, what all
    draws predict on the test set, diagnostics and provenance. NumPy reads it.

    Example: symjax export demo/hmc draws.npz

    Example: symjax export demo/hmc --bundle digits.npz --num-draws 100

    Attributes:
        run: The run directory.
        file: File of draws to write; its ending chooses the format.
        bundle: Bundle to write, named .npz.
        num_draws: Draws of each chain that a bundle stores, evenly spaced. Default:
            all. Predictions and diagnostics are of all draws.
    """

    run: tyro.conf.Positional[Path]
    file: tyro.conf.Positional[Path | None] = None
    bundle: Path | None = None
    num_draws: int | None = None
