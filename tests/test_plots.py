import itertools
from typing import Any

import jax
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from symjax import plots
from symjax.plots import style


RNG = np.random.default_rng(0)


def softmax(logits):
    return np.asarray(jax.nn.softmax(logits, axis=-1), float)


def axes_of(fig) -> list[Any]:
    """The axes, free of matplotlib's annotations, which are wider than what it does."""
    return fig.axes


def curve(seed, bins=15):
    rng = np.random.default_rng(seed)
    count = rng.integers(0, 40, bins)
    accuracy = np.where(count, rng.integers(0, np.maximum(count, 1)), 0)
    confidence = (np.arange(bins) + 0.5) / bins
    return confidence, accuracy / np.maximum(count, 1), count


def rising(seed, points=300):
    risk = np.cumsum(np.random.default_rng(seed).random(points) < 0.1)
    kept = np.arange(1, points + 1)
    return kept / points, risk / kept


def near(classes):
    """Methods of which some are at nearly one place."""
    rng = np.random.default_rng(classes)
    costs, distances = 10 ** rng.uniform(1, 4, 12), 10 ** rng.uniform(-2, -0.3, 12)
    costs[6:9], distances[6:9] = costs[5], distances[5] * np.array([1.02, 1.1, 1.3])
    return zip(costs, distances, strict=True)


def every_figure(chains, classes, image):
    """All figures, as a run of this shape gives them."""
    probs = softmax(RNG.normal(size=(chains, 5, classes)))
    trace = RNG.normal(size=(chains, 60))
    names = [
        "HMC",
        "deep ensemble",
        "SGHMC",
        "a method with a name too long for its panel",
        "E",
    ]
    targets = RNG.normal(size=(30, 1))
    return {
        "log_density": plots.log_density(trace * 1e4 - 1e6, num_warmup=20),
        "quantities": plots.quantities(trace[:, :, None], ["test example 3"]),
        "acceptance": plots.acceptance(softmax(trace), trace > 2, num_warmup=20),
        "rhat": plots.rhat(1 + RNG.exponential(size=99), 1 + np.full(99, 1e-4)),
        "rhat with aligned": plots.rhat(
            1 + RNG.exponential(size=99),
            np.full(9, 1.001),
            aligned=1 + 0.3 * RNG.exponential(size=99),
        ),
        "slowest_weights": plots.slowest_weights(
            np.stack([trace] * 3, -1),
            [
                "params/Dense_0/kernel[11, 30] · R-hat 1.20",
                "params/Encoder_0/Attention_0/k[1, 2, 3] · R-hat 1.10",
                "a[0]",
            ],
        ),
        "scores": plots.scores(
            {
                "Agreement": dict(
                    zip(names, (1.0, 0.9991, 0.9, np.nan, 0.7), strict=True)
                ),
                "Total variation": dict.fromkeys(names, 0.1),
            },
            {"Agreement": 0.9992, "Total variation": 0.1},
        ),
        "reliability": plots.reliability({n: curve(i) for i, n in enumerate(names)}),
        "risk_coverage": plots.risk_coverage(
            {n: rising(i) for i, n in enumerate(names)}
        ),
        "pairs": plots.pairs(
            {n: (RNG.random(60), RNG.random(60) < 0.3) for n in names},
            xlabel="mutual information (nats)",
        ),
        "pareto": plots.pareto(
            {f"method {i} of {classes}": p for i, p in enumerate(near(classes))},
            ceiling=0.004,
            xlabel="cost",
            ylabel="distance",
        ),
        "disagreements": plots.disagreements(
            probs,
            np.arange(5) % classes,
            images=RNG.random((5, 8, 8)) if image else None,
        ),
        "intervals": plots.intervals(
            targets + 0.1, targets - 0.5, targets + 0.3, targets, level=0.9
        ),
    }


def drawn_texts(fig, monkeypatch):
    """Every text that is drawn (ticks out of range are not), with its box in pixels."""
    drawn = {}
    draw = Text.draw

    def record(text, renderer):
        drawn[text] = None
        draw(text, renderer)

    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", record)
        fig.draw_without_rendering()
    return [(t, t.get_window_extent()) for t in drawn if t.get_text()]


def overlap(a, b):
    return (
        min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    )


@pytest.mark.parametrize(
    ("chains", "classes", "image"), [(4, 10, True), (16, 3, False)]
)
def test_every_text_is_on_the_figure_and_none_covers_another(
    chains, classes, image, monkeypatch
):
    for name, fig in every_figure(chains, classes, image).items():
        shown = drawn_texts(fig, monkeypatch)
        assert shown, name
        for text, box in shown:
            shown_part = Bbox.intersection(box, fig.bbox.padded(1))
            assert shown_part is not None, (name, text.get_text())
            assert np.allclose(shown_part, box), (name, text.get_text())
            assert text.get_fontsize() >= style.SMALL, (name, text.get_text())
        for (one, box), (two, other) in itertools.combinations(shown, 2):
            assert not overlap(box, other), (name, one.get_text(), two.get_text())


def test_drawing_leaves_matplotlibs_global_state_alone():
    before = dict(mpl.rcParams)
    plots.log_density(np.ones((1, 9))).draw_without_rendering()
    assert dict(mpl.rcParams) == before
    assert not pyplot.get_fignums()


def test_log_density_shows_a_stuck_chain_and_cuts_off_the_way_in():
    values = np.full((4, 100), -1280.0) + RNG.normal(size=(4, 100))
    values[:, :10] = -1e6
    ax = axes_of(plots.log_density(values, num_warmup=40))[0]
    assert -1290 < ax.get_ylim()[0] < values[:, 20:].min()
    values[3, 10:] = -25_000
    low, high = axes_of(plots.log_density(values, num_warmup=40))[0].get_ylim()
    assert -30_000 < low < -25_000 < -1278 < high


def test_log_density_draws_the_finite_part_of_a_chain_that_left_the_numbers():
    values = RNG.normal(size=(2, 30))
    values[1, 20:] = np.nan
    low, high = axes_of(plots.log_density(values))[0].get_ylim()
    assert low < np.nanmin(values) < np.nanmax(values) < high


def test_quantities_draw_the_mean_of_all_draws_so_far_over_the_draws():
    values = RNG.random((2, 50, 3))
    ax = axes_of(plots.quantities(values, ["a", "b", "c"]))[1]
    lines = [line.get_ydata() for line in ax.lines]
    np.testing.assert_allclose(lines[0], values[0, :, 1])
    want = [values[1, : n + 1, 1].mean() for n in range(50)]
    np.testing.assert_allclose(lines[3], want, rtol=1e-12)


def test_acceptance_is_a_running_mean_with_a_mark_at_every_divergence():
    probability, divergent = RNG.random((2, 60)), np.zeros((2, 60), bool)
    divergent[1, [7, 41]] = True
    ax = axes_of(plots.acceptance(probability, divergent))[0]
    window = 60 // 20
    want = [probability[0, max(0, n - window + 1) : n + 1].mean() for n in range(60)]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), want, rtol=1e-12)
    assert [list(line.get_xdata()) for line in ax.lines[2:]] == [[], [7, 41]]


def test_rhat_states_the_shares_of_the_numbers_there_are():
    weight = np.array([1.0, 1.02, 1.07, np.inf, np.nan])
    function = np.full(10_000, 1.001)
    function[0] = 1.2
    left, right = axes_of(plots.rhat(weight, function))
    assert [t.get_text() for t in left.texts] == [
        "25.0% below 1.01",
        "50.0% below 1.05",
        "75.0% below 1.1",
    ]
    assert left.get_title("left") == "Weights (4)"
    assert right.texts[0].get_text() == ">99.9% below 1.01"
    assert sum(bar.get_height() for bar in left.patches) == pytest.approx(1)
    assert left.xaxis.get_major_formatter()(0.1) == "1.1"
    assert left.patches[-1].get_height() == pytest.approx(0.25)


def test_rhat_puts_aligned_weights_between_weights_and_predictions():
    aligned = np.array([1.0, 1.02, 1.03, 1.2])
    fig = plots.rhat(np.full(3, 9.0), np.full(2, 1.001), aligned=aligned)
    axes = axes_of(fig)
    assert [ax.get_title("left") for ax in axes] == [
        "Weights (3)",
        "Aligned weights (4)",
        "Predictions (2)",
    ]
    assert axes[1].texts[1].get_text() == "75.0% below 1.05"
    assert len({ax.get_xlim() for ax in axes}) == 1
    below = [ax.get_position().y1 for ax in axes]
    assert below == sorted(below, reverse=True)


def test_rhat_says_that_it_is_withheld_where_there_is_no_number():
    left, right = axes_of(plots.rhat(np.full(3, np.nan), np.array([1.2])))
    assert [t.get_text() for t in left.texts] == ["withheld"]
    assert right.texts[0].get_text() == "0% below 1.01"


def test_rhat_has_no_panel_of_weights_that_are_not_known():
    (only,) = axes_of(plots.rhat(None, np.array([1.2])))
    assert only.get_title("left") == "Predictions (1)"
    assert only.get_ylabel() == "share"


def test_scores_join_every_method_to_the_line_and_name_a_missing_value():
    values = {"Agreement": {"a": 0.9, "b": np.nan}}
    (ax,) = axes_of(plots.scores(values, {"Agreement": 0.99}))
    stem = next(
        line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_alpha()
    )
    assert list(stem.get_xdata()) == [0.99, 0.9]
    assert {t.get_text() for t in ax.texts} == {"0.990", "0.900", "none"}
    (ax,) = axes_of(plots.scores(values, ideal={"Agreement": 1.0}))
    assert ax.get_xlim()[0] < 0.9 < 1.0 < ax.get_xlim()[1]
    assert {t.get_text() for t in ax.texts} == {"0.900", "none"}


def test_reliability_leaves_out_empty_bins_and_draws_wilsons_interval():
    confidence, accuracy = np.array([0.1, 0.5, 0.9]), np.array([0.0, 0.5, 0.8])
    curves = {"m": (confidence, accuracy, np.array([0, 10, 40]))}
    top, bottom = axes_of(plots.reliability(curves))
    np.testing.assert_allclose(top.lines[1].get_xdata(), [0.5, 0.9])
    np.testing.assert_allclose(top.lines[1].get_ydata(), [0.5, 0.8])
    # Wilson (1927) by hand: 5 of 10 at z = 1.959964.
    low, high = top.collections[0].get_segments()[0][:, 1]
    np.testing.assert_allclose([low, high], [0.2365931, 0.7634069], atol=1e-6)
    heights = [segment[1, 1] for segment in bottom.collections[0].get_segments()]
    assert heights == [10, 40]


def test_disagreements_show_every_chains_probabilities_and_the_true_class():
    probs = softmax(RNG.normal(size=(3, 2, 4)))
    fig = plots.disagreements(probs, np.array([2, 0]), class_names=list("abcd"))
    ax = axes_of(fig)[1]
    bars = [bar for bar in ax.patches if bar.get_width() < 0.5]
    heights = np.array([bar.get_height() for bar in bars]).reshape(3, 4)
    np.testing.assert_allclose(heights, probs[:, 1])
    assert [axes_of(fig)[i].get_title("left") for i in range(2)] == [
        "true class c",
        "true class a",
    ]
    pictures = RNG.random((2, 8, 8))
    fig = plots.disagreements(probs, np.array([2, 0]), images=pictures)
    shown = [ax.images[0].get_array() for ax in axes_of(fig) if ax.images]
    low, high = pictures[1].min(), pictures[1].max()
    np.testing.assert_allclose(shown[1], (pictures[1] - low) / (high - low))


def test_intervals_colour_and_count_the_targets_outside():
    targets = np.array([[0.0], [1.0], [2.0], [3.0]])
    mean = np.array([[0.0], [1.0], [-7.0], [9.0]])
    ax = axes_of(plots.intervals(mean, mean - 1, mean + 1, targets, level=0.9))[0]
    assert ax.get_title("left") == "50% of targets inside the 90% interval"
    (outside,) = [
        line for line in ax.lines if to_rgba(line.get_color()) == to_rgba(style.ALERT)
    ]
    assert list(outside.get_ydata()) == [-7.0, 9.0]


def test_risk_is_drawn_from_five_percent_coverage_over_the_curves_of_others():
    coverage = np.arange(1, 101) / 100
    risk = {"a": 0.3 * coverage, "b": np.full(100, 0.1)}
    fig = plots.risk_coverage({name: (coverage, r) for name, r in risk.items()})
    for ax, (name, curve) in zip(axes_of(fig), risk.items(), strict=True):
        *others, own = ax.lines
        assert len(others) == 2
        assert own.get_xdata()[0] == 0.05
        assert own.get_xdata()[-1] == 1
        np.testing.assert_allclose(
            own.get_ydata(), np.interp(own.get_xdata(), coverage, curve)
        )
        assert ax.texts[0].get_text() == f"AURC {curve.mean():.4f}"
        assert ax.get_title("left") == name


def test_pairs_are_counted_by_whether_they_are_of_one_chain():
    values, same = RNG.random(100), np.arange(100) < 30
    ax = axes_of(plots.pairs({"m": (values, same)}, xlabel="x"))[0]
    within, between = [patch.get_data() for patch in ax.patches]
    assert within.values.sum() == pytest.approx(0.3)
    assert (between.values - between.baseline).sum() == pytest.approx(0.7)
    wanted = np.histogram(values[~same], within.edges)[0] / 100
    np.testing.assert_allclose(between.values - between.baseline, wanted)
    assert ax.texts[0].get_text() == f"median {np.median(values):.3g}"


def test_scores_show_errors_of_methods_and_of_the_line():
    fig = plots.scores(
        {"TV": {"a": 0.3, "b": 0.2}},
        {"TV": 0.1},
        errors={"TV": {"a": 0.02, "between chains": 0.03}},
    )
    ax = axes_of(fig)[0]
    bars = [line for line in ax.lines if line.get_marker() == "|"]
    assert [list(bar.get_xdata()) for bar in bars] == [pytest.approx([0.28, 0.32])]
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((0.07, 0.13))
