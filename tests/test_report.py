import base64
import errno
import io
import json
import os
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from scipy import special, stats
from sklearn import metrics
from sklearn.calibration import calibration_curve

from symjax import evaluation, report, store
from symjax.plots import style
from symjax.report import chains, convergence, examples, judgement


CHAINS, DRAWS, EXAMPLES, CLASSES = 4, 40, 30, 3


def logits(seed, *, chains=CHAINS, draws=DRAWS, noise=1.0, apart=0.0):
    """Outputs around common logits; `apart` moves the chains away from each other."""
    common = 2 * np.random.default_rng(0).normal(size=(EXAMPLES, CLASSES))
    rng = np.random.default_rng(seed)
    own = apart * rng.normal(size=(chains, 1, EXAMPLES, CLASSES))
    return common + own + noise * rng.normal(size=(chains, draws, EXAMPLES, CLASSES))


def labels():
    common = 2 * np.random.default_rng(0).normal(size=(EXAMPLES, CLASSES))
    wrong = np.random.default_rng(1).normal(size=(EXAMPLES, CLASSES))
    return (common + wrong).argmax(axis=1)


def trace(*, rate=0.8, diverged=0, chains=CHAINS) -> Any:
    rng = np.random.default_rng(2)
    divergent = np.zeros((chains, 60), bool)
    divergent[0, 20 : 20 + diverged] = True
    divergent[:, :5] = True  # In warm-up, which is not to count.
    acceptance = np.full((chains, 60), rate)
    acceptance[:, :20] = 0.01
    log_density = rng.normal(-100, 5, size=(chains, 60))
    return report.Trace(log_density, acceptance, divergent, num_warmup=20)


def weights(*, apart):
    rng = np.random.default_rng(3)
    means = apart * rng.normal(size=(CHAINS, 1, 4, 5))
    return {"params": {"w": means + rng.normal(size=(CHAINS, DRAWS, 4, 5))}}


def classified(**changes) -> Any:
    """Arguments of `compare` for a healthy run and two methods."""
    given = {
        "reference": report.Method("HMC", logits(4), seconds=50.0),
        "methods": [
            report.Method("ensemble", logits(5, chains=10, draws=1), seconds=5.0),
            report.Method("SGHMC", logits(6, chains=1, noise=3.0)),
        ],
        "targets": labels(),
        "task": "classification",
        "trace": trace(),
        "weight": evaluation.summarise(weights(apart=3.0)),
    }
    return given | changes


def regressed(**changes) -> Any:
    rng = np.random.default_rng(7)
    truth = rng.normal(size=(EXAMPLES, 1))
    mean = truth + 0.3 * rng.normal(size=(CHAINS, DRAWS, EXAMPLES, 1))
    other = truth + 0.5 + 0.3 * rng.normal(size=(1, 9, EXAMPLES, 1))
    given = {
        "reference": report.Method("HMC", mean, std=np.full_like(mean, 0.4)),
        "methods": [report.Method("ensemble", other, std=np.full_like(other, 0.2))],
        "targets": truth + 0.4 * rng.normal(size=truth.shape),
        "task": "regression",
    }
    return given | changes


def compared(**changes) -> Any:
    return report.compare(**classified(**changes))


def drawn(arguments, **more) -> Any:
    """The comparison and its pictures."""
    comparison = report.compare(**arguments)
    keys = ("reference", "methods", "targets", "trace")
    shared = {key: arguments[key] for key in keys if key in arguments}
    return comparison, report.pictures(comparison, **shared, **more)


def said(comparison):
    return " ".join(report.verdict(comparison))


def test_compare_scores_every_method_as_other_libraries_do():
    given = classified()
    comparison = report.compare(**given)
    reference = special.softmax(given["reference"].outputs, -1).mean((0, 1))
    for method, scores in zip(given["methods"], comparison.methods, strict=True):
        probs = special.softmax(method.outputs, -1).mean((0, 1))
        best = probs.argmax(1)
        assert scores.name == method.name
        assert scores.seconds == method.seconds
        assert scores.accuracy == metrics.accuracy_score(labels(), best)
        assert scores.nll == pytest.approx(metrics.log_loss(labels(), probs))
        truth = np.eye(CLASSES)[labels()]
        assert scores.brier == pytest.approx(((probs - truth) ** 2).sum(1).mean())
        order = np.argsort(-probs.max(1))
        wrong = (best != labels())[order]
        risks = np.cumsum(wrong) / np.arange(1, EXAMPLES + 1)
        assert scores.aurc == pytest.approx(risks.mean())
        confidence, correct = probs.max(1), best == labels()
        shares, means = calibration_curve(correct, confidence, n_bins=15)
        count = np.histogram(confidence, np.linspace(0, 1, 16))[0]
        ece = count[count > 0] @ abs(shares - means) / EXAMPLES
        assert scores.ece == pytest.approx(ece)
        places = np.argsort(probs, axis=0)
        gaps = np.take_along_axis(truth - probs, places, axis=0)
        # Of two examples a bin: 15 bins of equal numbers, class by class.
        ace = abs(gaps.reshape(15, 2, CLASSES).mean(1)).mean()
        assert scores.ace == pytest.approx(ace)
        assert scores.agreement == (best == reference.argmax(1)).mean()
        distance = abs(probs - reference).sum(1).mean() / 2
        assert scores.total_variation == pytest.approx(distance)
    assert comparison.reference.nll == pytest.approx(
        metrics.log_loss(labels(), reference)
    )


def test_compare_gives_the_reference_a_ceiling_and_no_distance_to_itself():
    comparison = compared()
    assert comparison.reference.agreement is None
    assert comparison.reference.total_variation is None
    chains = special.softmax(logits(4), -1).mean(1)
    distances = [
        abs(chains[i] - np.delete(chains, i, 0).mean(0)).sum(1).mean() / 2
        for i in range(CHAINS)
    ]
    ceiling = comparison.between_chains
    assert ceiling.total_variation == pytest.approx(np.mean(distances))
    assert ceiling.accuracy is None
    same = compared(methods=[report.Method("same", logits(4))]).methods[0]
    assert (same.agreement, same.total_variation) == (1.0, 0.0)


def test_compare_counts_only_what_the_chains_logged_after_warm_up():
    given = trace(rate=0.8, diverged=7)
    comparison = compared(trace=given)
    np.testing.assert_allclose(comparison.acceptance, 0.8)
    assert comparison.divergences.tolist() == [7, 0, 0, 0]
    assert comparison.num_iterations == 40
    want = stats.mstats.mquantiles(given.log_density[1, 20:], alphap=1, betap=1)
    np.testing.assert_allclose(comparison.log_density_quartiles[1], want)


def test_compare_scores_regression_by_its_predictive_density():
    given = regressed()
    comparison: Any = report.compare(**given)
    scores, method = comparison.methods[0], given["methods"][0]
    truth = given["targets"]
    centre = method.outputs.mean((0, 1))
    assert scores.rmse == pytest.approx(metrics.root_mean_squared_error(truth, centre))
    density = stats.norm.pdf(truth, method.outputs, method.std).mean((0, 1))
    assert scores.nll == pytest.approx(-np.log(density).mean())
    spread = np.sqrt(0.2**2 + method.outputs.var((0, 1)))
    gaussian = stats.norm.logpdf(truth, centre, spread)
    assert scores.gaussian_nll == pytest.approx(-gaussian.mean())
    reference = given["reference"].outputs.mean((0, 1))
    distance = np.sqrt(((centre - reference) ** 2).mean())
    assert scores.mean_distance == pytest.approx(distance)
    chains = given["reference"].outputs.mean(1)
    others = [np.delete(chains, i, 0).mean(0) for i in range(CHAINS)]
    apart = np.sqrt(((chains - others) ** 2).mean((1, 2))).mean()
    assert comparison.between_chains.mean_distance == pytest.approx(apart)
    bare = report.Method("HMC", given["reference"].outputs)
    assert report.compare(**given | {"reference": bare}).reference.nll is None


def test_compare_refuses_what_it_would_misread():
    with pytest.raises(ValueError, match="two or more classes; got 1"):
        compared(reference=report.Method("HMC", logits(4)[..., :1]), methods=[])
    with pytest.raises(ValueError, match="names of their own"):
        compared(methods=[report.Method("HMC", logits(5))])


@pytest.mark.parametrize(
    ("ratio", "verdict", "text", "tone"),
    [
        (1.02, "small", "The bias of SGHMC by its step size is small: with", "good"),
        (1.25, "biased", "SGHMC is biased by its step size: with half the", "bad"),
        (0.9, "unclear", "Whether SGHMC is biased by its step size is not", "note"),
    ],
)
def test_the_bias_of_a_step_size_is_said_beside_r_hat(ratio, verdict, text, tone):
    bias = evaluation.SpreadComparison(ratio, 0.02, ratio, 1.0, verdict)
    methods = [classified()["methods"][1]._replace(bias=bias)]
    comparison = compared(methods=methods)
    findings = judgement.findings(comparison)
    assert text in findings[1].text
    assert findings[1].tone == tone
    change = abs(1 / ratio - 1)
    larger = "larger" if ratio < 1 else "smaller"
    assert f"spread is {change:.1%} {larger} (± {0.04 / ratio:.1%})" in findings[1].text
    summary = json.loads(json.dumps(report.summary(comparison)))
    assert summary["step_size_bias"] == {"HMC": None, "SGHMC": bias._asdict()}


def test_a_step_size_that_was_not_checked_is_named():
    reference = classified()["reference"]._replace(bias="unchecked")
    comparison = compared(reference=reference)
    assert "HMC has no accept step" in said(comparison)
    assert report.summary(comparison)["step_size_bias"]["HMC"] == "unchecked"
    assert "no accept step" not in said(compared())


def test_summary_has_the_promised_names_and_plain_json():
    broken = report.Method("broken", np.full_like(logits(5), np.nan))
    comparison = compared(methods=[*classified()["methods"], broken])
    summary = json.loads(json.dumps(report.summary(comparison), allow_nan=False))
    assert set(summary) == {
        *("methods", "between_chain", "rhat", "rhat_judged", "convergence"),
        *("acceptance", "seconds", "step_size_bias", "best"),
    }
    fields = {"accuracy", "nll", "ece", "agreement", "total_variation"}
    assert list(summary["methods"]) == ["HMC", "ensemble", "SGHMC", "broken"]
    assert all(set(row) > fields for row in summary["methods"].values())
    assert summary["methods"]["HMC"]["agreement"] is None
    assert summary["methods"]["SGHMC"]["nll"] == comparison.methods[1].nll
    broken_row = dict(summary["methods"]["broken"])
    assert (broken_row.pop("num_seeds"), broken_row.pop("errors")) == (1, {})
    assert set(broken_row.values()) == {None}
    for key, better in (("nll", min), ("total_variation", min), ("agreement", max)):
        known = {n: r[key] for n, r in summary["methods"].items() if r[key] is not None}
        assert better(known, key=known.__getitem__) in summary["best"][key]
    assert summary["between_chain"] == {
        "agreement": comparison.between_chains.agreement,
        "total_variation": comparison.between_chains.total_variation,
        "errors": comparison.between_chains.errors,
    }
    assert summary["rhat"] == {
        "function_share_below_1.05": evaluation.share_below(
            comparison.function.rhat, 1.05
        ),
        "weight_share_below_1.05": 0.0,
    }
    assert summary["rhat_judged"] == {
        "function": {"judged": EXAMPLES * CLASSES, "of": EXAMPLES * CLASSES},
        "weight": {"judged": 20, "of": 20},
    }
    assert summary["acceptance"] == pytest.approx(0.8)
    assert summary["seconds"] == 55.0


def test_summary_of_one_chain_without_a_trace_is_null_where_it_must_be():
    reference = report.Method("HMC", logits(4, chains=1))
    comparison = compared(reference=reference, methods=[], trace=None, weight=None)
    summary = report.summary(comparison)
    nothing = {"agreement": None, "total_variation": None, "errors": {}}
    assert summary["between_chain"] == nothing
    assert set(summary["rhat"].values()) == {None}
    assert summary["rhat_judged"]["weight"] is None
    assert (summary["acceptance"], summary["seconds"]) == (None, None)


def test_summary_of_a_regression_adds_its_own_scores():
    summary = report.summary(report.compare(**regressed()))
    row = summary["methods"]["ensemble"]
    assert row["accuracy"] is None
    assert min(row[key] for key in ("rmse", "nll", "gaussian_nll", "mean_distance")) > 0


HEALTHY = {"reference": report.Method("HMC", logits(4, draws=800))}
TORN = {"reference": report.Method("HMC", logits(4, apart=2.0))}


@pytest.mark.parametrize(
    ("changes", "sentence", "opposite"),
    [
        (HEALTHY, "The chains agree in what they predict", "is no reference"),
        (TORN, "The chains do not agree in what they predict", "gives the same class"),
        (
            HEALTHY | {"weight": evaluation.summarise(weights(apart=0.0))},
            "agree in weight space too",
            "not agree",
        ),
        (
            HEALTHY,
            "In a network that is no sign of failure",
            "agree in weight space too",
        ),
        (
            TORN,
            "As the predictions differ too, the chains are in",
            "no sign of failure",
        ),
        ({"weight": None}, "weights was not examined", "weight space"),
        ({}, "Nearest to the reference is ensemble", "is SGHMC"),
        (
            {
                "methods": [
                    report.Method("ensemble", logits(5, noise=3.0)),
                    report.Method("SGHMC", logits(6, noise=1.1)),
                ]
            },
            "Nearest to the reference is SGHMC",
            "is ensemble",
        ),
        ({"methods": []}, "No method was compared", "Nearest"),
        (
            HEALTHY | {"methods": [report.Method("twin", logits(5, draws=800))]},
            "the ceiling: twin can't be told from another chain",
            "times as far",
        ),
        (HEALTHY, "times as far", "can't be told"),
        (
            TORN | {"methods": [report.Method("near", logits(5))]},
            "near is nearer than that, which says little while the chains disagree",
            "can't be told",
        ),
        (
            {"methods": [report.Method("a", np.full_like(logits(5), np.nan))]},
            "a gave predictions that are not finite",
            "Nearest",
        ),
        ({"trace": trace(rate=0.8)}, "Acceptance is 0.80, within", "step size"),
        ({"trace": trace(rate=0.5)}, "0.50, below 0.65", "within"),
        ({"trace": trace(rate=0.99)}, "0.99, above 0.95", "within"),
        ({}, "None of the 160 proposals after warm-up diverged", "posterior is narrow"),
        (
            {"trace": trace(diverged=8)},
            "8 of the 160 proposals after warm-up diverged (5.0%)",
            "None of",
        ),
        (HEALTHY, "The chains are long enough", "The slowest 5%"),
        ({}, "The slowest 5%", "The chains are long enough"),
    ],
)
def test_verdict_goes_either_way(changes, sentence, opposite):
    text = said(compared(**changes))
    assert sentence in text
    assert opposite not in text


def test_verdict_gives_the_numbers_it_rests_on():
    comparison = compared(reference=report.Method("HMC", logits(4, apart=0.3)))
    text = said(comparison)
    rhat = np.concatenate(
        [v.ravel() for v in (comparison.function.rhat or {}).values()]
    )
    share = f"{(rhat < 1.05).mean():.1%} of {EXAMPLES * CLASSES} predictions"
    assert f"{share} (largest {rhat.max():.2f})" in text
    best, ceiling = comparison.methods[0], comparison.between_chains
    assert f"total variation {best.total_variation:.3g}" in text
    error = ceiling.errors["total_variation"]
    assert f"{ceiling.total_variation:.3g} ± {error:.1g} from the others" in text
    far = best._replace(total_variation=2 * ceiling.total_variation)
    text = said(comparison._replace(methods=(far,)))
    assert "2.0 times as far" in text


def test_chains_agree_where_99_of_100_predictions_say_so():
    comparison = compared()
    for num_above, text in ((1, "The chains agree"), (2, "The chains do not agree")):
        rhat = {"": np.where(np.arange(100) < num_above, 1.06, 1.04)}
        function = comparison.function._replace(rhat=rhat, num_quantities=100)
        assert text in said(comparison._replace(function=function))


def test_verdict_names_the_method_that_is_ahead_in_agreement_only():
    comparison = compared()
    one, two, three = (
        report.Scores(name, total_variation=distance, agreement=agreement)
        for name, distance, agreement in (
            ("a", 0.1, 0.8),
            ("b", 0.2, 0.9),
            ("c", 0.3, 0.5),
        )
    )
    text = said(comparison._replace(methods=(one, three, two)))
    assert "is a (total variation 0.1, agreement 80.0%), then b (0.2), c (0.3)" in text
    assert "In agreement b is ahead, with 90.0%" in text
    two = two._replace(agreement=0.7)
    assert "is ahead" not in said(comparison._replace(methods=(one, two, three)))


def test_verdict_says_how_much_longer_to_run():
    comparison = compared()

    def with_ess(value):
        ess = {"": np.full((EXAMPLES, CLASSES), value)}
        return said(
            comparison._replace(function=comparison.function._replace(ess_bulk=ess))
        )

    assert "sample size of 150 or less from 160 draws; 400 is wanted" in with_ess(150.0)
    assert "Run about 3 times as long" in with_ess(150.0)
    assert "would take 40 times as many draws: a longer trajectory" in with_ess(10.0)
    assert "sample size of 400 or more from 160 draws" in with_ess(400.0)
    slow = np.full((EXAMPLES, CLASSES), 900.0)
    slow[:2] = 150.0
    assert "sample size of 150 or less from 160 draws" in with_ess(slow)
    slow[1] = 900.0
    assert "The chains are long enough" in with_ess(slow)


def test_one_divergence_in_a_hundred_is_bad_news():
    for count, tone in ((1, "note"), (2, "bad")):
        comparison = compared(trace=trace(diverged=count))
        (found,) = chains.divergences(comparison)
        assert found.tone == tone


def test_verdict_names_stuck_chains_and_does_not_advise_to_run_them_longer():
    given = trace()
    given.acceptance[2, 20:] = 0.004
    text = said(compared(trace=given))
    assert "Chain 2 is stuck: it accepted 0.4% of the proposals or less" in text
    assert "Mend the chains named above first" in text
    given.acceptance[[0, 3], 20:] = 0.0
    assert "Chains 0, 2 and 3 are stuck" in said(compared(trace=given))
    text = said(compared(**HEALTHY | {"trace": given}))
    assert "Mend the chains named above first" in text
    assert "long enough" not in text
    text = said(compared(trace=trace()))
    assert "stuck" not in text
    assert "Mend" not in text


def test_verdict_names_a_chain_in_another_region():
    given = trace()
    given.log_density[3] -= 300
    text = said(compared(trace=given))
    assert "Chain 3 is apart from the others" in text
    medians = np.median(given.log_density[:, 20:], axis=1)
    assert (
        f"density is {medians[3]:,.0f} nats, theirs -{-np.median(medians[:3]):.0f}."
        in text
    )
    given.log_density[3] += 290
    assert "apart from the others" not in said(compared(trace=given))
    # One wide chain among the others says that such a distance is none.
    given.log_density[3] -= 290
    given.log_density[1] = -100 + 10 * (given.log_density[1] + 100)
    assert "Chain 3 is apart" not in said(compared(trace=given))


def test_what_was_judged_on_a_sample_says_so():
    assert "random sample" not in said(compared())
    draws = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, 1000))
    draws[:, :, :500] += np.arange(CHAINS)[:, None, None]
    weight = evaluation.summarise(draws, max_judged=400)
    comparison, pictures = drawn(classified(weight=weight))
    text = said(comparison)
    assert "of 400 weights" in text
    # Two standard errors of a share of about one half: 2 sqrt(0.5 0.5 / 400) = 0.05.
    assert "from a random sample of 400 of the 1,000, which puts the share" in text
    assert "within 5 percentage points" in text
    assert "predictions (largest" in text
    readings = {picture.title: picture.reading for picture in pictures}
    assert "weights shown are a random sample" in readings["Do the chains agree?"]
    assert report.summary(comparison)["rhat_judged"]["weight"] == {
        "judged": 400,
        "of": 1000,
    }


def test_verdict_withholds_with_the_reason():
    one = report.Method("HMC", logits(4, chains=1))
    weight = evaluation.summarise(weights(apart=0.0)["params"]["w"][:1])
    text = said(compared(reference=one, trace=trace(chains=1), weight=weight))
    assert "predict is not known. R-hat is withheld: it compares chains" in text
    assert text.count("it compares chains") == 1
    assert "ceiling is how near one chain" in text
    few = report.Method("HMC", logits(4, draws=3))
    text = said(compared(reference=few, weight=weight))
    assert "weight space is not known. R-hat is withheld: it compares chains" in text
    assert "predict is not known. R-hat and effective sample sizes are withheld" in text
    assert "3 draws a chain" in text
    short = report.Method("HMC", logits(4, draws=9))
    assert "Effective sample sizes are withheld: 9 draws" in said(
        compared(reference=short)
    )
    saturated = logits(4)
    saturated[:, :, 0] = [0.0, 0.0, 999.0]
    text = said(compared(reference=report.Method("HMC", saturated)))
    assert "the same in every draw: 3 of 90 predictions" in text
    assert "nan" not in text


def test_verdict_of_a_regression_speaks_of_means():
    text = said(report.compare(**regressed()))
    assert re.search(
        r"Nearest to the reference is ensemble \(its predictive means", text
    )
    assert "class" not in text


def printed(comparison, **options):
    console = Console(
        width=80, file=io.StringIO(), record=True, color_system="standard"
    )
    for table in report.tables(comparison):
        console.print(table)
    return console.export_text(**options)


def test_tables_fit_80_columns_with_the_ceiling_last():
    comparison = compared()
    long = comparison.methods[1]._replace(name="a method with a very long name indeed")
    text = printed(comparison._replace(methods=(comparison.methods[0], long)))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    text = printed(comparison)
    quality, likeness, diversity, cost = (
        text.index(title)
        for title in ("Quality", "To the reference", "Diversity", "Cost")
    )
    assert quality < likeness < diversity < cost
    head = text[quality:likeness]
    found = re.findall(r"accuracy ↑|NLL ↓|ECE ↓|ACE ↓|Brier ↓|AURC ↓", head)
    assert len(found) == 6
    assert re.search(r"HMC +\d", head)
    assert f"{comparison.methods[0].nll:.4f}" in head
    assert "between chains" not in head
    # The reference has no distance to itself.
    body = text[likeness:diversity].splitlines()
    names = [line.split("  ")[0].strip() for line in body]
    assert "HMC" not in names
    assert names.index("between chains") > names.index("SGHMC")
    one = comparison.methods[0]
    error = one.errors["total_variation"]
    assert f"{one.total_variation:.4f} ± {error:.4f}" in text


def test_table_marks_the_best_of_a_column():
    one = report.Scores("one", accuracy=0.9, nll=0.3, total_variation=0.2)
    two = report.Scores("two", accuracy=0.8, nll=0.1, total_variation=0.2)
    comparison = compared()._replace(reference=one, methods=(two,), between_chains=None)
    text = printed(comparison, styles=True)
    # Equal numbers are both the best, and the ceiling counts for nothing.
    marked = re.findall(r"\x1b\[1m *([\d.%]+)", text)
    assert marked == ["90.0%", "0.1000", "0.2000", "0.2000"]
    assert '<td class="best">0.1000</td>' in report.render(comparison, [], {})
    alone = printed(comparison._replace(methods=()), styles=True)
    assert not re.findall(r"\x1b\[1m *[\d.%]+", alone)


class Page(HTMLParser):
    """Reads a page: every tag with its attributes, the text, whether tags match."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.open, self.balanced = [], "", [], True
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        self.balanced = bool(self.open) and self.open.pop() == tag and self.balanced

    def handle_data(self, data):
        self.text += data


def images(page):
    sources = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    prefix = "data:image/svg+xml;base64,"
    assert all(source.startswith(prefix) for source in sources)
    return [base64.b64decode(source.removeprefix(prefix)) for source in sources]


def copies(*, apart=0.0):
    """Draws whose chains have their columns in an order of their own, and aligned."""
    draws = weights(apart=apart)["params"]["w"] + 4 * np.arange(5)
    rng = np.random.default_rng(0)
    return np.stack([draws[i][..., rng.permutation(5)] for i in range(CHAINS)]), draws


def with_aligned(before, after, **changes) -> Any:
    return classified(
        weight=evaluation.summarise(before),
        aligned=evaluation.summarise(after),
        weight_distances=evaluation.chain_distances(before),
        aligned_distances=evaluation.chain_distances(after),
        **changes,
    )


def test_summary_and_table_set_aligned_weights_between_weights_and_predictions():
    before, after = copies()
    comparison = report.compare(**with_aligned(before, after, **HEALTHY))
    found = json.loads(json.dumps(report.summary(comparison)))["convergence"]
    assert list(found) == ["weight", "weight_aligned", "function"]
    probs = special.softmax(HEALTHY["reference"].outputs, -1)
    for row, draws in zip(found.values(), (before, after, probs), strict=True):
        whole = evaluation.summarise(draws)
        apart = evaluation.chain_distances(draws)
        for level in (1.01, 1.05, 1.1):
            share = evaluation.share_below(whole.rhat, level)
            assert row[f"share_below_{level}"] == share
        assert row["median_rhat"] == pytest.approx(np.median((whole.rhat or {})[""]))
        assert row["median_ess"] == pytest.approx(np.median((whole.ess_bulk or {})[""]))
        assert row["distance_between"] == pytest.approx(apart.between)
        assert row["distance_within"] == pytest.approx(apart.within)
        ratio = row["distance_between"] / row["distance_within"]
        assert row["between_to_within"] == pytest.approx(ratio)
        assert row["mmd"] == pytest.approx(apart.mmd)
    assert found["weight_aligned"]["share_below_1.1"] > 0.9
    assert found["weight"]["share_below_1.1"] < 0.5
    shown = console_lines(report.convergence_table(comparison))
    assert shown[0].strip() == "R-hat with the symmetries removed"
    rows = [line.split() for line in shown if re.match(r" ?(weights|predict)", line)]
    assert [row[0] for row in rows] == ["weights", "weights,", "predictions"]
    row = found["weight_aligned"]
    assert rows[1][2:] == [
        *(f"{row[f'share_below_{x}']:.1%}".replace("100.0%", "100%") for x in LEVELS),
        f"{row['median_rhat']:.3f}",
        f"{row['median_ess']:.0f}",
        f"{row['between_to_within']:.2f}",
        f"{row['mmd']:.4f}",
    ]
    assert max(map(len, shown)) <= 80


LEVELS = (1.01, 1.05, 1.1)


def console_lines(table):
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text().splitlines()


def test_without_aligned_weights_the_table_has_what_there_is():
    comparison = compared()
    found = report.summary(comparison)["convergence"]
    assert found["weight_aligned"] is None
    assert found["weight"]["mmd"] is None
    shown = "\n".join(console_lines(report.convergence_table(comparison)))
    assert "R-hat of weights and predictions" in shown
    assert "aligned" not in shown
    assert "symmetries removed" not in said(comparison)
    one = compared(reference=report.Method("HMC", logits(4, chains=1)), weight=None)
    shown = "\n".join(console_lines(report.convergence_table(one)))
    assert "ESS" in shown
    assert "R-hat" not in shown.replace("R-hat of predictions", "")
    page = report.render(one._replace(methods=()), [], {})
    assert "MMD" not in page
    few = compared(reference=report.Method("HMC", logits(4, draws=1)), weight=None)
    report.convergence_table(few)
    torn = comparison.weight._replace(rhat={"": np.array([np.inf, np.inf, 1.0])})
    shown = console_lines(report.convergence_table(comparison._replace(weight=torn)))
    assert "∞" in "".join(shown)
    summary = report.summary(comparison._replace(weight=torn))
    assert summary["convergence"]["weight"]["median_rhat"] is None


def test_verdict_says_how_much_of_the_rhat_of_weights_is_symmetry():
    before, after = copies()
    comparison = report.compare(**with_aligned(before, after))

    def with_shares(share, share_aligned):
        def rhat(share):
            return {"": np.where(np.arange(100) < 100 * share, 1.0, 3.0)}

        return said(
            comparison._replace(
                weight=comparison.weight._replace(rhat=rhat(share)),
                aligned=comparison.aligned._replace(rhat=rhat(share_aligned)),
            )
        )

    text = with_shares(0.2, 0.4)
    assert "below 1.05 for 40.0% of the weights instead of 20.0%" in text
    assert "(median 3.000 instead of 3.000)" in text
    ratios = [
        distances.between / distances.within
        for distances in (comparison.aligned_distances, comparison.weight_distances)
    ]
    times = "draws of different chains are {:.2f} times as far apart as draws of one "
    assert (times + "chain instead of {:.2f}.").format(*ratios) in text
    # Of the 80 of 100 that were above, 20 come below.
    assert "So about 25% of the weights' disagreement is symmetry, and the rest" in text
    assert "As alignment lowers R-hat by construction" in text
    assert "So nearly all of the weights' disagreement" in with_shares(0.2, 0.93)
    assert "So little of the weights' disagreement" in with_shares(0.2, 0.25)
    assert "So little of the weights' disagreement" in with_shares(0.2, 0.1)
    assert "symmetries removed" not in with_shares(0.99, 1.0)
    bare = comparison._replace(weight_distances=None)
    assert "times as far apart as draws" not in said(bare)
    one = comparison.aligned._replace(rhat=None)
    assert "symmetries removed" not in said(comparison._replace(aligned=one))


def test_page_shows_aligned_weights_in_table_and_picture():
    comparison, pictures = drawn(with_aligned(*copies()))
    page = Page(report.render(comparison, [], {}))
    assert page.balanced
    headings = ["Comparison", "R-hat with the symmetries removed", "Configuration"]
    places = [page.text.index(heading) for heading in headings]
    assert places == sorted(places)
    cells = convergence.rows(comparison)[1][1]
    assert "".join(["weights, aligned", *cells]) in page.text
    picture = next(p for p in pictures if p.title == "Do the chains agree?")
    assert len(picture.figure.axes) == 3
    panel: Any = picture.figure.axes[1]
    share = evaluation.share_below(comparison.aligned.rhat, 1.05) or 0.0
    assert panel.get_title("left") == "Aligned weights (20)"
    assert panel.texts[1].get_text() == f"{style.percent(share)} below 1.05"
    for reading in (picture.reading, page.text):
        assert "lowers R-hat by construction" in reading
        assert "fixed beforehand" in reading
        assert "to judge by" in reading
    _, pictures = drawn(classified())
    picture = next(p for p in pictures if p.title == "Do the chains agree?")
    assert len(picture.figure.axes) == 2
    assert "lowers" not in picture.reading


def test_page_needs_nothing_beside_it_and_runs_nothing():
    comparison, pictures = drawn(
        classified(), read_leaf=lambda _: weights(apart=3.0)["params"]["w"]
    )
    text = report.render(comparison, pictures, {"jax": "0.10.2"}, title="Title")
    page = Page(text)
    assert page.balanced
    assert not page.open
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"}
    attributes = {key for _, attrs in page.tags for key in attrs}
    assert not attributes & {"href", "srcset", "background", "action"}
    assert not [key for key in attributes if key.startswith("on")]
    assert not re.search(r"url\(|@import", text)
    assert len(images(page)) == len(pictures) > 5
    for image in images(page):
        for element in ElementTree.fromstring(image).iter():
            for name, value in element.attrib.items():
                loads = name.endswith(("href", "src")) or "url(" in value
                assert not loads or re.search(r"^#|^data:|url\(#", value), (name, value)
    for picture in pictures:
        assert picture.title in page.text
        assert picture.reading in page.text
    for sentence in report.verdict(comparison):
        assert sentence in page.text
    order = ["Title", "Verdict", "Comparison", pictures[0].title, '"jax": "0.10.2"']
    places = [page.text.index(word) for word in order]
    assert places == sorted(places)


def test_page_shows_names_as_they_are_and_obeys_none_of_them():
    nasty = '<script>alert("x")</script> & $title </pre>'
    comparison, pictures = drawn(classified(methods=[report.Method(nasty, logits(5))]))
    picture = report.Picture(nasty, pictures[0].figure, nasty)
    page = Page(report.render(comparison, [picture], {nasty: nasty}, title=nasty))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.balanced
    assert page.text.count(nasty) >= 6
    texts = [ElementTree.fromstring(image).itertext() for image in images(page)]
    assert "alert" in "".join("".join(text) for text in texts)


ONE_CHAIN = weights(apart=0.0)["params"]["w"][:1]
BARE = report.Method("HMC", regressed()["reference"].outputs)


@pytest.mark.parametrize(
    "given",
    [
        classified(
            reference=report.Method("HMC", logits(4, chains=1)),
            trace=trace(chains=1),
            weight=evaluation.summarise({"params": {"w": ONE_CHAIN}}),
        ),
        classified(
            reference=report.Method("HMC", logits(4, draws=1)),
            methods=[report.Method("a", np.full_like(logits(5), np.nan))],
            trace=None,
            weight=None,
        ),
        classified(reference=report.Method("HMC", logits(4, draws=3)), methods=[]),
        regressed(methods=[], reference=BARE),
    ],
    ids=["one chain", "one draw, a diverged method", "few draws, no method", "no std"],
)
def test_page_of_an_incomplete_job_says_nan_nowhere(given):
    comparison, pictures = drawn(given, read_leaf=lambda _: ONE_CHAIN)
    page = Page(report.render(comparison, pictures, {}))
    drawn_text = b"".join(images(page)).decode()
    assert not re.search(
        r"\b(nan|inf|None(?! of))\b", page.text + re.sub("<[^>]*>", " ", drawn_text)
    )
    assert len(pictures) >= 2


def test_pictures_are_those_the_arrays_allow():
    x = np.random.default_rng(0).random((EXAMPLES, 8, 8, 1))
    _, pictures = drawn(
        classified(), x=x, read_leaf=lambda _: weights(apart=3.0)["params"]["w"]
    )
    assert [picture.title for picture in pictures] == [
        "How near does each method come?",
        "Do the chains agree?",
        "Log density along the chains",
        "Acceptance",
        "The most disputed predictions",
        "The weights that mix worst",
        "Reliability",
        "Which predictions can be kept?",
        "Do two draws compute the same function?",
        "Test points the chains disagree on most",
    ]
    assert any(ax.images for ax in pictures[-1].figure.axes)
    _, pictures = drawn(classified(), x=x[:, :, 0, 0])
    assert not any(ax.images for ax in pictures[-1].figure.axes)
    one = report.Method("HMC", logits(4, chains=1))
    _, pictures = drawn(classified(reference=one, methods=[], trace=None))
    assert [picture.title for picture in pictures] == [
        "The least certain predictions",
        "Reliability",
        "Which predictions can be kept?",
        "Do two draws compute the same function?",
    ]
    _, pictures = drawn(regressed())
    assert pictures[-1].title == "Predictions and targets"


def test_pictures_show_the_weights_that_mix_worst_and_the_points_in_dispute():
    draws = weights(apart=0.0)
    draws["params"]["w"][:, :, 2, 3] += 5 * np.arange(CHAINS)[:, None]
    draws["shift"] = 0.9 * draws["params"]["w"][:, :, 2, 3]  # a number: no axes
    outputs = logits(4)
    outputs[1, :, 17] = [50.0, 0.0, 0.0]
    outputs[2, :, 17] = [0.0, 0.0, 50.0]
    given = classified(
        reference=report.Method("HMC", outputs), weight=evaluation.summarise(draws)
    )
    leaves = {"params/w": draws["params"]["w"], "shift": draws["shift"]}
    _, pictures = drawn(given, read_leaf=leaves.get)
    by_title = {picture.title: picture.figure for picture in pictures}
    ax: Any = by_title["The weights that mix worst"].axes[0]
    assert ax.get_title("left").startswith("params/w[2, 3] · R-hat\N{NO-BREAK SPACE}")
    np.testing.assert_array_equal(
        ax.lines[1].get_ydata(), draws["params"]["w"][1, :, 2, 3]
    )
    ax = by_title["The weights that mix worst"].axes[1]
    assert ax.get_title("left").startswith("shift · R-hat")
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), draws["shift"][2])
    ax = by_title["The most disputed predictions"].axes[0]
    chains = special.softmax(outputs, -1).mean(1)[:, 17]
    disputed = chains.var(0).argmax()
    title = f"test point 17, probability of class {disputed}"
    assert ax.get_title("left").startswith(title)
    ax = by_title["Test points the chains disagree on most"].axes[0]
    bars = np.array([bar.get_height() for bar in ax.patches if bar.get_width() < 0.5])
    np.testing.assert_allclose(bars.reshape(CHAINS, CLASSES)[1], [1, 0, 0], atol=1e-9)


def test_images_are_told_from_tables():
    assert examples.as_images(np.zeros((5, 28, 28))) is not None
    assert examples.as_images(np.zeros((5, 32, 32, 3))) is not None
    assert examples.as_images(np.zeros((5, 32, 32, 7))) is None
    assert examples.as_images(np.zeros((5, 64))) is None


def test_predictive_intervals_are_quantiles_of_the_mixture():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(2, 3, 5, 1)), rng.uniform(0.1, 2, size=(2, 3, 5, 1))
    for share in (0.05, 0.5, 0.95):
        quantile = examples.mixture_quantile(mean, std, share)
        below = stats.norm.cdf(quantile, mean, std).mean((0, 1))
        np.testing.assert_allclose(below, share, atol=1e-7)
    one = examples.mixture_quantile(mean[:1, :1], std[:1, :1], 0.95)
    np.testing.assert_allclose(one, stats.norm.ppf(0.95, mean[0, 0], std[0, 0]))


def test_write_replaces_the_page_whole_or_not_at_all(tmp_path, monkeypatch):
    comparison = compared()
    path = tmp_path / "report.html"
    assert report.write(path, comparison, [], {}) == path
    first = path.read_text(encoding="utf-8")
    assert first == report.render(comparison, [], {})

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(store.StoreError, match="report.html"):
            report.write(path, comparison, [], {}, title="New")
    assert path.read_text(encoding="utf-8") == first
    assert os.listdir(tmp_path) == ["report.html"]
    report.write(path, comparison, [], {}, title="New")
    assert "<h1>New</h1>" in path.read_text(encoding="utf-8")
