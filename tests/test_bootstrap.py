"""Error bars of the comparison with a reference, against repeated experiments."""

import math
import sys

import numpy as np
import pytest

from symjax import evaluation
from symjax.evaluation import bootstrap


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """The same numbers whichever tests ran before."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


def chains(num_chains, num_examples=60, spread=0.1):
    """Two classes; the first has the probability 0.3 and a chain's own shift."""
    p = 0.3 + spread * RNG.normal(size=(num_chains, 1)) + np.zeros(num_examples)
    p = np.clip(p, 0, 1)
    return np.stack([p, 1 - p], axis=2)


def test_values_are_those_of_the_plain_measures():
    p, q = RNG.dirichlet(np.ones(4), (2, 3, 50))
    found = bootstrap.compare_to_reference(p, q)
    plain = p.mean(axis=0), q.mean(axis=0)
    assert found.agreement.value == pytest.approx(evaluation.agreement(*plain))
    want = evaluation.total_variation(*plain)
    assert found.total_variation.value == pytest.approx(want)
    ceiling, between = bootstrap.compare_chains(q), evaluation.between_chains(q)
    assert ceiling.agreement.value == pytest.approx(between.agreement)
    assert ceiling.total_variation.value == pytest.approx(between.total_variation)


def test_error_over_chains_is_that_of_a_mean_of_chains():
    # The method is so far away that total variation is linear in each chain.
    reference = chains(6)
    method = np.broadcast_to([[[1.0, 0.0]]], (1, 60, 2))
    found = bootstrap.compare_to_reference(method, reference, 4000).total_variation
    each = 1 - reference[:, 0, 0]
    want = each.std(ddof=1) / math.sqrt(6)
    # 4,000 replicates give it to 1.1 %, so this is 4.5 standard errors.
    assert found.over_chains == pytest.approx(want, rel=0.05)
    assert found.over_examples == pytest.approx(0, abs=1e-12)
    assert found.standard_error == pytest.approx(want, rel=0.05)


def test_error_over_examples_is_that_of_a_mean_of_examples():
    p, q = RNG.dirichlet(np.ones(3), (2, 1, 400))
    found = bootstrap.compare_to_reference(p, q)
    each = abs(p[0] - q[0]).sum(axis=1) / 2
    want = each.std() / 20
    assert found.total_variation.over_examples == pytest.approx(want, rel=1e-12)
    assert found.total_variation.standard_error == found.total_variation.over_examples
    assert found.total_variation.over_chains is None
    share = found.agreement.value
    want = math.sqrt(share * (1 - share)) / 20
    assert found.agreement.over_examples == pytest.approx(want, rel=1e-9)


def test_error_over_examples_is_of_the_mean_of_the_chains():
    """They are kept; each by itself is further from the method, and varies more."""
    p, q = RNG.dirichlet(np.ones(3), (1, 400)), RNG.dirichlet(np.ones(3), (6, 400))
    found = bootstrap.compare_to_reference(p, q)
    each = abs(p[0] - q.mean(axis=0)).sum(axis=1) / 2
    want = each.std() / 20
    assert found.total_variation.over_examples == pytest.approx(want, rel=1e-12)
    found, others = bootstrap.compare_chains(q), (q.sum(axis=0) - q) / 5
    each = (abs(q - others).sum(axis=2) / 2).mean(axis=0)
    want = each.std() / 20
    assert found.total_variation.over_examples == pytest.approx(want, rel=1e-12)


def test_both_errors_add_up():
    # Examples and chains vary independently: variances add.
    rng = np.random.default_rng(1)
    shift = 0.05 * rng.normal(size=(5, 1)) + 0.4 * rng.random(30)
    reference = np.stack([0.3 + shift, 0.7 - shift], axis=2)
    method = np.broadcast_to([[[1.0, 0.0]]], (1, 30, 2))
    found = bootstrap.compare_to_reference(method, reference, 4000).total_variation
    assert found.over_chains is not None
    want = math.hypot(found.over_chains, found.over_examples)
    assert found.standard_error == pytest.approx(want, rel=0.06)
    # Neither is lost beside the other.
    assert 2 > found.over_examples / found.over_chains > 0.5


def test_ceiling_of_chains_and_equal_seeds():
    q = RNG.dirichlet(np.ones(3), (5, 80))
    found = bootstrap.compare_chains(q, 4000)
    others = (q.sum(axis=0) - q) / 4
    each = abs(q - others).sum(axis=2).mean(axis=1) / 2
    want = each.std(ddof=1) / math.sqrt(5)
    assert found.total_variation.over_chains == pytest.approx(want, rel=0.06)
    assert bootstrap.compare_chains(q, seed=3) == bootstrap.compare_chains(q, seed=3)
    three, four = (bootstrap.compare_chains(q, seed=n).total_variation for n in (3, 4))
    assert three.over_chains != four.over_chains
    assert three.standard_error != four.standard_error


def test_what_does_not_fit_is_refused():
    q = RNG.dirichlet(np.ones(3), (1, 8))
    with pytest.raises(ValueError, match="at least 2 chains; got 1"):
        bootstrap.compare_chains(q)
    with pytest.raises(ValueError, match=r"must have the shape \(7, 3\); got \(8, 3\)"):
        bootstrap.compare_to_reference(q[:, :7], q)
    with pytest.raises(ValueError, match="`reference_probs_by_chain` must be probab"):
        bootstrap.compare_to_reference(q, 2 * q)
