"""`symjax import`: samples and checkpoints from elsewhere as a run."""

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from symjax import interop, progress, store
from symjax.cli import members, posteriors
from symjax.cli.analyses import Import
from symjax.cli.posteriors import Posterior
from symjax.store import Place, Run
from symjax.types import Params


def execute(command: Import, console: Console) -> Place:
    """Write a run whose draws are those of the files.

    Raises:
        ValueError: if the files are not of one kind, or not of this network.
    """
    if not command.files:
        raise ValueError("`files` must name at least one file.")
    endings = [path.suffix == ".safetensors" for path in command.files]
    if len(set(endings)) > 1:
        raise ValueError(
            "`files` must all end in .safetensors or all be pickles, got "
            f"{command.files[endings.index(True)]} and "
            f"{command.files[endings.index(False)]}."
        )
    command = replace(command, problem=posteriors.resolved(command.problem))
    built = posteriors.build(command.problem)
    parts = _read_all(command, built)
    first = next(parts)
    if endings[0]:  # Each an independent network.
        first = jax.tree.map(lambda *leaves: np.concatenate(leaves), first, *parts)
    default = Path("runs", f"imported-{command.problem.model}")
    path = store.place(command.out or default)
    num_parts = 1 if endings[0] else len(command.files)
    _remove_unfinished(path)
    run = _create(path, command, built, first, num_parts)
    try:
        with store.hold(path):
            _write(run, itertools.chain([first], parts))
    except BaseException:
        _remove(path)  # Half of the files is no run.
        raise
    console.print(
        f"Imported: {path}, {run.num_draws} draws of {run.num_chains} chains or "
        "networks.",
        highlight=False,
        soft_wrap=True,
    )
    return path


def _remove_unfinished(path: Place) -> None:
    """Remove what an import left there that was killed."""
    try:
        kept = store.open(path)
    except store.StoreError:
        return
    if kept.config.get("command") == "import" and not kept.committed.finished:
        with store.hold(path):  # None is at work on it.
            _remove(path)


def _remove(path: Place) -> None:
    shutil.rmtree(path) if isinstance(path, Path) else path.remove()


def _create(
    path: Place, command: Import, built: Posterior, first: Params, num_parts: int
) -> Run:
    """A run of which every iteration is one draw."""
    num_chains, each = jax.tree.leaves(first)[0].shape[:2]
    num_draws = each * num_parts
    return store.create(
        path,
        config=describe(command, built, num_draws),
        params=built.shapes,
        info={"part": jax.ShapeDtypeStruct((), np.int32)},
        num_chains=num_chains,
        num_draws=num_draws,
        num_iterations=num_draws,
        kept=range(num_draws),
    )


def _write(run: Run, parts: Iterable[Params]) -> None:
    """All draws, and of each from which part it is."""
    done = 0
    for number, part in enumerate(parts):
        shape = jax.tree.leaves(part)[0].shape[:2]
        run.append(part, done, {"part": np.full(shape, number, np.int32)}, done)
        done += shape[1]
    state = {"done": jnp.asarray(done)}
    run.commit(state, iteration=done, num_draws=done, finished=True)


def _read_all(command: Import, built: Posterior) -> Iterator[Params]:
    """The parameters of each file, all with the axes of the first.

    Raises:
        ValueError: if a file has others.
    """
    total, shape = len(command.files), None
    with progress.bar("Reading", total) as update:
        for number, path in enumerate(command.files, start=1):
            params = interop.read(path).params(command.problem.model, built.shapes)
            found = jax.tree.leaves(params)[0].shape[:2]
            shape = shape or found
            if found != shape:
                raise ValueError(
                    f"{path} holds {found[0]} chains of {found[1]} draws, but "
                    f"{command.files[0]} {shape[0]} of {shape[1]}."
                )
            update(number, "")
            yield params


def describe(command: Import, built: Posterior, num_draws: int) -> dict[str, object]:
    """What a run of imported draws records."""
    names = members.short_names(command.files)
    return {
        "command": "import",
        "options": {"problem": asdict(command.problem)},
        "files": dict(zip(names, _digests(command.files), strict=True)),
        "data_fingerprint": built.dataset.fingerprint,
        "run": {"num_draws": num_draws, "num_discarded": 0, "thinning": 1},
    }


def _digests(files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        with path.open("rb") as file:
            yield hashlib.file_digest(file, "sha256").hexdigest()
