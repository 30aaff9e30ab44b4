"""Bundles: one file in place of a run, read without trust."""

import contextlib
import dataclasses
import importlib
import io
import json
import re
import shutil
import zipfile

import arviz
import jax
import numpy as np
import pytest
from commands import symjax
from rich.console import Console
from scipy import special, stats
from sklearn.datasets import load_diabetes

from symjax import data, evaluation, report, store
from symjax.cli import (
    bundles,
    comparing,
    describing,
    members,
    posteriors,
    references,
)
from symjax.cli.analyses import Compared
from symjax.report import curves, traces
from symjax.store import StoreError


HMC = "--num-chains 2 --num-draws 40 --map-steps 60 --hmc.num-steps 8"
WINE = f"--data wine --widths 3 --temperature 0.5 {HMC} --hmc.step-size 0.03".split()
DIABETES = f"--data diabetes --widths 2 {HMC} --hmc.step-size 0.01".split()
FIT = ["--num-members", "3", "--ensemble.num-steps", "60"]


def make(folder, words):
    symjax("sample", *words, "--hmc.num-warmup", 20, "--out", folder / "hmc")
    symjax("fit", *words[:4], *FIT, "--out", folder / "net")
    symjax("export", folder / "hmc", "--bundle", folder / "b.npz", "--num-draws", 13)
    return folder


@pytest.fixture(scope="module")
def wine(tmp_path_factory):
    return make(tmp_path_factory.mktemp("wine"), WINE)


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    return make(tmp_path_factory.mktemp("diabetes"), DIABETES)


def load(path):
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def said(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_numpy_alone_reads_what_the_run_was(wine):
    run = store.open(wine / "hmc")
    outputs = np.load(wine / "hmc" / "predictions" / "test" / "outputs.npy")
    bundle = load(wine / "b.npz")
    about = json.loads(bundle["bundle.json"])
    probs = special.softmax(outputs.astype(float), -1)
    np.testing.assert_allclose(bundle["predictions/probs"], probs.mean(1), rtol=1e-6)
    entropy = special.entr(probs).sum(-1).mean((0, 1))
    np.testing.assert_allclose(bundle["predictions/mean_entropy"], entropy, rtol=1e-5)
    logits = outputs.astype(float).mean((0, 1))
    np.testing.assert_allclose(bundle["predictions/mean_logits"], logits, rtol=1e-5)
    votes = (probs.argmax(-1)[..., None] == np.arange(3)).sum((0, 1))
    np.testing.assert_array_equal(bundle["predictions/votes"], votes)
    rhat = arviz.rhat(probs[:, :, 4, 1], method="rank")
    # The two draws beside the median are as far from it, and rounding ranks them.
    assert bundle["diagnostics/rhat"][4, 1] == pytest.approx(rhat, abs=5e-3)
    ess = arviz.ess(probs[:, :, 4, 1], method="bulk")
    assert bundle["diagnostics/ess_bulk"][4, 1] == pytest.approx(ess, rel=5e-3)
    mcse = arviz.mcse(probs[:, :, 4, 1], method="mean")
    assert bundle["diagnostics/mcse_mean"][4, 1] == pytest.approx(mcse, rel=1e-4)
    rows = [3 * i + 2 for i in range(13)]
    assert {name for name in bundle if name.startswith("draws")} == {
        f"draws/{path}" for path in run.leaves
    }
    for path in run.leaves:
        whole, kept = run.read_leaf(path)[:, rows], bundle[f"draws/{path}"]
        np.testing.assert_array_equal(kept, whole.astype(np.float16))
    dataset = data.load("wine")
    np.testing.assert_array_equal(bundle["test/labels"], dataset.test.y)
    assert about["posterior"]["data"]["fingerprint"] == dataset.fingerprint
    assert (about["draws"]["stored"], about["draws"]["of_the_run"]) == (13, 40)
    assert str(wine) not in bundle["bundle.json"].decode()


def test_numpy_alone_reads_what_the_regression_was(diabetes):
    """In the units of the data, which are scikit-learn's, and to float32's digits."""
    bundle, dataset = load(diabetes / "b.npz"), data.load("diabetes")
    x, known = dataset.test.x.astype(float), load_diabetes().target
    for name, size in (("mean", known.mean()), ("std", known.std())):
        # Of the training examples alone.
        assert getattr(dataset, f"target_{name}") == pytest.approx(size, rel=0.1)
    draws = store.open(diabetes / "hmc").read()
    for place in np.ndindex(2, 40):
        params = jax.tree.map(lambda leaf: leaf[place].astype(float), draws)  # noqa: B023
        mean = network(params["model"]["params"], x)
        mean = mean * dataset.target_std + dataset.target_mean
        std = (np.log1p(np.exp(params["noise"])) + 1e-5) * dataset.target_std
        np.testing.assert_allclose(bundle["predictions/mean"][place], mean, rtol=2e-5)
        found = bundle["predictions/std"][place]
        np.testing.assert_allclose(found, np.broadcast_to(std, found.shape), rtol=2e-6)
    targets = bundle["test/targets"]
    assert targets.shape == (len(x), 1)
    assert np.isin(targets.round(3), known).all()


def test_what_is_said_of_the_stored_draws_is_theirs(wine):
    """Against ArviZ, of the 13 draws as they were rounded; of all 40 for those."""
    bundle = store.read_bundle(wine / "b.npz")
    x = data.load("wine").test.x.astype(float)
    stored = [
        special.softmax(network(params["params"], x), -1) for params in draws_of(bundle)
    ]
    outputs = np.load(wine / "hmc" / "predictions" / "test" / "outputs.npy")
    whole = special.softmax(outputs.astype(float), -1)
    for name, probs in (("stored", np.reshape(stored, (2, 13, -1))), ("all", whole)):
        probs = arviz.convert_to_dataset(probs.reshape(2, probs.shape[1], -1))
        told = bundle.about["diagnostics"][f"{name}_draws"]
        mcse = arviz.mcse(probs).x.values
        assert told["mcse_mean"]["largest"] == pytest.approx(mcse.max(), rel=1e-2)
        rhat = np.median(arviz.rhat(probs).x.values)
        assert told["rhat"]["median"] == pytest.approx(rhat, rel=5e-3)


def test_the_definition_says_how_the_noise_is_made(diabetes):
    words = store.read_bundle(diabetes / "b.npz").about["posterior"]["likelihood"]
    assert "standard deviation softplus(the parameter `noise`) + 1e-05" in words


def test_the_same_run_makes_the_same_bytes(wine, tmp_path):
    bundles.export(wine / "hmc", tmp_path / "again.npz", 13)
    assert (tmp_path / "again.npz").read_bytes() == (wine / "b.npz").read_bytes()
    with zipfile.ZipFile(wine / "b.npz") as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {1980}


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_the_definition_gives_the_log_posterior_that_was_sampled(name, request):
    folder = request.getfixturevalue(name)
    bundle, run = store.read_bundle(folder / "b.npz"), store.open(folder / "hmc")
    built = references.posterior(bundle)
    recorded = bundle.read("log_posterior")
    draws = run.read(draws=[2, 38], like=built.shapes)
    found = bundles._log_posteriors(built, draws)
    np.testing.assert_allclose(found, recorded[:, [0, 12]], atol=2e-3)
    # And in float64 from the words alone, of the draws as they are stored.
    by_hand = {"wine": by_hand_wine, "diabetes": by_hand_diabetes}[name](bundle)
    limit = bundle.about["draws"]["largest_change"]["log_posterior"] + 2e-3
    assert abs(by_hand - recorded).max() < limit < 1


def network(layers, x):
    first, last = layers["Dense_0"], layers["Dense_1"]
    hidden = x.reshape(len(x), -1) @ first["kernel"] + first["bias"]
    return (hidden * special.expit(hidden)) @ last["kernel"] + last["bias"]


def draws_of(bundle):
    whole = jax.tree.map(lambda leaf: leaf.astype(float), bundle.draws())
    chains_, draws = jax.tree.leaves(whole)[0].shape[:2]
    for chain in range(chains_):
        for draw in range(draws):
            yield jax.tree.map(lambda leaf: leaf[chain, draw], whole)  # noqa: B023


def log_prior(params):
    return sum(stats.norm.logpdf(leaf).sum() for leaf in jax.tree.leaves(params))


def by_hand_wine(bundle):
    train, found = data.load("wine").train, []
    for params in draws_of(bundle):
        logits = network(params["params"], train.x.astype(float))
        logs = special.log_softmax(logits, -1)[np.arange(len(train.y)), train.y]
        found.append((log_prior(params) + logs.sum()) / 0.5)
    return np.reshape(found, (2, 13))


def by_hand_diabetes(bundle):
    train, found = data.load("diabetes").train, []
    for params in draws_of(bundle):
        means = network(params["model"]["params"], train.x.astype(float))
        scale = np.log1p(np.exp(params["noise"])) + 1e-5
        logs = stats.norm.logpdf(train.y, means, scale)
        found.append(log_prior(params) + logs.sum())
    return np.reshape(found, (2, 13))


def test_what_rounding_changed_is_the_largest_change(wine):
    """In float64, of probabilities of the draws as drawn and as stored."""
    bundle = store.read_bundle(wine / "b.npz")
    outputs = np.load(wine / "hmc" / "predictions" / "test" / "outputs.npy")
    drawn = special.softmax(outputs[:, 2:39:3].astype(float), -1)
    x = data.load("wine").test.x.astype(float)
    stored = [
        special.softmax(network(params["params"], x), -1) for params in draws_of(bundle)
    ]
    changes = abs(np.reshape(stored, drawn.shape) - drawn)
    told = bundle.about["draws"]
    assert told["largest_change"]["prediction"] == pytest.approx(changes.max(), rel=0.1)
    assert changes.max() > 2 * changes.mean()
    moved = abs(by_hand_wine(bundle) - bundle.read("log_posterior"))
    found = told["largest_change"]["log_posterior"]
    assert found == pytest.approx(moved.max(), abs=2e-3)
    assert moved.max() > 5e-3
    spread = bundle.read("log_posterior").astype(float).std()
    assert told["std_of_log_posterior"] == pytest.approx(spread, rel=1e-6)


def test_the_largest_change_may_be_downwards_and_in_any_chain(wine):
    bundle = store.read_bundle(wine / "b.npz")
    built = references.posterior(bundle)
    recorded = bundle.read("log_posterior") + np.float32(0)
    recorded[1, 5] += 7
    predictions = np.zeros((2, 13, 4, 3))
    predictions[0, 1, 2, 2], predictions[1, 12, 3, 0] = 0.2, -0.4
    draws = bundle.draws(built.shapes)
    assert {leaf.dtype for leaf in jax.tree.leaves(draws)} == {np.dtype(np.float32)}
    found = bundles._largest_changes(built, draws, predictions, recorded)
    assert found["prediction"] == 0.4
    limit = bundle.about["draws"]["largest_change"]["log_posterior"] + 2e-3
    assert found["log_posterior"] == pytest.approx(7, abs=limit)


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_a_method_scores_against_the_bundle_as_against_the_run(name, request):
    folder = request.getfixturevalue(name)
    asked = Compared((folder / "net",), reference=str(folder / "b.npz"))
    evaluated = comparing.compare(asked)
    runs = members.open_all([folder / "hmc", folder / "net"])
    reference, method = (members.method(run, None, {}) for run in runs)
    targets = posteriors.test_targets(runs[0].built.dataset)
    task = runs[0].built.dataset.task
    of_run = report.compare(reference, [method], targets, task=task)
    of_bundle = evaluated.comparison
    for ours, theirs in (
        (of_bundle.reference, of_run.reference._replace(name="b.npz")),
        (of_bundle.methods[0], of_run.methods[0]),
        (of_bundle.between_chains, of_run.between_chains),
    ):
        for field, value in theirs._asdict().items():
            if field == "details" or field.startswith("mmd_"):
                continue  # Of single draws, of which the bundle has some; see below.
            found = getattr(ours, field)
            if not isinstance(value, str | None):
                value = pytest.approx(value, rel=1e-5, abs=1e-9)
            assert found == value, field
    for field, value in of_run.function._asdict().items():
        found = getattr(of_bundle.function, field)
        if isinstance(value, dict):
            # Of a regression in float32, which ranks draws beside the median anew.
            rtol = 1e-6 if name == "wine" else 2e-2
            np.testing.assert_allclose(found[""], value[""], rtol=rtol)
        else:
            assert found == value
    assert (of_bundle.num_chains, of_bundle.num_draws) == (2, 40)
    if name == "wine":
        assert traces.disputed_draws(of_bundle, evaluated.reference) is None
        assert curves.functional_collapse([evaluated.reference]) is None


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_single_draws_are_compared_with_those_that_are_stored(name, request):
    folder = request.getfixturevalue(name)
    asked = {} if name == "diabetes" else {"ood": ("noise",)}
    path = str(folder / "b.npz")
    found = comparing.compare(Compared((folder / "net",), reference=path, **asked))
    bundle, net = store.read_bundle(path), store.open(folder / "net")
    dataset, row = data.load(name), found.comparison.methods[0]
    theirs = list(draws_of(bundle))
    like = jax.tree.map(lambda leaf: leaf.astype(np.float32), theirs[0])
    ours = [
        jax.tree.map(lambda leaf: leaf[chain, 0].astype(float), net.read(like=like))  # noqa: B023
        for chain in range(3)
    ]
    flat = [
        np.array([np.concatenate([*map(np.ravel, jax.tree.leaves(p))]) for p in side])
        for side in (ours, theirs)
    ]
    assert row.mmd_weight == pytest.approx(evaluation.mmd(*flat), rel=1e-4)
    assert row.mmd_canonical is not None
    between = found.comparison.between_chains
    two = flat[1].reshape(2, 13, -1)
    assert between is not None
    assert between.mmd_weight == pytest.approx(evaluation.mmd(*two), rel=1e-4)
    if name == "diabetes":
        return

    def probs_of(side, x):
        return np.array(
            [special.softmax(network(p["params"], x.astype(float)), -1) for p in side]
        )

    predicted = [probs_of(side, dataset.test.x) for side in (ours, theirs)]
    wanted = evaluation.mmd(*(probs.reshape(len(probs), -1) for probs in predicted))
    assert row.mmd_function == pytest.approx(wanted, rel=1e-3)
    of_reference = found.comparison.reference.details
    inside = special.entr(bundle.read("predictions/probs").mean(0)).sum(-1)
    x = data.load_ood("noise", like=dataset).x
    outside = special.entr(probs_of(theirs, x).mean(0)).sum(-1)
    wins = (outside[:, None] > inside).mean()
    auroc = of_reference["ood/noise/predictive_entropy/auroc"]
    assert auroc == pytest.approx(wins, abs=2e-3)


def test_a_file_of_predictions_needs_no_data(wine, tmp_path, capsys):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 36)
    np.savetxt(tmp_path / "mine.txt", probs)
    words = ["--reference", wine / "b.npz", "--predictions", tmp_path / "mine.txt"]
    symjax("evaluate", *words, "--out", tmp_path)
    found = json.loads((tmp_path / "summary.json").read_text())["methods"]["mine.txt"]
    reference = load(wine / "b.npz")["predictions/probs"].mean(0)
    distance = evaluation.total_variation(probs, reference / reference.sum(1)[:, None])
    assert found["total_variation"] == pytest.approx(distance)
    labels = load(wine / "b.npz")["test/labels"]
    assert found["accuracy"] == pytest.approx((probs.argmax(1) == labels).mean())
    symjax("evaluate", *words, "--labels", "x.txt", code=2)
    assert "`--labels` must be left out, since b.npz has them" in said(capsys)


def test_a_file_of_a_regression_needs_no_data(diabetes, tmp_path, capsys):
    bundle = load(diabetes / "b.npz")
    targets, rng = bundle["test/targets"][:, 0], np.random.default_rng(0)
    mean = rng.normal(targets.mean(), targets.std(), len(targets))
    std = rng.uniform(20, 50, len(targets))
    np.savetxt(tmp_path / "mine.csv", np.stack([mean, std], 1), delimiter=",")
    np.savez(tmp_path / "two.npz", mean=np.stack([mean, mean + 9])[..., None])
    words = ["--reference", diabetes / "b.npz", "--predictions"]
    files = [tmp_path / "mine.csv", tmp_path / "two.npz"]
    itself = f"{diabetes / 'b.npz'}:predictions"
    symjax("report", *words, *files, itself, "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    reference, one, two, same = summary["methods"].values()
    error = mean - targets
    assert one["rmse"] == pytest.approx(np.sqrt((error**2).mean()))
    nll = -stats.norm.logpdf(targets, mean, std).mean()
    assert one["nll"] == pytest.approx(nll)
    centre = bundle["predictions/mean"].mean((0, 1), dtype=float)[:, 0]
    off = np.sqrt(((mean - centre) ** 2).mean())
    assert one["mean_distance"] == pytest.approx(off)
    assert two["rmse"] == pytest.approx(np.sqrt(((error + 4.5) ** 2).mean()))
    assert two.get("nll") is None
    assert two.get("wasserstein") is None
    assert one["wasserstein"] > same["wasserstein"] >= 0
    assert same["mean_distance"] == pytest.approx(0, abs=1e-9)
    assert same["nll"] == pytest.approx(reference["nll"])
    page = (tmp_path / "report.html").read_text()
    assert "mine.csv" in page
    assert "b.npz says of itself" in page
    assert ">R-hat</span> of predictions</h2>" in page
    capsys.readouterr()
    symjax("evaluate", *words, files[0], "--temperature-scaling", code=2)
    assert "`--temperature-scaling` must be left out for a regr" in said(capsys)
    np.savetxt(tmp_path / "short.csv", mean[1:])
    symjax("evaluate", *words, tmp_path / "short.csv", "--out", tmp_path, code=2)
    assert "short.csv has 88 with 1" in said(capsys)


def test_other_data_and_other_posteriors_are_told(wine, capsys):
    symjax("evaluate", wine / "net", "--reference", "bundle:digits", code=2)
    text = said(capsys)
    assert "net must be of the data that bundle:digits is of" in text
    assert "name is wine, not digits, num train is 142, not 1437" in text
    symjax("evaluate", wine / "net", "--reference", wine / "b.npz", "--out", wine)
    text = " ".join(capsys.readouterr().out.split())
    assert "net is of another posterior than b.npz: temperature 1.0 instead of" in text
    assert "b.npz says of itself: R-hat is below 1.01 for" in text
    bundle = store.read_bundle(wine / "b.npz")
    with pytest.raises(ValueError, match="must be the data of b.npz, but"):
        references.posterior(bundle, "breast_cancer")


def test_the_precision_of_a_force_makes_no_other_posterior(wine, tmp_path, capsys):
    words = ["--temperature", 0.5, "--force-precision", "float16"]
    symjax("fit", *WINE[:4], *FIT, *words, "--out", tmp_path / "net")
    words = ["--reference", wine / "b.npz", "--out", tmp_path]
    symjax("evaluate", tmp_path / "net", *words)
    assert "another posterior" not in capsys.readouterr().out
    # The definition of this one names it.
    problem = store.read_bundle("bundle:digits").about["posterior"]["problem"]
    assert "force_precision" in problem
    words = ["--data", "digits", "--widths", 10, "--activation", "silu"]
    words += ["--prior-scale", 0.3, "--force-precision", "float16"]
    symjax("fit", *words, *FIT, "--out", tmp_path / "digits")
    words = ["--reference", "bundle:digits", "--out", tmp_path]
    symjax("evaluate", tmp_path / "digits", *words)
    assert "another posterior" not in capsys.readouterr().out


def test_what_is_no_reference_is_not_exported(wine, tmp_path, capsys):
    hmc, file = wine / "hmc", tmp_path / "b.npz"
    for words, text in (
        ([hmc], "`file` or `--bundle` must be given"),
        ([hmc, file, "--bundle", file], "and not both"),
        ([hmc, file, "--num-draws", 3], "`--num-draws` is for a `--bundle`"),
        ([hmc, "--bundle", tmp_path / "b.zip"], "must end in .npz"),
        ([hmc, "--bundle", tmp_path / "no" / "b.npz"], "must lie in a folder"),
        ([hmc, "--bundle", file, "--num-draws", 41], "from 1 to the 40 draws"),
        ([wine / "net", "--bundle", file], "must be draws of symjax sample"),
    ):
        symjax("export", *words, code=2)
        assert text in said(capsys)
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("large", "below 65,504 to be stored in float16, and is not in some draws"),
        ("diverged", "predicts infinities or NaN: it diverged and is no reference"),
        ("one chain", "is no reference. R-hat is withheld"),
        ("aligned", "is fitted, aligned or imported"),
        ("not logged", "did not log the log density of its draws"),
    ],
)
def test_draws_that_are_no_reference_are_told(
    wine, tmp_path, monkeypatch, change, text
):
    shutil.copytree(wine / "hmc", tmp_path / "hmc")
    run = store.open(tmp_path / "hmc")
    outputs = np.load(wine / "hmc" / "predictions" / "test" / "outputs.npy")
    if change == "large":
        # As large as float32 holds and float16 does not.
        read = store.Run.read_leaf
        large = lambda *words, **chosen: read(*words, **chosen) * np.float32(1e6)
        monkeypatch.setattr(store.Run, "read_leaf", large)
    elif change == "diverged":
        outputs[1, 3, 5] = np.inf
    elif change == "one chain":
        outputs = outputs[:1]
    elif change == "aligned":
        monkeypatch.setitem(run.config, "aligned", {})
    else:
        fields = {name: leaf for name, leaf in run.fields.items() if "log" not in name}
        run = dataclasses.replace(run, fields=fields)
    monkeypatch.setattr(store, "open", lambda path: run)
    monkeypatch.setattr(bundles.predicting, "outputs", lambda *_, **__: outputs)
    with pytest.raises(ValueError, match=re.escape(text)):
        bundles.export(tmp_path / "hmc", tmp_path / "b.npz")
    assert not (tmp_path / "b.npz").exists()


def test_a_bundle_is_written_whole_or_not_at_all(wine, tmp_path, monkeypatch):
    bundle = store.read_bundle(wine / "b.npz")
    # By columns, as many programs have them.
    arrays = {name: np.asfortranarray(bundle.read(name)) for name in load_names(bundle)}
    about = {key: bundle.about[key] for key in bundle.about if key != "arrays"}
    path = tmp_path / "b.npz"
    store.write_bundle(path, about, arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(store.read_bundle(path).read(name), array)
    before = path.read_bytes()
    with path.open("rb") as opened:  # Who reads the old one reads it to its end.
        store.write_bundle(path, about | {"name": "other"}, arrays)
        assert opened.read() == before
    written, write = [], np.lib.format.write_array

    def fill_the_disk(file, array, **words):
        written.append(array)
        if len(written) > 3:
            raise OSError(28, "No space left on device")
        write(file, array, **words)

    before = path.read_bytes()
    monkeypatch.setattr(np.lib.format, "write_array", fill_the_disk)
    with pytest.raises(StoreError, match=r"b\.npz.*No space left"):
        store.write_bundle(path, about, arrays)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["b.npz"]


def load_names(bundle):
    return list(bundle.about["arrays"])


def test_a_run_that_a_limit_of_time_ended_is_exported(wine, tmp_path):
    """It has fewer iterations than the draws that it was to keep would need."""
    words = [*WINE, "--hmc.num-warmup", 20, "--num-draws", 10**6]
    symjax("sample", *words, "--max-minutes", 0.05, "--out", tmp_path / "hmc")
    kept = store.open(tmp_path / "hmc")
    bundle = bundles.export(tmp_path / "hmc", tmp_path / "b.npz", 5)
    made, logged = kept.committed, kept.info()["log_density"]
    assert logged.shape[1] == made.iteration < kept.num_iterations
    every = made.num_draws // 5
    of_draws = logged[:, -made.num_draws :][:, every - 1 :: every][:, :5]
    stored = load(tmp_path / "b.npz")["log_posterior"]
    np.testing.assert_array_equal(stored, of_draws)
    assert bundle.about["draws"]["of_the_run"] == made.num_draws


def test_what_another_program_made_is_said(wine, tmp_path):
    shutil.copytree(wine / "hmc", tmp_path / "hmc")
    config = json.loads((tmp_path / "hmc" / "config.json").read_text())
    config["config"] |= {"remark": "By hand.", "gradients": 12}
    (tmp_path / "hmc" / "config.json").write_text(json.dumps(config))
    bundle = bundles.export(tmp_path / "hmc", tmp_path / "b.npz", 5)
    assert bundle.about["provenance"]["gradients"] == 12
    assert "the rule of 99%. By hand." in " ".join(references.notes(bundle, []))


def test_unconverged_chains_are_called_so():
    rhat = {"": np.array([[1.0, 1.02], [np.nan, 1.005]])}
    none = {"": np.full((2, 2), np.nan)}
    found = evaluation.Convergence(rhat, *[none] * 4, 4, 4, 1, 0, None)
    text = describing.sentence(found, "classification")
    assert text.startswith("R-hat is below 1.01 for 66.67% of 3 probabilities")
    assert "NOT converged" in text
    for num_above, verdict in ((1, ": converged by"), (2, ": NOT converged by")):
        values = np.where(np.arange(100) < num_above, 1.02, 1.005).reshape(50, 2)
        some = found._replace(rhat={"": values})
        assert verdict in describing.sentence(some, "classification")


# Files that were damaged, or made to do harm.


def rewritten(source, path, change):
    """A copy whose members `change` edits: name -> bytes."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(members["bundle.json"])
    change(members, about)
    members.setdefault("bundle.json", b"")
    if members["bundle.json"] is not None and "raw" not in members:
        members["bundle.json"] = json.dumps(about).encode()
    members.pop("raw", None)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def as_npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def listing(name, shape, dtype="<f4"):
    return lambda members, about: about["arrays"].update({name: [dtype, shape]})


def setting(*keys, to):
    def change(members, about):
        for key in keys[:-1]:
            about = about[key]
        about[keys[-1]] = to

    return change


def replacing(name, content):
    return lambda members, about: members.update({f"{name}.npy": content})


def huge(members, about):
    for name in ("draws/x", "draws/y"):
        about["arrays"][name] = ["<f4", [2, 13, 2**30]]
        members[f"{name}.npy"] = b""


PROBS = "predictions/probs"


def edited(name, *, lead=(), add=(), columns=False):
    """The array with a number of its first rows changed, or stored by columns."""

    def change(members, about):
        array = np.load(io.BytesIO(members[f"{name}.npy"]))
        for place, value in zip(lead, add, strict=True):
            array[place] += array.dtype.type(value)
        array = np.asfortranarray(array) if columns else array
        members[f"{name}.npy"] = as_npy(array)

    return change


HARM = {
    "True, dtype": edited(PROBS, columns=True),
    "it lists the array 'draws/e'": listing("draws/e", [2, 13, 0]),
    "test/labels has the shape [36, 1]": listing("test/labels", [36, 1], "<i4"),
    "votes are not those": edited(
        "predictions/votes", lead=[(0, 0), (0, 1)], add=[-100, 100]
    ),
    "probs are no probabilities": edited(
        PROBS, lead=[(0, 0, 0), (0, 0, 1)], add=[-1.5, 1.5]
    ),
    "labels are not all": edited("test/labels", lead=[3], add=[-9]),
    "of a newer symjax": setting("version", to=2),
    "its version is '1'": setting("version", to="1"),
    "does not say that it is a symjax bundle": setting("format", to="x"),
    "its task is": setting("task", to="ranking"),
    "posterior.problem": setting("posterior", to=[]),
    "draws.of_the_run": setting("draws", "of_the_run", to="40"),
    "votes are not those of": setting("draws", "of_the_run", to=41),
    "it lists the array '../x'": listing("../x", [2]),
    "it lists the array '/etc/x'": listing("/etc/x", [2]),
    "it lists the array 'draws/a": listing("draws/a\\b", [2, 13]),
    "it lists the array 'draws/o'": listing("draws/o", [2, 13], "|O"),
    "it lists the array 'draws/n'": listing("draws/n", [2, -13]),
    "it lists the array 'draws/t'": listing("draws/t", [2, True]),
    "extra is missing or does not belong": listing("extra", [2]),
    "does not hold what it lists: draws/z": listing("draws/z", [2, 13]),
    "which does not fit": listing("draws/z", [3, 13]),
    "does not hold what it lists: ../../x": lambda m, a: m.update({"../../x": b""}),
    "times its own": huge,
    "where float32": replacing(PROBS, as_npy(np.zeros((2, 36, 3)))),
    "has (": replacing(PROBS, as_npy(np.array([{}], object))),
    "not finite": replacing(PROBS, as_npy(np.full((2, 36, 3), np.nan, "<f4"))),
    "no probabilities": replacing(PROBS, as_npy(np.ones((2, 36, 3), "<f4"))),
    "bytes or more": replacing(PROBS, as_npy(np.ones((2, 36, 3), "<f4")) + b"x"),
    "magic string": replacing(PROBS, b"x" * 2000),
    "not all classes": replacing("test/labels", as_npy(np.full(36, 3, "<i4"))),
    "recursion": lambda m, a: m.update({"bundle.json": b"[" * 10**5, "raw": b""}),
    "Expecting value": lambda m, a: m.update({"bundle.json": b"x", "raw": b""}),
    "more than": lambda m, a: m.update({"bundle.json": b" " * 2**21, "raw": b""}),
}


def read_all(path):
    bundle = store.read_bundle(path)
    bundle.draws()
    references.targets(bundle)
    return references.method(bundle)


@pytest.mark.parametrize("text", HARM)
def test_harm_is_refused(text, wine, tmp_path):
    path = rewritten(wine / "b.npz", tmp_path / "bad.npz", HARM[text])
    with pytest.raises(StoreError) as caught:
        read_all(path)
    wanted = "by a newer symjax" if "newer" in text else text
    assert wanted in str(caught.value)
    assert "bad.npz" in str(caught.value)
    assert not isinstance(caught.value.__cause__, MemoryError)


def test_an_array_that_is_there_twice_is_refused(wine, tmp_path):
    path = shutil.copy(wine / "b.npz", tmp_path / "bad.npz")
    other = np.full((2, 36, 3), 1 / 3, "<f4")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(match="Duplicate name"):
        archive.writestr(f"{PROBS}.npy", as_npy(other))
    with pytest.raises(StoreError, match="does not hold what it lists: a name twice"):
        store.read_bundle(path)


def test_a_spread_that_is_none_is_refused(diabetes, tmp_path):
    change = edited("predictions/std", lead=[(1, 2, 3)], add=[-1e6])
    path = rewritten(diabetes / "b.npz", tmp_path / "bad.npz", change)
    with pytest.raises(StoreError, match="std is not above 0"):
        references.method(store.read_bundle(path))


def test_what_a_bundle_defines_is_compared_with_what_it_holds(wine, tmp_path):
    def compare(*keys, to):
        change = setting("posterior", *keys, to=to)
        path = str(rewritten(wine / "b.npz", tmp_path / "bad.npz", change))
        comparing.compare(Compared((wine / "net",), reference=path))

    with pytest.raises(ValueError, match="`--reference`: net must be of the data"):
        compare("data", "fingerprint", to="0" * 64)
    with pytest.raises(StoreError, match="draws are not of the network"):
        compare("problem", "widths", to=[4])
    with pytest.raises(ValueError, match="does not know: upgrade it"):
        compare("problem", "new_option", to=1)
    change = setting("posterior", "data", "fingerprint", to="0" * 64)
    bundle = store.read_bundle(rewritten(wine / "b.npz", tmp_path / "bad.npz", change))
    with pytest.raises(ValueError, match="must be the data of bad.npz, but"):
        references.posterior(bundle)


def test_what_a_bundle_says_of_its_run_is_taken_from_its_place(wine, tmp_path):
    def change(members, about):
        about["provenance"] |= {"seconds": 12.5, "gradients": 340}
        about["diagnostics"]["all_draws"] |= {"num_judged": 100, "num_constant": 8}
        probs = np.load(io.BytesIO(members[f"{PROBS}.npy"])) * np.float32(1.0005)
        members[f"{PROBS}.npy"] = as_npy(probs)

    path = rewritten(wine / "b.npz", tmp_path / "good.npz", change)
    found = references.method(store.read_bundle(path))
    assert (found.seconds, found.gradients) == (12.5, 340)
    assert found.averages is not None
    counts = found.averages.convergence
    assert (counts.num_judged, counts.num_constant) == (100, 8)
    # Of sums that rounding left off 1.
    sums = np.exp(np.asarray(found.outputs)).sum(-1)
    np.testing.assert_allclose(sums, 1, rtol=1e-12)
    change = setting("provenance", "seconds", to=-1)
    path = rewritten(wine / "b.npz", tmp_path / "good.npz", change)
    assert references.method(store.read_bundle(path)).seconds is None


def test_a_whole_copy_is_read(wine, tmp_path):
    path = rewritten(wine / "b.npz", tmp_path / "good.npz", lambda m, a: None)
    assert read_all(path).outputs.shape == (2, 1, 36, 3)


def test_damage_anywhere_is_an_error_or_changes_nothing(wine, tmp_path, capsys):
    whole, rng = (wine / "b.npz").read_bytes(), np.random.default_rng(0)
    wanted, path = read_all(wine / "b.npz"), tmp_path / "bad.npz"
    unharmed = 0
    for i, place in enumerate(rng.integers(len(whole), size=150)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (i % 8)
        path.write_bytes(damaged if i % 10 else whole[:place])
        with contextlib.suppress(StoreError):
            found = read_all(path)
            np.testing.assert_array_equal(found.outputs, wanted.outputs)
            unharmed += 1
    assert unharmed < 30
    path.write_bytes(whole[:1000])
    symjax("evaluate", wine / "net", "--reference", path, code=2)
    assert "bad.npz" in said(capsys)


def test_what_is_not_there_is_named(tmp_path, wine):
    with pytest.raises(StoreError, match="There is no file"):
        store.read_bundle(tmp_path / "none.npz")
    with pytest.raises(StoreError, match="of which there are bundle:digits"):
        store.read_bundle("bundle:digit")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(StoreError, match="is no bundle"):
        store.read_bundle(tmp_path / "other.npz")
    assert not store.is_bundle(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="`name` must be one of"):
        store.read_bundle(wine / "b.npz").read("probs")


def test_the_program_exports_a_run_that_is_finished(wine, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(store.bundles.SHIPPED.parents[1] / "scripts"))
    make_bundles = importlib.import_module("make_bundles")
    reference = make_bundles.Reference(" ".join([*WINE, "--hmc.num-warmup 20"]), 13)
    make_bundles.make("hmc", reference, wine, Console(width=200))
    assert (wine / "hmc.npz").read_bytes() == (wine / "b.npz").read_bytes()
    text = capsys.readouterr().out
    assert "is finished" in text
    assert f"symjax export {wine / 'hmc'} --bundle {wine / 'hmc.npz'}" in text
    other = reference._replace(words=f"{reference.words} --seed 1")
    with pytest.raises(SystemExit, match="made with other options"):
        make_bundles.make("hmc", other, wine, Console())


# The bundle that comes with symjax.


@pytest.fixture(scope="module")
def digits():
    return store.read_bundle("bundle:digits")


def test_the_shipped_bundle_is_small_and_of_the_digits(digits, monkeypatch):
    assert digits.path.stat().st_size < 1e6
    dataset = data.load("digits")
    assert digits.fingerprint == dataset.fingerprint
    np.testing.assert_array_equal(references.targets(digits), dataset.test.y)
    made_by = digits.about["provenance"]
    assert "dirty" not in made_by["versions"]["git commit of symjax"]
    monkeypatch.syspath_prepend(str(store.bundles.SHIPPED.parents[1] / "scripts"))
    make_bundles = importlib.import_module("make_bundles")
    command = make_bundles.parse(make_bundles.REFERENCES["digits"])
    typed = " ".join(["symjax sample", *describing.typed(command)])
    assert set(typed.split()) <= set(made_by["command"].split())


def test_the_shipped_bundle_is_as_converged_as_it_says(digits):
    about, test = digits.about, data.load("digits").test
    every = np.array(
        [network(p["params"], test.x.astype(float)) for p in draws_of(digits)]
    )
    probs = special.softmax(every, -1).reshape(4, 125, *every.shape[1:])
    # Of the stored draws: ours on all, and ArviZ on some.
    ours = evaluation.summarise(probs)
    stored = about["diagnostics"]["stored_draws"]
    for name, value in describing.summary(ours).items():
        assert stored[name] == pytest.approx(value, rel=1e-3), name
    picked = np.random.default_rng(0).choice(3600, 60, replace=False)
    some = probs.reshape(4, 125, -1)[:, :, picked]
    as_dataset = arviz.convert_to_dataset(some)
    for name, of in (
        ("rhat", arviz.rhat(as_dataset)),
        ("ess_bulk", arviz.ess(as_dataset)),
        ("mcse_mean", arviz.mcse(as_dataset)),
    ):
        found = getattr(ours, name)[""].ravel()[picked]
        np.testing.assert_allclose(found, of.x.values, rtol=1e-3)
    # Of all draws: what is said is what the arrays say, and they suit the stored ones.
    rhat, mcse = (digits.read(f"diagnostics/{n}") for n in ("rhat", "mcse_mean"))
    said_of_all = about["diagnostics"]["all_draws"]
    assert said_of_all["share_of_rhat_below_1.01"] == (rhat < 1.01).mean() >= 0.99
    assert "converged" in about["diagnostics"]["sentence"]
    assert "NOT" not in about["diagnostics"]["sentence"]
    whole = digits.read("predictions/probs").mean(0)
    assert ours.mcse_mean is not None
    errors = np.hypot(ours.mcse_mean[""], mcse)
    assert (abs(probs.mean((0, 1)) - whole) / errors).max() < 5
    assert np.median(mcse / ours.mcse_mean[""]) < 0.6
    assert whole.argmax(1) == pytest.approx(probs.mean((0, 1)).argmax(1), abs=9)


def test_the_shipped_definition_gives_its_log_posterior(digits):
    train, found = data.load("digits").train, []
    scale = digits.about["posterior"]["problem"]["prior_scale"]
    for params in list(draws_of(digits))[::50]:
        prior = sum(
            stats.norm.logpdf(p, 0, scale).sum() for p in jax.tree.leaves(params)
        )
        logits = network(params["params"], train.x.astype(float))
        logs = special.log_softmax(logits, -1)[np.arange(len(train.y)), train.y]
        found.append(prior + logs.sum())
    recorded = digits.read("log_posterior").ravel()[::50]
    limit = digits.about["draws"]["largest_change"]["log_posterior"] + 2e-3
    assert abs(np.array(found) - recorded).max() < limit < 0.5


def test_a_method_scores_against_the_shipped_bundle(digits, tmp_path, capsys):
    words = ["--data", "digits", "--widths", 10, "--prior-scale", 0.3]
    swag = ["--method", "swag", "--swag.num-steps", "200", "--swag.num-burn-in", "100"]
    swag += ["--swag.collect-every", "10", "--swag.rank", "5", "--num-members", "2"]
    other = ["--shift", "gaussian_noise", "--severities", 2, "--out", tmp_path]
    symjax("fit", *words, *swag, "--out", tmp_path / "swag")
    symjax("report", tmp_path / "swag", "--reference", "bundle:digits", *other)
    assert "prior_scale" not in capsys.readouterr().out  # Of the same posterior.
    assert "Accuracy under shift" in (tmp_path / "report.html").read_text()
    summary = json.loads((tmp_path / "summary.json").read_text())
    row, ceiling = summary["methods"]["swag"], summary["between_chain"]
    assert 0.93 < row["agreement"] <= 1
    assert ceiling["total_variation"] < 0.01 < row["total_variation"] < 0.2
    of_bundle = summary["methods"]["bundle:digits"]
    assert of_bundle["nll"] == pytest.approx(0.15, abs=0.01)
    x = data.load_shifted(data.load("digits"), "gaussian_noise", 2).x.astype(float)
    every = [network(p["params"], x) for p in draws_of(digits)]
    found = special.softmax(np.array(every), -1).mean(0).argmax(1)
    accuracy = (found == digits.read("test/labels")).mean()
    shifted = of_bundle["shift"]["gaussian_noise"]["2"]["accuracy"]
    assert shifted == pytest.approx(accuracy, abs=1e-6)
    assert min(row[f"mmd_{space}"] for space in ("weight", "canonical", "function")) > 0
