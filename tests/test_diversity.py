"""Diversity of members against brute force in float64 and closed forms."""

import itertools
import math
import sys

import numpy as np
import pytest
from scipy import special
from scipy.spatial.distance import jensenshannon

from symjax.evaluation import diversity, summarise_predictions


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """The same numbers whichever tests ran before."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


def softmax(logits):
    return special.softmax(logits.astype(float), axis=-1).reshape(-1, *logits.shape[2:])


def test_mutual_information_is_the_mean_divergence_from_the_average():
    logits = 3 * RNG.normal(size=(2, 5, 40, 4)).astype(np.float32)
    probs = softmax(logits)
    want = special.rel_entr(probs, probs.mean(axis=0)).sum(axis=2).mean(axis=0)
    found = diversity.mutual_information(logits)
    np.testing.assert_allclose(found, want, rtol=1e-10)
    again = diversity.mutual_information(summarise_predictions(logits))
    np.testing.assert_array_equal(again, found)


def test_mutual_information_is_stable():
    # Classes of probability exp(-200), and members that differ by 1e-4.
    logits = RNG.normal(size=(1, 1, 50, 3)) * [[[[1, 1, 100]]]]
    near = np.concatenate([logits, logits + 1e-4 * RNG.normal(size=logits.shape)], 1)
    probs = softmax(near)
    want = special.rel_entr(probs, probs.mean(axis=0)).sum(axis=2).mean(axis=0)
    found = diversity.mutual_information(near)
    np.testing.assert_allclose(found, want, atol=2e-15)
    same = diversity.mutual_information(np.repeat(logits.astype(np.float32), 7, axis=1))
    assert abs(same).max() < 1e-14


@pytest.mark.parametrize("num_draws", [1, 3, 7])
def test_pairs_are_those_of_two_members_in_order(num_draws):
    logits = 2 * RNG.normal(size=(num_draws, num_draws, 30, 4)).astype(np.float32)
    logits = (
        logits if num_draws > 1 else np.repeat(logits, 2, axis=1) * [[[[1]], [[2]]]]
    )
    probs = softmax(logits)
    want = [
        np.mean(jensenshannon(probs[i], probs[j], axis=1) ** 2)
        for i, j in itertools.combinations(range(len(probs)), 2)
    ]
    found = diversity.pairwise_mutual_information(logits)
    np.testing.assert_allclose(found, want, atol=1e-6)
    few = diversity.pairwise_mutual_information(logits, max_examples=4)
    kept = diversity.pairwise_mutual_information(logits[:, :, [0, 9, 19, 29]])
    np.testing.assert_array_equal(few, kept)
    assert abs(few - found).max() > 1e-3


def test_pairs_count_the_values_of_the_last_block(monkeypatch):
    monkeypatch.setattr(diversity, "_BLOCK_VALUES", 1)  # 64 values at a time
    logits = 2 * RNG.normal(size=(1, 3, 33, 3)).astype(np.float32)
    logits[..., -6:, :] *= 9
    probs = softmax(logits)
    want = [
        np.mean(jensenshannon(probs[i], probs[j], axis=1) ** 2)
        for i, j in itertools.combinations(range(3), 2)
    ]
    found = diversity.pairwise_mutual_information(logits)
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_of_more_than_a_thousand_examples_a_thousand_are_used():
    logits = 2 * RNG.normal(size=(1, 3, 1001, 3)).astype(np.float32)
    found = diversity.pairwise_mutual_information(logits)
    kept = np.linspace(0, 1000, 1000).astype(int)
    assert len(set(kept)) == 1000
    want = diversity.pairwise_mutual_information(logits[:, :, kept], max_examples=None)
    np.testing.assert_array_equal(found, want)
    all_used = diversity.pairwise_mutual_information(logits, max_examples=None)
    assert abs(all_used - found).max() > 1e-5


def test_pairs_reach_both_ends_of_their_range():
    certain = np.zeros((1, 3, 7, 2), np.float32)
    certain[0, :2, :, 0], certain[0, 2, :, 1] = 500, 500
    found = diversity.pairwise_mutual_information(certain)
    np.testing.assert_allclose(found, [0, math.log(2), math.log(2)], atol=1e-6)


def test_pairs_of_many_examples_lose_nothing_to_float32():
    logits = RNG.normal(size=(1, 2, 20_000, 10)).astype(np.float32)
    logits[0, 1] = logits[0, 0] + 0.1 * RNG.normal(size=(20_000, 10))
    want = diversity.mutual_information(logits).mean()
    found = diversity.pairwise_mutual_information(logits, max_examples=None)
    assert found[0] == pytest.approx(want, abs=2e-7)


def test_disagreement_is_the_mean_over_pairs():
    logits = RNG.normal(size=(2, 4, 60, 3)).astype(np.float32)
    chosen = logits.reshape(8, 60, 3).argmax(axis=2)
    pairs = [np.mean(a != b) for a, b in itertools.combinations(chosen, 2)]
    assert diversity.disagreement(logits) == pytest.approx(np.mean(pairs), rel=1e-12)
    summary = summarise_predictions(logits)
    assert diversity.disagreement(summary) == pytest.approx(np.mean(pairs), rel=1e-12)


def test_one_member_is_too_few():
    one = np.zeros((1, 1, 3, 2), np.float32)
    for measure in (diversity.disagreement, diversity.pairwise_mutual_information):
        with pytest.raises(ValueError, match="at least two draws.*got 1"):
            measure(one)
