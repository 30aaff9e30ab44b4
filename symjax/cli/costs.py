"""What a run cost, in gradients of the whole training set."""

import numpy as np

from symjax import isokinetic
from symjax.cli import fitting, methods
from symjax.cli.analyses import Import
from symjax.cli.options import Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.samplers import split_hmc
from symjax.store import Run


def full_gradients(
    kept: Run, command: Sample | Fit | Import, built: Posterior
) -> float | None:
    """The gradients of all chains or members, each counted by its share of examples.

    Warm-up, optimised starts and the curvature of a Laplace approximation count, and
    what the chains logged of their lengths; the check of a step size's bias does not.
    An anchor's own gradients, one of all examples now and then, are left out. None for
    aligned draws, which are no run of their own, and for imported ones. What a run
    says itself counts where another program made it.
    """
    if "gradients" in kept.config:
        return float(kept.config["gradients"])
    if "aligned" in kept.config or isinstance(command, Import):
        return None
    size, total = methods.batch_size(command), int(built.dataset.train.mask.sum())
    share = 1.0 if size is None else size / total
    cost = share * _gradients(kept, command, built)
    if isinstance(command, Fit):
        cost += fitting.gradients_at_end(command, built) * kept.num_chains
    if isinstance(command, Sample) and command.start == "map":
        cost += command.map_steps * kept.num_chains
    return cost


def _gradients(kept: Run, command: Sample | Fit, built: Posterior) -> float:
    """Of all chains, whatever their batches."""
    if isinstance(command, Sample) and "num_steps" in kept.fields:
        return float(np.sum(kept.info()["num_steps"], dtype=float)) * _per_step(command)
    each = methods.gradients_per_iteration(command, built)
    return float(each * kept.committed.iteration * kept.num_chains)


def _per_step(command: Sample) -> float:
    """Gradients of one of the steps that a chain logs."""
    if command.sampler == "adjusted_mclmc":
        return float(isokinetic.GRADIENTS_PER_STEP)
    if command.sampler == "split_hmc":
        return split_hmc.gradients_per_step(command.split_hmc.num_blocks)
    return 1.0
