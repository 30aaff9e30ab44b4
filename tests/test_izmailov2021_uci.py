"""The UCI program: its posteriors, scores and tables, far below its smallest scale."""

import importlib
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.datasets
import sklearn.model_selection
import sklearn.preprocessing

from symjax import densities, posterior, run, store
from symjax.cli import costs, members, records
from symjax.types import Data


@pytest.fixture(scope="module")
def scripts():
    """The modules, which import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        main = importlib.import_module("izmailov2021_uci")
    return SimpleNamespace(
        main=main,
        hmc=main.hamiltonian,
        warmup=main.hamiltonian.warmup,
        whitening=main.hamiltonian.whitening,
        methods=main.methods,
        problems=main.problems,
        scores=main.scores,
    )


@pytest.fixture(scope="module")
def reproduced(scripts, tmp_path_factory):
    """The folder of a run of all methods on diabetes."""
    out = tmp_path_factory.mktemp("uci")
    scale = scripts.methods.Scale(2, 2, 0.05, 0.05, 2, (20,), (1e-6, 1e6), 500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scripts.main.SCALES, "tiny", scale)
        words = f"uci --scale tiny --data diabetes --out {out}"
        patch.setattr("sys.argv", [*words.split(), "--minutes", "1e-9"])
        with pytest.raises(SystemExit, match=r"diabetes, hmc: .* Call again to go on"):
            scripts.main.main()
        again = ["--methods", "hmc", "--num-leapfrogs", "3"]
        patch.setattr("sys.argv", [*words.split(), *again])
        with pytest.raises(SystemExit, match="hmc was made with other options"):
            scripts.main.main()
        patch.setattr("sys.argv", [*words.split(), "--minutes", "0"])
        with pytest.raises(SystemExit, match="`minutes` must be a positive number"):
            scripts.main.main()
        patch.setattr("sys.argv", words.split())
        scripts.main.main()
        times = {path: path.stat().st_mtime_ns for path in out.glob("*/*.json")}
        # All is there: the second call only prints.
        scripts.main.main()
        assert times == {path: path.stat().st_mtime_ns for path in times}
        patch.setattr("sys.argv", [*words.split(), "--num-draws", "7"])
        with pytest.raises(SystemExit, match="made with other options"):
            scripts.main.main()
    return out


def network(params, x):
    """Means and noise of any draws, in NumPy, float64."""
    first, second = params["params"]["Dense_0"], params["params"]["Dense_1"]
    hidden = x @ first["kernel"].astype(float) + first["bias"][..., None, :]
    outputs = np.maximum(hidden, 0) @ second["kernel"] + second["bias"][..., None, :]
    return outputs[..., 0], np.logaddexp(0, outputs[..., 1])


def test_scores_are_those_of_the_draws_in_the_unit_of_the_targets(scripts, reproduced):
    """Against SciPy and scikit-learn, from the draws that are kept."""
    found = json.loads((reproduced / "diabetes" / "hmc.json").read_text())
    kept = store.open(reproduced / "diabetes" / "hmc").read()
    x, y_all = sklearn.datasets.load_diabetes(return_X_y=True)
    assert found["num_draws"] == 20
    functions = []
    for i, row in enumerate(found["splits"]):
        # Two chains of every split, one split after the other.
        draws = jax.tree.map(lambda leaf, i=i: leaf[2 * i : 2 * i + 2], kept)
        x_train, x_test, y_train, y = sklearn.model_selection.train_test_split(
            x, y_all, test_size=0.2, random_state=i
        )
        scaler = sklearn.preprocessing.StandardScaler().fit(x_train)
        mean, std = network(draws, scaler.transform(x_test))
        functions += [mean, np.log(std)]
        mean, std = mean * y_train.std() + y_train.mean(), std * y_train.std()
        logs = scipy.stats.norm.logpdf(y, mean, std).reshape(-1, len(y))
        log_likelihood = np.mean(scipy.special.logsumexp(logs, axis=0) - np.log(40))
        rmse = np.sqrt(np.mean((mean.mean(axis=(0, 1)) - y) ** 2))
        assert row["rmse"] == pytest.approx(rmse, rel=1e-4)
        assert row["log_likelihood"] == pytest.approx(log_likelihood, abs=3e-5)
        # One Gaussian, updated draw by draw as the paper's code does it.
        mu, var = np.zeros(len(y)), np.zeros(len(y))
        for n, (m, s) in enumerate(
            zip(mean.reshape(40, -1), std.reshape(40, -1), strict=True)
        ):
            new = mu + (m - mu) / (n + 1)
            old = var + mu**2 - new**2 if n else var
            var = old + (s**2 + m**2 - new**2 - old) / (n + 1)
            mu = new
        gaussian = scipy.stats.norm.logpdf(y, mu, np.sqrt(var)).mean()
        assert row["log_likelihood_gaussian"] == pytest.approx(gaussian, abs=3e-5)
        assert abs(gaussian - log_likelihood) > 3e-4
    functions = arviz.convert_to_dataset(np.concatenate(functions, axis=2))
    pooled = found["convergence"]["functions"]
    rhat, size = (f(functions).x.values for f in (arviz.rhat, arviz.ess))
    assert pooled["rhat_99"] == pytest.approx(np.quantile(rhat, 0.99), rel=5e-3)
    assert pooled["below_1.05"] == pytest.approx((rhat < 1.05).mean(), abs=0.02)
    assert pooled["ess_median"] == pytest.approx(np.median(size), rel=5e-3)
    summary = scripts.scores.summarise(found)["rmse"]
    values = [row["rmse"] for row in found["splits"]]
    assert summary == pytest.approx((np.mean(values), abs(np.diff(values)[0]) / 2))


def test_one_hand_calculation(scripts):
    """Targets 10 + 2 z, two draws: N(12, 2) and N(8, 4) at y = 11."""
    mean, std = (np.array(a).reshape(1, 2, 1, 1) for a in ([1.0, -1.0], [1.0, 2.0]))
    dataset = SimpleNamespace(
        target_mean=np.array([10.0]),
        target_std=np.array([2.0]),
        test=Data(np.zeros((1, 1)), np.array([[0.5]]), np.array([True])),
    )
    row = scripts.scores.of_predictions(mean, std, dataset)
    one, two = np.exp(-1 / 8) / 2, np.exp(-9 / 32) / 4
    expected = np.log((one + two) / 2 / np.sqrt(2 * np.pi))
    assert row["log_likelihood"] == pytest.approx(expected)
    # Mean 10, variance (4 + 16) / 2 + 4.
    expected = -1 / 28 - np.log(2 * np.pi * 14) / 2
    assert row["log_likelihood_gaussian"] == pytest.approx(expected)
    assert row["rmse"] == pytest.approx(1)


def test_all_methods_are_in_the_table_and_splits_are_known_to_the_report(reproduced):
    text = (reproduced / "table.md").read_text()
    table, note = text.split("\n\n")
    rows = [line.split(" | ")[1] for line in table.splitlines()[2:]]
    assert rows == ["sgd", "ensemble", "sgld", "hmc"]
    assert "what 99 % of them are below" in note
    folder = reproduced / "diabetes"
    sgld = json.loads((folder / "sgld.json").read_text())
    # Chains ran away at the other step size.
    assert sgld["held_out"]["1e+06"] is None
    assert sgld["step_size"] == 1e-6
    shapes = {"sgd": (1, 1), "ensemble": (2, 1), "sgld": (2, 100), "hmc": (2, 20)}
    biases = {}
    for name, shape in shapes.items():
        run = store.open(folder / "split-0" / name)
        biases[name] = run.read()["params"]["Dense_1"]["bias"]
        assert biases[name].shape == (*shape, 2)
        # What `symjax report` begins with.
        assert records.posterior_of(run).dataset.name == "diabetes"
        assert (members.trace(run) is None) == (name in ("sgd", "ensemble"))
        # Of all steps, those of batches of 100 of the 353 examples. The first call has
        # left HMC one block to find its mass matrices in.
        steps = {"sgld": 2 * (50 + 500), "hmc": 2 * (10 + 32 + 20) * 5}
        steps = steps.get(name, shape[0] * 20) * (1 if name == "hmc" else 100 / 353)
        built = records.posterior_of(run)
        cost = costs.full_gradients(run, records.rebuild_command(run), built)
        assert cost == pytest.approx(steps)
        said = " ".join(members.remarks([members.Member(name, run, built)]))
        assert ("Split 0 of what scripts/izmailov2021" in said) == (name in "sgld hmc")
        assert ("dense mass" in said) == (name == "hmc")
    whole = store.open(folder / "hmc").read(chains=slice(2))
    np.testing.assert_array_equal(biases["hmc"], whole["params"]["Dense_1"]["bias"])


def test_theirs_stand_beside_ours(scripts):
    scores = {"rmse": 3.2, "log_likelihood": -2.1, "log_likelihood_gaussian": -2.2}
    result = {"splits": [scores], "convergence": {"functions": None}, "seconds": 7}
    cells = scripts.scores._cells(
        "boston", "hmc", result, scripts.scores.summarise(result)
    )
    # RMSE, theirs, the likelihoods of mixture and Gaussian, theirs.
    assert cells[3:8] == ["3.2", "3.69", "-2.1", "-2.2", "-2.39"]


def test_a_noise_that_is_near_the_floor_of_the_report_leaves_no_run(
    scripts, tmp_path, capsys
):
    apply = lambda p, x: jnp.concatenate([p["mean"] * x, p["raw"] + 0 * x], axis=-1)
    test = SimpleNamespace(x=np.ones((3, 1)))
    problem = SimpleNamespace(
        name="naval", apply=apply, datasets=[SimpleNamespace(test=test)]
    )
    noise = np.full((1, 2, 4), 0.9 * scripts.scores.NEAR * densities.SCALE_FLOOR)
    made = constant_networks(np.ones((1, 2, 4)), noise)
    scripts.scores.keep_first(problem, tmp_path, "hmc", made)
    assert "No run of naval's hmc for symjax report" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert scripts.scores.NEAR >= 20  # 5 % of the noise


def test_the_likelihood_has_no_floor(scripts):
    outputs = np.array([[0.3, -12.0], [1.0, 2.0]])
    found = scripts.problems.likelihood(
        jnp.asarray(outputs), jnp.array([[0.30001], [0]])
    )
    noise = np.log1p(np.exp(outputs[:, 1]))
    expected = scipy.stats.norm.logpdf([0.30001, 0], outputs[:, 0], noise)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    assert noise[0] < densities.SCALE_FLOOR


@pytest.fixture(scope="module")
def linear(scripts):
    """Two linear regressions in one problem, with the normals of their posteriors."""
    rng = np.random.default_rng(0)
    size, noise, variance = 40, 0.5, 2.0
    x = rng.normal(size=(2, size, 2)).astype(np.float32)
    # Splits are twenty standard deviations apart.
    truth = np.array([[1.0, -2.0], [-0.5, 0.3]])
    y = np.einsum("snd,sd->sn", x, truth) + noise * rng.normal(size=(2, size))
    y = y.astype(np.float32)[..., None]
    apply = lambda params, x: (x @ params["w"])[:, None]
    problem = scripts.problems.Problem(
        "linear",
        "",
        [None, None],
        Data(x, y, np.ones((2, size), bool)),
        apply,
        lambda key: {"w": jax.random.normal(key, (2,))},
        posterior.build(
            apply,
            densities.prior("normal", variance=variance),
            densities.gaussian(noise),
        ),
        lambda outputs: jnp.full_like(outputs, 1 / noise**2),
        variance,
    )
    precision = x.swapaxes(1, 2) @ x / noise**2 + np.eye(2) / variance
    covariance = np.linalg.inv(precision.astype(float))
    moment = np.einsum("snd,sn->sd", x, y[..., 0]) / noise**2
    return problem, np.einsum("sij,sj->si", covariance, moment), covariance


def test_a_step_keeps_the_posterior_whatever_the_factor(scripts, linear):
    """Chains that start from draws of it, and refuse many proposals."""
    problem, centres, covariances = linear
    num_chains = 20_000
    algorithm = scripts.whitening.build(problem, 3, 0)
    rng = np.random.default_rng(0)
    # Crooked, and of another shape than the posterior's.
    factor = np.array([[0.13, 0.055], [-0.01, 0.065]], np.float32)
    train = jax.tree.map(jnp.asarray, problem.train)

    @jax.jit
    @jax.vmap
    def run(key, start):
        state = algorithm.init(key, start, train)
        keys = jax.random.split(key, 4)
        return jax.lax.scan(lambda s, k: algorithm.step(k, s, train), state, keys)

    for split, (centre, covariance) in enumerate(
        zip(centres, covariances, strict=True)
    ):
        root = np.linalg.cholesky(covariance)
        w = (centre + rng.normal(size=(num_chains, 2)) @ root.T).astype(np.float32)
        alike = lambda one: np.broadcast_to(one, (num_chains, *np.shape(one)))
        start = {"network": {"w": w}, "split": alike(split), "factor": alike(factor)}
        state, info = run(jax.random.split(jax.random.key(split), num_chains), start)
        assert 0.3 < info.is_accepted.mean() < 0.9
        # What it keeps is of the place where the next iteration's centre is.
        own = scripts.whitening.problems.own(train, split)
        tally = jax.vmap(problem.log_posterior.tally, (0, None))(state.position, own)
        kept, found = (s.value + s.rest for s in (state.inner.tally, tally))
        np.testing.assert_allclose(kept, found, rtol=1e-4, atol=1e-4)
        end = np.linalg.solve(root, (np.asarray(state.position["w"]) - centre).T)
        # Five standard errors: seven in ten million for each of five numbers.
        assert np.all(abs(end.mean(axis=1)) < 5 / num_chains**0.5)
        excess = abs(end @ end.T / num_chains - np.eye(2))
        assert np.all(excess < 5 * (1 + np.eye(2)) ** 0.5 / num_chains**0.5)


def test_hmc_of_each_split_samples_its_own_posterior(scripts, linear, tmp_path):
    """Linear regressions, against their closed form."""
    problem, centres, covariances = linear
    task = scripts.methods.Task(
        problem,
        scripts.main.SCALES["tiny"],
        scripts.methods.Setting(problem.prior_variance, 20, 20, 20, 800, 1),
        jax.random.key(0),
        {},
        tmp_path,
        tmp_path,
        None,
    )
    made = scripts.hmc.sample_hmc(task)
    assert made.told["gradients_a_chain"] == (20 + 20 + 800) * 20
    assert 0.8 < made.told["acceptance"] <= 1
    for i, (centre, covariance) in enumerate(zip(centres, covariances, strict=True)):
        draws = made.draws["w"][i, :, 50:].reshape(-1, 2)
        # Of 1,500 draws at least 200 count: five standard errors.
        error = 5 * np.sqrt(np.diag(covariance) / 200)
        assert np.all(abs(draws.mean(axis=0) - centre) < error)
        ratio = draws.var(axis=0) / np.diag(covariance)
        # What is logged is of these draws.
        for draw in (0, 799):
            w = {"w": made.draws["w"][i, 1, draw]}
            found = problem.log_posterior(w, scripts.problems.own(problem.train, i))
            logged = made.info.log_density[i, 1, draw]
            assert logged == pytest.approx(float(found), abs=1e-3)
        assert np.all(abs(ratio - 1) < 5 * np.sqrt(2 / 200))


def test_hmc_that_is_stopped_at_any_moment_ends_as_if_it_had_not_been(
    scripts, linear, tmp_path, monkeypatch
):
    problem, scale = linear[0], scripts.main.SCALES["tiny"]
    setting = scripts.methods.Setting(problem.prior_variance, 20, 3, 60, 20, 1)
    key, config = jax.random.key(0), {"data": "linear"}
    whole, stopped = (
        scripts.methods.Task(problem, scale, setting, key, config, out, out, None)
        for out in (tmp_path / "whole", tmp_path / "stopped")
    )
    expected = scripts.hmc.sample_hmc(whole)
    build, descend, calls = scripts.warmup._programs, scripts.warmup.descend, []

    def programs(task):
        begin, advance = build(task)

        def counted(key, state):
            if isinstance(state.split, jax.core.Tracer):
                return advance(key, state)
            calls.append("block")
            if calls.count("block") in (4, 8):
                os.kill(os.getpid(), signal.SIGTERM)
            if calls.count("block") in (1, 6):
                raise MemoryError
            return advance(key, state)

        return begin, counted

    def descending(*arguments):
        calls.append("descent")
        return descend(*arguments)

    monkeypatch.setattr(scripts.warmup, "_programs", programs)
    monkeypatch.setattr(scripts.warmup, "descend", descending)
    with pytest.raises(MemoryError):
        scripts.hmc.sample_hmc(stopped)
    with pytest.raises(run.Preempted, match="iteration 30 of the warm-up's 60"):
        scripts.hmc.sample_hmc(stopped)
    with monkeypatch.context() as patch:
        patch.setattr(run.loop, "SAVE_SECONDS", 0)
        with pytest.raises(MemoryError):
            scripts.hmc.sample_hmc(stopped)
    # Its last block: nothing is left to do, but the chains must not begin.
    with pytest.raises(run.Preempted, match="iteration 60 of the warm-up's 60"):
        scripts.hmc.sample_hmc(stopped)
    # Its run is laid out, but has no state yet.
    with monkeypatch.context() as patch:
        patch.setattr(run.loop, "_start", lambda programs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scripts.hmc.sample_hmc(stopped)
    with pytest.raises(SystemExit, match="hmc was made with other options"):
        scripts.hmc.sample_hmc(stopped._replace(config={"data": "other"}))
    found = scripts.hmc.sample_hmc(stopped)
    # The first block and the fifth were begun twice, the descent once.
    assert calls == ["descent", *["block"] * 8]
    jax.tree.map(np.testing.assert_array_equal, found.draws, expected.draws)
    assert found.told == expected.told
    assert [path.name for path in stopped.runs.iterdir()] == ["hmc"]


def test_mass_matrices_are_of_the_later_half_of_positions_and_in_good_time(
    scripts, linear, tmp_path, monkeypatch
):
    problem, scale = linear[0], scripts.main.SCALES["tiny"]
    setting = scripts.methods.Setting(problem.prior_variance, 20, 3, 60, 20, 1)
    rest = setting, jax.random.key(0), {}, tmp_path, tmp_path
    task = scripts.methods.Task(problem, scale, *rest, 2.0)
    make, averaged = scripts.warmup._averager, []

    def averager(problem):
        average = make(problem)
        return lambda some: averaged.append(len(some)) or average(some)

    monkeypatch.setattr(scripts.warmup, "_averager", averager)
    mesh = scripts.methods.mesh_of(scripts.methods.starts(task, scale.num_chains))
    for seconds, iterations, numbers in (
        # Of the descent, and of blocks 1, 2, 4 and the last.
        (None, 60, [1, 1, 1, 2, 3]),
        (1e-9, 10, [1, 1]),
    ):
        averaged.clear()
        folder = tmp_path / str(iterations)
        _, done = scripts.warmup.find(task, jax.random.key(0), folder, mesh, seconds)
        assert done == iterations
        assert averaged == numbers
    # Another program's blocks must not be written over.
    with store.hold(folder), pytest.raises(store.StoreError, match="being written by"):
        scripts.warmup.find(task, jax.random.key(0), folder, mesh, None)
    given = []
    monkeypatch.setattr(scripts.warmup, "find", lambda *rest: given.append(rest) or 1)
    with pytest.raises(TypeError):
        scripts.hmc.sample_hmc(task)
    assert given[0][-1] == pytest.approx(36)


def test_a_warm_up_of_other_options_is_refused(scripts, linear, tmp_path):
    path = tmp_path / "hmc-warmup"
    store.create(
        path,
        config={"data": "linear"},
        params={"w": np.zeros(2)},
        info={"x": np.zeros(())},
        num_chains=4,
        num_draws=1,
        num_iterations=10,
    )
    setting = scripts.methods.Setting(linear[0].prior_variance, 20, 3, 60, 20, 1)
    rest = {"data": "other"}, tmp_path, tmp_path, None
    task = scripts.methods.Task(
        linear[0], scripts.main.SCALES["tiny"], setting, jax.random.key(0), *rest
    )
    with pytest.raises(SystemExit, match="hmc-warmup was made with other options"):
        scripts.hmc.sample_hmc(task)


def test_examples_held_out_are_those_that_are_not_trained_on(scripts):
    x = np.arange(2 * 25.0).reshape(2, 25, 1)
    problem = SimpleNamespace(train=Data(x, -x, np.ones((2, 25), bool)))
    held = scripts.methods.hold_out(problem)
    assert held.x.shape == (2, 2, 1)
    together = np.concatenate([held.x, held.train[0]], axis=1)
    np.testing.assert_array_equal(np.sort(together, axis=1), x)
    for a, b in ((held.x, held.y), held.train[:2]):
        np.testing.assert_array_equal(a, -b)
    assert held.train[2].all()
    assert held.train[2].shape == (2, 23)


def test_splits_are_those_of_the_file_or_the_papers(scripts, data_folder):
    with np.load(data_folder / "uci" / "yacht.npz") as file:
        x, y, masks = file["x"], file["y"], file["test_mask"]
    problem = scripts.problems.build("yacht", "standard", 3, 0.1)
    assert problem.num_splits == 3
    scaler = sklearn.preprocessing.StandardScaler().fit(x[~masks[2]])
    np.testing.assert_allclose(
        problem.train.x[2], scaler.transform(x[~masks[2]]), atol=1e-5
    )
    dataset = problem.datasets[2]
    np.testing.assert_allclose(dataset.test.x, scaler.transform(x[masks[2]]), atol=1e-5)
    test = dataset.test.y * dataset.target_std + dataset.target_mean
    np.testing.assert_allclose(test, y[masks[2]], atol=1e-4)
    assert problem.log_posterior.prior.std(np.zeros(2)) == pytest.approx(0.1**0.5)
    with jax.threefry_partitionable(False):
        order = np.asarray(jax.random.permutation(jax.random.PRNGKey(1), len(x)))
    reference = scripts.problems.build("yacht", "reference", 2, 0.1).datasets[1]
    test = reference.test.y * reference.target_std + reference.target_mean
    np.testing.assert_allclose(test, y[order[int(0.9 * len(x)) :]], atol=1e-4)


def test_absent_data_are_named(scripts, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["uci", "--data", "yacht"])
    with pytest.raises(SystemExit, match="SYMJAX_DATA names the folder above uci/"):
        scripts.main.main()
    # Before the data that are there are begun with.
    words = ["--data", "diabetes", "yacht", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["uci", *words])
    begun = lambda task, method: pytest.fail(task.problem.name)
    monkeypatch.setattr(scripts.main, "reproduce", begun)
    with pytest.raises(SystemExit, match="SYMJAX_DATA names the folder above uci/"):
        scripts.main.main()
    monkeypatch.setattr("sys.argv", ["uci", "--data", "yatch"])
    with pytest.raises(SystemExit, match="must be of boston, .* got yatch"):
        scripts.main.main()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--num-splits 0", "`num_splits` must be at least 1, got 0"),
        ("--num-splits 21", "`num_splits` must be at most 20 .* `--splits reference`"),
        ("--methods", "`methods` must be of ensemble, sgld, hmc, got none"),
        (f"--seed {2**63}", f"`seed` must be .* at most 64 bits, got {2**63}"),
    ],
)
def test_what_cannot_be_is_refused_in_words(scripts, monkeypatch, words, message):
    typed = f"uci --data diabetes yacht {words}"
    monkeypatch.setattr("sys.argv", typed.split())
    with pytest.raises(SystemExit, match=message):
        scripts.main.main()


def test_numbers_that_can_be_are_not_refused(scripts):
    for options in (
        {"data": ("diabetes",), "num_splits": 21},
        {"data": ("yacht",), "num_splits": 21, "splits": "reference"},
        {"num_splits": 20, "seed": -(2**63), "minutes": 1e-9},
    ):
        scripts.main.check(scripts.main.Options(**options))


def test_a_folder_that_cannot_be_is_refused_before_hours_have_passed(
    scripts, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    fit = lambda task: pytest.fail("Hours have passed.")
    monkeypatch.setattr(scripts.methods, "fit_ensemble", fit)
    words = f"uci --scale tiny --data diabetes --out {tmp_path / 'file'}"
    monkeypatch.setattr("sys.argv", words.split())
    with pytest.raises(store.StoreError, match="Choose another"):
        scripts.main.main()


def test_a_machine_that_is_taken_away_ends_the_program_with_its_code(
    scripts, tmp_path, monkeypatch, capsys
):
    def reproduce(task, method):
        raise run.Preempted("Stopped.")

    monkeypatch.setattr(scripts.main, "reproduce", reproduce)
    words = f"uci --scale tiny --data diabetes --methods hmc --out {tmp_path}"
    monkeypatch.setattr("sys.argv", words.split())
    with pytest.raises(SystemExit) as ended:
        scripts.main.papers.start(scripts.main.main)
    assert ended.value.code == 42
    assert "diabetes, hmc: Stopped. Call again" in capsys.readouterr().err


def test_a_signal_ends_the_program_and_time_that_is_over_one_method(
    scripts, tmp_path, monkeypatch
):
    calls = []

    def reproduce(task, method):
        calls.append(method)
        raise reasons[0]("Stopped.")

    monkeypatch.setattr(scripts.main, "reproduce", reproduce)
    words = f"uci --scale tiny --data diabetes diabetes --out {tmp_path}".split()
    monkeypatch.setattr("sys.argv", [*words, "--methods", "hmc", "--minutes", "1e-9"])
    over = "1e-09 minutes were over before the first draw."
    for *reasons, expected, message in (
        (run.OutOfTime, SystemExit, ["hmc", "hmc"], over),
        (run.Stopped, run.Stopped, ["hmc"], "Stopped."),
    ):
        calls.clear()
        with pytest.raises(reasons[1], match=f": {message} Call again to go on"):
            scripts.main.main()
        assert calls == expected


@pytest.mark.parametrize("moment", ["warm-up", "draws"])
def test_ctrl_c_after_the_minutes_ends_the_program(
    moment, scripts, tmp_path, monkeypatch, capsys
):
    """In the block or chunk after which the time is over, too."""
    build, advance, sent = scripts.warmup._programs, run.loop._advance, []

    def interrupt():
        sent.append(1)
        os.kill(os.getpid(), signal.SIGINT)

    def programs(task):
        begin, advance = build(task)

        def interrupted(key, state):
            is_traced = isinstance(state.split, jax.core.Tracer)
            if not is_traced and moment == "warm-up":
                interrupt()
            return advance(key, state)

        return begin, interrupted

    def advancing(programs, plan, *rest):
        # Of the run, not of the descent before it.
        if moment == "draws" and plan.num_draws > 1:
            interrupt()
        return advance(programs, plan, *rest)

    monkeypatch.setattr(scripts.warmup, "_programs", programs)
    monkeypatch.setattr(run.loop, "_advance", advancing)
    words = f"uci --scale tiny --data diabetes diabetes --out {tmp_path}".split()
    monkeypatch.setattr("sys.argv", [*words, "--methods", "hmc", "--minutes", "1e-9"])
    with pytest.raises(SystemExit) as ended:
        scripts.main.papers.start(scripts.main.main)
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "diabetes, hmc: Stopped at iteration" in said
    assert "minutes were over" not in said
    # The second data set has not begun, and of the first nothing is lost.
    assert len(sent) == 1
    kept = store.open(tmp_path / "diabetes" / f"hmc{'-warmup' * (moment == 'warm-up')}")
    assert kept.committed.iteration > 0
    assert kept.committed.has_state


def constant_networks(means, noises):
    """Outputs of every chain's draws, which are one number each."""
    raw = np.log(np.expm1(np.array(noises)))
    return SimpleNamespace(
        draws={"mean": np.array(means)[..., None], "raw": raw[..., None]}, info=()
    )


def test_a_step_size_that_loses_a_chain_is_not_used(scripts, monkeypatch):
    """Two splits of two chains of two draws, targets of variance 1."""
    y = np.tile(np.random.default_rng(0).permutation([-1.0, 1.0] * 10), (2, 1))
    y = y[..., None].astype(np.float32)
    train = Data(y, y, np.ones((2, 20), bool))
    apply = lambda p, x: jnp.concatenate([p["mean"] * x, p["raw"] + 0 * x], axis=-1)
    problem = SimpleNamespace(train=train, num_splits=2, apply=apply)
    scale = scripts.main.SCALES["tiny"]._replace(step_sizes=(1e-3, 1e-2, 1e-1))
    setting = scripts.main.SETTINGS["diabetes"]
    task = SimpleNamespace(problem=problem, scale=scale, setting=setting)
    good = constant_networks(np.full((4, 2), 0.9), np.full((4, 2), 0.2))
    # The prediction of 1 for all, and a little better; one draw of a chain is worse.
    fair = constant_networks(np.full((4, 2), 0.1), np.full((4, 2), 1.0))
    means = np.full((4, 2), 0.9)
    means[2, 1] = 40.0
    worse = constant_networks(means, np.full((4, 2), 0.2))
    count = scripts.methods.count_lost
    # A little less than that one Gaussian says.
    poor = constant_networks(np.zeros((4, 2)), np.full((4, 2), 1.1))
    found = [count(problem, train, some.draws) for some in (good, fair, worse, poor)]
    assert found == [0, 0, 1, 4]

    made = {1e-3: (fair, fair), 1e-2: (good, worse), 1e-1: (worse, good)}

    def run_sgld(task, some, step_sizes):
        is_whole = len(some.y[0]) == 20
        return ((size, made[size][is_whole]) for size in step_sizes)

    monkeypatch.setattr(scripts.methods, "_run_sgld", run_sgld)
    told = scripts.methods.sample_sgld(task).told
    assert told["step_size"] == 1e-3
    assert told["lost"] == {"0.01": 1, "0.001": 0}
    assert told["held_out"]["0.1"] is None
    assert told["held_out"]["0.01"] > told["held_out"]["0.001"]
    made[1e-3] = (fair, None)
    with pytest.raises(scripts.methods.Lost, match="at every step size"):
        scripts.methods.sample_sgld(task)


def test_the_fisher_information_is_the_variance_of_the_score(scripts):
    """By Gauss-Hermite quadrature over the targets, in float64."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    outputs = np.array([[0.3, -6.0], [1.0, 2.0], [-2.0, 0.0]])
    raw = outputs[:, 1:]
    noise, slope = np.logaddexp(0, raw), 1 / (1 + np.exp(-raw))
    scores = nodes / noise, (nodes**2 - 1) / noise * slope
    expected = [(weights * one**2).sum(axis=1) / weights.sum() for one in scores]
    found = scripts.problems.information(jnp.asarray(outputs))
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-5)


def test_factors_are_roots_of_the_inverse_mass_matrix(scripts):
    """Of linear regressions, in which one example is masked out."""
    x = np.random.default_rng(0).normal(size=(2, 30, 3))
    # Eigenvalues differ by 10^8, which float32 would not resolve.
    x = (x + 1e4 * x[..., :1]).astype(np.float32)
    mask = np.arange(30) < np.array([[30], [29]])
    problem = SimpleNamespace(
        train=Data(x, x[..., :1], mask),
        prior_variance=0.5,
        apply=lambda params, x: (x @ params["w"])[:, None],
        init=lambda key: {"w": jnp.zeros(3)},
        information=lambda outputs: jnp.full_like(outputs, 4.0),
    )
    start = {"network": {"w": np.zeros((2, 3), np.float32)}, "split": np.arange(2)}
    information = scripts.warmup._averager(problem)([start, start])
    factors = scripts.warmup._factors(problem, information, np.array([1.0, 0.1]))
    for i, (size, count) in enumerate([(1.0, 30), (0.1, 29)]):
        rows = x[i, :count].astype(float)
        expected = 4 * rows.T @ rows + scripts.warmup.FLOOR / 0.5 * np.eye(3)
        root = factors[i].astype(float) / size
        np.testing.assert_allclose(root.T @ expected @ root, np.eye(3), atol=0.01)


def test_of_many_positions_every_nth_is_averaged_over(scripts, linear, monkeypatch):
    def information(problem, start, train):
        return jnp.full((2, 2), start["network"]["w"][0], float)

    monkeypatch.setattr(scripts.warmup, "_information", information)
    average = scripts.warmup._averager(linear[0])
    positions = [
        {"network": {"w": np.full((2, 2), i**2, np.float32)}, "split": np.arange(2)}
        for i in range(41)
    ]
    for count, step in ((1, 1), (20, 1), (21, 2), (41, 3)):
        expected = np.mean(np.arange(0, count, step) ** 2)
        np.testing.assert_allclose(average(positions[:count]), expected, rtol=1e-6)


def test_a_prior_too_wide_for_a_mass_matrix_is_refused_in_words(scripts):
    information = np.ones((1, 3, 3))  # Of rank one.
    for variance in (1.0, 1e6):
        factors = scripts.warmup._factors(
            SimpleNamespace(prior_variance=variance), information, 1.0
        )
        assert np.isfinite(factors).all()
    with pytest.raises(SystemExit, match=r"`--prior-variance` .* got 1e\+30"):
        scripts.warmup._factors(SimpleNamespace(prior_variance=1e30), information, 1.0)


def test_a_new_mass_matrix_has_the_step_size_that_was_found(scripts, linear, tmp_path):
    problem, scale = linear[0], scripts.main.SCALES["tiny"]
    setting = scripts.methods.Setting(problem.prior_variance, 20, 3, 60, 20, 1)
    rest = setting, jax.random.key(0), {}, tmp_path, tmp_path, None
    task = scripts.methods.Task(problem, scale, *rest)
    first = scripts.methods.starts(task, scale.num_chains)
    begin, advance = scripts.warmup._programs(task)
    information = np.tile(np.eye(2), (len(first["split"]), 1, 1))
    factor = scripts.warmup._factors(problem, information, 0.01)
    state, _ = advance(jax.random.key(1), begin(first | {"factor": factor}))
    # That of a chain whose steps still rise, and of one whose steps still fall.
    averages, lasts = np.array([[2.0, 0.5, 3.0, 1.5], [2.5, 0.1, 0.4, 1.5]])
    adaptation = state.inner.adaptation
    averaging = adaptation.averaging._replace(
        log_step_size=jnp.log(lasts), log_step_size_avg=jnp.log(averages)
    )
    adaptation = adaptation._replace(averaging=averaging)
    state = state._replace(inner=state.inner._replace(adaptation=adaptation))
    now = scripts.warmup.Progress(state, np.full(len(factor), 0.01, np.float32))
    mesh = scripts.methods.mesh_of(first)
    new = scripts.warmup._renewed(problem, now, information, mesh, begin)
    found = np.array([2.0, 0.1, 0.4, 1.5])
    np.testing.assert_allclose(new.scale, 0.01 * found, rtol=1e-5)
    ratio = new.state.factor[:, 0, 0] / factor[:, 0, 0]
    np.testing.assert_allclose(ratio, found, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, new.state.position, now.state.position)
