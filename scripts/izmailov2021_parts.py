"""The parts of an experiment of Izmailov et al. (2021): which runs, which tables.

One posterior is sampled by HMC, its reference. Beside it stand approximate methods,
and HMC at other temperatures, prior variances and families of priors, of which the
reference itself is one point. The programs that begin with izmailov2021 fill it in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import izmailov2021_tables as tables
import papers
import tyro
from izmailov2021_tables import REFERENCE
from izmailov2021_words import prior
from rich.console import Console


Part: TypeAlias = Literal[
    "methods", "corruption", "temperatures", "variances", "priors"
]
PARTS: tuple[Part, ...] = (
    *("methods", "corruption"),
    *("temperatures", "variances", "priors"),
)
SWEPT = PARTS[2:]

FAMILIES = {"mixture": "mixture of Gaussians", "logistic": "logistic"}
"""Priors beside the normal one, and what their rows are called."""


class Experiment(NamedTuple):
    """What the parts are made of.

    Attributes:
        problem: Options of every run: the network and the data.
        variance: Of the prior.
        hmc: Options of every run of HMC.
        start: Where its chains start, but for those that `cools`.
        trajectory: Options of its leapfrogs, from temperature and prior variance.
        num_draws: Of a chain of the reference.
        num_swept: Of a chain at other temperatures and priors.
        minutes: Limit of the reference's chains; of others a third. None for none.
        methods: What to type for every method.
        temperatures: Beside 1.
        variances: Of the prior, beside `variance`.
        evaluation: Options of the report on corrupted test points; empty for none.
        cools: Whether chains below temperature 1 start at the last draws of the next
            warmer one. Draws of the prior there are small networks, and where they
            start, chains stay at weights of zero, a minimum of the energy, even if
            others are far more probable; optimised networks lie where it is so curved
            that the chains hardly move.
    """

    problem: str
    variance: float
    hmc: str
    start: str
    trajectory: Callable[[float, float], str]
    num_draws: int
    num_swept: int
    minutes: float | None
    methods: Mapping[str, str]
    temperatures: tuple[float, ...]
    variances: tuple[float, ...]
    evaluation: str = ""
    cools: bool = False


class Row(NamedTuple):
    """A row of a table, and the temperature, variance and family that it is of."""

    label: str
    at: tuple[float, float, str]


@dataclass(frozen=True)
class Options:
    """Reproduce the experiments of Izmailov et al. (2021), in parts."""

    scale: Literal["tiny", "small", "paper"] = "small"
    """tiny: seconds, to try it; small: of one GPU, as above; paper: their settings."""
    parts: tuple[Part, ...] = PARTS
    """Which experiments; all of them need the reference, which is made once."""
    only: tuple[str, ...] = ()
    """Names of methods, to leave out the others."""
    out: Path | None = None
    """Folder of the runs, the tables and the pictures. Default: runs/ and a name."""
    minutes: float | None = None
    """Limit of the reference's chains, others get a third. Default: of the scale."""
    seed: int = 0
    """Of every run."""
    dry_run: bool = False
    """Show the plan of every run after timing one gradient, and run nothing."""
    gradient_ms: float | None = None
    """Of a chain on all data, for the plans of HMC where no such device is at hand."""


def main(
    description: str | None,
    title: str,
    experiments: Mapping[str, Experiment],
    differs: Mapping[str, str],
    published: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> None:
    """What a program of the paper does.

    Args:
        description: For `--help`.
        title: Of what is written; its first word names the folder.
        experiments: By scale.
        differs: From the paper, by scale.
        published: For every part its rows of numbers.
    """
    options = tyro.cli(Options, description=description)
    reproduce(
        experiments[options.scale],
        options,
        f"{title}, scale {options.scale}",
        published,
        [differs[options.scale]],
    )


def reproduce(
    experiment: Experiment,
    options: Options,
    title: str,
    published: Mapping[str, Mapping[str, Mapping[str, float]]],
    notes: Sequence[str],
) -> None:
    """Make the runs of the parts, and write their tables.

    Args:
        experiment: The scale that was chosen.
        options: What was typed.
        title: Of what is written; its first word names the folder.
        published: For every part its rows of numbers.
        notes: What differs from the paper.

    Raises:
        SystemExit: if the reference can't be made, or for a gradient's time without a
            plan to say it in.
    """
    if options.gradient_ms is not None and not options.dry_run:
        raise SystemExit(
            "`--gradient-ms` is for plans, and nothing that runs heeds it: add "
            "--dry-run, or leave it out."
        )
    papers.require_known(options.only, list(experiment.methods))
    out = options.out or Path("runs", title.split(":")[0])
    made = make(experiment, options, out)
    if options.dry_run:
        return
    if REFERENCE not in made:
        raise SystemExit(f"{out / REFERENCE} is no reference yet: see above.")
    found, figures, console = [], {}, Console()
    if {"methods", "corruption"} & set(options.parts):
        paths = [out / n for n in made if n in (REFERENCE, *experiment.methods)]
        words = experiment.evaluation if "corruption" in options.parts else ""
        found = tables.compared(paths, words, published.get("methods", {}))
    points = {
        name: point
        for name in made
        if set(SWEPT) & set(options.parts) and name not in experiment.methods
        if (point := tables.score(out / name))
    }
    for part in SWEPT:
        if part in options.parts:
            rows = published.get(part, {})
            labels = {n: row.label for n, row in swept(experiment, part).items()}
            found.append(tables.swept(part.capitalize(), labels, points, rows))
    grid = [point for name, point in points.items() if not name.startswith("prior")]
    if len(grid) > 1:
        figures["sweep"] = tables.picture(grid)
    papers.write(out, title, found, figures, notes, console)


def make(experiment: Experiment, options: Options, out: Path) -> list[str]:
    """Make all runs, or show their plans; returns the names of those that are there."""
    console = Console()
    fixed = f"{experiment.problem} --seed {options.seed}"
    most = experiment.minutes if options.minutes is None else options.minutes
    made = []
    for name, words in runs(experiment, options).items():
        minutes = most if words.startswith("sample --sampler hmc") else None
        if minutes is not None and name != REFERENCE:
            minutes /= 3
        warmer = warmer_run(experiment, name)
        if warmer is not None and warmer not in made and not options.dry_run:
            console.print(
                f"[bold]Warning:[/bold] {name} is left out until the next call: its "
                f"chains start at draws of {warmer}, which is left out.",
                highlight=False,
            )
            continue
        is_there = papers.execute(
            f"{words} {fixed}",
            out / name,
            console,
            start=None if warmer is None else out / warmer,
            minutes=minutes,
            dry_run=options.dry_run,
            gradient_ms=options.gradient_ms if " hmc " in words else None,
        )
        made += [name] * is_there
    return made


def runs(experiment: Experiment, options: Options) -> dict[str, str]:
    """What to type for every run, without the data; the reference first."""
    base = experiment.variance

    def hmc(temperature: float, variance: float, family: str, num_draws: int) -> str:
        name = _name(base, temperature, variance, family)
        cools = warmer_run(experiment, name) is not None
        start = "" if cools else f"--start {experiment.start} "
        return (
            f"sample --sampler hmc {experiment.hmc} --num-draws {num_draws} {start}"
            f"{experiment.trajectory(temperature, variance)} "
            f"{prior(family, variance)} --temperature {temperature:g}"
        )

    found = {REFERENCE: hmc(1, base, "normal", experiment.num_draws)}
    if {"methods", "corruption"} & set(options.parts):
        found |= {
            name: words
            for name, words in experiment.methods.items()
            if not options.only or name in options.only
        }
    for part in SWEPT:
        if part in options.parts:
            rows = swept(experiment, part)
            # Warmer chains before those that start at their draws.
            for name in sorted(rows, key=lambda name: -rows[name].at[0]):
                found.setdefault(name, hmc(*rows[name].at, experiment.num_swept))
    return found


def warmer_run(experiment: Experiment, name: str) -> str | None:
    """The run at whose last draws that run starts, if it does at those of another."""
    base = experiment.variance
    warm = sorted({1.0, *(t for t in experiment.temperatures if t < 1)})
    names = [_name(base, temperature, base, "normal") for temperature in warm]
    if not experiment.cools or name not in names[:-1]:
        return None
    return names[names.index(name) + 1]


def swept(experiment: Experiment, part: str) -> dict[str, Row]:
    """The rows of a part, in order, by the names of their runs."""
    base = experiment.variance
    if part == "priors":
        rows = [("Gaussian", (1.0, base, "normal"))]
        rows += [(text, (1.0, base, family)) for family, text in FAMILIES.items()]
    elif part == "temperatures":
        values = sorted((1.0, *experiment.temperatures))
        rows = [(f"T = {value:g}", (value, base, "normal")) for value in values]
    else:
        values = sorted((base, *experiment.variances))
        rows = [(f"variance {value:g}", (1.0, value, "normal")) for value in values]
    return {_name(base, *at): Row(label, at) for label, at in rows}


def _name(base: float, temperature: float, variance: float, family: str) -> str:
    """Of the run of HMC there."""
    if family != "normal":
        return f"prior-{family}"
    if temperature != 1:
        return f"temperature-{temperature:g}"
    return REFERENCE if variance == base else f"variance-{variance:g}"
