"""`symjax sweep`: a run for each point of a grid, continued where it stopped."""

import csv
import json

import numpy as np
import pytest
from rich.console import Console

from symjax import evaluation, plots, store
from symjax.cli import chains, sweeps
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Problem, Sample, Sweep


def small(out, temperatures=(2.0, 1.0), **changes):
    sample = Sample(
        Problem(data=changes.pop("data", "wine"), widths=(3,)),
        hmc=Hmc(step_size=0.05, trajectory_length=0.2, num_warmup=3),
        num_chains=2,
        num_draws=4,
        start="init",
        out=out,
    )
    for name, value in changes.items():
        object.__setattr__(sample, name, value)
    return Sweep(sample, temperatures, (0.5,))


def test_a_sweep_scores_every_run_and_goes_on(tmp_path, monkeypatch):
    out = tmp_path / "sweep"
    console = Console(quiet=True)
    sweeps.sweep(small(out, (1.0,)), console)
    begun = []
    execute = chains.execute
    monkeypatch.setattr(
        chains, "execute", lambda c, console: (begun.append(c), execute(c, console))
    )
    sweeps.sweep(small(out), console)
    # The finished run is asked for by its folder, and only the new one is made.
    assert [command.resume is None for command in begun] == [False, True]
    rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    assert [float(row["temperature"]) for row in rows] == [1, 2]
    points = json.loads((out / "sweep.json").read_text())["points"]
    for row, point in zip(rows, points, strict=True):
        kept = store.open(out / row["run"])
        problem = chains.rebuild_command(kept).problem
        assert problem.temperature == float(row["temperature"])
        assert problem.prior_scale == float(row["prior_scale"]) == 0.5
        built = chains.posterior_of(kept)
        test = built.dataset.test
        logits = evaluation.predict(built.apply, kept.lazy(built.shapes), test.x)
        powers = np.exp(np.asarray(logits, float))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        true = probs[..., np.arange(len(test.y)), test.y]
        nll = -np.log(true.mean(axis=(0, 1))).mean()
        np.testing.assert_allclose(float(row["nll"]), nll, rtol=1e-5)
        by_chain = -np.log(true.mean(axis=1)).mean(axis=1)
        np.testing.assert_allclose(point["chain_scores"]["nll"], by_chain, rtol=1e-5)
    assert (out / "sweep.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match=r"other options \(num_draws\)"):
        sweeps.sweep(small(out, num_draws=5), console)


def test_wrong_grids_are_explained(tmp_path):
    console = Console(quiet=True)
    for command, message in (
        (small(tmp_path, (0.0,)), "temperatures.*positive"),
        (small(tmp_path, (float("inf"),)), "temperatures"),
        (small(None), "`--out` must name"),
        (small(tmp_path, resume=tmp_path), "`--resume` is of symjax sample"),
        (
            small(tmp_path, problem=Problem(temperature=0.5)),
            "`--temperatures` and `--temperature` must not both",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            sweeps.sweep(command, console)
    assert not list(tmp_path.iterdir())


def test_the_picture_marks_bayes_and_the_best():
    scores = {"rmse": [3.0, 1.0, 2.0, 4.0], "nll": [1.0, 2.0, 3.0, 0.5]}
    of_chains = {name: [[v, v + 1] for v in values] for name, values in scores.items()}
    fig = plots.sweep([0.1, 1.0, 0.1, 1.0], [1.0, 1.0, 3.0, 3.0], scores, of_chains)
    assert [ax.get_xlabel() for ax in fig.axes[2:]] == [
        "temperature T",
        "prior variance (scale²)",
    ]
    assert all(ax.get_xscale() == "log" for ax in fig.axes)
    rings = [line for line in fig.axes[0].lines if line.get_markersize() == 9]
    assert [np.ravel(ring.get_data()).tolist() for ring in rings] == [
        [1.0, 1.0],
        [0.1, 2.0],
    ]
    lines = fig.axes[0].lines
    assert [1, 1] in [np.asarray(line.get_xdata()).tolist() for line in lines]
