"""What a run cost, counted by hand."""

from unittest.mock import Mock

import numpy as np
import pytest

from symjax import isokinetic
from symjax.cli import costs
from symjax.cli.analyses import Import
from symjax.cli.options import Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.samplers import split_hmc
from symjax.store import Run


def cost(command, config=(), *, logs_steps=True):
    """Of two chains of five iterations of seven steps, with 12 examples and padding."""
    kept = Mock(spec=Run, num_chains=2, config=dict(config))
    kept.fields = {"num_steps": None} if logs_steps else {}
    kept.info.return_value = {"num_steps": np.full((2, 5), 7)}
    kept.committed = Mock(iteration=5)
    built = Mock(spec=Posterior)
    built.dataset.train.mask = np.arange(15) < 12
    return costs.full_gradients(kept, command, built)


STARTS = 2 * 50


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        ("hmc", 70),
        ("nuts", 70),
        ("adjusted_mclmc", 70 * isokinetic.GRADIENTS_PER_STEP),
        ("split_hmc", 70 * split_hmc.gradients_per_step(Sample().split_hmc.num_blocks)),
    ],
)
def test_the_steps_that_chains_logged_and_their_starts_count(sampler, expected):
    command = Sample(sampler=sampler, start="map", map_steps=50)
    assert cost(command) == pytest.approx(expected + STARTS)
    command = Sample(sampler=sampler, start="init")
    assert cost(command) == pytest.approx(expected)


def test_a_gradient_of_a_few_examples_counts_as_their_share():
    command = Sample(sampler="sgld", start="map", map_steps=50)
    batch = command.sgld.batch_size
    assert cost(command, logs_steps=False) == pytest.approx(10 * batch / 12 + STARTS)
    fit = Fit(method="ensemble")
    batch = fit.ensemble.batch_size
    assert cost(fit, logs_steps=False) == pytest.approx(10 * batch / 12)


def test_what_is_no_run_of_its_own_has_no_cost():
    assert cost(Sample(), {"aligned": {}}) is None
    assert cost(Mock(spec=Import)) is None
