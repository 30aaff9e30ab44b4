"""Jittered HMC: its lengths, and exact answers where a fixed length is trapped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size

from symjax import mesh, run
from symjax.samplers import dynamic_hmc, hmc


def gaussian(params, data):
    return -jnp.sum(params**2) / 2


def sample(algorithm, start, *, num_draws):
    return run.sample(
        jax.random.key(0),
        algorithm,
        start,
        None,
        num_draws=num_draws,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def test_a_whole_period_does_not_trap_it():
    """After 2 pi of time a Gaussian is where it began, and HMC hardly moves.

    10 comparisons at 5 standard errors: a false alarm in 1e-5.
    """
    start = jnp.full((4, 5), 2.0)
    options = {"step_size": 0.1, "trajectory_length": 2 * np.pi}
    trapped = sample(hmc.build(gaussian, **options), start, num_draws=1000).draws
    free = sample(dynamic_hmc.build(gaussian, **options), start, num_draws=1000).draws
    free, trapped = (np.asarray(x, np.float64) for x in (free, trapped))
    assert np.abs(np.diff(trapped, axis=1)).mean() < 0.2
    for i in range(5):
        for values, expected in ((free[..., i], 0), (free[..., i] ** 2, 1)):
            error = values.std() / np.sqrt(effective_sample_size(values))
            assert abs(values.mean() - expected) < 5 * error
            assert error < 0.1
    assert effective_sample_size(trapped[..., 0]) < 1000


@pytest.mark.parametrize(("jitter", "low", "high"), [(1.0, 0, 4), (0.2, 1.6, 2.4)])
def test_lengths_are_spread_evenly_about_the_mean(jitter, low, high):
    algorithm = dynamic_hmc.build(
        gaussian, step_size=0.01, trajectory_length=2.0, jitter=jitter
    )
    info = sample(algorithm, jnp.zeros((2, 3)), num_draws=256).info
    lengths = np.asarray(info.num_steps[0]) * 0.01
    assert np.all(np.asarray(info.num_steps[0]) == np.asarray(info.num_steps[1]))
    assert low <= lengths.min() <= low + 0.05
    assert high - 0.05 <= lengths.max() <= high + 0.011
    quartiles = np.quantile(lengths, [0.25, 0.5, 0.75])
    expected = low + (high - low) * np.array([0.25, 0.5, 0.75])
    np.testing.assert_allclose(quartiles, expected, atol=0.05)
    assert np.all(info.num_steps > 0)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"inverse_mass_matrix": 0.5},
        {"num_warmup": 30, "target_acceptance": 0.6},
        {"divergence_threshold": 0.05},
    ],
)
def test_no_jitter_is_hmc(more):
    options = {"step_size": 0.3, "trajectory_length": 1.5} | more
    start = jnp.ones((2, 3))
    plain = sample(hmc.build(gaussian, **options), start, num_draws=20)
    fixed = dynamic_hmc.build(gaussian, jitter=0.0, **options)
    again = sample(fixed, start, num_draws=20)
    np.testing.assert_array_equal(plain.draws, again.draws)
    np.testing.assert_array_equal(plain.info.is_divergent, again.info.is_divergent)
    assert again.info.is_divergent.any() == ("divergence_threshold" in more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jitter": 1.5}, "`jitter` must be between 0 and 1, got 1.5"),
        ({"trajectory_length": 0.0}, "`trajectory_length` must be a positive number"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "trajectory_length": 1.0} | options
    with pytest.raises(ValueError, match=message):
        dynamic_hmc.build(gaussian, **options)
