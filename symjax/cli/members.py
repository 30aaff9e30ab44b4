"""The runs that are compared, and what each predicts and cost."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from symjax import progress, report, store
from symjax.cli import bias, costs, predicting, records, weights
from symjax.cli.posteriors import Posterior
from symjax.evaluation import temperature_scaling
from symjax.report import Method, Trace
from symjax.store import Bundle, Run


Inputs: TypeAlias = Mapping[tuple[str, ...], Any]
"""Other inputs by ("ood", name) and ("shift", name, severity)."""


class Member(NamedTuple):
    """A run that is compared, with what it is called."""

    name: str
    run: Run
    built: Posterior


def open_all(paths: Sequence[Path]) -> list[Member]:
    """The runs with their posteriors.

    Raises:
        ValueError: if one is of other data.
    """
    runs = [store.open(path) for path in paths]
    names = short_names([store.local(run.path) for run in runs])
    built = [records.posterior_of(run) for run in runs]
    for run, other in zip(runs, built, strict=True):
        if other.dataset.fingerprint != built[0].dataset.fingerprint:
            raise ValueError(
                f"`runs` must be of one data set, but {run.path} is of "
                f"{other.dataset.name} and {runs[0].path} of {built[0].dataset.name}."
            )
    return [Member(*parts) for parts in zip(names, runs, built, strict=True)]


def require_one_scale(members: Sequence[Member], bundle: Bundle | None) -> None:
    """Require networks that take the same pixels, as other inputs are made once.

    Raises:
        ValueError: naming two that do not.
    """
    found = {name: built.dataset.pixels for name, _, built in members}
    if bundle is not None:
        theirs = weights.said_or_usual(bundle.about["posterior"]["problem"])
        found[bundle.name] = theirs["pixels"]
    (first, scale), *others = found.items()
    for name, other in others:
        if other != scale:
            raise ValueError(
                "`--ood` and `--shift` must come with runs of the same `--pixels`, got "
                f"{scale} of {first} and {other} of {name}. Compare them apart, or "
                "leave these options out."
            )


def remarks(members: Sequence[Member]) -> tuple[str, ...]:
    """What made a run beside its options, of each that says so."""
    return tuple(
        f"{name}: {run.config['remark']}"
        for name, run, _ in members
        if "remark" in run.config
    )


def method(member: Member, to: weights.Reference | None, inputs: Inputs) -> Method:
    """All that a run predicts and cost, and how far its weights are off.

    Args:
        member: The run.
        to: The weights of the reference; None where they are not at hand, and for the
            reference itself.
        inputs: What it predicts beside the test points.
    """
    name, run, built = member
    test = built.dataset.test.x
    outputs = predicting.outputs(run, built, test, name=name, key="test")
    found = as_method(name, built, outputs, records.seconds(run.path) or None)
    mmd = {}
    if to is not None and weights.network_of(run) == to.network:
        with progress.bar(f"Comparing weights of {name}", 1) as update:
            mmd = weights.compare(run, built, to.spaces)
            update(1, "")
    command = records.rebuild_command(run)
    return found._replace(
        bias=bias.read(run),
        gradients=costs.full_gradients(run, command, built),
        family=family(run),
        mmd=mmd,
        **_elsewhere(member, inputs),
    )


def scaled(
    plain: Method, member: Member | None, targets: np.ndarray | None, inputs: Inputs
) -> Method:
    """The method with its logits divided by a temperature.

    Test points at even places get the temperature that those at odd places fitted, and
    the other way around, so that no point is scaled by its own label. Other inputs are
    scaled as the test points are, corrupted ones by the temperature of the test point
    that they were made of: one rule for all, so that a score is compared with scores
    of the same mixture of two temperatures.

    Args:
        plain: The method, its predictions finite.
        member: Its run; None for a file.
        targets: To fit to.
        inputs: What the run predicts beside the test points.

    Raises:
        ValueError: if there are no labels to fit to.
    """
    if targets is None:
        raise ValueError("`--temperature-scaling` must come with `--labels` to fit to.")
    with progress.bar(f"Scaling {plain.name}", 1) as update:
        temperatures = temperature_scaling.fit_halves(plain.outputs, targets)
        outputs = temperature_scaling.divide(plain.outputs, temperatures)
        update(1, "")
    found = {} if member is None else _elsewhere(member, inputs, temperatures)
    return Method(
        f"{plain.name}, scaled",
        outputs,
        family=plain.family and f"{plain.family} scaled",
        temperatures=temperatures,
        **found,
    )


def family(run: Run) -> str:
    """What runs have in common that differ in their seed only."""
    config = json.loads(json.dumps(run.config))
    config.get("options", {}).pop("seed", None)
    config.get("run", {}).pop("key", None)
    return json.dumps(config, sort_keys=True)


def trace(run: Run) -> Trace | None:
    """What the chains of a run logged, if that is a density."""
    info = run.info()
    if "log_density" not in info or run.kept is None:
        return None
    return Trace(
        info["log_density"],
        info.get("acceptance_rate"),
        info.get("is_divergent"),
        num_warmup=run.config["run"]["num_discarded"],
    )


def _elsewhere(
    member: Member, inputs: Inputs, temperatures: tuple[float, float] | None = None
) -> dict[str, Any]:
    """What a run predicts beside the test points, as fields of `Method`."""
    name, run, built = member
    ood: dict[str, Any] = {}
    shifts: dict[str, dict[int, Any]] = {}
    for (kind, key, *severity), x in inputs.items():
        key = key.replace("/", "-")  # Of CIFAR-10-C/fog.
        label = "-".join([kind, key, *severity])
        if kind == "ood":
            logits = predicting.outputs(run, built, x, name=name, key=label)
            if np.isfinite(logits).all():
                if temperatures is not None:
                    logits = temperature_scaling.divide(logits, temperatures)
                ood[key] = report.ood_scores(logits)
        else:
            logits = predicting.averages(
                run, built, x, name=name, key=label, temperatures=temperatures
            )
            if np.isfinite(logits).all():
                shifts.setdefault(key, {})[int(severity[0])] = logits
    return {"ood": ood, "shifts": shifts}


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole paths where those repeat."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    return [str(path) for path in paths]


def as_method(
    name: str, built: Posterior, outputs: Any, seconds: float | None
) -> Method:
    """What the report takes, from the outputs of a network in the data's own units."""
    if built.read_outputs is None:
        return Method(name, outputs, seconds=seconds)
    dataset = built.dataset
    mean, std = map(np.asarray, built.read_outputs(outputs))
    mean = mean * dataset.target_std + dataset.target_mean
    return Method(name, mean, std * dataset.target_std, seconds)
