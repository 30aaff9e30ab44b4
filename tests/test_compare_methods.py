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


def test_the_smallest_scale_ends_in_a_table(script, tmp_path, monkeypatch):
    words = f"compare_methods --scale tiny --out {tmp_path}"
    monkeypatch.setattr("sys.argv", words.split())
    script.main()
    with open(tmp_path / "table.csv") as file:
        rows = list(csv.reader(file))
    text = (tmp_path / "report.html").read_text()
    assert set(script.commands(script.SCALES["tiny"])) <= {row[0] for row in rows}
    assert all(name in text for name in ("permuted", "rotate", "swag"))
