"""Whether the rounding of the force spoils the energy, and smaller steps are in vain.

Looked at when a run is finished, and only where its acceptance is low. A leapfrog's own
error in the energy falls to a quarter with half the step size, and with it the share of
proposals that are refused; what a rounded force adds stays as it is.
"""

from typing import Any

import jax
import numpy as np
from rich.console import Console

from symjax import hosts, run, store
from symjax.cli import bias, methods, starts
from symjax.cli.options import Sample
from symjax.cli.posteriors import Posterior
from symjax.types import Algorithm


SAMPLERS = ("hmc", "dynamic_hmc")

SHORTFALL = 0.15
"""Acceptance is low so far below its target. By itself it says little: after a short
warm-up that of full float32 is, too."""

NUM_TRIES = 5
"""Trajectories of each chain with half the step size."""

MOST = 0.5
"""Of the run's share of refused proposals, with half the step size: more is rounding.
On concrete, digits and breast cancer it was 1.0 to 1.3 where a float16, float16x2 or
bfloat16 force was too rough, and 0.1 and 0.25 where steps were too large."""


def check(
    command: Sample, built: Posterior, path: store.Place, info: Any, console: Console
) -> None:
    """Warn of a force that is too rough for a finished run.

    Args:
        command: What was run.
        built: Its posterior.
        path: The run directory.
        info: Of all iterations, fields `(chain, iteration)`.
        console: For what is said.
    """
    precision = command.problem.force_precision
    if command.sampler not in SAMPLERS or precision in (None, "float32"):
        return
    options = getattr(command, command.sampler)
    kept, low = store.open(path), options.target_acceptance - SHORTFALL
    usual = np.mean(info.acceptance_rate[:, kept.num_discarded :])
    if not options.num_warmup or hosts.share(bool(usual >= low)):
        return
    tried = _halve(command, built, kept)
    rate = np.mean(tried.acceptance_rate)
    if 1 - rate <= MOST * (1 - usual) or np.any(tried.is_divergent):
        return
    console.print(
        f"[bold]Warning:[/bold] the rounding of the force, {precision}, spoils the "
        f"energy: {usual:.0%} of proposals were accepted, where the warm-up aimed at "
        f"{options.target_acceptance:.0%}, and with half the step size {rate:.0%}. The "
        "draws are sound, but smaller steps are in vain: begin a run with "
        "--force-precision float32.",
        highlight=False,
    )


def _halve(command: Sample, built: Posterior, kept: store.Run) -> Any:
    """Info of trajectories from where the chains ended, with half the step size."""
    algorithm: Any = methods.build(command, built)

    def begin(key: Any, state: Any, data: Any) -> Any:
        del key, data
        half = state.adaptation.step_size / 2
        return state._replace(adaptation=state.adaptation._replace(step_size=half))

    return run.sample(
        jax.random.fold_in(jax.random.key(command.seed), 1),
        Algorithm(begin, algorithm.step),
        bias.last_state(command, built, kept),
        built.dataset.train,
        num_draws=NUM_TRIES,
        mesh=starts.make_mesh(command),
        chains_at_once=command.processes.chains_at_once,
        show_progress=False,
    ).info
