"""Cycles: what the sampler inside them gets, which of its steps are draws, and what
they are draws of.

Seeds are fixed; with others every test would fail less than once in 10^5 times.
"""

from functools import partial

import exact
import jax.numpy as jnp
import numpy as np
import pytest

from symjax.samplers import (
    baoab,
    cyclical,
    izmailov2021,
    sghmc,
    sgld,
    sgnht,
    sms_ubu,
)


SAMPLERS = {
    "sgld": sgld.build,
    "sghmc": partial(sghmc.build, friction=1.0),
    "sgnht": partial(sgnht.build, friction=1.0),
    "baoab": partial(baoab.build, friction=1.0),
    "sms_ubu": partial(sms_ubu.build, friction=1.0),
    "izmailov2021": partial(
        izmailov2021.build, momentum_decay=0.5, batches="replacement"
    ),
}


def test_the_sampler_gets_a_cosine_and_noise_in_the_last_part_of_a_cycle():
    given = {}

    def sampler(**schedules):
        given.update(schedules)
        return sgld.build(exact.Gaussian(), batch_size=1, **schedules)

    algorithm = cyclical.build(sampler, step_size=0.2, cycle_length=10, exploration=0.7)
    state, _, info = exact.simulate(algorithm, np.ones(2), 6, num_chains=3, discard=0)
    sizes = 0.1 * (1 + np.cos(np.pi * np.arange(10) / 10))
    steps = np.arange(20)
    np.testing.assert_allclose(given["step_size"](steps), np.tile(sizes, 2), rtol=1e-5)
    np.testing.assert_array_equal(given["noise"](steps), ([0] * 7 + [1] * 3) * 2)
    # Six draws are two cycles: those of the exploration are not among them.
    np.testing.assert_array_equal(state.iteration, 20)
    np.testing.assert_allclose(info.step_size, np.tile(sizes[7:], (3, 2)), rtol=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_exploration_has_no_noise(name):
    """All chains, whose noises differ, come to rest at the mode."""
    algorithm = cyclical.build(
        partial(SAMPLERS[name], exact.Gaussian(), batch_size=1),
        step_size=1e-3 if name in ("sgld", "izmailov2021") else 0.02,
        cycle_length=40_000,
        exploration=0.5,
    )
    _, positions, info = exact.simulate(
        algorithm, np.ones(2), 2, num_chains=3, discard=0
    )
    first_noise = 2 * np.sqrt(2 * info.step_size[0, 0])
    assert np.all(np.abs(positions[:, 0]) < 2 * first_noise)


def test_every_step_of_the_exploration_has_its_own_minibatch():
    """The same noise of the gradient in all of them would move the mode by its 10."""
    algorithm = cyclical.build(
        partial(sgld.build, exact.Gaussian(noise=10.0), batch_size=1),
        step_size=0.01,
        cycle_length=2000,
        exploration=0.5,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(20), 2, discard=0)
    assert 0.1 < np.std(positions[:, 0]) < 2


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_of_every_sampler_are_of_its_target(name):
    """Of a normal: with a long sampling phase, the last draw of every cycle."""
    algorithm = cyclical.build(
        partial(SAMPLERS[name], exact.Gaussian(), batch_size=1),
        step_size=0.1,
        cycle_length=400,
        exploration=0.25,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(20), 1500, num_chains=100)
    last = positions[:, 299::300]
    exact.assert_mean((last**2).mean(axis=-1), 1, 0.04)


def test_share_of_the_cycle_that_samples():
    assert cyclical.num_sampling(1000, 0.8) == 200
    assert cyclical.num_sampling(10, 0.0) == 10
    assert cyclical.num_sampling(10, 0.99) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a positive"),
        ({"cycle_length": 0}, "`cycle_length` must be at least 1"),
        ({"exploration": 1.0}, "`exploration` must be at least 0 and below 1, got 1.0"),
    ],
)
def test_bad_options_are_named(options, message):
    sampler = partial(sgld.build, exact.Gaussian(), batch_size=1)
    options = {"step_size": 0.1, "cycle_length": 10} | options
    with pytest.raises(ValueError, match=message):
        cyclical.build(sampler, **options)


@pytest.mark.parametrize("cycle_length", [10, 100_000])
def test_a_cycle_ends_above_0_however_long_it_is(cycle_length):
    """In float32 1 + cos(pi r) is 0 near r = 1, where SMS-UBU's noise is 0 / 0."""
    last = cycle_length - 1
    expected = 0.1 * np.cos(np.pi / 2 * last / cycle_length) ** 2
    found = cyclical.cosine(0.1, cycle_length)(jnp.asarray(last))
    np.testing.assert_allclose(found, expected, rtol=0.1)


def test_four_fifths_of_a_cycle_explore_and_the_warm_up_is_the_samplers():
    given = {}

    def sampler(**schedules):
        given.update(schedules)
        return sgld.build(exact.Gaussian(), batch_size=1, num_warmup=30, **schedules)

    algorithm = cyclical.build(sampler, step_size=0.2, cycle_length=10)
    np.testing.assert_array_equal(given["noise"](np.arange(10)), [0] * 8 + [1] * 2)
    assert algorithm.num_warmup == 30
