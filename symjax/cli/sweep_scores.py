"""What each run of `symjax sweep` scored, and what may be read from it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from symjax import evaluation, report
from symjax.cli import members, records
from symjax.cli.options import Sample
from symjax.evaluation import Convergence
from symjax.store import Run


METRICS = {"classification": ("accuracy", "nll", "ece"), "regression": ("rmse", "nll")}

CONVERGED = 1.05
"""R-hat above which the chains of a point have not converged."""

SHARE = 0.99
"""Of the predictions, whose R-hats stay below that of a point."""


class Point(NamedTuple):
    """A finished run of the grid and its scores, by metric.

    Attributes:
        temperature: T in posterior^(1/T).
        prior_scale: Of the prior.
        prior_variance: Of one weight; of a normal prior the square of its scale.
        run: Name of its folder.
        rhat: What the R-hats of 99 % of the predictions are at most. Infinite where
            chains stand still; None where it can't be had, as of one chain.
        scores: Of all chains together.
        chain_scores: Of every chain by itself.
    """

    temperature: float
    prior_scale: float
    prior_variance: float
    run: str
    rhat: float | None
    scores: dict[str, float]
    chain_scores: dict[str, list[float]]

    @property
    def is_converged(self) -> bool | None:
        """Whether the chains agree in what they predict; None where it is not known."""
        return None if self.rhat is None else self.rhat < CONVERGED


def score(planned: Sample, kept: Run) -> Point | None:
    """Predict the test points with a run.

    Args:
        planned: What made it.
        kept: The run.

    Returns:
        The point; None if a draw predicts what is not finite.
    """
    built = records.posterior_of(kept)
    dataset = built.dataset
    outputs = evaluation.predict(built.apply, kept.lazy(built.shapes), dataset.test.x)
    if not np.isfinite(outputs).all():
        return None
    targets = np.asarray(dataset.test.y)
    if dataset.target_std is not None:
        targets = targets * dataset.target_std + dataset.target_mean
    method = members.as_method(kept.path.name, built, outputs, None)

    def compare(some: slice) -> report.Comparison:
        part = method._replace(
            outputs=method.outputs[some],
            std=None if method.std is None else method.std[some],
        )
        return report.compare(part, (), targets, task=dataset.task)

    together = compare(slice(None))
    singles = [compare(slice(i, i + 1)).reference for i in range(kept.num_chains)]
    metrics = METRICS[dataset.task]
    return Point(
        temperature=planned.problem.temperature,
        prior_scale=planned.problem.prior_scale,
        # Six digits, for what the distribution gives is in float32.
        prior_variance=float(f"{built.prior_std() ** 2:.6g}"),
        run=kept.path.name,
        rhat=_rhat(together.function),
        scores={m: float(getattr(together.reference, m)) for m in metrics},
        chain_scores={m: [float(getattr(one, m)) for one in singles] for m in metrics},
    )


def findings(points: list[Point]) -> Iterator[str]:
    """For each prior, whether another temperature than one predicts better.

    Among points whose chains have converged: what other chains predict is no property
    of the posterior.
    """
    for scale in sorted({point.prior_scale for point in points}):
        of_scale = [point for point in points if point.prior_scale == scale]
        bayes = [point for point in of_scale if point.temperature == 1]
        if not bayes or len(of_scale) < 2:
            continue
        judged = [point for point in of_scale if point.is_converged]
        left_out = [point for point in of_scale if not point.is_converged]
        name = f"prior scale {scale:g}"
        if bayes[0] in left_out or len(judged) < 2:
            yield (
                f"{name}: temperatures can't be compared, as {_unknown(left_out)}. "
                "More draws, or a longer warm-up, would tell."
            )
            continue
        yield f"{name}: {_best(judged, bayes[0])}"
        if left_out:
            yield f"{name}: left out of this, as {_unknown(left_out)}."


def _best(judged: list[Point], bayes: Point) -> str:
    best = min(judged, key=lambda point: point.scores["nll"])
    if best is bayes:
        return f"NLL is least at T = 1, {_nll(bayes)}."
    kind = "a colder" if best.temperature < 1 else "a warmer"
    return (
        f"{kind} posterior than T = 1 predicts better here: NLL {_nll(best)} at T = "
        f"{best.temperature:g}, {_nll(bayes)} at T = 1."
    )


def _unknown(points: list[Point]) -> str:
    temperatures = ", ".join(f"{point.temperature:g}" for point in points)
    if all(point.rhat is None for point in points):
        return f"R-hat is not known at T = {temperatures}"
    return f"the chains have not converged at T = {temperatures}"


def _nll(point: Point) -> str:
    single = point.chain_scores["nll"]
    if len(single) == 1:
        return f"{point.scores['nll']:.4f}"
    return (
        f"{point.scores['nll']:.4f} (single chains {min(single):.4f} to "
        f"{max(single):.4f})"
    )


def _rhat(convergence: Convergence) -> float | None:
    """That which 99 % of the predictions stay at or below."""
    if convergence.rhat is None:
        return None
    values = np.concatenate([np.ravel(leaf) for leaf in convergence.rhat.values()])
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    # No mean of two values: one of them may be infinite.
    return float(np.quantile(values, SHARE, method="higher"))
