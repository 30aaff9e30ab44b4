"""SMS-UBU against closed forms: its free motion, its bias and the order of it.

Seeds are fixed; with others every test would fail less than once in 10^4 times.
"""

import itertools

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, solve_discrete_lyapunov
from scipy.stats import kstest

from symjax.samplers import sms_ubu


FRICTION = 3.0


def free_motion(time, friction=FRICTION):
    """Matrix and covariance of position and momentum, by Van Loan's exponential."""
    drift = np.array([[0, 1], [0, -friction]])
    block = np.block([[-drift, np.diag([0, 2 * friction])], [0 * drift, drift.T]])
    power = expm(block * time)
    matrix = power[2:, 2:].T
    return matrix, matrix @ power[:2, 2:]


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("u", [1e-4, 1e-2, 0.3, 0.49, 0.51, 2.0, 10.0])
def test_free_motion_is_exact_for_short_and_long_times(u, share):
    """In float32; the variance of the position is about u^3."""
    time = jnp.asarray(u / FRICTION, jnp.float32)
    motion = sms_ubu._motion(time, FRICTION, share)
    matrix, covariance = free_motion(u / FRICTION)
    factor = np.array([[motion.shared, motion.apart], [motion.kick, 0]], float)
    np.testing.assert_allclose(factor @ factor.T, share * covariance, rtol=2e-6)
    np.testing.assert_allclose([motion.way, motion.decay], matrix[:, 1], rtol=2e-6)


@pytest.mark.parametrize("step_size", [0.3, 0.8])
def test_a_gaussian_without_examples_has_the_covariance_of_ubu(step_size):
    """A density with a `minibatch` alone; the covariance is SciPy's."""
    algorithm = sms_ubu.build(
        exact.Gaussian(noise=1.0), step_size=step_size, friction=FRICTION, batch_size=1
    )
    _, positions, info = exact.simulate(algorithm, np.zeros(2), 500)
    matrix, covariance = free_motion(step_size / 2)
    kick = np.array([[1, 0], [-step_size, 1]])
    inject = kick @ covariance @ kick.T + np.diag([0, step_size**2])
    expected = solve_discrete_lyapunov(
        matrix @ kick @ matrix, covariance + matrix @ inject @ matrix.T
    )
    for i in range(2):
        exact.assert_mean(positions[..., i] ** 2, expected[0, 0])
    exact.assert_mean(info.kinetic_temperature, expected[1, 1])


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_a_regression_at_any_temperature_from_small_batches(temperature):
    """Five of twenty examples, whose noise would heat other samplers by a tenth."""
    data, mean, _ = exact.regression(20)
    algorithm = sms_ubu.build(
        exact.log_posterior(temperature=temperature),
        step_size=0.03 * temperature**0.5,
        friction=6.0 / temperature**0.5,
        batch_size=5,
    )
    _, positions, _ = exact.simulate(algorithm, mean[:, None], 800, data=data)
    exact.assert_regression(positions, temperature, 0.03)


def sweeps():
    """All partitions of 7 examples into batches of 3, 3 and 1, there and back."""
    for first in itertools.combinations(range(7), 3):
        rest = [i for i in range(7) if i not in first]
        for second in itertools.combinations(rest, 3):
            last = [i for i in rest if i not in second]
            there = [list(first), list(second), last]
            yield there + there[::-1]


def fresh():
    """All batches of 3 of 7 examples."""
    return [[list(batch)] for batch in itertools.combinations(range(7), 3)]


def stationary(step_size, orders, weight):
    """Mean and covariance of positions after equally likely orders of batches.

    Of the regression, in float64: each order is a linear map with Gaussian noise.
    """
    data, _, _ = exact.regression(7)
    x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)[:, 0]
    matrix, noise = (np.kron(m, np.eye(2)) for m in free_motion(step_size / 2))
    maps = []
    for order in orders:
        total, shift, spread = np.eye(4), np.zeros(4), np.zeros((4, 4))
        for batch in order:
            kick, push = np.eye(4), np.zeros(4)
            kick[2:, :2] -= step_size * (weight * x[batch].T @ x[batch] + np.eye(2))
            push[2:] = step_size * weight * x[batch].T @ y[batch]
            one = matrix @ kick @ matrix
            total, shift = one @ total, one @ shift + matrix @ push
            inject = matrix @ kick @ noise @ kick.T @ matrix.T + noise
            spread = one @ spread @ one.T + inject
        maps.append((total, shift, spread))
    totals, shifts, spreads = (np.array(part) for part in zip(*maps, strict=True))
    mean = np.linalg.solve(np.eye(4) - totals.mean(0), shifts.mean(0))
    cross = np.mean(np.einsum("nij,j,nk->nik", totals, mean, shifts), axis=0)
    fixed = cross + cross.T + np.einsum("ni,nj->ij", shifts, shifts) / len(shifts)
    product = np.mean([np.kron(t, t) for t in totals], axis=0)
    whole = (fixed + spreads.mean(0)).ravel()
    second = np.linalg.solve(np.eye(16) - product, whole).reshape(4, 4)
    return mean[:2], (second - np.outer(mean, mean))[:2, :2]


@pytest.mark.parametrize(
    ("orders", "weight", "order"), [(sweeps, 3, 2), (fresh, 7 / 3, 1)]
)
def test_sweeps_make_the_bias_second_order_where_fresh_batches_leave_it_first(
    orders, weight, order
):
    """In closed form, which the next test finds the chains to have."""
    covariance = exact.regression(7)[2]
    steps = [0.025, 0.0125, 0.00625, 0.003125]
    biases = [
        np.linalg.norm(stationary(h, orders(), weight)[1] - covariance) for h in steps
    ]
    slopes = -np.diff(np.log2(biases))
    np.testing.assert_allclose(slopes, order, atol=0.1)


@pytest.mark.parametrize("step_size", [0.1, 0.2])
def test_chains_have_the_closed_forms_mean_and_covariance(step_size):
    data, start, _ = exact.regression(7)
    algorithm = sms_ubu.build(
        exact.log_posterior(), step_size=step_size, friction=FRICTION, batch_size=3
    )
    _, positions, _ = exact.simulate(
        algorithm, start[:, None], 1200, data=data, discard=0.1
    )
    mean, covariance = stationary(step_size, sweeps(), 3)
    factor = np.linalg.inv(np.linalg.cholesky(covariance))
    white = (positions[:, 5::6, :, 0] - mean) @ factor.T
    for i in range(2):
        exact.assert_mean(white[..., i], 0)
        exact.assert_mean(white[..., i] ** 2, 1)
    exact.assert_mean(1 + white[..., 0] * white[..., 1], 1)


def test_steps_follow_their_schedules_and_say_what_they_did():
    """In float64 from the matrix exponential; noise comes with the third step."""
    size = lambda iteration: 0.1 * (iteration + 1)
    algorithm = sms_ubu.build(
        exact.Gaussian(precision=2.0),
        step_size=size,
        friction=FRICTION,
        batch_size=1,
        noise=lambda iteration: jnp.where(iteration < 2, 0.0, 1.0),
        num_warmup=7,
    )
    assert algorithm.num_warmup == 7
    start = np.array([0.5, -1.5, 2.0])
    state = algorithm.init(jax.random.key(0), jnp.asarray(start), exact.NO_DATA)
    both = np.stack([start, np.asarray(state.momentum, float)])
    for i in range(3):
        key = jax.random.key(i)
        state, info = jax.jit(algorithm.step)(key, state, exact.NO_DATA)
        matrix, _ = free_motion(size(i) / 2)
        both = matrix @ both
        value = -np.sum(both[0] ** 2)
        both[1] -= 2 * size(i) * both[0]
        both = matrix @ both
        found = np.stack([state.position, state.momentum])
        assert np.allclose(found, both, rtol=1e-4, atol=1e-5) == (i < 2)
        if i < 2:
            assert info.log_density == pytest.approx(value, rel=1e-4)
        assert info.step_size == pytest.approx(size(i))
        heat = np.mean(np.square(state.momentum, dtype=float))
        assert info.kinetic_temperature == pytest.approx(heat, rel=1e-5)


def test_chains_start_with_momenta_of_the_standard_normal():
    algorithm = sms_ubu.build(
        exact.Gaussian(), step_size=0.1, friction=FRICTION, batch_size=1
    )
    keys = jax.random.split(jax.random.key(0), 500)
    start = lambda key: algorithm.init(key, jnp.zeros((2, 3)), exact.NO_DATA)
    momenta = np.asarray(jax.vmap(start)(keys).momentum).reshape(500, 6)
    assert kstest(momenta.ravel(), "norm").pvalue > 1e-4
    between = np.corrcoef(momenta.T)[np.triu_indices(6, 1)]
    assert abs(between).max() < 5 / np.sqrt(500)


def test_a_step_without_noise_descends():
    """To the mode of the regression, all chains alike."""
    data, mean, _ = exact.regression(20)
    algorithm = sms_ubu.build(
        exact.log_posterior(),
        step_size=0.05,
        friction=6.0,
        batch_size=20,
        noise=lambda iteration: 0.0,
    )
    state, _, _ = exact.simulate(
        algorithm, np.zeros((2, 1)), 400, data=data, num_chains=3
    )
    np.testing.assert_allclose(state.position[..., 0], [mean] * 3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a positive"),
        ({"friction": -1.0}, "`friction` must be a positive"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_warmup": -1}, "`num_warmup` must be at least 0"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "friction": 3.0, "batch_size": 4} | options
    with pytest.raises(ValueError, match=message):
        sms_ubu.build(exact.log_posterior(), **options)


def test_a_density_without_minibatches_is_refused():
    with pytest.raises(TypeError, match="must have a `minibatch` estimate"):
        sms_ubu.build(lambda p, d: 0.0, step_size=0.1, friction=1.0, batch_size=2)
