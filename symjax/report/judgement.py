"""What the numbers of a comparison mean, in plain words.

Every finding is worked out from the numbers and has a counterpart for when they say the
opposite; what the numbers can't say is named with the reason.
"""

import math

import numpy as np

from symjax.evaluation import Convergence, share_below
from symjax.plots.style import percent
from symjax.report import bias, chains
from symjax.report.chains import Finding, Tone, flat
from symjax.report.comparison import Comparison
from symjax.report.convergence import symmetry
from symjax.report.scores import Scores


_RHAT = 1.05
_ENOUGH = 0.99


def verdict(comparison: Comparison) -> list[str]:
    """The verdict in plain words, one finding an entry."""
    return [finding.text for finding in findings(comparison)]


def findings(comparison: Comparison) -> list[Finding]:
    """The verdict, every finding with its tone."""
    return [
        _predictions(comparison),
        *bias.findings(comparison),
        *chains.trouble(comparison),
        *_weights(comparison),
        *symmetry(comparison),
        *_nearest(comparison),
        *chains.acceptance(comparison),
        *chains.divergences(comparison),
        *chains.length(comparison),
        *_left_out(comparison),
    ]


def nearest(comparison: Comparison) -> list[Scores]:
    """The methods with a distance to the reference, nearest first.

    The distance is total variation, in regression that of the predictive means.
    """
    known = [
        method for method in comparison.methods if math.isfinite(_distance(method))
    ]
    return sorted(known, key=_distance)


def _agree(comparison: Comparison) -> bool | None:
    """Whether the chains agree in what they predict; None where it is not known."""
    share = share_below(comparison.function.rhat, _RHAT)
    return None if share is None else share >= _ENOUGH


def _predictions(comparison: Comparison) -> Finding:
    """Do the chains agree in function space?"""
    function = comparison.function
    share = share_below(function.rhat, _RHAT)
    if share is None:
        reason = function.withheld or "No prediction varies over the draws."
        text = f"Whether the chains agree in what they predict is not known. {reason}"
        return Finding("note", text)
    numbers = _share_text(function, share, "predictions")
    if share < _ENOUGH:
        return Finding(
            "bad",
            f"The chains do not agree in what they predict: {numbers}. Until it is for "
            f"{_ENOUGH:.0%}, their average is no reference, and distances to it say "
            "little about a method.",
        )
    text = f"The chains agree in what they predict: {numbers}."
    between = comparison.between_chains
    if between is not None and between.agreement is not None:
        text += (
            " One chain gives the same class as the others for "
            f"{percent(between.agreement)} of the test points."
        )
    return Finding("good", text)


def _weights(comparison: Comparison) -> list[Finding]:
    """Do they agree in weight space, and what does it mean?"""
    weight, function = comparison.weight, comparison.function
    if weight is None:
        return [Finding("note", "Convergence of the weights was not examined.")]
    share = share_below(weight.rhat, _RHAT)
    if share is None:
        # Where predictions lack an R-hat for the same reason, it has been said.
        if weight.withheld == function.withheld:
            return []
        reason = weight.withheld or "No weight varies over the draws."
        text = f"Whether the chains agree in weight space is not known. {reason}"
        return [Finding("note", text)]
    numbers = _share_text(weight, share, "weights")
    if share >= _ENOUGH:
        text = (
            f"The chains agree in weight space too: {numbers}. They visit one region "
            "of it, which the symmetries of a network rarely allow."
        )
        return [Finding("good", text)]
    text = f"In weight space the chains do not agree: {numbers}. "
    if _agree(comparison) is False:
        text += (
            "Symmetric copies of one solution would differ in weights but not in "
            "predictions. As the predictions differ too, the chains are in different "
            "modes or have not run long enough."
        )
        return [Finding("bad", text)]
    text += (
        "In a network that is no sign of failure: exchanging hidden units together "
        "with their weights leaves its function as it was, so chains settle in "
        "different symmetric copies, or in different modes, and the R-hat of weights "
        "need not come near 1. What counts is what the chains predict."
    )
    return [Finding("note", text)]


def _nearest(comparison: Comparison) -> list[Finding]:
    """Which method comes nearest, and how far is that from the ceiling?"""
    found = [
        Finding(
            "bad",
            f"{method.name} gave predictions that are not finite: it diverged. Make "
            "its step size smaller.",
        )
        for method in comparison.methods
        if not math.isfinite(_distance(method))
    ]
    ranked = nearest(comparison)
    if not ranked:
        return found or [Finding("note", "No method was compared with the reference.")]
    best, rest = ranked[0], ranked[1:]
    text = f"Nearest to the reference is {best.name} ({_distance_text(best)})"
    if rest:
        text += ", then " + ", ".join(f"{m.name} ({_distance(m):.3g})" for m in rest)
    ahead = max(ranked, key=lambda method: method.agreement or 0.0)
    if (ahead.agreement or 0.0) > (best.agreement or 0.0):
        text += f". In agreement {ahead.name} is ahead, with "
        text += percent(ahead.agreement or 0.0)
    tone, ceiling = _ceiling(comparison, best)
    return [*found, Finding(tone, f"{text}. {ceiling}")]


def _ceiling(comparison: Comparison, best: Scores) -> tuple[Tone, str]:
    """How far the nearest method is from what can be reached at all."""
    between = comparison.between_chains
    if between is None:
        return "note", (
            "How near a method can come at all is not known: the ceiling is how near "
            "one chain of the reference comes to the others, and there is one chain."
        )
    ceiling, distance = _distance(between), _distance(best)
    errors = [scores.errors.get("total_variation", 0.0) for scores in (between, best)]
    shown = f"{ceiling:.3g} ± {errors[0]:.1g}" if errors[0] else f"{ceiling:.3g}"
    text = f"One chain of the reference is {shown} from the others, the ceiling: "
    if distance - ceiling > 2 * math.hypot(*errors):
        ratio = distance / ceiling if ceiling else math.inf
        return "note", f"{text}{best.name} is {ratio:.1f} times as far."
    agree = _agree(comparison)
    if agree:
        return "good", f"{text}{best.name} can't be told from another chain."
    doubt = "" if agree is None else ", which says little while the chains disagree"
    where = "nearer than" if distance <= ceiling else "about as far as"
    return "note", f"{text}{best.name} is {where} that{doubt}."


def _left_out(comparison: Comparison) -> list[Finding]:
    """What could not be computed, and why."""
    function, found = comparison.function, []
    if function.num_constant:
        text = (
            "Without an R-hat, because they are the same in every draw: "
            f"{function.num_constant:,} of {function.num_quantities:,} predictions."
        )
        found.append(Finding("note", text))
    # Where R-hat itself is withheld, the first finding has said so.
    if function.withheld and function.rhat is not None:
        found.append(Finding("note", function.withheld))
    return found


def _share_text(convergence: Convergence, share: float, what: str) -> str:
    values = flat(convergence.rhat or {})
    text = (
        f"R-hat is below {_RHAT} for {percent(share)} of {values.size:,} {what} "
        f"(largest {np.max(values):.2f})"
    )
    if convergence.num_judged == convergence.num_quantities:
        return text
    error = 2 * math.sqrt(share * (1 - share) / values.size)
    return (
        f"{text}, from {chains.sample(convergence)}, which puts the share within "
        f"{100 * error:.1g} percentage points"
    )


def _distance_text(method: Scores) -> str:
    if method.total_variation is None or method.agreement is None:
        return (
            f"its predictive means are {_distance(method):.3g} away, root mean square"
        )
    agreement = percent(method.agreement)
    return f"total variation {method.total_variation:.3g}, agreement {agreement}"


def _distance(scores: Scores) -> float:
    """The distance to the reference, NaN where the predictions are not finite."""
    for value in (scores.total_variation, scores.mean_distance):
        if value is not None:
            return value
    return math.nan
