"""`--dry-run`: what a run will take, said before it is started."""

import statistics
import time
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, PartitionSpec as P
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from symjax import hosts, mesh as meshes, trees
from symjax.cli import bias, estimates, fitting, methods, warmups
from symjax.cli.options import Estimate, Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.store import Commit
from symjax.types import Algorithm, Approximation


REPEATS = 5

OF_A_LENGTH = ("hmc", "dynamic_hmc", "chees", "split_hmc", "adjusted_mclmc")
"""Samplers whose trajectories take more gradients of a smaller step."""


def show(
    command: Sample | Fit,
    built: Posterior,
    mesh: Mesh,
    algorithm: Algorithm | Approximation,
    done: Commit,
    console: Console,
) -> None:
    """Print the plan, after timing one gradient of all chains on the devices.

    Args:
        command: What is planned.
        built: Its posterior.
        mesh: Of the devices.
        algorithm: What runs.
        done: What a run that is continued has behind it, which is left out.
        console: Where to print.
    """
    work = _work(command, built, mesh, algorithm, done)
    estimate = command.estimate if isinstance(command, Sample) else Estimate()
    num_examples = int(built.dataset.train.mask.sum())
    estimates.check_examples(estimate, work.num_chains, num_examples)
    timed = _gradient(estimate, built, mesh, work)
    rows = _rows(command, built, mesh, work, done)
    rows |= _costs(command, built, mesh, algorithm, work, timed)
    if not hosts.is_first():
        return
    table = Table(title="Plan (nothing was run)", show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table, highlight=False)
    if estimate.devices:
        one = timed.seconds * mesh.size / work.num_chains
        sizes = trees.size(built.shapes), work.num_chains, work.num_gradients
        console.print(estimates.table(estimate, one, *sizes), highlight=False)


class _Work(NamedTuple):
    """What is left to do.

    Attributes:
        num_chains: Chains or members.
        num_groups: In which a device computes its chains, one after another.
        num_draws: Of each.
        num_iterations: Of each.
        per_iteration: Gradients.
        batch_size: Examples of a gradient; None for all.
        is_checked: Whether the step size's check is among the iterations.
    """

    num_chains: int
    num_groups: int
    num_draws: int
    num_iterations: int
    per_iteration: int
    batch_size: int | None
    is_checked: bool

    @property
    def num_gradients(self) -> int:
        """Of each chain."""
        return self.num_iterations * self.per_iteration


class _Timed(NamedTuple):
    """The gradients of all chains; their scratch memory is None if they were given."""

    seconds: float
    scratch: int | None


def _work(
    command: Sample | Fit,
    built: Posterior,
    mesh: Mesh,
    algorithm: Algorithm | Approximation,
    done: Commit,
) -> _Work:
    checked = 0
    if isinstance(command, Fit):
        num_chains, num_draws = command.num_members, fitting.num_draws(command)
        is_chain = isinstance(algorithm, Algorithm)
        iterations = num_draws if is_chain else fitting.options_of(command).num_steps
    else:
        num_chains, num_draws = command.num_chains, command.num_draws
        num_warmup = getattr(algorithm, "num_warmup", 0)
        checked = bias.num_iterations(command)
        iterations = num_warmup + num_draws * command.thinning + checked
    each = num_chains // mesh.shape["chain"]
    return _Work(
        num_chains,
        each // (command.processes.chains_at_once or each),
        num_draws - done.num_draws,
        iterations - done.iteration,
        methods.gradients_per_iteration(command, built),
        methods.batch_size(command),
        checked > 0,
    )


def _rows(
    command: Sample | Fit, built: Posterior, mesh: Mesh, work: _Work, done: Commit
) -> dict[str, str]:
    """What is sampled from, on what, how often."""
    train, test = built.dataset.train, built.dataset.test
    size, groups = work.batch_size, work.num_groups
    return {
        "data": f"{command.problem.data}: {len(train.mask):,} train, "
        f"{len(test.mask):,} test",
        "parameters": f"{trees.size(built.shapes):,}",
        "chains": f"{work.num_chains}, on a mesh of {mesh.shape['chain']} (chains) x "
        f"{mesh.shape['data']} (data) {jax.devices()[0].device_kind} devices"
        + (f", in {groups} groups one after another" if groups > 1 else ""),
        "iterations": f"{work.num_iterations:,}, keeping {work.num_draws:,} draws a "
        "chain"
        + (", with the check of the step size" if work.is_checked else "")
        + (f", after {done.iteration:,} that are done" if done.iteration else ""),
        "gradients": f"{work.per_iteration:,} an iteration, {work.num_gradients:,} in "
        "all for each chain, of "
        + ("the whole data set" if size is None else f"{size} examples")
        + _at_step_size(command),
    }


def _at_step_size(command: Sample | Fit) -> str:
    """At which step size gradients are counted, where the run will have another."""
    if isinstance(command, Fit) or command.sampler not in OF_A_LENGTH:
        return ""
    options: Any = getattr(command, command.sampler)
    if getattr(options, "num_steps", None) is not None:
        return ""
    if warmups.picks_step_size(command):
        return (
            f", if the step size were {options.step_size:g}: --warmup auto picks "
            "another, with which there may be many times as many"
        )
    if options.num_warmup:
        return ", at the first step size, which the warm-up adapts"
    return ""


def _costs(
    command: Sample | Fit,
    built: Posterior,
    mesh: Mesh,
    algorithm: Algorithm | Approximation,
    work: _Work,
    timed: _Timed,
) -> dict[str, str]:
    """What it takes: memory, disk and time."""
    total, at_end = timed.seconds * work.num_gradients, {}
    after = fitting.gradients_at_end(command, built) if isinstance(command, Fit) else 0
    if after:
        num_examples = len(built.dataset.train.mask)
        total += (
            timed.seconds * after * num_examples / (work.batch_size or num_examples)
        )
        said = _describe_end(after, algorithm, built, mesh, work.num_chains)
        at_end = {"curvature": said}
    micro_batch = built.log_posterior.micro_batch
    draw_bytes = trees.num_bytes(built.shapes) * work.num_chains * work.num_draws
    return {
        "micro-batch": "whole" if micro_batch is None else f"{micro_batch:,} examples",
        "memory of a gradient": _a_device(timed.scratch),
        **at_end,
        "draws on disk": _size(draw_bytes),
        "one gradient": f"{estimates.milliseconds(timed.seconds)} ms, all chains"
        + (" together" if work.num_groups == 1 else "")
        + ("" if timed.scratch is not None else ", as given"),
        "estimated time": f"{_duration(total)}, without compiling"
        + (" and without the optimised starts" if _starts_from_map(command) else "")
        + (", at that step size" if _at_step_size(command) else ""),
    }


def _gradient(estimate: Estimate, built: Posterior, mesh: Mesh, work: _Work) -> _Timed:
    if estimate.gradient_ms is None:
        at_once = work.num_chains // work.num_groups
        group = _time_gradient(built, mesh, at_once, work.batch_size)
        return group._replace(seconds=work.num_groups * group.seconds)
    num_params = trees.size(built.shapes)
    seconds = estimates.given_seconds(estimate, mesh, num_params, work.num_chains)
    return _Timed(seconds, None)


def _a_device(scratch: int | None) -> str:
    return "not measured" if scratch is None else f"{_size(scratch)} a device"


def _describe_end(
    gradients: int, algorithm: Any, built: Posterior, mesh: Any, num_chains: int
) -> str:
    kept, besides = fitting.bytes_at_end(algorithm, built)
    kept *= num_chains // mesh.shape["chain"]
    return (
        f"of the cost of {gradients:,} gradients of the whole data set for each chain; "
        f"{_size(kept)} a device, and up to {_size(besides)} while it is measured"
    )


def _starts_from_map(command: Sample | Fit) -> bool:
    return isinstance(command, Sample) and command.start == "map"


def _time_gradient(
    built: Posterior, mesh: Any, num_chains: int, batch_size: int | None
) -> _Timed:
    """The median of several times."""

    def gradient(keys: Any, params: Any, data: Any) -> Any:
        def one(key: Any, params: Any) -> Any:
            if batch_size is None:
                return jax.value_and_grad(built.log_posterior)(params, data)
            return jax.value_and_grad(built.log_posterior.minibatch, 1)(
                key, params, data, batch_size
            )

        return jax.vmap(one)(keys, params)

    keys = jax.random.split(jax.random.key(0), num_chains)
    params = jax.lax.map(built.init, keys)  # As in `starts.make`.
    keys, params = meshes.place_chains(mesh, (keys, params))
    data = meshes.place_data(mesh, built.dataset.train)
    mapped = meshes.map_chains(mesh, gradient, P("chain"), P("chain"), P("data"))
    compiled = jax.jit(mapped).lower(keys, params, data).compile()
    jax.block_until_ready(compiled(keys, params, data))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(compiled(keys, params, data))
        times.append(time.perf_counter() - start)
    analysis = compiled.memory_analysis()
    scratch = analysis.temp_size_in_bytes if analysis else 0
    return _Timed(statistics.median(times), scratch)


def _size(num_bytes: int) -> str:
    return decimal(num_bytes, separator=" ")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} hours"
