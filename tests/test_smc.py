"""Tempered SMC against closed forms and long chains; bounds of standard errors."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from blackjax.diagnostics import effective_sample_size

from symjax import densities, mesh, posterior, run, smc
from symjax.samplers import hmc
from symjax.types import Data


NUM_RUNS = 12
NOISE = 0.4
PRIOR = densities.Prior(dist.Normal(0.0, 0.8))


def regression():
    """Its posterior, and its data."""
    generator = np.random.default_rng(1)
    x = (generator.normal(size=(30, 3)) * [1.0, 0.5, 2.0]).astype(np.float32)
    y = (x @ [0.5, -1.0, 0.2] + NOISE * generator.normal(size=30)).astype(np.float32)
    log_posterior = posterior.build(
        lambda params, x: x @ params, PRIOR, densities.gaussian(NOISE)
    )
    return log_posterior, Data(x, y[:, None], np.ones(30, bool))


def sample(seed, log_posterior, data, shapes, num_particles=1000, **options):
    start_key, key = jax.random.split(jax.random.key(seed))
    particles = jax.vmap(lambda key: PRIOR.sample(key, shapes))(
        jax.random.split(start_key, num_particles)
    )
    return smc.sample(
        key, PRIOR, log_posterior.log_likelihood, particles, data, **options
    )


@pytest.fixture(scope="module")
def results():
    """With moves too few to mend what weighing or resampling did wrong."""
    log_posterior, data = regression()
    return [
        sample(seed, log_posterior, data, jnp.zeros((3, 1)), num_moves=1, num_steps=2)
        for seed in range(NUM_RUNS)
    ]


def assert_mean(values, expected, sigmas=8):
    """Of independent runs: 8 errors of 12 runs are exceeded once in 10^5 (t)."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - expected) < sigmas * error


def test_the_evidence_of_a_linear_regression(results):
    _, data = regression()
    covariance = 0.8**2 * data.x @ data.x.T + NOISE**2 * np.eye(30)
    exact = scipy.stats.multivariate_normal(np.zeros(30), covariance).logpdf(
        data.y[:, 0]
    )
    errors = np.array([result.log_evidence for result in results]) - exact
    assert_mean(np.exp(errors), 1)
    assert np.std(errors) < 0.3


def test_the_posterior_of_a_linear_regression(results):
    _, data = regression()
    covariance = np.linalg.inv(data.x.T @ data.x / NOISE**2 + np.eye(3) / 0.8**2)
    mean = covariance @ data.x.T @ data.y[:, 0] / NOISE**2
    factor = np.linalg.cholesky(covariance)
    white = [
        (np.asarray(result.particles, np.float64)[..., 0] - mean)
        @ np.linalg.inv(factor).T
        for result in results
    ]
    for i in range(3):
        assert_mean([run[:, i].mean() for run in white], 0)
        for j in range(i + 1):
            products = [np.mean(run[:, i] * run[:, j]) for run in white]
            assert_mean(products, float(i == j))
            assert np.std(products) < 0.15


def test_the_exponents_rise_to_one_and_the_moves_are_accepted(results):
    for result in results:
        assert result.exponents[0] == 0
        assert result.exponents[-1] == 1
        assert (np.diff(result.exponents) > 0).all()
        assert 3 <= len(result.acceptance) <= 30
        assert (result.acceptance > 0.5).all()


@pytest.mark.parametrize("target", [0.4, 0.9])
def test_the_first_step_leaves_the_share_of_particles_that_is_asked_for(target):
    _, data = regression()
    start = 0.8 * np.random.default_rng(0).normal(size=(1000, 3))
    residuals = data.y[:, 0] - start @ data.x.T
    nats = scipy.stats.norm(0, NOISE).logpdf(residuals).sum(axis=1)
    result = smc.sample(
        jax.random.key(0),
        PRIOR,
        regression()[0].log_likelihood,
        jnp.asarray(start[..., None], jnp.float32),
        data,
        num_moves=1,
        num_steps=1,
        target_ess=target,
    )
    weights = scipy.special.softmax(result.exponents[1] * nats)
    assert 1 / np.sum(weights**2) / 1000 == pytest.approx(target, abs=0.01)


@pytest.mark.slow
def test_a_small_network_against_long_chains():
    """Where the prior is far from the posterior, and units can be exchanged."""
    log_posterior, data = cases.log_posterior(), cases.data()
    prior = log_posterior.prior
    shapes = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))
    x = np.random.default_rng(5).normal(size=(6, 3)).astype(np.float32)

    def predict(params):
        return cases.apply(params, x)[:, 0]

    means = []
    for seed in range(6):
        particles = jax.vmap(lambda key: prior.sample(key, shapes))(
            jax.random.split(jax.random.key(seed), 150)
        )
        particles, _, exponents, _ = smc.sample(
            jax.random.key(100 + seed),
            prior,
            log_posterior.log_likelihood,
            particles,
            data,
            num_moves=5,
        )
        outputs = np.asarray(jax.vmap(predict)(particles), np.float64)
        means.append(np.concatenate([outputs.mean(axis=0), outputs.std(axis=0)]))
        assert len(exponents) > 5
    result = run.sample(
        jax.random.key(0),
        hmc.build(log_posterior, step_size=0.1, num_steps=10),
        cases.start(jax.random.key(1), 8),
        data,
        num_draws=500,
        num_burn_in=300,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    assert np.asarray(result.info.acceptance_rate).mean() > 0.6
    chains = np.asarray(jax.vmap(jax.vmap(predict))(result.draws), np.float64)
    error = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    for i in range(6):
        values = chains[..., i]
        squares = (values - values.mean()) ** 2
        for j, series, expected, scale in (
            (i, values, values.mean(), 1),
            (6 + i, squares, values.std(), 2 * values.std()),
        ):
            own = series.std() / np.sqrt(effective_sample_size(series)) / scale
            joint = np.hypot(error[j], own)
            # Of 6 runs: 12 errors are exceeded once in 10^5.
            assert abs(np.mean(means, axis=0)[j] - expected) < 12 * joint
            assert joint < 0.1 * values.std()


def test_what_cannot_be_sampled_is_named():
    log_posterior, data = regression()
    shapes = jnp.zeros((3, 1))
    with pytest.raises(ValueError, match="`target_ess` must be between 0 and 1"):
        sample(0, log_posterior, data, shapes, target_ess=1.0)
    with pytest.raises(ValueError, match="`particles` must be 10 or more, got 9"):
        sample(0, log_posterior, data, shapes, num_particles=9)
    with pytest.raises(ValueError, match="`num_moves` must be at least 1"):
        sample(0, log_posterior, data, shapes, num_moves=0)
    with pytest.raises(ValueError, match="finite log likelihoods, but 40 of 40"):
        smc.sample(
            jax.random.key(0),
            PRIOR,
            lambda params, data: jnp.sum(params) * jnp.nan,
            jnp.ones((40, 2)),
            None,
        )


def test_the_log_likelihood_is_that_of_temperature_one():
    _, data = regression()
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        PRIOR,
        densities.gaussian(NOISE),
        temperature=0.3,
        micro_batch=7,
    )
    params = jnp.array([[0.4], [-0.2], [0.1]])
    value, gradient = jax.value_and_grad(log_posterior.log_likelihood)(params, data)
    residuals = data.y - data.x @ np.asarray(params)
    expected = scipy.stats.norm(0, NOISE).logpdf(residuals).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    np.testing.assert_allclose(gradient, data.x.T @ residuals / NOISE**2, rtol=1e-3)
