"""SGLD against closed forms: its target, its bias, its preconditioner.

Seeds are fixed; with others every test would fail less than once in 10^5 times.
"""

import cases
import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax.samplers import sgld


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    data, mean, _ = exact.regression(20)
    algorithm = sgld.build(
        exact.log_posterior(temperature=temperature),
        step_size=0.002 * temperature,
        # All examples: no gradient noise.
        batch_size=20,
        batches="epoch",
    )
    _, positions, _ = exact.simulate(algorithm, mean[:, None], 500, data=data)
    exact.assert_regression(positions, temperature, 0.04)


@pytest.mark.parametrize(
    ("step_size", "noise"), [(0.1, 0.0), (0.4, 0.0), (1.0, 0.0), (0.4, 3.0)]
)
def test_the_bias_is_what_theory_says(step_size, noise):
    """Variance s^2 (1 + e V / 2) / (1 - e / (2 s^2)): first order in e, exactly."""
    scale = np.array([1.0, 2.0])
    algorithm = sgld.build(
        exact.Gaussian(1 / scale**2, noise), step_size=step_size, batch_size=1
    )
    _, positions, info = exact.simulate(algorithm, np.zeros(2), 500)
    expected = (1 + step_size * noise**2 / 2) / (1 - step_size / (2 * scale**2))
    for i in range(2):
        exact.assert_mean((positions[..., i] / scale[i]) ** 2, expected[i])
    np.testing.assert_allclose(info.step_size, step_size)


def test_a_preconditioner_learnt_in_the_warmup_leaves_the_target_alone():
    """Scales of 1 to 30 at one step size, each with the bias of its own G."""
    scale = np.array([1.0, 5.0, 30.0])
    algorithm = sgld.build(
        exact.Gaussian(1 / scale**2),
        step_size=0.3,
        batch_size=1,
        preconditioner="rmsprop",
        damping=1e-3,
        num_warmup=500,
    )
    state, positions, _ = exact.simulate(algorithm, np.zeros(3), 2000, discard=0.5)
    mean_square = state.mean_square / (1 - 0.99**500)
    factor = 1 / (1e-3 + jnp.sqrt(mean_square))
    variance = scale**2 / (1 - 0.3 * factor / (2 * scale**2))
    white = positions / jnp.sqrt(variance)[:, None]
    for i in range(3):
        exact.assert_mean(white[..., i] ** 2, 1)
        # A gradient's mean square is 1 / s^2 in the target, 2 / s^2 in posterior / G.
        assert 0.5 < np.median(mean_square[:, i]) * scale[i] ** 2 < 3


def test_the_preconditioner_of_a_short_warm_up_is_kept_as_it_was():
    """Of five steps, against the formula in NumPy: its correction is kept too."""
    precision = np.array([1.0, 0.04])
    algorithm = sgld.build(
        exact.Gaussian(precision),
        step_size=0.3,
        batch_size=1,
        preconditioner="rmsprop",
        num_warmup=5,
        noise=lambda _: 0.0,
    )
    _, positions, _ = exact.simulate(algorithm, [3.0, 2.0], 12, num_chains=2, discard=0)
    x, v, expected = np.array([3.0, 2.0]), np.zeros(2), []
    for count in range(1, 13):
        gradient = -precision * x
        if count <= 5:
            v = 0.99 * v + 0.01 * gradient**2
        x = x + 0.3 * gradient / (1 + np.sqrt(v / (1 - 0.99 ** min(count, 5))))
        expected.append(x)
    np.testing.assert_allclose(positions, [expected] * 2, rtol=1e-5)


def test_gamma_is_the_slope_of_a_preconditioner_that_remembers():
    """By differences in float64 of G, whose v has a past and a bias correction."""
    precision, step_size, decay, damping = np.array([1.0, 0.3]), 0.05, 0.8, 0.5
    algorithm = sgld.build(
        exact.Gaussian(precision),
        step_size=step_size,
        batch_size=1,
        preconditioner="corrected_rmsprop",
        decay=decay,
        damping=damping,
        noise=lambda _: 0.0,
    )
    _, positions, _ = exact.simulate(algorithm, [1.5, 2.0], 6, num_chains=2, discard=0)
    x, v = np.array([1.5, 2.0]), np.zeros(2)
    expected = []
    for count in range(1, 7):

        def factor(x, v=v, count=count):
            new = decay * v + (1 - decay) * (precision * x) ** 2
            return 1 / (damping + np.sqrt(new / (1 - decay**count)))

        gamma = (factor(x + 1e-6) - factor(x - 1e-6)) / 2e-6
        v, step = (
            decay * v + (1 - decay) * (precision * x) ** 2,
            step_size * (-factor(x) * precision * x + gamma),
        )
        x = x + step
        expected.append(x)
    np.testing.assert_allclose(positions, [expected] * 2, rtol=1e-4)


def test_a_preconditioner_that_follows_the_gradient_samples_posterior_over_g():
    """What dropping Gamma costs, on a normal: density exp(-x^2 / 2) (damping + |x|)."""
    damping = 0.5
    algorithm = sgld.build(
        exact.Gaussian(),
        step_size=0.005,
        batch_size=1,
        preconditioner="adaptive_rmsprop",
        decay=0.0,
        damping=damping,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(1), 3000)
    first, third = np.sqrt(2 / np.pi), np.sqrt(8 / np.pi)
    expected = (damping + third) / (damping + first)
    assert expected > 1.6
    exact.assert_mean(positions[..., 0] ** 2, expected, 0.01)


def test_what_gamma_adds_brings_the_posterior_back():
    """The same target and steps as above, whose second moment was 1.6 without it."""
    algorithm = sgld.build(
        exact.Gaussian(),
        step_size=0.005,
        batch_size=1,
        preconditioner="corrected_rmsprop",
        decay=0.0,
        damping=0.5,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(1) + 0.1, 3000)
    exact.assert_mean(positions[..., 0] ** 2, 1, 0.02)


def test_second_derivatives_of_a_network_are_those_of_its_batch():
    """The drift of many steps from one place, in the mean, against Gamma by hand."""
    data = cases.data()
    log_posterior = cases.log_posterior()
    start = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))
    options = {"step_size": 1e-3, "batch_size": 21, "batches": "epoch", "decay": 0.0}
    built = {
        name: sgld.build(
            log_posterior, preconditioner=name, noise=lambda _: 0.0, **options
        )
        for name in ("adaptive_rmsprop", "corrected_rmsprop")
    }

    def moved(name, key):
        algorithm = built[name]
        state = algorithm.init(jax.random.key(1), start, data)
        return jax.flatten_util.ravel_pytree(algorithm.step(key, state, data)[0][0])[0]

    keys = jax.random.split(jax.random.key(2), 20_000)
    with_gamma = jax.jit(jax.vmap(lambda key: moved("corrected_rmsprop", key)))(keys)
    plain = jax.jit(lambda key: moved("adaptive_rmsprop", key))(keys[0])
    drift = (np.asarray(with_gamma, np.float64) - np.asarray(plain)) / 1e-3

    flat, unravel = jax.flatten_util.ravel_pytree(start)

    def density(flat):
        nats = log_posterior.likelihood(cases.apply(unravel(flat), data.x), data.y)
        return jnp.sum(nats) + log_posterior.prior(unravel(flat))

    gradient, hessian = (jax.jit(of(density))(flat) for of in (jax.grad, jax.hessian))
    factor = np.sign(gradient) / (1 + np.abs(gradient)) ** 2
    expected = -factor * np.diag(hessian)
    error = drift.std(axis=0) / np.sqrt(len(keys))
    assert np.all(np.abs(drift.mean(axis=0) - expected) < 5 * error + 2e-3)
    assert np.median(error / np.abs(expected)) < 0.2


def test_schedules_set_step_size_and_noise_of_every_iteration():
    """Noise set to zero, it is gradient descent at the scheduled rates."""
    schedule = optax.linear_schedule(0.1, 0.02, 8)
    algorithm = sgld.build(
        exact.Gaussian(),
        step_size=schedule,
        batch_size=1,
        noise=lambda i: 1.0 * (i < 1),
    )
    _, positions, info = exact.simulate(
        algorithm, np.zeros(2), 10, num_chains=2, discard=0
    )
    rates = np.array([schedule(i) for i in range(10)])
    np.testing.assert_allclose(info.step_size[1], rates, rtol=1e-6)
    left = np.cumprod(1 - rates[1:])[:, None]
    np.testing.assert_allclose(positions[1, 1:], positions[1, 0] * left, rtol=1e-5)
    assert np.all(np.abs(positions[:, 0]) > 1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a positive"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_warmup": -1}, "`num_warmup` must be at least 0"),
        (
            {"preconditioner": "adam"},
            "must be one of rmsprop, adaptive_rmsprop, corrected",
        ),
        ({"preconditioner": "rmsprop"}, "`num_warmup` must be at least 1 for the"),
        ({"decay": 1.0}, "`decay` must be at least 0 and below 1, got 1.0"),
        ({"damping": 0.0}, "`damping` must be a positive"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        sgld.build(exact.Gaussian(), **({"step_size": 0.1, "batch_size": 4} | options))


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        sgld.build(lambda p, d: 0.0, step_size=0.1, batch_size=2)
