"""What a user must know about chains that ran: which stand still, which diverged."""

from typing import Any

import numpy as np


MIN_SHARE = 0.01
"""A chain stands still if it accepts a smaller share of proposals than this, or if its
trajectories and its log density move by less than this share of the others'."""


def describe_stuck_chains(info: Any, num_discarded: int) -> list[str]:
    """Say which chains stand still, with their numbers.

    Args:
        info: Info with `is_accepted` and `log_density`, fields `(chain, iteration)`;
            of other samplers nothing is said. With `step_size` and `num_steps` too, a
            chain is found whose step became tiny: it accepts everything.
        num_discarded: First iterations, which do not count.

    Returns:
        One sentence for each chain that accepted fewer than 1 in 100 proposals, or
        moves less than a hundredth as far as the others.
    """
    if not hasattr(info, "is_accepted"):
        return []
    accepted = info.is_accepted[:, num_discarded:]
    if accepted.shape[1] < 5:
        return []
    rejecting = np.flatnonzero(accepted.mean(axis=1) < MIN_SHARE)
    level = np.median(info.log_density[:, num_discarded:], axis=1)
    messages = []
    for chain in rejecting:
        others = np.delete(level, chain)
        beside = f", the others' {np.median(others):,.0f}" if len(others) else ""
        messages.append(
            f"Chain {chain} is stuck: it accepted {accepted[chain].sum()} of "
            f"{accepted.shape[1]} proposals; its log density is "
            f"{level[chain]:,.0f}{beside}. Start it from optimised parameters, make "
            "the step size smaller, or give it a warm-up."
        )
    moving = np.setdiff1d(np.arange(len(accepted)), rejecting)
    return messages + _describe_frozen_chains(info, num_discarded, moving)


def _describe_frozen_chains(
    info: Any, num_discarded: int, moving: np.ndarray
) -> list[str]:
    """Say which of the chains that accept proposals hardly move for all that.

    Both their trajectories and the changes of their log density must be small beside
    the others': short trajectories are right in a narrow mode, where the log density
    changes as elsewhere, and among chains that still climb one that has arrived changes
    its log density by less.
    """
    if not hasattr(info, "step_size") or not hasattr(info, "num_steps"):
        return []
    if len(moving) < 2:
        return []
    after = slice(num_discarded, None)
    step = np.median(info.step_size[moving, after], axis=1)
    length = step * np.median(info.num_steps[moving, after], axis=1)
    accepted = info.is_accepted[:, after]
    gain = np.diff(info.log_density, prepend=info.log_density[:, :1])[:, after]
    change = np.array([np.median(np.abs(gain[i][accepted[i]])) for i in moving])
    messages = []
    for i, chain in enumerate(moving):
        far, large, usual = (np.median(np.delete(x, i)) for x in (length, change, step))
        if length[i] < MIN_SHARE * far and change[i] < MIN_SHARE * large:
            messages.append(
                f"Chain {chain} is stuck: an accepted proposal changes its log density "
                f"by {change[i]:.2g} nats, and that of the others by {large:.2g}; its "
                f"step size is {step[i]:.2g}, theirs {usual:.2g}. Start it from "
                "optimised parameters, or give it a longer warm-up."
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
