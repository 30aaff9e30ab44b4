"""The comparison of spreads, on draws whose spread is known."""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy.signal import lfilter

from symjax import evaluation, mesh, run
from symjax.evaluation import bias
from symjax.samplers import sgld


def autoregressive(seed, num_draws, rho=0.7, num_chains=4, scale=1.0, apart=5):
    """Chains of six predictions driven by two AR(1) series of variance scale^2."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=(num_chains, num_draws + 200, 2))
    series = lfilter([np.sqrt(1 - rho**2)], [1, -rho], noise, axis=1)[:, 200:]
    mix = np.random.default_rng(9).normal(size=(2, 6))
    mean = random.normal(size=(num_chains, 1, 6)) * apart
    return (mean + scale * series @ mix).reshape(num_chains, num_draws, 3, 2)


def test_the_spread_of_independent_draws_is_their_standard_deviation():
    draws = autoregressive(0, 4000, rho=0.0)
    compared = evaluation.compare_spread(draws, draws[:, :2000])
    mix = np.random.default_rng(9).normal(size=(2, 6))
    exact = np.sqrt((mix**2).sum(axis=0)).mean()
    error = exact / np.sqrt(2 * 8000)
    assert abs(compared.spread - exact) < 5 * error
    assert compared.verdict == "small"


def rare(draws):
    """Probabilities that are mostly near 0."""
    return special.expit(2 * draws - 8)


@pytest.mark.parametrize("seen", [lambda draws: draws, rare])
def test_the_error_is_that_of_repetitions_and_the_ratio_is_unbiased(seen):
    """300 repetitions with 400 correlated draws against 80: z of mean 0 and sd 1."""
    z = []
    for seed in range(300):
        compared = evaluation.compare_spread(
            seen(autoregressive(seed, 400, apart=0)),
            seen(autoregressive(1000 + seed, 80, apart=0)),
        )
        z.append(np.log(compared.ratio) / compared.error)
    assert abs(np.mean(z)) < 5 / np.sqrt(300)
    # The error of a standard deviation of 300 is 4 %; ESS itself is an estimate.
    assert 0.8 < np.std(z) < 1.3


@pytest.mark.parametrize(
    ("scale", "num_draws", "verdict"),
    [(1.0, 4000, "small"), (1.2, 4000, "biased"), (0.8, 4000, "biased"), (1, 80, None)],
)
def test_verdicts(scale, num_draws, verdict):
    compared = evaluation.compare_spread(
        autoregressive(1, num_draws, scale=scale), autoregressive(2, num_draws // 2)
    )
    assert compared.verdict == (verdict or "unclear")
    if num_draws == 4000:
        assert abs(compared.ratio - scale) < 0.05


@pytest.mark.parametrize(
    ("ratio", "error", "verdict"),
    [
        # 2.0 and 3.1 standard errors from 1 for 0.16, 2.2 and 3.4 for 0.15 below it.
        (1.16, 0.074, "unclear"),
        (1.16, 0.048, "biased"),
        (0.85, 0.074, "unclear"),
        (0.85, 0.048, "biased"),
        # Surely above 1 by 4 %, and surely below 1.1.
        (1.04, 0.01, "small"),
        (0.96, 0.01, "small"),
        (1.04, 0.03, "unclear"),
    ],
)
def test_small_is_below_a_tenth_by_two_errors_and_biased_is_three_from_none(
    ratio, error, verdict, monkeypatch
):
    """The error is of the logarithm, and of both runs together."""
    found = iter([(2 * ratio, 2 * ratio * 0.8 * error), (2.0, 2 * 0.6 * error)])
    monkeypatch.setattr(bias, "_spread", lambda *_: next(found))
    compared = evaluation.compare_spread(*np.ones((2, 2, 30, 1, 1)))
    assert compared.ratio == pytest.approx(ratio)
    assert compared.error == pytest.approx(error)
    assert compared.verdict == verdict


def test_constant_predictions_are_left_out():
    draws, half = autoregressive(1, 400), autoregressive(2, 200)
    for array in (draws, half):
        array[:, :, 0] = 0.5
    compared = evaluation.compare_spread(draws, half)
    free = evaluation.compare_spread(draws[:, :, 1:], half[:, :, 1:])
    assert compared.ratio == pytest.approx(free.ratio)
    assert compared.error == pytest.approx(free.error)


@pytest.mark.parametrize(
    ("used", "half", "message"),
    [
        ((2, 40, 3, 2), (2, 10, 3, 2), "20 draws a chain or more"),
        ((2, 40, 3, 2), (2, 41, 3, 2), "no more than `predictions`, which has 40"),
        ((2, 40, 3, 2), (3, 30, 3, 2), "`half_step` must have the shape"),
        ((2, 40, 3, 2), (2, 30, 3, 2), "must vary over the draws"),
    ],
)
def test_what_cannot_be_compared_is_named(used, half, message):
    with pytest.raises(ValueError, match=message):
        evaluation.compare_spread(np.ones(used), np.ones(half))


def test_draws_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="`half_step` must be finite"):
        evaluation.compare_spread(
            np.ones((2, 40, 1, 1)), np.full((2, 30, 1, 1), np.nan)
        )


@pytest.mark.parametrize(
    ("step_size", "verdict"), [(1.2, "biased"), (0.8, "biased"), (0.05, "small")]
)
def test_langevin_steps_on_a_gaussian_are_judged_by_their_known_bias(
    step_size, verdict
):
    """Steps x + e grad + sqrt(2 e) n on N(0, 1) have variance 1 / (1 - e / 2)."""
    spreads = [
        run.sample(
            jax.random.key(seed),
            sgld.build(exact.Gaussian(), step_size=size, batch_size=1),
            jnp.zeros((100, 2)),
            exact.NO_DATA,
            num_draws=num_draws,
            thinning=round(4 / size),
            num_burn_in=round(4 / size),
            mesh=mesh.make_mesh(1, jax.devices()[:1]),
            show_progress=False,
        ).draws[:, :, None]
        for seed, (size, num_draws) in enumerate([(step_size, 60), (step_size / 2, 20)])
    ]
    compared = evaluation.compare_spread(*spreads)
    exact_ratio = np.sqrt((1 - step_size / 4) / (1 - step_size / 2))
    assert compared.verdict == verdict
    assert abs(np.log(compared.ratio / exact_ratio)) < 5 * compared.error
    assert compared.error < 0.03


def test_the_spread_of_few_independent_draws_is_not_too_small():
    """0.9975 is expected, with an error of 0.0018; without the correction 0.97."""
    draws = np.random.default_rng(0).normal(size=(4, 20, 2000, 1))
    assert abs(evaluation.compare_spread(draws, draws).spread - 1) < 0.012
