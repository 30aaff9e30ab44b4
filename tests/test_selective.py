"""Risk and coverage against every order of ties, and closed forms."""

import itertools

import numpy as np
import pytest

from symjax.evaluation import selective


def test_risk_is_the_mean_over_all_orders_of_equal_confidences():
    confidence = np.array([0.5, 0.9, 0.5, 0.7, 0.5, 0.9])
    is_correct = np.array([True, False, False, True, False, True])
    curves = []
    for order in itertools.permutations(range(6)):
        placed = list(order)
        placed.sort(key=lambda i: -confidence[i])  # stable: ties in this order
        curves.append(np.cumsum(~is_correct[placed]) / np.arange(1, 7))
    curve = selective.risk_coverage(confidence, is_correct)
    np.testing.assert_allclose(curve.risk, np.mean(curves, axis=0))
    np.testing.assert_allclose(curve.coverage, np.arange(1, 7) / 6)
    area = selective.area_under_risk_coverage(confidence, is_correct)
    assert area == pytest.approx(np.mean(curves))


def test_area_of_a_perfect_and_of_an_ignorant_confidence():
    is_correct = np.arange(1000) >= 200
    ignorant = selective.area_under_risk_coverage(np.ones(1000), is_correct)
    assert ignorant == pytest.approx(0.2)
    # All errors last: (1 - a) + a log a with a the accuracy, for many examples.
    perfect = selective.area_under_risk_coverage(is_correct.astype(float), is_correct)
    ordered = selective.area_under_risk_coverage(np.arange(1000.0), is_correct)
    assert perfect == pytest.approx(0.2 + 0.8 * np.log(0.8), abs=1e-3)
    assert ordered == pytest.approx(perfect, abs=1e-12)
    worst = selective.area_under_risk_coverage(-np.arange(1000.0), is_correct)
    assert worst == pytest.approx(0.2 - 0.2 * np.log(0.2), abs=1e-3)


def test_no_examples_and_nan_are_refused():
    with pytest.raises(ValueError, match="at least one example"):
        selective.risk_coverage(np.ones(0), np.ones(0, bool))
    with pytest.raises(ValueError, match="`confidence` must be finite; 1 of 2"):
        selective.risk_coverage(np.array([1, np.nan]), np.ones(2, bool))


def test_what_is_no_truth_value_is_refused():
    # ~1 is -2: an array of 0 and 1 would give a wrong risk.
    plain = selective.risk_coverage.__wrapped__
    with pytest.raises(TypeError, match="`is_correct` must be true or false; got int"):
        plain(np.ones(2), np.ones(2, int))
    with pytest.raises(ValueError, match=r"`is_correct` must have the shape \(2,\)"):
        plain(np.ones(2), np.ones(3, bool))
