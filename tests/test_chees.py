"""ChEES: the length that it finds, what its chains share, and exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from blackjax.mcmc.dynamic_hmc import halton_sequence
from blackjax.mcmc.integrators import IntegratorState

from symjax import mesh, run
from symjax.samplers import chees


SCALES = jnp.array([1.0, 1.0, 1.0, 5.0])


def log_density(params, data):
    return -jnp.sum((params / SCALES) ** 2) / 2


def sample(density=log_density, num_devices=1, num_draws=600, **options):
    options = {"step_size": 0.2, "num_warmup": 600} | options
    return run.sample(
        jax.random.key(0),
        chees.build(density, **options),
        jax.random.normal(jax.random.key(1), (16, 4)),
        None,
        num_draws=num_draws,
        mesh=mesh.make_mesh(16, jax.devices()[:num_devices]),
        show_progress=False,
    )


@pytest.fixture(scope="module")
def result():
    return sample()


def test_it_samples_a_gaussian(result):
    """8 comparisons at 5 standard errors: a false alarm in 1e-5."""
    scaled = np.asarray(result.draws, np.float64) / np.asarray(SCALES)
    for i in range(4):
        for values, expected in ((scaled[..., i], 0), (scaled[..., i] ** 2, 1)):
            error = values.std() / np.sqrt(effective_sample_size(values))
            assert abs(values.mean() - expected) < 5 * error
            assert error < 0.05


def test_all_chains_share_step_size_and_leapfrogs(result):
    assert np.ptp(result.info.step_size, axis=0).max() == 0
    assert np.ptp(result.info.num_steps, axis=0).max() == 0
    after = np.asarray(result.info.step_size)[:, 600:]
    assert np.ptp(after) == 0


def test_the_length_suits_the_widest_direction(result):
    """Of a jittered trajectory: about pi / 2 of the widest scale, in the mean.

    Hoffman et al., section 3.2: ChEES of a Gaussian has its largest value there. The
    first length was 0.2.
    """
    after = np.asarray(result.info.num_steps)[0, 600:]
    size = float(result.info.step_size[0, -1])
    mean_length = (np.mean(after) - 0.5) * size
    assert 0.6 < mean_length / (5 * np.pi / 2) < 1.6
    assert after.max() <= 1000


def test_harmonic_mean_meets_the_target(result):
    acceptance = np.asarray(result.info.acceptance_rate)[:, 600:]
    harmonic = 1 / np.mean(1 / np.maximum(acceptance, 1e-3), axis=0)
    assert abs(np.mean(harmonic) - 0.651) < 0.12


@pytest.mark.parametrize("num_devices", [2, 8])
def test_chains_on_other_devices_count_as_much(num_devices):
    one = sample(num_draws=1, num_warmup=30)
    many = sample(num_draws=1, num_warmup=30, num_devices=num_devices)
    np.testing.assert_allclose(one.info.step_size, many.info.step_size, rtol=1e-3)
    np.testing.assert_array_equal(one.info.num_steps, many.info.num_steps)
    np.testing.assert_allclose(one.draws, many.draws, rtol=1e-3, atol=1e-3)


def test_the_most_leapfrogs_hold_and_bad_places_do_not_count():
    def cliff(params, data):
        inside = jnp.abs(params[0]) < 3
        return jnp.where(inside, log_density(params, data), jnp.nan)

    result = sample(cliff, max_num_steps=5, num_warmup=100, num_draws=100)
    assert np.asarray(result.info.num_steps).max() == 5
    assert np.isfinite(result.draws).all()
    assert result.info.is_divergent.any()


def test_one_chain_is_refused():
    with pytest.raises(ValueError, match="ChEES needs several chains.*got 1"):
        run.sample(
            jax.random.key(0),
            chees.build(log_density, step_size=0.1, num_warmup=10),
            jnp.zeros((1, 4)),
            None,
            num_draws=1,
            show_progress=False,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a positive number"),
        ({"num_warmup": 0}, "`num_warmup` must be at least 1, got 0"),
        ({"trajectory_length": -1.0}, "`trajectory_length` must be a positive number"),
        ({"max_num_steps": 0}, "`max_num_steps` must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "num_warmup": 10} | options
    with pytest.raises(ValueError, match=message):
        chees.build(log_density, **options)


def test_the_mean_of_the_lengths_is_kept_after_the_warm_up():
    algorithm = chees.build(lambda x, data: -x @ x / 2, step_size=0.1, num_warmup=5)
    state = algorithm.init(jax.random.key(0), jnp.ones(3), None)
    lengths = {"log_length": jnp.log(9.0), "mean_log_length": jnp.log(2.0)}
    for iteration, length in ((4, 9.0), (5, 2.0)):
        at = state._replace(iteration=jnp.array(iteration), **lengths)
        info = algorithm.step(jax.random.key(1), at, None)[1]
        share = 2 * float(halton_sequence(jnp.array(iteration)))
        assert abs(info.num_steps - share * length / 0.1) <= 1


def test_the_slope_is_that_of_the_criterion():
    """By differences in float64, proposals weighed by their acceptance."""
    random = np.random.default_rng(0)
    start, end, momentum = random.normal(size=(3, 7, 3))
    rate = random.uniform(0.1, 1.0, 7)
    rate[2], end[4] = 0.0, np.inf
    end_state = IntegratorState(
        jnp.asarray(end, jnp.float32),
        jnp.asarray(momentum, jnp.float32),
        jnp.asarray(np.where(np.isfinite(end[:, 0]), 0.0, np.nan), jnp.float32),
        jnp.zeros((7, 3)),
    )
    slope = mesh.vmap_chains(chees._slope, (0, 0, 0))
    found = slope(jnp.asarray(start, jnp.float32), end_state, jnp.asarray(rate))

    kept = [0, 1, 3, 5, 6]
    weight = rate[kept] / rate[kept].sum()
    before = np.sum((start - start.mean(axis=0)) ** 2, axis=1)[kept]
    centre = weight @ end[kept]

    def criterion(time):
        after = np.sum((end[kept] + time * momentum[kept] - centre) ** 2, axis=1)
        return weight @ (after - before) ** 2 / 4

    expected = (criterion(1e-5) - criterion(-1e-5)) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=1e-4)
