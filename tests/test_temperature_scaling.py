"""Temperature scaling against a dense search in float64, and labels of known origin."""

import sys

import numpy as np
import pytest
from scipy import special

from symjax.evaluation import temperature_scaling


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """The same numbers whichever tests ran before."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


def labels_of(logits):
    probs = special.softmax(logits, axis=-1)
    return (probs.cumsum(axis=-1) > RNG.random((len(probs), 1))).argmax(axis=-1)


def nll(logits, labels, temperature):
    log_probs = special.log_softmax(logits.astype(float) / temperature, axis=-1)
    members = log_probs.reshape(-1, *logits.shape[2:])
    of_label = members[:, np.arange(len(labels)), labels]
    return np.log(len(members)) - special.logsumexp(of_label, axis=0).mean()


@pytest.mark.parametrize("num_members", [1, 6])
def test_fit_minimises_the_mixtures_negative_log_likelihood(num_members):
    truth = 2 * RNG.normal(size=(400, 5))
    labels = labels_of(truth)
    noise = 0.3 * (num_members > 1) * RNG.normal(size=(2, num_members, 400, 5))
    logits = (3 * (truth + noise)).astype(np.float32)
    found = temperature_scaling.fit(logits, labels)
    grid = found * np.exp(np.linspace(-1, 1, 401))
    values = [nll(logits, labels, t) for t in grid]
    assert abs(int(np.argmin(values)) - 200) <= 1
    beside = [nll(logits, labels, found * factor) for factor in (0.999, 1.001)]
    assert nll(logits, labels, found) < min(beside)


def test_fit_finds_the_temperature_that_made_the_labels():
    # Its standard error, from the curvature of the likelihood, is about 0.015.
    truth = 2 * RNG.normal(size=(20_000, 4))
    logits = (2.5 * truth).astype(np.float32)[None, None]
    found = temperature_scaling.fit(logits, labels_of(truth))
    assert found == pytest.approx(2.5, abs=0.12)


def test_fit_stops_at_the_ends_of_its_range():
    logits = np.array([[[[1, 0], [0, 1]]]], np.float32)
    assert temperature_scaling.fit(logits, np.array([0, 1])) == pytest.approx(1 / 20)
    assert temperature_scaling.fit(logits, np.array([1, 0])) == pytest.approx(20)


def test_cross_fit_scales_each_half_by_the_other():
    logits = RNG.normal(size=(2, 3, 101, 4)).astype(np.float32)
    labels = labels_of(logits[0, 0])
    scaled = temperature_scaling.cross_fit(logits, labels)
    assert (scaled.shape, scaled.dtype) == (logits.shape, np.float32)
    even = temperature_scaling.fit(logits[:, :, ::2], labels[::2])
    odd = temperature_scaling.fit(logits[:, :, 1::2], labels[1::2])
    np.testing.assert_allclose(scaled[:, :, ::2], logits[:, :, ::2] / odd, rtol=1e-6)
    np.testing.assert_allclose(scaled[:, :, 1::2], logits[:, :, 1::2] / even, rtol=1e-6)
    assert abs(even / odd - 1) > 0.01
    with pytest.raises(ValueError, match="two examples or more.*got 1"):
        temperature_scaling.cross_fit(logits[:, :, :1], labels[:1])
