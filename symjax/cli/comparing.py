"""From the runs and files that were named to a comparison of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symjax import data as datasets, evaluation, progress, report, store
from symjax.cli import (
    alignment,
    bias,
    chains,
    costs,
    files,
    posteriors,
    predicting,
)
from symjax.cli.analyses import Compared
from symjax.cli.posteriors import Posterior
from symjax.evaluation import temperature_scaling
from symjax.report import Comparison, Method, Trace
from symjax.report.distances import mmd
from symjax.store import Run
from symjax.types import Params


MAX_ALIGNED_BYTES = 2**31
"""Draws of a run that are aligned on the way, if no aligned run is beside it."""


class Member(NamedTuple):
    """A run that is compared, with what it is called."""

    name: str
    run: Run
    built: Posterior


class Evaluation(NamedTuple):
    """A reference and methods with all that a report shows of them.

    Attributes:
        comparison: The numbers.
        reference: What was compared with.
        methods: What was compared.
        targets: Test targets; None where they are not known.
        built: Posterior of a run; None where there are files alone.
        trace: What the chains of the reference logged.
        run: The reference's; None for a file.
        aligned: Its draws with the symmetries removed.
    """

    comparison: Comparison
    reference: Method
    methods: tuple[Method, ...]
    targets: np.ndarray | None
    built: Posterior | None
    trace: Trace | None
    run: Run | None
    aligned: Params | None


def compare(asked: Compared) -> Evaluation:
    """Predict with every run and compare all runs and files with the reference.

    Raises:
        ValueError: if there is no reference, a run has no draws or is of other data, or
            a file does not fit.
    """
    reference_file = _reference_file(asked)
    members = _members(_run_paths(asked, reference_file))
    built = members[0].built if members else None
    if built is not None:
        _check(asked, built)
    elif asked.ood or asked.shift:
        raise ValueError(
            "`--ood` and `--shift` must come with runs, which can predict; got files "
            "of predictions alone."
        )
    inputs = {} if built is None else _other_inputs(asked, built)
    main = members[0] if members and reference_file is None else None
    aligned = None
    if main is not None:
        aligned = alignment.aligned_draws(main.run, main.built, MAX_ALIGNED_BYTES)
    methods = [_method(member, main, aligned, inputs) for member in members]
    read = [files.read("--predictions", word) for word in asked.predictions]
    if reference_file is not None:
        read.insert(0, files.read("--reference", reference_file))
        methods = [read[0], *methods, *read[1:]]
    else:
        methods += read
    targets = _all_targets(asked, built, read)
    if asked.temperature_scaling:
        methods += _scaled(methods[1:], targets)
    comparison = _comparison(main, methods, targets, built, aligned)
    return Evaluation(
        comparison,
        methods[0],
        tuple(methods[1:]),
        targets,
        built,
        None if main is None else _trace(main.run),
        None if main is None else main.run,
        aligned,
    )


def _comparison(
    main: Member | None,
    methods: Sequence[Method],
    targets: np.ndarray | None,
    built: Posterior | None,
    aligned: Params | None,
) -> Comparison:
    task = "classification" if built is None else built.dataset.task
    if main is None:
        return report.compare(methods[0], methods[1:], targets, task=task)
    draws = main.run.lazy()
    return report.compare(
        methods[0],
        methods[1:],
        targets,
        task=task,
        trace=_trace(main.run),
        weight=evaluation.summarise(draws),
        aligned=None if aligned is None else evaluation.summarise(aligned),
        weight_distances=evaluation.chain_distances(draws),
        aligned_distances=(
            None if aligned is None else evaluation.chain_distances(aligned)
        ),
    )


def _reference_file(asked: Compared) -> str | None:
    """The reference, if it is a file.

    Raises:
        ValueError: if nothing is compared.
    """
    word = asked.reference
    if word is None and not asked.runs:
        raise ValueError(
            "`runs` must name at least one run directory, got none. For files alone "
            "give --reference FILE --predictions FILE."
        )
    return word if word is not None and files.is_file(word) else None


def _run_paths(asked: Compared, reference_file: str | None) -> list[Path]:
    """The runs, the reference first if it is one of them."""
    paths = list(asked.runs)
    if asked.reference is None or reference_file is not None:
        return paths
    first = Path(asked.reference)
    return [first, *(p for p in paths if p.absolute() != first.absolute())]


def _members(paths: Sequence[Path]) -> list[Member]:
    """The runs with their posteriors.

    Raises:
        ValueError: if one is of other data.
    """
    runs = [store.open(path) for path in paths]
    names = _names([run.path for run in runs])
    built = [chains.posterior_of(run) for run in runs]
    for run, other in zip(runs, built, strict=True):
        if other.dataset.fingerprint != built[0].dataset.fingerprint:
            raise ValueError(
                f"`runs` must be of one data set, but {run.path} is of "
                f"{other.dataset.name} and {runs[0].path} of {built[0].dataset.name}."
            )
    return [Member(*parts) for parts in zip(names, runs, built, strict=True)]


def _check(asked: Compared, built: Posterior) -> None:
    """Require options that suit the data.

    Raises:
        ValueError: naming the one that does not.
    """
    if asked.labels is not None:
        raise ValueError(
            "`--labels` must be left out where there are runs, whose data have labels, "
            f"got {asked.labels}."
        )
    if built.dataset.task == "regression":
        wanted = {
            "--ood": asked.ood,
            "--shift": asked.shift,
            "--predictions": asked.predictions,
            "--temperature-scaling": asked.temperature_scaling,
        }
        for option, value in wanted.items():
            if value:
                raise ValueError(
                    f"`{option}` must be left out for a regression: it is of classes, "
                    f"and {built.dataset.name} has none."
                )


def _other_inputs(asked: Compared, built: Posterior) -> dict[tuple[str, ...], Any]:
    """Inputs by ("ood", name) and ("shift", name, severity)."""
    inputs: dict[tuple[str, ...], Any] = {}
    for name in asked.ood:
        with posteriors.named("--ood"):
            inputs["ood", name] = datasets.load_ood(name, like=built.dataset).x
    for name in asked.shift:
        for severity in asked.severities:
            with posteriors.named("--shift"):
                shifted = datasets.load_shifted(built.dataset, name, severity)
            inputs["shift", name, str(severity)] = shifted.x
    return inputs


def _method(
    member: Member,
    main: Member | None,
    aligned: Params | None,
    inputs: Mapping[tuple[str, ...], Any],
) -> Method:
    """All that a run predicts and cost."""
    name, run, built = member
    test = built.dataset.test.x
    outputs = predicting.outputs(run, built, test, name=name, key="test")
    method = posteriors.as_method(name, built, outputs, _seconds(run))
    found: dict[str, Any] = {"ood": {}, "shifts": {}}
    for (kind, key, *severity), x in inputs.items():
        key = key.replace("/", "-")  # Of CIFAR-10-C/fog.
        label = "-".join([kind, key, *severity])
        if kind == "ood":
            logits = predicting.outputs(run, built, x, name=name, key=label)
            if np.isfinite(logits).all():
                found["ood"][key] = report.ood_scores(logits)
        else:
            logits = predicting.averages(run, built, x, name=name, key=label)
            if np.isfinite(logits).all():
                found["shifts"].setdefault(key, {})[int(severity[0])] = logits
    if main is not None and member is not main:
        found |= _weight_distances(member, main, aligned)
    command = chains.rebuild_command(run)
    return method._replace(
        bias=bias.read(run),
        gradients=costs.full_gradients(run, command, built),
        family=_family(run),
        **found,
    )


def _weight_distances(
    member: Member, main: Member, aligned: Params | None
) -> dict[str, float | None]:
    """MMD of a run's weights to the reference's, if both are of one network."""
    run, reference = member.run, main.run
    if {k: v.shape for k, v in run.leaves.items()} != {
        k: v.shape for k, v in reference.leaves.items()
    }:
        return {}
    found = {"mmd_weight": mmd(run.lazy(), reference.lazy())}
    if aligned is not None and "aligned" not in run.config:
        own = alignment.aligned_draws(run, member.built, MAX_ALIGNED_BYTES, reference)
        if own is not None:
            found["mmd_aligned"] = mmd(own, aligned)
    return found


def _all_targets(
    asked: Compared, built: Posterior | None, read: Sequence[Method]
) -> np.ndarray | None:
    """Test targets, of the data or of a file of labels."""
    if built is not None:
        targets = _targets(built.dataset)
    elif asked.labels is None:
        return None
    else:
        num_examples, num_classes = read[0].outputs.shape[2:]
        targets = files.read_labels(asked.labels, num_examples, num_classes)
    for method in read:
        files.refuse_impossible(method, targets)
    return targets


def _scaled(methods: Sequence[Method], targets: np.ndarray | None) -> list[Method]:
    """The methods with their temperature fitted on the other half of the test points.

    Raises:
        ValueError: if there are no labels to fit to.
    """
    if targets is None:
        raise ValueError("`--temperature-scaling` must come with `--labels` to fit to.")
    found = []
    for method in methods:
        if np.isfinite(method.outputs).all():
            with progress.bar(f"Scaling {method.name}", 1) as update:
                scaled = temperature_scaling.cross_fit(method.outputs, targets)
                update(1, "")
            family = method.family and f"{method.family} scaled"
            found.append(Method(f"{method.name}, scaled", scaled, family=family))
    return found


def _family(run: Run) -> str:
    """What runs have in common that differ in their seed only."""
    config = json.loads(json.dumps(run.config))
    config.get("options", {}).pop("seed", None)
    config.get("run", {}).pop("key", None)
    return json.dumps(config, sort_keys=True)


def _trace(run: Run) -> Trace | None:
    info = run.info()
    if "log_density" not in info or run.kept is None:
        return None
    return Trace(
        info["log_density"],
        info.get("acceptance_rate"),
        info.get("is_divergent"),
        num_warmup=run.config["run"]["num_discarded"],
    )


def _targets(dataset: Any) -> np.ndarray:
    targets = np.asarray(dataset.test.y)
    if dataset.task == "classification":
        return targets
    return targets * dataset.target_std + dataset.target_mean


def _names(paths: Sequence[Path]) -> list[str]:
    """Each run's folder name, or its whole path where names repeat."""
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    return [str(path) for path in paths]


def _seconds(run: Run) -> float | None:
    return chains.seconds(run.path) or None
