"""The look at the energy after a run whose force was rounded."""

import re

import pytest
from commands import symjax

from symjax.cli import energies


WORDS = (
    "sample", "--data", "diabetes", "--widths", 2, "--num-chains", 2, "--num-draws", 10,
)  # fmt: skip
ROUNDED = (
    "--noise", 0.02, "--start", "init", "--hmc.trajectory-length", 0.02,
    "--hmc.num-warmup", 40, "--force-precision", "bfloat16",
)  # fmt: skip


def coarse(step_size):
    """A force of full float32 on a CPU, and a step that one iteration can't mend."""
    return (
        "--noise", 1, "--start", "map", "--map-steps", 100, "--hmc.step-size",
        step_size, "--hmc.trajectory-length", 0.6, "--hmc.num-warmup", 1,
        "--force-precision", "tensorfloat32",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "is_looked_at", "is_told"),
    [
        (ROUNDED, True, True),
        # Full float32 accepts as few, but with half the step size nearly all.
        (coarse(0.04), True, False),
        (coarse(0.01), False, False),
        ((*ROUNDED[:-1], "float32"), False, False),
    ],
)
def test_a_warning_is_of_rounding_and_not_of_large_steps(
    words, is_looked_at, is_told, tmp_path, monkeypatch, capsys
):
    looked, halve = [], energies._halve
    monkeypatch.setattr(energies, "_halve", lambda *a: (looked.append(a), halve(*a))[1])
    symjax(*WORDS, *words, "--out", tmp_path / "run")
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert bool(looked) == is_looked_at
    assert ("of the force, bfloat16, spoils the energy" in said) == is_told
    assert ("spoils" in said) == is_told


def test_trajectories_have_half_the_step_of_the_run(tmp_path, monkeypatch):
    found, halve = [], energies._halve
    monkeypatch.setattr(
        energies, "_halve", lambda *a: (found.append(halve(*a)), found[-1])[1]
    )
    symjax(*WORDS, *coarse(0.04), "--out", tmp_path / "run")
    (info,) = found
    assert info.step_size.shape == (2, energies.NUM_TRIES)
    assert info.step_size == pytest.approx(0.02)
    assert (info.num_steps == 30).all()
