"""Split HMC: its integrator, and closed forms within 5 Monte-Carlo standard errors."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size

from symjax import mesh, run
from symjax.samplers import split_hmc


NUM_BLOCKS = 4
SCALES = np.array([1.0, 0.5, 2.0, 1.5])
CENTRES = np.random.default_rng(0).normal(size=(NUM_BLOCKS, 4))


def potential(params, index):
    """Blocks that differ: each pulls to a place of its own, and is not quadratic."""
    away = (params - jnp.asarray(CENTRES)[index]) * jnp.asarray(SCALES)
    return -jnp.sum(jnp.logaddexp(away, -away))


def move(start, step_size, num_steps):
    return split_hmc.integrate(
        jax.grad(potential), NUM_BLOCKS, start, jnp.asarray(step_size), num_steps
    )


def start():
    random = np.random.default_rng(1)
    return jnp.asarray(random.normal(size=4)), jnp.asarray(random.normal(size=4))


def energy(point):
    total = sum(potential(point[0], index) for index in range(NUM_BLOCKS))
    return jnp.sum(point[1] ** 2) / 2 - total


def test_a_step_is_the_splitting_written_out():
    with jax.enable_x64():
        size = 0.3
        position, momentum = start()
        force = jax.grad(potential)
        for _ in range(2):
            order = [*range(NUM_BLOCKS), *reversed(range(NUM_BLOCKS))]
            for place, block in enumerate(order):
                momentum = momentum + size / 2 * force(position, block)
                if place not in (NUM_BLOCKS - 1, 2 * NUM_BLOCKS - 1):
                    position = position + size / (2 * (NUM_BLOCKS - 1)) * momentum
        moved = move(start(), size, 2)
        np.testing.assert_allclose(moved[0], position, rtol=1e-12)
        np.testing.assert_allclose(moved[1], momentum, rtol=1e-12)


def test_it_comes_back_when_the_momentum_is_turned():
    with jax.enable_x64():
        position, momentum = move(start(), 0.4, 7)
        assert np.abs(position - start()[0]).max() > 0.5
        back, turned = move((position, -momentum), 0.4, 7)
        np.testing.assert_allclose(back, start()[0], atol=1e-12)
        np.testing.assert_allclose(turned, -start()[1], atol=1e-12)


def test_volumes_are_kept():
    with jax.enable_x64():
        jacobian = jax.jacobian(
            lambda z: jnp.concatenate(move((z[:4], z[4:]), 0.4, 3))
        )(jnp.concatenate(start()))
        assert abs(np.linalg.det(jacobian) - 1) < 1e-12


def test_its_error_is_of_second_order():
    with jax.enable_x64():
        first = energy(start())
        errors = [
            abs(float(energy(move(start(), 0.8 / count, count)) - first))
            for count in (8, 16, 32)
        ]
        orders = np.log2(np.divide(errors[:-1], errors[1:]))
        np.testing.assert_allclose(orders, 2, atol=0.15)


@pytest.mark.parametrize("num_devices", [1, 3, 8])
def test_blocks_are_the_same_examples_on_any_number_of_devices(num_devices):
    """They add up to the log posterior, and each has every fourth example."""
    data, _, _ = exact.regression(21)
    log_posterior = exact.log_posterior(micro_batch=2)
    params = jnp.array([[0.3], [-0.4]])
    chains = mesh.make_mesh(1, jax.devices()[:num_devices])

    def blocks(params, data):
        return jax.vmap(
            lambda one: jnp.stack(
                [log_posterior.block(one, data, index, 4) for index in range(4)]
            )
        )(params)

    spec = jax.sharding.PartitionSpec
    mapped = mesh.map_chains(chains, blocks, spec("chain"), spec("data"))
    parts = jax.jit(mapped)(
        mesh.place_chains(chains, params[None]), mesh.place_data(chains, data)
    )[0]
    plain = exact.log_posterior()
    for index in range(4):
        rows = jax.tree.map(lambda leaf, i=index: leaf[i::4], data)
        prior = plain.prior(params)
        expected = plain(params, rows) - prior + prior / 4
        np.testing.assert_allclose(parts[index], expected, rtol=1e-5)
    np.testing.assert_allclose(parts.sum(), plain(params, data), rtol=1e-5)


@pytest.mark.parametrize(("step_size", "temperature"), [(0.1, 1.0), (0.22, 0.5)])
def test_a_regression_has_its_closed_form_at_any_step_size(step_size, temperature):
    data, mean, covariance = exact.regression(20)
    result = run.sample(
        jax.random.key(0),
        split_hmc.build(
            exact.log_posterior(temperature=temperature),
            step_size=step_size,
            trajectory_length=0.5,
            num_blocks=3,
        ),
        jnp.zeros((4, 2, 1)),
        data,
        num_draws=3000,
        num_burn_in=50,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    if step_size > 0.2:
        assert 0.2 < np.asarray(result.info.acceptance_rate).mean() < 0.9
    factor = np.linalg.cholesky(temperature * covariance)
    draws = np.asarray(result.draws, np.float64)[..., 0]
    white = (draws - mean) @ np.linalg.inv(factor).T
    expected = {(0, 0): 1, (1, 1): 1, (0, 1): 0}
    for i in range(2):
        assert_mean(white[..., i], 0)
    for (i, j), value in expected.items():
        assert_mean(white[..., i] * white[..., j], value)


def assert_mean(values, expected):
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.1


def test_the_warm_up_meets_the_acceptance_target():
    data, _, _ = exact.regression(20)
    result = run.sample(
        jax.random.key(0),
        split_hmc.build(
            exact.log_posterior(),
            step_size=0.02,
            trajectory_length=1.0,
            num_blocks=3,
            num_warmup=150,
        ),
        jnp.zeros((4, 2, 1)),
        data,
        num_draws=500,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    sizes = np.asarray(result.info.step_size)[:, 150:]
    assert np.ptp(sizes, axis=1).max() == 0
    count = np.asarray(result.info.num_steps)[:, 150:]
    np.testing.assert_array_equal(count, np.ceil(1.0 / sizes - 1e-6))
    assert 0.6 < np.asarray(result.info.acceptance_rate)[:, 150:].mean() < 0.99


def test_its_cost_is_nearly_two_gradients_a_step():
    assert split_hmc.gradients_per_step(2) == 1
    assert split_hmc.gradients_per_step(10) == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a"),
        ({"trajectory_length": 0.0}, "`trajectory_length` must be a"),
        ({"num_blocks": 1}, "`num_blocks` must be at least 2"),
        ({"num_warmup": -1}, "`num_warmup` must be"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "trajectory_length": 1.0, "num_blocks": 2} | options
    with pytest.raises(ValueError, match=message):
        split_hmc.build(exact.log_posterior(), **options)


def test_a_density_without_blocks_is_refused():
    with pytest.raises(TypeError, match="must have a `block`.*posterior.build"):
        split_hmc.build(
            lambda params, data: -jnp.sum(params**2),
            step_size=0.1,
            trajectory_length=1.0,
            num_blocks=2,
        )
