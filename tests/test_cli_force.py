"""The precision of the gradient that a command takes by default."""

from dataclasses import replace

import jax
import pytest
from commands import symjax

from symjax import store
from symjax.cli import forces, posteriors
from symjax.cli.options import Fit, Sample
from symjax.cli.problem import Problem


def precision(command, task="classification"):
    return forces.choose(command, task).problem.force_precision


def test_default_force_on_a_gpu_is_what_an_accept_step_corrects(monkeypatch):
    assert precision(Sample()) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for model, expected in {
        "mlp": "float16",
        "resnet20_frn": "float16",
        "cnn_lstm": "float16x2",
        "lenet": "float16x2",
        "my.py:network": "float16x2",
    }.items():
        command = replace(Sample(), problem=Problem(model=model))
        assert precision(command) == expected
        assert precision(command, "regression") == "float32"
    assert precision(Sample(sampler="ghmc")) == "float16"
    for sampler in ("nuts", "sghmc"):
        for task in ("classification", "regression"):
            assert precision(Sample(sampler=sampler), task) is None
    assert precision(Fit()) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert precision(Sample()) is None


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "float16", "float16x2"])
def test_a_precision_that_is_asked_for_stays(asked, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for model in ("mlp", "cnn_lstm"):
        problem = Problem(model=model, force_precision=asked)
        assert precision(replace(Sample(), problem=problem)) == asked


@pytest.mark.parametrize("began", [None, "float16"])
def test_a_run_goes_on_with_the_force_it_began_with(began, tmp_path, monkeypatch):
    """Also where the default is another one since, or on another device."""

    def choosing(precision):
        return lambda command, _: replace(
            command, problem=replace(command.problem, force_precision=precision)
        )

    monkeypatch.setattr(forces, "choose", choosing(began))
    symjax(
        "sample", "--data", "wine", "--widths", 2, "--num-chains", 1, "--num-draws", 2,
        "--start", "init", "--hmc.trajectory-length", 0.1, "--hmc.num-warmup", 1,
        "--out", tmp_path / "run",
    )  # fmt: skip
    recorded = store.open(tmp_path / "run").config["options"]["problem"]
    assert recorded["force_precision"] == began
    built, build = [], posteriors.build
    monkeypatch.setattr(
        posteriors,
        "build",
        lambda problem, *a: (built.append(problem), build(problem, *a))[1],
    )
    monkeypatch.setattr(forces, "choose", choosing("float16x2"))
    symjax("sample", "--resume", tmp_path / "run")
    assert [problem.force_precision for problem in built] == [began]
