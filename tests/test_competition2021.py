"""The competition's files and scores, against SciPy and its evaluator's formulas."""

import importlib
import json
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tyro

from symjax import densities, evaluation, store
from symjax.cli import Command, posteriors, records


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        return importlib.import_module("competition2021")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A regression of 12 networks and a classification of two, drawn at random."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(5, 20, size=60)
    split = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    np.savez(folder / "uci.npz", **split)
    labels = {
        key: (value > 5).astype(int) for key, value in split.items() if "y" in key
    }
    np.savez(folder / "imdb.npz", **split | labels)
    for name, count in (("uci", 12), ("imdb", 2)):
        words = f"fit --data {folder}/{name}.npz --widths 3 --num-members {count}"
        words += " --noise heteroscedastic" if name == "uci" else ""
        command = tyro.cli(Command, args=words.split())
        built = posteriors.build(command.problem)
        draws = jax.tree.map(
            lambda leaf, n=count: rng.normal(size=(n, 1, *leaf.shape)).astype(
                np.float32
            ),
            built.shapes,
        )
        kept = store.create(
            folder / name,
            config=records.describe(command, built),
            params=built.shapes,
            info={"log_density": np.float32(0)},
            num_chains=count,
            num_draws=1,
            num_iterations=1,
        )
        kept.append(draws, 0, {"log_density": np.zeros((count, 1), np.float32)}, 0)
        kept.commit({"done": np.array(1)}, iteration=1, num_draws=1, finished=True)
    return folder


def run(script, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["competition2021", *map(str, words)])
    script.main()


def evaluator(name, predictions, reference):
    """What the competition computes, written again from its published formulas."""
    if name == "uci":
        pairs = zip(predictions, reference, strict=True)
        return [-np.mean([scipy.stats.wasserstein_distance(*pair) for pair in pairs])]
    same = np.argmax(predictions, axis=-1) == np.argmax(reference, axis=-1)
    distances = np.linalg.norm(predictions - reference, ord=1, axis=-1) / 2
    return [np.mean(same), np.mean(distances)]


@pytest.mark.parametrize(
    ("name", "rows", "public"),
    [("medmnist", 1500, 1000), ("cifar", 10_500, 10_000), ("imdb", 300, None)],
)
def test_scores_of_files_are_those_of_the_evaluator(
    script, tmp_path, monkeypatch, name, rows, public
):
    rng = np.random.default_rng(0)
    columns = script.TASKS[name].columns
    one, two = rng.dirichlet(np.ones(columns), size=(2, rows))
    np.savetxt(tmp_path / "mine.csv", one)
    np.savetxt(tmp_path / "hmc.csv", two, delimiter=",")
    run(
        script, monkeypatch, "score", name, tmp_path / "mine.csv", "--reference",
        tmp_path / "hmc.csv", "--json", tmp_path / "scores.json",
    )  # fmt: skip
    found = json.loads((tmp_path / "scores.json").read_text())
    assert list(found) == (["public", "full"] if public else ["full"])
    for part, stop in (("public", public), ("full", None)):
        if part in found:
            expected = evaluator(name, one[:stop], two[:stop])
            assert list(found[part].values()) == pytest.approx(expected, abs=1e-14)


def test_rows_of_three_decimals_are_scored_as_they_are(script, tmp_path):
    """Whose sums are off 1: the evaluator takes them from the file as they are."""
    rng = np.random.default_rng(3)
    one, two = rng.dirichlet(np.full(7, 0.5), size=(2, 1200))
    np.savetxt(tmp_path / "medmnist_probs.csv", one, fmt="%.3f")
    np.savetxt(tmp_path / "hmc.csv", two)
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.write(tmp_path / "medmnist_probs.csv", "medmnist_probs.csv")
    printed = np.genfromtxt(tmp_path / "medmnist_probs.csv")
    assert abs(printed.sum(axis=1) - 1).max() > 1.5e-3
    expected = evaluator("medmnist", printed, two)
    reference = script.read("medmnist", str(tmp_path / "hmc.csv"))
    for file in ("medmnist_probs.csv", "mine.zip"):
        found = script.read("medmnist", str(tmp_path / file))
        scores = script.scores("medmnist", found, reference)["full"]
        assert list(scores.values()) == pytest.approx(expected, abs=1e-14)


def test_samples_are_scored_by_their_distance_to_those_of_hmc(
    script, tmp_path, monkeypatch
):
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 120, 1000)) * rng.uniform(0.5, 2, (2, 120, 1))
    np.savetxt(tmp_path / "uci_samples.csv", one)
    # HMC's file has a sample a row.
    np.savetxt(tmp_path / "hmc.txt", two.T, delimiter=",")
    with zipfile.ZipFile(tmp_path / "submission.zip", "w") as archive:
        archive.write(tmp_path / "uci_samples.csv", "uci_samples.csv")
    for source in ("uci_samples.csv", "submission.zip"):
        run(
            script, monkeypatch, "score", "uci", tmp_path / source, "--reference",
            tmp_path / "hmc.txt", "--json", tmp_path / "scores.json",
        )  # fmt: skip
        found = json.loads((tmp_path / "scores.json").read_text())
        for part, stop in (("public", 100), ("full", None)):
            expected = evaluator("uci", one[:stop], two[:stop])
            assert [found[part]["minus_wasserstein"]] == pytest.approx(
                expected, rel=1e-9
            )


def test_published_predictions_are_read_by_the_name_of_the_task(script, data_folder):
    path = str(data_folder / "hmc_reference" / "izmailov2021_predictions.npz")
    for name, rows in (("cifar10", 10_000), ("imdb", 25_000), ("medmnist", 2000)):
        reference = script.read(name, path)
        assert reference.shape == (rows, script.TASKS[name].columns)
        rng = np.random.default_rng(0)
        mine = rng.dirichlet(np.ones(reference.shape[1]), size=rows)
        mine = (mine + 3 * reference) / 4
        found = script.scores(name, mine, reference)
        expected = evaluator(name, mine, reference)
        assert list(found["full"].values()) == pytest.approx(expected, abs=1e-12)
        assert 0.5 < found["full"]["agreement"] < 1
        same = script.scores(name, reference, reference)["full"]
        assert same == {"agreement": 1.0, "total_variation": 0.0}


def test_a_runs_probabilities_are_written_and_read_again(
    script, runs, tmp_path, monkeypatch, capsys
):
    words = (script, monkeypatch, "write", "imdb")
    run(*words, runs / "imdb", "--out", tmp_path / "a.csv")
    assert (
        "imdb_probs.csv of the competition has 25,000 rows" in capsys.readouterr().out
    )
    run(*words, tmp_path / "a.csv", "--out", tmp_path / "b.csv")
    run(*words, tmp_path / "a.csv", "--out", tmp_path / "c.zip")
    # Of classes a reference has an example a row, as a submission has.
    zipped = script.read("imdb", str(tmp_path / "c.zip"), transposed=True)
    assert np.array_equal(zipped, np.genfromtxt(tmp_path / "a.csv"))
    kept = store.open(runs / "imdb")
    built = records.posterior_of(kept)
    logits = evaluation.predict(built.apply, kept.read(), built.dataset.test.x)
    expected = scipy.special.softmax(logits.astype(float), axis=-1).mean(axis=(0, 1))
    for name in ("a.csv", "b.csv"):
        np.testing.assert_allclose(np.genfromtxt(tmp_path / name), expected, rtol=1e-5)
    with pytest.raises(SystemExit, match="regression, which imdb is not"):
        run(*words, runs / "uci")
    with pytest.raises(SystemExit, match="imdb has 2 classes, where cifar has 10"):
        run(*words[:3], "cifar", runs / "imdb")


def test_a_runs_samples_are_of_the_mixture_in_the_unit_of_the_file(
    script, runs, tmp_path, monkeypatch
):
    out = tmp_path / "submission.zip"
    run(script, monkeypatch, "write", "uci", runs / "uci", "--out", out)
    with zipfile.ZipFile(out) as archive, archive.open("uci_samples.csv") as file:
        samples = np.genfromtxt(file)
    kept = store.open(runs / "uci")
    built = records.posterior_of(kept)
    outputs = evaluation.predict(built.apply, kept.read(), built.dataset.test.x)
    mean, std = map(np.asarray, densities.mean_and_scale(outputs))
    with np.load(runs / "uci.npz") as file:
        y = file["y_train"]
    mean = mean.reshape(12, 20) * y.std() + y.mean()
    std = std.reshape(12, 20) * y.std()
    assert samples.shape == (20, 1000)
    for i, row in enumerate(samples):
        cdf = lambda z, i=i: scipy.stats.norm.cdf(
            z[:, None], mean[:, i], std[:, i]
        ).mean(axis=1)
        # Samples are shared out over the draws, which only lessens the distance.
        assert scipy.stats.kstest(row, cdf).pvalue > 1e-6
    words = (script, monkeypatch, "write", "uci", runs / "uci")
    run(*words, "--seed", 1, "--out", tmp_path / "other.csv")
    assert not np.isin(np.genfromtxt(tmp_path / "other.csv"), samples).any()
    with pytest.raises(SystemExit, match="holds uci_samples.csv already"):
        run(script, monkeypatch, "write", "uci", runs / "uci", "--out", out)


@pytest.mark.parametrize("num_draws", [3, 12, 700, 1500])
def test_every_draw_gives_as_many_samples_as_every_other(script, num_draws):
    mean = np.arange(float(num_draws))[:, None] * np.ones(2)
    samples = script.draw(mean, np.full((num_draws, 2), 1e-9), seed=0)
    for row in samples:
        counts = np.bincount(row.round().astype(int), minlength=num_draws)
        assert len(counts) == num_draws
        assert counts.max() - counts.min() == 1


def test_every_sample_of_every_test_point_has_noise_of_its_own(script):
    """Independent, so that no two of all 4,000 are related; another seed's are new."""
    draw = lambda seed: script.draw(np.zeros((5, 4)), np.ones((5, 4)), seed)
    samples, others = draw(3), draw(4)
    np.testing.assert_array_equal(draw(3), samples)
    assert scipy.stats.kstest(samples.ravel(), "norm").pvalue > 1e-4
    between = np.corrcoef([*samples, *others])[np.triu_indices(8, 1)]
    assert abs(between).max() < 5 / np.sqrt(1000)
    assert len(np.unique([samples, others])) == 8000


def test_chains_and_draws_of_an_archive_are_averaged(script, tmp_path):
    probs = np.random.default_rng(0).dirichlet(np.ones(2), size=(3, 4, 5))
    np.savez(tmp_path / "draws.npz", imdb=probs, other=probs[0])
    wanted = probs.reshape(12, 5, 2).mean(axis=0)
    found = script.read("imdb", str(tmp_path / "draws.npz"))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    found = script.read("imdb", f"{tmp_path}/draws.npz:other")
    np.testing.assert_allclose(found, probs[0].mean(axis=0), rtol=1e-12)
    # Of few decimals, of which averages have more; both draws are off by the same.
    one, two = np.full(10, 0.1), np.full(10, 0.1)
    one[0], two[0] = 0.104, 0.105
    np.savez(tmp_path / "few.npz", cifar=[[[one], [two]]])
    found = script.read("cifar", str(tmp_path / "few.npz"))
    np.testing.assert_allclose(found, [(one + two) / 2], rtol=1e-12)


def test_sizes_are_the_competitions(script):
    """Written down once more: nothing else would notice a wrong digit."""
    sizes = {name: task[1:] for name, task in script.TASKS.items()}
    assert sizes == {
        "cifar": (10, 50_000, 10_000),
        "medmnist": (7, 2000, 1000),
        "retinopathy": (2, None, None),
        "uci": (1000, 256, 100),
        "cifar10": (10, 10_000, None),
        "imdb": (2, 25_000, None),
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("imdb", "0.5 0.6\n", "sum"),
        ("imdb", "0.2 0.3 0.5\n", "rows of 2 classes for imdb"),
        ("uci", "1 2 3\n", "rows of 1000 samples for uci"),
        ("uci", "one\n", "one"),
        ("imdb", None, "no file"),
    ],
)
def test_wrong_files_are_refused(script, tmp_path, monkeypatch, name, text, message):
    path = tmp_path / "mine.csv"
    if text is not None:
        path.write_text(text)
    for file in (path, path.with_suffix(".npz")) if text is None else (path,):
        with pytest.raises(SystemExit, match=message):
            run(script, monkeypatch, "score", name, file, "--reference", path)


def test_files_of_other_examples_are_refused(script):
    one = np.full((3, 2), 0.5)
    with pytest.raises(ValueError, match="one shape"):
        script.scores("imdb", one, one[:2])


@pytest.mark.parametrize("text", ["", "one two", "1 2 3\n4 5"])
def test_a_file_that_is_no_array_is_named(script, tmp_path, monkeypatch, text):
    (tmp_path / "mine.csv").write_text(text)
    words = ("score", "uci", tmp_path / "mine.csv", "--reference", "hmc.csv")
    with pytest.raises(SystemExit, match=r"mine\.csv can't be read as uci_samples"):
        run(script, monkeypatch, *words)


def test_folders_of_what_is_written_are_made(script, tmp_path, monkeypatch):
    np.savetxt(tmp_path / "mine.csv", np.full((3, 7), 1 / 7))
    mine, copy = tmp_path / "mine.csv", tmp_path / "some" / "where.csv"
    run(script, monkeypatch, "write", "medmnist", mine, "--out", copy)
    scores = tmp_path / "else" / "where.json"
    words = ("score", "medmnist", copy, "--reference", mine, "--json", scores)
    run(script, monkeypatch, *words)
    assert json.loads(scores.read_text())["full"]["agreement"] == 1


@pytest.mark.parametrize(
    ("name", "file", "value"),
    [
        ("imdb", "imdb_probs.csv", 0.7),
        ("imdb", "imdb_probs.csv", np.nan),
        ("uci", "uci_samples.csv", np.nan),
    ],
)
def test_what_no_evaluator_would_score_is_not_written(
    script, tmp_path, monkeypatch, name, file, value
):
    values = np.full((4, script.TASKS[name].columns), 0.5)
    values[2, 1] = value
    np.savetxt(tmp_path / file, values)
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.write(tmp_path / file, file)
    with pytest.raises(SystemExit, match=r"mine\.zip.* must be (finite|probabilities)"):
        run(script, monkeypatch, "write", name, tmp_path / "mine.zip")


def test_scores_of_fewer_rows_than_the_competitions_say_so(
    script, tmp_path, monkeypatch, capsys
):
    samples = np.random.default_rng(0).normal(size=(120, 1000))
    np.savetxt(tmp_path / "mine.csv", samples)
    np.savetxt(tmp_path / "hmc.csv", samples.T)
    words = (tmp_path / "mine.csv", "--reference", tmp_path / "hmc.csv")
    run(script, monkeypatch, "score", "uci", *words, "--json", tmp_path / "s.json")
    out = capsys.readouterr().out
    assert "uci_samples.csv of the competition has 256 rows" in out
    # Not -0.0, which is how it would be printed.
    assert str(json.loads((tmp_path / "s.json").read_text())["full"]) == (
        "{'minus_wasserstein': 0.0}"
    )
