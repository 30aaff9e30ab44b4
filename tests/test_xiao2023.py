"""The reproduction of the compact posterior, at its smallest scale."""

import dataclasses
import importlib
import json
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.datasets

from symjax import cli, evaluation, run, store
from symjax.approximations import gaussian
from symjax.cli import records
from symjax.plots import compact


# Other work may be committed between the calls of a test.
pytestmark = pytest.mark.filterwarnings("ignore:The run began with git commit")


@pytest.fixture(scope="module")
def scripts():
    """The modules, which import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        names = ("compact", "evaluation", "problem", "runs", "transpositions")
        found = {n: importlib.import_module(f"xiao2023_{n}") for n in names}
    return SimpleNamespace(**found)


@pytest.fixture(scope="module")
def script(scripts):
    return scripts.compact


@pytest.fixture(scope="module")
def problem(scripts):
    return scripts.problem.build("digits", "tiny", 0)


@pytest.fixture(scope="module")
def reproduced(script, tmp_path_factory):
    """The folder and its results, after a call whose time was over at once."""
    out = tmp_path_factory.mktemp("xiao2023")

    def call(*words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                sys, "argv", ["x", "--scale", "tiny", "--out", str(out), *words]
            )
            script.main()

    with pytest.raises(SystemExit, match="call again to go on"):
        call("--minutes", "0")
    assert 0 < store.open(out / "hmc").committed.iteration < 17
    call()
    return out, json.loads((out / "results.json").read_text())


@pytest.mark.parametrize("kind", [run.Stopped, run.Preempted])
def test_a_signal_from_elsewhere_ends_the_program(
    kind, script, problem, reproduced, tmp_path, monkeypatch
):
    """Unlike its own, which says that the minutes are over."""

    def stop(*_, **__):
        raise kind("Stopped at 3.")

    monkeypatch.setattr(script.run, "sample", stop)
    members = store.open(reproduced[0] / "ensemble")
    with pytest.raises(kind, match="Stopped at 3"):
        script.sample_hmc(problem, tmp_path / "hmc", members, 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_just_before_the_minutes_are_over_ends_the_program(
    number, script, problem, reproduced, tmp_path, monkeypatch
):
    """In the chunk in which they end, too."""
    advance, sent = run.loop._advance, []

    def advancing(*given):
        sent.append(1)
        signal.raise_signal(number)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 0.02)
        time.sleep(0.3)
        return advance(*given)

    monkeypatch.setattr(run.loop, "_advance", advancing)
    members = store.open(reproduced[0] / "ensemble")
    with pytest.raises(run.Stopped) as stopped:
        script.sample_hmc(problem, tmp_path / "hmc", members, 60)
    assert (stopped.type is run.Preempted) == (number == signal.SIGTERM)
    kept = store.open(tmp_path / "hmc")
    assert kept.committed.has_state
    assert records.seconds(kept.path) > 0.3
    assert len(sent) == 1


def test_a_signal_before_the_chains_run_is_not_ignored(script):
    usual = signal.getsignal(signal.SIGTERM)
    with script.stop_after(0) as time_is_over:
        time.sleep(0.1)
        assert signal.getsignal(signal.SIGTERM) == usual
        assert not time_is_over()  # As nothing runs that it could stop.


def outputs(params, x):
    """The network in NumPy, of any draws."""
    x = x.reshape(len(x), -1)
    first, second = params["params"]["Dense_0"], params["params"]["Dense_1"]
    hidden = np.maximum(x @ first["kernel"] + first["bias"][..., None, :], 0)
    return hidden @ second["kernel"] + second["bias"][..., None, :]


def test_pixels_are_those_of_the_files_between_0_and_1(problem):
    images = sklearn.datasets.load_digits().data / 16
    together = np.concatenate([problem.train.x, problem.test.x]).reshape(-1, 64)
    known = set(map(bytes, np.uint8(images * 16)))
    assert set(map(bytes, np.uint8(np.round(together * 16)))) <= known
    np.testing.assert_allclose(together * 16, np.round(together * 16), atol=1e-4)
    blank = np.all(problem.train.x == 0, axis=0)
    assert blank.sum() >= np.sum(images.max(axis=0) == 0) == 3
    assert (len(problem.train.y), len(problem.test.y)) == (300, 200)


@pytest.mark.parametrize("how", ["activations", "weights"])
@pytest.mark.parametrize("kind", ["hmc", "ensemble"])
def test_aligned_draws_are_the_same_functions(problem, reproduced, kind, how):
    out, _ = reproduced
    kept, moved = (store.open(out / name) for name in (kind, f"{kind}-by-{how}"))
    assert moved.committed.finished
    before, after = kept.read(), moved.read()
    x = problem.test.x
    np.testing.assert_allclose(outputs(before, x), outputs(after, x), atol=1e-4)
    first = store.open(out / "hmc").read(chains=[0], draws=[0])

    def distance(draws):
        pairs = zip(jax.tree.leaves(draws), jax.tree.leaves(first), strict=True)
        return sum(np.square(a - b).sum() for a, b in pairs)

    assert distance(after) < distance(before)


def test_the_first_member_stays_where_others_are_aligned_with_it(reproduced):
    out, _ = reproduced
    before, after = (
        jax.tree.leaves(store.open(out / name).read())
        for name in ("ensemble", "ensemble-by-activations-to-a-member")
    )
    is_same = [np.array_equal(a[0], b[0]) for a, b in zip(before, after, strict=True)]
    assert all(is_same)
    assert not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_table_is_that_of_the_draws(problem, reproduced):
    """Against NumPy, from the stored draws."""
    out, results = reproduced
    x, labels = problem.test.x, problem.test.y
    draws = store.open(out / "hmc").read()
    assert results["hmc"]["num_draws"] == 12
    probs = scipy.special.softmax(outputs(draws, x), axis=-1)
    reference = probs.mean(axis=(0, 1))
    rows = results["rows"]
    assert rows["HMC draws"]["agreement"] == 1
    accuracy = np.mean(reference.argmax(axis=1) == labels)
    np.testing.assert_allclose(rows["HMC draws"]["accuracy"], accuracy, atol=1e-6)
    assert accuracy > 0.8

    moved = store.open(out / "hmc-by-activations").read()
    for name, some in (("", draws), (" by activations", moved)):
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=(0, 1)), some)
        probs = scipy.special.softmax(outputs(mean, x), axis=-1)
        row = rows[f"HMC mean{name}"]
        agreement = np.mean(probs.argmax(axis=1) == reference.argmax(axis=1))
        distance = abs(probs - reference).sum(axis=1).mean() / 2
        np.testing.assert_allclose(row["agreement"], agreement, atol=0.006)
        np.testing.assert_allclose(row["total_variation"], distance, atol=1e-4)

    # The Gaussian's predictions are near those of many of its draws, made here, and
    # are those of the draws that were kept.
    std = jax.tree.map(lambda leaf: leaf.std(axis=(0, 1), ddof=1), moved)
    rng = np.random.default_rng(0)
    sampled = jax.tree.map(
        lambda m, s: m + s * rng.normal(size=(500, *m.shape)), mean, std
    )
    probs = scipy.special.softmax(outputs(sampled, x), axis=-1).mean(axis=0)
    distance = abs(probs - reference).sum(axis=1).mean() / 2
    row = rows["HMC q_r by activations"]
    np.testing.assert_allclose(row["total_variation"], distance, atol=0.05)
    kept = store.open(out / "gaussians/hmc-q_r-by-activations").read()
    probs = scipy.special.softmax(outputs(kept, x), axis=-1).mean(axis=(0, 1))
    distance = abs(probs - reference).sum(axis=1).mean() / 2
    np.testing.assert_allclose(row["total_variation"], distance, atol=1e-4)
    units = jax.tree.map(lambda w, m, s: ((w - m) / s).ravel(), kept, mean, std)
    normal = np.concatenate(jax.tree.leaves(units))
    assert scipy.stats.kstest(normal, "norm").pvalue > 1e-3


NAMES = {
    "HMC draws": "hmc",
    "ensemble members": "ensemble",
    "mean-field VI": "mfvi",
    "HMC q_d": "gaussians/hmc-q_d",
    "HMC q_r by activations": "gaussians/hmc-q_r-by-activations",
    "HMC q_r, 20 factors": "gaussians/hmc-q_r-20-factors",
    "ensemble q_r by activations to a member": (
        "gaussians/ensemble-q_r-by-activations-to-a-member"
    ),
}


def test_a_report_of_the_runs_has_the_numbers_of_the_table(reproduced, tmp_path):
    out, results = reproduced
    # One that was aligned is HMC's draws again.
    paths = [out / name for name in (*NAMES.values(), "hmc-by-weights")]
    words = [*map(str, paths), "--ood", "permuted", "--out", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["symjax", "report", *words])
        cli.main()
    found = json.loads((tmp_path / "summary.json").read_text())
    for label, name in NAMES.items():
        for measure, value in results["rows"][label].items():
            if name != "hmc" or measure == "accuracy":
                said = found["methods"][Path(name).name][measure]
                np.testing.assert_allclose(said, value, atol=1e-6, err_msg=name)
    aligned = found["methods"]["hmc-by-weights"]
    assert aligned["agreement"] == 1
    assert aligned["total_variation"] < 1e-5
    np.testing.assert_allclose(
        found["acceptance"], results["hmc"]["acceptance"], rtol=1e-6
    )
    costs = {name: one.get("gradients") for name, one in found["methods"].items()}
    steps = store.open(out / "hmc").info()["num_steps"].sum()
    assert costs["hmc"] == steps + 2 * 300
    # Epochs of members.
    assert (costs["ensemble"], costs["mfvi"], costs["hmc-q_d"]) == (900, 300, None)
    page = (tmp_path / "report.html").read_text()
    assert "The chains start at members of the ensemble. Made by scripts/xiao" in page


def test_a_run_stands_for_the_posterior_of_the_program(problem, reproduced):
    """What is rebuilt from a run gives its draws the log density that was logged."""
    run = store.open(reproduced[0] / "hmc")
    built = records.posterior_of(run)
    np.testing.assert_array_equal(built.dataset.train.x, problem.train.x)
    np.testing.assert_array_equal(built.dataset.test.y, problem.test.y)
    logged = run.info()["log_density"][:, list(run.kept)]
    draws = run.read()
    logits = outputs(draws, problem.train.x)
    chosen = np.take_along_axis(
        scipy.special.log_softmax(logits, axis=-1),
        problem.train.y[None, None, :, None],
        axis=-1,
    )
    prior = sum(
        scipy.stats.norm.logpdf(leaf).reshape(2, 12, -1).sum(axis=-1)
        for leaf in jax.tree.leaves(draws)
    )
    np.testing.assert_allclose(logged, chosen.sum(axis=(2, 3)) + prior, rtol=1e-5)


def test_chains_and_deviations_are_described(problem, reproduced):
    out, results = reproduced
    described = results["hmc"]
    info = store.open(out / "hmc").info()
    accepted = info["acceptance_rate"][:, 5:].mean()
    np.testing.assert_allclose(described["acceptance"], accepted, rtol=1e-6)
    assert described["acceptance"] > 0.5
    # Of half a unit, whatever the step size.
    lengths = info["step_size"] * info["num_steps"]
    assert np.all((lengths >= 0.5 - 1e-5) & (lengths < 0.5 + info["step_size"]))
    for how, name in (("none", "hmc"), ("weights", "hmc-by-weights")):
        weights = evaluation.summarise(store.open(out / name).read())
        shares = described["diagnostics"][how]
        assert shares["share_rhat_below_1.1"] == evaluation.share_below(
            weights.rhat, 1.1
        )
    blank = problem.train.x.max(axis=0).ravel() == 0
    for kind, name in (("q_d", "hmc"), ("q_r", "hmc-by-activations")):
        kernel = store.open(out / name).read()["params"]["Dense_0"]["kernel"]
        std = kernel.std(axis=(0, 1), ddof=1)
        found = results["deviations"][kind]
        for part, rows in (("blank", blank), ("other", ~blank)):
            median = np.median(std[rows])
            np.testing.assert_allclose(found[f"median_ratio_{part}"], median, rtol=1e-4)
    assert results["deviations"]["num_blank_pixels"] == blank.sum()
    for name in ("deviations.png", "pruning.png", "table.md"):
        assert (out / name).stat().st_size > 500


def test_the_fitted_normals_are_those_that_the_run_drew_from(
    script, problem, reproduced
):
    vi = script.fit_mfvi(problem, reproduced[0] / "mfvi")
    drawn = store.open(reproduced[0] / "mfvi").read()
    pieces = jax.tree.map(lambda w, m, s: ((w - m) / s).ravel(), drawn, *vi[:2])
    normal = np.concatenate(jax.tree.leaves(pieces))
    assert scipy.stats.kstest(normal, "norm").pvalue > 1e-3


def test_pruning_starts_at_the_network_and_sets_the_widest_to_zero(problem, reproduced):
    out, results = reproduced
    whole = results["rows"]["HMC mean by activations"]["accuracy"]
    curve = results["pruning"]["HMC mean, by HMC"]
    assert curve[0] == whole
    moved = store.open(out / "hmc-by-activations").read()
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=(0, 1)), moved)
    std = jax.tree.map(lambda leaf: leaf.std(axis=(0, 1)), moved)
    every = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(std)])
    half = jax.tree.map(lambda m, s: m * (s < np.median(every)), mean, std)
    predicted = outputs(half, problem.test.x).argmax(axis=-1)
    accuracy = np.mean(predicted == problem.test.y)
    # One weight may be on the other side of the median.
    np.testing.assert_allclose(curve[5], accuracy, atol=0.011)
    assert curve[5] < whole


def test_weights_of_blank_pixels_alone_become_zero(scripts, problem):
    ones = jax.tree.map(np.ones_like, problem.init(problem.key))
    kept = scripts.evaluation.without_blank(problem, gaussian.Gaussian(ones, ones))
    blank = problem.train.x.max(axis=0).ravel() == 0
    assert 0 < blank.sum() < 64
    for part in (kept.mean["params"], kept.std["params"]):
        kernel = part["Dense_0"].pop("kernel")
        np.testing.assert_array_equal(kernel, np.tile(~blank[:, None], (1, 8)))
        assert all(np.all(leaf == 1) for leaf in jax.tree.leaves(part))


def test_alignment_goes_on_with_new_draws(scripts, problem, reproduced, tmp_path):
    out, _ = reproduced
    source = store.open(out / "hmc")
    match = scripts.compact.matchers(problem)["weights"]
    for count in (5, 12):
        as_of_then = {"committed": store.Commit(5 + count, count, has_state=True)}
        fields = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
        so_far = type("SoFar", (store.Run,), as_of_then)(**fields)
        kept = scripts.runs.align(
            problem, tmp_path / "run", so_far, "weights", match, source
        )
        assert kept.committed[:2] == (count, count)
        assert kept.committed.finished == (count == 12)
    whole = store.open(out / "hmc-by-weights")
    jax.tree.map(np.testing.assert_array_equal, kept.read(), whole.read())
    assert kept.info()["permutations/0"].shape == (2, 12, 8)


def test_transpositions_are_counted_between_draws(scripts):
    turned, back = [1, 2, 0, 3], [2, 0, 1, 3]
    chain = np.array([[[0, 1, 2, 3], [1, 0, 2, 3], turned, back]])
    found = scripts.evaluation.count_transpositions(chain)
    # From one to the next: a swap, a swap, and a cycle of three.
    assert found == {"to_reference": 5 / 4, "a_draw": pytest.approx(4 / 3)}


def test_permuted_starts_lead_to_permuted_networks(scripts, problem):
    results = scripts.transpositions.experiment(problem)
    trials = results["trials"]
    assert [trial["given"] for trial in trials] == [0, 0, 1, 2, 3, 4, 5, 6, 7]
    # Batches differ, or the first trial would be of two equal networks.
    assert trials[0]["distance"] > 0.01
    assert [trial["found"] for trial in trials] == [trial["given"] for trial in trials]
    far, near = (
        [trial[name] for trial in trials[2:]]
        for name in ("distance", "distance_matched")
    )
    assert max(near) < min(far)
    as_they_are, aligned = results["along"].values()
    assert as_they_are[0] == 0 < as_they_are[-1]
    assert aligned[0] == aligned[-1] == 0
    panels = scripts.transpositions.draw(results).axes
    assert [list(line.get_ydata()) for line in panels[2].lines] == [
        as_they_are,
        aligned,
    ]
    assert scripts.transpositions.table(trials).count("\n") == 2 + 9


def test_deviations_are_shares_of_each_leaf():
    rng = np.random.default_rng(0)
    before = {"kernel": rng.uniform(0.5, 1.5, (40, 50)), "bias": rng.uniform(0, 1, 10)}
    after = jax.tree.map(lambda leaf: leaf / 2, before)
    prior = {"kernel": 1.0, "bias": 2.0}
    figure = compact.deviations(before, after, prior)
    for ax, (name, values) in zip(figure.axes, before.items(), strict=True):
        heights = np.array([bar.get_height() for bar in ax.patches[:-1]])
        np.testing.assert_allclose(heights.sum(), 1)
        edges = [bar.get_x() for bar in ax.patches[:-1]]
        first = np.searchsorted(edges, values.min(), side="right") - 1
        assert heights[first] > 0
        assert not heights[:first].any()
        outline = ax.patches[-1].get_xy()
        reached = outline[outline[:, 1] > 0, 0].max() - after[name].max()
        assert 0 <= reached < 1.001 * edges[1]
        assert np.asarray(ax.lines[0].get_xdata())[0] == prior[name]


def test_other_settings_do_not_continue_a_run(scripts, reproduced):
    other = scripts.problem.build("digits", "tiny", 1)
    with pytest.raises(ValueError, match="`options.seed` must stay 0"):
        scripts.compact.reproduce(other, reproduced[0], minutes=1.0)


def test_what_is_no_images_with_classes_is_refused(scripts):
    with pytest.raises(SystemExit, match=r"`--data`: .* shape \(13,\) are no images"):
        scripts.problem.build("wine", "tiny", 0)
