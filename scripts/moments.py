"""Means, standard deviations and quantiles of draws, and how far they are from others.

Standard errors are ArviZ's, by effective sample size. Read by the scripts that check
and measure the samplers.
"""

import warnings
from typing import NamedTuple

import numpy as np


with warnings.catch_warnings():  # It announces its next version to whoever imports it.
    warnings.simplefilter("ignore")
    import arviz


STATISTICS = ("mean", "sd", "q05", "q95")


class Moments(NamedTuple):
    """Values and standard errors of `STATISTICS`; errors are 0 where it is exact."""

    values: np.ndarray
    errors: np.ndarray


def of_draws(x):
    """Those of one quantity, `(chain, draw)`."""
    x = np.asarray(x, np.float64)
    values = np.array([x.mean(), x.std(ddof=1), *np.quantile(x, [0.05, 0.95])])
    if x.std() == 0:
        return Moments(values, np.full(4, np.nan))
    errors = [
        _number(arviz.mcse(x, method="mean")),
        # Of the mean square, over 2 sd: ArviZ's own "sd" takes the draws for normal.
        _number(arviz.mcse((x - x.mean()) ** 2, method="mean")) / (2 * x.std()),
        _number(arviz.mcse(x, method="quantile", prob=0.05)),
        _number(arviz.mcse(x, method="quantile", prob=0.95)),
    ]
    return Moments(values, np.array(errors))


def scores(ours, reference):
    """Differences in units of the joint standard error, for each statistic."""
    return (ours.values - reference.values) / np.hypot(ours.errors, reference.errors)


def sample_size(x):
    """Bulk effective sample size of one quantity, `(chain, draw)`."""
    return _number(arviz.ess(np.asarray(x, np.float64), method="bulk"))


def rhat(x):
    """Rank-normalised R-hat of one quantity, `(chain, draw)`."""
    return _number(arviz.rhat(np.asarray(x, np.float64)))


def _number(value):
    """ArviZ's statistics have an axis of their own where Numba is installed."""
    return float(np.ravel(value)[0])


def table(header, rows):
    """A table in Markdown, numbers to the right."""
    aligned = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, aligned, *rows))
