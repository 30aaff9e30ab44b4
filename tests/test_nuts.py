"""NUTS against blackjax's own key by key, and against exact answers."""

import blackjax
import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from blackjax.mcmc.metrics import default_metric
from scipy.special import digamma, polygamma

from symjax import mesh, run
from symjax.energies import LowRankInverseMassMatrix
from symjax.samplers import nuts


def sample(log_density, start, *, num_draws, **options):
    return run.sample(
        jax.random.key(0),
        nuts.build(log_density, **options),
        start,
        None,
        num_draws=num_draws,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def assert_mean(values, expected):
    """Within 5 standard errors: a false alarm in 1e-6 of the cases."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.05 * max(values.std(), abs(expected))


def density(params, data):
    a, b = params["a"], params["b"]
    return -jnp.sum(a**2 * jnp.array([1.0, 9.0])) / 2 - jnp.sum((b - a[0]) ** 2)


LOW_RANK = LowRankInverseMassMatrix(
    jnp.array([1.0, 0.4, 0.8]),
    jnp.linalg.qr(jax.random.normal(jax.random.key(5), (3, 2)))[0],
    jnp.array([0.5, 3.0]),
)


@pytest.mark.parametrize(
    ("inverse_mass_matrix", "theirs"),
    [
        (1.0, jnp.ones(3)),
        ({"a": jnp.array([2.0, 0.3]), "b": 0.5}, jnp.array([2.0, 0.3, 0.5])),
        (LOW_RANK, LOW_RANK),
    ],
    ids=["unit", "diagonal", "low-rank"],
)
def test_draws_equal_those_of_blackjax_key_by_key(inverse_mass_matrix, theirs):
    start = {"a": jnp.array([0.5, -0.2]), "b": jnp.array([1.0])}
    ours = nuts.build(density, step_size=0.2, inverse_mass_matrix=inverse_mass_matrix)
    other = blackjax.nuts(lambda p: density(p, None), 0.2, theirs)
    state, reference = ours.init(jax.random.key(0), start, None), other.init(start)
    step, reference_step = jax.jit(ours.step), jax.jit(other.step)
    kinetic = default_metric(theirs).kinetic_energy
    lengths = set()
    for key in jax.random.split(jax.random.key(1), 50):
        state, info = step(key, state, None)
        before = reference.logdensity
        reference, expected = reference_step(key, reference)
        began = kinetic(expected.momentum) - before
        np.testing.assert_allclose(
            info.energy_change, expected.energy - began, atol=1e-3
        )
        assert info.num_doublings == expected.num_trajectory_expansions
        for name in ("a", "b"):
            np.testing.assert_allclose(
                state.position[name], reference.position[name], atol=2e-4
            )
        assert info.num_steps == expected.num_integration_steps
        np.testing.assert_allclose(
            info.acceptance_rate, expected.acceptance_rate, atol=1e-3
        )
        np.testing.assert_allclose(state.log_density, reference.logdensity, atol=1e-3)
        lengths.add(int(info.num_steps))
    assert len(lengths) > 2


def test_a_chain_that_stays_is_not_said_to_have_moved():
    """With steps so coarse that some trajectories lead nowhere."""

    def gaussian(params, data):
        return -jnp.sum(params**2) / 2

    result = sample(gaussian, jnp.ones((4, 8)), num_draws=200, step_size=1.6)
    has_moved = np.any(np.diff(result.draws, axis=1) != 0, axis=-1)
    np.testing.assert_array_equal(result.info.is_accepted[:, 1:], has_moved)
    assert 0.1 < has_moved.mean() < 1


def test_a_skewed_target():
    """log of a Gamma(2, 1) variable: mean digamma(2), variance polygamma(1, 2)."""

    def log_density(params, data):
        return jnp.sum(2 * params - jnp.exp(params))

    draws = sample(
        log_density, jnp.zeros((4, 2)), num_draws=4000, step_size=0.1, num_warmup=200
    ).draws
    assert_mean(draws[..., 0], digamma(2))
    assert_mean((draws[..., 0] - digamma(2)) ** 2, polygamma(1, 2))


def test_the_warm_up_learns_scales_and_meets_its_target():
    scales = jnp.array([0.01, 0.1, 1.0, 10.0])

    def log_density(params, data):
        return -jnp.sum((params / scales) ** 2) / 2

    result = sample(
        log_density,
        jnp.zeros((4, 4)),
        num_draws=1500,
        step_size=0.005,
        inverse_mass_matrix="diagonal",
        num_warmup=400,
    )
    for i in range(4):
        assert_mean((result.draws[..., i] / scales[i]) ** 2, 1)
    after = jax.tree.map(lambda leaf: leaf[:, 400:], result.info)
    # With unit mass a trajectory would take a thousand leapfrogs.
    assert np.mean(after.num_steps) < 12
    assert abs(np.mean(after.acceptance_rate) - 0.8) < 0.12
    assert np.ptp(after.step_size, axis=1).max() == 0


def test_the_limit_of_doublings_holds():
    def wide(params, data):
        return -jnp.sum((params / 1e3) ** 2) / 2

    info = sample(
        wide, jnp.zeros((2, 3)), num_draws=20, step_size=0.1, max_num_doublings=3
    ).info
    assert np.all(info.num_steps == 7)
    assert np.all(info.num_doublings == 3)


def test_a_divergence_ends_the_trajectory_and_is_reported():
    def cliff(params, data):
        return jnp.where(jnp.sum(params) < 1, -jnp.sum(params**2) / 2, -jnp.inf)

    result = sample(cliff, jnp.zeros((4, 1)), num_draws=500, step_size=0.5)
    assert 0.05 < result.info.is_divergent.mean() < 0.95
    assert result.draws.max() < 1
    assert "proposals diverged" in result.messages[0]


def test_energies_are_relative_where_sums_would_round():
    """A constant of 10^7 nats leaves no bit for the change in float32."""
    base = cases.log_posterior()

    class Shifted:
        def __call__(self, params, data):
            return base(params, data) - 1e7

        def relative_to(self, start, data):
            return base.relative_to(start, data)

    data = cases.data()
    start = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))
    states = []
    for log_density in (base, Shifted()):
        algorithm = nuts.build(log_density, step_size=0.1)
        state = algorithm.init(jax.random.key(0), start, data)
        for key in jax.random.split(jax.random.key(1), 5):
            state, _ = jax.jit(algorithm.step)(key, state, data)
        states.append(state)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        *(state.position for state in states),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a positive number"),
        ({"max_num_doublings": 0}, "`max_num_doublings` must be at least 1, got 0"),
        ({"max_num_doublings": 31}, "must be at most 30, a billion leapfrogs, got 31"),
        ({"target_acceptance": 1.5}, "`target_acceptance` must be between 0 and 1"),
        ({"inverse_mass_matrix": "dense"}, "one of diagonal, low_rank, got 'dense'"),
        ({"inverse_mass_matrix": "diagonal"}, "at least 80 to learn a diagonal"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        nuts.build(density, **({"step_size": 0.1} | options))
