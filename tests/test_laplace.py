"""Laplace approximations against closed forms, Hessians and SciPy."""

import os
import subprocess
import sys

import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats
from jax.flatten_util import ravel_pytree

from symjax import densities, evaluation, mesh, posterior, run
from symjax.approximations import laplace
from symjax.types import Data


STRUCTURES = ("full", "kronecker", "low_rank", "diagonal")
OPTIMISER = optax.sgd(0.0)
NOISE, STD, LOC = 0.5, 2.0, 0.3
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(40, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.5], [0, 0, 1]])
Y = X @ [[1.0], [-2.0], [0.5]] + NOISE * GENERATOR.normal(size=(40, 1))
DATA = Data(X.astype(np.float32), Y.astype(np.float32), np.ones(40, bool))


def fitted(log_posterior, mode, data, **options):
    """What `finish` makes of a network that is at its mode already."""
    made = laplace.build(log_posterior, optimiser=OPTIMISER, **options)
    state = made.init(jax.random.key(0), mode, data)
    return made, jax.jit(made.finish)(jax.random.key(1), state, data)


def root(made, fit, monkeypatch):
    """The draws that unit vectors of noise give, less the mode: rows."""
    mode, unravel = ravel_pytree(fit.mode)
    changing = []

    def draw(noise):
        start = 0

        def normal(key, shape, dtype):
            nonlocal start
            size = int(np.prod(shape))
            start += size
            return noise[start - size : start].reshape(shape)

        with monkeypatch.context() as patch:
            patch.setattr(jax.random, "normal", normal)
            params = made.sample(jax.random.key(0), fit)
        changing.append(start)
        return ravel_pytree(params)[0] - mode

    rows = jax.vmap(draw)(jnp.eye(len(mode)))
    return np.asarray(rows[: changing[0]], float), unravel


def covariance(made, fit, monkeypatch):
    rows, _ = root(made, fit, monkeypatch)
    return rows.T @ rows


def regression(std=STD, temperature=1.0):
    """The log posterior, and its exact mode and precision at temperature 1."""
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        densities.Prior(dist.Normal(LOC, std)),
        densities.gaussian(NOISE),
        temperature=temperature,
        micro_batch=7,
    )
    precision = X.T @ X / NOISE**2 + np.eye(3) / std**2
    mean = np.linalg.solve(precision, X.T @ Y / NOISE**2 + LOC / std**2)
    return log_posterior, jnp.asarray(mean, jnp.float32), precision


@pytest.mark.parametrize(
    ("structure", "temperature"),
    [
        ("full", 1.0),
        ("full", 0.25),
        ("kronecker", 1.0),
        ("low_rank", 1.0),
        ("diagonal", 0.25),
    ],
)
def test_a_linear_regression_is_exact(structure, temperature, monkeypatch):
    log_posterior, mean, precision = regression(temperature=temperature)
    options = {"structure": structure, "rank": 3}
    made, fit = fitted(log_posterior, mean, DATA, **options)
    exact = np.linalg.inv(precision)
    if structure == "diagonal":
        exact = np.diag(1 / np.diag(precision))
    got = covariance(made, fit, monkeypatch)
    np.testing.assert_allclose(got, temperature * exact, rtol=2e-4, atol=1e-7)
    if structure != "diagonal" and temperature == 1:
        given = NOISE**2 * np.eye(40) + STD**2 * X @ X.T
        exact = scipy.stats.multivariate_normal(LOC * X.sum(axis=1), given)
        evidence = laplace.log_evidence(fit)
        np.testing.assert_allclose(evidence, exact.logpdf(Y[:, 0]), rtol=1e-5)


def test_evidence_at_a_temperature_is_of_the_tempered_model():
    """Likelihood^(1/T) is that of sqrt(T) times the noise, but for its constant."""
    log_posterior, mean, _ = regression(temperature=0.25)
    _, fit = fitted(log_posterior, mean, DATA, structure="full")
    noise, std = 0.5 * NOISE, 0.5 * STD
    given = noise**2 * np.eye(40) + std**2 * X @ X.T
    exact = scipy.stats.multivariate_normal(LOC * X.sum(axis=1), given)
    constant = 40 * np.log(noise) - 40 / 0.25 * np.log(NOISE)
    constant += 40 * (1 - 1 / 0.25) * np.log(2 * np.pi) / 2
    expected = exact.logpdf(Y[:, 0]) + constant
    np.testing.assert_allclose(laplace.log_evidence(fit), expected, rtol=1e-5)


@pytest.mark.parametrize("std", [30.0, 0.1])
def test_the_prior_of_largest_evidence_is_found(std, monkeypatch):
    """The factor, by SciPy; draws then have the precision that it gives."""
    log_posterior, mean, _ = regression(std=std, temperature=0.5)
    options = {"structure": "full", "prior_precision": "marginal_likelihood"}
    made, fit = fitted(log_posterior, mean, DATA, **options)
    curvature = X.T @ X / NOISE**2
    distance = np.sum((np.asarray(mean, float) - LOC) ** 2) / std**2

    def minus_evidence(log_factor):
        prior = np.eye(3) * np.exp(log_factor) / std**2
        ratio = np.linalg.slogdet(curvature + prior)[1] - np.linalg.slogdet(prior)[1]
        return np.exp(log_factor) * distance / (2 * 0.5) + ratio / 2

    best = scipy.optimize.minimize_scalar(minus_evidence, bounds=(-20, 20)).x
    np.testing.assert_allclose(np.log(fit.precision_factor), best, atol=1e-3)
    exact = 0.5 * np.linalg.inv(curvature + np.eye(3) * np.exp(best) / std**2)
    got = covariance(made, fit, monkeypatch)
    np.testing.assert_allclose(got, exact, rtol=2e-3, atol=1e-6)
    gain = laplace.log_evidence(fit) - laplace.log_evidence(fit, 1.0)
    np.testing.assert_allclose(
        gain, minus_evidence(0) - minus_evidence(best), rtol=1e-3
    )


PRIOR = densities.Prior({"kernel": dist.Normal(0.0, 1.5), "*": dist.Normal(0.0, 0.7)})


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_logistic_regression_has_the_hessian_of_its_posterior(structure, monkeypatch):
    """Linear in its parameters, so that Gauss-Newton leaves nothing out."""
    log_posterior = posterior.build(
        lambda params, x: x @ params["kernel"] + params["bias"],
        PRIOR,
        densities.categorical,
        micro_batch=8,
    )
    labels = GENERATOR.integers(3, size=40)
    mask = np.arange(40) < 35
    data = Data(DATA.x, labels, mask)
    mode = {
        "bias": jnp.array([0.1, -0.5, 0.2]),
        "kernel": 0.8 * jnp.cos(jnp.arange(9.0).reshape(3, 3)),
    }
    flat, unravel = ravel_pytree(mode)
    density = lambda vector: log_posterior(unravel(vector), data)
    # Second derivatives don't pass the custom first ones: those are differenced.
    gradient = jax.jit(jax.grad(density))
    step = 1e-2
    hessian = np.stack(
        [
            (gradient(flat + step * one) - gradient(flat - step * one)) / (2 * step)
            for one in np.eye(12, dtype=np.float32)
        ]
    ).astype(float)
    made, fit = fitted(log_posterior, mode, data, structure=structure, rank=12)
    got = covariance(made, fit, monkeypatch)
    exact = np.linalg.inv(-hessian)
    if structure == "diagonal":
        exact = np.diag(1 / np.diag(-hessian))
    if structure == "kronecker":
        exact[3:, 3:] = got[3:, 3:]
        exact[:3, :3] = np.linalg.inv(-hessian[:3, :3])
        exact[:3, 3:] = exact[3:, :3] = 0
    np.testing.assert_allclose(got, exact, atol=2e-3 * np.abs(exact).max())


def test_kronecker_is_exact_for_layers_of_one_gradient(monkeypatch):
    """Two outputs of Gaussian noise: inputs (x) identity, of each of two layers."""
    log_posterior = posterior.build(
        lambda params, x: x @ params["kernel"] + jnp.tanh(x[:, :2]) @ params["other"],
        densities.Prior({"kernel": dist.Normal(0.0, 1.5), "*": dist.Normal(0.0, 0.7)}),
        densities.gaussian(NOISE),
    )
    mode = {"kernel": jnp.zeros((3, 2)), "other": jnp.ones((2, 2))}
    data = DATA._replace(y=np.repeat(DATA.y, 2, axis=1))
    made, fit = fitted(log_posterior, mode, data, structure="kronecker")
    inputs = (X, 1.5), (np.tanh(X[:, :2]), 0.7)
    blocks = [
        np.kron(
            np.linalg.inv(x.T @ x / NOISE**2 + np.eye(x.shape[1]) / std**2), np.eye(2)
        )
        for x, std in inputs
    ]
    got = covariance(made, fit, monkeypatch)
    exact = scipy.linalg.block_diag(*blocks)
    np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-6)


def network_precision(params, factor, x):
    """Gauss-Newton from the Jacobian of all outputs, and a unit prior, in float64."""
    flat, unravel = ravel_pytree(params)
    outputs = lambda vector: cases.apply(unravel(vector), x)
    jacobian = np.asarray(jax.jacobian(outputs)(flat), float)
    rows = np.einsum("nck,ncd->nkd", factor, jacobian).reshape(-1, len(flat))
    return rows.T @ rows + np.eye(len(flat)), jacobian


def one_network(**options):
    mode = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))
    made, fit = fitted(cases.log_posterior(), mode, cases.data(), **options)
    precision, jacobian = network_precision(
        mode, np.full((21, 1, 1), 1 / 0.5), cases.data().x
    )
    return made, fit, precision, jacobian


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_network_has_its_gauss_newton_matrix(structure, monkeypatch):
    made, fit, precision, _ = one_network(structure=structure, rank=21)
    got = np.linalg.inv(covariance(made, fit, monkeypatch))
    if structure in ("full", "low_rank"):
        np.testing.assert_allclose(got, precision, rtol=2e-3, atol=5e-3)
    elif structure == "diagonal":
        np.testing.assert_allclose(got, np.diag(np.diag(precision)), rtol=1e-4)
    else:
        # Leaves in order: kernel 3 x 4, bias 4, out 4 x 1, shift.
        np.testing.assert_allclose(np.trace(got), np.trace(precision), rtol=1e-3)
        for block in (slice(12, 16), slice(16, 20), slice(20, 21)):
            size = block.stop - block.start
            assert got[block].shape == (size, 21)
            np.testing.assert_allclose(
                got[block, block], precision[block, block], rtol=2e-3, atol=5e-3
            )
        np.testing.assert_allclose(got[:12, 12:], 0, atol=1e-4)
        kernel = precision[:12, :12] - np.eye(12)
        error = np.linalg.norm(got[:12, :12] - np.eye(12) - kernel)
        assert error < 0.8 * np.linalg.norm(kernel - np.diag(np.diag(kernel)))


def test_low_rank_keeps_the_largest_eigenvalues(monkeypatch):
    made, fit, precision, _ = one_network(structure="low_rank", rank=4)
    values, vectors = np.linalg.eigh(precision)
    np.testing.assert_allclose(fit.eigenvalues, values[-4:] - 1, rtol=1e-3)
    values[:-4] = 1
    exact = vectors / values @ vectors.T
    got = covariance(made, fit, monkeypatch)
    np.testing.assert_allclose(got, exact, atol=2e-3)


def test_one_layer_alone_is_uncertain_given_the_others(monkeypatch):
    made, fit, precision, _ = one_network(structure="full", leaves="out")
    got = covariance(made, fit, monkeypatch)
    exact = np.zeros((21, 21))
    exact[16:20, 16:20] = np.linalg.inv(precision[16:20, 16:20])
    np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-5)


def test_the_prior_of_one_leaf_is_its_own(monkeypatch):
    """The last of two leaves, of another mean and deviation, given the first."""
    log_posterior = posterior.build(
        lambda params, x: x[:, :1] @ params["a"] + x[:, 1:] @ params["b"],
        densities.Prior({"a": dist.Normal(LOC, STD), "b": dist.Normal(-1.0, 0.5)}),
        densities.gaussian(NOISE),
    )
    given, rest = Y - 0.7 * X[:, :1], X[:, 1:]
    precision = rest.T @ rest / NOISE**2 + np.eye(2) / 0.5**2
    mean = np.linalg.solve(precision, rest.T @ given / NOISE**2 - 1.0 / 0.5**2)
    mode = {"a": jnp.full((1, 1), 0.7), "b": jnp.asarray(mean, jnp.float32)}
    made, fit = fitted(log_posterior, mode, DATA, structure="full", leaves="b")
    got = covariance(made, fit, monkeypatch)
    exact = scipy.linalg.block_diag(0, np.linalg.inv(precision))
    np.testing.assert_allclose(got, exact, rtol=2e-4, atol=1e-7)
    marginal = NOISE**2 * np.eye(40) + 0.5**2 * rest @ rest.T
    exact = scipy.stats.multivariate_normal(-rest.sum(axis=1), marginal)
    evidence = laplace.log_evidence(fit)
    np.testing.assert_allclose(evidence, exact.logpdf(given[:, 0]), rtol=1e-5)


def test_draws_of_several_leaves_are_independent():
    made, fit, precision, _ = one_network(structure="diagonal")
    keys = jax.random.split(jax.random.key(5), 4000)
    draws = jax.vmap(made.sample, (0, None))(keys, fit)
    flat = np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(draws))
    std = 1 / np.sqrt(np.diag(precision))
    mode = ravel_pytree(fit.mode)[0]
    np.testing.assert_allclose((flat.mean(axis=0) - mode) / std, 0, atol=0.1)
    np.testing.assert_allclose(flat.std(axis=0) / std, 1, rtol=0.08)
    np.testing.assert_allclose(np.corrcoef(flat.T) - np.eye(21), 0, atol=0.1)


def test_negative_curvature_of_a_learned_noise_is_clipped(monkeypatch):
    """An example far from its mean, by the second derivatives of the density."""
    log_posterior = posterior.build(
        lambda params, x: jnp.tile(params, (len(x), 1)),
        densities.Prior(dist.Normal(0.0, 1.0)),
        densities.heteroscedastic,
    )
    data = Data(np.zeros((1, 1), "f"), np.full((1, 1), 3.0, "f"), np.ones(1, bool))
    mode = jnp.array([0.0, 1.0])
    made, fit = fitted(log_posterior, mode, data, structure="full")

    def nats(mean, raw):
        return scipy.stats.norm(mean, np.log1p(np.exp(raw)) + 1e-5).logpdf(3.0)

    h = 1e-3
    e = np.eye(2) * h
    point = np.array([0.0, 1.0])
    hessian = [
        [
            (nats(*(point + a + b)) - nats(*(point + a - b)))
            - (nats(*(point - a + b)) - nats(*(point - a - b)))
            for a in e
        ]
        for b in e
    ]
    values, vectors = np.linalg.eigh(-np.array(hessian) / (4 * h**2))
    assert values[0] < -0.1
    values = 1 + np.maximum(values, 0)
    exact = vectors / values @ vectors.T
    got = covariance(made, fit, monkeypatch)
    np.testing.assert_allclose(got, exact, rtol=1e-3)


def test_linearised_predictions_have_the_closed_form(monkeypatch):
    """Variance J cov J^T, and the mean f(mode): exactly, noise for noise."""
    made, fit, _, jacobian = one_network(structure="full")
    rows, unravel = root(made, fit, monkeypatch)
    mode = ravel_pytree(fit.mode)[0]
    draws = jax.vmap(unravel)(jnp.asarray(mode + rows, jnp.float32))
    pair = laplace.around(
        jax.tree.map(lambda leaf: leaf[None], draws),
        jax.tree.map(lambda leaf: leaf[None], fit.mode),
    )
    x = cases.data().x
    outputs = evaluation.predict(laplace.linearise(cases.apply), pair, x)[0]
    moves = outputs - np.asarray(cases.apply(fit.mode, x))
    closed = jacobian[:, 0] @ (rows.T @ rows) @ jacobian[:, 0].T
    np.testing.assert_allclose(moves[..., 0].T @ moves[..., 0], closed, atol=2e-4)


def test_members_are_linearised_around_their_own_mode():
    start = cases.start(jax.random.key(0), 2)
    draws = jax.tree.map(
        lambda leaf: leaf[:, None] + jnp.zeros((1, 3, *leaf[:1].shape[1:])), start
    )
    x = cases.data().x
    pair = laplace.around(draws, start)
    got = evaluation.predict(laplace.linearise(cases.apply), pair, x)
    exact = jax.vmap(cases.apply, (0, None))(start, x)
    np.testing.assert_allclose(got, np.repeat(exact[:, None], 3, 1), atol=1e-5)
    assert laplace.linearise(cases.apply) == laplace.linearise(cases.apply)


def test_low_rank_on_eight_devices_is_that_of_one():
    def eigenvalues(num_devices):
        made = laplace.build(
            cases.log_posterior(micro_batch=2),
            optimiser=OPTIMISER,
            structure="low_rank",
            rank=2,
        )

        def sample(key, fit):
            return fit.eigenvalues

        return run.fit(
            jax.random.key(0),
            made._replace(sample=sample),
            cases.start(jax.random.key(0), 2),
            cases.data(),
            num_steps=1,
            mesh=mesh.make_mesh(2, jax.devices()[:num_devices]),
            show_progress=False,
        ).draws

    np.testing.assert_allclose(eigenvalues(1), eigenvalues(8), rtol=1e-3)


ALONE = """
import jax, optax
import jax.numpy as jnp
import numpyro.distributions as dist
from symjax import densities, posterior, run
from symjax.approximations import laplace
from symjax.types import Data

jax.config.update("jax_num_cpu_devices", 8)
log_posterior = posterior.build(
    lambda params, x: x @ params,
    densities.Prior(dist.Normal(0.0, 1.0)),
    densities.gaussian(0.5),
)
made = laplace.build(log_posterior, optimiser=optax.sgd(0.0), structure="full")
x = jax.random.normal(jax.random.key(0), (16, 550))
data = Data(x, x[:, :1], jnp.ones(16, bool))
start = jnp.zeros((3, 550, 1))
run.fit(jax.random.key(0), made, start, data, num_steps=1, show_progress=False)
"""


def test_members_are_decomposed_on_devices_of_one_cpu():
    """In a process of its own, since it would hang for ever."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run(
        [sys.executable, "-c", ALONE],
        check=True,
        timeout=240,
        env=environment | {"JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"structure": "dense"}, "`structure` must be one of full, diagonal"),
        ({"prior_precision": "map"}, "`prior_precision` must be given or marginal"),
        ({"rank": 0}, "`rank` must be at least 1, got 0"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        laplace.build(cases.log_posterior(), optimiser=OPTIMISER, **options)


def test_what_does_not_fit_the_network_is_named():
    def init(size, **options):
        made = laplace.build(cases.log_posterior(), optimiser=OPTIMISER, **options)
        return made.init(jax.random.key(0), {"w": jnp.zeros((size, 2))}, cases.data())

    with pytest.raises(
        ValueError, match="`leaves` must match .* 'v' matches none of w"
    ):
        init(3, leaves="v")
    with pytest.raises(ValueError, match="full is for up to 5000 parameters, got 6000"):
        init(3000, structure="full")
    with pytest.raises(ValueError, match="w of shape \\(6000, 2\\) has 6000"):
        init(6000, structure="kronecker")
    init(6000, structure="diagonal")


def test_priors_that_are_not_normal_are_refused():
    log_posterior = posterior.build(
        cases.apply, densities.prior("student_t"), densities.gaussian(0.5)
    )
    with pytest.raises(ValueError, match="normal priors .* got StudentT for"):
        laplace.build(log_posterior, optimiser=OPTIMISER)


def dense(params, x):
    hidden = jnp.tanh(x @ params["a"]["w"] + params["a"]["b"])
    return hidden @ params["out"]["w"] + params["out"]["b"]


def find(factor):
    """Of a network with learned noise whose outputs are multiplied at the end."""
    layer = {"b": jnp.zeros(2), "w": jnp.eye(2)}
    params = densities.add_noise({"a": layer, "out": layer}, scale=0.5, num_outputs=2)
    apply = densities.learned_noise(lambda params, x: factor * dense(params, x))
    return laplace.find_last_layer(apply, params, np.ones((3, 2), np.float32))


def test_the_last_layer_is_the_one_whose_bias_is_added():
    assert find(1.0) == "model/out/*"
    with pytest.raises(ValueError, match="Give `leaves`, a pattern"):
        find(2.0)


def test_a_bias_alone_in_its_folder_is_no_layer():
    """The weights would be left out of what is uncertain."""
    params = {"w": jnp.ones((2, 1)), "out": {"b": jnp.zeros(1)}}
    with pytest.raises(ValueError, match="of out/b, w is one. Give `leaves`"):
        laplace.find_last_layer(
            lambda params, x: x @ params["w"] + params["out"]["b"], params, X[:, :2]
        )
