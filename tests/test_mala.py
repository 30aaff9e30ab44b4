"""MALA against blackjax's proposal and ratio, and against exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from blackjax.mcmc import mala as theirs
from scipy.special import digamma, polygamma

from symjax import mesh, run
from symjax.samplers import mala


def skewed(params, data):
    """log of Gamma(2, 1) variables: mean digamma(2), variance polygamma(1, 2)."""
    return jnp.sum(2 * params - jnp.exp(params))


def sample(log_density, start, *, num_draws, **options):
    return run.sample(
        jax.random.key(0),
        mala.build(log_density, **options),
        start,
        None,
        num_draws=num_draws,
        num_burn_in=100,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def assert_mean(values, expected):
    """Within 5 standard errors: a false alarm in 1e-6 of the cases."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.05 * max(values.std(), abs(expected))


@pytest.mark.parametrize("options", [{}, {"inverse_mass_matrix": 0.5}])
def test_a_skewed_target(options):
    draws = sample(
        skewed, jnp.zeros((8, 2)), num_draws=8000, step_size=0.5, **options
    ).draws
    assert_mean(draws[..., 0], digamma(2))
    assert_mean((draws[..., 0] - digamma(2)) ** 2, polygamma(1, 2))


def test_the_change_of_energy_is_the_log_ratio_of_blackjax():
    """Their formula of densities and proposals, at our start and our proposal."""
    start, size = jnp.array([0.3, -1.0, 0.8]), 0.3
    algorithm = mala.build(skewed, step_size=size)
    state = algorithm.init(jax.random.key(0), start, None)
    seen = 0
    for key in jax.random.split(jax.random.key(1), 20):
        after, info = algorithm.step(key, state, None)
        if not info.is_accepted:
            continue
        seen += 1
        before, new = (
            theirs.init(one.position, lambda p: skewed(p, None))
            for one in (state, after)
        )
        ratio = _log_ratio(before, new, size)
        np.testing.assert_allclose(-info.energy_change, ratio, atol=1e-5)
        drift = start + size * before.logdensity_grad
        noise = (after.position - drift) / np.sqrt(2 * size)
        assert np.abs(noise).max() < 5
    assert seen > 10


def _log_ratio(old, new, size):
    def log_proposal(a, b):
        off = b.position - a.position - size * a.logdensity_grad
        return -jnp.sum(off**2) / (4 * size)

    return (
        new.logdensity
        - old.logdensity
        + log_proposal(new, old)
        - log_proposal(old, new)
    )


def test_the_warm_up_meets_the_target():
    info = sample(
        skewed, jnp.zeros((4, 50)), num_draws=1000, step_size=1e-3, num_warmup=400
    ).info
    assert abs(np.mean(info.acceptance_rate[:, 500:]) - 0.574) < 0.08
    assert np.all(info.num_steps == 1)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`step_size` must be a positive number"):
        mala.build(skewed, step_size=-1.0)


def test_a_divergence_is_a_rise_beyond_the_threshold():
    info = sample(
        skewed,
        jnp.zeros((2, 5)),
        num_draws=100,
        step_size=0.3,
        divergence_threshold=0.3,
    ).info
    is_beyond = np.asarray(info.energy_change) > 0.3
    np.testing.assert_array_equal(info.is_divergent, is_beyond)
    assert 0 < is_beyond.mean() < 1
