"""What users call: `sample` for Markov chains, `fit` for approximations."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from symjax import checks, hosts, store as stores
from symjax.run import requirements, trouble
from symjax.run.chunks import Plan, Programs, compile_chunks
from symjax.run.conclusion import conclude
from symjax.run.errors import NonFiniteError
from symjax.run.loop import iterate, raise_if_stopped
from symjax.run.memory import Memory
from symjax.store import Run
from symjax.types import Algorithm, Approximation, Data, Key, Params


class NewRun(NamedTuple):
    """A run directory to be made.

    Attributes:
        path: The folder, not there yet or empty; or gs://BUCKET/FOLDER or
            s3://BUCKET/FOLDER.
        config: What to write into its `config.json`, of JSON values.
    """

    path: str | os.PathLike[str] | stores.Bucket
    config: Mapping[str, Any] = {}


class Result(NamedTuple):
    """What a run leaves.

    Attributes:
        draws: Params pytree, leaves `(chain, draw, ...)`, on the host. With a store it
            is None: read them, wholly or in part, with `store.Run.read`.
        info: The algorithm's Info, fields `(chain, iteration)`, warm-up included.
        messages: What a user must know about the chains, in plain words.
        warmup: Where the chains were after their warm-up, leaves `(chain, ...)`: part
            of no draw, to align draws to for example; of an approximation, where the
            members' optimisation ended. None without either, and with a store, which
            keeps it: `store.Run.warmup`.
        fitted: What an approximation says of its members, such as their evidence, by
            name, one number a member; None where it says nothing.
    """

    draws: Params
    info: Any
    messages: tuple[str, ...]
    warmup: Params = None
    fitted: dict[str, list[float]] | None = None


def sample(  # noqa: PLR0913  (one argument a decision)
    key: Key,
    algorithm: Algorithm,
    params: Params,
    data: Data | Any,
    *,
    num_draws: int,
    thinning: int = 1,
    num_burn_in: int = 0,
    max_seconds: float | None = None,
    restart_stuck: bool = False,
    mesh: Mesh | None = None,
    chains_at_once: int | None = None,
    store: NewRun | Run | None = None,
    show_progress: bool = True,
) -> Result:
    """Run Markov chains and keep their draws.

    Args:
        key: One key; every chain and iteration makes its own from it.
        algorithm: From a module of `samplers`.
        params: Where the chains start, leaves `(chain, ...)`.
        data: Examples (`Data`), shared out over the mesh's data axis; anything else is
            handed to the algorithm on every device as it is.
        num_draws: Draws kept of each chain.
        thinning: Iterations for each draw.
        num_burn_in: Iterations discarded after the algorithm's own warm-up.
        max_seconds: Wall-clock time of this call, compiling included. When it is up,
            to within a chunk of some two seconds or one draw, the run is finished with
            the draws that it has; before the first one it raises `OutOfTime`.
        restart_stuck: Whether chains that stand still half-way through the warm-up go
            on from where a healthy one is, and find their own way from there. Never
            after the warm-up, when it would choose among the draws.
        mesh: From `mesh.make_mesh(num_chains)`, which is the default.
        chains_at_once: How many chains of a device are computed together, a divisor of
            their number; by default all. Fewer take less memory, the scratch of so many
            gradients, and longer for small networks; those with convolutions take half
            the time on a CPU. With the same number, such as 1, a chain's draws are bit
            for bit the same on every mesh of such devices whose data axis has one. Not
            for methods whose chains look at one another.
        store: A run directory: `NewRun(path, config)`, or what `store.open(path)`
            returns, to continue from where that stands.
        show_progress: Whether to show a progress bar.

    Returns:
        Draws, Info of every iteration, and messages about the chains. A chain that
        starts at or reaches a non-finite value raises `NonFiniteError`; Ctrl-C or
        SIGTERM during a run with a store saves everything and raises `Stopped`; one
        that another process is writing raises `StoreError`.
    """
    checks.at_least(1, num_draws=num_draws, thinning=thinning)
    checks.at_least(0, num_burn_in=num_burn_in)
    checks.positive(max_seconds=max_seconds)
    requirements.check_dtypes(params)
    restart_at = (
        requirements.restart_at(algorithm.num_warmup) if restart_stuck else None
    )
    num_discarded = algorithm.num_warmup + num_burn_in
    plan = Plan(num_discarded, num_draws, thinning, restart_at)
    requirements.check_schedule(algorithm.schedule, plan.num_iterations)
    programs = compile_chunks(key, algorithm, params, data, plan, mesh, chains_at_once)
    if restart_stuck:
        requirements.check_restart(programs.info_shape)
    result = _execute(
        programs, plan, store, num_draws, show_progress, None, max_seconds
    )
    messages = trouble.describe(result.info, plan.num_discarded, restart_at)
    return result._replace(messages=tuple(messages))


def fit(
    key: Key,
    approximation: Approximation,
    params: Params,
    data: Data,
    *,
    num_steps: int,
    num_draws: int = 1,
    mesh: Mesh | None = None,
    chains_at_once: int | None = None,
    store: NewRun | Run | None = None,
    show_progress: bool = True,
) -> Result:
    """Fit an approximation, one member for each leading entry of `params`, and draw.

    Args:
        key: One key; every member and step makes its own from it.
        approximation: From a module of `approximations`.
        params: Where the members start, leaves `(chain, ...)`.
        data: Examples.
        num_steps: Optimisation steps.
        num_draws: Draws from each fitted member.
        mesh: From `mesh.make_mesh(num_members)`, which is the default.
        chains_at_once: As in `sample`, of members.
        store: A new run directory or one to be continued, as in `sample`.
        show_progress: Whether to show a progress bar.

    Returns:
        Draws `(member, draw, ...)`, Info of every step, and as `warmup` where members'
        optimisation ended. What is not finite raises `NonFiniteError`.
    """
    checks.at_least(1, num_steps=num_steps, num_draws=num_draws)
    plan = Plan(num_steps, 0, 1)
    programs = compile_chunks(
        key, approximation, params, data, plan, mesh, chains_at_once
    )

    def draw(key: Key, fitted: Any) -> tuple[Params, Any]:
        keys = jax.random.split(key, num_draws)
        draws = jax.vmap(approximation.sample, (0, None))(keys, fitted)
        says = approximation.describe
        return draws, None if says is None else says(fitted)

    return _execute(programs, plan, store, num_draws, show_progress, draw)


def _execute(
    programs: Programs,
    plan: Plan,
    store: NewRun | Run | None,
    num_draws: int,
    show_progress: bool,
    draw: Callable[[Key, Any], tuple[Params, Any]] | None = None,
    max_seconds: float | None = None,
) -> Result:
    """Run the plan, or what is left of it; `draw` is what `conclude` takes."""
    kept = _open(store, programs, num_draws, plan)
    title = "Fitting" if draw else "Sampling"
    with _alone(kept):
        if not kept.committed.finished:
            with _settled(kept):
                state, iteration, stop = iterate(
                    programs, plan, kept, title, show_progress, max_seconds
                )
            if draw:
                conclude(programs, kept, iteration, state, draw)
            else:
                num_draws = plan.num_kept(iteration)
            kept.commit(state, iteration=iteration, num_draws=num_draws, finished=True)
            if not isinstance(kept, Memory):  # What only that holds would be lost.
                raise_if_stopped(stop, plan, iteration)
    draws, warmup = (
        (kept.read(), kept.warmup) if isinstance(kept, Memory) else (None, None)
    )
    info = type(programs.info_shape)(**kept.info())
    return Result(draws, info, (), warmup, kept.fitted)


def _alone(kept: Run | Memory) -> AbstractContextManager[None]:
    """Keep others from writing the run meanwhile; a finished one is only read.

    Host 0 holds it for all hosts of a program.
    """
    if isinstance(kept, Memory) or kept.committed.finished or not hosts.is_first():
        return nullcontext()
    return stores.hold(kept.path)


@contextmanager
def _settled(kept: Run | Memory) -> Iterator[None]:
    """Whatever stops the chains, what was being saved meanwhile counts.

    Unless it stops one of several hosts, for which the others would not wait.
    """
    try:
        yield
    except BaseException as error:
        if hosts.count() == 1 or isinstance(error, NonFiniteError):
            kept.settle()
        raise


def _open(
    store: NewRun | Run | None,
    programs: Programs,
    num_draws: int,
    plan: Plan,
) -> Run | Memory:
    """The place that keeps the run: laid out if new, checked if it is continued."""
    record = {
        "key": jax.random.key_data(programs.key).tolist(),
        "num_chains": len(programs.keys),
        "num_draws": num_draws,
        "num_discarded": plan.num_discarded,
        "thinning": plan.thinning,
    }
    if plan.restart_at is not None:
        record["restart_at"] = plan.restart_at
    hosts.require_equal(record)  # In a program of one's own, nothing else does so.
    if store is None:
        return Memory()
    if isinstance(store, Run):
        for change in store.check_config(store.config | {"run": record}):
            warnings.warn(change, stacklevel=4)
        hosts.require_equal({"what is saved": store.committed._asdict()})
        hosts.write_logs(store.path)
        return store
    return stores.create_on_first(
        store.path,
        config=dict(store.config) | {"run": record},
        params=programs.state_shape.position,
        info=programs.info_shape,
        num_chains=len(programs.keys),
        num_draws=num_draws,
        num_iterations=plan.num_iterations,
        kept=plan.kept or None,
    )
