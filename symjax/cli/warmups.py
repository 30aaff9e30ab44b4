"""`--warmup auto`: what a sampler begins with, picked from the starts of its chains."""

from dataclasses import replace
from typing import Any

from rich.console import Console

from symjax import hosts, tuning
from symjax.cli import starts
from symjax.cli.methods import UNADJUSTED
from symjax.cli.options import Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.samplers import ghmc
from symjax.types import Params


TUNED = ("hmc", "dynamic_hmc", "nuts", "chees", "split_hmc", "mala")
"""Samplers that begin with a leapfrog step."""

NUM_WARMUP = {"diagonal": 500, "low_rank": 500}
"""Iterations that a mass matrix takes to be learnt: four of Stan's windows."""


def check(command: Sample) -> None:
    """Require what the warm-up takes, before any chain is optimised.

    Raises:
        ValueError: if a sampler has nothing to pick or too few chains, or if its chains
            can't be restarted.
    """
    if command.warmup == "auto" and command.sampler not in TUNED:
        raise ValueError(
            f"`--warmup auto` is for {', '.join(TUNED)}, got {command.sampler}. "
            "Leave it out: mclmc, adjusted_mclmc and ghmc find their own, and the "
            "others take what they are given."
        )
    if command.restart_stuck and command.sampler in UNADJUSTED:
        raise ValueError(
            f"`--restart-stuck` must be left out for {command.sampler}: chains without "
            "accept step do not stand still."
        )
    needs_spread = command.sampler == "ghmc" and command.ghmc.num_warmup
    least = ghmc.LEAST_CHAINS if needs_spread else 1 + (command.sampler == "chees")
    if command.num_chains < least:
        raise ValueError(
            f"`--num-chains` must be at least {least} for the warm-up of "
            f"{command.sampler}, which uses their spread, got {command.num_chains}."
        )


def with_num_warmup(command: Sample | Fit, console: Console) -> Sample | Fit:
    """The command; a default warm-up grows to what is to be learnt in it.

    That is a mass matrix, or the step size from where `--warmup auto` has it begin.
    """
    if not isinstance(command, Sample):
        return command
    given: Any = getattr(command, command.sampler)
    matrix = getattr(given, "mass_matrix", "unit")
    if matrix in NUM_WARMUP:
        number, why = NUM_WARMUP[matrix], f"a {matrix} mass matrix is learnt in windows"
    elif command.warmup == "auto":
        number, why = tuning.NUM_WARMUP, tuning.WHY_NUM_WARMUP
    else:
        return command
    if given.num_warmup != type(given)().num_warmup or number <= given.num_warmup:
        return command
    console.print(f"Picked {number} iterations of warm-up: {why}.", highlight=False)
    return replace(command, **{command.sampler: replace(given, num_warmup=number)})


def picks_step_size(command: Sample) -> bool:
    """Whether the first step size is yet to be found from the starts."""
    given: Any = getattr(command, command.sampler)
    return command.warmup == "auto" and given.step_size == type(given)().step_size


def tune(command: Sample, built: Posterior, params: Params, console: Console) -> Sample:
    """The command with what was picked, which is said.

    Args:
        command: What was asked; options that differ from their defaults stay.
        built: Its posterior.
        params: Where the chains start.
        console: For what is said.
    """
    suggestion = tuning.suggest(
        built.log_posterior,
        params,
        built.dataset.train,
        prior_std=built.prior_std(),
        mesh=starts.make_mesh(command),
        chains_at_once=command.processes.chains_at_once,
    )
    given: Any = getattr(command, command.sampler)
    step, length, _ = suggestion.reasons
    said, picked = [], {}
    if picks_step_size(command):
        size = suggestion.step_size
        is_mala = command.sampler == "mala"
        picked["step_size"] = size**2 / 2 if is_mala else size
        said.append(f"{step}; MALA's e is half its square" if is_mala else step)
    matrix = getattr(given, "mass_matrix", "unit")
    if getattr(given, "trajectory_length", None) == "rule" and matrix == "unit":
        said.append(length)
    picked = hosts.share(picked)
    for sentence in said:
        console.print(f"Picked {sentence}.", highlight=False)
    return replace(command, **{command.sampler: replace(given, **picked)})
