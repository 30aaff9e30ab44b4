"""Making a run directory and finding one."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import jax
import jax.numpy as jnp

from symjax import checks, hosts, trees
from symjax.store import commits, environment
from symjax.store.arrays import Leaves
from symjax.store.buckets import Bucket, Place, place
from symjax.store.commits import Commit
from symjax.store.files import (
    StoreError,
    as_json,
    explained,
    flush,
    read_json,
    remove,
    rename,
    write_json,
)
from symjax.store.runs import Run
from symjax.types import Params


FORMAT = 1

_HEADER = "config.json"
_UNFINISHED_HEADER = "creating.json"
_LOGS = "logs"
_SIGHT_SECONDS = 30.0
"""A new file may take so long to be seen on other hosts."""


def create(
    path: str | os.PathLike[str] | Bucket,
    *,
    config: Mapping[str, Any],
    params: Params,
    info: Any,
    num_chains: int,
    num_draws: int,
    num_iterations: int,
    kept: range | None = None,
) -> Run:
    """Make a run directory, whole or not at all.

    Args:
        path: A folder that does not exist, is empty, or holds what a creation killed
            half-way left; or that of a bucket, gs://BUCKET/FOLDER, s3://BUCKET/FOLDER.
        config: The resolved configuration, of JSON values, with the fingerprint of the
            data: a run is only continued with the same one.
        params: One draw, without the chain axis: arrays or `ShapeDtypeStruct`s.
        info: Info of one iteration of one chain, the same.
        num_chains: Chains, or members of an ensemble.
        num_draws: Draws planned for each chain.
        num_iterations: Iterations planned, warm-up included.
        kept: The iterations (from 0) after which a draw is kept, such as
            `range(num_discarded + thinning - 1, num_iterations, thinning)`. Exports
            pick the Info of the draws with it.

    Returns:
        The run, nothing committed.

    Raises:
        ValueError: if `kept` does not give every draw its iteration.
    """  # noqa: DOC502
    checks.at_least(
        1, num_chains=num_chains, num_draws=num_draws, num_iterations=num_iterations
    )
    _check_kept(kept, num_draws, num_iterations)
    path = place(path).absolute()
    header = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": as_json(config),
        "environment": environment.describe(),
        "num_chains": num_chains,
        "num_draws": num_draws,
        "num_iterations": num_iterations,
        "kept": kept and [kept.start, kept.stop, kept.step],
        "draws": _describe("params", params),
        "info": _describe("info", info),
    }
    run = _from_header(path, header)
    claim(path)
    _lay_out(run, header)
    return run


def _check_kept(kept: range | None, num_draws: int, num_iterations: int) -> None:
    """Check that each draw has its iteration.

    Raises:
        ValueError: if it has not.
    """
    if kept is not None and (
        len(kept) != num_draws or kept[0] < 0 or kept[-1] >= num_iterations
    ):
        raise ValueError(
            f"`kept` must be {num_draws} of the iterations 0 to {num_iterations - 1}, "
            f"one for each draw, got {kept}."
        )


def _lay_out(run: Run, header: Mapping[str, Any]) -> None:
    """Make the files of a run; what was laid out wholly has its header."""
    write_json(run.path / _UNFINISHED_HEADER, header)
    commits.write(run.path, Commit())
    run.draw_arrays.create()
    run.info_arrays.create()
    if header["kept"] is None or run.num_discarded:
        run.warmup_arrays.create()
    with explained("create", run.path):
        (run.path / "state").mkdir()
        rename(run.path / _UNFINISHED_HEADER, _HEADER)
        flush(run.path, deep=False)


def create_on_first(path: str | os.PathLike[str] | Bucket, **contents: Any) -> Run:
    """`create` on host 0; the run on all hosts, which must share the folder.

    Args:
        path: As for `create`.
        **contents: The other arguments of `create`.

    Returns:
        The run.

    Raises:
        StoreError: if this host does not see what host 0 wrote.
    """
    path = place(path).absolute()
    made = create(path, **contents) if hosts.is_first() else None
    hosts.barrier("run directory")
    hosts.write_logs(path)
    if made is not None:
        return made
    end = time.monotonic() + _SIGHT_SECONDS
    while not (path / _HEADER).exists() and time.monotonic() < end:
        time.sleep(0.2)
    if not (path / _HEADER).exists():
        raise StoreError(
            f"Host {hosts.index()} does not see {path}, which host 0 has made: choose "
            "a directory on a file system that all hosts share."
        )
    return open(path)


def open(path: str | os.PathLike[str] | Bucket) -> Run:
    """Find a run, to read it or to continue it; nothing is changed on the disk.

    Args:
        path: The run directory.

    Returns:
        The run.

    Raises:
        StoreError: if it is no run, not a whole one, or of a newer symjax.
    """
    path = place(path).absolute()
    file = path / _HEADER
    with explained("open", path):
        if (path / _UNFINISHED_HEADER).exists():
            raise StoreError(
                f"{path} was left while it was being created and holds nothing yet: "
                "begin the run again, without resuming."
            )
        if not file.exists():
            raise StoreError(
                f"{path} is not a run: there is no {_HEADER} in it. Name the directory "
                "that a run was written to."
            )
    header = read_json(file)
    with explained("read", file, "It is not the config.json of a run."):
        newest = header["format"]
        if newest > FORMAT:
            raise StoreError(
                f"{path} was written by a newer symjax (format {newest}, this one "
                f"reads {FORMAT}): upgrade symjax to read it."
            )
        run = _from_header(path, header)
    _ = run.committed  # A missing record is told now, not when the chains have run.
    return run


def _from_header(path: Place, header: dict[str, Any]) -> Run:
    return Run(
        path=path,
        config=header["config"],
        environment=header["environment"],
        created=header["created"],
        num_chains=header["num_chains"],
        num_draws=header["num_draws"],
        num_iterations=header["num_iterations"],
        kept=range(*header["kept"]) if header["kept"] else None,
        leaves=_leaves(header["draws"]),
        fields=_leaves(header["info"]),
    )


def _leaves(described: dict[str, list[Any]]) -> Leaves:
    return {
        path: jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))
        for path, (dtype, shape) in described.items()
    }


def _describe(name: str, tree: Any) -> dict[str, list[Any]]:
    """Path -> [dtype, shape] of every leaf.

    Raises:
        ValueError: if two leaves would share a folder, or there is none.
    """
    paths = trees.paths(tree)
    folders = [f"{path}/" for path in paths]
    clash = [a for a in folders for b in folders if a is not b and a.startswith(b)]
    names = {name for path in paths if path for name in path.split("/")}
    if clash or not paths or names & {"", ".", ".."}:
        raise ValueError(
            f"`{name}` must be a pytree of arrays with names that can be folders, each "
            f"of its own, got {paths}. Rename its parts."
        )
    return {
        path: [leaf.dtype.name, list(leaf.shape)]
        for path, leaf in zip(paths, jax.tree.leaves(tree), strict=True)
    }


def claim(path: Place) -> None:
    """Make the folder; clear away what a creation killed half-way left in it.

    Raises:
        StoreError: if the folder holds a run or anything else.
    """
    with explained("create", path):
        path.mkdir(parents=True, exist_ok=True)
        if (path / _UNFINISHED_HEADER).exists():
            for name in ("draws", "info", "warmup", "state"):
                remove(path / name)
            remove(path / "commit.json")
        elif (path / _HEADER).exists():
            raise StoreError(
                f"{path} already holds a run: resume it, or choose another directory."
            )
        elif any(entry.name != _LOGS for entry in path.iterdir()):
            raise StoreError(f"{path} is not empty: choose a directory of its own.")
