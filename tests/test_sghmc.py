"""SGHMC against exact answers, at step sizes where its bias is below the tolerance."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from blackjax.diagnostics import effective_sample_size
from exact import log_posterior, regression

from symjax import mesh, run
from symjax.samplers import sghmc


def sample(log_posterior, data, *, num_draws=4000, thinning=10, **options):
    return run.sample(
        jax.random.key(0),
        sghmc.build(log_posterior, **options),
        jnp.zeros((4, 2, 1)),
        data,
        num_draws=num_draws,
        thinning=thinning,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def assert_mean(values, expected, bias):
    """Within 5 standard errors and the discretisation's own bias."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error + bias * abs(expected)
    assert error < 0.1 * max(values.std(), abs(expected))


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    """The trap of blackjax's own kernel: its momentum ignores the temperature."""
    data, mean, covariance = regression(20)
    result = sample(
        log_posterior(temperature=temperature),
        data,
        step_size=0.02 * temperature**0.5,
        friction=3.0,
        # All examples: no gradient noise.
        batch_size=20,
        batches="epoch",
        num_warmup=500,
        num_draws=1000,
    )
    draws = result.draws[..., 0]
    for i in range(2):
        variance = temperature * covariance[i, i]
        scaled = (draws[..., i] - mean[i]) / np.sqrt(variance)
        assert_mean(scaled, 0, 0)
        assert_mean(scaled**2, 1, 0.03)
    assert_mean(result.info.kinetic_temperature[:, 500:], 1, 0.03)


def test_minibatch_noise_heats_the_chain_by_what_theory_says():
    """Kinetic temperature (1 + e V / (2 a)) / (1 - a e / 2), V the gradient's noise.

    Some 6,000 independent values: five standard errors are 0.09 of the mean.
    """
    data, mean, _ = regression(200)
    noise = (data.y - data.x @ mean[:, None]) * data.x
    for batch_size in (200, 50):
        result = sample(
            log_posterior(),
            data,
            step_size=0.01,
            friction=5.0,
            batch_size=batch_size,
            num_warmup=500,
            num_draws=1600,
        )
        variance = 200**2 / batch_size * noise.var(axis=0).mean()
        temperature = result.info.kinetic_temperature[:, 500:].mean()
        expected = (1 + 0.01 * variance / (2 * 5)) / (1 - 5 * 0.01 / 2)
        assert abs(temperature / expected - 1) < 0.09
    assert temperature > 1.5


def test_momentum_lasts_from_one_step_to_the_next():
    """A free particle (flat density, no friction to speak of) flies straight on."""

    class Flat:
        def minibatch(self, key, params, data, batch_size):
            return 0.0 * jnp.sum(params)

    algorithm = sghmc.build(Flat(), step_size=0.1, friction=1e-8, batch_size=1)
    data = regression(3)[0]
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), data)
    momentum = state.momentum
    for i in range(5):
        state, _ = algorithm.step(jax.random.key(i), state, data)
    np.testing.assert_allclose(state.position, 0.5 * momentum, atol=1e-3)


def test_a_schedule_sets_the_step_size_of_every_iteration():
    data, _, _ = regression(20)
    schedule = optax.linear_schedule(0.02, 0.01, 100)
    result = sample(
        log_posterior(),
        data,
        step_size=schedule,
        friction=1.0,
        batch_size=5,
        num_draws=20,
    )
    expected = [schedule(i) for i in range(200)]
    np.testing.assert_allclose(result.info.step_size[2], expected, rtol=1e-6)


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
        sghmc.build(log_posterior(), **({"batch_size": 4} | options))


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        sghmc.build(lambda p, d: 0.0, step_size=0.1, friction=1.0, batch_size=2)
