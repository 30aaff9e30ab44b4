"""Predictions and their quality, against loops, scikit-learn, SciPy, closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from sklearn.metrics import accuracy_score, log_loss

from symjax.evaluation import predictive, transport


def network(params, x):
    hidden = jnp.tanh(x @ params["in"]["kernel"])
    return hidden @ params["out"]


def some_draws(num_chains=2, num_draws=7):
    rng = np.random.default_rng(0)
    return {
        "in": {"kernel": rng.normal(size=(num_chains, num_draws, 5, 8)).astype("f4")},
        "out": rng.normal(size=(num_chains, num_draws, 8, 3)).astype("f4"),
    }


class Stored:
    """Draws that are read when indexed, and remember what was asked of them."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.read = []

    def __getitem__(self, index):
        self.read.append(index)
        return self.array[index]


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(23, 5)).astype("f4")


@pytest.fixture
def expected(x):
    draws = some_draws()
    kernel, out = draws["in"]["kernel"], draws["out"]
    return np.einsum("cdnh,cdho->cdno", np.tanh(x @ kernel), out)


@pytest.mark.parametrize("batch_size", [None, 4, 100])
@pytest.mark.parametrize("max_bytes", [1, 8192, 2**28])
def test_predict_is_the_loop_over_draws(x, expected, batch_size, max_bytes):
    logits = predictive.predict(
        network, some_draws(), x, batch_size=batch_size, max_bytes=max_bytes
    )
    assert isinstance(logits, np.ndarray)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


# A draw takes 64 weights and 23 x 3 outputs, an example 19 values, of 4 bytes: 12
# examples and a draw, or all 23 and three draws of seven, fit.
@pytest.mark.parametrize(("max_bytes", "batch"), [(1500, 12), (8192, 23)])
def test_predict_bounds_its_batches_and_compiles_once(x, expected, max_bytes, batch):
    traced = []

    def counted(params, x):
        traced.append(x.shape[0])
        return network(params, x)

    draws = jax.tree.map(jnp.asarray, some_draws())
    logits = predictive.predict(counted, draws, x, max_bytes=max_bytes)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    # One example to plan with, then one program.
    assert traced == [1, batch]


def test_predict_multiplies_in_full_float32(x):
    """A GPU's own TF32 would answer for a network that was not sampled."""
    precisions = []

    def watched(params, x):
        precisions.append(jax.config.jax_default_matmul_precision)
        return network(params, x)

    predictive.predict(watched, some_draws(), x)
    # The first is of the plan, which computes nothing.
    assert precisions[1:] == ["highest"]


def test_predict_takes_kernels_one_by_one(monkeypatch):
    shapes = []
    convolve = jax.lax.conv_general_dilated_p.bind
    monkeypatch.setattr(
        jax.lax.conv_general_dilated_p,
        "bind",
        lambda maps, kernel, **options: (
            shapes.append(kernel.shape) or convolve(maps, kernel, **options)
        ),
    )
    rng = np.random.default_rng(0)
    images = rng.normal(size=(5, 6, 4)).astype("f4")
    kernels = rng.normal(size=(2, 3, 3, 4, 2)).astype("f4")

    @jax.jit
    def network(kernel, x):
        axes = ("NWC", "WIO", "NWC")
        maps = jax.lax.conv_general_dilated(x, kernel, (1,), "VALID", None, None, axes)
        return jnp.sum(jnp.maximum(maps, 0), axis=1)

    logits = predictive.predict(network, kernels, images)
    windows = np.stack([images[:, i : i + 4] for i in range(3)], axis=1)
    maps = np.einsum("ntwi,cdtio->cdnwo", windows, kernels)
    expected = np.maximum(maps, 0).sum(axis=3)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    # A batch of kernels would be one with the outputs of all of them.
    assert set(shapes) == {(3, 4, 2)}


def test_predict_reads_draws_a_group_at_a_time(x, expected):
    stored = jax.tree.map(Stored, some_draws())
    done = []
    logits = predictive.predict(
        network,
        stored,
        x,
        max_bytes=8192,
        progress=lambda *counts: done.append(counts),
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    reads = stored["out"].read
    assert len(reads) == len(done) == 6
    assert all(part.stop - part.start <= 3 for _, part in reads)
    assert done[-1] == (14, 14)
    assert [count for count, _ in done] == sorted(count for count, _ in done)


def test_predict_names_the_bad_argument(x):
    with pytest.raises(ValueError, match="`apply`"):
        predictive.predict(lambda p, x: network(p, x).sum(), some_draws(), x)
    with pytest.raises(ValueError, match="`draws`"):
        predictive.predict(network, some_draws() | {"out": np.ones((2, 6, 8, 3))}, x)
    with pytest.raises(ValueError, match="`draws`"):
        predictive.predict(network, {}, x)
    with pytest.raises(ValueError, match="`x`"):
        predictive.predict(network, some_draws(), x[:0])
    with pytest.raises(ValueError, match="`batch_size`"):
        predictive.predict(network, some_draws(), x, batch_size=0)


@pytest.fixture
def logits():
    return np.random.default_rng(2).normal(0, 3, (3, 5, 40, 4)).astype("f4")


@pytest.fixture
def labels():
    return np.random.default_rng(3).integers(0, 4, 40)


def test_quality_agrees_with_scikit_learn(logits, labels):
    probs = predictive.probs_from_logits(jnp.asarray(logits))
    by_hand = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(predictive.probs_by_draw(logits), by_hand, rtol=1e-5)
    np.testing.assert_allclose(
        predictive.probs_by_chain(logits), by_hand.mean(axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(probs, by_hand.mean(axis=(0, 1)), rtol=1e-5)
    assert predictive.accuracy(probs, labels) == accuracy_score(
        labels, probs.argmax(axis=1)
    )
    assert predictive.negative_log_likelihood(logits, labels) == pytest.approx(
        log_loss(labels, probs, labels=range(4)), rel=1e-6
    )


def test_nll_is_finite_where_probabilities_underflow():
    wrong = np.array([1e4, 0.0], "f4")
    labels = jnp.array([1])
    nll = predictive.negative_log_likelihood(wrong.reshape(1, 1, 1, 2), labels)
    assert nll == pytest.approx(1e4)
    # One draw of two is sure and right: half the mixture is 1, so log 2.
    both = np.stack([wrong, -wrong]).reshape(1, 2, 1, 2)
    nll = predictive.negative_log_likelihood(both, labels)
    assert nll == pytest.approx(np.log(2))


P = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3]])
Q = np.array([[0.4, 0.5, 0.1], [0.1, 0.6, 0.3]])


def test_agreement_and_total_variation():
    assert predictive.agreement(P, jnp.asarray(Q)) == 0.5
    assert predictive.total_variation(P, Q) == pytest.approx((0.3 + 0.1) / 2)
    certain = np.eye(3)[[0, 1]]
    assert predictive.total_variation(certain, np.eye(3)[[1, 2]]) == 1


def test_each_chain_is_compared_with_the_mean_of_the_others():
    chains = np.stack([P, P, Q])
    # P against (P + Q) / 2, twice; Q against P. The halves' first classes: 0.55, 0.55.
    result = predictive.between_chains(chains)
    assert result.total_variation == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert result.agreement == pytest.approx((1 + 1 + 0.5) / 3)
    apart = predictive.chain_disagreement(chains)
    np.testing.assert_allclose(apart, [(0.15 * 2 + 0.3) / 3, (0.05 * 2 + 0.1) / 3])
    same = predictive.between_chains(np.stack([P, P]))
    assert same == (1, 0)
    with pytest.raises(ValueError, match="`probs_by_chain`"):
        predictive.between_chains(P[None])


@pytest.fixture
def regression():
    rng = np.random.default_rng(4)
    mean = rng.normal(size=(2, 6, 9, 2))
    std = rng.uniform(0.2, 1.5, mean.shape)
    return mean, std, rng.normal(size=(9, 2))


def test_regression_agrees_with_scipy(regression):
    mean, std, y = regression
    assert predictive.rmse(mean, y) == pytest.approx(
        np.sqrt(np.mean((mean.mean(axis=(0, 1)) - y) ** 2))
    )
    density = stats.norm.pdf(y, mean, std).prod(axis=-1).mean(axis=(0, 1))
    assert predictive.gaussian_mixture_nll(mean, std, y) == pytest.approx(
        -np.log(density).mean()
    )
    # The mixture's moments, E[y] and E[y^2] - E[y]^2.
    first, second = mean.mean(axis=(0, 1)), (mean**2 + std**2).mean(axis=(0, 1))
    one = stats.norm.logpdf(y, first, np.sqrt(second - first**2))
    assert predictive.moment_matched_nll(mean, std, y) == pytest.approx(
        -one.sum(axis=-1).mean()
    )


def test_regression_densities_agree_for_one_draw_only():
    mean, std, y = jnp.zeros((1, 1, 3)), jnp.ones((1, 1, 3)), jnp.array([0.0, 1.0, 2.0])
    expected = -stats.norm.logpdf([0, 1, 2]).mean()
    assert predictive.gaussian_mixture_nll(mean, std, y) == pytest.approx(expected)
    assert predictive.moment_matched_nll(mean, std, y) == pytest.approx(expected)
    far = 1e3 + y  # the density underflows, its logarithm does not
    assert np.isfinite(predictive.gaussian_mixture_nll(mean, std, far))


def test_the_summary_is_that_of_loops_over_draws(monkeypatch):
    rng = np.random.default_rng(0)
    values = (4 * rng.normal(size=(2, 9, 37, 5))).astype("f4")
    values[0, 0, :3] = 0  # equal classes: the first counts
    labels = rng.integers(5, size=37)
    for block_values in (2**17, 5 * 8 * 4, 1):  # one block, several, one value
        monkeypatch.setattr(predictive.summary, "_BLOCK_VALUES", block_values)
        found = predictive.summarise_predictions(values, labels)
        probs = special.softmax(values.astype(float), axis=3)
        np.testing.assert_allclose(found.probs_by_chain, probs.mean(axis=1), rtol=1e-12)
        np.testing.assert_allclose(found.probs, probs.mean(axis=(0, 1)), rtol=1e-12)
        entropy = special.entr(probs).sum(axis=3).mean(axis=(0, 1))
        np.testing.assert_allclose(found.mean_entropy, entropy, rtol=1e-11)
        mean = values.astype(float).mean(axis=(0, 1))
        np.testing.assert_allclose(found.mean_logits, mean, rtol=1e-12, atol=1e-14)
        votes = (values.argmax(axis=3)[..., None] == np.arange(5)).sum(axis=(0, 1))
        np.testing.assert_array_equal(found.votes, votes)
        of_label = np.log(probs[:, :, np.arange(37), labels])
        np.testing.assert_allclose(found.log_likelihood, of_label, rtol=1e-10)
    unlabelled = predictive.summarise_predictions(values)
    with pytest.raises(ValueError, match="`labels` must be given"):
        _ = unlabelled.negative_log_likelihood
    nll = predictive.negative_log_likelihood(values, labels)
    assert nll == pytest.approx(log_loss(labels, probs.mean(axis=(0, 1))), rel=1e-12)
    with pytest.raises(ValueError, match="at least one draw of one example"):
        predictive.summarise_predictions(values[:, :0])


@pytest.mark.parametrize("sizes", [(30, 30), (12, 18), (1, 7), (6, 3)])
def test_wasserstein_per_point_agrees_with_scipy(sizes, monkeypatch):
    rng = np.random.default_rng(sum(sizes))
    one, two = (rng.normal(size=(n, 11)).round(1) for n in sizes)
    want = [stats.wasserstein_distance(a, b) for a, b in zip(one.T, two.T, strict=True)]
    found = predictive.wasserstein_per_point(one, two)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-15)
    monkeypatch.setattr(transport, "_BLOCK_VALUES", 70)  # one column or more a time
    # Backwards, so that what was left in memory is not the answer.
    again = predictive.wasserstein_per_point(one[:, ::-1], two[:, ::-1])
    np.testing.assert_allclose(again, found[::-1], rtol=1e-14)
    with pytest.raises(ValueError, match="`samples` and `reference_samples` must hold"):
        predictive.wasserstein_per_point(one, two[:, :3])


def test_names_the_bad_argument(logits, labels, regression):
    mean, std, y = regression
    logits[0, 0, 0, 0] = np.inf
    bad = [
        ("`logits`", lambda: predictive.negative_log_likelihood(logits, labels)),
        ("`logits`", lambda: predictive.probs_from_logits(logits)),
        ("`probs`", lambda: predictive.accuracy(2 * P, labels[:2])),
        ("`labels`", lambda: predictive.accuracy(P, np.array([0, 3]))),
        ("`labels`", lambda: predictive.accuracy(P, np.array([0]))),
        ("`reference_probs`", lambda: predictive.agreement(P, Q - 0.01)),
        ("`reference_probs`", lambda: predictive.total_variation(P, Q[:1])),
        ("`std`", lambda: predictive.gaussian_mixture_nll(mean, 0 * std, y)),
        ("`std`", lambda: predictive.moment_matched_nll(mean, std[:1], y)),
        ("`targets`", lambda: predictive.rmse(mean, y[:, :1])),
        ("`mean`", lambda: predictive.rmse(mean * np.nan, y)),
    ]
    for name, call in bad:
        with pytest.raises(ValueError, match=name):
            call()
