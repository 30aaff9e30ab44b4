"""Snapshot ensembles: the cosine, and what an optimiser by hand gives."""

import exact
import jax
import numpy as np
import optax
import pytest

from symjax import mesh, run
from symjax.approximations import snapshot


DATA, MEAN, COVARIANCE = exact.regression(20)
START = np.array([[[2.0], [-1.0]], [[0.0], [3.0]]], np.float32)


def sample(num_draws, *, optimiser=optax.sgd, **options):
    algorithm = snapshot.build(exact.log_posterior(), optimiser=optimiser, **options)
    return run.sample(
        jax.random.key(1),
        algorithm,
        START,
        DATA,
        num_draws=num_draws,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_draws_are_the_ends_of_cycles_of_huang_et_al(momentum):
    """Eq. 2, stepped by hand in float64: t from 1, C steps a cycle, alpha_0 = 0.1."""
    length, num_cycles = 7, 4
    result = sample(
        num_cycles,
        optimiser=lambda schedule: optax.sgd(schedule, momentum=momentum),
        learning_rate=0.1,
        cycle_length=length,
    )
    x, y = DATA.x.astype(float), DATA.y.astype(float)
    position, velocity, ends = START.astype(float), 0.0, []
    for t in range(1, length * num_cycles + 1):
        alpha = 0.05 * (np.cos(np.pi * ((t - 1) % length) / length) + 1)
        gradient = (x.T @ (x @ position - y) + position) / 20
        velocity = (momentum or 0.0) * velocity + gradient
        position = position - alpha * velocity
        if t % length == 0:
            ends.append(position)
    np.testing.assert_allclose(
        result.draws, np.stack(ends, axis=1), rtol=1e-4, atol=1e-5
    )
    assert result.info.log_density.shape == (2, num_cycles)


def test_every_snapshot_of_minibatches_is_at_the_mode():
    """And they differ: at the end of a cycle steps are small, at its start large."""
    draws = sample(6, learning_rate=0.3, cycle_length=3000, batch_size=4).draws[..., 0]
    std = np.sqrt(np.diag(COVARIANCE))
    assert np.all(np.abs(draws - MEAN) < 0.4 * std)
    assert np.all(np.std(draws, axis=1) > 1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive"),
        ({"cycle_length": 0}, "`cycle_length` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ],
)
def test_bad_options_are_named(options, message):
    options = {"learning_rate": 0.1, "cycle_length": 10} | options
    with pytest.raises(ValueError, match=message):
        snapshot.build(exact.log_posterior(), optimiser=optax.sgd, **options)
