"""What to say of a run that accepted far less than its warm-up aimed at."""

from typing import Any

import numpy as np

from symjax.cli.options import Sample
from symjax.run import trouble


SHORTFALL = 0.15
"""Below the target by so much, something is wrong and not only uneven."""

LEAST = 20
"""Proposals of all chains, for a mean whose standard error is half of that."""


def describe_shortfall(command: Sample, info: Any, num_discarded: int) -> list[str]:
    """Say that steps are too large for where the chains are, or their force too rough.

    Args:
        command: What was run; nothing is said where no step size was adapted.
        info: Info with `acceptance_rate`, fields `(chain, iteration)`.
        num_discarded: First iterations, which do not count; nor do chains that stand
            still, of which others speak.

    Returns:
        One sentence or none.
    """
    options = getattr(command, command.sampler)
    target = getattr(options, "target_acceptance", None)
    if target is None or not options.num_warmup:
        return []
    num_iterations = info.acceptance_rate.shape[1]
    if num_iterations <= num_discarded:
        return []
    stuck = trouble.find_stuck_chains(info, num_discarded, num_iterations)
    rates = np.delete(info.acceptance_rate, stuck, axis=0)[:, num_discarded:]
    if rates.size < LEAST or np.mean(rates) >= target - SHORTFALL:
        return []
    precision = command.problem.force_precision
    is_rounded = precision not in (None, "float32")
    rounding = (
        f", or the rounding of the force ({precision}) spoils the energy and smaller "
        "steps are in vain, as they would not be with --force-precision float32"
    )
    return [
        f"Acceptance was {np.mean(rates):.0%}, where the warm-up aimed at "
        f"{target:.0%}. The draws are sound, but cost more than they need: the warm-up "
        f"of {options.num_warmup} iterations ended with steps too large for where the "
        f"chains are now, and could be longer{rounding if is_rounded else ''}."
    ]
