"""`symjax fit --method laplace`, and what its runs predict with."""

import jax
import numpy as np
import pytest
from test_cli import symjax

from symjax import evaluation, store
from symjax.cli import chains, predictors


WORDS = (
    "fit", "--data", "wine", "--widths", "4", "--method", "laplace",
    "--num-members", 2, "--num-draws", 3, "--laplace.num-steps", 30,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("laplace") / "run"
    symjax(*WORDS, "--laplace.last-layer", "--out", path)
    return store.open(path)


def test_predictions_are_those_of_the_network_linear_at_each_mode(run):
    built = chains.posterior_of(run)
    apply, pair = predictors.of_run(run, built)
    x = built.dataset.test.x
    got = evaluation.predict(apply, pair, x)
    draws, modes = run.read(like=built.shapes), run.warmup(built.shapes)
    hidden = draws["params"]["Dense_0"]["kernel"]
    assert np.ptp(hidden, axis=1).max() == 0
    assert np.ptp(draws["params"]["Dense_1"]["kernel"], axis=1).min() > 0
    # The last layer is linear: there the network and its linearisation are one.
    exact = evaluation.predict(built.apply, draws, x)
    np.testing.assert_allclose(got, exact, atol=1e-3)
    means = jax.vmap(built.apply, (0, None))(modes, x)
    assert np.abs(got - means[:, None]).max() > 0.1


def test_predictions_of_all_layers_are_linearised_unless_it_is_said(run, tmp_path):
    path = tmp_path / "run"
    symjax(*WORDS, "--laplace.structure", "diagonal", "--out", path)
    kept = store.open(path)
    built = chains.posterior_of(kept)
    x = built.dataset.test.x
    got = evaluation.predict(*predictors.of_run(kept, built), x)
    draws, modes = kept.read(like=built.shapes), kept.warmup(built.shapes)
    mode = jax.tree.map(lambda leaf: leaf[1], modes)
    move = jax.tree.map(lambda leaf, m: leaf[1, 2] - m, draws, mode)
    value, change = jax.jvp(lambda params: built.apply(params, x), (mode,), (move,))
    np.testing.assert_allclose(got[1, 2], value + change, rtol=1e-3, atol=1e-3)

    options = kept.config["options"]
    sampled = {"laplace": options["laplace"] | {"predictive": "sampled"}}
    kept.config["options"] = options | sampled
    apply, lazy = predictors.of_run(kept, built)
    assert apply == built.apply
    assert jax.tree.structure(lazy) == jax.tree.structure(draws)


def test_draws_without_their_modes_are_refused(run, monkeypatch):
    built = chains.posterior_of(run)
    monkeypatch.setattr(store.Run, "warmup", lambda *_: None)
    with pytest.raises(ValueError, match="without the modes that its linearised"):
        predictors.of_run(run, built)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--laplace.rank", 0), "`rank` must be at least 1, got 0"),
        (("--laplace.leaves", "*/Conv_0/*"), "matches none of params/Dense_0/bias"),
        (("--laplace.last-layer", "--laplace.leaves", "a"), "`--laplace.leaves` must"),
        (("--prior", "student_t"), "must have normal priors"),
        (
            ("--laplace.structure", "full", "--widths", "400"),
            "full is for up to 5000 parameters, got 6803",
        ),
    ],
)
def test_a_mistake_is_answered_before_anything_is_run(words, message, capsys):
    symjax(*WORDS, *words, "--dry-run", code=2)
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in said
