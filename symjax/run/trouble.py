"""What a user must know about chains that ran: which stand still, which diverged."""

from typing import Any

import numpy as np


MIN_SHARE = 0.01
"""A chain stands still if it accepts a smaller share of proposals than this, or if its
trajectories and its log density move by less than this share of the others'."""


def describe(info: Any, num_discarded: int, restart_at: int | None) -> list[str]:
    """Say all of it.

    Args:
        info: As in `describe_stuck_chains`, of all iterations.
        num_discarded: First iterations, which do not count.
        restart_at: The iteration at which stuck chains were restarted, if they were.
    """
    restarts = (
        describe_restarts(info, restart_at // 2, restart_at) if restart_at else []
    )
    return [
        *restarts,
        *describe_stuck_chains(info, num_discarded),
        *describe_divergences(info, num_discarded),
    ]


def find_stuck_chains(info: Any, first: int, last: int) -> np.ndarray:
    """Chains that stand still in the iterations from `first` to before `last`.

    Args:
        info: As in `describe_stuck_chains`.
        first: First iteration that counts.
        last: First that no longer does.

    Returns:
        Their numbers.
    """
    if not hasattr(info, "is_accepted"):
        return np.array([], int)
    info = type(info)(*(field[:, :last] for field in info))
    rejecting, moving = _split(info.is_accepted[:, first:])
    frozen = [chain for chain, *_ in _find_frozen_chains(info, first, moving)]
    return np.sort(np.concatenate([rejecting, np.array(frozen, int)]))


def describe_restarts(info: Any, first: int, last: int) -> list[str]:
    """Say which chains were put where another one was, for what they did before.

    Args:
        info: As in `describe_stuck_chains`.
        first: First iteration that was looked at.
        last: Where they were put there.
    """
    stuck = find_stuck_chains(info, first, last)
    others = np.setdiff1d(np.arange(len(info[0])), stuck)
    if not len(others):
        return [f"All chains were stuck at iteration {last}: none was restarted."]
    return [
        f"Chain {chain} was stuck in its warm-up: it accepted "
        f"{info.is_accepted[chain, first:last].sum()} of {last - first} proposals, its "
        f"log density was {info.log_density[chain, last - 1]:,.0f}. At iteration "
        f"{last} it was restarted where chain {source} was, at "
        f"{info.log_density[source, last - 1]:,.0f}."
        for chain, source in zip(stuck, sources(stuck, others), strict=True)
    ]


def sources(stuck: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which healthy chain each stuck one is restarted from: another one each."""
    return others[np.arange(len(stuck)) % len(others)]


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
    rejecting, moving = _split(accepted)
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
    for chain, change, large, step, usual in _find_frozen_chains(
        info, num_discarded, moving
    ):
        messages.append(
            f"Chain {chain} is stuck: an accepted proposal changes its log density "
            f"by {change:.2g} nats, and that of the others by {large:.2g}; its "
            f"step size is {step:.2g}, theirs {usual:.2g}. Start it from "
            "optimised parameters, or give it a longer warm-up."
        )
    return messages


def _split(accepted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chains that refuse nearly everything, and the rest."""
    is_moving = accepted.mean(axis=1) >= MIN_SHARE
    return np.flatnonzero(~is_moving), np.flatnonzero(is_moving)


def _find_frozen_chains(
    info: Any, num_discarded: int, moving: np.ndarray
) -> list[tuple[Any, ...]]:
    """Which of the chains that accept proposals hardly move for all that.

    Both their trajectories and the changes of their log density must be small beside
    the others': short trajectories are right in a narrow mode, where the log density
    changes as elsewhere, and among chains that still climb one that has arrived changes
    its log density by less.

    Returns:
        Of each: its number, its usual change of the log density and the others', its
        step size and the others'.
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
    found = []
    for i, chain in enumerate(moving):
        far, large, usual = (np.median(np.delete(x, i)) for x in (length, change, step))
        if length[i] < MIN_SHARE * far and change[i] < MIN_SHARE * large:
            found.append((int(chain), change[i], large, step[i], usual))
    return found


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
