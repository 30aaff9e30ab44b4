"""`symjax evaluate` of files alone: too few test points, and labels that do not fit."""

import json

import numpy as np
import pytest
from commands import symjax


@pytest.fixture
def files(tmp_path):
    """Two files of 15 rows, and their labels."""
    probs = np.random.default_rng(0).dirichlet(np.ones(3), (2, 15))
    for name, rows in zip("ab", probs, strict=True):
        np.savetxt(tmp_path / name, rows)
        np.savetxt(tmp_path / f"{name}-14", rows[:14])
    labels = np.arange(15) % 3
    np.savetxt(tmp_path / "labels", labels, fmt="%d")
    np.savetxt(tmp_path / "labels-14", labels[:14], fmt="%d")
    return tmp_path


def test_too_few_points_for_a_bin_are_told(files, capsys):
    common = ("--out", files)
    for number, code in (("-14", 2), ("", 0)):
        symjax(
            "evaluate", "--reference", files / f"a{number}", "--predictions",
            files / f"b{number}", "--labels", files / f"labels{number}", *common,
            code=code,
        )  # fmt: skip
    said = capsys.readouterr().err
    assert "There are too few points: 14 examples, for 15 bins" in said
    # Without labels nothing is put into bins, and one point is compared.
    for name in "ab":
        rows = np.loadtxt(files / name)[:1]
        np.savetxt(files / f"{name}-1", rows)
    two = ("--reference", files / "a-1", "--predictions", files / "b-1")
    symjax("evaluate", *two, *common)


def test_labels_that_do_not_fit_are_told_without_a_traceback(files, capfd):
    (files / "empty").write_text("")
    (files / "empty.npz").write_bytes(b"")
    (files / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    (files / "word").write_text("one\n" * 15)
    (files / "bytes").write_bytes(b"\xff\xfe\x00")
    np.savetxt(files / "from1", np.arange(15) % 3 + 1, fmt="%d")
    np.savetxt(files / "below", np.arange(15) % 3 - 1, fmt="%d")
    np.savez(files / "real.npz", labels=np.zeros(15))
    np.savez(files / "other.npz", classes=np.zeros(15, int))
    for name, text in {
        "empty": "must hold 15 whole numbers",
        "empty.npz": "can't be read: ",
        "broken.npz": "can't be read: ",
        "word": "can't be read: could not convert string 'one'",
        "bytes": "can't be read: ",
        "none": "none not found.",
        "from1": "must hold classes from 0 to 2, got 1 to 3",
        "below": "must hold classes from 0 to 2, got -1 to 1",
        "real.npz": "must hold 15 whole numbers",
        "other.npz": "there is no array 'labels', but classes",
        "labels-14": "must hold 15 whole numbers",
    }.items():
        symjax(
            "evaluate", "--reference", files / "a", "--predictions", files / "b",
            "--labels", files / name, "--out", files, code=2,
        )  # fmt: skip
        said = capfd.readouterr().err
        assert "`--labels`: " in said
        assert text in said, (name, said)
        assert "Warning" not in said
        assert ".." not in said.replace("../", "")


def test_probabilities_that_are_no_real_numbers_are_told(files, capfd):
    probs = np.loadtxt(files / "b")
    np.savez(files / "complex.npz", p=probs + 0j)
    symjax(
        "evaluate", "--reference", files / "a", "--predictions",
        files / "complex.npz", "--out", files, code=2,
    )  # fmt: skip
    assert "can't be read as an array of numbers" in capfd.readouterr().err


def test_files_of_one_name_are_called_by_their_folders(files, capsys):
    (files / "other").mkdir()
    np.savetxt(files / "other" / "a", np.loadtxt(files / "b"))
    words = ("--reference", files / "a", "--predictions", files / "other" / "a")
    symjax("evaluate", *words, "--out", files)
    methods = json.loads((files / "summary.json").read_text())["methods"]
    assert list(methods) == [str(files / "a"), str(files / "other" / "a")]
    symjax("evaluate", *words[:3], files / "a", "--out", files, code=2)
    assert "must have names of their own" in capsys.readouterr().err
