"""BAOAB against closed forms: its target, its bias, the heat of gradient noise.

Seeds are fixed; with others every test would fail less than once in 10^4 times.
"""

from typing import NamedTuple

import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad
from scipy.linalg import solve_discrete_lyapunov

from symjax.samplers import baoab


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    data, mean, _ = exact.regression(20)
    algorithm = baoab.build(
        exact.log_posterior(temperature=temperature),
        step_size=0.02 * temperature**0.5,
        friction=10.0,
        # All examples: no gradient noise.
        batch_size=20,
        batches="epoch",
    )
    _, positions, info = exact.simulate(algorithm, mean[:, None], 500, data=data)
    exact.assert_regression(positions, temperature, 0.05)
    exact.assert_mean(info.kinetic_temperature, 1, 0.03)


@pytest.mark.parametrize("step_size", [0.4, 0.8, 1.6])
def test_positions_of_a_gaussian_are_exact_and_momenta_colder_by_e_squared(step_size):
    """At step sizes up to eight tenths of the largest stable one."""
    algorithm = baoab.build(
        exact.Gaussian(), step_size=step_size, friction=1.0, batch_size=1
    )
    _, positions, info = exact.simulate(algorithm, np.zeros(2), 500)
    for i in range(2):
        exact.assert_mean(positions[..., i] ** 2, 1)
    exact.assert_mean(info.kinetic_temperature, 1 - step_size**2 / 4)


class Logistic(NamedTuple):
    """The density 1 / cosh(x)^2."""

    def minibatch(self, key, params, data, batch_size):
        return -2 * jnp.sum(jnp.logaddexp(params, -params))


def test_a_target_that_is_not_gaussian():
    algorithm = baoab.build(Logistic(), step_size=0.5, friction=1.0, batch_size=1)
    _, positions, _ = exact.simulate(algorithm, np.zeros(20), 600, num_chains=100)
    variance = quad(lambda x: x**2 / np.cosh(x) ** 2 / 2, -30, 30)[0]
    exact.assert_mean((positions**2).mean(axis=-1), variance, 0.01)


def test_gradient_noise_heats_by_what_theory_says():
    """The covariance of a linear recursion, solved by SciPy."""
    step_size, friction, noise = 0.3, 0.5, 2.0
    algorithm = baoab.build(
        exact.Gaussian(noise=noise),
        step_size=step_size,
        friction=friction,
        batch_size=1,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(2), 500)
    drift = np.array([[1, step_size / 2], [0, 1]])
    kick = np.array([[1, 0], [-step_size, 1]])
    decay = np.exp(-friction * step_size)
    inject = kick @ drift @ np.diag([0, 1 - decay**2]) @ (kick @ drift).T
    covariance = solve_discrete_lyapunov(
        kick @ drift @ np.diag([1, decay]) @ drift,
        inject + np.diag([0, (step_size * noise) ** 2]),
    )
    assert covariance[0, 0] > 1.9
    for i in range(2):
        exact.assert_mean(positions[..., i] ** 2, covariance[0, 0])


def test_momentum_lasts_from_one_step_to_the_next():
    """A free particle (flat density, no friction to speak of) flies straight on."""
    algorithm = baoab.build(
        exact.Gaussian(precision=0.0), step_size=0.1, friction=1e-8, batch_size=1
    )
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), exact.NO_DATA)
    momentum = state.momentum
    for i in range(5):
        state, _ = algorithm.step(jax.random.key(i), state, exact.NO_DATA)
    np.testing.assert_allclose(state.position, 0.5 * momentum, atol=1e-3)


def test_schedules_set_step_size_and_noise_of_every_iteration():
    """Noise set to zero, the chain comes to rest."""
    schedule = optax.linear_schedule(0.2, 0.1, 100)
    algorithm = baoab.build(
        exact.Gaussian(),
        step_size=schedule,
        friction=1.0,
        batch_size=1,
        noise=lambda i: 0.0 * i,
    )
    _, positions, info = exact.simulate(
        algorithm, np.zeros(2), 400, num_chains=2, discard=0
    )
    rates = [schedule(i) for i in range(400)]
    np.testing.assert_allclose(info.step_size[1], rates, rtol=1e-6)
    assert np.all(np.abs(positions[:, -1]) < 1e-4 * np.abs(positions[:, 1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": -1.0}, "`step_size` must be a positive"),
        ({"friction": 0.0}, "`friction` must be a positive"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_warmup": -1}, "`num_warmup` must be at least 0"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "friction": 3.0, "batch_size": 4} | options
    with pytest.raises(ValueError, match=message):
        baoab.build(exact.Gaussian(), **options)


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        baoab.build(lambda p, d: 0.0, step_size=0.1, friction=1.0, batch_size=2)
