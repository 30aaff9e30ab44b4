"""The examples in the docstrings of the measures run, and give what they say."""

import doctest

import pytest

from symjax.evaluation import (
    bootstrap,
    calibration,
    diversity,
    ood,
    selective,
    temperature_scaling,
)
from symjax.evaluation.discrepancy import chains, kernels, projections
from symjax.evaluation.predictive import regression, summary


@pytest.mark.parametrize(
    "module",
    [
        bootstrap,
        calibration,
        chains,
        diversity,
        kernels,
        ood,
        projections,
        regression,
        selective,
        summary,
        temperature_scaling,
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_examples_run(module):
    tested = doctest.testmod(module)
    assert tested.attempted > 0
    assert tested.failed == 0
