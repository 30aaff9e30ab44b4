"""Simulation-based calibration on a tiny network, after Talts et al. (2018).

The ranks of 500 simulations are independent of one another, whatever the draws; that
draws within one are nearly so is asked for by their effective number. A chi-square test
for each of 4 quantities below 2e-5: a false alarm has a probability below 1e-4.
"""

import functools
import importlib
from pathlib import Path

import jax
import pytest

from symjax import densities, posterior


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        yield importlib.import_module("check_calibration")


@pytest.fixture
def _well_compiled(monkeypatch):
    """As on users' machines: of NUTS, running takes far longer than compiling."""
    options = {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    }
    compiled = functools.partial(jax.jit, compiler_options=options)
    monkeypatch.setattr(jax, "jit", compiled)


SLOW = (
    "jittered HMC",
    "MALA",
    "split HMC",
    "adjusted MCLMC",
    "BAOAB",
    "generalised HMC",
)


@pytest.mark.parametrize(
    "name",
    ["HMC", "NUTS", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)],
)
@pytest.mark.usefixtures("_well_compiled")
def test_ranks_are_uniform(script, name):
    ranks, draws = script.ranks(script.SAMPLERS[name], 500)
    assert script.share_effective(draws) > 0.8
    assert script.p_values(ranks).min() > 2e-5


def test_another_temperature_is_seen(script):
    cold = posterior.build(
        script.network,
        script.LOG_POSTERIOR.prior,
        densities.gaussian(script.NOISE),
        temperature=0.5,
    )
    line = script.SAMPLERS["HMC"]
    wrong = line._replace(build=lambda _, *given: line.build(cold, *given))
    ranks, _ = script.ranks(wrong, 500)
    assert script.p_values(ranks).min() < 1e-8
