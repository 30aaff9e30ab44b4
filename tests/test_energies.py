"""Momenta of large networks, which are drawn block by block."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from symjax import energies


def test_momenta_of_many_parameters_are_independent_normals(monkeypatch):
    monkeypatch.setattr(energies, "BLOCK", 1000)
    params = {"a": jnp.zeros((50, 70)), "b": jnp.zeros(123), "c": jnp.zeros(())}
    metric = energies.metric(4.0)
    draw = jax.jit(jax.vmap(metric.sample_momentum, (0, None)))
    drawn = draw(jax.random.split(jax.random.key(0), 3), params)
    assert jax.tree.map(jnp.shape, drawn) == {
        "a": (3, 50, 70),
        "b": (3, 123),
        "c": (3,),
    }
    flat = np.concatenate([np.reshape(leaf, (3, -1)) for leaf in drawn.values()], 1)
    # The mass is a quarter. No number twice: neither between chains nor between blocks.
    assert stats.kstest(2 * flat.ravel(), "norm").pvalue > 1e-4
    assert len(np.unique(flat)) > 0.999 * flat.size


def test_momenta_of_few_parameters_are_drawn_together():
    from blackjax.util import generate_gaussian_noise

    params = {"a": jnp.zeros((5, 7)), "b": jnp.zeros(3)}
    key = jax.random.key(1)
    drawn = energies.metric(1.0).sample_momentum(key, params)
    jax.tree.map(
        np.testing.assert_array_equal, drawn, generate_gaussian_noise(key, params)
    )
