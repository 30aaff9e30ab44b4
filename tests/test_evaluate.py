"""One table of runs and files: other inputs, seeds, formats, stored predictions."""

import csv
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from commands import symjax
from scipy import special
from sklearn import metrics

from symjax import evaluation, plots, report, store
from symjax.cli import members, predicting
from symjax.report import distances


CHAINS, DRAWS, EXAMPLES, CLASSES = 3, 20, 60, 3


def logits(seed, *, chains=CHAINS, draws=DRAWS, scale=2.0, examples=EXAMPLES) -> Any:
    rng = np.random.default_rng(seed)
    common = np.random.default_rng(0).normal(size=(examples, CLASSES))
    noise = rng.normal(size=(chains, draws, examples, CLASSES))
    return (scale * common + noise).astype(np.float32)


def labels():
    wrong = np.random.default_rng(1).normal(size=(EXAMPLES, CLASSES))
    common = np.random.default_rng(0).normal(size=(EXAMPLES, CLASSES))
    return (common + wrong).argmax(axis=1)


def method(name, seed, **fields):
    return report.Method(name, logits(seed), **fields)


def compared(*methods, reference=None) -> Any:
    reference = reference or method("HMC", 9)
    return report.compare(reference, methods, labels(), task="classification")


def test_other_inputs_are_told_apart_as_scikit_learn_does():
    outside = logits(5, scale=0.5, examples=40)
    given = method("one", 1, ood={"far": report.ood_scores(outside)})
    scores = compared(given).methods[0]
    inside = special.softmax(given.outputs, -1).mean((0, 1))
    other = special.softmax(outside, -1).mean((0, 1))
    ranked = np.concatenate([special.entr(p).sum(1) for p in (inside, other)])
    is_out = np.repeat([0, 1], [EXAMPLES, 40])
    prefix = "ood/far/predictive_entropy"
    auroc = metrics.roc_auc_score(is_out, ranked)
    assert scores.details[f"{prefix}/auroc"] == pytest.approx(auroc)
    aupr = metrics.average_precision_score(1 - is_out, -ranked)
    assert scores.details[f"{prefix}/aupr_in"] == pytest.approx(aupr)
    summary = report.summary(compared(given))
    row = summary["methods"]["one"]["ood"]["far"]
    assert set(row) == {
        *("max_softmax_probability", "predictive_entropy", "mutual_information"),
        *("energy", "mean_mutual_information"),
    }
    assert row["predictive_entropy"]["auroc"] == pytest.approx(auroc)
    single = special.entr(special.softmax(outside.astype(float), -1)).sum(-1)
    information = special.entr(other).sum(1) - single.mean((0, 1))
    assert row["mean_mutual_information"] == pytest.approx(information.mean())


def test_one_network_has_no_information_of_other_inputs():
    outside = logits(5, chains=1, draws=1)
    given = method("MAP", 1)
    given = given._replace(
        outputs=given.outputs[:1, :1], ood={"far": report.ood_scores(outside)}
    )
    row = report.summary(compared(given))["methods"]["MAP"]["ood"]["far"]
    assert set(row) == {"max_softmax_probability", "predictive_entropy", "energy"}


def test_shift_is_averaged_over_severities():
    worse = {severity: logits(severity, scale=2.0 / severity) for severity in (1, 4)}
    given = method("one", 1, shifts={"fog": worse})
    details = compared(given).methods[0].details
    each = []
    for severity, outputs in worse.items():
        probs = special.softmax(outputs.astype(float), -1).mean((0, 1))
        nll = metrics.log_loss(labels(), probs)
        assert details[f"shift/fog/{severity}/nll"] == pytest.approx(nll)
        each.append(nll)
    assert details["shift/fog/mean/nll"] == pytest.approx(np.mean(each))
    # From the average alone, as it is kept of a run, the numbers are the same.
    short = {
        severity: np.log(special.softmax(o.astype(float), -1).mean((0, 1)))[None, None]
        for severity, o in worse.items()
    }
    again = compared(given._replace(shifts={"fog": short})).methods[0].details
    assert again == pytest.approx(details)


def test_seeds_make_one_row_with_the_error_of_their_mean():
    runs = [method(f"net-{i}", i, family="a", gradients=10.0 * i) for i in (1, 2, 4)]
    alone = [compared(run).methods[0] for run in runs]
    pooled = compared(*runs, method("other", 7, family="b")).methods
    assert [scores.name for scores in pooled] == ["net (3 seeds)", "other"]
    for key in ("nll", "total_variation", "agreement"):
        found = [getattr(scores, key) for scores in alone]
        assert getattr(pooled[0], key) == pytest.approx(np.mean(found))
        error = np.std(found, ddof=1) / np.sqrt(3)
        assert pooled[0].errors[key] == pytest.approx(error)
    assert pooled[0].gradients == pytest.approx(70 / 3)
    assert "gradients" not in pooled[0].errors


def test_diversity_and_distances_of_draws():
    one, reference = method("one", 1), method("HMC", 9)
    scores = compared(one, reference=reference).methods[0]
    probs = special.softmax(one.outputs.astype(float), -1)
    entropies = special.entr(probs).sum(-1).mean((0, 1))
    information = special.entr(probs.mean((0, 1))).sum(-1) - entropies
    assert scores.mutual_information == pytest.approx(information.mean())
    sides = [
        special.softmax(m.outputs, -1).reshape(CHAINS * DRAWS, -1)
        for m in (one, reference)
    ]
    assert scores.mmd_function == pytest.approx(evaluation.mmd(*sides), abs=1e-6)
    single = report.Method("one", one.outputs[:1, :1])
    assert compared(single, reference=reference).methods[0].mmd_function is None
    assert compared(single, reference=reference).methods[0].disagreement is None


def test_mmd_takes_the_same_weights_of_both_sides(monkeypatch):
    monkeypatch.setattr(distances, "_MOST_QUANTITIES", 8)
    rng = np.random.default_rng(3)
    draws = {"a": rng.normal(size=(4, 30, 5, 6)), "b": rng.normal(size=(4, 30, 7))}
    # Of two leaves in other units: columns that don't match would be far apart.
    draws["b"] = draws["b"] + 100 * np.arange(7)
    other = {
        "a": rng.normal(size=(1, 200, 5, 6)),
        "b": rng.normal(size=(1, 200, 7)) + 100 * np.arange(7),
    }
    sampled, beside = distances.sample(draws), distances.sample(other)
    found = distances.compare(sampled, beside)
    assert abs(found.mmd) < 0.02
    moved = distances.sample({**other, "a": other["a"] + 2})
    assert distances.compare(sampled, moved).mmd > 0.1


def test_csv_and_latex_hold_what_the_tables_show():
    comparison = compared(method("a_b", 1), method("50%", 2, seconds=3.0))
    lines = list(csv.DictReader(io.StringIO(report.csv_table(comparison))))
    assert [line["kind"] for line in lines] == [
        *("reference", "method", "method", "ceiling")
    ]
    first = comparison.methods[0]
    assert float(lines[1]["nll"]) == first.nll
    error = first.errors["total_variation"]
    assert float(lines[1]["total_variation_error"]) == error
    assert lines[0]["total_variation"] == ""
    text = report.latex(comparison)
    assert r"a\_b &" in text
    assert r"50\% &" in text
    assert text.count(r"\toprule") == text.count(r"\end{tabular}") >= 4
    best = min(comparison.methods, key=lambda scores: scores.total_variation)
    shown = rf"\textbf{{{best.total_variation:.4f} $\pm$"
    assert shown in text
    for row in re.findall(r"\\begin\{tabular\}\{(l r*)\}", text):
        assert row
    assert "↓" not in "".join(
        line for line in text.splitlines() if not line.startswith("%")
    )
    page = report.render(comparison, [], {})
    assert "To the reference" in page
    assert "one standard error" in page


def test_the_front_is_what_none_beats_in_both():
    figure = plots.pareto(
        {"cheap": (1.0, 0.5), "dear": (100.0, 0.1), "beaten": (10.0, 0.6)},
        ceiling=0.05,
        xlabel="cost",
        ylabel="distance",
    )
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    step = axes.lines[0].get_xydata()
    np.testing.assert_array_equal(step, [[1.0, 0.5], [100.0, 0.1]])
    assert any(np.all(np.asarray(line.get_ydata()) == 0.05) for line in axes.lines)


def test_methods_must_predict_the_same_test_points():
    short = report.Method("short", logits(1)[:, :, :50])
    with pytest.raises(ValueError, match=r"60 test points .* short has 50"):
        compared(short)
    bad = report.Method("HMC", np.full_like(logits(9), np.nan))
    with pytest.raises(ValueError, match=r"finite.*10,800 of 10,800 of HMC"):
        compared(reference=bad)


def write_in_blocks(kept, num_draws, most, outputs, stop=10**9) -> int:
    written = 0
    for chains, draws in kept.missing(num_draws, most):
        if written == stop:
            break
        kept.write(chains, draws, outputs[chains, draws])
        written += 1
    return written


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_predictions_are_gone_on_with_where_they_were_left(tmp_path, most):
    outputs, shape = logits(1), (CHAINS, DRAWS, EXAMPLES, CLASSES)
    kept = store.open_predictions(tmp_path / "p", "of this", shape)
    write_in_blocks(kept, 10, most, outputs, stop=2)
    again = store.open_predictions(tmp_path / "p", "of this", shape)
    assert again.done == kept.done > 0
    assert write_in_blocks(again, 10, 5, outputs) > 0 or again.done == 30
    np.testing.assert_array_equal(again.read(10), outputs[:, :10])
    # More draws were made: those before them are kept.
    assert again.done == 30
    write_in_blocks(again, DRAWS, most, outputs)
    np.testing.assert_array_equal(again.read(DRAWS), outputs)
    assert write_in_blocks(again, DRAWS, most, outputs) == 0
    other = store.open_predictions(tmp_path / "p", "of that", shape)
    assert other.done == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An ensemble of digits and the same of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        symjax(
            "fit", "--data", "digits", "--widths", 4, "--num-members", 3,
            "--ensemble.num-steps", 60, "--seed", seed, "--out", folder / f"net{seed}",
        )  # fmt: skip
    return folder


def test_evaluate_names_other_inputs_and_reads_its_predictions(
    runs, tmp_path, monkeypatch, capsys
):
    words = (
        "evaluate", runs / "net1", "--reference", runs / "net0", "--ood", "noise",
        "--shift", "gaussian_noise", "--severities", 2, "--out", tmp_path,
    )  # fmt: skip
    monkeypatch.setattr(predicting, "MAX_BYTES", 1)
    symjax(*words)
    summary = json.loads((tmp_path / "summary.json").read_text())
    row = summary["methods"]["net1"]
    assert 0 < row["ood"]["noise"]["predictive_entropy"]["auroc"] <= 1
    assert row["shift"]["gaussian_noise"]["2"] == row["shift"]["gaussian_noise"]["mean"]
    steps, batch, examples = 3 * 60, 128, 1437
    assert row["gradients"] == pytest.approx(steps * batch / examples)
    assert row["mmd_weight"] is not None
    table = (tmp_path / "table.csv").read_text()
    shown = capsys.readouterr().out
    assert "Out of distribution: noise" in shown
    assert max(map(len, shown.splitlines())) <= 80

    def never(*_, **__):
        raise AssertionError("predicted again")

    monkeypatch.setattr(predicting.evaluation, "predict", never)
    symjax(*words)
    assert (tmp_path / "table.csv").read_text() == table


def test_scaled_methods_stand_beside_the_plain(runs, tmp_path):
    symjax(
        "evaluate", runs / "net0", runs / "net1", "--temperature-scaling",
        "--out", tmp_path,
    )  # fmt: skip
    methods = json.loads((tmp_path / "summary.json").read_text())["methods"]
    assert list(methods) == ["net0", "net1", "net1, scaled"]
    assert methods["net1, scaled"]["nll"] < methods["net1"]["nll"]


def probs_file(path, seed=1):
    probs = special.softmax(logits(seed)[0, 0].astype(float), -1)
    np.savetxt(path, probs, fmt="%.8f", delimiter=",")
    return probs


def test_files_alone_are_compared(tmp_path):
    one, two = (probs_file(tmp_path / f"{i}.csv", i) for i in (1, 2))
    np.savetxt(tmp_path / "labels.txt", labels(), fmt="%d")
    symjax(
        "evaluate", "--reference", tmp_path / "1.csv", "--predictions",
        tmp_path / "2.csv", "--labels", tmp_path / "labels.txt", "--out", tmp_path,
    )  # fmt: skip
    row = json.loads((tmp_path / "summary.json").read_text())["methods"]["2.csv"]
    distance = abs(one - two).sum(1).mean() / 2
    assert row["total_variation"] == pytest.approx(distance, abs=1e-6)
    assert row["nll"] == pytest.approx(metrics.log_loss(labels(), two), abs=1e-6)
    assert row["mutual_information"] is None


def test_what_does_not_fit_is_told_without_a_traceback(runs, tmp_path, capsys):
    file, bad = tmp_path / "1.csv", tmp_path / "bad.csv"
    probs = probs_file(file)
    np.savetxt(bad, 2 * probs, delimiter=",")
    zero = np.eye(CLASSES)[(labels() + 1) % CLASSES]
    np.savetxt(tmp_path / "zero.csv", zero, delimiter=",")
    np.savetxt(tmp_path / "labels.txt", labels(), fmt="%d")
    np.savetxt(tmp_path / "short.txt", labels()[:9], fmt="%d")
    nan = tmp_path / "nan.csv"
    nan.write_text("nan,0.5,0.5\n" * EXAMPLES)
    net = runs / "net0"
    files = ("evaluate", "--reference", file, "--predictions")
    with_labels = ("--labels", tmp_path / "labels.txt")
    for words, text in {
        (*files, bad): "bad.csv: row 1 must be probabilities",
        (*files, nan): "nan.csv: row 1 must be probabilities",
        (*files, tmp_path / "none.csv"): "There is no file",
        (*files, tmp_path / "zero.csv", *with_labels): "gives class",
        (*files, file): "names of their own",
        (*files, bad, "--ood", "noise"): "must come with runs",
        (*files, tmp_path / "zero.csv", "--temperature-scaling"): "`--labels`",
        (*files, tmp_path / "zero.csv", "--labels", tmp_path / "short.txt"): (
            "must hold 60 whole numbers"
        ),
        ("evaluate", net, "--predictions", file): "each of the 360 test points",
        ("evaluate", net, "--ood", "nosuch"): "--ood: `name` must be",
        ("evaluate", net, "--shift", "nosuch"): "--shift: `name` must be",
        ("evaluate", net, *with_labels): "must be left out where there are runs",
        ("evaluate",): "must name at least one run",
    }.items():
        symjax(*words, "--out", tmp_path, code=2)
        said = capsys.readouterr().err
        assert text in said, (words, said)
        assert "Traceback" not in said


def test_runs_of_one_family_differ_in_their_seed_only(runs):
    one, two = (store.open(runs / f"net{i}") for i in (0, 1))
    assert members.family(one) == members.family(two)
    assert "seed" not in json.loads(members.family(one))["options"]
