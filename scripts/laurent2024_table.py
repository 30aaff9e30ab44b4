"""Laurent, Aldea, Franchi (2024): which method is nearest to the posterior?

A symmetry-aware exploration of Bayesian neural network posteriors: the table of methods
with one mode and with several (dropout, mean-field VI, SWAG, Laplace, SGHMC, deep
ensemble), by their distance (MMD of weights, as drawn and with the symmetries removed)
to many independently trained networks, calibration and OOD detection; the mutual
information of pairs of networks; how far trained networks are from the scaling of least
weight norm. Their reference is not the posterior, as a reviewer wrote: every distance
is given to chains of HMC as well.

    python scripts/laurent2024_table.py --scale small --out runs/laurent2024

| scale | posterior | many | time |
|---|---|---|---|
| tiny | digits, MLP 64-8-10 | 8 | seconds |
| small | 10,000 images of MNIST, MLP 784-32-10 | 512 | one GPU, 20 minutes |
| paper | CIFAR-100, ResNet-18 with FRN | 1,024 | the plan says; HMC is out of reach |

Expected: theirs, of ResNet-18 on CIFAR-100 and other large networks, are not
comparable number by number. What they found, and what is looked for here: methods with
several modes are better than with one in nearly every column; removing symmetries
lowers MMD without changing the order much; pairs of independent networks differ all in
about the same amount (no functional collapse); trained networks are not at the scaling
of least norm, although weight decay pulls there. On an H200 the small scale, with
`--minutes 3`, gave 94.8 % correct of SWAG with one mode and 95.9 % with ten, 95.4 % of
an ensemble of ten, 96.3 % of HMC; a mutual information of 0.027 to 0.039 nats for nine
pairs in ten; and norms, squared, 87 % above the least.

Needs mnist.npz, and fashion_mnist_test.npz and notmnist_test.npz as other inputs, in
the folder that SYMJAX_DATA names. The paper's network has batch normalisation, which
has no posterior; FRN stands in for it. All networks are trained by Adam. At the scale
of the paper the prior's standard deviation of 0.2 is their weight decay of 5e-4 for
50,000 images; at the others it is 1.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import compare_methods
import jax
import jax.numpy as jnp
import numpy as np
import papers
import tyro
from compare_methods import Scale
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from paper_tables import Table
from rich.console import Console

from symjax import checks, plots, store, symmetry
from symjax.cli import predicting, records
from symjax.evaluation import diversity
from symjax.plots import style
from symjax.report.distances import spaced


MANY, REFERENCE = "many", "hmc"

ROWS = {
    "dropout": "dropout, one mode",
    "mfvi": "viBNN, one mode",
    "swag": "SWAG, one mode",
    "laplace": "Laplace, one mode",
    "sghmc-one": "SGHMC, one chain",
    "map": "one network",
    "multi-dropout": "dropout, many modes",
    "multi-mfvi": "viBNN, many modes",
    "multi-swag": "SWAG, many modes",
    "multi-laplace": "Laplace, many modes",
    "sghmc": "SGHMC, many chains",
    "ensemble": "deep ensemble",
    MANY: "many networks",
    REFERENCE: "HMC",
}
"""Runs, and what their rows are called."""

MOST_NETWORKS = 256
"""Of a run, for what is measured of single networks and of pairs."""

SCALES: dict[str, tuple[Scale, int]] = {
    "tiny": (
        compare_methods.SCALES["tiny"]._replace(
            problem="--data digits --widths 8 --activation relu",
            reference="--num-chains 2 --num-draws 20 --start init "
            "--hmc.step-size 0.03 --hmc.trajectory-length 0.3 --hmc.num-warmup 20",
            evaluation="--ood permuted",
        ),
        8,
    ),
    "small": (
        compare_methods.SCALES["mnist"]._replace(
            problem="--data mnist --num-train 10000 --widths 32 --activation relu",
            evaluation="--ood fashion_mnist notmnist",
        ),
        512,
    ),
    "paper": (
        Scale(
            "--data cifar100 --model resnet18_frn --prior-scale 0.2",
            "--num-chains 4 --num-draws 100 --hmc.step-size 1e-5",
            "--num-chains 10 --num-draws 100 --thinning 390 --start init",
            78_000,
            10,
            10,
            "--ood cifar10 permuted",
        ),
        1024,
    ),
}


@dataclass(frozen=True)
class Options:
    """Reproduce the tables of Laurent, Aldea and Franchi (2024)."""

    scale: Literal["tiny", "small", "paper"] = "small"
    """tiny: seconds, to try it; small: minutes of one GPU; paper: a large network."""
    out: Path = Path("runs/laurent2024")
    """Folder of the runs, the tables and the pictures."""
    only: tuple[str, ...] = ()
    """Names of methods, to leave out the others."""
    minutes: float | None = None
    """Limit of the time of HMC's chains."""
    seed: int = 0
    """Of every run."""
    dry_run: bool = False
    """Show the plan of every run after timing one gradient, and run nothing."""


def main():
    options = tyro.cli(Options, description=__doc__)
    scale, num_networks = SCALES[options.scale]
    papers.require_known(options.only, list(ROWS))
    checks.positive(minutes=options.minutes)
    if not options.dry_run:
        papers.require_inputs(scale.problem, scale.evaluation)
    console, made = Console(), []
    for name, words in commands(scale, num_networks).items():
        if options.only and name not in {MANY, REFERENCE, *options.only}:
            continue
        # Another seed, so that the networks of the ensemble are none of the many.
        seed = options.seed + (name == MANY)
        made += [name] * papers.execute(
            f"{words} {scale.problem} --seed {seed}",
            options.out / name,
            console,
            minutes=options.minutes if name == REFERENCE else None,
            dry_run=options.dry_run,
        )
    if options.dry_run:
        return
    if not {MANY, REFERENCE} <= set(made):
        raise SystemExit("A reference is missing: see above.")
    write(options, made, scale.evaluation, console)


def commands(scale: Scale, num_networks: int) -> dict[str, str]:
    """What to type for every run, by its name; the references last."""
    known = compare_methods.commands(scale)
    many = f"--num-members {num_networks} --ensemble.num-steps {scale.num_steps}"
    known[MANY] = f"fit --method ensemble {many}"
    known["sghmc-one"] = f"{known['sghmc']} --num-chains 1"
    return {name: known[name] for name in ROWS}


def write(options: Options, made: list[str], words: str, console: Console) -> None:
    """The reports to both references, and the tables and pictures of all."""
    out = options.out
    summaries = {}
    for first in (MANY, REFERENCE):
        paths = [out / first, *(out / name for name in made if name != first)]
        folder = out / f"report-{first}"
        summaries[first] = papers.compare(paths, words, folder, console)
    found = {name: networks(out / name) for name in (MANY, REFERENCE)}
    notes = [
        f"Scale {options.scale}; theirs are ResNet-18 on CIFAR-100 and larger. MMD is "
        "squared, of at most 256 draws of each side; symmetry-free: in one canonical "
        "order, sign and scale of the units.",
    ]
    tables = [
        Table(
            "Distances",
            distances(summaries, made),
            note=papers.convergence(summaries[REFERENCE]),
        ),
        Table("Quality", quality(summaries[REFERENCE]["methods"], made)),
        Table(
            "Networks",
            {ROWS[name]: one["numbers"] for name, one in found.items()},
            note="Pairwise MI (nats) over all pairs of networks. The gap is how much "
            "more squared norm a network has than its equivalent of least norm.",
        ),
    ]
    pairs = {ROWS[name]: one["pairs"] for name, one in found.items()}
    figures = {
        "pairwise-mi": plots.pairs(pairs, xlabel="mutual information (nats)"),
        "minimum-norm": gaps({ROWS[name]: one["gap"] for name, one in found.items()}),
    }
    papers.write(out, "Laurent et al. (2024)", tables, figures, notes, console)


def distances(summaries: dict[str, Any], made: list[str]) -> dict[str, Any]:
    """How far the methods are from either reference."""
    measures = {
        "mmd_weight": "MMD",
        "mmd_canonical": "symmetry-free MMD",
        "mmd_function": "MMD of predictions",
    }
    rows = {ROWS[name]: {} for name in ROWS if name in made}
    for first, summary in summaries.items():
        for name, found in summary["methods"].items():
            if name != first:
                rows[ROWS[name]] |= {
                    f"{text}, to {ROWS[first]}": found[key]
                    for key, text in measures.items()
                }
    for name, found in summaries[REFERENCE]["methods"].items():
        if name != REFERENCE:
            rows[ROWS[name]] |= {
                "agreement with HMC": found["agreement"],
                "total variation": found["total_variation"],
            }
    return rows


def quality(methods: dict[str, Any], made: list[str]) -> dict[str, Any]:
    """On the test points, and on other inputs, which count as positive in AUPR."""
    measures = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE", "ace": "ACE"}
    measures |= {"brier": "Brier", "mutual_information": "MI"}
    rows = {}
    for name in (name for name in ROWS if name in made):
        found = methods[name]
        rows[ROWS[name]] = {text: found[key] for key, text in measures.items()}
        for other, scores in found.get("ood", {}).items():
            scored = scores["max_softmax_probability"]
            rows[ROWS[name]] |= {
                f"AUPR, {other}": scored["aupr_out"],
                f"FPR95, {other}": scored["fpr95"],
                f"MI, {other}": scores.get("mean_mutual_information"),
            }
    return rows


def networks(path: Path) -> dict[str, Any]:
    """The pairs of the networks of a run, and how far each is from least norm."""
    kept = store.open(path)
    built = records.posterior_of(kept)
    chosen = spaced(kept.num_chains, MOST_NETWORKS)
    draws = spaced(kept.committed.num_draws, max(1, MOST_NETWORKS // len(chosen)))
    x = built.dataset.test.x
    outputs = predicting.outputs(kept, built, x, name=path.name, key="test")
    values = diversity.pairwise_mutual_information(outputs[np.ix_(chosen, draws)])
    i, j = np.triu_indices(len(chosen) * len(draws), 1)
    spec = symmetry.infer(built.apply, built.shapes, built.dataset.train.x[:2])

    @jax.jit
    @jax.vmap
    @jax.vmap
    def gap_of(params: Any) -> Any:
        smallest = symmetry.minimum_norm(spec, params)
        return smallest.mass_before / smallest.mass_after - 1

    gap = []
    size = max(1, 32 // len(draws))
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size].tolist()
        read = kept.read(chains=part, draws=draws.tolist(), like=built.shapes)
        gap += np.ravel(gap_of(jax.tree.map(jnp.asarray, read))).tolist()
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    numbers = {
        "networks": float(len(gap)),
        "pairwise MI, median": middle,
        "5 %": low,
        "95 %": high,
        "norm gap, median": float(np.median(gap)),
        "smallest": min(gap),
        "largest": max(gap),
    }
    pairs = values, i // len(draws) == j // len(draws)
    return {"numbers": numbers, "pairs": pairs, "gap": np.array(gap)}


def gaps(values: dict[str, np.ndarray]) -> Figure:
    """Histograms of the gaps to the least norm, a panel a run, on one axis from 0."""
    fig = style.figure(2.2)
    bins = np.linspace(0, 1.02 * max(gap.max() for gap in values.values()), 41)
    panels = fig.subplots(1, len(values), squeeze=False, sharex=True)[0]
    for ax, (name, gap) in zip(panels, values.items(), strict=True):
        ax.hist(gap, bins=bins, color=style.ACCENT)
        style.dress(ax, title=name, xlabel="squared norm above the least", columns=2)
        style.percent_ticks(ax.xaxis, 5)
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    fig.axes[0].set_ylabel("networks")
    return fig


if __name__ == "__main__":
    papers.start(main)
