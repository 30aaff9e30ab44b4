"""SWAG: moments of the very iterates, and where those are known, of their law."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg

from symjax.approximations import swag


DATA, MEAN, COVARIANCE = exact.regression(20)


def build(**options):
    options = {"optimiser": optax.sgd(0.1), "batch_size": 4} | options
    return swag.build(exact.log_posterior(), **options)


def walk(approximation, num_steps, num_chains):
    """The iterates `(chain, step, 2)` and the last state."""
    state, positions, _ = exact.simulate(
        approximation,
        np.zeros((2, 1)),
        num_steps,
        data=jax.tree.map(jnp.asarray, DATA),
        num_chains=num_chains,
        discard=0,
    )
    return positions[..., 0].astype(float), state


def test_moments_are_those_of_the_collected_iterates():
    """Fewer than the rank, as many, and a ring that has been round more than once."""
    approximation = build(num_burn_in=5, collect_every=3, rank=4)
    state = approximation.init(jax.random.key(0), jnp.zeros((2, 1)), DATA)
    step = jax.jit(approximation.step)
    collected = np.zeros((0, 2))
    for iteration in range(5 + 3 * 11 + 2):
        state, _ = step(jax.random.key(iteration), state, DATA)
        if iteration in range(7, 100, 3):
            position = np.asarray(state.position, float)
            collected = np.concatenate([collected, position[None, :, 0]])
        assert state.num_collected == len(collected)
        if len(collected) in (1, 3, 4, 11):
            assert_moments(state, collected, rank=4)
    assert len(collected) == 11


def assert_moments(state, collected, rank):
    mean, variance = collected.mean(axis=0), collected.var(axis=0)
    np.testing.assert_allclose(state.mean[:, 0], mean, rtol=1e-5)
    found = state.squares[:, 0] / len(collected)
    np.testing.assert_allclose(found, variance, rtol=1e-4, atol=1e-9)
    columns = deviations_of(collected)[-rank:]
    # A ring: in which order its columns are does not matter.
    found = np.asarray(state.deviations[..., 0], float)
    np.testing.assert_allclose(
        found.T @ found, columns.T @ columns, rtol=1e-3, atol=1e-8
    )


def test_twenty_networks_are_kept_if_nothing_is_said():
    """The rank of Maddox et al., section 5."""
    state = build(num_burn_in=0).init(jax.random.key(0), jnp.zeros((2, 1)), DATA)
    assert state.deviations.shape == (20, 2, 1)


def deviations_of(collected):
    """Each iterate less the mean of those up to it."""
    counts = np.arange(1, len(collected) + 1)[:, None]
    return collected - np.cumsum(collected, axis=0) / counts


@pytest.mark.parametrize(("rank", "scale"), [(0, 1.0), (2, 0.5), (20, 1.0)])
def test_draws_have_the_covariance_of_the_paper(rank, scale):
    """On the way to the mode, where both weights move together. Of 12 iterates, which
    are fewer than the largest rank.
    """
    slow = optax.sgd(0.05)
    approximation = build(optimiser=slow, num_burn_in=1, rank=rank, scale=scale)
    positions, state = walk(approximation, 1 + 12, 1)
    one = jax.tree.map(lambda leaf: leaf[0], state)
    keys = jax.random.split(jax.random.key(0), 40_000)
    draws = jax.jit(jax.vmap(approximation.sample, (0, None)))(keys, one)[..., 0]
    collected = positions[0, 1:]
    covariance = np.diag(collected.var(axis=0))
    if rank:
        columns = deviations_of(collected)[-rank:]
        covariance = covariance / 2 + columns.T @ columns / (2 * len(columns) - 2)
        assert abs(covariance[0, 1]) > 0.2 * covariance[0, 0]
    covariance *= scale**2
    white = (draws - collected.mean(axis=0)) @ np.linalg.inv(
        np.linalg.cholesky(covariance)
    ).T
    # Five standard errors of a mean and, roughly, of a covariance.
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=0.025)
    np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=0.036)


def test_iterates_of_a_regression_have_their_stationary_law():
    """Constant-step SGD: its covariance solves a discrete Lyapunov equation.

    With H the mean of the examples' Hessians A, gradients of batches of B, and step e,
    S = (1 - eH) S (1 - eH) + e^2 / B (C + E[(A - H) S (A - H)]), where C is the
    covariance of an example's gradient at the mode.
    """
    step_size, batch = 0.2, 4
    x, y = DATA.x.astype(float), DATA.y.astype(float)
    hessians = np.einsum("ni,nj->nij", x, x) + np.eye(2) / 20
    gradients = x * (x @ MEAN[:, None] - y) + MEAN / 20
    mean = hessians.mean(axis=0)
    drift = np.eye(2) - step_size * mean
    covariance = np.zeros((2, 2))
    for _ in range(30):
        extra = np.mean((hessians - mean) @ covariance @ (hessians - mean), axis=0)
        noise = step_size**2 / batch * (np.cov(gradients.T, bias=True) + extra)
        covariance = scipy.linalg.solve_discrete_lyapunov(drift, noise)

    rank = 40
    approximation = build(
        optimiser=optax.sgd(step_size), num_burn_in=200, collect_every=10, rank=rank
    )
    _, state = walk(approximation, 200 + 10 * 400, 200)
    deviations = np.asarray(state.deviations[..., 0], float)
    white = np.linalg.inv(np.linalg.cholesky(covariance))
    error = (np.asarray(state.mean[..., 0], float) - MEAN) @ white.T
    assert np.max(np.abs(error.mean(axis=0))) < 5 * error.std() / np.sqrt(200)
    # Means are over the chains: relative errors are below 0.005 and 0.015.
    variance = np.mean(state.squares[..., 0] / 400, axis=0)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=0.025)
    low_rank = np.einsum("cki,ckj->ij", deviations, deviations) / (200 * rank)
    np.testing.assert_allclose(white @ low_rank @ white.T, np.eye(2), atol=0.075)


def test_weights_that_hardly_move_keep_their_variance():
    """In float32 the mean of squares less the square of the mean would lose it."""
    approximation = build(num_burn_in=0, optimiser=optax.sgd(1e-3), rank=0)
    state = approximation.init(jax.random.key(0), jnp.zeros((2, 1)), DATA)
    deviations = 1e-4 * np.random.default_rng(0).normal(size=(50, 2, 1))
    collect = jax.jit(swag._collect)
    for deviation in deviations:
        position = jnp.asarray(3.0 + deviation, jnp.float32)
        state = collect(state._replace(position=position))
    np.testing.assert_allclose(state.squares / 50, deviations.var(axis=0), rtol=0.02)


def test_a_scale_of_zero_is_stochastic_weight_averaging():
    """All draws are the mean, nearer to the mode than the iterates are."""
    approximation = build(num_burn_in=100, optimiser=optax.sgd(0.3), rank=0, scale=0.0)
    positions, state = walk(approximation, 2000, 3)
    keys = jax.random.split(jax.random.key(0), 3)
    draws = jax.vmap(approximation.sample)(keys, state)
    np.testing.assert_array_equal(draws, state.mean)
    error = np.linalg.norm(np.asarray(draws[..., 0]) - MEAN, axis=1)
    assert np.all(error < 0.3 * np.sqrt(np.mean((positions[:, 100:] - MEAN) ** 2)))


def test_before_anything_is_collected_a_draw_is_the_network_itself():
    approximation = build(num_burn_in=3, rank=2)
    positions, state = walk(approximation, 3, 2)
    draws = jax.vmap(approximation.sample)(jax.random.split(jax.random.key(0)), state)
    np.testing.assert_array_equal(draws[..., 0], positions[:, -1])
    assert np.all(draws != 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_burn_in": -1}, "`num_burn_in` must be at least 0, got -1"),
        ({"collect_every": 0}, "`collect_every` must be at least 1"),
        ({"rank": 1}, "`rank` must be 0 or at least 2, got 1"),
        ({"scale": float("nan")}, "`scale` must be a number of at least 0, got nan"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**{"num_burn_in": 1} | options)
