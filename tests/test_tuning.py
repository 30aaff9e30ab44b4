"""First guesses: the largest curvature against NumPy, and steps that HMC accepts."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symjax import mesh, run, tuning
from symjax.samplers import hmc


def test_the_largest_curvature_of_a_quadratic():
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(6, 6))
    precision = matrix @ matrix.T + np.diag([0, 0, 0, 0, 0, 40.0])

    def log_density(params, data):
        return -params["a"] @ jnp.asarray(precision, jnp.float32) @ params["a"] / 2

    start = {"a": generator.normal(size=(3, 6)).astype(np.float32)}
    found = tuning.largest_curvatures(log_density, start, None)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(precision)[-1], rtol=0.02)


def test_a_start_at_zero_has_its_curvature():
    """Where the parameters say nothing of the width of differences."""
    precision = jnp.array([3.0, 100.0])
    density = lambda params, data: -jnp.sum(precision * params**2) / 2
    found = tuning.largest_curvatures(density, jnp.zeros((2, 2)), None)
    np.testing.assert_allclose(found, 100, rtol=1e-3)


def test_differences_of_many_parameters_are_as_narrow_as_of_few():
    """Along one of 10,000, whose curvature 100 x^2 grows beside the start at 1."""
    density = lambda params, data: (
        -100 * params[0] ** 4 / 12 - jnp.sum(params[1:] ** 2) / 2
    )
    found = tuning.largest_curvatures(density, jnp.ones((1, 10_000)), None)
    np.testing.assert_allclose(found, 100, rtol=1e-2)


def test_the_step_is_that_of_the_chain_with_the_largest_curvature():
    """Of -sum x^4 / 12 it is x^2, and leapfrogs of one step go for all chains."""
    starts = jnp.array([[1.0, 0.5], [20.0, 0.1], [0.1, 2.0]])
    density = lambda params, data: -jnp.sum(params**4) / 12
    suggestion = tuning.suggest(density, starts, None, prior_std=10.0)
    assert suggestion.step_size == pytest.approx(0.8 / 20, rel=1e-3)


def test_a_density_that_bends_upwards_limits_no_step():
    density = lambda params, data: jnp.sum(params**2) / 2
    suggestion = tuning.suggest(density, jnp.ones((2, 16)), None, prior_std=10.0)
    assert suggestion.step_size == pytest.approx(1.4 * 10 / 2)
    assert "would allow inf" in suggestion.reasons[0]


@pytest.mark.parametrize("num_devices", [1, 8])
def test_that_of_a_network_against_its_hessian(num_devices):
    log_posterior = cases.log_posterior()
    starts = cases.start(jax.random.key(0), 4)
    data = cases.data()
    found = tuning.largest_curvatures(
        log_posterior,
        starts,
        data,
        mesh=mesh.make_mesh(4, jax.devices()[:num_devices]),
    )
    one = jax.tree.map(lambda leaf: leaf[0], starts)
    unravel = jax.flatten_util.ravel_pytree(one)[1]

    def log_density(flat):
        params = unravel(flat)
        nats = log_posterior.likelihood(cases.apply(params, data.x), data.y)
        return jnp.sum(nats) + log_posterior.prior(params)

    hessian = jax.jit(jax.hessian(log_density))
    for chain in range(4):
        start = jax.tree.map(lambda leaf, i=chain: leaf[i], starts)
        flat = jax.flatten_util.ravel_pytree(start)[0]
        values = np.linalg.eigvalsh(-np.asarray(hessian(flat)))
        np.testing.assert_allclose(found[chain], values[-1], rtol=0.05)


def test_a_suggestion_is_accepted_and_says_why():
    """Neither nearly all nor nearly none, without any warm-up."""
    log_posterior = cases.log_posterior()
    starts = cases.start(jax.random.key(0), 4)
    suggestion = tuning.suggest(log_posterior, starts, cases.data(), prior_std=1.0)
    assert suggestion.trajectory_length == hmc.rule_length(1.0)
    assert "curvature at the starts" in suggestion.reasons[0]
    assert f"{suggestion.step_size:.3g}" in suggestion.reasons[0]
    info = run.sample(
        jax.random.key(0),
        hmc.build(
            log_posterior,
            step_size=suggestion.step_size,
            trajectory_length=suggestion.trajectory_length,
        ),
        starts,
        cases.data(),
        num_draws=200,
        show_progress=False,
    ).info
    assert 0.5 < np.mean(info.acceptance_rate) < 0.999


def test_a_flat_density_is_limited_by_the_prior():
    def log_density(params, data):
        return -jnp.sum(params**2) / 2e6

    starts = jnp.ones((2, 10_000))
    suggestion = tuning.suggest(log_density, starts, None, prior_std=0.5)
    assert suggestion.step_size == pytest.approx(0.07)
    assert suggestion.trajectory_length == hmc.rule_length(0.5)
    assert suggestion.trajectory_length == pytest.approx(np.pi / 4)
    assert "10,000 parameters" in suggestion.reasons[0]


def test_a_prior_without_width_is_refused():
    with pytest.raises(ValueError, match="`prior_std` must be a positive number"):
        tuning.suggest(lambda p, d: 0.0, jnp.ones((2, 3)), None, prior_std=0.0)
