"""`--warmup auto` and `--restart-stuck`: what is picked, said and recorded."""

import math
import re

import numpy as np
import pytest
from commands import symjax

from symjax import store
from symjax.cli import plan, records


WINE = ("--data", "wine", "--widths", 3, "--num-chains", 2, "--map-steps", 50)


def said(capsys):
    return re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.parametrize("sampler", ["hmc", "mala"])
def test_a_first_step_is_picked_explained_and_recorded(sampler, tmp_path, capsys):
    out = tmp_path / "run"
    symjax(
        "sample", *WINE, "--sampler", sampler, "--warmup", "auto", "--num-draws", 5,
        f"--{sampler}.num-warmup", 20, "--out", out,
    )  # fmt: skip
    text = said(capsys)
    (size,) = map(float, re.findall(r"Picked first step size ([0-9.]+):", text))
    assert re.search(r"0\.8 / sqrt\([0-9.]+\), the largest curvature", text)
    assert ("pi / 2 x prior std" in text) == (sampler == "hmc")
    # What was given stays, and nothing is said of it.
    assert "of warm-up" not in text
    recorded = getattr(records.rebuild_command(store.open(out)), sampler)
    assert recorded.num_warmup == 20
    expected = size if sampler == "hmc" else size**2 / 2
    assert recorded.step_size == pytest.approx(expected, rel=0.01)
    first = store.open(out).info()["step_size"][:, 0]
    leapfrog = size if sampler == "hmc" else math.sqrt(2 * recorded.step_size)
    np.testing.assert_allclose(first, leapfrog, rtol=0.01)


def test_a_plan_does_not_claim_to_know_the_step_size(monkeypatch, capsys):
    monkeypatch.setattr(plan, "_time_gradient", lambda *_: plan._Timed(0.1, 1000))
    words = ("sample", *WINE, "--prior-scale", 1, "--dry-run")
    auto = ("--warmup", "auto")
    unknown = "of the whole data set, if the step size were 0.02: --warmup auto picks"
    first = "of the whole data set, at the first step size, which the warm-up adapts"
    for options, count, about in (
        (auto, 79, unknown),
        ((*auto, "--hmc.step-size", 0.1), 16, first),
        ((), 79, first),
        (("--hmc.num-warmup", 0), 79, None),
        ((*auto, "--hmc.num-steps", 5), 5, None),
        ((*auto, "--sampler", "mala"), 1, None),
    ):
        symjax(*words, *options)
        text = said(capsys)
        assert f"gradients {count} an iteration" in text
        assert ("if the step size were" in text) == (about == unknown)
        assert ("at the first step size" in text) == (about == first)
        assert (about or "of the whole data set micro-batch") in text
        assert (", at that step size" in text) == (about is not None)
        # What a warm-up from the picked step takes is known, and counted.
        picks = options[:2] == auto and "mala" not in options
        assert ("Picked 100 iterations of warm-up" in text) == picks
        assert ("iterations 300, keeping 200" in text) == picks


@pytest.mark.parametrize("warmup", [("--warmup", "auto"), ()])
def test_a_mass_matrix_gets_the_iterations_that_it_takes(warmup, tmp_path, capsys):
    symjax(
        "sample", *WINE, *warmup, "--hmc.mass-matrix", "diagonal",
        "--hmc.num-steps", 2, "--hmc.step-size", 0.05, "--num-draws", 5,
        "--restart-stuck", "--out", tmp_path / "run",
    )  # fmt: skip
    text = said(capsys)
    assert "Picked 500 iterations of warm-up: a diagonal mass matrix" in text
    assert "step size" not in text.replace("step size is", "")
    kept = store.open(tmp_path / "run")
    assert kept.config["run"]["num_discarded"] == 500
    assert kept.config["run"]["restart_at"] == 250


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sampler", "mclmc", "--warmup", "auto"), "`--warmup auto` is for hmc,"),
        (("--restart-stuck", "--hmc.num-warmup", 9), "at least 40 iterations"),
        (("--restart-stuck", "--sampler", "sgld"), "`--restart-stuck` must be left"),
        (("--sampler", "mclmc", "--mclmc.decoherence-length", -3), "`--mclmc.decoh"),
        (
            ("--sampler", "adjusted_mclmc", "--adjusted-mclmc.trajectory-length", 0),
            "`--adjusted-mclmc.trajectory-length` must be a positive number, got 0",
        ),
        (("--sampler", "ghmc"), "`--num-chains` must be at least 4 for the warm-up"),
        (("--sampler", "chees", "--num-chains", 1), "must be at least 2 for the"),
    ],
)
def test_what_cannot_be_is_refused(options, message, tmp_path, capsys):
    symjax("sample", *WINE, *options, "--out", tmp_path / "run", code=2)
    text = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert message in text
