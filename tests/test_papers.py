"""The programs for papers: their published settings, and each at its smallest scale."""

import importlib
import io
import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz
import jax
import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import average_precision_score, roc_curve

from symjax import data, densities, evaluation, store
from symjax.cli import posteriors
from symjax.cli.problem import Problem
from symjax.run import NonFiniteError, OutOfTime, Preempted, Stopped
from symjax.samplers import izmailov2021


@pytest.fixture(scope="module", autouse=True)
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        yield


def load(name):
    return importlib.import_module(name)


def run(name, *words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, "--scale", "tiny", *map(str, words)])
        load(name).main()


def tables(out):
    found = json.loads((out / "results.json").read_text())["tables"]
    return {table["title"]: table for table in found}


@pytest.fixture(scope="module")
def imdb(tmp_path_factory):
    out = tmp_path_factory.mktemp("imdb")
    # A run whose time is over before its first draw goes on at the next call.
    with pytest.raises(SystemExit, match="no reference yet"):
        run("izmailov2021_imdb", "--parts", "--minutes", 1e-4, "--out", out)
    assert not store.open(out / "hmc").committed.num_draws
    run("izmailov2021_imdb", "--parts", "temperatures", "--out", out)
    return out


@pytest.fixture(scope="module")
def laurent(tmp_path_factory):
    out = tmp_path_factory.mktemp("laurent")
    run("laurent2024_table", "--only", "many", "--out", out)
    return out


@pytest.mark.parametrize(
    ("name", "leapfrogs", "draws", "variance", "examples"),
    [
        ("izmailov2021_cifar", 70_248, 240, 1 / 5, 40_960),
        ("izmailov2021_imdb", 24_837, 400, 1 / 40, None),
    ],
)
def test_the_scale_of_the_paper_is_its_table_3(
    name, leapfrogs, draws, variance, examples
):
    parts, papers = load("izmailov2021_parts"), load("papers")
    experiment = load(name).EXPERIMENTS["paper"]
    words = parts.runs(experiment, parts.Options())["hmc"]
    command = papers.parse(shlex.split(f"{words} {experiment.problem}"))
    assert (command.num_chains, command.num_draws) == (3, draws)
    assert (command.hmc.step_size, command.hmc.num_steps) == (1e-5, leapfrogs)
    assert (command.hmc.num_unadjusted, command.hmc.num_warmup) == (50, 0)
    assert command.problem.prior_scale**2 == pytest.approx(variance)
    assert command.problem.num_train == examples


def test_trajectories_are_as_long_as_the_published_commands_at_every_temperature():
    parts, papers = load("izmailov2021_parts"), load("papers")
    experiment = load("izmailov2021_imdb").EXPERIMENTS["paper"]
    found = parts.runs(experiment, parts.Options(parts=("temperatures",)))
    # --trajectory_len and --step_size in the README of the paper's code.
    published = {0.3: (0.136, 3e-6), 0.1: (0.078, 1e-6), 0.03: (0.043, 1e-6)}
    for temperature, (length, step_size) in published.items():
        command = papers.parse(shlex.split(found[f"temperature-{temperature}"]))
        assert command.problem.temperature == temperature
        assert command.hmc.step_size == step_size
        made = command.hmc.num_steps * step_size
        assert made == pytest.approx(length, rel=0.01)


@pytest.mark.parametrize(
    ("name", "warmer"),
    [
        ("izmailov2021_cifar", {"0.3": "hmc", "0.1": "temperature-0.3"}),
        (
            "izmailov2021_imdb",
            {"0.3": "hmc", "0.1": "temperature-0.3", "0.03": "temperature-0.1"},
        ),
    ],
)
def test_cold_chains_start_at_draws_of_the_next_warmer(name, warmer, monkeypatch):
    """Which are made before, at the temperature of the run and no other."""
    parts, papers = load("izmailov2021_parts"), load("papers")
    made = {}

    def execute(words, path, console, *, start, **other):
        command = papers.parse(shlex.split(words))
        assert start is None or start.name in made
        made[path.name] = start and (str(start), command.problem.temperature)
        assert start is None or "--start" not in words
        if start is None and words.startswith("sample --sampler hmc"):
            assert command.start == "prior"
        return True

    monkeypatch.setattr(parts.papers, "execute", execute)
    parts.make(load(name).EXPERIMENTS["small"], parts.Options(), Path("out"))
    cooled = {run: start for run, start in made.items() if start}
    assert cooled == {
        f"temperature-{temperature}": (f"out/{run}", float(temperature))
        for temperature, run in warmer.items()
    }


@pytest.mark.parametrize("is_plan", [False, True])
def test_chains_wait_for_the_warmer_ones_that_they_start_at(
    is_plan, monkeypatch, capsys
):
    """And the other runs do not, nor do plans."""
    parts, asked = load("izmailov2021_parts"), []

    def execute(words, path, console, **other):
        asked.append(path.name)
        return path.name != "temperature-0.3" and not is_plan

    monkeypatch.setattr(parts.papers, "execute", execute)
    experiment = load("izmailov2021_imdb").EXPERIMENTS["small"]
    options = parts.Options(parts=parts.SWEPT, dry_run=is_plan)
    made = parts.make(experiment, options, Path("out"))
    colder = {} if is_plan else {"0.1": "0.3", "0.03": "0.1"}
    left = {f"temperature-{name}" for name in colder}
    assert set(parts.runs(experiment, options)) - set(asked) == left
    assert set(asked) - set(made) == (set(asked) if is_plan else {"temperature-0.3"})
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("left out until the next call") == len(colder)
    for name, warmer in colder.items():
        told = f"temperature-{name} is left out until .* draws of temperature-{warmer},"
        assert re.search(told, said)


def test_folders_with_spaces_are_compared(tmp_path, monkeypatch):
    papers, text, asked = load("papers"), io.StringIO(), []
    monkeypatch.setattr(papers.results, "evaluate", lambda c, console: asked.append(c))
    paths, out = [tmp_path / "a b" / name for name in ("hmc", "sgd")], tmp_path / "c d"
    out.mkdir()
    store.write_json(out / "summary.json", {"found": 1})
    console = Console(file=text, width=1000)
    assert papers.compare(paths, "", out, console) == {"found": 1}
    assert (list(asked[0].compared.runs), asked[0].out) == (paths, out)
    assert f"evaluate '{paths[0]}' '{paths[1]}' --out '{out}'\n" in text.getvalue()


def test_a_plan_needs_no_run_to_start_at(tmp_path):
    words = "sample --data wine --widths 4 --num-chains 2 --hmc.num-steps 1"
    warm, cold, text = tmp_path / "a warm", tmp_path / "a cold", io.StringIO()
    console = Console(file=text, width=1000)
    papers = load("papers")
    assert not papers.execute(words, cold, console, start=warm, dry_run=True)
    assert f"{words} --start '{warm}' --out '{cold}'\n" in text.getvalue()
    assert "without compiling" in text.getvalue()
    assert "optimised starts" not in text.getvalue()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["izmailov2021_cifar", "izmailov2021_imdb"])
def test_another_prior_variance_is_that_of_the_run_and_its_quarter_turn(name):
    parts, papers = load("izmailov2021_parts"), load("papers")
    experiment = load(name).EXPERIMENTS["paper"]
    found = parts.runs(experiment, parts.Options(parts=("variances",)))
    assert len(found) == 1 + len(experiment.variances)
    for run, words in found.items():
        command = papers.parse(shlex.split(words))
        variance = command.problem.prior_scale**2
        wanted = experiment.variance if run == "hmc" else float(run.split("-", 1)[1])
        assert variance == pytest.approx(wanted, rel=1e-4)
        length = command.hmc.num_steps * command.hmc.step_size
        assert length == pytest.approx(np.pi / 2 * variance**0.5, rel=1e-3)


@pytest.mark.parametrize("name", ["izmailov2021_cifar", "izmailov2021_imdb"])
def test_the_time_of_a_gradient_is_refused_where_nothing_is_planned(name, tmp_path):
    with pytest.raises(SystemExit, match=r"`--gradient-ms` .* add --dry-run"):
        run(name, "--gradient-ms", 148, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("error", "code"), [(Preempted, 42), (Stopped, 1)])
def test_a_signal_ends_a_program_with_what_a_restart_mends(
    error, code, monkeypatch, tmp_path, capsys
):
    papers = load("papers")

    def execute(command, console):
        raise error("Stopped at draw 3.")

    monkeypatch.setattr(papers.chains, "execute", execute)
    words, out = "sample --data wine", tmp_path / "run"
    with pytest.raises(SystemExit) as ended, papers.ending.explained():
        papers.execute(words, out, Console(), minutes=1e-9)  # Which are over.
    said = capsys.readouterr().err
    assert re.search(r"Stopped at draw 3\.\s+Or call this program again", said)
    assert ended.value.code == code


def test_a_folder_that_cannot_be_is_refused_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(store.StoreError, match=r"make the folder .*file.* Choose"):
        load("papers").execute("sample", tmp_path / "file" / "hmc", Console())


def test_the_limit_of_time_is_that_of_hmc(monkeypatch, tmp_path):
    parts = load("izmailov2021_parts")
    experiment, limits = load("izmailov2021_cifar").EXPERIMENTS["tiny"], {}

    def execute(words, path, console, *, minutes, **others):
        limits[path.name] = minutes
        return True

    monkeypatch.setattr(parts.papers, "execute", execute)
    made = parts.make(experiment, parts.Options(minutes=6), tmp_path)
    of_methods = dict.fromkeys(experiment.methods)
    assert limits == {"hmc": 6, **of_methods} | dict.fromkeys(
        ("temperature-0.3", "prior-mixture", "prior-logistic"), 2
    )
    assert made == list(limits)


def assert_baselines_are_published(name, commands):
    """Epochs, prior variances, chains and members of the commands in their README."""
    is_cifar = name == "izmailov2021_cifar"
    epoch = (40_960 if is_cifar else 20_000) // 80
    for run, variance, members, epochs in (
        ("sgd", 1 / 10 if is_cifar else 1 / 3, 1, 500),
        ("ensemble", 1 / 10 if is_cifar else 1 / 3, 50, 500),
        ("mfvi", 1 / 5, 1, 300),
    ):
        own = getattr(commands[run], commands[run].method)
        assert commands[run].problem.prior_scale ** 2 == pytest.approx(variance)
        assert (commands[run].num_members, own.batch_size) == (members, 80)
        assert own.num_steps == epochs * epoch
        # Of the sum over examples; ours is of the mean.
        rate = 1e-4 if run == "mfvi" else 3e-7 * 80 * epoch
        assert own.learning_rate == pytest.approx(rate)
        assert run == "mfvi" or own.optimiser == "momentum"
    chains = {
        run: command
        for run, command in commands.items()
        if getattr(command, "sampler", None) == "izmailov2021"
    }
    draws = {"sgld": 900, "sghmc": 900, "sghmc_clr": 180, "sghmc_clr_prec": 180}
    assert set(chains) == (set(draws) if is_cifar else {"sgld"})
    for run, command in chains.items():
        assert command.problem.prior_scale**2 == pytest.approx(1 / 5)
        assert (command.num_chains, command.num_draws) == (5, draws[run])
        assert command.num_draws * command.thinning == 9_000 * epoch
        assert command.izmailov2021.num_warmup_epochs == 1_000


def test_the_published_numbers_are_the_papers():
    """Written down once more: nothing else would notice a wrong digit."""
    accuracies = load("izmailov2021_imdb").PUBLISHED["temperatures"]
    assert {row[4:]: one["accuracy"] for row, one in accuracies.items()} == {
        "0.03": 0.772, "0.1": 0.797, "0.3": 0.830, "1": 0.865, "3": 0.830, "10": 0.672,
    }  # fmt: skip
    methods = load("izmailov2021_cifar").PUBLISHED["methods"]
    assert {name: tuple(row.values()) for name, row in methods.items()} == {
        "ensemble": (0.9152, 0.115),
        "mfvi": (0.8875, 0.136),
        "sgld": (0.9154, 0.110),
        "sghmc": (0.9198, 0.109),
        "sghmc_clr": (0.9267, 0.099),
        "sghmc_clr_prec": (0.9096, 0.111),
        "between chains": (0.9401, 0.074),
    }
    assert load("izmailov2021_uci_scores").PUBLISHED == {
        ("boston", "hmc"): (3.69, -2.39),
        ("concrete", "hmc"): (4.46, -2.67),
        ("energy", "hmc"): (0.37, -1.09),
        ("naval", "hmc"): (1e-4, 9.6),
        ("yacht", "hmc"): (0.66, 0.54),
    }


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_the_words_of_every_method_are_understood(scale):
    parts, papers = load("izmailov2021_parts"), load("papers")
    for name in ("izmailov2021_cifar", "izmailov2021_imdb"):
        experiment = load(name).EXPERIMENTS[scale]
        chosen = parts.Options(parts=("methods", "priors"))
        commands = {
            run: papers.parse(shlex.split(f"{words} {experiment.problem}"))
            for run, words in parts.runs(experiment, chosen).items()
        }
        if scale == "paper":
            assert_baselines_are_published(name, commands)
        compared = papers.parse(["evaluate", *experiment.evaluation.split()]).compared
        assert set(compared.shift) <= set(data.SHIFT_NAMES)


@pytest.mark.parametrize("name", ["izmailov2021_cifar", "izmailov2021_imdb"])
def test_steps_of_the_small_scale_are_as_much_larger_as_examples_are_fewer(name):
    papers, module = load("papers"), load(name)
    task = "imdb" if name == "izmailov2021_imdb" else "cifar10"
    for method in ("sgld", "sghmc", "sghmc_clr"):
        words = f"{module.SMALL.methods[method]} {module.SMALL.problem}"
        command = papers.parse(shlex.split(words))
        theirs = izmailov2021.STEP_SIZES.get((method, task))
        theirs = theirs or izmailov2021.STEP_SIZES[method, "cifar10"]
        share = module.NUM_EXAMPLES / command.problem.num_train
        size = command.izmailov2021.step_size
        assert size == pytest.approx(share * theirs, rel=0.03)


def test_every_row_of_laurent_has_words_that_are_understood():
    papers, laurent = load("papers"), load("laurent2024_table")
    found = laurent.commands(*laurent.SCALES["paper"])
    assert set(found) == set(laurent.ROWS)
    for scale, _ in laurent.SCALES.values():
        compared = papers.parse(["evaluate", *scale.evaluation.split()]).compared
        assert compared.ood
        assert set(compared.ood) <= set(data.OOD_NAMES)
    assert papers.parse(shlex.split(found["many"])).num_members == 1024
    assert papers.parse(shlex.split(found["sghmc-one"])).num_chains == 1


@pytest.mark.parametrize("name", ["laurent2024_table", "compare_methods"])
def test_other_inputs_that_are_absent_are_named_before_anything_is_run(
    name, monkeypatch, tmp_path
):
    monkeypatch.setenv("SYMJAX_DATA", str(tmp_path))
    scales = load(name).SCALES
    absent = lambda scale: scale._replace(evaluation="--ood notmnist")
    tiny = scales["tiny"]
    is_laurent = name == "laurent2024_table"
    tiny = (absent(tiny[0]), tiny[1]) if is_laurent else absent(tiny)
    monkeypatch.setitem(scales, "tiny", tiny)
    with pytest.raises(ValueError, match=r"notmnist_test\.npz"):
        run(name, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_limit_of_time_that_is_none_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match="`minutes` must be a positive number"):
        run("laurent2024_table", "--minutes", -1, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["normal", "logistic", "mixture"])
def test_priors_of_all_families_have_the_variance(family):
    words = load("izmailov2021_words").prior(family, 0.025).split()
    scale = float(words[-1])
    options = {"scales": (scale, scale / 10)} if family == "mixture" else {}
    prior = densities.prior(family, **(options or {"scale": scale}))
    assert prior.std({"w": np.zeros(1)})["w"] ** 2 == pytest.approx(0.025, rel=1e-5)


def test_a_table_has_the_published_numbers_beside_ours():
    papers = load("papers")
    table = load("paper_tables").Table(
        "Methods",
        {"SGLD": {"accuracy": 0.9154, "R-hat": float("inf")}, "HMC": {"R-hat": 1.0}},
        {"SGLD": {"accuracy": 0.91}, "MFVI": {"accuracy": 0.5}},
    )
    assert papers.markdown(table).splitlines()[2:] == [
        "|  | accuracy | published accuracy | R-hat |",
        "| --- | ---: | ---: | ---: |",
        "| SGLD | 91.54 % | 91.00 % | ∞ |",
        "| HMC |  |  | 1.000 |",
        "| MFVI |  | 50.00 % |  |",
    ]
    (panel,) = papers.beside(table).axes
    ours, published = (line.get_xdata() for line in panel.lines)
    assert (list(ours), list(published)) == ([0.9154], [0.91, 0.5])
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == ["SGLD", "MFVI"]  # HMC has nothing to show.


def test_each_number_is_shown_as_what_it_is():
    tables = load("paper_tables")
    row = {
        "accuracy": 0.5, "AUPR, permuted": 0.25, "NLL": 0.12345, "LL": -float("inf"),
        "seconds": 12345.6, "networks": 1024.0, "MI": float("nan"), "ECE": None,
    }  # fmt: skip
    text = tables.markdown(tables.Table("T", {"a": row}, note="A note."))
    *_, shown, _, note = text.splitlines()
    assert shown == "| a | 50.00 % | 25.00 % | 0.123 | -∞ | 12,346 | 1,024 |  |  |"
    assert note == "A note."


def test_dots_and_rings_stand_at_the_rows_of_their_names():
    """From the top in the order of what was published, then ours."""
    tables = load("paper_tables")
    key, nan = "AUPR, permuted", float("nan")
    table = tables.Table(
        "T",
        {"c": {key: 0.4}, "x": {key: nan, "MI": 1.0}, "a": {key: 0.1}},
        {"a": {key: 0.2}, "b": {key: 0.3}},
    )
    (panel,) = tables.beside(table).axes
    names = [label.get_text() for label in panel.get_yticklabels()]
    ours, theirs = (
        {names[int(y)]: x for x, y in zip(*line.get_data(), strict=True)}
        for line in panel.lines
    )
    assert names == ["a", "b", "c"]
    assert ours == {"c": 0.4, "a": 0.1}
    assert theirs == {"a": 0.2, "b": 0.3}
    assert panel.yaxis_inverted()
    assert [line.get_markerfacecolor() for line in panel.lines][1] == "white"
    assert panel.xaxis.get_major_formatter()(0.25).startswith("25")
    assert tables.beside(table._replace(published={})) is None


def test_what_a_program_writes_is_all_of_it_and_json(tmp_path):
    papers, tables, text = load("papers"), load("paper_tables"), io.StringIO()
    figure = tables.beside(tables.Table("T", {}, {"a": {"MI": 1.0}}))
    table = tables.Table(
        "Methods: all", {"a": {"MI": float("inf")}}, {"a": {"MI": 0.5}}
    )
    papers.write(
        tmp_path, "A paper", [table], {"own": figure}, ["One.", "Two."],
        Console(file=text, width=100),
    )  # fmt: skip
    written = (tmp_path / "table.md").read_text()
    assert written.split("\n\n") == [
        "# A paper", "One.", "Two.", "## Methods: all",
        "|  | MI | published MI |\n| --- | ---: | ---: |\n| a | ∞ | 0.500 |",
        "![own](own.png)", "![methods-beside](methods-beside.png)\n",
    ]  # fmt: skip
    assert {file.name for file in tmp_path.glob("*.png")} == {
        "own.png", "methods-beside.png",
    }  # fmt: skip

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads((tmp_path / "results.json").read_text(), parse_constant=refuse)
    assert found["notes"] == ["One.", "Two."]
    assert found["tables"][0]["rows"] == {"a": {"MI": None}}
    assert all(word in text.getvalue() for word in ("A paper", "One.", "Two.", "0.500"))


def test_a_run_is_begun_then_continued_with_the_time_that_is_given(
    tmp_path, monkeypatch
):
    papers, made, words = load("papers"), [], "sample --data wine"
    monkeypatch.setattr(papers.chains, "execute", lambda c, _: made.append(c))
    console = Console(file=io.StringIO())
    for name in ("one", "two"):
        start = None if name == "one" else tmp_path / "one"
        assert papers.execute(words, tmp_path / name, console, start=start, minutes=2.0)
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert papers.execute(words, tmp_path / "one", console, minutes=5.0)
    assert papers.execute(words, tmp_path / "one", console)
    assert [command.out for command in made[:2]] == [tmp_path / "one", tmp_path / "two"]
    assert [command.resume for command in made] == [
        None, None, tmp_path / "one", tmp_path / "one",
    ]  # fmt: skip
    assert [command.max_minutes for command in made] == [2, 2, 5, None]
    assert made[1].start == str(tmp_path / "one")
    kept = json.loads((tmp_path / "commands.json").read_text())
    assert kept == {"one": words, "two": words}
    with pytest.raises(SystemExit, match="two was made with other options"):
        papers.execute(f"{words} --seed 1", tmp_path / "two", console)


def test_plans_of_samplers_alone_take_the_time_of_a_gradient(tmp_path, monkeypatch):
    papers, made = load("papers"), []
    monkeypatch.setattr(papers.chains, "execute", lambda c, _: made.append(c))
    console = Console(file=io.StringIO())
    for verb in ("sample", "fit"):
        path = tmp_path / verb
        options: dict[str, Any] = {"dry_run": True, "gradient_ms": 148.0}
        assert not papers.execute(f"{verb} --data wine", path, console, **options)
    assert [command.dry_run for command in made] == [True, True]
    assert made[0].estimate.gradient_ms == 148
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OutOfTime, NonFiniteError])
def test_a_run_without_draws_is_left_out_in_words(error, tmp_path, monkeypatch):
    papers, text = load("papers"), io.StringIO()

    def execute(command, console):
        raise error("Chain 1 is no more.")

    monkeypatch.setattr(papers.chains, "execute", execute)
    console = Console(file=text, width=200)
    assert papers.execute("sample", tmp_path / "run", console) is False
    assert "Warning: left out" in text.getvalue()
    assert "Chain 1 is no more." in text.getvalue()


def test_the_share_of_predictions_that_agree_is_told():
    share = {"rhat": {"function_share_below_1.05": 0.98765}}
    assert "below 1.05 for 98.8% of them" in load("papers").convergence(share)
    none = {"rhat": {"function_share_below_1.05": None}}
    assert (
        load("papers").convergence(none) == "R-hat of HMC's predictions can't be had."
    )


@pytest.mark.parametrize("verb", ["evaluate", "report"])
def test_what_is_compared_is_made_by_its_command(verb, tmp_path, monkeypatch):
    papers, made = load("papers"), []
    for name in ("evaluate", "write_report"):
        note = lambda command, console, name=name: made.append(name)
        monkeypatch.setattr(papers.results, name, note)
    store.write_json(tmp_path / "summary.json", {})
    console = Console(file=io.StringIO())
    papers.compare([tmp_path / "hmc"], "", tmp_path, console, verb=verb)
    assert made == [{"evaluate": "evaluate", "report": "write_report"}[verb]]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_wide_table_is_printed_in_parts(width):
    tables = load("paper_tables")
    measures = [f"measure number {i}" for i in range(9)]
    rows = {f"method {i}": dict.fromkeys(measures, i + 0.125) for i in range(2)}
    table = tables.Table("Methods", rows, {"method 1": {measures[0]: 3.5}}, "A note.")
    console = Console(width=width, file=io.StringIO())
    parts = list(tables.printed(table, width))
    console.print(*parts)
    text = console.file.getvalue()
    # All of them, whole.
    assert (text.count("0.125"), text.count("1.125"), text.count("3.500")) == (9, 9, 1)
    assert text.count("A note.") == 1
    assert text.count("method 0") == len(parts) - 1 == {60: 4, 80: 3, 200: 1}[width]


def test_temperatures_are_sampled_scored_and_shown(imdb):
    rows = tables(imdb)["Temperatures"]["rows"]
    published = tables(imdb)["Temperatures"]["published"]
    assert list(rows) == ["T = 1", "T = 3"]
    assert published["T = 0.03"]["accuracy"] == 0.772
    for folder, label in (("hmc", "T = 1"), ("temperature-3", "T = 3")):
        kept = store.open(imdb / folder)
        problem = kept.config["options"]["problem"]
        assert problem["temperature"] == float(label[4:])
        built = posteriors.build(Problem(**problem | {"widths": (4,)}))
        draws = kept.read(like=built.shapes)
        probs = np.array(
            [
                np.asarray(densities_of(built, draws, chain, draw))
                for chain, draw in np.ndindex(2, 10)
            ]
        )
        correct = probs.mean(axis=0).argmax(1) == built.dataset.test.y
        assert rows[label]["accuracy"] == pytest.approx(correct.mean())
        # Of two classes one has the R-hats of the other, but for rounding in its ranks.
        first = probs[..., 0].reshape(2, 10, -1)
        rhat = arviz.rhat(arviz.convert_to_dataset(first)).x
        found = rows[label]["R-hat"]
        assert found == pytest.approx(np.quantile(np.repeat(rhat, 2), 0.99), rel=5e-3)
    assert (imdb / "sweep.png").exists()
    assert (imdb / "temperatures-beside.png").exists()


def densities_of(built, draws, chain, draw):

    params = jax.tree.map(lambda leaf: leaf[chain, draw], draws)
    return jax.nn.softmax(built.apply(params, built.dataset.test.x))


def test_a_second_call_skips_what_is_finished_and_refuses_other_options(imdb, capsys):
    before = (imdb / "hmc" / "commit.json").stat().st_mtime_ns
    run("izmailov2021_imdb", "--parts", "temperatures", "--out", imdb)
    assert capsys.readouterr().out.count("is finished") == 2
    assert (imdb / "hmc" / "commit.json").stat().st_mtime_ns == before
    with pytest.raises(SystemExit, match="other options"):
        run("izmailov2021_imdb", "--seed", 1, "--out", imdb)


@pytest.mark.parametrize("name", ["izmailov2021_cifar", "laurent2024_table"])
def test_methods_that_are_none_are_told(name, tmp_path):
    with pytest.raises(SystemExit, match="got 'ensembel'. Did you mean ensemble"):
        run(name, "--only", "ensembel", "--out", tmp_path)
    assert not list(tmp_path.iterdir())


def test_methods_and_corruptions_are_compared_with_hmc(tmp_path):
    words = ("--parts", "methods", "corruption", "--only", "sghmc_clr")
    run("izmailov2021_cifar", *words, "--out", tmp_path)
    found = tables(tmp_path)
    rows = found["Methods"]["rows"]
    assert list(rows) == ["hmc", "sghmc_clr", "between chains"]
    assert 0 <= rows["sghmc_clr"]["total variation"] <= 1
    assert found["Methods"]["published"]["between chains"]["agreement"] == 0.9401
    summary = json.loads((tmp_path / "summary.json").read_text())["methods"]
    assert rows["hmc"]["MI"] == summary["hmc"]["mutual_information"]
    for heading, measure in (("accuracy", "accuracy"), ("NLL", "nll")):
        assert found[f"Corruption: {heading}"]["rows"]["rotate"] == {
            f"{heading}, {name}": summary[name]["shift"]["rotate"]["mean"][measure]
            for name in ("hmc", "sghmc_clr")
        }


def test_methods_are_compared_with_many_networks_and_with_hmc(laurent):
    found = tables(laurent)
    distances = found["Distances"]["rows"]
    assert list(distances) == ["many networks", "HMC"]
    assert "HMC's predictions is below 1.05 for" in found["Distances"]["note"]
    for row, other in (("many networks", "HMC"), ("HMC", "many networks")):
        for measure in ("MMD", "symmetry-free MMD"):
            assert np.isfinite(distances[row][f"{measure}, to {other}"])
    weights = [
        np.concatenate(
            [leaf.reshape(-1, leaf[0, 0].size) for leaf in jax.tree.leaves(draws)], 1
        )
        for draws in (store.open(laurent / name).read() for name in ("many", "hmc"))
    ]
    mmd = evaluation.mmd(*weights)
    assert distances["HMC"]["MMD, to many networks"] == pytest.approx(mmd, rel=1e-4)
    measures = {"ECE", "ACE", "Brier", "AUPR, permuted", "FPR95, permuted"}
    assert measures <= set(found["Quality"]["rows"]["HMC"])
    assert (laurent / "pairwise-mi.png").exists()
    assert (laurent / "minimum-norm.png").exists()


def test_other_inputs_are_what_aupr_counts_as_positive(laurent):
    """Against scikit-learn, by one minus the largest mean probability."""
    built = posteriors.build(Problem(data="digits", widths=(8,), activation="relu"))
    draws = store.open(laurent / "hmc").read(like=built.shapes)
    dataset = built.dataset
    other = data.load_ood("permuted", like=dataset)
    scores = [
        1
        - evaluation.probs_from_logits(
            evaluation.predict(built.apply, draws, part.x)
        ).max(axis=-1)
        for part in (dataset.test, other)
    ]
    is_other = np.repeat([False, True], [len(part) for part in scores])
    row = tables(laurent)["Quality"]["rows"]["HMC"]
    aupr = average_precision_score(is_other, np.concatenate(scores))
    assert row["AUPR, permuted"] == pytest.approx(aupr, abs=1e-3)
    # Other inputs taken for test inputs, where 95 % of these are found.
    fpr, tpr, _ = roc_curve(~is_other, -np.concatenate(scores))
    assert row["FPR95, permuted"] == pytest.approx(fpr[tpr >= 0.95][0], abs=0.01)


def test_networks_of_the_ensemble_are_none_of_the_many(laurent):
    seeds = {
        run: command.split("--seed ")[1]
        for run, command in json.loads((laurent / "commands.json").read_text()).items()
    }
    assert seeds == {"many": "1", "hmc": "0"}


def test_the_gap_to_the_least_norm_is_that_of_the_closed_form(laurent):
    found = load("laurent2024_table").networks(laurent / "many")
    kept = store.open(laurent / "many")
    first, second = (kept.read()["params"][f"Dense_{layer}"] for layer in (0, 1))
    # Of one hidden layer of relu: each unit's norms in and out become equal.
    incoming = np.sum(first["kernel"] ** 2, axis=2) + first["bias"] ** 2
    outgoing = np.sum(second["kernel"] ** 2, axis=3)
    shared = np.sum(second["bias"] ** 2, axis=2)
    before = (incoming + outgoing).sum(axis=2) + shared
    least = 2 * np.sqrt(incoming * outgoing).sum(axis=2) + shared
    np.testing.assert_allclose(found["gap"], np.ravel(before / least - 1), rtol=1e-4)
    assert len(found["pairs"][0]) == 8 * 7 // 2


def test_the_first_examples_of_a_data_set_are_taken():
    problem = Problem(data="digits", widths=(2,))
    whole = posteriors.build(problem).dataset
    some = posteriors.build(replace(problem, num_train=10, num_test=7)).dataset
    np.testing.assert_array_equal(some.train.x, whole.train.x[:10])
    np.testing.assert_array_equal(some.test.y, whole.test.y[:7])
    assert some.fingerprint != whole.fingerprint
    with pytest.raises(ValueError, match="--num-test.*1 and the 360.*got 361"):
        posteriors.build(replace(problem, num_test=361))


def test_tables_of_the_methods_take_each_number_from_its_place(monkeypatch):
    module = load("izmailov2021_tables")
    keys = [
        *("accuracy", "nll", "ece", "agreement", "total_variation"),
        *("mutual_information", "seconds"),
    ]
    methods = {}
    for start, name in enumerate(("hmc", "sgld")):
        row: dict[str, Any] = {key: 10 * start + i for i, key in enumerate(keys)}
        row["shift"] = {
            shift: {
                "5": {"accuracy": -1.0, "nll": -1.0},
                "mean": {"accuracy": 100 * start + j, "nll": 100 * start + j + 0.5},
            }
            for j, shift in enumerate(("fog", "snow"))
        }
        methods[name] = row
    ceiling = {"agreement": 0.9, "total_variation": 0.05, "errors": {}}
    rhat = {"function_share_below_1.05": 0.987}
    summary = {"methods": methods, "between_chain": ceiling, "rhat": rhat}
    monkeypatch.setattr(module.papers, "compare", lambda *_: summary)
    first, accuracy, nll = module.compared([Path("runs/hmc")], "", {"sgld": {}})
    titles = ["accuracy", "NLL", "ECE", "agreement", "total variation", "MI", "seconds"]
    assert first.rows["sgld"] == dict(zip(titles, range(10, 17), strict=True))
    assert first.rows["between chains"] == {"agreement": 0.9, "total variation": 0.05}
    assert "98.7%" in first.note
    assert accuracy.title == "Corruption: accuracy"
    assert accuracy.rows["snow"] == {"accuracy, hmc": 1, "accuracy, sgld": 101}
    assert nll.rows["fog"] == {"NLL, hmc": 0.5, "NLL, sgld": 100.5}
    del methods["hmc"]["shift"]
    assert len(module.compared([Path("runs/hmc")], "", {})) == 1


def test_a_swept_table_has_the_runs_that_are_there():
    module = load("izmailov2021_tables")
    point = module.Point(
        1.0, 0.2, 0.04, "a", 1.02, {"nll": 0.3, "accuracy": 0.9, "ece": 0.01}, {}
    )
    table = module.swept("Part", {"b": "T 2", "a": "T 1"}, {"a": point}, {})
    wanted = {"accuracy": 0.9, "NLL": 0.3, "ECE": 0.01, "R-hat": 1.02}
    assert table.rows == {"T 1": wanted}
