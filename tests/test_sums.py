"""Sums against `math.fsum`, which is exact."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symjax import sums


def exactly(found):
    """What a sum stands for."""
    return math.fsum([float(found.value), float(found.rest)])


@pytest.mark.parametrize("count", [1, 2, 1000, 999_983])
def test_a_total_keeps_what_rounding_takes(count):
    numbers = np.random.default_rng(0).normal(-3, 2, count).astype(np.float32)
    found = jax.jit(sums.total)(numbers)
    assert abs(exactly(found) - math.fsum(numbers)) < 1e-6 * max(1, count**0.5)
    assert found.value == np.float32(math.fsum(numbers))


def test_order_and_size_of_the_terms_do_not_matter():
    """1 beside 10^8, which float32 forgets."""
    numbers = jnp.array([1e8, 1.0, -1e8, 2.0] * 500, jnp.float32)
    for order in (numbers, numbers[::-1], jnp.sort(numbers)):
        assert exactly(jax.jit(sums.total)(order)) == 1500
    assert float(jnp.sum(jnp.sort(numbers))) != 1500


def test_sums_of_parts_are_the_sum_of_all():
    numbers = np.random.default_rng(1).normal(1e3, 1, (4, 3, 5000)).astype(np.float32)
    parts = jax.vmap(jax.vmap(sums.total))(numbers)
    joined = jax.vmap(sums.merge)(parts)
    assert abs(exactly(sums.merge(joined)) - math.fsum(numbers.ravel())) < 1e-3
    of_two = [jax.tree.map(lambda leaf, i=i: leaf[i], joined) for i in (0, 1)]
    for one, expected in zip(of_two, numbers, strict=False):
        assert abs(exactly(one) - math.fsum(expected.ravel())) < 1e-4
    assert abs(exactly(sums.add(*of_two)) - math.fsum(numbers[:2].ravel())) < 1e-4


def test_a_difference_has_its_own_precision():
    numbers = np.random.default_rng(2).normal(-8, 1, 10**6).astype(np.float32)
    moved = numbers + np.float32(2.5e-6)
    one, other = map(jax.jit(sums.total), (moved, numbers))
    exact = math.fsum(moved) - math.fsum(numbers)
    assert abs(float(sums.difference(one, other)) - exact) < 1e-4
    assert abs(float(jnp.sum(moved) - jnp.sum(numbers)) - exact) > 0.1


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(odd):
    found = sums.total(jnp.array([1.0, odd, 2.0]))
    np.testing.assert_equal(float(found.value), odd)
    assert np.isfinite(found.rest)
    finite = sums.total(jnp.array([1.0, 2.0]))
    assert not np.isfinite(sums.difference(found, finite))
    assert not np.isfinite(sums.difference(found, found))


def test_a_compiled_program_still_keeps_the_rest():
    """No compiler may take (a + b) - a for b."""
    one = sums.Sum(jnp.float32(1e-4), jnp.float32(0))
    start = sums.Sum(jnp.float32(1e6), jnp.float32(0))

    @jax.jit
    def add_often(one, start):
        return jax.lax.fori_loop(0, 1000, lambda _, now: sums.add(now, one), start)

    found = add_often(one, start)
    assert abs(exactly(found) - 1e6 - 1000 * float(one.value)) < 1e-6
