"""The script that compares every method, at its smallest scale."""

import csv
import importlib
import shlex
from pathlib import Path

import pytest

from symjax.cli import fitting


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
    return importlib.import_module("compare_methods")


@pytest.mark.parametrize("name", ["tiny", "digits", "mnist"])
def test_every_method_of_fit_is_compared_and_its_words_are_understood(script, name):
    words = script.commands(script.SCALES[name])
    commands = [script.papers.parse(shlex.split(line)) for line in words.values()]
    compared = {getattr(command, "method", None) for command in commands}
    assert compared - {None} == set(fitting._METHODS)


@pytest.mark.parametrize(
    "only", [("swag", "dropout"), pytest.param((), marks=pytest.mark.slow)]
)
def test_the_smallest_scale_ends_in_a_table(script, only, tmp_path, monkeypatch):
    words = ["compare_methods", "--scale", "tiny", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*words, *(["--only", *only] if only else [])])
    script.main()
    with open(tmp_path / "table.csv") as file:
        rows = list(csv.reader(file))
    text = (tmp_path / "report.html").read_text()
    expected = {"hmc", *(only or script.commands(script.SCALES["tiny"]))}
    assert {row[0] for row in rows[1:]} == expected | {"between chains"}
    assert all(name in text for name in ("permuted", "rotate", "swag"))
