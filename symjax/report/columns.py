"""Which numbers stand beside each other: the small tables that make the comparison."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from symjax.report.comparison import Comparison
from symjax.report.distances import MOST_DRAWS
from symjax.report.scores import OOD_SCORE, Scores, value


class Column(NamedTuple):
    """A column: its heading, its name in `Scores`, whether more or less is better.

    Attributes:
        heading: As it is shown.
        key: What `scores.value` takes.
        show: From a number to its text.
        better: `max` or `min`; None where there is no better.
        p_value: Name of the p-value shown beside it; None where there is none.
    """

    heading: str
    key: str
    show: Callable[[float], str]
    better: Callable[..., float] | None
    p_value: str | None = None


class Section(NamedTuple):
    """A table: its title, its columns, and how to read it."""

    title: str
    columns: tuple[Column, ...]
    reading: str


_SHARE = "{:.1%}".format
_FOUR = "{:.4f}".format
_SMALL = "{:z.4f}".format

_SMALL_P_VALUE = 0.01

_QUALITY = (
    Column("accuracy ↑", "accuracy", _SHARE, max),
    Column("RMSE ↓", "rmse", "{:.4g}".format, min),
    Column("NLL ↓", "nll", _FOUR, min),
    Column("Gaussian NLL ↓", "gaussian_nll", _FOUR, min),
    Column("ECE ↓", "ece", _FOUR, min),
    Column("ACE ↓", "ace", _FOUR, min),
    Column("Brier ↓", "brier", _FOUR, min),
    Column("AURC ↓", "aurc", _FOUR, min),
)
_LIKENESS = (
    Column("agreement ↑", "agreement", _SHARE, max),
    Column("total variation ↓", "total_variation", _FOUR, min),
    Column("distance of means ↓", "mean_distance", "{:.3g}".format, min),
    Column("W1 per point ↓", "wasserstein", "{:.3g}".format, min),
)
_DRAWS = tuple(
    Column(f"{heading} ↓", f"mmd_{space}", _SMALL, min, f"mmd/{space}/p_value")
    for heading, space in {
        "predictions": "function",
        "weights": "weight",
        "aligned": "aligned",
        "canonical": "canonical",
    }.items()
)
_DIVERSITY = (
    Column("mutual information", "mutual_information", _FOUR, None),
    Column("disagreement", "disagreement", _SHARE, None),
)
_COST = (
    Column("full gradients", "gradients", "{:,.0f}".format, None),
    Column("seconds", "seconds", "{:,.0f}".format, None),
)
_SHIFTED = {
    "accuracy": ("Accuracy ↑", _SHARE, max),
    "nll": ("NLL ↓", _FOUR, min),
    "ece": ("ECE ↓", _FOUR, min),
}

_READINGS = {
    "Quality": (
        "On the test points. NLL (nats) is that of the average of the draws' "
        "predictive densities; ECE and ACE are the calibration errors with bins of "
        "equal width and of equal counts, AURC is the area under the risk-coverage "
        "curve."
    ),
    "Quality, regression": (
        "On the test points, in units of the targets. NLL (nats) is that of the "
        "average of the draws' predictive densities, Gaussian NLL that of one Gaussian "
        "with the same mean and variance."
    ),
    "To the reference": (
        "Between chains is each chain of the reference to the others together: the "
        "ceiling. ± is one standard error, by bootstrap over the test points and the "
        "reference's chains."
    ),
    "To the reference, regression": (
        "Distance of means is the root mean squared distance to the reference's "
        "predictive means, W1 the Wasserstein distance of the predictive distribution, "
        "noise included, to the reference's, averaged over test points; both are in "
        "units of the targets. A file of means alone has no W1 to a reference whose "
        "noise is known; where neither has a noise, W1 is of the draws as they are."
    ),
    "Draws": (
        "MMD² is the squared maximum mean discrepancy of the draws to those of the "
        "reference, of at most {most} of each: around 0 for one distribution, 2 at "
        "most. {weights}p is how often sets made by exchanging whole chains or members "
        "are as far apart{smallest}. Between chains is each chain to the others."
    ),
    "Weights": (
        "Weights are as they were drawn, aligned (of the symmetric copies of a network "
        "the nearest to one of the reference), and canonical (one form of all networks "
        "that symmetries make equal: where scalings are among these, which change the "
        "density, a summary of functions and no draw of the posterior). "
    ),
    "Diversity": (
        "Mutual information (nats) of the class and the draw, and the share of test "
        "points on which two draws give different classes; neither is better by "
        "itself."
    ),
    "Cost": (
        "Gradients of the whole training set, warm-up and optimised starts included, a "
        "minibatch counted by its share of the examples."
    ),
}


def sections(comparison: Comparison) -> list[Section]:
    """The tables of a comparison, without those and without columns of no number."""
    regression = ", regression" if comparison.task == "regression" else ""
    drawn = [
        Section("Quality", _QUALITY, _READINGS[f"Quality{regression}"]),
        Section(
            "To the reference", _LIKENESS, _READINGS[f"To the reference{regression}"]
        ),
        Section("MMD² to the reference", _DRAWS, _about_draws(comparison)),
        Section("Diversity", _DIVERSITY, _READINGS["Diversity"]),
        *map(_out_of_distribution, _names(comparison, "ood")),
        *_shifted(comparison),
        Section("Cost", _COST, _READINGS["Cost"]),
    ]
    every = all_scores(comparison, with_ceiling=True)
    known = [
        section._replace(
            columns=tuple(c for c in section.columns if _is_known(c, every))
        )
        for section in drawn
    ]
    return [section for section in known if section.columns]


def all_scores(
    comparison: Comparison, *, with_ceiling: bool = False
) -> tuple[Scores, ...]:
    """The reference, the methods, and the ceiling if asked and there is one."""
    between = comparison.between_chains if with_ceiling else None
    last = () if between is None else (between,)
    return (comparison.reference, *comparison.methods, *last)


def notes(comparison: Comparison) -> list[str]:
    """What is to be said of all tables."""
    text = "↑ more is better, ↓ less is better; the best of a column is marked"
    if any(scores.errors for scores in all_scores(comparison)):
        text += (
            ", and where there are errors, what is within two standard errors of the "
            "difference to it"
        )
    found = [f"{text}."]
    if any(scores.num_seeds > 1 for scores in comparison.methods):
        found.append(
            "Runs that differ in their seed only make one row: the mean over the seeds "
            "± its standard error."
        )
    return found


def _out_of_distribution(name: str) -> Section:
    prefix = f"ood/{name}/{OOD_SCORE}"
    measures = {
        "AUROC ↑": ("auroc", max),
        "AUPR, in ↑": ("aupr_in", max),
        "AUPR, out ↑": ("aupr_out", max),
        "FPR95 ↓": ("fpr95", min),
    }
    columns = [
        Column(heading, f"{prefix}/{measure}", _SHARE, better)
        for heading, (measure, better) in measures.items()
    ]
    information = Column(
        "mutual information", f"ood/{name}/mean_mutual_information", _FOUR, None
    )
    return Section(
        f"Out of distribution: {name}",
        (*columns, information),
        "The test points told from those inputs by the predictive entropy; the other "
        "scores are in the summary and the CSV file. In and out say which of the two "
        "counts as positive in AUPR; FPR95 is the share of the others taken for test "
        "points when 95% of the test points are.",
    )


def _shifted(comparison: Comparison) -> list[Section]:
    """One table a measure, a column a corruption."""
    names = _names(comparison, "shift")
    return [
        Section(
            f"{title[:-2]} under shift",
            tuple(
                Column(f"{name} {title[-1]}", f"shift/{name}/mean/{measure}", *shown)
                for name in names
            ),
            f"On corrupted test points, {_severities(comparison)}each is in the "
            "summary and the CSV file.",
        )
        for measure, (title, *shown) in _SHIFTED.items()
        if names
    ]


def _names(comparison: Comparison, kind: str) -> list[str]:
    """The sets of other inputs, or the corruptions, in the order they were given."""
    keys = [
        key.split("/")
        for scores in all_scores(comparison)
        for key in scores.details
        if key.startswith(f"{kind}/")
    ]
    return list(dict.fromkeys(name for _, name, *_ in keys))


def _severities(comparison: Comparison) -> str:
    found = {
        key.split("/")[2]
        for scores in all_scores(comparison)
        for key in scores.details
        if key.startswith("shift/")
    }
    known = sorted(found - {"mean"})
    if len(known) == 1:
        return f"all of severity {known[0]}; "
    return f"the mean over the severities {', '.join(known)}; "


def _is_known(column: Column, every: Sequence[Scores]) -> bool:
    return any(value(scores, column.key) is not None for scores in every)


def _about_draws(comparison: Comparison) -> str:
    """How to read MMD: of which draws, and how small a p-value can be."""
    of_weights = any(m.mmd_weight is not None for m in comparison.methods)
    smallest = [
        number
        for scores in comparison.methods
        for key, number in scores.details.items()
        if key.endswith("/smallest_p_value")
    ]
    worst = max(smallest, default=0.0)
    text = ""
    if worst > _SMALL_P_VALUE:
        text = f", which of few chains can't be small, here not below {worst:.2g}"
    return _READINGS["Draws"].format(
        most=MOST_DRAWS,
        weights=_READINGS["Weights"] if of_weights else "",
        smallest=text,
    )
