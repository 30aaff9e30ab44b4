import itertools

import numpy as np
import pytest
from scipy import stats

from symjax.evaluation import check_exchangeability, exchangeability


UNITS = 6


def moving(stay, seed, *, chains=4, draws=400, units=UNITS, shares=None):
    """Values whose largest unit stays with a probability, else is drawn anew."""
    rng = np.random.default_rng(seed)
    largest = rng.choice(units, size=(chains, draws), p=shares)
    stays = rng.random((chains, draws)) < stay
    for i in range(1, draws):
        largest[:, i] = np.where(stays[:, i], largest[:, i - 1], largest[:, i])
    return 2.0 * np.eye(units)[largest] + rng.random((chains, draws, units))


def test_independent_draws_give_the_chi_square_test_of_scipy():
    # One draw a chain: nothing to thin.
    values = np.random.default_rng(0).normal(size=(300, 1, UNITS))
    values[:, :, 2] += 0.3
    result = check_exchangeability(values)
    counts = np.bincount(values.argmax(axis=2).ravel(), minlength=UNITS)
    want = stats.chisquare(counts)
    np.testing.assert_array_equal(result.counts, counts)
    assert result.statistic == pytest.approx(want.statistic)
    assert result.pvalue == pytest.approx(want.pvalue)
    assert (result.dof, result.stride, result.num_independent) == (UNITS - 1, 1, 300)


@pytest.mark.parametrize("stay", [0.0, 0.9])
def test_rejects_as_often_as_it_says_also_where_draws_are_dependent(stay):
    results = [check_exchangeability(moving(stay, seed)) for seed in range(200)]
    pvalues = np.array([result.pvalue for result in results])
    assert stats.kstest(pvalues, "uniform").pvalue > 0.01
    # The plain test of all draws would reject most of the time.
    if stay:
        assert (pvalues < 0.05).mean() < 0.1


def test_finds_units_that_are_not_exchangeable():
    shares = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    for stay in (0.0, 0.5):
        assert check_exchangeability(moving(stay, 1, shares=shares)).pvalue < 1e-3


def test_keeps_draws_an_autocorrelation_time_apart():
    times, strides = [], []
    for seed in range(20):
        values = moving(0.8, seed, draws=3000)
        largest = values.argmax(axis=2)
        times.append(exchangeability._autocorrelation_time(largest, UNITS))
        strides.append(check_exchangeability(values).stride)
    # The autocorrelation is 0.8^lag: time (1 + 0.8) / (1 - 0.8) = 9, and
    # 0.8^17.5 = 0.02.
    assert np.mean(times) == pytest.approx(9, rel=0.1)
    assert np.mean(strides) == pytest.approx(18, rel=0.1)


def test_chains_that_stand_still_are_one_draw_each():
    # That some of four are in one of eight units, and that all are.
    for units, want, noise in (
        ([0, 5, 5, 7], 1 - 7 * 6 * 5 / 8**3, 0.02),
        ([3, 3, 3, 3], 1 / 8**3, 0.001),
    ):
        values = np.eye(8)[units][:, None] * np.ones((4, 200, 1))
        result = check_exchangeability(values)
        assert (result.num_independent, result.stride) == (4, 200)
        np.testing.assert_array_equal(result.counts, np.bincount(units, minlength=8))
        assert result.pvalue == pytest.approx(want, abs=noise)
    alone = check_exchangeability(values[:1])
    assert (alone.num_independent, alone.pvalue) == (1, 1.0)


@pytest.mark.parametrize(
    "counts", [(3, 3, 0, 0, 0, 0), (5, 2, 2, 1), (4, 2, 1, 0, 0), (6, 1, 0)]
)
def test_few_draws_have_the_pvalue_of_the_multinomial(counts):
    """Of all outcomes; the chi-square distribution is off by 0.01 to 0.12."""
    total, num_units = sum(counts), len(counts)
    outcomes = np.array(list(itertools.product(range(total + 1), repeat=num_units)))
    outcomes = outcomes[outcomes.sum(axis=1) == total]
    as_far = (outcomes**2).sum(axis=1) >= np.sum(np.square(counts))
    shares = np.full(num_units, 1 / num_units)
    want = stats.multinomial.pmf(outcomes[as_far], total, shares).sum()
    largest = np.repeat(np.arange(num_units), counts)
    found = check_exchangeability(np.eye(num_units)[largest][:, None]).pvalue
    # Five standard errors of 9,999 simulations, and of those alone.
    assert abs(found - want) < 5 * np.sqrt(want * (1 - want) / 9_999)


def test_no_pvalue_is_below_what_the_simulations_can_tell():
    """Twelve of twelve in one of forty units: 40^-11."""
    values = np.eye(40)[np.full(12, 7)][:, None]
    assert check_exchangeability(values).pvalue == 1e-4


def test_of_chains_that_hardly_move_the_last_draws_count():
    """The first are those of the start, which has no preferred unit."""
    largest = np.repeat(np.random.default_rng(0).integers(5, size=60)[:, None], 100, 1)
    largest[:, 60:] = 0
    result = check_exchangeability(np.eye(5)[largest])
    assert (result.num_independent, result.stride) == (60, 100)
    np.testing.assert_array_equal(result.counts, [60, 0, 0, 0, 0])


def test_units_that_share_the_largest_are_taken_alike():
    counts = check_exchangeability(np.zeros((2000, 1, 4))).counts
    assert stats.chisquare(counts).pvalue > 0.01
    values = np.zeros((1000, 1, 4))
    values[:, :, 3] = -1
    assert check_exchangeability(values).counts[3] == 0


def test_refuses_what_it_would_misread():
    for wrong in (np.ones((2, 3, 1)), np.ones((0, 3, 4)), np.ones((2, 0, 4))):
        with pytest.raises(ValueError, match="two units; got"):
            check_exchangeability(wrong)
    with pytest.raises(ValueError, match="`values` must be finite"):
        check_exchangeability(np.full((2, 3, 4), np.nan))
