"""The published baselines: their formula, their temperature, their numbers.

Seeds are fixed; with others every test would fail less than once in 10^4 times.
"""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.util import generate_gaussian_noise
from scipy.linalg import solve_discrete_lyapunov

from symjax.samplers import izmailov2021, sghmc, sgld


DATA, MODE, _ = exact.regression(20)


def trajectory(algorithm, num_steps, **changes):
    """Positions of one chain, every step with a key of its own."""
    state = algorithm.init(jax.random.key(0), jnp.ones((2, 1)), DATA)
    state = state._replace(**changes)
    step, positions = jax.jit(algorithm.step), []
    for i in range(num_steps):
        state, _ = step(jax.random.key(i), state, DATA)
        positions.append(state.position)
    return np.array(positions)


def test_it_is_sghmc_with_another_name_for_its_numbers():
    """Step size sqrt(h), friction (1 - mu) / sqrt(h), one step behind."""
    made = trajectory(
        izmailov2021.build(
            exact.log_posterior(),
            step_size=1e-4,
            momentum_decay=0.9,
            batch_size=5,
            batches="replacement",
        ),
        12,
    )
    other = trajectory(
        sghmc.build(exact.log_posterior(), step_size=1e-2, friction=10.0, batch_size=5),
        13,
        momentum=jnp.zeros((2, 1)),
    )
    np.testing.assert_allclose(made, other[1:], rtol=1e-5)


def test_without_momentum_it_is_sgld():
    options = {"step_size": 1e-3, "batch_size": 5, "batches": "replacement"}
    made = trajectory(
        izmailov2021.build(exact.log_posterior(), momentum_decay=0.0, **options), 12
    )
    other = trajectory(sgld.build(exact.log_posterior(), **options), 12)
    np.testing.assert_allclose(made, other, rtol=1e-5)


def test_the_preconditioner_is_that_of_the_paper():
    """Against the formula in NumPy, the gradient being that of all examples."""
    log_posterior = exact.log_posterior()
    algorithm = izmailov2021.build(
        log_posterior,
        step_size=1e-3,
        momentum_decay=0.95,
        batch_size=20,
        preconditioner="rmsprop",
    )
    x, m, v = np.ones((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))
    expected = []
    for i in range(8):
        g = np.asarray(jax.grad(log_posterior)(jnp.asarray(x, jnp.float32), DATA))
        noise_key = jax.random.split(jax.random.key(i))[1]
        n = np.asarray(generate_gaussian_noise(noise_key, jnp.ones((2, 1))))
        v = 0.99 * v + 0.01 * g**2
        mass = 1e-7 + np.sqrt(v)
        m = 0.95 * m + np.sqrt(1e-3) * g + np.sqrt(2 * 0.05) * np.sqrt(mass) * n
        x = x + np.sqrt(1e-3) * m / mass
        expected.append(x)
    np.testing.assert_allclose(trajectory(algorithm, 8), expected, rtol=1e-4)


def test_without_a_gradient_the_published_damping_is_the_mass():
    """1e-7, as in their code: x moves by sqrt(2 h (1 - mu) / 1e-7) n."""
    algorithm = izmailov2021.build(
        exact.Gaussian(precision=0.0),
        step_size=1e-3,
        momentum_decay=0.95,
        batch_size=1,
        batches="replacement",
        preconditioner="rmsprop",
    )
    state = algorithm.init(jax.random.key(0), jnp.zeros(3), exact.NO_DATA)
    state, _ = algorithm.step(jax.random.key(1), state, exact.NO_DATA)
    noise_key = jax.random.split(jax.random.key(1))[1]
    n = np.asarray(generate_gaussian_noise(noise_key, jnp.zeros(3)))
    expected = np.sqrt(2 * 1e-3 * 0.05 / 1e-7) * n
    np.testing.assert_allclose(state.position, expected, rtol=1e-4)


@pytest.mark.parametrize("momentum_decay", [0.0, 0.9])
@pytest.mark.parametrize("devices", [1, 8])
def test_the_temperature_falls_with_the_devices_that_are_imitated(
    devices, momentum_decay
):
    """To 1 / D; the rest of the bias is that of a linear recursion, by SciPy."""
    step_size = 0.02
    algorithm = izmailov2021.build(
        exact.Gaussian(),
        step_size=step_size,
        momentum_decay=momentum_decay,
        batch_size=1,
        batches="replacement",
        imitated_devices=devices,
    )
    _, positions, _ = exact.simulate(algorithm, np.zeros(2), 1000)
    root = np.sqrt(step_size)
    kick = np.array([[1, 0], [-devices * root, momentum_decay]])
    drift = np.array([[1, root], [0, 1]])
    inject = drift @ np.diag([0, 2 * (1 - momentum_decay)]) @ drift.T
    variance = solve_discrete_lyapunov(drift @ kick, inject)[0, 0]
    np.testing.assert_allclose(variance, 1 / devices, rtol=0.1)
    for i in range(2):
        exact.assert_mean(positions[..., i] ** 2, variance)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_gaussian_posterior_at_any_temperature(temperature):
    algorithm = izmailov2021.build(
        exact.log_posterior(temperature=temperature),
        step_size=4e-4 * temperature,
        momentum_decay=0.9,
        batch_size=20,
    )
    _, positions, _ = exact.simulate(algorithm, MODE[:, None], 500, data=DATA)
    exact.assert_regression(positions, temperature, 0.03)


@pytest.mark.parametrize(
    ("method", "momentum_decay", "step_size", "num_draws"),
    [
        ("sgld", 0.0, 1e-6, 900),
        ("sghmc", 0.9, 3e-7, 900),
        ("sghmc_clr", 0.95, 3e-7, 180),
        ("sghmc_clr_prec", 0.95, 3e-5, 180),
    ],
)
def test_presets_are_as_published(method, momentum_decay, step_size, num_draws):
    """512 batches an epoch, as in the README's commands."""
    chosen = izmailov2021.preset(method, num_examples=40_960)
    options = dict(chosen.options)
    size = options.pop("step_size")
    assert options.pop("momentum_decay") == momentum_decay
    assert options.pop("num_warmup") == 512_000
    prec = {"preconditioner": "rmsprop"} if method == "sghmc_clr_prec" else {}
    assert options == prec
    assert chosen.num_draws == num_draws
    assert 512_000 + chosen.thinning * num_draws == 10_000 * 512
    if "clr" not in method:
        assert size == step_size
        return
    steps = 512_001 + 512 * np.array([-100, 0, 25, 50, 75])
    share = np.array([1, 1, 0.5, 1, 0.5])
    np.testing.assert_allclose(size(steps), step_size * share, rtol=1e-5)
    # The draw is the last step of a cycle.
    assert size(512_000 + 50 * 512) < 1e-4 * step_size


def test_sgld_has_a_published_step_size_for_three_tasks():
    sizes = [
        izmailov2021.preset("sgld", num_examples=50_000, task=task).options["step_size"]
        for task in ("cifar10", "cifar100", "imdb")
    ]
    assert sizes == [1e-6, 3e-6, 1e-5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": -1.0}, "`step_size` must be a positive"),
        ({"momentum_decay": 1.0}, "`momentum_decay` must be at least 0 and below 1"),
        ({"preconditioner": "adam"}, "`preconditioner` must be rmsprop or None"),
        ({"imitated_devices": 0}, "`imitated_devices` must be at least 1"),
        ({"num_warmup": -1}, "`num_warmup` must be at least 0"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "momentum_decay": 0.9} | options
    with pytest.raises(ValueError, match=message):
        izmailov2021.build(exact.log_posterior(), **options)


def test_what_was_not_published_has_no_preset():
    with pytest.raises(ValueError, match="sghmc cifar10, .* got sghmc imdb"):
        izmailov2021.preset("sghmc", num_examples=25_000, task="imdb")


def test_half_the_step_of_time_keeps_friction_and_cycles():
    chosen = izmailov2021.preset("sghmc_clr", num_examples=800, num_warmup_epochs=2)
    half = izmailov2021.halve(chosen.options)
    whole = chosen.options["step_size"]
    for iteration in (0, 5, 30, 400, 519):
        size, after = whole(iteration), half["step_size"](2 * iteration)
        np.testing.assert_allclose(after, size / 4, rtol=1e-6)
        friction = (1 - chosen.options["momentum_decay"]) / np.sqrt(size)
        half_friction = (1 - half["momentum_decay"]) / np.sqrt(after)
        np.testing.assert_allclose(half_friction, friction, rtol=1e-5)
    sgld = izmailov2021.halve(izmailov2021.preset("sgld", num_examples=800).options)
    assert float(sgld["step_size"](0)) == pytest.approx(5e-7)
    assert sgld["momentum_decay"] == 0
