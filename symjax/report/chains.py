"""What the verdict says about the run itself: stuck chains, acceptance, length."""

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from symjax.evaluation.convergence import Convergence, Statistic
from symjax.plots.style import percent
from symjax.report.comparison import Comparison


Tone: TypeAlias = Literal["good", "bad", "note"]

_WANTED_ACCEPTANCE = (0.65, 0.95)

# Vehtari et al. (2021), section 4: 50 for each half chain.
_WANTED_ESS_PER_CHAIN = 100


class Finding(NamedTuple):
    """One point of the verdict, and whether it is good news."""

    tone: Tone
    text: str


def stuck_chains(comparison: Comparison) -> list[int]:
    """The chains that accepted fewer than 1 in 100 proposals after warm-up."""
    if comparison.acceptance is None:
        return []
    return [int(chain) for chain in np.flatnonzero(comparison.acceptance < 0.01)]


def chains_apart(comparison: Comparison) -> list[int]:
    """The chains whose median log density lies far from that of the others.

    Far is ten times the widest interquartile range among the others.
    """
    quartiles = comparison.log_density_quartiles
    if quartiles is None or len(quartiles) < 2:
        return []
    apart = []
    for chain, (_, median, _) in enumerate(quartiles):
        others = np.delete(quartiles, chain, axis=0)
        spread = np.max(others[:, 2] - others[:, 0])
        if abs(median - np.median(others[:, 1])) > 10 * spread:
            apart.append(chain)
    return apart


def trouble(comparison: Comparison) -> list[Finding]:
    """Chains that stand still or sample another region."""
    rates, quartiles = comparison.acceptance, comparison.log_density_quartiles
    stuck, found = stuck_chains(comparison), []
    if stuck and rates is not None:
        be, they, them = (
            ("is", "it", "it") if len(stuck) == 1 else ("are", "they", "them")
        )
        found.append(
            f"{_name(stuck)} {be} stuck: {they} accepted {percent(max(rates[stuck]))} "
            f"of the proposals or less. Running longer does not free {them}; start "
            f"{them} from optimised parameters or make the step size smaller."
        )
    for chain in sorted(set(chains_apart(comparison)) - set(stuck)):
        assert quartiles is not None
        medians = quartiles[:, 1]
        others = np.median(np.delete(medians, chain))
        found.append(
            f"Chain {chain} is apart from the others: its median log density is "
            f"{medians[chain]:,.0f} nats, theirs {others:,.0f}. It samples another "
            "region; give it a longer warm-up or another start."
        )
    return [Finding("bad", text) for text in found]


def acceptance(comparison: Comparison) -> list[Finding]:
    """Are the steps of the right size?"""
    if comparison.acceptance is None:
        return []
    low, high = _WANTED_ACCEPTANCE
    rate = float(np.mean(comparison.acceptance))
    tone: Tone = "good"
    text = f"Acceptance is {rate:.2f}, within the wanted {low} to {high}."
    if rate < low:
        tone = "bad"
        text = (
            f"Acceptance is {rate:.2f}, below {low}: much of the work is thrown away. "
            "Make the step size smaller."
        )
    elif rate > high:
        tone = "note"
        text = (
            f"Acceptance is {rate:.2f}, above {high}: the steps are smaller than need "
            "be. A larger step size covers more ground for the same gradients."
        )
    return [Finding(tone, text)]


def divergences(comparison: Comparison) -> list[Finding]:
    """Did the integrator leave the posterior anywhere?"""
    if comparison.divergences is None:
        return []
    count = int(np.sum(comparison.divergences))
    total = comparison.num_iterations * len(comparison.divergences)
    if not count:
        text = f"None of the {total:,} proposals after warm-up diverged."
        return [Finding("good", text)]
    share = count / total
    text = (
        f"{count:,} of the {total:,} proposals after warm-up diverged "
        f"({percent(share)}): the step size is too large where the posterior is "
        "narrow, and the draws may miss that part."
    )
    return [Finding("bad" if share > 0.01 else "note", text)]


def length(comparison: Comparison) -> list[Finding]:
    """Is the run long enough, and if not, how much longer?"""
    ess = comparison.function.ess_bulk
    values = np.empty(0) if ess is None else flat(ess)
    if not values.size:
        return []
    slow = float(np.quantile(values, 0.05))
    draws = comparison.num_chains * comparison.num_draws
    wanted = _WANTED_ESS_PER_CHAIN * comparison.num_chains
    troubled = bool(stuck_chains(comparison) or chains_apart(comparison))
    if slow >= wanted and not troubled:
        text = (
            "The chains are long enough: 95% of the predictions have an effective "
            f"sample size of {slow:,.0f} or more from {draws:,} draws, and {wanted:,} "
            "is wanted."
        )
        return [Finding("good", text)]
    each = f", {_WANTED_ESS_PER_CHAIN} a chain" if comparison.num_chains > 1 else ""
    text = (
        "The slowest 5% of the predictions have an effective sample size of "
        f"{slow:,.0f} or less from {draws:,} draws; {wanted:,} is wanted{each}. "
    )
    factor = wanted / slow
    if troubled:
        text += "Mend the chains named above first, then run longer."
    elif factor <= 10:
        text += f"Run about {math.ceil(factor)} times as long."
    else:
        text += (
            f"That would take {factor:,.0f} times as many draws: a longer trajectory "
            "or a better step size may get there sooner."
        )
    return [Finding("note", text)]


def flat(statistic: dict[str, Statistic]) -> np.ndarray:
    """All values of a statistic that exist; infinite ones do."""
    leaves = [np.ravel(leaf) for leaf in statistic.values()]
    values = np.concatenate(leaves) if leaves else np.empty(0)
    return values[~np.isnan(values)]


def sample(convergence: Convergence) -> str:
    """What was judged, where it is not all: for the end of a sentence."""
    return (
        f"a random sample of {convergence.num_judged:,} of the "
        f"{convergence.num_quantities:,}"
    )


def _name(chains: list[int]) -> str:
    if len(chains) == 1:
        return f"Chain {chains[0]}"
    return f"Chains {', '.join(map(str, chains[:-1]))} and {chains[-1]}"
