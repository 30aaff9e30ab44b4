"""Every approximate method beside HMC, on one network and one data set: the one table.

    python scripts/compare_methods.py --scale digits --out runs/methods

Each method is a run directory under `--out`, made by the command that is printed, so
that any of them can be made again by hand, or with other options. A second call skips
what is finished and continues what was interrupted. At the end `symjax report` compares
the runs, on the test data, on inputs of other kinds and on corrupted test data.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import papers
import tyro
from rich.console import Console

from symjax import checks


class Scale(NamedTuple):
    """How large the comparison is.

    Attributes:
        problem: Options of every run.
        reference: Options of the reference.
        chains: Options of the samplers beside it.
        num_steps: Optimisation steps of a member.
        num_members: Of the methods with several modes.
        num_draws: Of every member, and of all members together where there is one.
        evaluation: Options of the report.
    """

    problem: str
    reference: str
    chains: str
    num_steps: int
    num_members: int
    num_draws: int
    evaluation: str


SCALES = {
    "tiny": Scale(
        "--data digits --widths 8",
        "--num-chains 2 --num-draws 20 --map-steps 100 --hmc.step-size 0.03 "
        "--hmc.trajectory-length 0.3 --hmc.num-warmup 20",
        "--num-chains 2 --num-draws 20 --thinning 2 --map-steps 100",
        100,
        2,
        4,
        "--ood permuted --shift rotate --severities 3",
    ),
    "digits": Scale(
        "--data digits --widths 32 --activation silu",
        "--num-chains 4 --num-draws 200 --hmc.step-size 0.02 "
        "--hmc.trajectory-length 1.2",
        "--num-chains 4 --num-draws 200 --thinning 50",
        2000,
        10,
        30,
        "--ood permuted noise --shift rotate gaussian_noise defocus_blur",
    ),
    "mnist": Scale(
        # So many images that HMC converges in minutes.
        "--data mnist --num-train 10000 --widths 32 --activation silu",
        "--num-chains 4 --num-draws 200 --thinning 3 --hmc.num-warmup 75 "
        "--hmc.step-size 0.0006 --hmc.trajectory-length 0.8",
        "--num-chains 4 --num-draws 100 --thinning 300",
        5000,
        10,
        30,
        "--ood fashion_mnist kmnist notmnist --shift rotate gaussian_noise "
        "defocus_blur contrast --severities 1 3 5",
    ),
}


@dataclass(frozen=True)
class Options:
    """Compare every approximate method with HMC."""

    scale: Literal["tiny", "digits", "mnist"] = "digits"
    """tiny: a minute or two, to try it; digits: minutes on 2 cores; mnist: a GPU."""
    out: Path = Path("runs/methods")
    """Folder of the runs, the table and the report."""
    seeds: int = 1
    """Runs of every method, with seeds from 0 on, for error bars."""
    only: tuple[str, ...] = ()
    """Names of methods, to leave out the others."""


def main():
    options = tyro.cli(Options, description=__doc__)
    checks.at_least(1, seeds=options.seeds)
    console = Console()
    scale = SCALES[options.scale]
    known = commands(scale)
    papers.require_known(options.only, list(known))
    methods = {
        name: words
        for name, words in known.items()
        if not options.only or name in {"hmc", *options.only}
    }
    papers.require_inputs(scale.problem, scale.evaluation)
    paths = []
    for name, words in methods.items():
        seeds = range(1 if name == "hmc" else options.seeds)
        for seed in seeds:
            path = options.out / (f"{name}-{seed}" if len(seeds) > 1 else name)
            if papers.execute(f"{words} {scale.problem} --seed {seed}", path, console):
                paths.append(path)
    papers.compare(paths, scale.evaluation, options.out, console, verb="report")


def commands(scale: Scale) -> dict[str, str]:
    """What to type for every method, by its name; the reference first."""

    def fit(method: str, members: int, own: str = "", draws: int | None = None) -> str:
        words = f"fit --method {method} --num-members {members} {own}".strip()
        return words if draws is None else f"{words} --num-draws {draws}"

    steps, many = scale.num_steps, scale.num_members
    few, all_of_one = scale.num_draws, scale.num_draws * many
    return {
        "hmc": f"sample --sampler hmc {scale.reference}",
        **{
            name: f"sample --sampler {name} {scale.chains} --no-bias-check"
            for name in ("mclmc", "sghmc", "sgld")
        },
        "map": fit("ensemble", 1, f"--ensemble.num-steps {steps}"),
        "ensemble": fit("ensemble", many, f"--ensemble.num-steps {steps}"),
        "snapshot": fit(
            "snapshot",
            1,
            f"--snapshot.num-cycles {many} --snapshot.cycle-length {steps // 4}",
        ),
        "svgd": fit("svgd", many, f"--svgd.num-steps {steps}"),
        **{
            f"{prefix}{method}": fit(method, members, own, draws)
            for method, own in {
                "swag": f"--swag.num-steps {2 * steps} --swag.num-burn-in {steps} "
                f"--swag.collect-every {max(1, steps // 40)}",
                "laplace": f"--laplace.num-steps {steps}",
                "mfvi": f"--mfvi.num-steps {2 * steps}",
                "dropout": f"--dropout.num-steps {steps}",
            }.items()
            for prefix, members, draws in (("", 1, all_of_one), ("multi-", many, few))
        },
    }


if __name__ == "__main__":
    papers.start(main)
