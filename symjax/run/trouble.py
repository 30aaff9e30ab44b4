"""What a user must know about chains that ran: which stand still, which diverged."""

from typing import Any

import numpy as np


def describe_stuck_chains(info: Any, num_discarded: int) -> list[str]:
    """Say which chains stand still, with their numbers.

    Args:
        info: Info with `is_accepted` and `log_density`, fields `(chain, iteration)`;
            of other samplers nothing is said.
        num_discarded: First iterations, which do not count.

    Returns:
        One sentence for each chain that accepted fewer than 1 in 100 proposals.
    """
    if not hasattr(info, "is_accepted"):
        return []
    accepted = info.is_accepted[:, num_discarded:]
    if accepted.shape[1] < 5:
        return []
    share = accepted.mean(axis=1)
    level = np.median(info.log_density[:, num_discarded:], axis=1)
    messages = []
    for chain in np.flatnonzero(share < 0.01):
        others = np.delete(level, chain)
        beside = f", the others' {np.median(others):,.0f}" if len(others) else ""
        messages.append(
            f"Chain {chain} is stuck: it accepted {accepted[chain].sum()} of "
            f"{accepted.shape[1]} proposals; its log density is "
            f"{level[chain]:,.0f}{beside}. Start it from optimised parameters, make "
            "the step size smaller, or give it a warm-up."
        )
    return messages


def describe_divergences(info: Any, num_discarded: int) -> list[str]:
    """Say in which chains proposals diverged, with their numbers.

    Args:
        info: Info with `is_divergent`, fields `(chain, iteration)`; of other samplers
            nothing is said.
        num_discarded: First iterations, which do not count.

    Returns:
        One sentence for each chain with a divergence.
    """
    if not hasattr(info, "is_divergent"):
        return []
    divergent = info.is_divergent[:, num_discarded:]
    return [
        f"Chain {chain}: {count} of {divergent.shape[1]} proposals diverged after "
        "warm-up. Make the step size smaller, or look where the density has an edge."
        for chain, count in enumerate(divergent.sum(axis=1))
        if count
    ]
