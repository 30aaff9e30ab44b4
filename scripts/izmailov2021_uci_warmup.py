"""The warm-up of `izmailov2021_uci.py`'s HMC: a mass matrix for each chain.

It is kept as a run is, in a run directory of its own, until the chains' run is over:
its draws are where the chains were after each block of iterations.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import izmailov2021_uci_problem as problems
import izmailov2021_uci_whitening as whitening
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from izmailov2021_uci_methods import Task, descend, starts
from izmailov2021_uci_problem import Problem
from jax.flatten_util import ravel_pytree

from symjax import mesh as meshes, store, warmup
from symjax.run import loop
from symjax.run.signals import raise_stopped, stop_signal


BLOCK = 10
"""Iterations of the warm-up that are one program; its position at their end counts."""

FLOOR = 100
"""Times the prior's precision that the mass matrix has in all directions, those
included in which no position so far was narrow: some place else, they are. On boston
100 gives twice the effective draws of 3 or 30, and 1.7 times those of 1000."""

MOST = 20
"""Positions that a mass matrix is averaged over: of the later half of all, so many."""


class Progress(NamedTuple):
    """Chains, `whitening.State`, and the step sizes that are in their factors."""

    state: Any
    scale: Any


def find(
    task: Task, key: Any, folder: Path, mesh: Any, seconds: float | None
) -> tuple[Any, int]:
    """Find the mass matrices and step sizes, from iteration to iteration.

    The mass matrix is renewed when the iterations have doubled, and at the end, each
    time from the later half of all positions so far.

    Args:
        task: The posteriors; how many leapfrogs, and iterations at the most.
        key: Of the momenta.
        folder: The run directory, which goes on where it was stopped.
        mesh: Devices of the chains.
        seconds: After so many it ends, at the end of a block; None for no end.

    Returns:
        Starts of the chains with factors, and the iterations made.

    Raises:
        Stopped: after saving, if a signal asked for it.
        SystemExit: if the folder holds a warm-up of other options.
    """  # noqa: DOC502
    begin, advance = _programs(task)
    average = _averager(task.problem)
    kept = opened(task, folder) or _create(task, folder, begin, advance)
    with store.hold(kept.path):
        now = _first(task, kept, mesh, begin, average)
        history = _positions(kept, np.asarray(now.state.split))
        began = saved_at = time.monotonic()
        with stop_signal(is_taken=True) as asked:
            while not kept.committed.finished:
                block = len(history) + 1
                state, info = advance(jax.random.fold_in(key, block), now.state)
                now = now._replace(state=state)
                history.append(jax.device_get(_network(state)))
                passed = time.monotonic() - began
                is_late = seconds is not None and passed > seconds
                is_last = is_late or block * BLOCK >= task.setting.num_warmup
                if is_last or block & (block - 1) == 0:
                    information = average(history[len(history) // 2 :])
                    now = _renewed(task.problem, now, information, mesh, begin)
                    _say(block * BLOCK, passed, info, now.scale)
                _keep(kept, block, history[-1]["network"], info)
                is_due = time.monotonic() - saved_at > loop.SAVE_SECONDS
                if is_last or asked.kind or is_due:
                    kept.commit(
                        now, iteration=block * BLOCK, num_draws=block, finished=is_last
                    )
                    saved_at = time.monotonic()
                    if asked.kind:  # Also after the last block: chains follow.
                        raise_stopped(asked.kind, _describe_stop(kept))
    return _network(now.state) | {"factor": now.state.factor}, kept.committed.iteration


def opened(task: Task, path: Path) -> store.Run | None:
    """The run there, to be continued; None if there is none.

    Raises:
        SystemExit: if it was made with other options.
    """
    if not (path / "config.json").exists():
        return None
    kept = store.open(path)
    if any(kept.config.get(k) != v for k, v in task.config.items()):
        raise SystemExit(f"{path} was made with other options: choose another out.")
    return kept


def _create(task: Task, folder: Path, begin: Any, advance: Any) -> store.Run:
    state = _shapes(task, begin)
    _, info = jax.eval_shape(advance, jax.random.key(0), state)
    num_blocks = -(-task.setting.num_warmup // BLOCK)
    num_iterations = num_blocks * BLOCK

    def one(leaf: Any, num_axes: int) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape[num_axes:], leaf.dtype)

    return store.create(
        folder,
        config=task.config,
        params=jax.tree.map(lambda leaf: one(leaf, 1), state.position),
        info=jax.tree.map(lambda leaf: one(leaf, 2), info),
        num_chains=len(state.split),
        num_draws=num_blocks,
        num_iterations=num_iterations,
        kept=range(BLOCK - 1, num_iterations, BLOCK),
    )


def _first(task: Task, kept: store.Run, mesh: Any, begin: Any, average: Any) -> Any:
    """What was committed last, or chains where a descent has led."""
    if kept.committed.has_state:
        state = _shapes(task, begin)
        scale = jax.ShapeDtypeStruct(state.split.shape, jnp.float32)
        return meshes.place_chains(mesh, kept.restore(Progress(state, scale)))
    first = descend(task, task.scale.num_chains, task.problem.train)
    factor = _factors(task.problem, average([first]), whitening.FIRST_STEP)
    scale = np.full(len(factor), whitening.FIRST_STEP, np.float32)
    start, scale = meshes.place_chains(mesh, (first | {"factor": factor}, scale))
    now = Progress(begin(start), scale)
    kept.commit(now, iteration=0, num_draws=0)
    return now


def _shapes(task: Task, begin: Any) -> whitening.State:
    first = starts(task, task.scale.num_chains)
    return jax.eval_shape(begin, whitening.no_factors(task.problem, first))


def _positions(kept: store.Run, split: Any) -> list[Any]:
    """Where the chains were after each block that is committed."""
    draws = kept.read()
    return [
        {"network": jax.tree.map(lambda leaf, i=i: leaf[:, i], draws), "split": split}
        for i in range(kept.committed.num_draws)
    ]


def _network(state: whitening.State) -> dict[str, Any]:
    return {"network": state.position, "split": state.split}


def _renewed(
    problem: Problem, now: Progress, information: np.ndarray, mesh: Any, begin: Any
) -> Progress:
    """Chains where they are, in the units of a new mass matrix."""
    found = warmup.kept_step_size(now.state.inner.adaptation.averaging)
    scale = np.asarray(now.scale) * np.asarray(found)
    start = _network(now.state) | {"factor": _factors(problem, information, scale)}
    start, scale = meshes.place_chains(mesh, (start, scale))
    return Progress(begin(start), scale)


def _keep(kept: store.Run, block: int, network: Any, info: Any) -> None:
    """Hand over where the chains are after a block, and its Info."""
    info = jax.tree.map(lambda leaf: np.asarray(leaf).swapaxes(0, 1), info)
    draw = jax.tree.map(lambda leaf: leaf[:, None], network)
    kept.append(draw, block - 1, info, (block - 1) * BLOCK)


def _describe_stop(kept: store.Run) -> str:
    return (
        f"Stopped at iteration {kept.committed.iteration} of the warm-up's "
        f"{kept.num_iterations}, all of it saved."
    )


def _say(done: int, passed: float, info: Any, scale: Any) -> None:
    print(
        f"Warm-up: {done} iterations, {passed:.0f} s, "
        f"log density {np.mean(info.log_density[-1]):,.0f}, "
        f"acceptance {np.mean(info.acceptance_rate):.2f}, "
        f"step {np.mean(scale):.2g}",
        flush=True,
    )


def _programs(task: Task) -> tuple[Any, Any]:
    """`starts -> states`, and `(key, states) -> states, Info` of `BLOCK` iterations."""
    problem = task.problem
    num_chains = problem.num_splits * task.scale.num_chains
    train = jax.tree.map(jnp.asarray, problem.train)
    never = np.iinfo(np.int32).max
    algorithm = whitening.build(problem, task.setting.num_leapfrogs, never)
    step = jax.vmap(algorithm.step, (0, 0, None))

    @jax.jit
    def begin(start: Any) -> whitening.State:
        # HMC's init needs no randomness.
        return jax.vmap(lambda s: algorithm.init(jax.random.key(0), s, train))(start)

    @jax.jit
    def advance(key: Any, state: whitening.State) -> tuple[whitening.State, Any]:
        keys = jax.random.split(key, (BLOCK, num_chains))
        return jax.lax.scan(lambda s, k: step(k, s, train), state, keys)

    return begin, advance


def _averager(problem: Problem) -> Callable[[list[Any]], np.ndarray]:
    """`positions -> information (chain, D, D)`, of `MOST` of them, in float64."""
    size, _ = whitening.unraveller(jax.eval_shape(problem.init, jax.random.key(0)))
    single = jax.vmap(
        lambda start, train: _information(problem, start, train), (0, None)
    )
    add = jax.jit(lambda total, start, train: total + single(start, train))

    def average(positions: list[Any]) -> np.ndarray:
        some = positions[:: -(-len(positions) // MOST)]
        with jax.enable_x64(True):
            train = jax.tree.map(jnp.asarray, problem.train)
            total = jnp.zeros((len(some[0]["split"]), size, size))
            for start in some:
                total = add(total, start, train)
            return np.asarray(total) / len(some)

    return average


def _factors(problem: Problem, information: np.ndarray, scale: Any) -> np.ndarray:
    """Of all chains, `(chain, D, D)`: scale times F^-1/2, F the mass matrix.

    Decompositions are in float64: the eigenvalues differ by 10^9.

    Raises:
        SystemExit: where that is too narrow for what the prior leaves open.
    """
    out, identity = np.empty(information.shape, np.float32), np.eye(len(information[0]))
    floor = FLOOR / problem.prior_variance * identity
    for i, size in enumerate(np.broadcast_to(scale, len(information))):
        try:
            root = np.linalg.cholesky(information[i] + floor)
        except np.linalg.LinAlgError:
            raise SystemExit(
                "`--prior-variance` must be smaller for HMC, got "
                f"{problem.prior_variance:g}: where neither the data nor the prior "
                "hold a weight, no mass matrix can be computed."
            ) from None
        out[i] = size * scipy.linalg.solve_triangular(root, identity, lower=True).T
    return out


def _information(problem: Problem, start: Any, train: Any) -> Any:
    """The likelihood's Fisher information where a chain is, `(D, D)`, float64."""
    examples = problems.own(train, start["split"])
    flat, unravel = ravel_pytree(start["network"])

    def outputs(vector: Any, x: Any) -> Any:
        return problem.apply(unravel(vector), x[None])[0]

    slopes = jax.vmap(jax.jacrev(outputs), (None, 0))(flat, examples.x)
    weights = problem.information(problem.apply(start["network"], examples.x))
    weights = jnp.where(examples.mask[:, None], weights, 0).astype(float)
    slopes = slopes.astype(float)
    return jnp.einsum("nki,nk,nkj->ij", slopes, weights, slopes)
