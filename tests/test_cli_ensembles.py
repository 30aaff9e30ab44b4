"""`symjax fit` of ensembles, snapshots, SWAG and dropout, as a user types it."""

import re

import numpy as np
import pytest
from commands import symjax

from symjax import store
from symjax.cli import records


WINE = ("fit", "--data", "wine", "--widths", "4", "--num-members", 2)


@pytest.mark.parametrize(
    ("words", "num_draws"),
    [
        (("--method", "snapshot", "--snapshot.num-cycles", 3), 3),
        (("--method", "swag", "--num-draws", 4, "--swag.rank", 2), 4),
        (("--method", "dropout", "--num-draws", 4), 4),
        (("--method", "ensemble", "--ensemble.optimiser", "sgd"), 1),
    ],
    ids=["snapshot", "swag", "dropout", "ensemble"],
)
def test_a_method_leaves_its_draws(words, num_draws, tmp_path):
    short = {
        "snapshot": ("--snapshot.cycle-length", 20),
        "swag": (
            *("--swag.num-steps", 60, "--swag.num-burn-in", 20),
            *("--swag.collect-every", 10),
        ),
        "dropout": ("--dropout.num-steps", 60, "--dropout.layers", "*_1/kernel"),
        "ensemble": ("--ensemble.num-steps", 60),
    }[words[1]]
    symjax(*WINE, *words, *short, "--out", tmp_path / "run")
    kept = store.open(tmp_path / "run")
    assert kept.committed.finished
    last = kept.read_leaf("params/Dense_1/kernel")
    assert last.shape == (2, num_draws, 4, 3)
    assert len(np.unique(last[..., 1, 1])) > num_draws / 2
    if words[1] == "dropout":
        assert records.rebuild_command(kept).dropout.layers == ("*_1/kernel",)


def test_a_plan_of_snapshots_counts_each_step_once(capsys):
    words = ("--snapshot.num-cycles", 3, "--snapshot.cycle-length", 20, "--dry-run")
    symjax(*WINE, "--method", "snapshot", *words)
    said = " ".join(capsys.readouterr().out.split())
    assert "20 an iteration, 60 in all for each chain" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ensemble", "--ensemble.optimiser", "sgdm"], "sgdm"),
        (["ensemble", "--num-draws", 2], "`--num-draws` must be left out for --method"),
        (["ensemble", "--swag.rank", 2], "Add --method swag"),
        (["snapshot", "--num-draws", 2], "Give --snapshot.num-cycles"),
        (
            ["snapshot", "--snapshot.num-cycles", 0],
            "`--snapshot.num-cycles` must be at least 1",
        ),
        (["dropout", "--dropout.batch-size", 143], "at most the 142 training examples"),
        (["swag", "--swag.num-steps", 1100], "`--swag.num-steps` must be at least"),
        (["swag", "--swag.rank", 1], "`--swag.rank` must be 0 or at least 2"),
        (
            ["swag", "--swag.collecting-rate", 0],
            "`--swag.collecting-rate` must be a posi",
        ),
        (["dropout", "--dropout.layers", "Dens_1"], "'Dens_1' matches none of"),
        (["dropout", "--dropout.rate", 1], "`--dropout.rate` must be above 0 and"),
    ],
)
def test_a_mistake_is_answered_before_a_run_is_made(words, message, capsys, tmp_path):
    out = tmp_path / "run"
    symjax(*WINE, "--method", *words, "--out", out, code=2)
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert message in said
    assert "Traceback" not in said
    assert not out.exists()
