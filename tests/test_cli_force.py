"""The precision of the gradient that a command takes by default."""

from dataclasses import replace

import jax
import pytest

from symjax.cli import forces
from symjax.cli.options import Fit, Sample
from symjax.cli.problem import Problem


def precision(command, task="classification"):
    return forces.choose(command, task).problem.force_precision


def test_default_force_is_float16_on_a_gpu_where_an_accept_step_corrects_it(
    monkeypatch,
):
    assert precision(Sample()) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert precision(Sample()) == "float16"
    assert precision(Sample(sampler="ghmc")) == "float16"
    recurrent = Problem(data="imdb", model="cnn_lstm")
    assert precision(replace(Sample(), problem=recurrent)) == "float16x2"
    assert precision(Sample(sampler="nuts")) is None
    assert precision(Sample(sampler="sghmc")) is None
    assert precision(Sample(), "regression") is None
    assert precision(Fit()) is None
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert precision(Sample()) is None


@pytest.mark.parametrize("asked", ["float32", "float16", "float16x2"])
def test_a_precision_that_is_asked_for_stays(asked, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for model in ("mlp", "cnn_lstm"):
        problem = Problem(model=model, force_precision=asked)
        assert precision(replace(Sample(), problem=problem)) == asked
