"""SGHMC against exact answers, at step sizes where its bias is below the tolerance."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax.samplers import sghmc


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    """The trap of blackjax's own kernel: its momentum ignores the temperature."""
    data, mean, _ = exact.regression(20)
    algorithm = sghmc.build(
        exact.log_posterior(temperature=temperature),
        step_size=0.02 * temperature**0.5,
        friction=3.0,
        # All examples: no gradient noise.
        batch_size=20,
        batches="epoch",
    )
    _, positions, info = exact.simulate(
        algorithm, mean[:, None], 1000, data=data, num_chains=150
    )
    exact.assert_regression(positions, temperature, 0.03)
    exact.assert_mean(info.kinetic_temperature, 1, 0.03)


def test_minibatch_noise_heats_the_chain_by_what_theory_says():
    """Kinetic temperature (1 + e V / (2 a)) / (1 - a e / 2), V the gradient's noise."""
    data, mean, _ = exact.regression(200)
    noise = (data.y - data.x @ mean[:, None]) * data.x
    for batch_size in (200, 50):
        algorithm = sghmc.build(
            exact.log_posterior(), step_size=0.01, friction=5.0, batch_size=batch_size
        )
        _, _, info = exact.simulate(
            algorithm, mean[:, None], 800, data=data, num_chains=150
        )
        variance = 200**2 / batch_size * noise.var(axis=0).mean()
        expected = (1 + 0.01 * variance / (2 * 5)) / (1 - 5 * 0.01 / 2)
        exact.assert_mean(info.kinetic_temperature, expected)
    assert expected > 1.5


def test_momentum_lasts_from_one_step_to_the_next():
    """A free particle (flat density, no friction to speak of) flies straight on."""

    class Flat:
        def minibatch(self, key, params, data, batch_size):
            return 0.0 * jnp.sum(params)

    algorithm = sghmc.build(Flat(), step_size=0.1, friction=1e-8, batch_size=1)
    data = exact.regression(3)[0]
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), data)
    momentum = state.momentum
    for i in range(5):
        state, _ = algorithm.step(jax.random.key(i), state, data)
    np.testing.assert_allclose(state.position, 0.5 * momentum, atol=1e-3)


def test_a_schedule_sets_the_step_size_of_every_iteration():
    data, _, _ = exact.regression(20)
    schedule = optax.linear_schedule(0.02, 0.01, 100)
    algorithm = sghmc.build(
        exact.log_posterior(), step_size=schedule, friction=1.0, batch_size=5
    )
    _, _, info = exact.simulate(
        algorithm, jnp.zeros((2, 1)), 200, data=data, num_chains=4, discard=0
    )
    expected = [schedule(i) for i in range(200)]
    np.testing.assert_allclose(info.step_size[2], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step_size": 0.5, "friction": 3.0}, ValueError, "must be at most 1, got 0.5"),
        ({"step_size": -1.0, "friction": 1.0}, ValueError, "`step_size` must be a"),
        ({"step_size": 0.1, "friction": 0.0}, ValueError, "`friction` must be a"),
        ({"step_size": 0.1, "friction": 1.0, "batch_size": 0}, ValueError, "batch_"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        sghmc.build(exact.log_posterior(), **({"batch_size": 4} | options))


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        sghmc.build(lambda p, d: 0.0, step_size=0.1, friction=1.0, batch_size=2)
