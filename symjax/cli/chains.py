"""`symjax sample` and `symjax fit`: start or continue a run directory."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from symjax import checks, run, store
from symjax.cli import bias, fitting, methods, plan, posteriors, warmups
from symjax.cli.fits import Ensemble
from symjax.cli.options import Fit, Problem, Sample, rebuild
from symjax.cli.posteriors import Posterior
from symjax.run import Stopped
from symjax.store import Run
from symjax.types import Algorithm, Params


NOT_OF_THE_RUN = ("out", "resume", "dry_run", "max_minutes")
"""Options that say where and how, not what; a run does not record them."""


def execute(command: Sample | Fit, console: Console) -> Path | None:
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
    parallel = _num_chains(command)
    built = posteriors.build(command.problem, -(-parallel // len(jax.devices())))
    algorithm = methods.build(command, built)
    if command.dry_run:
        gradients = methods.gradients_per_iteration(command, built)
        plan.show(command, built, algorithm, gradients, console)
        return None
    if kept is not None:
        check_data(kept, built)
        if kept.committed.finished:
            return _say_finished(command, built, kept, console)
        return _run_and_say(command, built, algorithm, kept, None, console)
    path = command.out or _free_path(command)
    store.claim(path)
    params = None
    if isinstance(command, Sample) and command.warmup == "auto":
        params = _starts(command, built)
        command = warmups.tune(command, built, params, console)
        algorithm = methods.build(command, built)
    new = run.NewRun(path, describe(command, built))
    return _run_and_say(command, built, algorithm, new, params, console)


def _check(command: Sample | Fit) -> None:
    """Require what does not take the data to be checked."""
    if isinstance(command, Fit):
        checks.at_least(1, num_members=command.num_members, num_draws=command.num_draws)
        return
    checks.at_least(1, num_chains=command.num_chains, num_draws=command.num_draws)
    checks.at_least(1, thinning=command.thinning, map_steps=command.map_steps)
    checks.positive(max_minutes=command.max_minutes)
    warmups.check(command)


def _say_finished(
    command: Sample | Fit, built: Posterior, kept: Run, console: Console
) -> Path:
    console.print(
        f"{kept.path} is finished: {kept.committed.num_draws} draws.",
        highlight=False,
        soft_wrap=True,
    )
    _say_fitted(kept.fitted, console)
    _check_bias(command, built, kept.path, console)
    return kept.path


def _say_fitted(fitted: dict[str, list[float]] | None, console: Console) -> None:
    if fitted is not None:
        said = f"Fitted, mean of the members and range: {fitting.describe(fitted)}."
        console.print(said, highlight=False, soft_wrap=True)


def _run_and_say(
    command: Sample | Fit,
    built: Posterior,
    algorithm: Any,
    kept: run.NewRun | Run,
    params: Params | None,
    console: Console,
) -> Path:
    """Run to the end and say what the user must know.

    Raises:
        Stopped: if a signal asked for it; it says how to continue.
    """
    path = Path(kept.path)
    start = time.monotonic()
    try:
        result = _run(command, built, algorithm, kept, params)
    except Stopped as stopped:
        _add_seconds(path, start)
        raise Stopped(
            f"{stopped} Continue with: symjax {_name(command)} --resume {path}"
        ) from None
    _add_seconds(path, start)
    for message in result.messages:
        console.print(f"[bold]Warning:[/bold] {message}", highlight=False)
    _say_fitted(result.fitted, console)
    _check_bias(command, built, path, console)
    console.print(f"Finished: {path}", highlight=False, soft_wrap=True)
    return path


def _check_bias(
    command: Sample | Fit, built: Posterior, path: Path, console: Console
) -> None:
    if isinstance(command, Sample) and bias.is_wanted(command):
        bias.check(command, built, path, console)


def describe(command: Sample | Fit, built: Posterior) -> dict[str, Any]:
    """What a run directory records of its command."""
    options = asdict(command)
    for name in NOT_OF_THE_RUN:
        options.pop(name, None)
    return {
        "command": _name(command),
        "options": options,
        "data_fingerprint": built.dataset.fingerprint,
    }


def check_data(kept: Run, built: Posterior) -> None:
    """Require the data that a run was made with.

    Raises:
        ValueError: if they have changed.
    """
    if built.dataset.fingerprint != kept.config["data_fingerprint"]:
        raise ValueError(
            f"{kept.path} was made with other data than {built.dataset.name} holds "
            "now: put the data back, or make the run again."
        )


def posterior_of(kept: Run) -> Posterior:
    """The posterior that a run is of.

    Raises:
        ValueError: if it has no draws yet, or its data have changed.
    """
    if not kept.committed.num_draws:
        raise ValueError(
            f"{kept.path} has no draws yet. Continue it with --resume {kept.path}."
        )
    with posteriors.named(f"{kept.path}"):
        built = posteriors.build(rebuild_command(kept).problem)
    check_data(kept, built)
    return built


def rebuild_command(kept: Run) -> Sample | Fit:
    """The command that made a run.

    Raises:
        ValueError: if the run was not made by `symjax sample` or `symjax fit`.
    """
    kinds = {"sample": Sample, "fit": Fit}
    if kept.config.get("command") not in kinds:
        raise ValueError(
            f"{kept.path} was not made by symjax sample or symjax fit: its config.json "
            "does not say which data and network it is of. Read it with store.open."
        )
    return rebuild(kinds[kept.config["command"]], kept.config["options"])


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
    given = {name: getattr(command, name) for name in ("resume", "dry_run")}
    if isinstance(command, Sample):
        given["max_minutes"] = command.max_minutes
    recorded = rebuild_command(kept)
    if type(recorded) is not type(command):
        raise ValueError(
            f"{kept.path} is continued by: symjax {_name(recorded)} --resume "
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
        params = _starts(command, built, optimised=begins)
    run_key = _keys(command)[1]
    train = built.dataset.train
    if isinstance(command, Fit) and isinstance(algorithm, Algorithm):
        num_draws = fitting.num_draws(command)
        return run.sample(
            run_key, algorithm, params, train, num_draws=num_draws, store=kept
        )
    if isinstance(command, Fit):
        return run.fit(
            run_key,
            algorithm,
            params,
            train,
            num_steps=fitting.options_of(command).num_steps,
            num_draws=fitting.num_draws(command),
            store=kept,
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
        store=kept,
    )


def _keys(command: Sample | Fit) -> Any:
    """Of the starts, of the run, and of the starts' optimisation."""
    return jax.random.split(jax.random.key(command.seed), 3)


def _starts(command: Sample | Fit, built: Posterior, optimised: bool = True) -> Params:
    """Where the chains or members start; only their shapes if not `optimised`."""
    start_key, _, map_key = _keys(command)
    keys = jax.random.split(start_key, _num_chains(command))
    params = jax.vmap(built.init)(keys)
    if isinstance(command, Fit) or command.start == "init" or not optimised:
        return params
    return find_map(map_key, built, params, command.map_steps)


def find_map(key: Any, built: Posterior, params: Params, num_steps: int) -> Params:
    """One optimised start for each chain, from its own initialisation."""
    options = Ensemble(num_steps=num_steps, batch_size=None)
    optimised = run.fit(
        key,
        fitting.build_ensemble(options, built),
        params,
        built.dataset.train,
        num_steps=num_steps,
    )
    return jax.tree.map(lambda leaf: leaf[:, 0], optimised.draws)


def _num_chains(command: Sample | Fit) -> int:
    return command.num_members if isinstance(command, Fit) else command.num_chains


def _name(command: Sample | Fit) -> str:
    return type(command).__name__.lower()


def _free_path(command: Sample | Fit) -> Path:
    method = command.method if isinstance(command, Fit) else command.sampler
    problem: Problem = command.problem
    data = Path(problem.data).stem.replace(":", "-")
    base = Path("runs", f"{data}-{problem.model}-{method}")
    number = 1
    path = base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def _add_seconds(path: Path, start: float) -> None:
    store.write_json(
        path / "timing.json", {"seconds": seconds(path) + time.monotonic() - start}
    )


def seconds(path: Path) -> float:
    """Wall-clock seconds of a run, without those lost when it was killed."""
    file = path / "timing.json"
    return store.read_json(file)["seconds"] if file.exists() else 0.0
