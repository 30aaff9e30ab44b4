"""`symjax sample` and `symjax fit`: start or continue a run directory."""

import shlex
import time
from collections import namedtuple
from dataclasses import replace
from typing import Any

import jax
from rich.console import Console

from symjax import checks, hosts, run, store
from symjax.cli import (
    acceptance,
    bias,
    estimates,
    fitting,
    forces,
    methods,
    plan,
    posteriors,
    records,
    starts,
    warmups,
)
from symjax.cli.analyses import Import
from symjax.cli.options import Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.run import Stopped, trouble
from symjax.store import Place, Run
from symjax.types import Algorithm, Params


def execute(command: Sample | Fit, console: Console) -> Place | None:
    """Run the command to its end, or show its plan.

    Args:
        command: What was asked.
        console: For what is said.

    Returns:
        The run directory; None for a plan. A signal or the end of the time raises
        `Stopped`, which says how to continue.
    """
    kept = None
    if command.resume is not None:
        kept = store.open(command.resume)
        command = _recorded(command, kept)
    command = replace(command, problem=posteriors.resolved(command.problem))
    _check(command)
    if kept is None:
        forces.require_heeded(command)
    mesh = starts.make_mesh(command)
    starts.check_groups(command, mesh)
    command, built = _build_on_all(command, kept)
    command = methods.with_fitting_batch(command, built, console)
    command = warmups.with_num_warmup(command, console)
    algorithm = methods.build(command, built)
    if kept is not None:
        records.check_data(kept, built)
    if kept is None or not kept.committed.has_state:
        starts.require(command, built)
    if command.dry_run:
        done = store.Commit() if kept is None else kept.committed
        plan.show(command, built, mesh, algorithm, done, console)
        return None
    if kept is not None:
        if kept.committed.finished:
            return _say_finished(command, built, kept, console)
        hosts.write_logs(kept.path, _how_to_continue(command, kept.path))
        built = starts.share_out(built, mesh)
        return _run_and_say(command, built, algorithm, kept, None, console)
    command = starts.resolved(command)
    path = store.place(hosts.share(str(command.out or starts.free_path(command))))
    if hosts.is_first():
        store.claim(path)
    hosts.barrier("claim")
    hosts.write_logs(path, _how_to_continue(command, path))
    params = None
    if isinstance(command, Sample) and command.warmup == "auto":
        params = starts.make(command, built)
        command = warmups.tune(command, built, params, console)
        algorithm = methods.build(command, built)
    built = starts.share_out(built, mesh)
    new = run.NewRun(path, records.describe(command, built))
    return _run_and_say(command, built, algorithm, new, params, console)


def _build_on_all(
    command: Sample | Fit, kept: Run | None
) -> tuple[Sample | Fit, Posterior]:
    """The command with its force, and the posterior, after hosts were compared."""
    options = records.describe_options(command)
    # Hosts that do not do the same wait for each other for ever.
    where = command.processes
    options |= {"mesh": where.mesh, "chains-at-once": where.chains_at_once}
    options |= {"dry-run": command.dry_run}
    what = {f"--{name}": value for name, value in store.flatten(options).items()}
    if kept is not None:
        what |= {"the run's configuration": kept.config}
        what |= {"what the run has saved": kept.committed._asdict()}
    software = store.describe_environment() | hosts.describe_software()
    hosts.require_equal(what | software)
    parallel = starts.num_chains(command)
    dataset = posteriors.load(command.problem)
    if kept is None:
        command = forces.choose(command, dataset.task)
    num_chains = where.chains_at_once or -(-parallel // len(jax.devices()))
    built = posteriors.build(command.problem, num_chains, dataset)
    hosts.require_equal({"the data's fingerprint": built.dataset.fingerprint})
    # It is chosen by the memory that a machine has.
    size = hosts.share(built.log_posterior.micro_batch)
    density = replace(built.log_posterior, micro_batch=size)
    return command, built._replace(log_posterior=density)


def _how_to_continue(command: Sample | Fit, path: Place) -> str:
    words = ["symjax", records.verb(command), "--resume", str(path)]
    where = command.processes
    # Without them it would take other memory, or go on with other last bits.
    if where.mesh is not None:
        words += ["--mesh", where.mesh]
    if where.chains_at_once is not None:
        words += ["--chains-at-once", str(where.chains_at_once)]
    return shlex.join(words)


def _check(command: Sample | Fit) -> None:
    """Require what does not take the data to be checked."""
    posteriors.require_likelihood(command.problem)
    if isinstance(command, Fit):
        checks.at_least(1, num_members=command.num_members, num_draws=command.num_draws)
        return
    checks.at_least(1, num_chains=command.num_chains, num_draws=command.num_draws)
    checks.at_least(1, thinning=command.thinning, map_steps=command.map_steps)
    checks.positive(max_minutes=command.max_minutes)
    checks.positive(map_learning_rate=command.map_learning_rate)
    estimates.check(command)
    warmups.check(command)


def _say_finished(
    command: Sample | Fit, built: Posterior, kept: Run, console: Console
) -> Place:
    console.print(
        f"{kept.path} is finished: {kept.committed.num_draws} draws.",
        highlight=False,
        soft_wrap=True,
    )
    _say(command, built, kept, console)
    return kept.path


def _say(command: Sample | Fit, built: Posterior, kept: Run, console: Console) -> None:
    """Say what the user must know of a finished run.

    Also when it is asked for again: a signal in its last chunk ended it unsaid.
    """
    info = kept.info()
    info = namedtuple("Info", info)(**info)
    restart_at = kept.config["run"].get("restart_at")
    messages = trouble.describe(info, kept.num_discarded, restart_at)
    if isinstance(command, Sample):
        messages += acceptance.describe_shortfall(command, info, kept.num_discarded)
    for message in messages:
        console.print(f"[bold]Warning:[/bold] {message}", highlight=False)
    if kept.fitted is not None:
        said = fitting.describe(kept.fitted)
        console.print(
            f"Fitted, mean of the members and range: {said}.",
            highlight=False,
            soft_wrap=True,
        )
    if isinstance(command, Sample) and bias.is_wanted(command):
        bias.check(command, built, kept.path, console)


def _run_and_say(
    command: Sample | Fit,
    built: Posterior,
    algorithm: Any,
    kept: run.NewRun | Run,
    params: Params | None,
    console: Console,
) -> Place:
    """Run to the end and say what the user must know.

    What stops it says how to continue.
    """
    path = store.place(kept.path)
    start = time.monotonic()
    try:
        _run(command, built, algorithm, kept, params)
    except Stopped as stopped:
        if not (path / "config.json").exists():
            raise type(stopped)(f"{stopped} Start it again.") from None
        records.add_seconds(path, start)
        how = _how_to_continue(command, path)
        raise type(stopped)(f"{stopped} Continue with: {how}") from None
    records.add_seconds(path, start)
    _say(command, built, store.open(path), console)
    console.print(f"Finished: {path}", highlight=False, soft_wrap=True)
    return path


def _recorded(command: Sample | Fit, kept: Run) -> Sample | Fit:
    """The recorded options.

    Raises:
        ValueError: if the run is of another command.
    """
    if "aligned" in kept.config:
        raise ValueError(
            f"{kept.path} holds aligned draws: continue the run that they are of, and "
            "align it again."
        )
    names = ("resume", "dry_run", "processes")
    given = {name: getattr(command, name) for name in names}
    if isinstance(command, Sample):
        given |= {"max_minutes": command.max_minutes, "estimate": command.estimate}
    recorded = records.rebuild_command(kept)
    if isinstance(recorded, Import):
        raise ValueError(f"{kept.path} was imported and can't be continued.")
    if type(recorded) is not type(command):
        raise ValueError(
            f"{kept.path} is continued by: symjax {records.verb(recorded)} --resume "
            f"{kept.path}"
        )
    return replace(recorded, **given)


def _run(
    command: Sample | Fit,
    built: Posterior,
    algorithm: Any,
    kept: run.NewRun | Run,
    params: Params | None,
) -> run.Result:
    begins = isinstance(kept, run.NewRun) or not kept.committed.has_state
    if params is None:
        params = starts.make(command, built, optimised=begins)
    run_key = starts.split_keys(command)[1]
    train = built.dataset.train
    where: dict[str, Any] = {"store": kept, "mesh": starts.make_mesh(command)}
    where["chains_at_once"] = command.processes.chains_at_once
    if isinstance(command, Fit) and isinstance(algorithm, Algorithm):
        num_draws = fitting.num_draws(command)
        return run.sample(
            run_key, algorithm, params, train, num_draws=num_draws, **where
        )
    if isinstance(command, Fit):
        return run.fit(
            run_key,
            algorithm,
            params,
            train,
            num_steps=fitting.options_of(command).num_steps,
            num_draws=fitting.num_draws(command),
            **where,
        )
    return run.sample(
        run_key,
        algorithm,
        params,
        train,
        num_draws=command.num_draws,
        thinning=command.thinning,
        max_seconds=command.max_minutes and 60 * command.max_minutes,
        restart_stuck=command.restart_stuck,
        **where,
    )
