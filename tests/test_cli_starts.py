"""Where the chains of a command start."""

import re
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from symjax import densities, store
from symjax.cli import options, starts
from symjax.cli.posteriors import Posterior


def test_starts_are_made_one_by_one():
    """XLA's threads on a CPU with few cores wait for each other in batched QRs."""
    command = options.Sample(num_chains=2)
    others: Any = dict.fromkeys(set(Posterior._fields) - {"init"})
    built = Posterior(init=lambda key: jax.random.orthogonal(key, 3), **others)
    jaxpr = jax.make_jaxpr(lambda: starts.make(command, built, optimised=False))()
    shapes = re.findall(r":f32\[(\S+)\] \w+:\S+ = qr\[", str(jaxpr))
    made = starts.make(command, built, optimised=False)
    assert made.shape == (2, 3, 3)
    assert shapes == ["3,3"]


@pytest.mark.parametrize("temperature", [1.0, 0.09])
def test_chains_start_at_draws_of_the_prior(temperature):
    command = options.Sample(num_chains=3, start="prior")
    prior = densities.Prior([("w", dist.Normal(0.0, 2.0)), ("b", dist.Logistic())])
    others: Any = dict.fromkeys(set(Posterior._fields) - {"init", "log_posterior"})
    built = Posterior(
        init=lambda key: {"w": jax.numpy.ones(1000), "b": jax.numpy.ones(1000)},
        log_posterior=SimpleNamespace(prior=prior, temperature=temperature),
        **others,
    )
    made = jax.tree.map(np.asarray, starts.make(command, built))
    assert made["w"].shape == (3, 1000)
    width = temperature**0.5
    expected = scipy.stats.norm(0, 2 * width), scipy.stats.logistic(scale=width)
    for name, theirs in zip(("w", "b"), expected, strict=True):
        assert len(np.unique(made[name])) > 2900
        assert scipy.stats.kstest(made[name].ravel(), theirs.cdf).pvalue > 1e-4


@pytest.mark.parametrize("more", ["there", "here"])
def test_a_run_whose_network_has_a_leaf_more_or_less_is_refused(more, tmp_path):
    small = {"w": np.zeros(3, np.float32)}
    large = small | {"extra": np.zeros(2, np.float32)}
    there, here = (large, small) if more == "there" else (small, large)
    info = {"log_density": np.float32(0)}
    kept = store.create(
        tmp_path / "run", config={}, params=there, info=info, num_chains=2,
        num_draws=1, num_iterations=1,
    )  # fmt: skip
    draws = jax.tree.map(lambda leaf: np.stack([leaf[None]] * 2), there)
    kept.append(draws, 0, {"log_density": np.zeros((2, 1), np.float32)}, 0)
    kept.commit({"w": np.zeros(2)}, iteration=1, num_draws=1, finished=True)
    others: Any = dict.fromkeys(set(Posterior._fields) - {"init"})
    command = options.Sample(num_chains=2, start=str(tmp_path / "run"))
    starts.require(command, Posterior(init=lambda key: there, **others))
    said = {"there": r"extra is \(2,\), .* absent", "here": r"absent, .* \(2,\)"}
    with pytest.raises(ValueError, match=f"(?s){said[more]}"):
        starts.require(command, Posterior(init=lambda key: here, **others))


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    """Its last draw would be another one tomorrow."""
    params = {"w": np.float32(0)}
    kept = store.create(
        tmp_path / "run", config={}, params=params, info={"log_density": params["w"]},
        num_chains=2, num_draws=4, num_iterations=4,
    )  # fmt: skip
    others: Any = dict.fromkeys(set(Posterior._fields) - {"init"})
    built = Posterior(init=lambda key: params, **others)
    command = options.Sample(num_chains=2, start=str(tmp_path / "run"))
    draws = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    kept.append(draws, 0, {"log_density": np.zeros((2, 3), np.float32)}, 0)
    kept.commit({"w": np.zeros(2)}, iteration=3, num_draws=3)
    with pytest.raises(ValueError, match="`--start` .* finished .* 3 of its 4 draws"):
        starts.require(command, built)
    # As when its time is up.
    kept.commit({"w": np.zeros(2)}, iteration=3, num_draws=3, finished=True)
    starts.require(command, built)
    np.testing.assert_array_equal(starts.make(command, built)["w"], [2, 5])
