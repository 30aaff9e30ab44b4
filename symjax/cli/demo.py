"""`symjax demo`: the main job from beginning to end, on data that comes with it."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from symjax import store
from symjax.cli import chains, comparing, records, results
from symjax.cli.analyses import Compared
from symjax.cli.fits import Ensemble
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Demo, Fit, Sample
from symjax.cli.problem import Problem
from symjax.cli.stochastic import Sghmc


PROBLEM = Problem(data="digits", model="mlp", widths=(32,), activation="silu")


def commands(seed: int) -> dict[str, Sample | Fit]:
    """The three runs of the demo, by the name of their folder."""
    return {
        "hmc": Sample(
            PROBLEM,
            "hmc",
            hmc=Hmc(step_size=0.02, trajectory_length=1.2, num_warmup=50),
            num_chains=4,
            num_draws=200,
            seed=seed,
        ),
        "ensemble": Fit(PROBLEM, "ensemble", Ensemble(), num_members=10, seed=seed),
        "sghmc": Sample(
            PROBLEM,
            "sghmc",
            sghmc=Sghmc(),
            num_chains=4,
            num_draws=200,
            thinning=50,
            seed=seed,
        ),
    }


def demo(command: Demo, console: Console) -> None:
    """Run, or continue, the demo's runs; compare them; write the report."""
    console.print(
        "A reference posterior of a network of 2,410 weights on the digits: four HMC\n"
        "chains, then a deep ensemble and SGHMC to compare with it. Some two minutes.",
        highlight=False,
    )
    paths = []
    for name, planned in commands(command.seed).items():
        console.rule(name, align="left")
        paths.append(_execute(planned, command.out / name, console))
    console.rule("comparison", align="left")
    evaluated = comparing.compare(Compared(tuple(paths)))
    results.write_summary(evaluated, command.out, console)
    results.write_page(evaluated, command.out, console)


def _execute(planned: Sample | Fit, path: Path, console: Console) -> Path:
    """Make the run, or continue it if it was begun with the same options.

    Raises:
        ValueError: if the folder holds a run of other options.
    """
    if (path / "config.json").exists():
        recorded = records.rebuild_command(store.open(path))
        if recorded != planned:
            raise ValueError(
                f"{path} was made with other options, such as another seed. Choose "
                "another `--out`, or remove it."
            )
        planned = type(planned)(resume=path)
    else:
        planned = replace(planned, out=path)
    chains.execute(planned, console)
    return path
