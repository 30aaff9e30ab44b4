"""Adjusted MCLMC against exact answers; bounds are 5 Monte-Carlo standard errors.

A false alarm of one comparison has a probability of about 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from blackjax.diagnostics import effective_sample_size
from blackjax.mcmc.integrators import IntegratorState
from jax.flatten_util import ravel_pytree
from scipy.special import digamma, polygamma

from symjax import hamiltonian, isokinetic, mesh, run
from symjax.hamiltonian import Point
from symjax.samplers import adjusted_mclmc


SCALES = np.array([0.3, 0.5, 1.0, 1.5, 2.0])
MEAN = np.arange(5.0) / 4


def log_density(params, data):
    del data
    return -jnp.sum(((params - MEAN) / SCALES) ** 2) / 2


def sample(density, start, *, num_draws, num_burn_in=100, **options):
    return run.sample(
        jax.random.key(0),
        adjusted_mclmc.build(density, **options),
        start,
        None,
        num_draws=num_draws,
        num_burn_in=num_burn_in,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def assert_mean(values, expected):
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    # A bound that wide would hide a broken sampler.
    assert error < 0.1 * max(values.std(), abs(expected))


@pytest.mark.parametrize("step_size", [0.6, 2.0])
def test_a_gaussian_at_any_step_size(step_size):
    """Where MCLMC without the accept step is biased by its step too."""
    result = sample(
        log_density,
        jnp.zeros((4, 5)),
        num_draws=3000,
        step_size=step_size,
        trajectory_length=4.0,
    )
    if step_size > 1:
        assert 0.3 < np.asarray(result.info.acceptance_rate).mean() < 0.9
    scaled = (np.asarray(result.draws, np.float64) - MEAN) / SCALES
    for i in range(5):
        assert_mean(scaled[..., i], 0)
        assert_mean(scaled[..., i] ** 2, 1)
        assert_mean(scaled[..., i] < scipy.stats.norm.ppf(0.05), 0.05)


def test_a_skewed_target():
    """log of Gamma(2, 1) variables: mean digamma(2), variance polygamma(1, 2)."""

    def log_gamma(params, data):
        return jnp.sum(2 * params - jnp.exp(params))

    draws = sample(
        log_gamma,
        jnp.zeros((4, 2)),
        num_draws=4000,
        step_size=1.0,
        trajectory_length=2.0,
    ).draws
    for i in range(2):
        assert_mean(draws[..., i], digamma(2))
        assert_mean((draws[..., i] - digamma(2)) ** 2, polygamma(1, 2))


def test_the_warm_up_meets_the_acceptance_target():
    # 0.9 where nothing is said.
    for first, target in ((0.01, {"target_acceptance": 0.8}), (3.0, {})):
        result = sample(
            log_density,
            jnp.zeros((4, 5)),
            num_draws=500,
            num_burn_in=0,
            step_size=first,
            trajectory_length=3.0,
            num_warmup=300,
            **target,
        )
        sizes = np.asarray(result.info.step_size)[:, 300:]
        assert np.ptp(sizes, axis=1).max() == 0
        rate = np.asarray(result.info.acceptance_rate)[:, 300:].mean()
        assert abs(rate - target.get("target_acceptance", 0.9)) < 0.1
        count = np.asarray(result.info.num_steps)[:, 300:]
        np.testing.assert_array_equal(count, np.ceil(3.0 / sizes - 1e-6))


def test_the_change_of_energy_is_computed_without_cancellation():
    """A density with a `gain` is asked for it, and a constant changes nothing."""

    class Shifted:
        def __call__(self, params, data):
            return log_density(params, data) + 1e9

        def tally(self, params, data):
            return log_density(params, data)

        def gain(self, params, proposal, data, before, after):
            return after - before

    results = [
        sample(
            density,
            jnp.zeros((2, 5)),
            num_draws=20,
            num_burn_in=0,
            step_size=0.5,
            trajectory_length=3.0,
        )
        for density in (log_density, Shifted())
    ]
    np.testing.assert_allclose(results[0].draws, results[1].draws, atol=1e-4)


def trajectory(params, momentum, num_steps, step_size, density):
    state = IntegratorState(params, momentum, *jax.value_and_grad(density)(params))
    step = isokinetic.build_step(density)
    total = 0.0
    for _ in range(num_steps):
        state, change = step(state, jnp.asarray(step_size))
        total += change
    return state, total


def funnel(params):
    v, x = params["v"], params["x"]
    return -(v**2) / 2 - jnp.sum(x**2) * jnp.exp(-v) / 2 - v * x.size / 2


START = {"v": np.array(0.3), "x": np.array([0.5, -1.0, 0.7, 0.2])}


def test_the_integrator_is_reversible_and_its_jacobian_is_the_kinetic_change():
    """The two halves of detailed balance, in float64.

    The log determinant of (position, direction) -> (position, direction) on the sphere
    is the kinetic energy's change with its sign turned.
    """
    with jax.enable_x64():
        flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, START))
        momentum = isokinetic.unit_vector(jax.random.key(1), unravel(flat))
        unit = ravel_pytree(momentum)[0]

        end, kinetic = trajectory(unravel(flat), momentum, 5, 0.4, funnel)
        back, returned = trajectory(
            end.position, jax.tree.map(jnp.negative, end.momentum), 5, 0.4, funnel
        )
        for a, b in zip(
            jax.tree.leaves(back.position), jax.tree.leaves(unravel(flat)), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-12)
        assert abs(kinetic + returned) < 1e-10
        assert abs(kinetic) > 0.1

        def move(z):
            moved, _ = trajectory(unravel(z[:5]), unravel(z[5:]), 5, 0.4, funnel)
            return jnp.concatenate(
                [
                    ravel_pytree(moved.position)[0],
                    ravel_pytree(moved.momentum)[0],
                ]
            )

        whole = jax.jacobian(move)(jnp.concatenate([flat, unit]))
        tangent = [
            scipy.linalg.block_diag(np.eye(5), scipy.linalg.null_space(u[None]))
            for u in (unit, move(jnp.concatenate([flat, unit]))[5:])
        ]
        jacobian = tangent[1].T @ whole @ tangent[0]
        _, log_determinant = np.linalg.slogdet(jacobian)
        assert abs(log_determinant + kinetic) < 1e-8


@pytest.mark.parametrize("step_size", [1e-3, 0.5, 30.0, 3000.0])
def test_the_kinetic_change_is_exact_in_float32(step_size):
    """Against float64, where blackjax's own update is off by 0.03 nats."""
    keys = jax.random.split(jax.random.key(0))
    size = 1_000_000
    unit = isokinetic.unit_vector(keys[0], jnp.zeros(size))
    gradient = jax.random.normal(keys[1], (size,))
    turned, _, change = isokinetic._turn(unit, gradient, jnp.float32(step_size), 0.19)
    wide, slope = (np.asarray(leaf, np.float64) for leaf in (unit, gradient))
    wide /= np.linalg.norm(wide)
    length = np.linalg.norm(slope)
    time = step_size * 0.19 * length / (size - 1)
    along = wide @ slope / length
    exact = (size - 1) * np.log1p(2 * np.sinh(time / 2) ** 2 + along * np.sinh(time))
    assert abs(change - exact) < 1e-4 + 1e-5 * abs(exact)
    assert abs(np.linalg.norm(np.asarray(turned, np.float64)) - 1) < 1e-6


def test_a_very_steep_gradient_turns_the_direction_into_its_own():
    turned, _, change = isokinetic._turn(
        jnp.array([1.0, 0.0]), jnp.array([-3e15, 4e15]), jnp.float32(1.0), 1.0
    )
    np.testing.assert_allclose(turned, [-0.6, 0.8], rtol=1e-5)
    assert np.isfinite(change)


def test_a_refreshed_direction_forgets_at_the_rate_asked_for():
    """The mean of u'.u after a share s of the way is near exp(-s)."""
    unit = isokinetic.unit_vector(jax.random.key(0), jnp.zeros(400))
    for share in (0.1, 1.0):
        turned = jax.vmap(lambda key, s=share: isokinetic.refresh(key, unit, s))(
            jax.random.split(jax.random.key(1), 2000)
        )
        np.testing.assert_allclose(jnp.linalg.norm(turned, axis=1), 1, rtol=1e-5)
        assert abs((turned @ unit).mean() - np.exp(-share)) < 0.005


def test_a_refused_proposal_leaves_everything():
    start = Point(jnp.zeros(2), jnp.float32(0), jnp.zeros(2), jnp.float32(0))
    end = start._replace(position=jnp.ones(2))
    for change, accepted in ((-1.0, True), (jnp.nan, False), (2000.0, False)):
        new, outcome = hamiltonian.accept(
            jax.random.key(0), jnp.float32(change), start, end
        )
        assert outcome.is_accepted == accepted
        assert outcome.is_divergent == (not accepted)
        assert (new.position == accepted).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "`step_size` must be a"),
        ({"trajectory_length": -1.0}, "`trajectory_length` must be a"),
        ({"num_warmup": -1}, "`num_warmup` must be"),
        ({"target_acceptance": 1.0}, "`target_acceptance` must be between"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"step_size": 0.1, "trajectory_length": 1.0} | options
    with pytest.raises(ValueError, match=message):
        adjusted_mclmc.build(log_density, **options)


def test_one_parameter_is_refused():
    algorithm = adjusted_mclmc.build(
        lambda params, data: -(params**2), step_size=0.1, trajectory_length=1.0
    )
    with pytest.raises(ValueError, match="at least two numbers for adjusted MCLMC"):
        algorithm.init(jax.random.key(0), jnp.zeros(()), None)


def test_the_direction_is_refreshed_on_the_way():
    """By a way of 1.25 trajectories on flat ground, in however many steps."""
    unit = isokinetic.unit_vector(jax.random.key(0), jnp.zeros(400))
    advance = isokinetic.build_step(lambda params: 0.0 * jnp.sum(params))
    start = IntegratorState(jnp.zeros(400), unit, jnp.float32(0), jnp.zeros(400))
    for count in (1, 6):
        end, _ = jax.jit(
            jax.vmap(
                lambda key, n=count: adjusted_mclmc._travel(
                    key, start, advance, jnp.float32(0.5), jnp.asarray(n)
                )
            )
        )(jax.random.split(jax.random.key(1), 2000))
        assert abs(np.mean(end.momentum @ unit) - np.exp(-1 / 1.25)) < 0.01


def test_the_rule_is_the_radius_of_the_typical_set():
    assert adjusted_mclmc.rule_length(0.5, 400) == 10
