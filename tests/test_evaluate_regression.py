"""`symjax evaluate` of a regression: its scores, refusals, and going on when killed."""

import json
import shutil

import numpy as np
import pytest
from commands import symjax
from scipy import integrate, stats

from symjax import evaluation, report, store
from symjax.cli import predicting, records


NOISE = 0.1


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two ensembles of other sizes, on diabetes."""
    folder = tmp_path_factory.mktemp("runs")
    for name, members in (("two", 2), ("three", 3)):
        symjax(
            "fit", "--data", "diabetes", "--widths", 3, "--noise", NOISE, "--seed",
            members, "--num-members", members, "--ensemble.num-steps", 15, "--out",
            folder / name,
        )  # fmt: skip
    return folder


def mixtures(path):
    """Means of the draws at each test point, and the noise, in units of the targets."""
    kept = store.open(path)
    built = records.posterior_of(kept)
    dataset = built.dataset
    outputs = evaluation.predict(built.apply, kept.lazy(built.shapes), dataset.test.x)
    unit = float(np.squeeze(dataset.target_std))
    mean = outputs.reshape(-1, len(dataset.test.x)) * unit
    return mean + float(np.squeeze(dataset.target_mean)), NOISE * unit


def test_noise_is_not_shared_with_the_reference():
    # Two empirical distribution functions of F differ by a normal of variance
    # 2 F (1 - F) / n, and by less only if they have noise in common.
    def method(name):
        shape = (2, 500, 200, 1)
        return report.Method(name, np.zeros(shape), std=np.ones(shape))

    compared = report.compare(
        method("HMC"), [method("same")], np.zeros((200, 1)), task="regression"
    )
    tails = lambda x: np.sqrt(stats.norm.cdf(x) * stats.norm.sf(x))  # noqa: E731
    expected = np.sqrt(2 / 1000 * 2 / np.pi) * integrate.quad(tails, -10, 10)[0]
    assert compared.methods[0].wasserstein == pytest.approx(expected, rel=0.08)


def test_every_mean_has_the_noise_of_its_own_draw():
    centre, noise = np.array([0.0, 100.0]), np.array([1.0, 20.0])

    def method(name, std):
        each = (a.reshape(1, 2, 1, 1) * np.ones((1, 2, 50, 1)) for a in (centre, std))
        return report.Method(name, *each)

    compared = report.compare(
        method("HMC", noise),
        [method("turned", noise[::-1])],
        np.zeros((50, 1)),
        task="regression",
    )
    x = np.linspace(-100, 200, 30_001)[:, None]
    one, two = (stats.norm.cdf(x, centre, s).mean(1) for s in (noise, noise[::-1]))
    expected = integrate.trapezoid(abs(one - two), x[:, 0])
    assert compared.methods[0].wasserstein == pytest.approx(expected, rel=0.05)


def test_means_alone_are_not_compared_with_a_distribution():
    """Of means alone on both sides it is the distance of the draws."""
    shape, targets = (2, 6, 4, 1), np.zeros((4, 1))
    mean, noise = np.random.default_rng(0).normal(size=shape), np.ones(shape)

    def compared(reference_std, std):
        first = report.Method("HMC", mean, std=reference_std)
        other = report.Method("means", mean + 3, std=std)
        return report.compare(first, [other], targets, task="regression").methods[0]

    for stds in ((noise, None), (None, noise)):
        assert compared(*stds).wasserstein is None
        assert compared(*stds).mean_distance == pytest.approx(3)
    assert compared(None, None).wasserstein == pytest.approx(3)


def test_wasserstein_is_the_area_between_the_distribution_functions(runs, tmp_path):
    symjax("evaluate", runs / "two", "--reference", runs / "three", "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    row = summary["methods"]["two"]
    (one, std), (two, _) = mixtures(runs / "two"), mixtures(runs / "three")
    x = np.linspace(min(one.min(), two.min()), max(one.max(), two.max()), 4001)
    x = np.concatenate([x[0] - std * np.arange(6, 0, -0.02), x])
    x = np.concatenate([x, x[-1] + std * np.arange(0.02, 6, 0.02)])
    areas = [
        integrate.trapezoid(abs(stats.norm.cdf(x[:, None], a, std).mean(1) - cdf), x)
        for a, b in zip(one.T, two.T, strict=True)
        for cdf in [stats.norm.cdf(x[:, None], b, std).mean(1)]
    ]
    # 1,000 samples of each add a few hundredths of the noise.
    assert row["wasserstein"] == pytest.approx(np.mean(areas), abs=0.06 * std)
    assert np.mean(areas) > std
    distance = np.sqrt(((one.mean(0) - two.mean(0)) ** 2).mean())
    assert row["mean_distance"] == pytest.approx(distance, rel=1e-4)
    truth = records.posterior_of(store.open(runs / "two")).dataset
    y = truth.test.y * truth.target_std + truth.target_mean
    rmse = np.sqrt(np.mean((one.mean(0) - y[:, 0]) ** 2))
    assert row["rmse"] == pytest.approx(rmse, rel=1e-4)
    for name in ("accuracy", "ece", "total_variation", "agreement"):
        assert row.get(name) is None


def test_a_file_scores_as_the_run_that_wrote_it(runs, tmp_path):
    mean, std = mixtures(runs / "two")
    np.savez(
        tmp_path / "g.npz",
        **{"two/mean": mean[:, :, None], "two/std": np.full((*mean.shape, 1), std)},
    )
    file = f"{tmp_path}/g.npz:two"
    common = ("--out", tmp_path)
    symjax(
        "evaluate", "--reference", runs / "three", runs / "two", "--predictions", file,
        *common,
    )  # fmt: skip
    summary = json.loads((tmp_path / "summary.json").read_text())
    of_run, of_file = (summary["methods"][name] for name in ("two", "g.npz:two"))
    for name in ("rmse", "nll", "mean_distance", "wasserstein", "mmd_function"):
        assert of_file[name] == pytest.approx(of_run[name], rel=1e-4), name
    symjax("evaluate", runs / "three", "--reference", file, *common)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["methods"]["three"]["mean_distance"] == pytest.approx(
        of_run["mean_distance"], rel=1e-4
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--ood", "noise"),
        ("--shift", "rotate"),
        ("--temperature-scaling",),
    ],
)
def test_what_is_of_classes_is_refused(runs, tmp_path, capsys, words):
    symjax("evaluate", runs / "two", *words, "--out", tmp_path, code=2)
    said = capsys.readouterr().err
    assert f"`{words[0]}` must be left out for a regression" in said
    assert "diabetes has none" in said


def test_an_evaluation_that_was_killed_goes_on(runs, tmp_path, monkeypatch, capsys):
    for name in ("two", "three"):
        shutil.copytree(runs / name, tmp_path / name)
        shutil.rmtree(tmp_path / name / "predictions", ignore_errors=True)
    words = (
        "evaluate", tmp_path / "two", "--reference", tmp_path / "three", "--out",
        tmp_path,
    )  # fmt: skip
    monkeypatch.setattr(predicting, "MAX_BYTES", 1)  # One network at a time.
    predict, asked = predicting._predict, []

    def killed(apply, draws, x, chains, some):
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.append((chains, some))
        return predict(apply, draws, x, chains, some)

    monkeypatch.setattr(predicting, "_predict", killed)
    symjax(*words, code=1)
    assert "What run directories hold is safe" in capsys.readouterr().err
    assert not (tmp_path / "summary.json").exists()
    again = []

    def counted(apply, draws, x, chains, some):
        again.append((chains, some))
        return predict(apply, draws, x, chains, some)

    monkeypatch.setattr(predicting, "_predict", counted)
    symjax(*words)
    # Three networks of the reference and one of the other were there.
    assert len(again) == 1
    symjax("evaluate", runs / "two", "--reference", runs / "three", "--out", runs)
    found, whole = (
        json.loads((folder / "summary.json").read_text())["methods"]["two"]
        for folder in (tmp_path, runs)
    )
    for name in ("rmse", "nll", "mean_distance", "wasserstein"):
        assert found[name] == pytest.approx(whole[name], rel=1e-4)
