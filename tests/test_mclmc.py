"""MCLMC against exact answers; its bias, and the rule that sets its step size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size

from symjax import mesh, run
from symjax.samplers import mclmc


SCALES = np.array([0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 1.0, 1.0])
MEAN = np.arange(8.0) / 4


def log_density(params, data):
    del data
    return -jnp.sum(((params - MEAN) / SCALES) ** 2) / 2


def sample(density=log_density, *, num_draws, thinning=1, **options):
    return run.sample(
        jax.random.key(0),
        mclmc.build(density, **options),
        jnp.zeros((4, 8)),
        None,
        num_draws=num_draws,
        thinning=thinning,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def variances(step_size):
    """Of each parameter, in units of the true ones, and their standard errors.

    With so large a target that no step is refused.
    """
    result = sample(
        target_energy_variance=100.0,
        step_size=step_size,
        decoherence_length=4.0,
        num_draws=4000,
        thinning=max(1, round(1.0 / step_size)),
    )
    squares = ((np.asarray(result.draws, np.float64) - MEAN) / SCALES) ** 2
    errors = [
        squares[..., i].std() / np.sqrt(effective_sample_size(squares[..., i]))
        for i in range(8)
    ]
    return squares.mean(axis=(0, 1)), np.array(errors)


def test_small_steps_sample_a_gaussian():
    """16 comparisons at 5 standard errors: a false alarm in fewer than 1e-4."""
    result = sample(step_size=0.25, decoherence_length=4.0, num_draws=3000, thinning=8)
    scaled = (np.asarray(result.draws, np.float64) - MEAN) / SCALES
    for i in range(8):
        for values, expected in ((scaled[..., i], 0), (scaled[..., i] ** 2, 1)):
            error = values.std() / np.sqrt(effective_sample_size(values))
            assert abs(values.mean() - expected) < 5 * error
            assert error < 0.06


def test_coarse_steps_are_biased_and_half_of_them_much_less():
    """Of second order: a quarter of the bias is left."""
    coarse, coarse_error = variances(2.0)
    fine, fine_error = variances(1.0)
    bias, left = (np.abs(one - 1).max() for one in (coarse, fine))
    assert bias > 10 * coarse_error.max()
    assert left < bias / 2


def test_the_warm_up_meets_the_target_of_the_energy():
    for first in (0.05, 3.0):
        result = sample(
            step_size=first,
            decoherence_length=4.0,
            num_warmup=1500,
            target_energy_variance=1e-2,
            num_draws=3000,
        )
        change = np.asarray(result.info.energy_change)[:, 1500:]
        assert 0.5 < np.mean(change**2) / (8 * 1e-2) < 2
        sizes = np.asarray(result.info.step_size)[:, 1500:]
        assert np.ptp(sizes, axis=1).max() == 0


def test_energy_changes_by_the_sixth_power_of_the_step():
    squares = [
        np.mean(
            np.square(
                sample(
                    step_size=size, decoherence_length=4.0, num_draws=2000
                ).info.energy_change
            )
        )
        for size in (0.5, 0.25)
    ]
    assert 5 < np.log2(squares[0] / squares[1]) < 7


def test_a_cliff_is_left_and_steps_shrink():
    def cliff(params, data):
        inside = jnp.sum(params**2) < 9
        return jnp.where(inside, -jnp.sum(params**2) / 2, jnp.nan)

    result = sample(
        cliff, step_size=5.0, decoherence_length=3.0, num_warmup=200, num_draws=200
    )
    assert np.asarray(result.info.is_divergent)[:, :10].any()
    assert np.isfinite(result.draws).all()
    assert np.sum(np.asarray(result.draws) ** 2, axis=-1).max() < 9
    assert np.asarray(result.info.step_size)[:, -1].max() < 5


def test_a_step_beyond_the_limit_is_refused_and_turns_round():
    """From the slope of a wall, of which a coarse step sees nothing."""

    def wall(params, data):
        return -jnp.sum(params**2) / 2 - jnp.sum(params**40)

    options = {"step_size": 0.7, "decoherence_length": 3.0}
    algorithm = mclmc.build(wall, **options)
    start = jnp.array([0.9, 0.5, -0.2])
    state = algorithm.init(jax.random.key(0), start, None)
    seen = set()
    for i in range(40):
        new, info = jax.jit(algorithm.step)(jax.random.key(i), state, None)
        root = np.sqrt(3 * 1e-4)
        assert info.is_divergent == (abs(info.energy_change) > mclmc.LIMIT * root)
        stays = bool((new.position == start).all())
        assert stays == info.is_divergent
        if stays:
            np.testing.assert_array_equal(new.momentum, -state.momentum)
            assert new.log_density == state.log_density
        seen.add(stays)
    assert seen == {True, False}


def test_the_rule_is_the_radius_of_the_typical_set():
    assert mclmc.rule_length(0.5, 400) == 10


def test_one_parameter_is_refused():
    algorithm = mclmc.build(
        lambda params, data: -(params**2), step_size=0.1, decoherence_length=1.0
    )
    with pytest.raises(ValueError, match="at least two numbers for MCLMC.*got 1"):
        algorithm.init(jax.random.key(0), jnp.zeros(()), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a"),
        ({"decoherence_length": -1.0}, "`decoherence_length` must be a"),
        ({"num_warmup": -1}, "`num_warmup` must be"),
        ({"target_energy_variance": 0.0}, "`target_energy_variance` must be a"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "decoherence_length": 1.0} | options
    with pytest.raises(ValueError, match=message):
        mclmc.build(log_density, **options)


def test_the_direction_is_forgotten_after_the_decoherence_length():
    """On flat ground the mean of u'.u is exp(-way / L), here of 8 steps of 0.5."""
    algorithm = mclmc.build(
        lambda params, data: 0.0 * jnp.sum(params),
        step_size=0.5,
        decoherence_length=4.0,
    )
    first = algorithm.init(jax.random.key(0), jnp.zeros(400), None)

    def end(key):
        def one(state, key):
            return algorithm.step(key, state, None)[0], None

        return jax.lax.scan(one, first, jax.random.split(key, 8))[0].momentum

    ends = jax.jit(jax.vmap(end))(jax.random.split(jax.random.key(1), 1000))
    assert abs(np.mean(ends @ first.momentum) - np.exp(-1)) < 0.01


def test_the_step_size_that_is_kept_is_the_mean_of_the_second_half():
    """Of the logs; the last one of them is not seen, but must be near the others."""
    result = sample(
        step_size=0.05,
        decoherence_length=4.0,
        num_warmup=20,
        target_energy_variance=1e-2,
        num_draws=2,
    )
    sizes = np.log(np.asarray(result.info.step_size, np.float64))
    last = 10 * sizes[:, 20] - sizes[:, 11:20].sum(axis=1)
    np.testing.assert_allclose(last, sizes[:, 19], atol=0.3)
