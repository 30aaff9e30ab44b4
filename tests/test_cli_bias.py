"""The step-halving check that follows an unadjusted sampler's run."""

import json
import re

import jax
import pytest
from commands import symjax

from symjax import report, store
from symjax.cli import bias, methods, posteriors
from symjax.cli.hyperparameters import Mclmc
from symjax.cli.options import Sample
from symjax.cli.problem import Problem
from symjax.cli.stochastic import Sghmc


PROBLEM = Problem(data="wine", widths=(3,))


def said(capsys):
    return re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mclmc"
    symjax(
        "sample", "--data", "wine", "--widths", 3, "--num-chains", 2, "--start", "init",
        "--sampler", "mclmc", "--mclmc.num-warmup", 200, "--num-draws", 40,
        "--thinning", 5, "--out", path,
    )  # fmt: skip
    return path


def test_what_was_found_is_recorded_and_shown(run, tmp_path, capsys):
    found = json.loads((run / "bias.json").read_text())
    assert found["ratio"] == pytest.approx(found["spread"] / found["spread_half"])
    assert 0 < found["error"] < 1
    assert found["seconds"] > 0
    symjax("evaluate", run, "--out", tmp_path)
    text = report.bias_finding("mclmc", bias.read(store.open(run))).text
    assert "predictive spread" in text
    assert text in said(capsys)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["step_size_bias"]["mclmc"]["ratio"] == found["ratio"]


def test_a_run_without_its_check_says_so_and_makes_up_for_it(
    run, tmp_path, capsys, monkeypatch
):
    """With half the step size as many draws as far apart take twice the thinning."""
    asked, where = [], ("mesh", "chains_at_once")

    def sample(*args, **options):
        asked.append({key: options[key] for key in options if key not in where})
        return bias_sample(*args, **options)

    bias_sample = bias.run.sample
    monkeypatch.setattr(bias.run, "sample", sample)
    before = json.loads((run / "bias.json").read_text())
    (run / "bias.json").unlink()
    symjax("evaluate", run, "--out", tmp_path)
    assert "mclmc has no accept step" in said(capsys)
    symjax("sample", "--resume", run)
    assert "20 draws a chain at half of it" in said(capsys)
    assert asked == [{"num_draws": 20, "thinning": 10, "num_burn_in": 50}]
    after = json.loads((run / "bias.json").read_text())
    assert after | {"seconds": 0} == before | {"seconds": 0}
    symjax("sample", "--resume", run)
    assert "at half of it" not in said(capsys)


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"num_draws": 200, "thinning": 3}, 2 * 3 * (40 + 10)),
        ({"num_draws": 60}, 2 * (20 + 5)),
        ({"num_draws": 19}, 0),
        ({"bias_check": False}, 0),
        ({"sampler": "hmc"}, 0),
    ],
)
def test_how_many_iterations_the_check_takes(options, extra):
    command = Sample(PROBLEM, **{"sampler": "sgld"} | options)
    assert bias.num_iterations(command) == extra


def test_too_few_draws_to_check_are_said(tmp_path, capsys):
    symjax(
        "sample", "--data", "wine", "--widths", 3, "--num-chains", 2, "--start", "init",
        "--sampler", "sgld", "--sgld.num-warmup", 3, "--num-draws", 5,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert "was not checked: that takes 20 draws" in said(capsys)


@pytest.mark.parametrize(
    "command",
    [
        Sample(PROBLEM, "mclmc", mclmc=Mclmc(num_warmup=50)),
        Sample(PROBLEM, "mclmc", mclmc=Mclmc(step_size=0.3, num_warmup=0)),
        Sample(PROBLEM, "sghmc", sghmc=Sghmc(num_warmup=2, batch_size=9)),
        *(
            Sample(PROBLEM, name)
            for name in sorted(methods.UNADJUSTED - {"mclmc", "sghmc"})
        ),
    ],
    ids=lambda command: command.sampler,
)
def test_the_step_is_half_of_what_it_was_at_the_end(command):
    built = posteriors.build(PROBLEM)
    data = built.dataset.train
    used, (half, halve) = methods.build(command, built), methods.halve(command, built)

    def step_sizes(key):
        state = used.init(key, built.init(key), data)
        state, _ = jax.lax.scan(
            lambda state, key: used.step(key, state, data),
            jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, leaf.dtype), state),
            jax.random.split(key, max(60, used.num_warmup)),
        )
        _, before = used.step(key, state, data)
        _, after = half.step(key, halve(state), data)
        return before.step_size, after.step_size

    before, after = jax.jit(step_sizes)(jax.random.key(0))
    assert float(after) == pytest.approx(float(before) / 2, rel=1e-5)


def test_every_sampler_without_accept_step_is_known_as_such():
    built = posteriors.build(PROBLEM)

    def info(name):
        algorithm = methods.build(Sample(PROBLEM, name), built)

        def step(key):
            state = algorithm.init(key, built.init(key), built.dataset.train)
            return algorithm.step(key, state, built.dataset.train)[1]

        return jax.eval_shape(step, jax.random.key(0))

    without = {
        name for name in methods._SAMPLERS if not hasattr(info(name), "is_accepted")
    }
    assert without == methods.UNADJUSTED
