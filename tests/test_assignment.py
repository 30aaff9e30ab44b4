"""Linear assignment, against SciPy, and what it does where nothing is gained."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from symjax.symmetry.matching import assignment


@pytest.mark.parametrize("size", [1, 5, 40])
def test_assignments_are_as_good_as_those_of_scipy(size):
    generator = np.random.default_rng(size)
    problems = generator.normal(size=(30, size, size)).astype(np.float32)
    # In some the best unit of each place is another one, so that there is no contest.
    for k in range(10):
        problems[k, np.arange(size), generator.permutation(size)] += 10
    best = assignment.solve(problems)
    for gain, one in zip(problems, best, strict=True):
        rows, columns = linear_sum_assignment(gain, maximize=True)
        assert np.array_equal(one, columns), rows


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_assignments_do_not_depend_on_units_of_measurement(scale):
    generator = np.random.default_rng(1)
    problems = generator.normal(size=(20, 30, 30)) * np.exp(
        3 * generator.normal(size=(20, 30, 1))
    )
    best = assignment.solve((scale * problems).astype(np.float32))
    for gain, one in zip(problems, best, strict=True):
        rows, columns = linear_sum_assignment(gain, maximize=True)
        np.testing.assert_allclose(
            gain[rows, one].sum(), gain[rows, columns].sum(), rtol=1e-5
        )


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_large_problems_are_solved_each_for_itself(noise):
    """Above 100 units on threads; with gains of a unit far larger than the others'."""
    generator = np.random.default_rng(2)
    ones = generator.normal(size=(5, 120, 40))
    others = ones + noise * generator.normal(size=ones.shape)
    others = np.stack([other[generator.permutation(120)] for other in others])
    ones[:, 3], others[:, 7] = 1e4 * ones[:, 3], 1e3 * others[:, 7]
    gains = np.einsum("kuf,kvf->kuv", ones, others).astype(np.float32)
    for gain, one in zip(gains, assignment.solve(gains), strict=True):
        rows, columns = linear_sum_assignment(gain.astype(float), maximize=True)
        assert np.array_equal(one, columns), rows


def test_units_that_gain_nothing_by_moving_stay():
    problems = np.zeros((2, 6, 6), np.float32)
    problems[1] = np.float32(1e5) * (
        1 + 1e-7 * np.random.default_rng(0).normal(size=(6, 6))
    )
    assert np.array_equal(assignment.solve(problems), [np.arange(6)] * 2)
