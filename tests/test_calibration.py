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


def test_bins_are_fifteen_where_nothing_is_said(predictions):
    # Guo et al. (2017), section 3, and most tables since.
    probs, labels = predictions[0][3:], predictions[1][3:]
    correct = probs.argmax(axis=1) == labels
    accuracy, confidence = calibration_curve(correct, probs.max(axis=1), n_bins=15)
    count = np.histogram(probs.max(axis=1), np.linspace(0, 1, 16))[0]
    want = count[count > 0] @ abs(accuracy - confidence) / len(labels)
    error = calibration.expected_calibration_error(probs, labels)
    assert error == pytest.approx(want, rel=1e-12)
    assert len(calibration.reliability_curve(probs, labels).count) == 15
    for measure in (
        calibration.classwise_calibration_error,
        calibration.adaptive_calibration_error,
        calibration.decompose_brier,
    ):
        assert measure(probs, labels) == measure(probs, labels, 15)
        assert measure(probs, labels) != measure(probs, labels, 10)


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


def test_adaptive_error_agrees_with_scikit_learn(predictions):
    probs, labels = predictions
    probs, labels = probs[3:303], labels[3:303]  # no ties, and 300 divides
    gaps = []
    for k in range(4):
        share, mean = calibration_curve(
            labels == k, probs[:, k], n_bins=10, strategy="quantile"
        )
        assert len(share) == 10
        gaps.append(abs(share - mean))
    found = calibration.adaptive_calibration_error(probs, labels, num_bins=10)
    assert found == pytest.approx(np.mean(gaps), rel=1e-12)


def test_adaptive_error_does_not_depend_on_the_order_of_equal_probabilities():
    probs = np.array([[0.7, 0.3]] * 6 + [[0.2, 0.8]] * 3)
    labels = np.array([0, 0, 0, 0, 1, 1, 0, 1, 1])
    by_hand = np.mean([abs(1 / 3 - 0.2), abs(2 / 3 - 0.7), abs(2 / 3 - 0.7)])
    order = np.random.default_rng(0).permutation(9)
    for places in (np.arange(9), order):
        found = calibration.adaptive_calibration_error(probs[places], labels[places], 3)
        assert found == pytest.approx(by_hand, rel=1e-12)


def test_classwise_error_agrees_with_scikit_learn(predictions):
    probs, labels = predictions
    for threshold in (0.0, 0.1):
        errors = []
        for k in range(4):
            kept = probs[:, k] >= threshold
            p, outcome = probs[kept, k], labels[kept] == k
            share, mean = calibration_curve(outcome, p, n_bins=8)
            count = np.histogram(p, np.nextafter(np.linspace(0, 1, 9), 2))[0]
            count[0] += (p == 0).sum()
            count = count[count > 0]
            errors.append(count @ abs(share - mean) / p.size)
        found = calibration.classwise_calibration_error(
            probs, labels, num_bins=8, threshold=threshold
        )
        assert found == pytest.approx(np.mean(errors), rel=1e-12)


def test_a_threshold_leaves_small_probabilities_out_of_the_adaptive_error():
    # By hand: at 0.25 class 0 keeps 4 examples, in bins 0.4, 0.5 and 0.9, 0.9.
    probs = np.array([[0.1, 0.9], [0.4, 0.6], [0.5, 0.5], [0.9, 0.1], [0.9, 0.1]])
    labels = np.array([1, 1, 0, 0, 1])
    want = np.mean([abs(0.5 - 0.45), abs(0.5 - 0.9), abs(0.5 - 0.55), abs(1 - 0.9)])
    found = calibration.adaptive_calibration_error(probs, labels, 2, threshold=0.25)
    # Class 1 keeps 0.5, 0.6 | 0.9: the first bin holds one more.
    assert found == pytest.approx(want, rel=1e-12)


def test_too_few_points_for_a_bin_says_so():
    probs, labels = np.full((5, 2), 0.5), np.array([0, 1, 0, 1, 0])
    with pytest.raises(ValueError, match="too few points: 5 examples, for 6 bins of o"):
        calibration.adaptive_calibration_error(probs, labels, num_bins=6)
    some = np.array([[0.4, 0.6]] * 2 + [[0.7, 0.3]] * 3)
    with pytest.raises(ValueError, match="Class 1 has too few points: 2 of 5.* 3 bins"):
        calibration.adaptive_calibration_error(some, labels, 3, threshold=0.4)
    with pytest.raises(ValueError, match=r"Class 0 .* 0 of 5 .*`threshold` = 0.6"):
        calibration.classwise_calibration_error(probs, labels, threshold=0.6)
    with pytest.raises(ValueError, match="`threshold` must lie in"):
        calibration.classwise_calibration_error(probs, labels, threshold=1.0)


def test_brier_decomposition_is_murphys_where_a_bin_holds_one_probability():
    rng = np.random.default_rng(1)
    forecasts = np.array([[0.1, 0.3, 0.6], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    which = rng.integers(3, size=500)
    labels = np.array([rng.choice(3, p=forecasts[i][::-1]) for i in which])
    probs = forecasts[which]
    parts = calibration.decompose_brier(probs, labels, num_bins=20)
    truth = np.eye(3)[labels]
    climate = truth.mean(axis=0)
    # Murphy (1973), by the distinct forecasts of each class.
    assert parts.reliability == pytest.approx(
        sum(
            np.mean((probs[:, k] - _share(probs[:, k], truth[:, k])) ** 2)
            for k in range(3)
        ),
        rel=1e-12,
    )
    assert parts.uncertainty == pytest.approx(1 - climate @ climate, rel=1e-12)
    assert parts.within_bins == pytest.approx(0, abs=1e-15)
    score = parts.reliability - parts.resolution + parts.uncertainty
    assert score == pytest.approx(calibration.brier_score(probs, labels), rel=1e-12)


def _share(p, outcome):
    """For every example the frequency where the forecast is the same."""
    return np.array([outcome[p == value].mean() for value in p])


@pytest.mark.parametrize("num_bins", [1, 4, 15])
def test_brier_parts_add_up(predictions, num_bins):
    probs, labels = predictions
    parts = calibration.decompose_brier(probs, labels, num_bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(calibration.brier_score(probs, labels), rel=1e-12)
    binary = np.stack([1 - probs[:, 0], probs[:, 0]], axis=1)
    is_zero = (labels == 0).astype(int)
    parts = calibration.decompose_brier(binary, is_zero, num_bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(2 * brier_score_loss(is_zero, binary[:, 1]))
    if num_bins == 1:
        assert parts.resolution == pytest.approx(0, abs=1e-15)
