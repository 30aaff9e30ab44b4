"""From the runs and files that were named to a comparison of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from symjax import data as datasets, evaluation, report, store
from symjax.cli import alignment, files, members, posteriors, references, weights
from symjax.cli.analyses import Compared
from symjax.cli.members import Member
from symjax.cli.posteriors import Posterior
from symjax.report import Comparison, Method, Trace
from symjax.store import Bundle, Run
from symjax.types import Params


MAX_ALIGNED_BYTES = 2**31
"""Draws of a run that are aligned on the way, if no aligned run is beside it."""


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
        notes: What else a user must know, in sentences.
    """

    comparison: Comparison
    reference: Method
    methods: tuple[Method, ...]
    targets: np.ndarray | None
    built: Posterior | None
    trace: Trace | None
    run: Run | None
    aligned: Params | None
    notes: tuple[str, ...] = ()


def compare(asked: Compared) -> Evaluation:
    """Predict with every run and compare all runs and files with the reference.

    Raises:
        ValueError: if there is no reference, a run has no draws or is of other data, or
            a file does not fit.
    """  # noqa: DOC502
    bundle = references.find(asked.reference)
    reference_file = _reference_file(asked)
    runs = members.open_all(_run_paths(asked, reference_file))
    built = runs[0].built if runs else None
    _check_all(asked, bundle, runs)
    num_targets = _num_targets(bundle, built)
    given, of_files = _read_files(asked, num_targets, reference_file, bundle)
    inputs = {} if built is None else _other_inputs(asked, built)
    main = runs[0] if runs and reference_file is None else None
    aligned, to = None, None
    if main is not None:
        aligned = alignment.aligned_draws(main.run, main.built, MAX_ALIGNED_BYTES)
        to = weights.of_run(main.run, main.built)
    elif bundle is not None:
        of_bundle, to = references.compared(bundle, runs, inputs)
        given = [(of_bundle, None)]
    of_runs = [(members.method(m, None if m is main else to, inputs), m) for m in runs]
    every: list[tuple[Method, Member | None]] = [*given, *of_runs, *of_files]
    targets = _all_targets(asked, built, bundle, [one for one, _ in given + of_files])
    methods = [method for method, _ in every]
    if asked.temperature_scaling:
        methods += [
            members.scaled(method, member, targets, inputs)
            for method, member in every[1:]
            if np.isfinite(method.outputs).all()
        ]
    task = "classification" if num_targets is None else "regression"
    comparison = _comparison(main, methods, targets, task, aligned, to)
    return Evaluation(
        comparison,
        methods[0],
        tuple(methods[1:]),
        targets,
        built,
        None if main is None else members.trace(main.run),
        None if main is None else main.run,
        aligned,
        (
            *(() if bundle is None else references.notes(bundle, runs)),
            *members.remarks(runs),
        ),
    )


def _read_files(
    asked: Compared, num_targets: int | None, reference: str | None, bundle: Any
) -> tuple[list[tuple[Method, None]], list[tuple[Method, None]]]:
    """The reference if it is a file of predictions, and all other such files."""
    given = [] if reference is None or bundle is not None else [reference]
    typed = [("--reference", word) for word in given]
    typed += [("--predictions", word) for word in asked.predictions]
    names = members.short_names([Path(word) for _, word in typed])
    read = [
        (files.read(*words, num_targets, name=name), None)
        for words, name in zip(typed, names, strict=True)
    ]
    return read[: len(given)], read[len(given) :]


def _num_targets(bundle: Bundle | None, built: Posterior | None) -> int | None:
    """How many values a test point has in a regression; None for a classification."""
    if built is not None:
        dataset = built.dataset
        return dataset.num_outputs if dataset.task == "regression" else None
    if bundle is None or bundle.task != "regression":
        return None
    return bundle.about["arrays"]["test/targets"][1][1]


def _comparison(
    main: Member | None,
    methods: Sequence[Method],
    targets: np.ndarray | None,
    task: report.Task,
    aligned: Params | None,
    to: weights.Reference | None,
) -> Comparison:
    spaces = {} if to is None else to.spaces
    if main is None:
        distances: dict[str, Any] = {
            f"{name}_distances": evaluation.chain_distances(space.draws)
            for name, space in spaces.items()
        }
        return report.compare(
            methods[0],
            methods[1:],
            targets,
            task=task,
            **distances,
        )
    draws = main.run.lazy()
    return report.compare(
        methods[0],
        methods[1:],
        targets,
        task=task,
        trace=members.trace(main.run),
        weight=evaluation.summarise(draws),
        aligned=None if aligned is None else evaluation.summarise(aligned),
        weight_distances=evaluation.chain_distances(draws),
        aligned_distances=(
            None if aligned is None else evaluation.chain_distances(aligned)
        ),
        canonical_distances=(
            evaluation.chain_distances(spaces["canonical"].draws)
            if "canonical" in spaces
            else None
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
    is_file = word is not None and (files.is_file(word) or store.is_bundle(word))
    return word if is_file else None


def _run_paths(asked: Compared, reference_file: str | None) -> list[Path]:
    """The runs, the reference first if it is one of them."""
    paths = list(asked.runs)
    if asked.reference is None or reference_file is not None:
        return paths
    first = Path(asked.reference)
    return [first, *(p for p in paths if p.absolute() != first.absolute())]


def _check_all(asked: Compared, bundle: Bundle | None, runs: Sequence[Member]) -> None:
    """Require options that suit what is compared.

    Raises:
        ValueError: naming the one that does not.
    """
    if bundle is not None:
        _check_bundle(asked, bundle, runs)
    if runs:
        _check(asked, runs[0].built)
        if asked.ood or asked.shift:
            members.require_one_scale(runs, bundle)
    elif asked.ood or asked.shift:
        raise ValueError(
            "`--ood` and `--shift` must come with runs, which can predict; got files "
            "of predictions alone."
        )


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
        _check_regression(asked, built.dataset.name)


def _check_regression(asked: Compared, name: str) -> None:
    """Require no option that is of classes.

    Raises:
        ValueError: naming the one that is.
    """
    wanted = {
        "--ood": asked.ood,
        "--shift": asked.shift,
        "--temperature-scaling": asked.temperature_scaling,
    }
    for option, value in wanted.items():
        if value:
            raise ValueError(
                f"`{option}` must be left out for a regression: it is of classes, and "
                f"{name} has none."
            )


def _other_inputs(asked: Compared, built: Posterior) -> members.Inputs:
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


def _check_bundle(asked: Compared, bundle: Bundle, runs: Sequence[Member]) -> None:
    """Require methods of the data of a bundle, and labels from nowhere else.

    Raises:
        ValueError: naming what does not fit.
    """
    references.require_same_data(bundle, runs)
    if asked.labels is not None:
        raise ValueError(
            f"`--labels` must be left out, since {bundle.name} has them, got "
            f"{asked.labels}."
        )
    if bundle.task == "regression":
        _check_regression(asked, bundle.name)


def _all_targets(
    asked: Compared,
    built: Posterior | None,
    bundle: Bundle | None,
    read: Sequence[Method],
) -> np.ndarray | None:
    """Test targets, of the data or of a file of labels."""
    if built is not None:
        targets = posteriors.test_targets(built.dataset)
    elif bundle is not None:
        targets = references.targets(bundle)
    elif asked.labels is None:
        return None
    else:
        num_examples, num_classes = read[0].outputs.shape[2:]
        targets = files.read_labels(asked.labels, num_examples, num_classes)
    if _num_targets(bundle, built) is None:  # A density is never zero.
        for method in read:
            files.refuse_impossible(method, targets)
    return targets
