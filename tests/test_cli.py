"""The commands as a user types them: what they leave, and what they say."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import symjax

from symjax import run, store
from symjax.cli import demo, plan, records, results, surfaces
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Sample, rebuild
from symjax.cli.problem import Problem
from symjax.cli.stochastic import Sghmc
from symjax.run import loop


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A short HMC run, an ensemble and SGHMC on wine, made by the commands."""
    folder = tmp_path_factory.mktemp("runs")
    wine = ("--data", "wine", "--widths", "4")
    symjax(
        "sample", *wine, "--num-chains", 2, "--num-draws", 30, "--map-steps", 50,
        "--hmc.trajectory-length", 0.2, "--hmc.num-warmup", 10,
        "--out", folder / "hmc",
    )  # fmt: skip
    symjax(
        "fit", *wine, "--num-members", 3, "--ensemble.num-steps", 100,
        "--out", folder / "ensemble",
    )  # fmt: skip
    symjax(
        "sample", *wine, "--sampler", "sghmc", "--sghmc.num-warmup", 50,
        "--sghmc.batch-size", 32, "--num-chains", 2, "--num-draws", 20,
        "--thinning", 5, "--start", "init", "--out", folder / "sghmc",
    )  # fmt: skip
    return folder


def test_a_run_records_what_it_is_of(runs):
    kept = store.open(runs / "hmc")
    assert kept.committed == store.Commit(40, 30, True, True)
    assert kept.config["command"] == "sample"
    assert kept.config["options"]["problem"]["data"] == "wine"
    assert len(kept.config["data_fingerprint"]) == 64
    assert kept.environment["jax"]
    assert kept.read_leaf("params/Dense_0/kernel").shape == (2, 30, 13, 4)
    again = records.rebuild_command(kept)
    assert again.hmc == Hmc(trajectory_length=0.2, num_warmup=10)
    assert again.problem == Problem(data="wine", widths=(4,))


def test_a_report_compares_the_runs_and_writes_page_and_summary(runs, tmp_path):
    paths = [runs / name for name in ("hmc", "ensemble", "sghmc")]
    symjax("report", *paths, "--out", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["methods"]) == {"hmc", "ensemble", "sghmc"}
    for name, scores in summary["methods"].items():
        assert 0.5 < scores["accuracy"] <= 1
        assert scores["nll"] > 0
        assert 0 <= scores["ece"] <= 1
        if name != "hmc":
            assert 0.5 < scores["agreement"] <= 1
            assert 0 < scores["total_variation"] < 1
    assert 0 < summary["between_chain"]["agreement"] <= 1
    assert set(summary["rhat"]) == {
        "function_share_below_1.05",
        "weight_share_below_1.05",
    }
    assert 0 < summary["acceptance"] <= 1
    assert summary["seconds"] > 0
    page = (tmp_path / "report.html").read_text()
    assert "Reference posterior: wine" in page
    assert page.count("data:image/") >= 6
    assert "On the plane through three draws" in page
    assert "weights, aligned" in page


def test_chains_that_stand_still_span_no_plane(runs):
    kept = store.open(runs / "hmc")
    built = records.posterior_of(kept)
    draws = kept.read(draws=[3, 3], like=built.shapes)
    (line,) = surfaces.pictures(draws, draws, built)
    assert "plane" not in line.title


def test_options_reach_the_chains(runs, tmp_path):
    """Temperature, prior and seed change the draws; thinning the iterations."""

    def first(*options):
        path = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        symjax(
            "sample", "--data", "wine", "--widths", "4", "--num-chains", 2,
            "--num-draws", 2, "--hmc.num-steps", 3, "--hmc.num-warmup", 0,
            "--hmc.step-size", 1e-9,
            *(options if "--start" in options else ("--start", "init", *options)),
            "--out", path,
        )  # fmt: skip
        return store.open(path).info()["log_density"]

    plain = first()
    assert np.all(abs(plain - first("--seed", 1)) > 1e-3 * abs(plain))
    # The seed is 0 unless given.
    np.testing.assert_allclose(
        first("--temperature", 0.5, "--seed", 0), 2 * plain, rtol=1e-5
    )
    wide = first("--prior-scale", 10)
    assert np.all(wide < plain - 71 * np.log(10) + 71)
    assert store.open(runs / "sghmc").num_iterations == 50 + 20 * 5
    assert np.all(first("--start", "map", "--map-steps", 300) > plain + 10)
    still = first("--start", "map", "--map-learning-rate", 1e-9)
    np.testing.assert_allclose(still, plain, rtol=1e-5)


def test_chains_start_at_the_last_draws_of_a_run(runs, tmp_path):
    """Of the chain of their number, or of the member, and also when it is resumed."""
    options = (
        "--data", "wine", "--widths", 4, "--hmc.num-steps", 1, "--hmc.num-warmup", 0,
        "--hmc.step-size", 1e-9, "--num-draws", 2,
    )  # fmt: skip
    for name, number in (("hmc", 2), ("hmc", 1), ("ensemble", 2)):
        out = tmp_path / f"{name}{number}"
        symjax(
            "sample", *options, "--num-chains", number, "--start", runs / name,
            "--temperature", 0.1, "--out", out,
        )  # fmt: skip
        for leaf in (kept := store.open(runs / name)).leaves:
            first = store.open(out).read_leaf(leaf)[:, 0]
            last = kept.read_leaf(leaf)[:number, -1]
            np.testing.assert_allclose(first, last, atol=1e-6)
        symjax("sample", "--resume", out)


@pytest.mark.parametrize(
    ("start", "more", "said"),
    [
        ("initt", (), "map, init, prior or the directory of a run.*Did you mean init?"),
        ("hmc", ("--num-chains", 3), "`--num-chains` must be 2 or less"),
        (
            "hmc",
            ("--widths", 5),
            r"the leaf params/Dense_0/bias is \(4,\), here",
        ),
        ("empty", (), "must name a finished run.*has 0 of its 2 draws"),
    ],
)
def test_starts_that_are_none_are_refused_before_a_directory_is_made(
    start, more, said, runs, tmp_path, capsys
):
    options = ("--data", "wine", "--widths", 4, "--num-chains", 2, "--num-draws", 2)
    where = runs / start if start == "hmc" else tmp_path / start
    if start == "empty":
        symjax(
            "sample", *options, "--start", "init", "--hmc.num-warmup", 100000,
            "--max-minutes", 1e-9, "--out", where, code=1,
        )  # fmt: skip
    for dry in ((), ("--dry-run",)):
        symjax(
            "sample", *options, *more, "--start", start if start == "initt" else where,
            "--out", tmp_path / "run", *dry, code=2,
        )  # fmt: skip
        assert re.search(said, " ".join(capsys.readouterr().err.split()))
        assert not (tmp_path / "run").exists()


def test_a_run_killed_before_its_first_save_starts_at_the_same_draws(
    runs, tmp_path, monkeypatch, capsys
):
    """Also from another folder, and not where they are gone."""
    warm, out = tmp_path / "warm", tmp_path / "cold"
    shutil.copytree(runs / "hmc", warm)
    monkeypatch.chdir(warm)
    symjax(
        "sample", "--data", "wine", "--widths", 4, "--hmc.num-steps", 1,
        "--hmc.num-warmup", 0, "--num-chains", 2, "--num-draws", 3,
        "--start", "../warm", "--out", "../cold",
    )  # fmt: skip
    draws = store.open(out).read_leaf("params/Dense_0/kernel")
    monkeypatch.chdir(tmp_path)
    for is_there in (True, False):
        store.write_json(out / "commit.json", store.Commit()._asdict())
        if not is_there:
            shutil.rmtree(warm)
        symjax("sample", "--resume", out, code=0 if is_there else 2)
        assert store.open(out).committed.finished == is_there
    assert "`--start` must be" in capsys.readouterr().err
    symjax("sample", "--resume", out, "--dry-run", code=2)
    store.write_json(out / "commit.json", store.Commit(3, 3, True, True)._asdict())
    again = store.open(out).read_leaf("params/Dense_0/kernel")
    np.testing.assert_array_equal(again, draws)
    symjax("sample", "--resume", out)  # It needs them no longer.


def test_evaluate_writes_the_summary_beside_the_reference(runs, capsys):
    symjax("evaluate", runs / "hmc", runs / "ensemble")
    assert (runs / "hmc" / "summary.json").exists()
    out = capsys.readouterr().out
    assert "ensemble" in out
    assert "between chains" in out


def test_list_shows_every_run_and_how_far_it_is(runs, capsys):
    symjax("list", runs)
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert out.count("finished") == 3
    assert "30 of 30" in out


def test_export_for_other_tools(runs, tmp_path):
    symjax("export", runs / "hmc", tmp_path / "draws.npz")
    with np.load(tmp_path / "draws.npz") as file:
        np.testing.assert_array_equal(
            file["draws/params/Dense_0/bias"],
            store.open(runs / "hmc").read_leaf("params/Dense_0/bias"),
        )
    symjax("export", runs / "hmc", tmp_path / "draws.csv", code=2)
    symjax("export", runs / "hmc", tmp_path / "nowhere" / "draws.npz", code=2)
    (tmp_path / "file").touch()
    symjax("evaluate", runs / "hmc", "--out", tmp_path / "file" / "x", code=1)


def test_resuming_a_finished_run_changes_nothing(runs, capsys):
    before = store.open(runs / "hmc").read_leaf("params/Dense_0/bias")
    symjax("sample", "--resume", runs / "hmc")
    assert "is finished: 30 draws" in capsys.readouterr().out
    after = store.open(runs / "hmc").read_leaf("params/Dense_0/bias")
    np.testing.assert_array_equal(before, after)


def test_what_a_signal_in_the_last_chunk_left_unsaid_is_said_on_resuming(
    tmp_path, monkeypatch, capsys
):
    """What an uninterrupted run says of its chains, none of which move."""
    words = [
        "sample", "--data", "wine", "--widths", "4", "--num-chains", 2, "--start",
        "init", "--hmc.num-warmup", 0, "--hmc.step-size", 50, "--num-draws", 20,
    ]  # fmt: skip
    symjax(*words, "--out", tmp_path / "whole")
    expected, _ = capsys.readouterr().out.split("Finished: ")
    assert expected.count("is stuck") == expected.count("diverged") == 2
    append = store.Run.append

    def append_signalled(kept, draws, start_draw, info, start_iteration, chains):
        append(kept, draws, start_draw, info, start_iteration, chains)
        if start_iteration + info.is_accepted.shape[1] == 20:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(store.Run, "append", append_signalled)
        symjax(*words, "--out", tmp_path / "run", code=42)
    assert "Stopped at iteration 20 of 20" in capsys.readouterr().err
    monkeypatch.setattr(run, "sample", None)
    symjax("sample", "--resume", tmp_path / "run")
    assert capsys.readouterr().out.endswith(f"is finished: 20 draws.\n{expected}")


def test_a_regression_end_to_end(tmp_path):
    noises = ("heteroscedastic", "learned", "0.7")
    for noise in noises:
        symjax(
            "sample", "--data", "diabetes", "--widths", "3", "--noise", noise,
            "--num-chains", 2, "--num-draws", 12, "--map-steps", 30,
            "--hmc.num-warmup", 5, "--hmc.num-steps", 5, "--out", tmp_path / noise,
        )  # fmt: skip
    symjax("report", *(tmp_path / noise for noise in noises))
    reference = json.loads((tmp_path / noises[0] / "summary.json").read_text())
    assert set(reference["methods"]) == set(noises)
    for scores in reference["methods"].values():
        # Disease progression runs from 25 to 346, its standard deviation is 77.
        assert 40 < scores["rmse"] < 90
        assert 4.5 < scores["nll"] < 7


@pytest.mark.parametrize("sampler", ["hmc", "sghmc"])
def test_a_dry_run_says_what_it_will_take_and_makes_nothing(
    tmp_path, sampler, monkeypatch, capsys
):
    timed = plan._Timed(2.0, 1000)
    monkeypatch.setattr(plan, "_time_gradient", lambda *_: timed)
    symjax(
        "sample", "--data", "wine", "--sampler", sampler, "--dry-run",
        "--num-draws", 10, "--thinning", 3, "--out", tmp_path / "run",
    )  # fmt: skip
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    warmup, leapfrogs = (50, 79) if sampler == "hmc" else (2000, 1)
    total = warmup + 30
    assert "parameters 547" in out
    assert f"iterations {total:,}, keeping 10 draws" in out
    assert f"{leapfrogs:,} an iteration, {leapfrogs * total:,} in all" in out
    # Four chains are the default; their gradients together take two seconds.
    assert f"draws on disk {547 * 4 * 4 * 10 / 1000:.1f} kB" in out
    seconds = 2 * leapfrogs * total
    said = (
        f"{seconds / 3600:.1f} hours" if sampler == "hmc" else f"{seconds / 60:.0f} min"
    )
    assert f"estimated time {said}" in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "--data", "digit"], "Did you mean digits?"),
        (["sample", "--model", "resnet"], "must be one of mlp, lenet,"),
        (["sample", "--data", "wine", "--model", "lenet"], "must hold images"),
        (["sample", "--model", "lenet", "--widths", "3"], "`widths` is no option of"),
        (["sample", "--activation", "sin"], "relu, tanh, silu, gelu"),
        (["sample", "--prior", "cauchy"], "normal, laplace"),
        (["sample", "--noise", "learnt", "--data", "diabetes"], "`--noise` must be"),
        (["sample", "--noise", "0.3"], "`--noise` is for regressions"),
        (["sample", "--temperature", "0"], "`temperature` must be a positive"),
        (
            ["sample", "--sampler", "nuts", "--force-precision", "bfloat16"],
            "must be float32 for --sampler nuts, got bfloat16",
        ),
        (["sample", "--hmc.step-size", "-1"], "`--hmc.step-size` must be a positive"),
        (["sample", "--sghmc.friction", "1"], "Add --sampler sghmc"),
        (
            ["sample", "--data", "wine", "--sampler", "sgld", "--sgld.batch-size", 500],
            "`--sgld.batch-size` must be at most the 1",
        ),
        (["sample", "--max-minutes", "0"], "`max_minutes` must be a positive"),
        (["sample", "--num-draws", "0"], "`num_draws` must be at least 1"),
        (["sample", "--num-chains", "0"], "`num_chains` must be at least 1"),
        (["fit", "--num-members", "0"], "`num_members` must be at least 1"),
        (
            ["fit", "--ensemble.batch-size", "0"],
            "`--ensemble.batch-size` must be at least 1",
        ),
        (
            ["fit", "--ensemble.num-steps", "0"],
            "`--ensemble.num-steps` must be at least 1",
        ),
        (
            ["fit", "--ensemble.learning-rate", "-1"],
            "`--ensemble.learning-rate` must be a",
        ),
        (
            ["sample", "--hmc.num-steps", "3", "--hmc.trajectory-length", "1.0"],
            "Give one of `--hmc.num-steps`",
        ),
        (["sample", "--resume", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["list", "nowhere"], "`folder` must be a folder"),
    ],
)
def test_a_mistake_is_answered_without_a_traceback(words, message, capsys, tmp_path):
    code = 1 if words[-1] == "nowhere" and words[0] != "list" else 2
    out = ("--out", tmp_path / "run") if words[0] in ("sample", "fit") else ()
    symjax(*words, *(out if "--resume" not in words else ()), code=code)
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert message in said
    assert "Traceback" not in said


def test_wrong_options_and_types_are_named(capsys):
    symjax("sample", "--num-drawz", "3", code=2)
    assert "--num-draws" in capsys.readouterr().err
    symjax("sample", "--num-draws", "three", code=2)
    assert "three" in capsys.readouterr().err


def test_a_run_killed_before_its_first_save_begins_again_alike(
    runs, tmp_path, monkeypatch, capsys
):
    """From the optimised starts, not from the model's initialisation."""

    def die(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.Run, "commit", die)
        symjax(
            "sample", "--data", "wine", "--widths", "4", "--num-chains", 2,
            "--num-draws", 30, "--map-steps", 50, "--hmc.trajectory-length", 0.2,
            "--hmc.num-warmup", 10, "--out", tmp_path / "run", code=1,
        )  # fmt: skip
    assert not store.open(tmp_path / "run").committed.has_state
    symjax("sample", "--resume", tmp_path / "run")
    path = "params/Dense_0/kernel"
    np.testing.assert_array_equal(
        store.open(tmp_path / "run").read_leaf(path),
        store.open(runs / "hmc").read_leaf(path),
    )


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        pytest.param(
            *("sms_ubu", ["num-warmup", 20, "batch-size", 32, "anchor", "start"]),
            marks=pytest.mark.slow,
        ),
        ("izmailov2021", ["num-warmup-epochs", 20, "method", "sghmc_clr_prec"]),
    ],
)
def test_a_run_ends_with_what_it_has_when_its_time_is_up(
    tmp_path, runs, sampler, options, monkeypatch, capsys
):
    """Stopped before its first draw, and resumed for too short a time for them all."""

    def timer(seconds):
        answers = iter([False] * 15)
        return lambda: seconds is not None and next(answers, True)

    typed = [f"--{sampler}.{word}" if isinstance(word, str) and i % 2 == 0 else word
             for i, word in enumerate(options)]  # fmt: skip
    symjax(
        "sample", "--data", "wine", "--widths", "4", "--sampler", sampler, *typed,
        "--num-chains", 2, "--num-draws", 10_000_000, "--thinning", 20,
        "--start", "init", "--max-minutes", 1e-9, "--out", tmp_path / "run", code=1,
    )  # fmt: skip
    assert "--resume" in capsys.readouterr().err
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(loop, "_timer", timer)
    symjax("sample", "--resume", tmp_path / "run", "--max-minutes", 0.05)
    committed = store.open(tmp_path / "run").committed
    assert committed.finished
    assert 0 < committed.num_draws < 10_000_000
    assert committed.iteration == 20 + 20 * committed.num_draws
    symjax("list", tmp_path)
    assert "finished" in capsys.readouterr().out
    symjax("report", runs / "hmc", tmp_path / "run", "--out", tmp_path / "page")
    assert (tmp_path / "page" / "report.html").exists()


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=64"}, "256"),
        ({"JAX_NUM_CPU_DEVICES": "64"}, "256"),
        ({"JAX_NUM_CPU_DEVICES": "1"}, None),
        ({"JAX_NUM_CPU_DEVICES": "64", "NPROC": "3"}, "3"),
        ({}, None),
    ],
)
def test_virtual_devices_get_threads(variables, threads, tmp_path, monkeypatch):
    """Before anything else is done; JAX itself runs long since, here."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "NPROC"):
        monkeypatch.setenv(name, "")  # So that it is as it was, after the test.
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    symjax("list", tmp_path)
    assert os.environ.get("NPROC") == threads


def test_resume_takes_no_other_options(runs, capsys, tmp_path):
    # The last ones are defaults: of the command, though not of the run.
    for others in (
        "--num-draws 50",
        "--num-draws 200",
        "--start map --hmc.num-warmup 50",
    ):
        symjax("sample", *others.split(), "--resume", runs / "hmc", code=2)
        said = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert f"takes all options from the run, got {others} besides" in said
    # What is planned is what is left.
    shutil.copytree(runs / "hmc", tmp_path / "run")
    done = {"iteration": 25, "num_draws": 15, "finished": False, "has_state": True}
    store.write_json(tmp_path / "run" / "commit.json", done)
    symjax("sample", f"--resume={tmp_path / 'run'}", "--dry-run")
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "iterations 15, keeping 15 draws a chain, after 25 that are done" in said
    symjax("fit", "--resume", runs / "hmc", code=2)
    assert "symjax sample --resume" in capsys.readouterr().err


def test_a_run_of_data_that_changed_is_neither_continued_nor_evaluated(
    tmp_path, capsys
):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    file, run = tmp_path / "toy.npz", tmp_path / "run"
    np.savez(file, x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    symjax("fit", "--data", file, "--ensemble.num-steps", 3, "--out", run)
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "batch-size is 128, but there are 20 training examples: each step" in said
    assert store.open(run).config["options"]["ensemble"]["batch_size"] is None
    np.savez(file, x_train=2 * x, y_train=y, x_test=x[:5], y_test=y[:5])
    for words in (["fit", "--resume", run], ["evaluate", run]):
        symjax(*words, code=2)
        said = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert "was made with other data than" in said


def test_a_run_is_never_written_over(runs, capsys):
    symjax("sample", "--data", "wine", "--out", runs / "hmc", code=1)
    assert str(runs / "hmc") in capsys.readouterr().err.replace("\n", "")


def test_runs_of_different_data_are_not_compared(runs, tmp_path, capsys):
    symjax(
        "fit", "--data", "breast_cancer", "--num-members", 2,
        "--ensemble.num-steps", 5, "--out", tmp_path / "other",
    )  # fmt: skip
    symjax("evaluate", runs / "hmc", tmp_path / "other", code=2)
    assert "must be of one data set" in capsys.readouterr().err


def test_the_demo_continues_what_it_began(tmp_path, monkeypatch, capsys):
    """The demo's own steps, at a small scale."""
    problem = Problem(data="wine", widths=(3,))
    quick = {
        "hmc": Sample(
            problem, hmc=Hmc(num_steps=5, num_warmup=5), num_chains=2, num_draws=12,
            map_steps=20,
        ),
        "sghmc": Sample(
            problem, "sghmc", sghmc=Sghmc(num_warmup=20, batch_size=16),
            num_chains=2, num_draws=12, map_steps=20,
        ),
    }  # fmt: skip
    monkeypatch.setattr(demo, "commands", lambda seed: quick)
    symjax("demo", "--out", tmp_path)
    first = json.loads((tmp_path / "summary.json").read_text())
    assert (tmp_path / "report.html").exists()
    # The page of the same runs is the same.
    monkeypatch.setattr(results, "write_page", lambda *_: None)
    symjax("demo", "--out", tmp_path)
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert said.count("is finished") == 2
    assert json.loads((tmp_path / "summary.json").read_text()) == first
    changed = {name: rebuild(Sample, {"seed": 5}) for name in quick}
    monkeypatch.setattr(demo, "commands", lambda seed: changed)
    symjax("demo", "--out", tmp_path, code=2)
    assert "was made with other options" in capsys.readouterr().err


def test_the_readme_s_program_runs(tmp_path):
    """At a smaller scale, with what it prints checked."""
    readme = Path(__file__).parents[1] / "README.md"
    code = re.search(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert code is not None
    program = code.group(1)
    for long, short in (
        ("num_steps=500", "num_steps=50"),
        ("num_draws=200", "num_draws=10"),
        ("num_warmup=50", "num_warmup=5"),
        ("trajectory_length=1.2", "trajectory_length=0.1"),
    ):
        assert long in program
        program = program.replace(long, short)
    # Compiled as in this process, but on one device.
    flags = os.environ["XLA_FLAGS"].split()
    kept = " ".join(flag for flag in flags if "device_count" not in flag)
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"XLA_FLAGS": kept},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    accuracy, share = map(float, result.stdout.split())
    assert accuracy > 0.8
    assert 0 <= share <= 1
