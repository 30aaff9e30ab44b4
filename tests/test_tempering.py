"""Parallel tempering where chains of one temperature never cross."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size

from symjax import mesh, run
from symjax.samplers import hmc, nuts, sgld, tempering


LADDER = (1.0, 3.0, 9.0, 27.0)


def two_modes(params, data):
    """0.3 at -6 and 0.7 at 6, of variance 1: the way between costs 18 nats."""
    left = jnp.log(0.3) - jnp.sum((params + 6) ** 2) / 2
    right = jnp.log(0.7) - jnp.sum((params - 6) ** 2) / 2
    return jnp.logaddexp(left, right)


def make(density):
    return hmc.build(density, step_size=0.8, num_steps=4, num_warmup=50)


def sample(build=make, *, num_devices=1, num_draws=4000, num_burn_in=200, **options):
    algorithm = tempering.build(build, two_modes, temperatures=LADDER, **options)
    return run.sample(
        jax.random.key(0),
        algorithm,
        jnp.full((8, 1), -6.0),
        None,
        num_draws=num_draws,
        num_burn_in=num_burn_in,
        mesh=mesh.make_mesh(8, jax.devices()[:num_devices]),
        show_progress=False,
    )


def assert_mean(values, expected):
    """Within 5 standard errors: a false alarm in 1e-6 of the cases."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.1 * max(values.std(), abs(expected))


@pytest.fixture(scope="module")
def result():
    return sample()


def test_the_cold_chains_find_both_modes_and_their_weights(result):
    cold = np.asarray(result.draws)[::4, :, 0]
    assert_mean(cold > 0, 0.7)
    assert_mean((np.abs(cold) - 6) ** 2, 1)


def test_chains_of_one_temperature_never_cross():
    alone = run.sample(
        jax.random.key(0),
        make(two_modes),
        jnp.full((8, 1), -6.0),
        None,
        num_draws=2000,
        show_progress=False,
    )
    assert np.all(alone.draws < 0)


def assert_rungs(result):
    """By numerical integration of the density to the power 1 / T."""
    grid = np.linspace(-60, 60, 40001)
    log_density = np.array(jax.vmap(lambda x: two_modes(x[None], None))(grid))
    for rung, temperature in enumerate(LADDER):
        draws = np.asarray(result.draws)[rung::4, :, 0]
        weight = np.exp(log_density / temperature - np.max(log_density / temperature))
        expected = np.trapezoid(grid**2 * weight, grid) / np.trapezoid(weight, grid)
        assert_mean(draws**2, expected)


def test_every_rung_samples_its_own_temperature(result):
    assert_rungs(result)
    for rung, temperature in enumerate(LADDER):
        assert np.all(np.asarray(result.info.temperature)[rung::4] == temperature)


def test_what_a_sampler_keeps_of_another_density_is_not_swapped():
    """A function around the one at the chain's temperature, divided by that."""
    result = sample(lambda density: make(lambda params, data: density(params, data)))
    assert_mean(np.asarray(result.draws)[::4, :, 0] > 0, 0.7)
    assert_rungs(result)


def test_pairs_swap_in_turn_and_say_how_often(result):
    rates = tempering.swap_rates(result.info, 4)
    assert rates.shape == (3,)
    assert np.all((rates > 0.2) & (rates < 0.95))
    tried = np.asarray(result.info.is_swap_tried)
    for rung in range(3):
        each = np.asarray(result.info.swap_rate, float)[rung::4]
        mean = each.sum() / tried[rung::4].sum()
        assert rates[rung] == pytest.approx(mean, rel=1e-5)
    assert not tried[3::4].any()
    assert np.all(tried[0] != tried[1])
    assert np.all(tried[0] == tried[2])


def test_log_densities_are_of_the_state_after_the_swap(result):
    last = np.asarray(result.draws)[:, -1]
    expected = jax.vmap(lambda x: two_modes(x, None))(last)
    np.testing.assert_allclose(result.info.log_density[:, -1], expected, atol=1e-3)


@pytest.mark.parametrize("num_devices", [2, 8])
def test_chains_on_other_devices_swap_as_well(num_devices):
    def fixed(density):
        return hmc.build(density, step_size=0.8, num_steps=4)

    one, many = (
        sample(fixed, num_draws=20, num_burn_in=0, num_devices=n)
        for n in (1, num_devices)
    )
    np.testing.assert_allclose(one.draws, many.draws, atol=1e-2)
    np.testing.assert_array_equal(one.info.is_swap_tried, many.info.is_swap_tried)


def test_other_samplers_and_rarer_swaps():
    def make_nuts(density):
        return nuts.build(density, step_size=0.5, num_warmup=50)

    result = sample(make_nuts, num_draws=2000, swap_every=3)
    assert_mean(np.asarray(result.draws)[::4, :, 0] > 0, 0.7)
    assert_rungs(result)
    assert np.asarray(result.info.is_swap_tried)[:, 2::3].any()
    assert not np.asarray(result.info.is_swap_tried)[:, 0::3].any()


@pytest.mark.parametrize("ladder", [(1.0,), (2.0, 3.0), (1.0, 1.0), (1.0, 3.0, 2.0)])
def test_a_ladder_that_does_not_rise_from_one_is_refused(ladder):
    with pytest.raises(ValueError, match="begin with 1 and rise"):
        tempering.build(make, two_modes, temperatures=ladder)


def test_a_number_of_chains_that_the_ladder_does_not_divide_is_refused():
    algorithm = tempering.build(make, two_modes, temperatures=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="multiple of the 3 `temperatures`, got 8"):
        run.sample(
            jax.random.key(0),
            algorithm,
            jnp.zeros((8, 1)),
            None,
            num_draws=1,
            show_progress=False,
        )


def test_a_sampler_without_a_log_density_is_refused():
    class Plain:
        def minibatch(self, key, params, data, batch_size):
            return two_modes(params, data)

        def __call__(self, params, data):
            return two_modes(params, data)

    def make_sgld(density):
        return sgld.build(Plain(), step_size=0.1, batch_size=1)

    algorithm = tempering.build(make_sgld, Plain(), temperatures=LADDER)
    with pytest.raises(TypeError, match="state holds `log_density` and `gradient`"):
        algorithm.init(jax.random.key(0), jnp.zeros(1), exact.NO_DATA)


def test_swaps_do_not_subtract_two_large_log_densities():
    """A constant of 10^8 nats, which float32 counts in eights, changes no swap."""

    class Far:
        def __call__(self, params, data):
            return two_modes(params, data) + 1e8

        def tally(self, params, data):
            return two_modes(params, data)

        def gain(self, params, proposal, data, before, after):
            return after - before

    def rates(density):
        result = run.sample(
            jax.random.key(0),
            tempering.build(make, density, temperatures=LADDER),
            jnp.linspace(-8.0, 8.0, 8)[:, None],
            None,
            num_draws=20,
            mesh=mesh.make_mesh(8, jax.devices()[:1]),
            show_progress=False,
        )
        return np.asarray(result.info.swap_rate)

    near = rates(two_modes)
    assert np.mean((near > 0.1) & (near < 0.9)) > 0.02
    np.testing.assert_allclose(rates(Far()), near, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("num_devices", [1, 4])
def test_a_swap_loses_no_place_and_doubles_none(num_devices):
    """Where nothing else moves, the chains always hold what they began with."""

    def stand_still(density):
        moving = hmc.build(density, step_size=1e-3, num_steps=1)

        def step(key, state, data):
            moved, info = moving.step(key, state, data)
            return state._replace(iteration=moved.iteration), info

        return moving._replace(step=step)

    starts = jnp.linspace(-8.0, 8.0, 8)[:, None]
    draws = run.sample(
        jax.random.key(0),
        tempering.build(stand_still, two_modes, temperatures=LADDER),
        starts,
        None,
        num_draws=100,
        mesh=mesh.make_mesh(8, jax.devices()[:num_devices]),
        show_progress=False,
    ).draws[..., 0]
    np.testing.assert_array_equal(np.sort(draws, axis=0), np.tile(starts, 100))
    assert np.mean(np.diff(draws, axis=1) != 0) > 0.1


def test_every_pair_has_its_turn_where_swaps_are_rarer():
    """Of an even number of transitions between swaps too."""

    def fixed(density):
        return hmc.build(density, step_size=0.8, num_steps=2)

    result = sample(fixed, num_draws=8, num_burn_in=0, swap_every=2)
    tried = np.asarray(result.info.is_swap_tried)
    even, odd = [0, 0, 0, 1] * 2, [0, 1, 0, 0] * 2
    for rung, turns in enumerate((even, odd, even, [0] * 8)):
        np.testing.assert_array_equal(tried[rung::4], [turns] * 2)


def test_the_warm_up_is_that_of_the_rungs():
    algorithm = tempering.build(make, two_modes, temperatures=LADDER)
    assert algorithm.num_warmup == 50
