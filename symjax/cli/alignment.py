"""`symjax align`: bring each draw of a run to the copy nearest to a reference."""

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from symjax import progress, store
from symjax.cli import aligners, records
from symjax.cli.analyses import Align
from symjax.cli.posteriors import Posterior
from symjax.store import Run
from symjax.types import Params


_BESIDE = "-aligned"

_MEASURED = {
    "distance_before": np.float32,
    "distance_after": np.float32,
    "transpositions": np.int32,
    "flips": np.int32,
}
"""What is logged of each draw."""


def align(command: Align, console: Console) -> Path:
    """Write an aligned run beside a run, or go on with one that was interrupted.

    Returns:
        The aligned run's directory.
    """
    source = store.open(command.run)
    reference = store.open(command.reference or command.run)
    _require_not_aligned(source, reference)
    built = records.posterior_of(source)
    _require_same_model(source, reference)
    aligner = aligners.build(source, built, reference, command.method)
    path = command.out or _beside(source)
    made_of = describe(source, reference, command.method)
    total = source.committed.num_draws
    target = _begun(path, made_of, total)
    done = 0 if target is None else target.committed.num_draws
    info = _kept_info(source)
    size = aligners.block_size(source, command.method)
    with ExitStack() as held:
        if target is not None:
            held.enter_context(store.hold(target.path))
        update = held.enter_context(progress.bar("Aligning", total, done=done))
        for start in range(done, total, size):
            stop = min(start + size, total)
            draws, block = aligners.aligned_block(source, built, aligner, start, stop)
            if target is None:  # Not before, so that a failure leaves no empty run.
                target = _create(path, source, made_of, built)
                held.enter_context(store.hold(target.path))
            kept = {name: values[:, start:stop] for name, values in info.items()}
            target.append(draws, start, dict(sorted((kept | block).items())), start)
            target.commit(
                {"done": jnp.asarray(stop)},
                iteration=stop,
                num_draws=stop,
                finished=stop == total,
            )
            update(stop, "")
    finished = store.open(path)
    _say(finished, console)
    return store.local(finished.path)


def aligned_draws(source: Run, built: Posterior, max_bytes: int) -> Params | None:
    """The aligned draws of a run, for its evaluation.

    Args:
        source: The run.
        built: Its posterior.
        max_bytes: Draws above this size are not aligned on the way.

    Returns:
        What `symjax align` wrote beside the run, if that is of all its draws and of
        this run, not of one that lay there before; else they are aligned in memory, by
        their weights. None for a network without permutations, and for too many draws.
    """
    beside = _beside(source)
    if _is_run(beside):
        kept = store.open(beside)
        is_of_all = kept.num_draws == source.committed.num_draws
        if _is_of(kept, source, source) and is_of_all and kept.committed.finished:
            return kept.lazy()
    total = source.committed.num_draws
    if total * aligners.draw_bytes(source) > max_bytes:
        return None
    try:
        aligner = aligners.build(source, built, source, "weights")
    except aligners.NoPermutationsError:
        return None
    size, parts = aligners.block_size(source, "weights"), []
    with progress.bar(f"Aligning {source.path.name}", total) as update:
        for start in range(0, total, size):
            stop = min(start + size, total)
            parts.append(aligners.aligned_block(source, built, aligner, start, stop)[0])
            update(stop, "")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


def _beside(source: Run) -> Path:
    return store.local(source.path).with_name(source.path.name + _BESIDE)


def _require_not_aligned(source: Run, reference: Run) -> None:
    """Draws as they were sampled, of the run and of the reference.

    Raises:
        ValueError: naming the run that aligned draws are of, or are aligned to.
    """
    if "aligned" in source.config:
        raise ValueError(
            f"{source.path} holds aligned draws already: align the run that they are "
            f"of, {source.config['aligned']['run']}."
        )
    if "aligned" in reference.config:
        raise ValueError(
            f"`--reference` must be a run as it was sampled, but {reference.path} "
            "holds aligned draws and no warm-up. Name what they are aligned to, which "
            f"is {reference.config['aligned']['reference']}."
        )


def _require_same_model(source: Run, reference: Run) -> None:
    """The same parameters.

    Raises:
        ValueError: naming the first that differs.
    """
    ours, theirs = source.leaves, reference.leaves
    for path in {**ours, **theirs}:
        one, two = ours.get(path), theirs.get(path)
        if one is None or two is None or one.shape != two.shape:
            shapes = [
                "none" if leaf is None else f"{leaf.shape}" for leaf in (one, two)
            ]
            raise ValueError(
                f"`--reference` must be a run of the same network, but {path} is "
                f"{shapes[0]} in {source.path} and {shapes[1]} in {reference.path}."
            )


def describe(source: Run, reference: Run, method: str) -> dict[str, str]:
    """What an aligned run records of its making, as `aligned` in its configuration."""
    return {
        "run": str(source.path),
        "run_began": beginning(source),
        "reference": str(reference.path),
        "reference_began": beginning(reference),
        "method": method,
    }


def beginning(run: Run) -> str:
    """When a run began, and a digest of with what: one made again has another."""
    header = json.dumps([run.config, run.environment], sort_keys=True)
    return f"{run.created}, {hashlib.sha256(header.encode()).hexdigest()[:8]}"


def _begun(path: Path, made_of: dict[str, str], num_draws: int) -> Run | None:
    """The aligned run that is to be gone on with; None if there is none yet.

    Raises:
        ValueError: if the folder holds another run.
    """
    if not _is_run(path):
        return None
    kept = store.open(path)
    found = kept.config.get("aligned")
    if found == made_of and kept.num_draws == num_draws:
        return kept
    wanted = _described(made_of, num_draws)
    if found is None:
        raise ValueError(
            f"{kept.path} holds something else than {wanted}: a run that is not "
            "aligned. Choose another `--out`."
        )
    raise ValueError(
        f"{kept.path} holds something else than {wanted}: it holds "
        f"{_described(found, kept.num_draws)}. Delete it to align anew, or choose "
        "another `--out`."
    )


def _described(made_of: dict[str, str], num_draws: int) -> str:
    run, reference = (
        f"{made_of[name]} (begun {made_of.get(f'{name}_began', 'at an unknown time')})"
        for name in ("run", "reference")
    )
    return f"{num_draws} draws of {run}, aligned by {made_of['method']} to {reference}"


def _is_run(path: Path) -> bool:
    """Whether there is a run, created to its end."""
    return (path / "config.json").exists()


def _create(path: Path, source: Run, made_of: dict[str, str], built: Posterior) -> Run:
    """A run of which every iteration is one aligned draw."""
    num_draws = source.committed.num_draws
    plan = {"num_draws": num_draws, "num_discarded": 0, "thinning": 1}
    fields = {
        **(source.fields if source.kept else {}),
        **{name: jax.ShapeDtypeStruct((), dtype) for name, dtype in _MEASURED.items()},
    }
    return store.create(
        path,
        config=source.config | {"run": source.config["run"] | plan, "aligned": made_of},
        params=built.shapes,
        info=dict(sorted(fields.items())),
        num_chains=source.num_chains,
        num_draws=num_draws,
        num_iterations=num_draws,
        kept=range(num_draws),
    )


def _kept_info(source: Run) -> dict[str, np.ndarray]:
    """What the iterations logged that gave a draw, `(chain, draw)`."""
    if source.kept is None:
        return {}
    kept = source.kept_iterations
    return {name: values[:, kept] for name, values in source.info().items()}


def _is_of(aligned: Run, source: Run, reference: Run) -> bool:
    """Whether a run holds the draws of another, aligned to the reference."""
    found = aligned.config.get("aligned")
    return found is not None and found == describe(source, reference, found["method"])


def _say(target: Run, console: Console) -> None:
    info = target.info()
    before, after = (
        np.median(info[f"distance_{when}"]) for when in ("before", "after")
    )
    moves = np.median(info["transpositions"])
    console.print(
        f"Aligned: {target.path}\nThe median draw was {before:.3g} from the reference "
        f"and is now {after:.3g}, by {moves:.0f} transpositions of units.",
        highlight=False,
        soft_wrap=True,
    )
