"""`symjax align`: bring each draw of a run to the copy nearest to a reference."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from symjax import progress, store
from symjax.cli import aligners, chains
from symjax.cli.options import Align
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
    built = chains.posterior_of(source)
    reference = store.open(command.reference or command.run)
    _require_same_model(source, reference)
    aligner = aligners.build(source, built, reference, command.method)
    target = _target(command, source, reference, built)
    done, total = target.committed.num_draws, target.num_draws
    info = _kept_info(source)
    size = aligners.block_size(source, command.method)
    with (
        store.hold(target.path),
        progress.bar("Aligning", total, done=done) as update,
    ):
        for start in range(done, total, size):
            stop = min(start + size, total)
            draws, block = aligners.aligned_block(source, built, aligner, start, stop)
            block |= {name: values[:, start:stop] for name, values in info.items()}
            target.append(draws, start, dict(sorted(block.items())), start)
            target.commit(
                {"done": jnp.asarray(stop)},
                iteration=stop,
                num_draws=stop,
                finished=stop == total,
            )
            update(stop, "")
    _say(target, console)
    return target.path


def aligned_draws(source: Run, built: Posterior, max_bytes: int) -> Params | None:
    """The aligned draws of a run, for its evaluation.

    Args:
        source: The run.
        built: Its posterior.
        max_bytes: Draws above this size are not aligned on the way.

    Returns:
        What `symjax align` wrote beside the run, if that is of all its draws; else they
        are aligned in memory, by their weights. None for a network without
        permutations, and for too many draws.
    """
    beside = source.path.with_name(source.path.name + _BESIDE)
    if (beside / "commit.json").exists():
        kept = store.open(beside)
        is_of_all = kept.num_draws == source.committed.num_draws
        if _is_of(kept, source) and is_of_all and kept.committed.finished:
            return kept.lazy()
    total = source.committed.num_draws
    if total * aligners.draw_bytes(source) > max_bytes:
        return None
    try:
        aligner = aligners.build(source, built, source, "weights")
    except aligners.NoPermutationsError:
        return None
    size, parts = aligners.block_size(source, "weights"), []
    with progress.bar("Aligning the reference", total) as update:
        for start in range(0, total, size):
            stop = min(start + size, total)
            parts.append(aligners.aligned_block(source, built, aligner, start, stop)[0])
            update(stop, "")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)


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


def _target(command: Align, source: Run, reference: Run, built: Posterior) -> Run:
    """The aligned run: a new one, or the one that is to be gone on with.

    Raises:
        ValueError: if the folder holds another run.
    """
    path = command.out or source.path.with_name(source.path.name + _BESIDE)
    num_draws = source.committed.num_draws
    made_of = {
        "run": str(source.path),
        "reference": str(reference.path),
        "method": command.method,
    }
    if not (path / "commit.json").exists():
        return _create(path, source, made_of, built)
    kept = store.open(path)
    if kept.config.get("aligned") != made_of or kept.num_draws != num_draws:
        raise ValueError(
            f"{kept.path} holds something else than {num_draws} draws of {source.path} "
            f"aligned by {command.method} to {reference.path}. Choose another `--out`."
        )
    return kept


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
    kept = list(source.kept)[: source.committed.num_draws]
    return {name: values[:, kept] for name, values in source.info().items()}


def _is_of(aligned: Run, source: Run) -> bool:
    """Whether a run holds the aligned draws of another."""
    made_of = aligned.config.get("aligned", {})
    return made_of.get("run") == made_of.get("reference") == str(source.path)


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
