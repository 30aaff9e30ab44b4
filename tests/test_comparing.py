"""The table of methods: weights without symmetries, chains in files, scaled inputs."""

import dataclasses
import json
import math
import re
import shutil
from typing import Any

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import symjax
from scipy import special
from sklearn import metrics

from symjax import cli, data, evaluation, report, store, symmetry
from symjax.cli import predicting, weights
from symjax.evaluation import bootstrap, temperature_scaling
from symjax.report import curves, distances, scores


RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=40)


def logits(seed, *, chains=4, draws=30, noise=1.0) -> Any:
    rng = np.random.default_rng(seed)
    common = 2 * np.random.default_rng(0).normal(size=(40, 3))
    return common + noise * rng.normal(size=(chains, draws, 40, 3))


def read(folder):
    return json.loads((folder / "summary.json").read_text())


class Stored:
    """Draws that are read a chain and a slice at a time, as those of a run."""

    def __init__(self, values):
        self.values, self.read = values, 0
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, index):
        part = self.values[index]
        self.read += part.nbytes
        return part


def test_a_sample_is_of_evenly_spaced_draws_read_once():
    values = RNG.normal(size=(3, 500, 4, 5))
    leaf = Stored(values)
    found = distances.sample({"w": leaf})
    kept = np.linspace(0, 499, 256 // 3).astype(int)
    np.testing.assert_array_equal(found, values.reshape(3, 500, 20)[:, kept])
    assert leaf.read == values.nbytes
    moved = distances.sample({"w": Stored(values)}, lambda draws: {"w": -draws["w"]})
    np.testing.assert_array_equal(moved, -found)


def test_fewer_draws_are_held_whole_of_a_large_network(monkeypatch):
    monkeypatch.setattr(distances, "_MOST_BYTES", 6 * 20 * 8)
    values = RNG.normal(size=(3, 500, 4, 5))
    sizes = []

    def transform(draws):
        sizes.append(draws["w"].shape)
        return draws

    assert distances.sample({"w": values}, transform).shape == (3, 2, 20)
    assert sizes == [(3, 2, 4, 5)]


def test_the_test_of_a_distance_exchanges_whole_chains():
    one, two = RNG.normal(size=(2, 4, 20, 3))
    found = distances.compare(one, two + 3)
    assert found.mmd == pytest.approx(
        evaluation.mmd(one.reshape(80, 3), two.reshape(80, 3) + 3)
    )
    assert found.smallest_p_value == pytest.approx(2 / math.comb(8, 4))
    # All 70 ways are tried some 14 times each: 4 standard deviations.
    assert found.p_value == pytest.approx(2 / 70, abs=4 * math.sqrt(2 / 70 / 1000))
    assert (found.num_draws, found.num_reference_draws) == (80, 80)
    # Chains apart from each other and not from the reference's: single draws would
    # say that they differ.
    shift = 3 * RNG.normal(size=(8, 1, 3))
    alike = distances.compare(one + shift[:4], two + shift[4:])
    assert alike.p_value > 0.05
    assert distances.compare(one[:1, :1], two) is None
    ensemble = distances.compare(RNG.normal(size=(30, 1, 3)) + 3, two)
    assert ensemble.p_value == ensemble.smallest_p_value == 0.001
    assert ensemble.num_reference_draws == 80
    assert math.isnan(distances.compare(one * np.nan, two).mmd)


def test_weights_with_the_symmetries_removed_do_not_see_copies():
    """Draws and random symmetric copies of others: one distribution without them."""

    def apply(params, x):
        return jnp.maximum(x @ params["in"] + params["b"], 0) @ params["out"]

    def draw(key):
        keys = jax.random.split(key, 3)
        shapes = {"b": (4,), "in": (3, 4), "out": (4, 2)}
        return {
            name: centre[name] + 0.05 * jax.random.normal(k, shape)
            for (name, shape), k in zip(shapes.items(), keys, strict=True)
        }

    centre = {
        "b": jnp.asarray(RNG.normal(size=4)),
        "in": jnp.asarray(RNG.normal(size=(3, 4))),
        "out": jnp.asarray(RNG.normal(size=(4, 2))),
    }
    draws = jax.vmap(jax.vmap(draw))(jax.random.split(jax.random.key(0), (8, 16)))
    spec = symmetry.infer(apply, draw(jax.random.key(0)), jnp.ones((5, 3)))
    keys = jax.random.split(jax.random.key(1), (4, 16))
    element = jax.vmap(jax.vmap(lambda key: symmetry.random_element(key, spec)))(keys)
    one, two = (jax.tree.map(lambda leaf, s=s: leaf[s], draws) for s in np.s_[:4, 4:])
    copies = jax.vmap(jax.vmap(lambda e, p: symmetry.act(spec, e, p)))(element, two)
    canonical = weights._in_blocks(weights._canonicaliser(spec))
    plain, moved = (
        distances.compare(
            distances.sample(jax.device_get(one), transform),
            distances.sample(jax.device_get(copies), transform),
        )
        for transform in (None, canonical)
    )
    assert plain.mmd > 0.2
    assert plain.p_value == pytest.approx(2 / 70, abs=0.03)
    assert abs(moved.mmd) < 0.02
    assert moved.p_value > 0.05
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), one)
    assert np.isnan(canonical(broken)["in"]).all()


def test_p_values_of_seeds_are_twice_their_mean():
    every = [
        report.Scores(
            f"net{i}",
            mmd_weight=0.1 * i,
            details={"mmd/weight/p_value": p, "mmd/weight/draws": 8.0},
        )
        for i, p in enumerate((0.01, 0.03, 0.2))
    ]
    pooled = scores.pool(every)
    assert pooled.details["mmd/weight/p_value"] == pytest.approx(0.16)
    assert pooled.details["mmd/weight/draws"] == 8
    assert set(pooled.errors) == {"mmd_weight"}
    large = [e._replace(details={"mmd/weight/p_value": 0.7}) for e in every]
    assert scores.pool(large).details["mmd/weight/p_value"] == 1


def test_one_run_that_is_not_known_to_be_unbiased_speaks_for_its_seeds():
    def biased(verdict):
        return evaluation.SpreadComparison(1.1, 0.02, 1.1, 1.0, verdict)

    every = [report.Scores(f"net{i}", bias=biased("small")) for i in range(3)]
    assert scores.pool(every).bias == biased("small")
    for place, bias in (
        (2, "unchecked"),
        (1, biased("unclear")),
        (2, biased("biased")),
    ):
        every[place] = every[place]._replace(bias=bias)
        assert scores.pool(every).bias == bias


def test_a_number_that_one_seed_lacks_has_no_mean():
    every = [report.Scores(f"net{i}", nll=0.5, seconds=1.0) for i in range(3)]
    every[1] = every[1]._replace(nll=None)
    pooled = scores.pool(every)
    assert pooled.nll is None
    assert "nll" not in pooled.errors
    assert pooled.seconds == 1


def test_a_sample_of_a_large_ensemble_is_of_some_members():
    values = RNG.normal(size=(600, 2, 5))
    found = distances.sample({"w": Stored(values)})
    kept = np.linspace(0, 599, 256).astype(int)
    np.testing.assert_array_equal(found, values[kept][:, :1])


def test_each_space_has_its_own_distance_between_chains():
    of = [
        evaluation.chain_distances(
            RNG.normal(size=(3, 20, 4)) + shift * np.eye(3, 4)[:, None]
        )
        for shift in (1.0, 2.0, 4.0)
    ]
    between = report.compare(
        report.Method("HMC", logits(4)),
        [],
        LABELS,
        task="classification",
        weight_distances=of[0],
        aligned_distances=of[1],
        canonical_distances=of[2],
    ).between_chains
    found = [between.mmd_weight, between.mmd_aligned, between.mmd_canonical]
    assert found == [distance.mmd for distance in of]
    assert len(set(found)) == 3


def test_draws_that_are_not_at_hand_are_counted():
    outputs = logits(4)
    known = report.scores.Averages(
        evaluation.summarise_predictions(outputs),
        evaluation.summarise(special.softmax(outputs, -1)),
    )
    by_chain = np.log(known.predictions.probs_by_chain)[:, None]
    method = report.Method("HMC", by_chain, averages=known)
    assert method.num_draws == 30
    comparison = report.compare(method, [], LABELS, task="classification")
    assert (comparison.num_chains, comparison.num_draws) == (4, 30)
    assert comparison.reference.disagreement is not None


def test_the_ceiling_has_the_errors_of_the_bootstrap():
    reference = report.Method("HMC", logits(4))
    comparison = report.compare(reference, [], LABELS, task="classification")
    chains = special.softmax(logits(4), -1).mean(1)
    wanted = bootstrap.compare_chains(chains)
    between = comparison.between_chains
    assert between.agreement == pytest.approx(wanted.agreement.value)
    assert between.errors == pytest.approx(
        {name: of.standard_error for name, of in wanted._asdict().items()}
    )
    assert between.mmd_function == comparison.function_distances.mmd
    error = between.errors["total_variation"]
    shown = f"{between.total_variation:.4f} ± {error:.4f}"
    assert shown in report.render(comparison, [], {})
    assert shown.replace("±", r"$\pm$") in report.latex(comparison)
    last = report.csv_table(comparison).splitlines()[-1]
    assert repr(error) in last
    assert report.summary(comparison)["between_chain"]["errors"] == between.errors


def test_the_ceiling_is_reached_within_its_error():
    comparison = report.compare(
        report.Method("HMC", logits(4, draws=800)),
        [report.Method("a", logits(5))],
        LABELS,
        task="classification",
    )
    between, one = comparison.between_chains, comparison.methods[0]
    for above, sentence in (
        (1.9, "a can't be told from another chain"),
        (2.1, "times as far"),
    ):
        distance = between.total_variation + above * math.hypot(
            between.errors["total_variation"], 0.003
        )
        moved = one._replace(
            total_variation=distance, errors={"total_variation": 0.003}
        )
        text = " ".join(report.verdict(comparison._replace(methods=(moved,))))
        assert sentence in text


def test_samplers_that_were_not_checked_share_a_sentence():
    names = ("HMC", "a", "b", "c")
    made = [report.Method(n, logits(i)) for i, n in enumerate(names)]
    made[1:] = [method._replace(bias="unchecked") for method in made[1:]]
    comparison = report.compare(made[0], made[1:], LABELS, task="classification")
    said = [text for text in report.verdict(comparison) if "no accept step" in text]
    assert len(said) == 1
    assert said[0].startswith("a, b and c have no accept step")


def test_best_is_marked_within_two_errors_of_a_difference():
    def scored(name, value, error=None):
        errors = {} if error is None else {"nll": error}
        return report.Scores(name, nll=value, errors=errors)

    comparison = report.compare(
        report.Method("HMC", logits(4)), [], LABELS, task="classification"
    )

    def best(*rows):
        made = comparison._replace(reference=rows[0], methods=rows[1:])
        return report.summary(made)["best"].get("nll", [])

    rows = [scored("a", 0.5), scored("b", 0.1, 0.03), scored("c", 0.19, 0.04)]
    assert best(*rows) == ["b", "c"]
    assert best(rows[0], rows[1], scored("c", 0.21, 0.04)) == ["b"]
    assert best(scored("a", math.nan), scored("b", math.inf), rows[0]) == []
    assert best(scored("a", math.nan, math.nan), rows[1], rows[0]) == ["b"]
    assert best(scored("a", 0.10004), scored("b", 0.1), rows[0]) == ["a", "b"]


def test_what_is_better_is_so_in_every_table():
    higher = {"accuracy", "agreement"}
    higher |= {
        f"ood/x/predictive_entropy/{m}" for m in ("auroc", "aupr_in", "aupr_out")
    }
    higher |= {"shift/fog/mean/accuracy"}
    lower = {"rmse", "nll", "gaussian_nll", "ece", "ace", "brier", "aurc"}
    lower |= {"total_variation", "mean_distance", "wasserstein"}
    lower |= {f"mmd_{s}" for s in ("function", "weight", "aligned", "canonical")}
    lower |= {"ood/x/predictive_entropy/fpr95"}
    lower |= {"shift/fog/mean/nll", "shift/fog/mean/ece"}
    neither = {"mutual_information", "disagreement", "gradients", "seconds"}
    neither |= {"ood/x/mean_mutual_information"}
    keys = higher | lower | neither
    assert set(scores.NUMBERS) <= keys

    def scored(name, number):
        fields = dict.fromkeys(scores.NUMBERS, number)
        details = {key: number for key in keys if "/" in key}
        return report.Scores(name, **fields, details=details)

    comparison = report.compare(
        report.Method("HMC", logits(4)), [], LABELS, task="classification"
    )._replace(reference=scored("low", 0.25), methods=(scored("high", 0.75),))
    best = report.summary(comparison)["best"]
    assert best == {key: ["high"] for key in higher} | {key: ["low"] for key in lower}


def test_latex_is_well_formed_whatever_the_names():
    names = [r"a_b^c~d\e", "50% & {more} #1", "$x$ <y> · “z”"]
    methods = [report.Method(n, logits(5 + i)) for i, n in enumerate(names)]
    comparison = report.compare(
        report.Method("HMC", logits(4)), methods, LABELS, task="classification"
    )
    lines = [line for line in report.latex(comparison).splitlines() if line[:1] != "%"]
    columns, rows, plain = 0, 0, [re.sub(r"\\[\\&%$#_{}]", "", line) for line in lines]
    assert "".join(plain).count("{") == "".join(plain).count("}")
    for line, bare in zip(lines, plain, strict=True):
        begun = re.fullmatch(r"\\begin\{tabular\}\{l(r+)\}", line)
        columns = 1 + len(begun[1]) if begun else columns
        if line.endswith(r" \\"):
            assert bare.count("&") == columns - 1, line
            assert bare.count("{") == bare.count("}"), line
            assert bare.count("$") % 2 == 0, line
            assert not set(bare) & set("%#~^↑↓±²<>∞"), line
            assert "_" not in re.sub(r"\$[^$]*\$", "", bare)
            rows += 1
        else:
            words = r"\\begin\{tabular\}\{lr+\}|\\end\{tabular\}\}|"
            words += r"\\(top|mid|bottom)rule|\{\\footnotesize\\setlength.*|"
            assert re.fullmatch(words, line), line
    sections = sum(line == r"\toprule" for line in lines)
    assert sections == 4
    assert rows > 4 * sections


def test_pictures_show_every_method_that_is_finite():
    reference = report.Method("HMC", logits(4))
    broken = report.Method("broken", np.full((1, 2, 40, 3), np.nan))
    single = report.Method("one", logits(5, chains=1, draws=1))
    methods = [report.Method("a", logits(6, noise=0.1)), broken, single]
    every = (reference, *methods)
    risks = curves.selective_prediction(every, LABELS).figure.axes
    assert [ax.get_title("left") for ax in risks] == ["HMC", "a", "one"]
    comparison = report.compare(reference, methods, LABELS, task="classification")
    for ax, row in zip(
        risks, (comparison.reference, *comparison.methods), strict=False
    ):
        if row.name == ax.get_title("left"):
            assert ax.texts[0].get_text() == f"AURC {row.aurc:.4f}"
    pairs = curves.functional_collapse(every).figure.axes
    assert [ax.get_title("left") for ax in pairs[:2]] == ["HMC", "a"]
    # 120 draws, 30 of each of 4 chains.
    (same, _) = (patch.get_data() for patch in pairs[0].patches)
    share = 4 * math.comb(30, 2) / math.comb(120, 2)
    assert same.values.sum() == pytest.approx(share)
    found = evaluation.diversity.pairwise_mutual_information(reference.outputs)
    assert pairs[0].texts[0].get_text() == f"median {np.median(found):.3g}"
    assert curves.functional_collapse([broken, single]) is None


def test_a_file_of_chains_is_compared_as_its_chains(tmp_path):
    probs = special.softmax(logits(4), -1)
    other = special.softmax(logits(5, chains=3), -1)
    np.savez(tmp_path / "all.npz", hmc=probs, averages=probs.mean(1))
    np.savez(tmp_path / "mine.npz", other.mean(1))
    np.savetxt(tmp_path / "labels.txt", LABELS, fmt="%d")
    files = ("--predictions", tmp_path / "mine.npz", "--labels")
    summaries = []
    for name in ("hmc", "averages"):
        out = tmp_path / name
        symjax(
            "report", "--reference", f"{tmp_path}/all.npz:{name}", *files,
            tmp_path / "labels.txt", "--out", out,
        )  # fmt: skip
        summaries.append(read(out))
    whole, averages = summaries
    rest = [abs(p.mean(0) - np.delete(probs, i, 0).mean((0, 1))) for i, p in
            enumerate(probs)]  # fmt: skip
    ceiling = np.mean([part.sum(1).mean() / 2 for part in rest])
    row = whole["methods"]["mine.npz"]
    distance = abs(other.mean((0, 1)) - probs.mean((0, 1))).sum(1).mean() / 2
    for summary in summaries:
        found = summary["between_chain"]
        assert found["total_variation"] == pytest.approx(ceiling)
        assert found["errors"]["total_variation"] > 0
        assert summary["methods"]["mine.npz"]["total_variation"] == pytest.approx(
            distance
        )
    nll = metrics.log_loss(LABELS, other.mean((0, 1)), labels=[0, 1, 2])
    assert row["nll"] == pytest.approx(nll)
    dataset = arviz.convert_to_dataset({"p": probs})
    found: Any = arviz.rhat(dataset, method="rank")
    rhat = np.asarray(found["p"])
    share = whole["rhat"]["function_share_below_1.05"]
    assert share == pytest.approx((rhat < 1.05).mean())
    assert averages["rhat"]["function_share_below_1.05"] is None
    page = (tmp_path / "hmc" / "report.html").read_text()
    assert "between chains" in page


def test_chains_in_a_file_are_checked_by_name(tmp_path):
    probs = special.softmax(logits(4), -1)
    bad = probs.copy()
    bad[2, 7, 9] *= 1.2
    np.savez(tmp_path / "bad.npz", bad=bad, mean=bad[:, 7], five=probs[None])
    message = r"row 10 of chain 2 of draw 7 must be .* So are 1 of 4800 rows"
    for name, text in {
        "bad": message,
        "mean": "row 10 of chain 2 must be",
        "five": r"its shape is \(1, 4, 30, 40, 3\)",
    }.items():
        with pytest.raises(store.StoreError, match=text):
            store.read_probs(f"{tmp_path}/bad.npz:{name}")
    # A class that one draw gives nothing has some probability from the others.
    zero = probs.copy()
    zero[0, 0, 0] = np.eye(3)[(LABELS[0] + 1) % 3]
    np.savez(tmp_path / "one.npz", probs.mean((0, 1)))
    np.savez(tmp_path / "zero.npz", zero)
    np.savetxt(tmp_path / "labels.txt", LABELS, fmt="%d")
    symjax(
        "evaluate", "--reference", tmp_path / "one.npz", "--predictions",
        tmp_path / "zero.npz", "--labels", tmp_path / "labels.txt", "--out", tmp_path,
    )  # fmt: skip
    wanted = metrics.log_loss(LABELS, zero.mean((0, 1)), labels=[0, 1, 2])
    assert read(tmp_path)["methods"]["zero.npz"]["nll"] == pytest.approx(wanted)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two ensembles of digits, each of two members."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        symjax(
            "fit", "--data", "digits", "--widths", 4, "--num-members", 2,
            "--ensemble.num-steps", 60, "--seed", seed, "--out", folder / f"net{seed}",
        )  # fmt: skip
    return folder


def test_scaled_rows_have_scaled_inputs_everywhere(runs, tmp_path):
    words = (
        "evaluate", runs / "net0", runs / "net1", "--ood", "noise", "--shift",
        "gaussian_noise", "--severities", 2, "--temperature-scaling",
    )  # fmt: skip
    symjax(*words, "--out", tmp_path)
    summary = read(tmp_path)
    plain, row = (summary["methods"][name] for name in ("net1", "net1, scaled"))
    outputs = np.load(runs / "net1" / "predictions" / "test" / "outputs.npy")
    outside = np.load(runs / "net1" / "predictions" / "ood-noise" / "outputs.npy")
    built = cli.records.posterior_of(store.open(runs / "net1"))
    labels = np.asarray(built.dataset.test.y)
    even = temperature_scaling.fit(outputs[:, :, 1::2], labels[1::2])
    odd = temperature_scaling.fit(outputs[:, :, ::2], labels[::2])
    assert row["temperature"] == pytest.approx({"even": even, "odd": odd})

    def probs(values):
        place = np.arange(values.shape[2]) % 2
        divided = values / np.where(place, odd, even)[:, None]
        return special.softmax(divided.astype(float), -1).mean((0, 1))

    inside, other = probs(outputs), probs(outside)
    ranked = np.concatenate([special.entr(p).sum(1) for p in (inside, other)])
    auroc = metrics.roc_auc_score(np.repeat([0, 1], [len(inside), len(other)]), ranked)
    found = row["ood"]["noise"]["predictive_entropy"]["auroc"]
    assert found == pytest.approx(auroc, abs=1e-6)
    assert row["ece"] == pytest.approx(
        evaluation.expected_calibration_error(inside, labels), abs=1e-6
    )
    shifted = data.load_shifted(built.dataset, "gaussian_noise", 2)
    draws = store.open(runs / "net1").lazy(built.shapes)
    corrupted = evaluation.predict(
        built.apply, jax.tree.map(lambda leaf: np.stack([leaf[i, slice(None)] for i in
        range(2)]), draws), shifted.x,
    )  # fmt: skip
    nll = metrics.log_loss(labels, probs(corrupted), labels=np.arange(10))
    assert row["shift"]["gaussian_noise"]["2"]["nll"] == pytest.approx(nll, rel=1e-4)
    assert plain["shift"]["gaussian_noise"]["2"]["nll"] != pytest.approx(nll, rel=0.01)
    assert "temperature" not in plain


def test_weights_are_compared_within_one_network_only(runs):
    one, two = (store.open(runs / f"net{seed}") for seed in (0, 1))
    assert weights.network_of(one) == weights.network_of(two)
    config = json.loads(json.dumps(two.config))
    for activation, is_same in (("silu", True), ("tanh", False)):  # silu is the MLP's.
        config["options"]["problem"]["activation"] = activation
        other = weights.network_of(dataclasses.replace(two, config=config))
        assert (other == weights.network_of(one)) == is_same


def test_an_evaluation_that_was_stopped_goes_on(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "MAX_BYTES", 1)  # A block a draw.
    words = (
        "evaluate", runs / "net0", runs / "net1", "--ood", "permuted", "--shift",
        "rotate", "--severities", 1, "--temperature-scaling",
    )  # fmt: skip
    for name in ("net0", "net1"):
        shutil.rmtree(runs / name / "predictions", ignore_errors=True)
    predict, left = evaluation.predict, 0

    def stopping(*args, **options):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return predict(*args, **options)

    monkeypatch.setattr(predicting.evaluation, "predict", stopping)
    for most in (1, 2, 1, 3, 1):
        left = most
        symjax(*words, "--out", tmp_path / "stopped", code=1)
    assert not (tmp_path / "stopped" / "summary.json").exists()
    left = 10**6
    symjax(*words, "--out", tmp_path / "stopped")
    for name in ("net0", "net1"):
        shutil.rmtree(runs / name / "predictions")
    symjax(*words, "--out", tmp_path / "whole")
    for name in ("table.csv", "table.tex", "summary.json"):
        one, two = ((tmp_path / f / name).read_text() for f in ("stopped", "whole"))
        assert one == two, name
