"""Figures from arrays: every function returns a matplotlib `Figure`, none reads a file.

The figures are built on matplotlib's object-oriented interface, so drawing one changes
no global state and needs no display.
"""

from symjax.plots.chains import (
    acceptance,
    log_density,
    quantities,
    rhat,
    slowest_weights,
)
from symjax.plots.panels import pairs, risk_coverage
from symjax.plots.pareto import pareto
from symjax.plots.predictions import disagreements, intervals, reliability, scores
from symjax.plots.sweeps import sweep
