"""`symjax fit` of mean-field VI and of particles."""

import numpy as np
import pytest
from commands import symjax

from symjax import store


WINE = ("--data", "wine", "--widths", 3, "--num-members", 2)


@pytest.mark.parametrize(
    ("options", "num_draws"),
    [
        (("--method", "mfvi", "--mfvi.num-steps", 5, "--num-draws", 4), 4),
        (("--method", "svgd", "--svgd.num-steps", 5, "--svgd.space", "functions"), 1),
    ],
    ids=["mfvi", "svgd"],
)
def test_a_method_is_fitted(options, num_draws, tmp_path):
    symjax("fit", *WINE, *options, "--out", tmp_path / "run")
    run = store.open(tmp_path / "run")
    assert run.committed.num_draws == num_draws
    values = run.info()["elbo" if num_draws > 1 else "bandwidth"]
    assert values.shape == (2, 5)
    assert np.all(np.isfinite(values))


def test_particles_have_one_network_each(capsys, tmp_path):
    out = ("--out", tmp_path / "run")
    symjax("fit", *WINE, "--method", "svgd", "--num-draws", 3, *out, code=2)
    assert "`--num-draws` must be left out" in " ".join(capsys.readouterr().err.split())
