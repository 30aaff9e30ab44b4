"""Sampler states with their PRNG keys, as Orbax checkpoints.

Orbax copies a state to the host and then writes it in threads of its own, while the
chains go on. Its threads wait for those of other hosts at barriers of JAX's key-value
service, never in a collective, which those of the chains would get into the way of.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from symjax import hosts, trees
from symjax.store import bucket_states
from symjax.store.bucket_states import BucketSaving
from symjax.store.buckets import Bucket, Place
from symjax.store.files import StoreError, explained, flush


@dataclass(frozen=True, eq=False)
class Saving:
    """A state that is on its way to the disk.

    Attributes:
        folder: Where the steps are.
        step: Its number.
        manager: Orbax's, which writes it.
        stack: What ends with the save.
        failures: What this host could not do.
    """

    folder: Path
    step: int
    manager: ocp.CheckpointManager
    stack: ExitStack
    failures: list[BaseException]

    @property
    def is_done(self) -> bool:
        """Whether all hosts have written their part.

        Raises:
            StoreError: if this one could not. Orbax says so when its barriers have
                waited for all hosts, and those for ten minutes.
        """  # noqa: DOC502
        with explained("save the sampler state in", self.folder):
            if self.failures:
                if hosts.count() == 1:
                    self.stack.close()
                raise self.failures[0]
        return not self.manager.is_saving_in_progress()

    def wait(self) -> None:
        """Wait until the state is on the disk. To be called by all hosts.

        Raises:
            StoreError: if it could not be written.
        """  # noqa: DOC502
        while not self.is_done:
            time.sleep(0.005)
        with explained("save the sampler state in", self.folder), self.stack:
            self.manager.wait_until_finished()
            # Orbax waits for the arrays, not for its own small files and the renaming,
            # which host 0 does.
            if hosts.is_first():
                flush(self.folder / str(self.step))
                flush(self.folder, deep=False)


def save(
    folder: Place, step: int, state: Any, committed: int | None
) -> Saving | BucketSaving:
    """Begin to save `state` as `step`; on all hosts, and one save at a time.

    When this returns, the state has been copied, or JAX copies it before a program
    that it is donated to writes over it. The three newest steps are kept, so that the
    committed one stays until the commit record names the new one; what a killed process
    left of others is deleted.

    Args:
        folder: Where the steps are.
        step: Its number.
        state: A pytree of JAX arrays; typed keys may be among them.
        committed: The step of the commit record; later ones are deleted. None if
            there was none yet.

    Returns:
        What is to be waited for.
    """
    leaves = map(_without_key, jax.tree.leaves(state))
    named = dict(zip(trees.paths(state), leaves, strict=True))
    if isinstance(folder, Bucket):
        return bucket_states.save(folder, step, named, committed)
    keeping = {"max_to_keep": 3, "cleanup_tmp_directories": True}
    failures: list[BaseException] = []
    with explained("save the sampler state in", folder), ExitStack() as stack:
        manager = stack.enter_context(_steps(folder, failures, **keeping))
        for later in manager.all_steps():
            if committed is None or later > committed:
                manager.delete(later)
        manager.save(step, args=ocp.args.StandardSave(named), force=True)
        return Saving(folder, step, manager, stack.pop_all(), failures)


def restore(folder: Place, step: int, like: Any) -> Any:
    """Read `step` into the structure and shardings of `like`.

    Raises:
        StoreError: if `like` has other leaves than were saved, or they can't be read.
    """
    named = dict(zip(trees.paths(like), jax.tree.leaves(like), strict=True))
    target = {path: _abstract(leaf) for path, leaf in named.items()}
    place = folder / str(step)
    remedy = "Its files are damaged: put them back from a copy, or begin a new run."
    if isinstance(place, Bucket):
        with explained("read", place, remedy):
            _check(place, target, bucket_states.describe(place))
            values = bucket_states.restore(place, target)
    else:
        with explained("read", place, remedy), _steps(place.parent, []) as steps:
            metadata = steps.item_metadata(step)
            if metadata is None:
                raise StoreError(
                    f"There is no whole sampler state in {place}. {remedy}"
                )
            _check(place, target, metadata.tree)
            values = steps.restore(step, args=ocp.args.StandardRestore(target))
    leaves = [_with_key(leaf, values[path]) for path, leaf in named.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _check(place: Place, target: dict[str, Any], saved: dict[str, Any]) -> None:
    """Require the leaves that were saved.

    Raises:
        StoreError: naming the first one that is another.
    """
    for path in target | saved:
        expected, found = _kind(target.get(path)), _kind(saved.get(path))
        if expected != found:
            raise StoreError(
                f"The sampler state in {place} has {found} at {path}, where this "
                f"algorithm has {expected}: continue the run with the "
                "configuration it began with, or begin a new one."
            )


@contextmanager
def _steps(
    folder: Path, failures: list[BaseException], **keeping: Any
) -> Iterator[ocp.CheckpointManager]:
    """Orbax's manager; what its threads log of failures is put into a list."""
    options = ocp.CheckpointManagerOptions(
        create=False, enable_async_checkpointing=bool(keeping), **keeping
    )

    def listen(record: logging.LogRecord) -> bool:
        error = record.exc_info and record.exc_info[1]
        if record.levelno >= logging.ERROR and error:
            failures.append(error)
        return False

    log = logging.getLogger("absl")
    log.addFilter(listen)
    try:
        with ocp.CheckpointManager(
            folder, options=options, item_handlers=ocp.StandardCheckpointHandler()
        ) as manager:
            yield manager
    finally:
        log.removeFilter(listen)


def _kind(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{jnp.dtype(leaf.dtype).name} {leaf.shape}"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_key(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _with_key(like: Any, data: Any) -> Any:
    if not _is_key(like):
        return data
    # An abstract key tells its implementation only to a trace.
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(data, impl=found[0])


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    data = jax.eval_shape(_without_key, leaf)
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=sharding)
