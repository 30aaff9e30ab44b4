"""What the step-halving check of an unadjusted sampler found, in plain words."""

from typing import Literal

from symjax.evaluation import SpreadComparison
from symjax.plots.style import percent
from symjax.report.chains import Finding
from symjax.report.comparison import Comparison


def findings(comparison: Comparison) -> list[Finding]:
    """One finding for each unadjusted sampler, the reference first.

    Those that were not checked share one.
    """
    every = (comparison.reference, *comparison.methods)
    unchecked = [scores.name for scores in every if scores.bias == "unchecked"]
    checked = [
        bias_finding(scores.name, scores.bias)
        for scores in every
        if isinstance(scores.bias, SpreadComparison)
    ]
    if len(unchecked) < 2:
        return [*checked, *(bias_finding(name, "unchecked") for name in unchecked)]
    names = f"{', '.join(unchecked[:-1])} and {unchecked[-1]}"
    text = (
        f"{names} have no accept step, so that their step sizes bias them, which no "
        "R-hat shows. By how much was not checked; symjax sample --resume makes up for "
        "that, except of the published baselines."
    )
    return [*checked, Finding("note", text)]


def bias_finding(name: str, found: SpreadComparison | Literal["unchecked"]) -> Finding:
    """Whether the step size of a sampler biases it."""
    if found == "unchecked":
        return Finding(
            "note",
            f"{name} has no accept step, so that its step size biases it, which no "
            "R-hat shows. By how much was not checked; symjax sample --resume makes up "
            "for that, except of the published baselines.",
        )
    change = 1 / found.ratio - 1
    measured = (
        f"with half the step size its predictive spread is {percent(abs(change))} "
        f"{'larger' if change > 0 else 'smaller'} (± "
        f"{percent(2 * found.error / found.ratio)})"
    )
    if found.verdict == "small":
        text = f"The bias of {name} by its step size is small: {measured}."
        return Finding("good", text)
    if found.verdict == "biased":
        text = f"{name} is biased by its step size: {measured}. Make that smaller."
        return Finding("bad", text)
    text = (
        f"Whether {name} is biased by its step size is not clear: {measured}. More "
        "draws would tell."
    )
    return Finding("note", text)
