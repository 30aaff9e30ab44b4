"""Reference bundles of four posteriors, made from nothing.

    python scripts/make_bundles.py --only digits --out runs/bundles

Each is a run of HMC with several chains, made by the command that is printed, and a
bundle of it, which `symjax evaluate METHOD --reference OUT/NAME.npz` reads. A second
call skips what is finished and continues what was interrupted. How far the chains agree
is written into the bundle and printed at the end: R-hat of the predictions below 1.01
for 99 % of them, or it says that they do not.

digits is the bundle that comes with symjax (bundle:digits). boston and yacht are split
0 of the UCI sets, from the folder that SYMJAX_DATA names; mnist takes a GPU. Bundles
above 1 MB are attached to releases, not kept with the code.
"""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import papers
import tyro
from rich.console import Console

from symjax import store
from symjax.cli import bundles, chains, records
from symjax.cli.options import Sample


class Reference(NamedTuple):
    """How a bundle is made.

    Attributes:
        words: What is typed behind `symjax sample`.
        num_draws: Of each chain that are stored.
    """

    words: str
    num_draws: int


REFERENCES = {
    # 760 parameters; 4 minutes on one CPU core, 0.84 MB. The first step size is what
    # --warmup auto found.
    "digits": Reference(
        "--data digits --widths 10 --activation silu --prior-scale 0.3 "
        "--num-chains 4 --num-draws 1000 --thinning 5 --hmc.num-warmup 100 "
        "--hmc.step-size 0.00971950466870882 --hmc.trajectory-length 0.4",
        125,
    ),
    "boston": Reference(
        "--data uci:boston --widths 20 --activation silu --prior-scale 0.3 "
        "--num-chains 4 --num-draws 1000 --hmc.num-warmup 100 "
        "--hmc.step-size 0.01 --hmc.target-acceptance 0.9",
        250,
    ),
    "yacht": Reference(
        "--data uci:yacht --widths 20 --activation silu --prior-scale 0.3 "
        "--num-chains 4 --num-draws 1000 --thinning 4 --hmc.num-warmup 100 "
        "--hmc.step-size 0.005 --hmc.target-acceptance 0.9",
        250,
    ),
    # 25,450 parameters; ends after 3 minutes of sampling, with the draws there are.
    "mnist": Reference(
        "--data mnist --widths 32 --activation silu --prior-scale 0.1 "
        "--num-chains 4 --num-draws 400 --thinning 5 --hmc.num-warmup 100 "
        "--hmc.step-size 0.0003 --hmc.trajectory-length 0.16 --max-minutes 3",
        100,
    ),
}


@dataclass(frozen=True)
class Options:
    """Make reference bundles."""

    only: tuple[Literal["digits", "boston", "yacht", "mnist"], ...] = ("digits",)
    """Which ones."""
    out: Path = Path("runs/bundles")
    """Folder of the runs and the bundles."""


def main():
    options = tyro.cli(Options, description=__doc__)
    if not options.only:
        raise SystemExit(f"`--only` must name some of {', '.join(REFERENCES)}.")
    console = Console()
    for name in options.only:
        make(name, REFERENCES[name], options.out, console)


def make(name: str, reference: Reference, out: Path, console: Console) -> None:
    """Make or continue the run, then write its bundle."""
    sample(reference, out / name, console)
    words = ["export", str(out / name), "--bundle", str(out / f"{name}.npz")]
    words += ["--num-draws", str(reference.num_draws)]
    console.print(f"symjax {shlex.join(words)}", highlight=False, soft_wrap=True)
    bundle = bundles.export(out / name, out / f"{name}.npz", reference.num_draws)
    size = bundle.path.stat().st_size / 1e6
    console.print(bundle.about["diagnostics"]["sentence"], highlight=False)
    console.print(f"Wrote {bundle.path}, {size:.2f} MB", soft_wrap=True)


def sample(reference: Reference, path: Path, console: Console) -> None:
    """Make the run, or continue it; a finished one stays as it is.

    Raises:
        SystemExit: if the folder holds a run of other options.
    """
    console.print(f"symjax sample {reference.words} --out {path}", soft_wrap=True)
    command = replace(parse(reference), out=path)
    if (path / "config.json").exists():
        recorded = records.rebuild_command(store.open(path))
        options = records.describe_options(command)
        if (
            not isinstance(recorded, Sample)
            or records.describe_options(recorded) != options
        ):
            raise SystemExit(
                f"{path} was made with other options. Choose another --out, or remove "
                "it."
            )
        command = Sample(resume=path, max_minutes=command.max_minutes)
    chains.execute(command, console)


def parse(reference: Reference) -> Sample:
    """The command that the words mean."""
    return tyro.cli(Sample, args=shlex.split(reference.words))


if __name__ == "__main__":
    papers.start(main)
