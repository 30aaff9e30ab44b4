"""Calibration against scikit-learn and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from symjax.evaluation import calibration


@pytest.fixture
def predictions():
    """Probabilities with some on bin edges, a certainty among them, and labels."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(4, 0.4), 400)
    probs[:3] = [[0.6, 0.4, 0, 0], [0.8, 0.1, 0.1, 0], [1, 0, 0, 0]]
    labels = np.array([rng.choice(4, p=p) for p in probs])
    return probs, labels


@pytest.mark.parametrize("num_bins", [1, 5, 15])
def test_reliability_curve_agrees_with_scikit_learn(predictions, num_bins):
    probs, labels = predictions
    curve = calibration.reliability_curve(probs, labels, num_bins)
    correct = probs.argmax(axis=1) == labels
    accuracy, confidence = calibration_curve(
        correct, probs.max(axis=1), n_bins=num_bins
    )
    filled = curve.count > 0
    np.testing.assert_allclose(curve.accuracy[filled], accuracy)
    np.testing.assert_allclose(curve.confidence[filled], confidence)
    assert np.isnan(curve.accuracy[~filled]).all()
    assert curve.count.sum() == len(labels)
    error = curve.count[filled] @ abs(accuracy - confidence) / len(labels)
    np.testing.assert_allclose(
        calibration.expected_calibration_error(probs, labels, num_bins), error
    )


def test_every_point_counts():
    # All certain, 3 of 10 wrong: a bin open at 1 would lose them and report 0.
    probs = jnp.eye(3)[jnp.zeros(10, int)]
    labels = jnp.array([0] * 7 + [1, 2, 2])
    error = calibration.expected_calibration_error(probs, labels)
    assert error == pytest.approx(0.3, abs=1e-12)
    # float32 rounding above 1 still has a bin.
    above = np.array([[1 + 1e-6, 0]], np.float32)
    assert calibration.reliability_curve(above, np.array([0]), 2).count.tolist() == [
        0,
        1,
    ]


def test_bins_are_closed_on_the_right():
    curve = calibration.reliability_curve(
        np.array([[0.5, 0.5], [0.75, 0.25]]), np.array([0, 0]), num_bins=4
    )
    np.testing.assert_array_equal(curve.count, [0, 1, 1, 0])


def test_brier_score_is_the_sum_over_classes(predictions):
    probs, labels = predictions
    expected = sum(brier_score_loss(labels == c, probs[:, c]) for c in range(4))
    assert calibration.brier_score(probs, labels) == pytest.approx(expected)
    wrong = np.eye(2)[[0, 1]]
    assert calibration.brier_score(wrong, np.array([1, 0])) == 2


@pytest.mark.parametrize(
    "metric",
    [
        calibration.brier_score,
        calibration.expected_calibration_error,
        calibration.reliability_curve,
    ],
)
@pytest.mark.parametrize(
    ("probs", "labels", "name"),
    [
        ([[0.5, 0.6]], [0], "`probs`"),
        ([[1.5, -0.5]], [0], "`probs`"),
        ([[np.nan, 1.0]], [0], "`probs`"),
        ([[0.5, 0.5]], [2], "`labels`"),
        ([[0.5, 0.5]], [-1], "`labels`"),
        ([[0.5, 0.5]], [0, 1], "`labels`"),
    ],
)
def test_names_the_bad_argument(metric, probs, labels, name):
    with pytest.raises(ValueError, match=name):
        metric(np.array(probs), np.array(labels))


def test_bins_are_at_least_one():
    with pytest.raises(ValueError, match="`num_bins`"):
        calibration.reliability_curve(np.eye(2), np.array([0, 1]), 0)
