"""What is said of a run that accepted less than its warm-up aimed at."""

import re
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
from commands import symjax

from symjax.cli.acceptance import describe_shortfall
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Sample
from symjax.cli.problem import Problem


PROBLEM = Problem(data="diabetes")

WORDS = (
    "sample", "--data", "diabetes", "--widths", 2, "--num-chains", 2, "--num-draws", 12,
    "--noise", 1, "--start", "map", "--map-steps", 100,
    "--hmc.trajectory-length", 0.6, "--hmc.num-warmup", 1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("step_size", "precision", "said"),
    [
        (0.04, "float32", "and could be longer. Finished"),
        (0.04, "tensorfloat32", "longer, or the rounding of the force (tensorfloat32)"),
        (0.002, "float32", ""),
    ],
)
def test_low_acceptance_is_said_with_its_reasons(
    step_size, precision, said, tmp_path, capsys
):
    words = "--hmc.step-size", step_size, "--force-precision", precision
    symjax(*WORDS, *words, "--out", tmp_path / "run")
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert ("where the warm-up aimed at 80%" in out) == bool(said)
    assert said in out


def test_a_run_leaves_out_its_own_warm_up(tmp_path, monkeypatch):
    left_out = []
    note = lambda command, info, num_discarded: left_out.append(num_discarded) or []
    monkeypatch.setattr("symjax.cli.acceptance.describe_shortfall", note)
    symjax(*WORDS, "--hmc.step-size", 0.002, "--out", tmp_path / "run")
    assert left_out == [1]


@pytest.mark.parametrize(
    ("after", "count", "is_said"),
    [(0.64, 10, True), (0.66, 10, False), (0.0, 9, False)],
)
def test_only_iterations_after_the_warm_up_count(after, count, is_said):
    rates = np.concatenate([np.ones((2, 50)), np.full((2, count), after)], axis=1)
    hmc = Sample(PROBLEM, "hmc", hmc=Hmc(num_warmup=50))
    info = SimpleNamespace(acceptance_rate=rates)
    assert bool(describe_shortfall(hmc, info, 50)) == is_said


def test_chains_that_stand_still_do_not_count():
    rates = np.repeat([[0.0], [0.9]], 40, axis=1)
    Info = namedtuple("Info", ["acceptance_rate", "is_accepted"])
    hmc = Sample(PROBLEM, "hmc", hmc=Hmc(num_warmup=5))
    one = Info(rates, rates > 0.5)
    assert not describe_shortfall(hmc, one, 5)
    none = Info(0 * rates, np.zeros_like(rates, bool))
    assert not describe_shortfall(hmc, none, 5)
    moving = Info(0.5 * np.ones_like(rates), np.ones_like(rates, bool))
    assert describe_shortfall(hmc, moving, 5)
    assert not describe_shortfall(hmc, moving, 40)


def test_nothing_is_said_where_nothing_was_aimed_at():
    info = SimpleNamespace(acceptance_rate=np.zeros((2, 50)))
    fixed = Sample(PROBLEM, "hmc", hmc=Hmc(num_warmup=0))
    assert not describe_shortfall(fixed, info, 0)
    assert not describe_shortfall(Sample(PROBLEM, "sgld"), SimpleNamespace(), 0)
