"""OOD scores and detection against scikit-learn, closed forms and float64."""

import math
import sys

import numpy as np
import pytest
from scipy import special, stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from symjax.evaluation import ood, summarise_predictions


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """The same numbers whichever tests ran before."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


def sets_of_scores():
    rounded = RNG.normal(size=300).round(1)
    yield RNG.normal(size=200), 0.8 + RNG.normal(size=331)
    yield rounded[:120], rounded[120:] + 0.3  # many ties, in and between the sets
    yield np.zeros(20), np.zeros(13)  # a score that knows nothing
    yield np.arange(19.0), np.arange(30.0)  # 95 % of 19 is no whole number
    yield np.array([1.0]), np.array([2.0])
    yield RNG.normal(size=40) + 9, RNG.normal(size=60)  # the wrong way around


@pytest.mark.parametrize("case", range(6))
def test_detection_agrees_with_scikit_learn(case):
    inside, outside = list(sets_of_scores())[case]
    found = ood.detect(inside, outside)
    scores = np.concatenate([inside, outside])
    is_out = np.arange(scores.size) >= inside.size
    assert found.auroc == pytest.approx(roc_auc_score(is_out, scores))
    assert found.aupr_out == pytest.approx(average_precision_score(is_out, scores))
    assert found.aupr_in == pytest.approx(average_precision_score(~is_out, -scores))
    false, true, _ = roc_curve(~is_out, -scores, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(false[true >= 0.95 - 1e-12].min())


def test_auroc_is_that_of_two_normals():
    # Phi(shift / sqrt 2); the bound is 5 standard errors.
    inside, outside = RNG.normal(size=20_000), 1 + RNG.normal(size=20_000)
    want = stats.norm.cdf(1 / math.sqrt(2))
    assert ood.detect(inside, outside).auroc == pytest.approx(want, abs=5 * 0.0025)
    passing = stats.norm.cdf(stats.norm.ppf(0.95) - 1)
    assert ood.detect(inside, outside).fpr95 == pytest.approx(passing, abs=0.03)


def test_detection_refuses_what_it_would_misread():
    with pytest.raises(ValueError, match="at least one score each; got 0 and 2"):
        ood.detect(np.ones(0), np.ones(2))
    with pytest.raises(ValueError, match="`out_scores` must be finite; 1 of 2"):
        ood.detect(np.ones(2), np.array([1, np.nan]))


def test_scores_of_probabilities_are_lowest_for_certainty():
    probs = np.array([[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(ood.max_softmax_probability(probs), [0, 0.75, 0.5])
    entropy = ood.predictive_entropy(probs)
    np.testing.assert_allclose(entropy, [0, math.log(4), math.log(2)])


def test_energy_is_of_the_mean_logits():
    logits = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
    mean = logits.astype(float).reshape(6, 5, 4).mean(axis=0)
    want = -np.log(np.exp(mean).sum(axis=1))
    np.testing.assert_allclose(ood.energy(logits), want, rtol=1e-12)
    found = ood.energy(summarise_predictions(logits))
    np.testing.assert_allclose(found, want, rtol=1e-12)
    own = -special.logsumexp(logits.astype(float), axis=3).mean(axis=(0, 1))
    assert (ood.energy(logits) > own).all()
    huge = np.full((1, 1, 1, 2), 1000, np.float32)
    np.testing.assert_allclose(ood.energy(huge), [-1000 - math.log(2)])


def test_mutual_information_is_the_disagreement_of_the_draws():
    # Two draws, each certain: of one class, and of different ones.
    logits = np.array([[[[99, 0], [99, 0]], [[99, 0], [0, 99]]]], np.float32)
    found = ood.mutual_information(logits)
    np.testing.assert_allclose(found, [0, math.log(2)], atol=1e-12)
