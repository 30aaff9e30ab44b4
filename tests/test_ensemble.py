"""Deep ensembles: every member at a mode."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

from symjax import densities, mesh, posterior, run
from symjax.approximations import ensemble
from symjax.types import Data


def test_members_of_a_linear_regression_meet_the_ridge_solution():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 3)).astype(np.float32)
    y = generator.normal(size=(40, 1)).astype(np.float32)
    exact = np.linalg.solve(x.T @ x / 0.5**2 + np.eye(3) / 2.0**2, x.T @ y / 0.5**2)
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        densities.Prior(dist.Normal(0.0, 2.0)),
        densities.gaussian(0.5),
        micro_batch=7,
    )
    start = jax.random.normal(jax.random.key(0), (5, 3, 1))
    result = run.fit(
        jax.random.key(1),
        ensemble.build(log_posterior, optimiser=optax.adam(0.05)),
        start,
        Data(x, y, np.ones(40, bool)),
        num_steps=600,
        num_draws=2,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    assert result.draws.shape == (5, 2, 3, 1)
    np.testing.assert_allclose(
        result.draws, exact[None, None] + 0 * result.draws, atol=1e-3
    )
    assert result.info.log_density.shape == (5, 600)
    assert np.all(result.info.log_density[:, -1] > result.info.log_density[:, 0])


def test_minibatches_climb_to_a_mode_of_the_whole_posterior():
    """At the end the gradient over all data is near zero, where it began large."""
    start = cases.start(jax.random.key(0), 2)
    optimiser = optax.adam(optax.cosine_decay_schedule(0.02, 5000))
    fitted = run.fit(
        jax.random.key(1),
        ensemble.build(cases.log_posterior(), optimiser=optimiser, batch_size=16),
        start,
        cases.data(),
        num_steps=5000,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    gradient = jax.jit(jax.vmap(jax.grad(cases.log_posterior()), (0, None)))
    data = jax.tree.map(jnp.asarray, cases.data())
    assert np.ptp(fitted.info.log_density[:, -50:], axis=1).min() > 0.1
    end = fitted.draws
    after = optax.tree.norm(gradient(jax.tree.map(lambda leaf: leaf[:, 0], end), data))
    assert after < 0.05 * optax.tree.norm(gradient(start, data))


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        ensemble.build(cases.log_posterior(), optimiser=optax.adam(0.1), batch_size=0)
