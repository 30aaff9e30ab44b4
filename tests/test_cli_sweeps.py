"""`symjax sweep`: a run for each point of a grid, continued where it stopped."""

import csv
import io
import json
from typing import Any

import arviz
import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from sklearn.metrics import root_mean_squared_error

from symjax import evaluation, plots, run, store
from symjax.cli import chains, records, sweep_scores, sweeps
from symjax.cli.hyperparameters import Hmc
from symjax.cli.options import Processes, Sample, Sweep
from symjax.cli.problem import Problem
from symjax.cli.sweep_scores import Point


def small(out, temperatures=(2.0, 1.0), **changes):
    data, prior = changes.pop("data", "wine"), changes.pop("prior", "normal")
    sample = Sample(
        Problem(data=data, widths=(3,), prior=prior),
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
        problem = records.rebuild_command(kept).problem
        assert problem.temperature == float(row["temperature"])
        assert problem.prior_scale == float(row["prior_scale"]) == 0.5
        built = records.posterior_of(kept)
        test = built.dataset.test
        logits = evaluation.predict(built.apply, kept.lazy(built.shapes), test.x)
        powers = np.exp(np.asarray(logits, float))
        probs = powers / powers.sum(axis=-1, keepdims=True)
        true = probs[..., np.arange(len(test.y)), test.y]
        nll = -np.log(true.mean(axis=(0, 1))).mean()
        np.testing.assert_allclose(float(row["nll"]), nll, rtol=1e-5)
        by_chain = -np.log(true.mean(axis=1)).mean(axis=1)
        np.testing.assert_allclose(point["chain_scores"]["nll"], by_chain, rtol=1e-5)
        assert (point["rhat"], point["converged"], row["rhat"]) == (None, None, "")
        assert point["prior_variance"] == 0.25
    assert (out / "sweep.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match=r"other options \(num_draws\)"):
        sweeps.sweep(small(out, num_draws=5), console)


def test_wrong_grids_are_explained(tmp_path):
    console = Console(quiet=True)
    for command, message in (
        (small(tmp_path, (0.0,)), "temperatures.*positive"),
        (small(tmp_path, (1.0, 2e18)), "temperatures` must lie .* got 1, 2e.18"),
        (small(tmp_path, (float("inf"),)), "temperatures"),
        (small(tmp_path, (1.0, float("nan"))), "temperatures"),
        (small(None), "`--out` must name"),
        (small(tmp_path, resume=tmp_path), "`--resume` is of symjax sample"),
        (
            small(tmp_path, problem=Problem(temperature=0.5)),
            "`--temperatures` and `--temperature` must not both",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            sweeps.sweep(command, console)
    tiny = small(tmp_path, ())
    object.__setattr__(tiny, "prior_scales", (1e-19, 1.0))
    with pytest.raises(ValueError, match="prior-scales` must lie between 1e-18"):
        sweeps.sweep(tiny, console)
    assert not list(tmp_path.iterdir())


def test_a_regression_is_scored_in_its_own_units(tmp_path, monkeypatch):
    out, text = tmp_path / "sweep", io.StringIO()
    hmc = Hmc(step_size=0.01, trajectory_length=0.1, num_warmup=3)
    options = {"data": "diabetes", "prior": "laplace", "hmc": hmc, "num_draws": 10}
    command = small(out, (1.0,), **options)
    sweeps.sweep(command, Console(file=text, width=80))
    point = json.loads((out / "sweep.json").read_text())["points"][0]
    row = next(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    kept = store.open(out / row["run"])
    built = records.posterior_of(kept)
    assert built.read_outputs is not None
    outputs = evaluation.predict(
        built.apply, kept.lazy(built.shapes), built.dataset.test.x
    )
    mean, std = map(np.asarray, built.read_outputs(outputs))
    centre, unit = (
        np.asarray(getattr(built.dataset, f"target_{name}")) for name in ("mean", "std")
    )
    truth = built.dataset.test.y * unit + centre
    rmse = root_mean_squared_error(truth, mean.mean(axis=(0, 1)) * unit + centre)
    assert float(row["rmse"]) == pytest.approx(rmse, rel=1e-5)
    density = stats.norm.pdf(truth, mean * unit + centre, std * unit)
    nll = -np.log(density.mean(axis=(0, 1))).mean()
    assert float(row["nll"]) == pytest.approx(nll, rel=1e-5)
    by_chain = -np.log(density.mean(axis=1)).mean(axis=(1, 2))
    np.testing.assert_allclose(point["chain_scores"]["nll"], by_chain, rtol=1e-5)
    # 99 % of 89 are more than 88.
    found: Any = arviz.rhat({"mean": mean})
    rhat = float(found["mean"].max())
    assert float(row["rhat"]) == point["rhat"] == pytest.approx(rhat, rel=1e-4)
    assert point["converged"] == (rhat < 1.05)
    shown = text.getvalue()
    assert f"{rhat:.3f}" in shown
    assert "R-hat: that of 99 % of the predictions" in shown
    assert "--warmup auto" not in shown  # One temperature needs one step size.
    assert float(row["prior_variance"]) == stats.laplace(scale=0.5).var()
    assert (out / "sweep.png").stat().st_size > 10_000
    monkeypatch.setattr(evaluation, "predict", lambda *_: np.inf * outputs)
    assert sweep_scores.score(command.sample, kept) is None


def test_a_dry_run_shows_one_plan_and_makes_nothing(tmp_path, monkeypatch):
    text, asked = io.StringIO(), []
    monkeypatch.setattr(chains, "execute", lambda c, console: asked.append(c))
    command = small(tmp_path / "sweep", dry_run=True)
    sweeps.sweep(command, Console(file=text))
    assert "2 runs like this one" in text.getvalue()
    assert [(c.dry_run, c.out, c.problem.temperature) for c in asked] == [
        (True, None, 1.0)
    ]
    sweeps.sweep(small(None, dry_run=True), Console(quiet=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [run.Stopped, run.Preempted])
def test_a_stopped_sweep_says_how_to_go_on(kind, tmp_path, monkeypatch):
    def stop(command, console):
        raise kind("Stopped at 3.")

    monkeypatch.setattr(chains, "execute", stop)
    text = io.StringIO()
    with pytest.raises(
        run.Stopped, match=r"Stopped at 3\. Or continue the whole sweep"
    ) as stopped:
        sweeps.sweep(small(tmp_path / "sweep"), Console(file=text, width=200))
    assert stopped.type is kind  # Of which the exit code is made.
    assert "`--warmup auto`, with `--hmc.step-size` left out" in text.getvalue()
    # A run that began goes on by itself, for as long as is asked now.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    asked = []
    monkeypatch.setattr(chains, "execute", lambda c, console: asked.append(c))
    now = {"max_minutes": 2.5, "processes": Processes(chains_at_once=1)}
    planned = small(tmp_path / "run", **now).sample
    sweeps._execute(planned, Console(quiet=True))
    assert asked == [Sample(resume=tmp_path / "run", **now)]


def test_a_sweep_that_was_refused_can_be_typed_again(tmp_path):
    out = tmp_path / "sweep"
    for start, said in (("initt", "Did you mean init"), ("priorr", "mean prior")):
        with pytest.raises(ValueError, match=said):
            sweeps.sweep(small(out, start=start), Console(quiet=True))
    assert json.loads((out / "sweep.json").read_text())["options"]["start"] == "priorr"
    (out / "temperature-1-prior-scale-0.5").mkdir()
    with pytest.raises(ValueError, match=r"other options \(start\)"):
        sweeps.sweep(small(out), Console(quiet=True))


def point(temperature, nll, rhat: float | None = 1.0, **fields):
    made = Point(temperature, 1.0, 1.0, "run", rhat, {"nll": nll}, {"nll": [nll]})
    return made._replace(**fields)


def test_runs_that_diverge_are_left_out(tmp_path, monkeypatch):
    def execute(planned, console):
        if planned.problem.temperature == 1:
            raise run.NonFiniteError("Chain 0 is not finite.")

    monkeypatch.setattr(sweeps, "_execute", execute)
    monkeypatch.setattr(store, "open", lambda path: path)
    found = [None, point(3.0, 0.5)]
    monkeypatch.setattr(sweep_scores, "score", lambda planned, kept: found.pop(0))
    out, text = tmp_path / "sweep", io.StringIO()
    sweeps.sweep(small(out, (1.0, 2.0, 3.0)), Console(file=text, width=200))
    assert "left out. Chain 0 is not finite." in text.getvalue()
    assert "left out: a draw predicts what is not finite" in text.getvalue()
    points = json.loads((out / "sweep.json").read_text())["points"]
    assert [p["temperature"] for p in points] == [3]
    with pytest.raises(ValueError, match="No run of the sweep could be made"):
        sweeps.sweep(small(out, (1.0,)), Console(quiet=True))


def test_only_converged_points_are_compared():
    def said(*points):
        return list(sweep_scores.findings(list(points)))

    both = said(point(0.1, 0.2), point(1.0, 0.4), point(3.0, 0.3))
    assert both == [
        "prior scale 1: a colder posterior than T = 1 predicts better here: NLL 0.2000 "
        "at T = 0.1, 0.4000 at T = 1."
    ]
    warm = said(point(0.1, 0.2, rhat=np.inf), point(1.0, 0.4), point(3.0, 0.3))
    assert "a warmer posterior" in warm[0]
    assert warm[1:] == [
        "prior scale 1: left out of this, as the chains have not converged at T = 0.1."
    ]
    best = said(point(1.0, 0.1), point(3.0, 0.3))
    assert best == ["prior scale 1: NLL is least at T = 1, 0.1000."]
    stuck = said(point(0.1, 0.2), point(1.0, 0.4, rhat=1.05))
    assert "can't be compared, as the chains have not converged at T = 1" in stuck[0]
    unknown = said(point(0.1, 0.2, rhat=None), point(1.0, 0.4))
    assert "as R-hat is not known at T = 0.1" in unknown[0]
    assert said(point(1.0, 0.4)) == said(point(0.1, 0.4), point(0.3, 0.4)) == []
    # Each prior has its own temperatures.
    other = {"prior_scale": 2.0}
    two = said(point(1.0, 1.0), point(2.0, 2.0), point(1.0, 2.0, **other))
    assert len(two) == 1


def test_the_table_marks_points_that_have_not_converged(tmp_path):
    points = [point(0.1, 0.2, rhat=np.inf), point(1.0, 0.4, rhat=1.01)]
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, no_color=False)
    sweeps._print(points, console)
    lines = text.getvalue().splitlines()
    assert any("inf" in line and "\x1b[33m" in line for line in lines)
    assert any("1.010" in line and "\x1b[33m" not in line for line in lines)


def test_the_picture_marks_bayes_and_the_best():
    scores = {"rmse": [3.0, 1.0, 2.0, 4.0], "nll": [1.0, 2.0, 3.0, 0.5]}
    of_chains = {name: [[v, v + 1] for v in values] for name, values in scores.items()}
    grid = [0.1, 1.0, 0.1, 1.0], [1.0, 1.0, 9.0, 9.0]
    fig = plots.sweep(*grid, scores, of_chains, [True] * 4)
    assert [ax.get_xlabel() for ax in fig.axes[2:]] == [
        "temperature T",
        "prior variance",
    ]
    ticks = [tick.get_text() for tick in fig.axes[3].get_xticklabels()]
    assert ticks == ["1", "9"]
    assert all(ax.get_xscale() == "log" for ax in fig.axes)
    rings = [line for line in fig.axes[0].lines if line.get_markersize() == 9]
    assert [np.ravel(ring.get_data()).tolist() for ring in rings] == [
        [1.0, 1.0],
        [0.1, 2.0],
    ]
    lines = fig.axes[0].lines
    assert [1, 1] in [np.asarray(line.get_xdata()).tolist() for line in lines]
    # Darker for more, as the legend has it.
    legend = fig.axes[0].get_legend()
    assert legend is not None
    hues = [line.get_color() for line in legend.get_lines()]
    drawn = [line.get_color() for line in lines if line.get_linestyle() == "-"]
    assert drawn == hues
    assert sum(hues[0][:3]) > sum(hues[1][:3])
    assert [t.get_text() for t in legend.get_texts()] == [
        "prior var. 1",
        "prior var. 9",
    ]


def test_the_picture_gives_no_ring_to_what_has_not_converged():
    single = {"nll": [[0.1], [0.2], [0.3]]}
    fig = plots.sweep(
        [0.1, 1.0, 3.0],
        [1.0] * 3,
        {"nll": [0.1, 0.2, 0.3]},
        single,
        [False, True, True],
    )
    (ax,) = fig.axes
    rings = [line for line in ax.lines if line.get_markersize() == 9]
    assert [np.ravel(ring.get_data()).tolist() for ring in rings] == [[1.0, 0.2]]
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [np.ravel(line.get_data()).tolist() for line in hollow] == [[0.1, 0.1]]
    legend = ax.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["convergence not shown"]
    # The only line is the darkest.
    line = next(line for line in ax.lines if line.get_linestyle() == "-")
    assert sum(line.get_color()[:3]) < 1
