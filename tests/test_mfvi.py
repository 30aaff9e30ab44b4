"""Mean-field variational inference against the optimum that is known."""

import cases
import jax
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import scipy.optimize
import scipy.stats

from symjax import densities, mesh, posterior, run
from symjax.approximations import mfvi
from symjax.types import Data


NOISE, PRIOR = 0.5, 2.0
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.5], [0, 0, 1]])
DATA = Data(
    X.astype(np.float32),
    (X @ [[1.0], [-2.0], [0.5]] + GENERATOR.normal(size=(40, 1))).astype(np.float32),
    np.ones(40, bool),
)


def fit(prior, data, *, temperature=1.0, num_draws=1, num_steps=1500, **options):
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        densities.Prior(prior),
        densities.gaussian(NOISE),
        temperature=temperature,
    )
    schedule = optax.cosine_decay_schedule(0.05, num_steps)
    return run.fit(
        jax.random.key(1),
        mfvi.build(log_posterior, optimiser=optax.adam(schedule), **options),
        jax.random.normal(jax.random.key(0), (4, data.x.shape[1], 1)),
        data,
        num_steps=num_steps,
        num_draws=num_draws,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


@pytest.mark.parametrize(
    ("temperature", "batch_size", "noise"),
    [(0.25, None, "local"), (1.0, 20, "local"), (0.25, None, "shared")],
)
def test_a_linear_regression_has_the_known_optimum(temperature, batch_size, noise):
    """Mean of the posterior, variances of its conditionals (Bishop 2006, 10.1.2)."""
    x, y = DATA.x.astype(float), DATA.y.astype(float)
    precision = x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2)[:, 0]
    variance = temperature / np.diag(precision)
    # The best normal is far from the marginals: what is fitted is told from those.
    assert np.max(temperature * np.diag(np.linalg.inv(precision)) / variance) > 1.5

    result = fit(
        dist.Normal(0.0, PRIOR),
        DATA,
        temperature=temperature,
        num_draws=4000,
        batch_size=batch_size,
        num_samples=8,
        noise=noise,
    )
    for draws in result.draws[..., 0]:
        std = np.sqrt(variance)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.4 * std.min())
        np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.12)
        correlation = np.corrcoef(draws.T) - np.eye(3)
        np.testing.assert_allclose(correlation, 0, atol=0.08)

    squares = np.sum((y[:, 0] - x @ mean) ** 2) + np.sum(x**2 @ variance)
    likelihood = -20 * np.log(2 * np.pi * NOISE**2) - squares / (2 * NOISE**2)
    prior = scipy.stats.norm(0, PRIOR).logpdf(mean) - variance / (2 * PRIOR**2)
    entropy = scipy.stats.norm(0, np.sqrt(variance)).entropy()
    bound = (likelihood + prior.sum()) / temperature + entropy.sum()
    late = result.info.elbo[:, -500:]
    error = 5 * late.std() / np.sqrt(late.size) + 0.02
    np.testing.assert_allclose(late.mean(), bound, atol=error)


def test_any_prior_has_its_optimum():
    """One weight with a Laplace prior, against the bound by quadrature."""
    data = Data(np.ones((3, 1), np.float32), np.full((3, 1), 0.4), np.ones(3, bool))
    data = data._replace(y=data.y.astype(np.float32))
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()

    def minus_bound(fitted):
        w = fitted[0] + np.exp(fitted[1]) * nodes
        nats = scipy.stats.laplace(0, 0.1).logpdf(w)
        nats = nats + 3 * scipy.stats.norm(w, NOISE).logpdf(0.4)
        return -(weights @ nats) - fitted[1]

    best = scipy.optimize.minimize(minus_bound, [0.1, -1.0], method="Nelder-Mead").x
    result = fit(dist.Laplace(0.0, 0.1), data, num_draws=4000, num_samples=16)
    draws = result.draws[..., 0, 0]
    np.testing.assert_allclose(draws.mean(axis=1), best[0], atol=0.02)
    np.testing.assert_allclose(draws.std(axis=1), np.exp(best[1]), rtol=0.08)


def test_a_normal_prior_adds_no_noise():
    """Where the data say nothing, the bound at any one draw is the exact bound."""
    log_posterior = posterior.build(
        lambda params, x: x @ params["w"] + params["b"],
        densities.Prior({"w": dist.Normal(1.0, 2.0), "*": dist.Normal(0.0, 0.5)}),
        densities.gaussian(1e6),
        temperature=0.5,
    )
    params = {"w": np.array([[1.5], [0.0], [-1.0]], np.float32), "b": np.ones(1, "f")}
    approximation = mfvi.build(log_posterior, optimiser=optax.sgd(0.0), first_std=0.3)
    state = approximation.init(jax.random.key(0), params, DATA)
    keys = jax.random.split(jax.random.key(1), 50)
    step = jax.jit(jax.vmap(approximation.step, (0, None, None)))
    prior = scipy.stats.norm([1, 1, 1, 0], [2, 2, 2, 0.5]).logpdf([1.5, 0, -1, 1])
    prior = prior.sum() - 0.3**2 * (3 / 2**2 + 1 / 0.5**2) / 2
    likelihood = 40 * scipy.stats.norm(0, 1e6).logpdf(0)
    exact = (prior + likelihood) / 0.5 + 4 * scipy.stats.norm(0, 0.3).entropy()
    np.testing.assert_allclose(step(keys, state, DATA)[1].elbo, exact, atol=2e-3)


def test_bad_options_are_named():
    options = {"optimiser": optax.adam(0.1)}
    for name in ("batch_size", "num_samples"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
            mfvi.build(cases.log_posterior(), **options, **{name: 0})
    with pytest.raises(ValueError, match="`first_std` must be a positive number"):
        mfvi.build(cases.log_posterior(), **options, first_std=0.0)
    with pytest.raises(ValueError, match="`noise` must be local or shared, got 'all'"):
        mfvi.build(cases.log_posterior(), **options, noise="all")
