"""`symjax fit --method laplace`, and what its runs predict with."""

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from commands import symjax

from symjax import evaluation, store
from symjax.cli import costs, plan, predictors, records


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
    built = records.posterior_of(run)
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
    built = records.posterior_of(kept)
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


def test_evidence_and_precision_are_said_and_kept(tmp_path, capsys):
    """At the draws' own modes, by the curvature of the last layer in float64."""
    path, options = tmp_path / "run", ("--laplace.last-layer", "--laplace.structure")
    learned = ("--laplace.prior-precision", "marginal_likelihood")
    symjax(*WORDS, *options, "full", *learned, "--out", path)
    said = " ".join(capsys.readouterr().out.split())
    kept = store.open(path)
    assert kept.fitted is not None
    factor, evidence = kept.fitted["precision_factor"], kept.fitted["log_evidence"]
    built = records.posterior_of(kept)
    data, modes = built.dataset.train, kept.warmup(built.shapes)
    for member in range(2):
        mode = jax.tree.map(lambda leaf, i=member: leaf[i], modes)["params"]
        hidden = jax.nn.silu(
            data.x @ mode["Dense_0"]["kernel"] + mode["Dense_0"]["bias"]
        )
        hidden = np.concatenate([np.asarray(hidden, float), np.ones((142, 1))], axis=1)
        weights = np.vstack([mode["Dense_1"][name] for name in ("kernel", "bias")])
        log_probs = scipy.special.log_softmax(hidden @ weights, axis=1)
        probs = np.exp(log_probs)
        middle = np.einsum("nc,cd->ncd", probs, np.eye(3))
        middle = middle - np.einsum("nc,nd->ncd", probs, probs)
        curvature = np.einsum("ncd,ni,nj->icjd", middle, hidden, hidden)
        values = np.maximum(np.linalg.eigvalsh(curvature.reshape(15, 15)), 0)

        def minus_evidence(log_factor, values=values, weights=weights):
            d = np.exp(log_factor)
            return (d * np.sum(weights**2) + np.sum(np.log1p(values / d))) / 2

        best = scipy.optimize.minimize_scalar(minus_evidence, bounds=(-20, 20))
        likelihood = np.sum(log_probs[np.arange(142), data.y])
        np.testing.assert_allclose(factor[member], np.exp(best.x), rtol=2e-3)
        np.testing.assert_allclose(evidence[member], likelihood - best.fun, rtol=1e-4)
    mean = sum(evidence) / 2
    assert (
        f"log evidence {mean:.5g} ({min(evidence):.5g} to {max(evidence):.5g})" in said
    )
    symjax("fit", "--resume", path)
    again = " ".join(capsys.readouterr().out.split())
    assert f"precision factor {sum(factor) / 2:.5g} (" in again


def test_a_plan_counts_the_curvature(run, monkeypatch, capsys):
    """One gradient of all examples for each output; for low rank eight of 30 vectors.

    A full matrix of the 71 parameters, and three vectors, of one member a device.
    """
    monkeypatch.setattr(plan, "_time_gradient", lambda *_: plan._Timed(100.0, 1000))
    symjax(*WORDS, "--laplace.structure", "full", "--dry-run")
    said = " ".join(capsys.readouterr().out.split())
    assert "cost of 3 gradients of the whole data set for each chain" in said
    size = 4 * (71 * 71 + 3 * 71 + 3)
    assert f"each chain; {size / 1000:.1f} kB a device" in said
    # Thirty of 128 examples and three of all 142, of 100 seconds for 128.
    assert f"estimated time {(30 + 3 * 142 / 128) * 100 / 60:.0f} min" in said
    symjax(*WORDS, "--laplace.structure", "low_rank", "--dry-run")
    said = " ".join(capsys.readouterr().out.split())
    assert "cost of 240 gradients" in said
    command, built = records.rebuild_command(run), records.posterior_of(run)
    steps = 2 * 30 * 128 / 142
    np.testing.assert_allclose(costs.full_gradients(run, command, built), steps + 2 * 3)


def test_draws_without_their_modes_are_refused(run, monkeypatch):
    built = records.posterior_of(run)
    monkeypatch.setattr(store.Run, "warmup", lambda *_: None)
    with pytest.raises(ValueError, match="without the modes that its linearised"):
        predictors.of_run(run, built)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--laplace.rank", 0), "`--laplace.rank` must be at least 1, got 0"),
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
