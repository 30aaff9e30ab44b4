"""Where the chains of a command start."""

import re
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from symjax import densities
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
