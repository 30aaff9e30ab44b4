"""Helpers for pytrees of parameters."""

import jax
import jax.numpy as jnp
import numpy as np

from symjax import trees


TREE = {"a": (jnp.ones((2, 3)), jnp.zeros(4, jnp.int8)), "b": {"c": jnp.float32(2)}}


def test_paths_sizes_and_bytes():
    assert trees.paths(TREE) == ["a/0", "a/1", "b/c"]
    assert trees.size(TREE) == 6 + 4 + 1
    shapes = jax.eval_shape(lambda: TREE)
    assert trees.num_bytes(shapes) == trees.num_bytes(TREE) == 24 + 4 + 4


def test_stack_adds_a_first_axis():
    stacked = trees.stack([TREE, jax.tree.map(lambda leaf: 2 * leaf, TREE)])
    assert stacked["a"][0].shape == (2, 2, 3)
    np.testing.assert_array_equal(stacked["b"]["c"], [2, 4])
