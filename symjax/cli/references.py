"""Bundles as references: what they predict, and whether a method is of their data."""

import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from symjax import evaluation, progress, report, store, trees
from symjax.cli import describing, posteriors, records, weights
from symjax.cli.bundles import DIAGNOSTICS
from symjax.cli.members import Inputs, Member
from symjax.cli.options import rebuild
from symjax.cli.posteriors import Posterior
from symjax.cli.problem import Problem
from symjax.data import Dataset
from symjax.evaluation import Convergence, Predictions
from symjax.report import Averages, Method
from symjax.store import Bundle
from symjax.store.bundle_layout import DamagedBundleError
from symjax.types import Params


_TOLERANCE = 1e-3


def find(word: str | None) -> Bundle | None:
    """The bundle that was named as a reference; None where it is something else."""
    if word is None or not store.is_bundle(word):
        return None
    return store.read_bundle(word)


def method(bundle: Bundle) -> Method:
    """What a bundle predicts, as the report takes it.

    Raises:
        DamagedBundleError: if it predicts what is impossible.
    """
    provenance = bundle.about["provenance"]
    seconds, gradients = (
        _number(provenance.get(name)) for name in ("seconds", "gradients")
    )
    if bundle.task == "regression":
        mean, std = (bundle.read(f"predictions/{name}") for name in ("mean", "std"))
        if not (std > 0).all():
            raise DamagedBundleError(bundle.path, "predictions/std is not above 0")
        return Method(bundle.name, mean, std, seconds, gradients=gradients)
    averages = Averages(_predictions(bundle), _convergence(bundle))
    probs = averages.predictions.probs_by_chain
    logits = np.log(np.maximum(probs, np.finfo(float).tiny))[:, None]
    return Method(
        bundle.name, logits, seconds=seconds, gradients=gradients, averages=averages
    )


def compared(
    bundle: Bundle, runs: Sequence[Member], inputs: Inputs
) -> tuple[Method, weights.Reference | None]:
    """A bundle as a reference of runs: what it predicts, and its weights.

    Args:
        bundle: The bundle.
        runs: The methods, of its data; without any, what the bundle says is all.
        inputs: Other ones that are predicted.

    Returns:
        The method, and the weights where a method is of the bundle's network.
    """
    found = method(bundle)
    if not runs:
        return found, None
    problem = bundle.about["posterior"]["problem"]
    built = posterior(bundle, records.rebuild_command(runs[0].run).problem.data)
    if bundle.task == "classification":
        found = _with_stored_draws(found, bundle, built, inputs)
    draws = stored_draws(bundle, built)
    network = weights.network(problem, built.shapes)
    if all(weights.network_of(member.run) != network for member in runs):
        return found, None
    return found, weights.of_draws(draws, built, network)


def _with_stored_draws(
    found: Method, bundle: Bundle, built: Posterior, inputs: Inputs
) -> Method:
    """The bundle's method with what only single draws can say, from those it stores.

    That is the MMD of predictions, and all of other inputs: the bundle has averages on
    the test points alone.

    Args:
        found: Of `method`.
        bundle: Of a classification.
        built: Its posterior, see `posterior`.
        inputs: As those that the methods predict.
    """
    assert found.averages is not None
    draws = stored_draws(bundle, built)
    ood: dict[str, Any] = {}
    shifts: dict[str, dict[int, Any]] = {}
    with progress.bar(f"Predicting with {bundle.name}", 1 + len(inputs)) as update:
        outputs = evaluation.predict(built.apply, draws, built.dataset.test.x)
        for done, ((kind, key, *severity), x) in enumerate(inputs.items(), 1):
            update(done, "")
            key = key.replace("/", "-")
            logits = evaluation.predict(built.apply, draws, x)
            if kind == "ood":
                ood[key] = report.ood_scores(logits)
            else:
                probs = evaluation.summarise_predictions(logits).probs
                mean = np.log(np.maximum(probs, np.finfo(float).tiny))[None, None]
                shifts.setdefault(key, {})[int(severity[0])] = mean
        update(1 + len(inputs), "")
    averages = found.averages._replace(outputs=outputs)
    return found._replace(averages=averages, ood=ood, shifts=shifts)


def stored_draws(bundle: Bundle, built: Posterior) -> Params:
    """The draws that a bundle stores, as parameters of its network.

    Raises:
        DamagedBundleError: if they are not.
    """
    paths, shapes = trees.paths(built.shapes), trees.shapes(built.shapes)
    held = {
        name: tuple(shape[2:])
        for name, (_, shape) in bundle.about["arrays"].items()
        if name.split("/")[0] == "draws"
    }
    if held != dict(zip([f"draws/{path}" for path in paths], shapes, strict=True)):
        raise DamagedBundleError(
            bundle.path, "its draws are not of the network that it defines"
        )
    return bundle.draws(built.shapes)


def targets(bundle: Bundle) -> np.ndarray:
    """The true classes or values of the test set.

    Raises:
        DamagedBundleError: if there are classes beyond those that are predicted.
    """
    if bundle.task == "regression":
        return bundle.read("test/targets")
    labels = bundle.read("test/labels")
    num_classes = bundle.about["arrays"]["predictions/probs"][1][2]
    if labels.min() < 0 or labels.max() >= num_classes:
        raise DamagedBundleError(bundle.path, "test/labels are not all classes")
    return labels.astype(np.int64)


def require_same_data(bundle: Bundle, runs: Sequence[Member]) -> None:
    """Require runs of the data that a bundle is of.

    Raises:
        ValueError: saying how they differ.
    """
    for name, _, built in runs:
        if built.dataset.fingerprint != bundle.fingerprint:
            raise ValueError(
                f"`--reference`: {name} must be of the data that {bundle.name} is of, "
                f"but {difference(bundle, built.dataset)}. Fit it to those data, or "
                "make a reference of its own."
            )


def notes(bundle: Bundle, runs: Sequence[Member]) -> tuple[str, ...]:
    """Of the bundle, and of each run of another posterior, one sentence each."""
    said = bundle.about["diagnostics"]["sentence"]
    if "remark" in bundle.about["provenance"]:
        said = f"{said} {bundle.about['provenance']['remark']}"
    return (f"{bundle.name} says of itself: {said}", *_other_posteriors(bundle, runs))


def _other_posteriors(bundle: Bundle, runs: Sequence[Member]) -> list[str]:
    """Of each run that is of another posterior, in which options."""
    theirs = bundle.about["posterior"]["problem"]
    found = []
    for name, run, _ in runs:
        ours = asdict(records.rebuild_command(run).problem)
        ours = weights.said_or_usual(ours)
        different = [
            f"{key} {_shown(ours.get(key))} instead of {_shown(value)}"
            for key, value in weights.said_or_usual(theirs).items()
            if key not in ("data", *describing.NOT_OF_THE_POSTERIOR)
            and _shown(ours.get(key)) != _shown(value)
        ]
        if different:
            found.append(
                f"{name} is of another posterior than {bundle.name}: "
                f"{', '.join(different)}."
            )
    return found


def posterior(bundle: Bundle, data: str | None = None) -> Posterior:
    """The log posterior, network and data that a bundle is of, built again.

    Args:
        bundle: The bundle.
        data: Where the data are, if not where its name says, such as a file.

    Raises:
        ValueError: if they are not those of the bundle, or it has options that are not
            known here.
    """
    defined = bundle.about["posterior"]["problem"]
    known = {field.name for field in fields(Problem)}
    if not set(defined) <= known:
        raise ValueError(
            f"{bundle.name} defines its posterior with {sorted(set(defined) - known)}, "
            "which this symjax does not know: upgrade it."
        )
    problem = rebuild(Problem, defined)
    with posteriors.named(bundle.name):
        built = posteriors.build(replace(problem, data=data or problem.data))
    if built.dataset.fingerprint != bundle.fingerprint:
        raise ValueError(
            f"{built.dataset.name} must be the data of {bundle.name}, but "
            f"{difference(bundle, built.dataset)}."
        )
    return built


def difference(bundle: Bundle, dataset: Dataset) -> str:
    """How data differ from those of a bundle, in words."""
    theirs, ours = bundle.about["posterior"]["data"], describing.describe(dataset)
    found = [
        f"{key.replace('_', ' ')} is {ours[key]}, not {theirs[key]}"
        for key in ("name", "num_train", "num_test", "num_outputs", "input_shape")
        if key in theirs and theirs[key] != ours[key]
    ]
    mark = f"the fingerprint is {ours['fingerprint'][:12]}, not "
    return ", ".join([*found, f"{mark}{theirs['fingerprint'][:12]}"])


def _predictions(bundle: Bundle) -> Predictions:
    """The averages over draws.

    Raises:
        DamagedBundleError: if they are no averages of probabilities.
    """
    read = {
        name: bundle.read(f"predictions/{name}").astype(float)
        for name in ("probs", "mean_entropy", "mean_logits")
    }
    probs, votes = read["probs"], bundle.read("predictions/votes")
    sums = probs.sum(axis=-1, keepdims=True)
    if (abs(sums - 1) > _TOLERANCE).any() or (probs < 0).any():
        raise DamagedBundleError(bundle.path, "predictions/probs are no probabilities")
    total = len(probs) * bundle.about["draws"]["of_the_run"]
    if (votes < 0).any() or (votes.sum(axis=1) != total).any():
        raise DamagedBundleError(
            bundle.path, f"predictions/votes are not those of {total} draws"
        )
    return Predictions(
        probs / sums, read["mean_entropy"], read["mean_logits"], votes.astype(int), None
    )


def _convergence(bundle: Bundle) -> Convergence:
    """That of the probabilities of all draws, as the run had it."""
    arrays = {name: {"": bundle.read(f"diagnostics/{name}")} for name in DIAGNOSTICS}
    said = bundle.about["diagnostics"]["all_draws"]
    rhat = arrays["rhat"][""]
    return Convergence(
        **arrays,
        num_quantities=rhat.size,
        num_judged=said["num_judged"],
        num_constant=said["num_constant"],
        num_non_finite=0,
        withheld=None,
    )


def _number(value: Any) -> float | None:
    """A cost, if it is one."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
