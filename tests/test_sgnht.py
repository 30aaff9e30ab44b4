"""SGNHT against closed forms: its target, its bias, and what the thermostat takes out.

Seeds are fixed; with others every test would fail less than once in 10^4 times.
"""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax.samplers import sghmc, sgnht


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    data, mean, _ = exact.regression(20)
    algorithm = sgnht.build(
        exact.log_posterior(temperature=temperature),
        step_size=0.05 * temperature**0.5,
        friction=1.0,
        # Noise that differs between the directions would not all be taken out.
        # All examples: no gradient noise.
        batch_size=20,
        batches="epoch",
    )
    _, positions, info = exact.simulate(
        algorithm, mean[:, None], 1000, data=data, num_chains=100
    )
    exact.assert_regression(positions, temperature, 0.06)
    exact.assert_mean(info.kinetic_temperature, 1, 0.01)


def test_the_thermostat_takes_out_gradient_noise_that_heats_sghmc():
    """Closed forms, up to what the friction of 50 parameters still fluctuates.

    Stationary second moments of the recursion, E[p^2] = 1 given, tie the friction z to
    a and V, and the variance to z.
    """
    step_size, friction, noise = 0.1, 1.0, 4.0
    options = {"step_size": step_size, "friction": friction, "batch_size": 1}
    target = exact.Gaussian(noise=noise)
    _, positions, info = exact.simulate(
        sgnht.build(target, **options), np.zeros(50), 2000, num_chains=100
    )
    heat = friction + step_size * noise**2 / 2
    expected = np.roots([step_size / 2, step_size**2 / 4 - 1, heat]).min()
    exact.assert_mean(info.friction, expected, 0.003)
    exact.assert_mean(info.kinetic_temperature, 1, 0.001)
    exact.assert_mean((positions**2).mean(axis=-1), 1 - step_size * expected / 2, 0.003)
    _, hot, _ = exact.simulate(
        sghmc.build(target, **options), np.zeros(50), 500, num_chains=100
    )
    assert np.mean(hot**2) > 1.6


def test_momentum_lasts_from_one_step_to_the_next():
    """A free particle (flat density, no friction to speak of) flies straight on."""
    algorithm = sgnht.build(
        exact.Gaussian(precision=0.0), step_size=1e-4, friction=1e-9, batch_size=1
    )
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), exact.NO_DATA)
    momentum = state.momentum
    for i in range(5):
        state, _ = algorithm.step(jax.random.key(i), state, exact.NO_DATA)
    np.testing.assert_allclose(state.position, 5e-4 * momentum, rtol=1e-3)


def test_schedules_set_step_size_and_noise_of_every_iteration():
    """Noise set to zero, the chain comes to rest."""
    schedule = optax.linear_schedule(0.2, 0.1, 100)
    algorithm = sgnht.build(
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
        ({"step_size": 0.5}, "`friction` must be at most 1, got 0.5"),
        ({"step_size": -1.0}, "`step_size` must be a positive"),
        ({"friction": 0.0}, "`friction` must be a positive"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_warmup": -1}, "`num_warmup` must be at least 0"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "friction": 3.0, "batch_size": 4} | options
    with pytest.raises(ValueError, match=message):
        sgnht.build(exact.Gaussian(), **options)


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        sgnht.build(lambda p, d: 0.0, step_size=0.1, friction=1.0, batch_size=2)


def test_the_thermostat_starts_at_the_friction():
    algorithm = sgnht.build(exact.Gaussian(), step_size=0.1, friction=3.0, batch_size=1)
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), exact.NO_DATA)
    assert state.friction == 3
