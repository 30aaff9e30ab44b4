"""Permutations against SciPy's connected components, enumeration and closed forms."""

import doctest
import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from symjax.symmetry import permutations


def random(shape, seed=0):
    """NumPy's permutations along the last axis."""
    units = np.broadcast_to(np.arange(shape[-1]), shape)
    return np.random.default_rng(seed).permuted(units, axis=-1)


def components(permutation):
    """How many cycles, and the number of the cycle that each unit is in."""
    size = len(permutation)
    edges = coo_array((np.ones(size), (np.arange(size), permutation)), (size, size))
    return connected_components(edges, directed=False)


def test_examples_in_the_docstrings():
    assert doctest.testmod(permutations).failed == 0


def test_compose_and_inverse_are_products_of_matrices():
    first, second = random((3, 2, 9), 1), random((3, 2, 9), 2)
    one, two = np.eye(9)[first], np.eye(9)[second]
    both = permutations.compose(jnp.array(second), jnp.array(first))
    np.testing.assert_array_equal(np.eye(9)[both], two @ one)
    back = permutations.inverse(jnp.array(first))
    np.testing.assert_array_equal(np.eye(9)[back], np.swapaxes(one, -1, -2))


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 1000])
def test_transpositions_are_counted_from_cycles(size):
    batch = random((5, 4, size))
    # One cycle through all units needs every doubling; the identity none.
    batch[0, 0], batch[0, 1] = np.roll(np.arange(size), 1), np.arange(size)
    expected = np.apply_along_axis(lambda one: size - components(one)[0], -1, batch)
    assert (expected[0, 0], expected[0, 1]) == (size - 1, 0)
    counted = jax.jit(permutations.num_transpositions)(jnp.array(batch))
    np.testing.assert_array_equal(counted, expected)
    mapped = jax.vmap(jax.vmap(permutations.num_transpositions))(jnp.array(batch))
    np.testing.assert_array_equal(mapped, expected)


def test_cycles_are_the_components_in_the_order_of_the_permutation():
    permutation = random((60,), 3)
    found = permutations.cycles(permutation)
    number, of_unit = components(permutation)
    assert len(found) == number
    assert sorted(itertools.chain(*found)) == list(range(60))
    assert [cycle[0] for cycle in found] == sorted(min(cycle) for cycle in found)
    for cycle in found:
        assert len(set(of_unit[cycle])) == 1
        np.testing.assert_array_equal(permutation[cycle], np.roll(cycle, -1))


@pytest.mark.parametrize("wrong", [[0, 0, 1], [1, 2, 3], [-1, 0, 1]])
def test_cycles_need_a_permutation(wrong):
    with pytest.raises(
        ValueError, match=r"`permutation` must hold each of 0 .. 2 once"
    ):
        permutations.cycles(np.array(wrong))


def test_a_uniform_permutation_of_512_units_has_505_transpositions():
    """The number of cycles has mean H_n and variance H_n - sum 1 / i^2."""
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.vmap(lambda key: permutations.random_permutation(key, 512))(keys)
    counts = np.asarray(permutations.num_transpositions(drawn))
    inverses = 1 / np.arange(1, 513)
    expected = 512 - inverses.sum()
    assert round(expected, 2) == 505.18
    variance = (inverses - inverses**2).sum()
    assert abs(counts.mean() - expected) < 4 * np.sqrt(variance / 4000)
    assert abs(counts.var() / variance - 1) < 0.15


def test_permutations_with_a_number_of_transpositions_are_uniform():
    """Among all 120 of 5 units, for every number at once, traced by `vmap`."""
    everything = np.array(list(itertools.permutations(range(5))))
    kinds = np.array([5 - components(one)[0] for one in everything])
    numbers = jnp.repeat(jnp.arange(5), 10_000)
    keys = jax.random.split(jax.random.key(0), len(numbers))
    drawn = jax.jit(
        jax.vmap(lambda key, number: permutations.random_permutation(key, 5, number))
    )(keys, numbers)
    counts = Counter(map(tuple, np.asarray(drawn).tolist()))
    counts = np.array([counts[tuple(one)] for one in everything.tolist()])
    for number in range(5):
        of_kind = counts[kinds == number]
        assert of_kind.sum() == 10_000
        assert number == 0 or scipy.stats.chisquare(of_kind).pvalue > 1e-4


@pytest.mark.parametrize("number", [0, 1, 2, 100, 505, 510, 511])
def test_large_permutations_have_the_number_that_was_asked_for(number):
    key = jax.random.key(number)
    permutation = permutations.random_permutation(key, 512, number)
    assert sorted(permutation.tolist()) == list(range(512))
    assert 512 - components(np.asarray(permutation))[0] == number


def test_units_take_part_in_few_transpositions_alike():
    """Given one transposition among 40 units, each unit is in it 1 time in 20."""
    keys = jax.random.split(jax.random.key(1), 10_000)
    drawn = jax.vmap(lambda key: permutations.random_permutation(key, 40, 1))(keys)
    moved = np.sum(drawn != np.arange(40), axis=0)
    assert moved.sum() == 20_000
    assert scipy.stats.chisquare(moved).pvalue > 1e-4


def test_impossible_numbers_are_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="`num_transpositions` must be below `size`"):
        permutations.random_permutation(key, 5, 5)
    with pytest.raises(ValueError, match="`num_transpositions` must be at least 0"):
        permutations.random_permutation(key, 5, -1)
    clipped = jax.jit(permutations.random_permutation, static_argnums=1)(key, 5, 9)
    assert permutations.num_transpositions(clipped) == 4
