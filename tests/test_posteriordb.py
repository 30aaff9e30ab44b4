"""Four posteriors of posteriordb against their reference draws, at a small scale.

The bound is 5 joint standard errors by ESS for each of at most 28 numbers, all of them
normal with at least 400 effective draws: a false alarm has a probability below 2e-5.
"""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.integrate


@pytest.fixture(scope="module")
def scripts():
    """The script and the models it reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        yield tuple(map(importlib.import_module, ("check_posteriordb", "posteriordb")))


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("kilpisjarvi_mod-kilpisjarvi", "MCLMC"),
        ("garch-garch11", "HMC"),
        ("low_dim_gauss_mix-low_dim_gauss_mix", "HMC"),
        ("gp_pois_regr-gp_regr", "HMC"),
    ],
)
def test_moments_and_quantiles_are_those_of_the_reference(
    scripts, data_folder, monkeypatch, name, sampler
):
    check, posteriordb = scripts
    monkeypatch.setenv("SYMJAX_DATA", str(data_folder))
    options = check.Options(num_chains=8, num_draws=300, num_warmup=100)
    with jax.enable_x64(True):
        result = check.check(posteriordb.load(name), sampler, options)
    assert result["sample_size"] > 400
    assert result["largest"] < 5


def test_the_solver_of_the_differential_equation(scripts):
    theta, start = [0.55, 0.028, 0.8, 0.024], [33.0, 6.0]

    def slope(_, z):
        u, v = z
        return (theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v

    exact = scipy.integrate.solve_ivp(
        slope, (0, 20), start, "DOP853", np.arange(1, 21), rtol=1e-12, atol=1e-12
    ).y.T
    posteriordb = scripts[1]
    with jax.enable_x64(True):
        ours = posteriordb.populations(
            np.array(theta), np.array(start), 20, posteriordb.STEPS_A_YEAR
        )
    np.testing.assert_allclose(ours, exact, rtol=1e-6)
