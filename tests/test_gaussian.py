"""A Gaussian fitted to draws: moments, factors, what it leaves out, what it prunes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import sklearn.decomposition

from symjax import store
from symjax.approximations import gaussian
from symjax.approximations.gaussian import Gaussian


NUM_CHAINS, NUM_DRAWS = 3, 40
GENERATOR = np.random.default_rng(0)
MIXING = GENERATOR.normal(size=(7, 7)) * np.geomspace(3, 0.05, 7)[:, None]
FLAT = GENERATOR.normal(size=(NUM_CHAINS, NUM_DRAWS, 7)) @ MIXING + 100.0


def tree(flat):
    """The last axis, 7, as a pytree of a matrix, a vector and a number."""
    matrix = flat[..., :4].reshape(*flat.shape[:-1], 2, 2)
    return {"a": matrix, "b": (flat[..., 4:6], flat[..., 6])}


def line(params, lead=0):
    leaves = [np.reshape(a, (*a.shape[:lead], -1)) for a in jax.tree.leaves(params)]
    return np.concatenate(leaves, axis=-1)


class Pieces:
    """What `store.Run.lazy` gives: only `[chain, slice]` can be read."""

    def __init__(self, values, most):
        self.values, self.most = values, most
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, index):
        chain, draws = index
        assert isinstance(chain, int)
        assert draws.stop - draws.start <= self.most
        return self.values[chain, draws]


def test_moments_are_those_of_numpy_read_in_pieces(monkeypatch):
    monkeypatch.setattr(gaussian, "_PIECE_BYTES", 7 * 8 * 2)
    lazy = jax.tree.map(lambda leaf: Pieces(leaf, 112 // leaf[0, 0].nbytes), tree(FLAT))
    fitted = gaussian.fit(lazy)
    rows = FLAT.reshape(-1, 7)
    np.testing.assert_allclose(line(fitted.mean), rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(line(fitted.std), rows.std(axis=0, ddof=1), rtol=1e-10)
    assert jax.tree.structure(fitted.mean) == jax.tree.structure(tree(FLAT))
    assert fitted.mean["a"].shape == (2, 2)
    single = gaussian.fit(jax.tree.map(np.float32, tree(FLAT)))
    assert single.std["a"].dtype == np.float32
    np.testing.assert_allclose(line(single.std), line(fitted.std), rtol=1e-4)


@pytest.mark.parametrize("rank", [1, 3])
def test_factors_are_principal_components_and_keep_every_deviation(monkeypatch, rank):
    monkeypatch.setattr(gaussian, "_GRAM_PIECE_BYTES", 7 * 8 * 5)
    fitted = gaussian.fit(jax.tree.map(jnp.asarray, tree(FLAT)), rank=rank)
    pca = sklearn.decomposition.PCA(rank).fit(FLAT.reshape(-1, 7))
    along = pca.components_ * np.sqrt(pca.explained_variance_)[:, None]
    factors = line(fitted.factors, lead=1)
    covariance = factors.T @ factors
    np.testing.assert_allclose(covariance, along.T @ along, atol=2e-4)

    keys = jax.random.split(jax.random.key(0), 200_000)
    draws = line(jax.vmap(gaussian.sample, (0, None))(keys, fitted), lead=1)
    std = FLAT.reshape(-1, 7).std(axis=0, ddof=1)
    np.testing.assert_allclose(draws.mean(axis=0), line(fitted.mean), atol=0.02)
    np.fill_diagonal(covariance, std**2)
    scale = np.outer(std, std)
    np.testing.assert_allclose(np.cov(draws.T) / scale, covariance / scale, atol=0.01)
    for column, centre, deviation in zip(draws.T, line(fitted.mean), std, strict=True):
        cdf = scipy.stats.norm(centre, deviation).cdf
        distance = scipy.stats.kstest(column, cdf).statistic
        assert distance < 0.01


def test_draws_of_half_precision_are_summed_in_single():
    """Sums of products of these are past the largest number of float16."""
    draws = jax.tree.map(np.float16, tree(300 * (FLAT - 100)))
    fitted = gaussian.fit(draws, rank=2)
    assert fitted.factors["a"].dtype == np.float16
    rows = line(draws, lead=2).astype(float).reshape(-1, 7)
    pca = sklearn.decomposition.PCA(2).fit(rows)
    along = pca.components_ * np.sqrt(pca.explained_variance_)[:, None]
    factors = line(fitted.factors, lead=1).astype(float)
    exact = along.T @ along
    np.testing.assert_allclose(factors.T @ factors, exact, atol=3e-3 * exact.max())


def test_without_factors_weights_are_independent():
    fitted = gaussian.fit(tree(FLAT))
    keys = jax.random.split(jax.random.key(0), 50_000)
    draws = jax.vmap(gaussian.sample, (0, None))(keys, fitted)
    assert jax.tree.structure(draws) == jax.tree.structure(fitted.mean)
    correlation = np.corrcoef(line(draws, lead=1).T)
    np.testing.assert_allclose(correlation, np.eye(7), atol=0.02)


def test_a_stored_run_is_fitted_from_the_disk(tmp_path):
    draws = jax.tree.map(np.float32, tree(FLAT))
    one = jax.tree.map(lambda leaf: leaf[0, 0], draws)
    kept = store.create(
        tmp_path / "run",
        config={},
        params=one,
        info={"nothing": np.float32(0)},
        num_chains=NUM_CHAINS,
        num_draws=NUM_DRAWS,
        num_iterations=1,
    )
    kept.append(draws, 0, {"nothing": np.zeros((NUM_CHAINS, 1), np.float32)}, 0)
    kept.commit({"nothing": np.zeros(1)}, iteration=1, num_draws=NUM_DRAWS)
    stored, held = (
        gaussian.fit(source, rank=2) for source in (kept.lazy(like=one), draws)
    )
    for a, b in zip(jax.tree.leaves(stored), jax.tree.leaves(held), strict=True):
        np.testing.assert_array_equal(a, b)


def test_information_is_the_divergence_from_the_prior():
    q = Gaussian(jnp.array([0.0, 0.0, 1.0, 0.5]), jnp.array([2.0, 1.8, 2.0, 0.1]))
    grid = np.linspace(-40, 40, 400_001)
    exact = []
    for mean, std in zip(*q[:2], strict=True):
        density = scipy.stats.norm(mean, std).pdf(grid)
        prior = scipy.stats.norm(0, 2).logpdf(grid)
        log_ratio = scipy.stats.norm(mean, std).logpdf(grid) - prior
        exact.append(np.trapezoid(density * log_ratio, grid))
    nats = gaussian.information(q, 2.0)
    np.testing.assert_allclose(nats, exact, atol=1e-7)

    q = q._replace(factors=jnp.ones((3, 4)))
    kept = gaussian.keep_informed(q, 2.0, min_nats=0.011)
    np.testing.assert_array_equal(kept.mean, [0, 0, 1, 0.5])
    np.testing.assert_array_equal(kept.std, np.float32([0, 0, 2, 0.1]))
    np.testing.assert_array_equal(kept.factors, np.tile([0, 0, 1, 1], (3, 1)))
    assert kept.mean.dtype == np.float32
    # A tenth below the prior's deviation is just above the default.
    assert gaussian.keep_informed(q, 2.0).std[1] > 0


def test_the_widest_weights_are_pruned_first_over_all_leaves():
    params = {"a": jnp.arange(1.0, 5.0).reshape(2, 2), "b": jnp.arange(5.0, 11.0)}
    std = {"a": np.array([[9, 1], [8, 2]]), "b": np.array([3.0, 10, 4, 7, 5, 6])}
    pruned = gaussian.prune(params, std, 0.3)
    np.testing.assert_array_equal(pruned["a"], [[0, 2], [0, 4]])
    np.testing.assert_array_equal(pruned["b"], [5, 0, 7, 8, 9, 10])
    assert pruned["b"].dtype == params["b"].dtype
    for share, left in ((0.0, 10), (0.94, 1), (0.96, 0)):
        network = gaussian.prune(params, std, share)
        assert sum(np.count_nonzero(leaf) for leaf in jax.tree.leaves(network)) == left


def test_bad_draws_are_named():
    draws = tree(FLAT)
    with pytest.raises(ValueError, match="at least 2 draws, .* and 0 factors; got 1"):
        gaussian.fit(jax.tree.map(lambda leaf: leaf[:1, :1], draws))
    with pytest.raises(ValueError, match="at least 121 draws, .* 120 factors; got 120"):
        gaussian.fit(draws, rank=120)
    with pytest.raises(
        ValueError, match=r"same leading axes .* \[\(3, 39\), \(3, 40\)"
    ):
        gaussian.fit({**draws, "a": draws["a"][:, 1:]})
    broken = np.where(np.arange(120) == 47, np.inf, 1.0).reshape(3, 40)
    with pytest.raises(ValueError, match="but b/1 is not in one of the draws 40 to 79"):
        gaussian.fit({**draws, "b": (draws["b"][0], broken)})
    with pytest.raises(ValueError, match="`share` must be from 0 to 1, got 50"):
        gaussian.prune(np.ones(3), np.ones(3), 50.0)
