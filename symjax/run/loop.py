"""The host's part of a run: keep, save, show, look for trouble, stop when asked."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from symjax import hosts, mesh as meshes, progress
from symjax.run import trouble
from symjax.run.chunks import Plan, Programs
from symjax.run.errors import NonFiniteError, OutOfTime
from symjax.run.memory import Memory, reading_of
from symjax.run.signals import Signal, raise_stopped, stop_signal
from symjax.store import Run


CHUNK_SECONDS = 2.0
"""Chunks grow until the chains take this long for them."""
SAVE_SECONDS = 10.0
"""Sampler state is saved after the first chunk that ends this long after the last save,
and when the loop stops. It is written while the next chunks are sampled."""


def iterate(
    programs: Programs,
    plan: Plan,
    kept: Run | Memory,
    title: str,
    show_progress: bool,
    max_seconds: float | None = None,
) -> tuple[Any, int, int]:
    """Run from what `kept` last committed to the end of the plan, or of the time.

    Returns:
        The last state of all chains, how many iterations they have made, and which
        `Signal` came in the last chunk of the plan, for `raise_if_stopped` once the run
        is finished.

    Raises:
        Stopped: after saving, if a signal asked for it.
        OutOfTime: after saving, if the time was up before the first draw.
    """  # noqa: DOC502
    is_over = _timer(max_seconds)
    iteration = kept.committed.iteration
    if isinstance(kept, Run) and kept.committed.has_state:
        state = _restore(programs, kept)
    else:
        state = _start(programs)
    total = plan.num_iterations
    chunk, saved_at = plan.thinning, time.monotonic()
    stop = Signal.NONE
    # Of several hosts none stops alone, also where nothing is kept.
    takes_signals = isinstance(kept, Run) or hosts.count() > 1
    with (
        progress.bar(title, total, done=iteration, show=show_progress) as update,
        stop_signal(takes_signals) as asked,
    ):
        while iteration < total:
            state, iteration, pace, info = _advance(
                programs, plan, kept, iteration, state, chunk
            )
            chunk = int(np.clip(CHUNK_SECONDS * pace, plan.thinning, programs.capacity))
            is_due = time.monotonic() - saved_at > SAVE_SECONDS
            decision = _agree(asked, chunk, is_due, is_over(), kept.is_saved)
            chunk = decision.chunk
            if iteration < total and _save(kept, plan, iteration, state, decision):
                saved_at = time.monotonic()
            update(iteration, _describe(info))
            stop = decision.stop
            if iteration < total:
                raise_if_stopped(stop, plan, iteration)
            if decision.is_late:
                _require_draw(plan, iteration, max_seconds)
                break
    return state, iteration, stop


class _Chunk(NamedTuple):
    """Where a chunk has led, its iterations a second, and its Info."""

    state: Any
    iteration: int
    pace: float
    info: Any


def _advance(
    programs: Programs,
    plan: Plan,
    kept: Run | Memory,
    iteration: int,
    state: Any,
    most: int,
) -> _Chunk:
    """Run `most` iterations at the most, and hand over what they made."""
    start = time.monotonic()
    if iteration == plan.restart_at:
        # Committed first: a run that goes on from here does the same again.
        kept.commit(state, iteration=iteration, num_draws=0)
        state = _restart(programs, kept, iteration, state)
    slots, per_slot = plan.next_chunk(iteration, most, programs.num_slots)
    state, *made = programs.advance(
        programs.keys[:, 1], state, programs.data, iteration, slots, per_slot
    )
    jax.block_until_ready(made)
    # Of the chains alone: where writing is slow, chunks would else stay short.
    pace = slots * per_slot / (time.monotonic() - start)
    info = _keep(kept, plan, iteration, slots, per_slot, *made)
    return _Chunk(state, iteration + slots * per_slot, pace, info)


class _Decision(NamedTuple):
    """What all hosts do after a chunk."""

    stop: int
    chunk: int
    is_due: int
    is_late: int
    is_saved: int


def _agree(
    asked: Signal, chunk: int, is_due: bool, is_late: bool, is_saved: bool
) -> _Decision:
    """Stop if any host was asked to; what is saved, is so when all hosts say it.

    For the rest host 0 looks at its clock.
    """
    kind = Signal.TERMINATE if hosts.is_preempted() else asked.kind
    votes = hosts.vote(kind, chunk, is_due, is_late, is_saved)
    chunk, due, late = (int(vote) for vote in votes[0, 1:-1])
    saved = int(votes[:, -1].min())
    return _Decision(int(votes[:, 0].max()), chunk, due, late, saved)


def _save(
    kept: Run | Memory, plan: Plan, iteration: int, state: Any, decision: _Decision
) -> bool:
    """Save what is due, before the end of the plan; whether a new save has begun."""
    num_kept = plan.num_kept(iteration)
    if decision.stop or decision.is_late:
        kept.commit(state, iteration=iteration, num_draws=num_kept)
    elif decision.is_saved:
        kept.settle()
        if decision.is_due:
            kept.commit(state, iteration=iteration, num_draws=num_kept, wait=False)
            return True
    return False


def raise_if_stopped(stop: int, plan: Plan, iteration: int) -> None:
    """End a run that was asked to stop.

    Args:
        stop: The kind of the signal that came, if one did.
        plan: Of the run.
        iteration: How many are saved.

    Raises:
        Stopped: if one came.
    """  # noqa: DOC502
    if stop:
        raise_stopped(stop, _describe_stop(plan, iteration))


def _require_draw(plan: Plan, iteration: int, max_seconds: float | None) -> None:
    """Require one, now that the time is up.

    Raises:
        OutOfTime: if there is none.
    """
    if not plan.num_kept(iteration):
        raise OutOfTime(
            f"The {max_seconds:.3g} seconds that the run may take were over at "
            f"iteration {iteration} of {plan.num_iterations}, before the first draw."
        )


def _restart(programs: Programs, kept: Run | Memory, iteration: int, state: Any) -> Any:
    """The state, with stuck chains put where healthy ones are, adaptation and all."""
    info = type(programs.info_shape)(**kept.info())
    stuck = trouble.find_stuck_chains(info, iteration // 2, iteration)
    healthy = np.setdiff1d(np.arange(len(programs.keys)), stuck)
    if not len(stuck) or not len(healthy):
        return state
    source = np.arange(len(programs.keys))
    source[stuck] = trouble.sources(stuck, healthy)
    take = jax.jit(
        lambda state: jax.tree.map(lambda leaf: leaf[source], state),
        out_shardings=programs.sharding,
    )
    return take(state)


def _timer(max_seconds: float | None) -> Callable[[], bool]:
    """What says whether so many seconds have passed since now."""
    if max_seconds is None:
        return lambda: False
    end = time.monotonic() + max_seconds
    return lambda: time.monotonic() > end


def _keep(
    kept: Run | Memory,
    plan: Plan,
    iteration: int,
    slots: int,
    per_slot: int,
    draws: Any,
    info: Any,
    is_finite: Any,
) -> Any:
    """Hand a chunk's draws and Info over; return the Info."""
    done = slots * per_slot
    chains, (slots_made, info, is_finite) = reading_of(kept)((draws, info, is_finite))
    # Sliced on the host: on the device each new length would be compiled.
    info = jax.tree.map(lambda leaf: leaf[:, :done], info)
    num_draws = plan.num_kept(iteration + done) - plan.num_kept(iteration)
    draws = jax.tree.map(lambda leaf: leaf[:, :num_draws], slots_made)
    # What follows a chain's first non-finite draw is never committed.
    _check_finite(chains, is_finite[:, :slots], iteration, per_slot)
    if plan.num_draws and iteration + done == plan.num_discarded:
        ends = jax.tree.map(lambda leaf: leaf[:, 0], slots_made)
        kept.keep_warmup(ends, chains)
    before = plan.num_kept(iteration)
    kept.append(draws if num_draws else None, before, info, iteration, chains)
    return info


def _start(programs: Programs) -> Any:
    state, is_finite, differs = programs.init(
        programs.keys[:, 0], programs.params, programs.data
    )
    is_finite, differs = meshes.read_all((is_finite, differs)).values
    if np.any(differs):
        raise ValueError(
            "`data` is split over the devices of a chain, but the log density differs "
            "between them: sum what it adds up over examples with "
            "`mesh.sum_over_data`, or use a mesh whose data axis has one device."
        )
    if not np.all(is_finite):
        chains = ", ".join(map(str, np.flatnonzero(~is_finite)))
        raise NonFiniteError(
            f"`params` of chain {chains} give a log density or gradient that is not "
            "finite. Look for NaN in the parameters or the data, or start nearer to "
            "the prior."
        )
    return state


def _restore(programs: Programs, kept: Run) -> Any:
    """The committed state, on the devices; its shapes alone are taken from a start."""
    starts = (programs.keys[:, 0], programs.params, programs.data)
    shapes, *_ = programs.init.eval_shape(*starts)

    def placed(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=programs.sharding)

    return kept.restore(jax.tree.map(placed, shapes))


def _check_finite(
    chains: np.ndarray | None, is_finite: np.ndarray, iteration: int, per_slot: int
) -> None:
    """Require finite chains on all hosts.

    Raises:
        NonFiniteError: on all of them, naming the first chain that is not.
    """
    own = (-1, 0)
    if not is_finite.all():
        row, slot = np.argwhere(~is_finite)[0]
        own = (int(row if chains is None else chains[row]), int(slot))
    found = [(chain, slot) for chain, slot in hosts.vote(*own) if chain >= 0]
    if not found:
        return
    chain, slot = min(found)
    first = iteration + slot * per_slot
    raise NonFiniteError(
        f"Chain {chain} left the finite numbers between iterations {first} and "
        f"{first + per_slot}. Make `step_size`, of a fit `learning_rate`, smaller."
    )


def _describe_stop(plan: Plan, iteration: int) -> str:
    said = f"Stopped at iteration {iteration} of {plan.num_iterations}"
    if not plan.num_draws:  # Of a fit, which draws at its end.
        return f"{said}, all of it saved."
    return f"{said}, with {plan.num_kept(iteration)} of {plan.num_draws} draws saved."


def _describe(info: Any) -> str:
    """The last chunk in a few words, for the progress bar."""
    if not len(jax.tree.leaves(info)[0]):
        return ""  # Another host reads the chains that this one works on.
    parts = []
    if hasattr(info, "acceptance_rate"):
        parts.append(f"acceptance {info.acceptance_rate.mean():.2f}")
    if hasattr(info, "log_density"):
        parts.append(f"log density {info.log_density[:, -1].mean():,.0f}")
    if hasattr(info, "elbo"):
        parts.append(f"evidence bound {info.elbo[:, -1].mean():,.0f}")
    if hasattr(info, "is_divergent") and info.is_divergent.any():
        parts.append(f"{info.is_divergent.sum()} divergent")
    return ", ".join(parts)
