"""`--dry-run`: what a run will take, said before it is started."""

import statistics
import time
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec as P
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from symjax import hosts, mesh as meshes, trees
from symjax.cli import bias, estimates, fitting, methods
from symjax.cli.options import Estimate, Fit, Sample
from symjax.cli.posteriors import Posterior
from symjax.store import Commit
from symjax.types import Algorithm, Approximation


REPEATS = 5


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
    if isinstance(command, Fit):
        num_chains, num_draws = command.num_members, fitting.num_draws(command)
        is_chain = isinstance(algorithm, Algorithm)
        iterations = num_draws if is_chain else fitting.options_of(command).num_steps
        checked = 0
    else:
        num_chains, num_draws = command.num_chains, command.num_draws
        num_warmup = getattr(algorithm, "num_warmup", 0)
        iterations = num_warmup + num_draws * command.thinning
        checked = bias.num_iterations(command)
        iterations += checked
    iterations -= done.iteration
    num_draws -= done.num_draws
    gradients = methods.gradients_per_iteration(command, built)
    batch_size = methods.batch_size(command)
    estimate = command.estimate if isinstance(command, Sample) else Estimate()
    seconds, scratch = _gradient(estimate, built, mesh, num_chains, batch_size)
    shapes = jax.eval_shape(built.init, jax.random.key(0))
    draw_bytes = trees.num_bytes(shapes) * num_chains * num_draws
    total = seconds * gradients * iterations
    at_end = {}
    after = fitting.gradients_at_end(command, built) if isinstance(command, Fit) else 0
    if after:
        num_examples = len(built.dataset.train.mask)
        total += seconds * after * num_examples / (batch_size or num_examples)
        at_end = {"curvature": _describe_end(after, algorithm, built, mesh, num_chains)}
    micro_batch = built.log_posterior.micro_batch
    rows = {
        "data": f"{command.problem.data}: {len(built.dataset.train.mask):,} train, "
        f"{len(built.dataset.test.mask):,} test",
        "parameters": f"{trees.size(shapes):,}",
        "chains": f"{num_chains}, on a mesh of {mesh.shape['chain']} (chains) x "
        f"{mesh.shape['data']} (data) {jax.devices()[0].device_kind} devices",
        "iterations": f"{iterations:,}, keeping {num_draws:,} draws a chain"
        + (", with the check of the step size" if checked else "")
        + (f", after {done.iteration:,} that are done" if done.iteration else ""),
        "gradients": f"{gradients:,} an iteration, "
        f"{gradients * iterations:,} in all for each chain, of "
        + ("the whole data set" if batch_size is None else f"{batch_size} examples"),
        "micro-batch": "whole" if micro_batch is None else f"{micro_batch:,} examples",
        "memory of a gradient": _a_device(scratch),
        **at_end,
        "draws on disk": _size(draw_bytes),
        "one gradient": f"{estimates.milliseconds(seconds)} ms, all chains together"
        + ("" if scratch is not None else ", as given"),
        "estimated time": f"{_duration(total)}, without compiling"
        + (" and without the optimised starts" if _starts_from_map(command) else ""),
    }
    if not hosts.is_first():
        return
    table = Table(title="Plan (nothing was run)", show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table, highlight=False)
    if estimate.devices:
        one = seconds * mesh.size / num_chains
        sizes = trees.size(shapes), num_chains, gradients * iterations
        console.print(estimates.table(estimate, one, *sizes), highlight=False)


def _gradient(
    estimate: Estimate, built: Posterior, mesh: Mesh, num_chains: int, size: int | None
) -> tuple[float, int | None]:
    """Seconds of the gradients of all chains, given or measured; memory if measured."""
    if estimate.gradient_ms is None:
        return _time_gradient(built, mesh, num_chains, size)
    num_params = trees.size(built.shapes)
    return estimates.given_seconds(estimate, mesh, num_params, num_chains), None


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
) -> tuple[float, int]:
    """Median seconds of the gradients of all chains, and their scratch memory."""

    def gradient(keys: Any, params: Any, data: Any) -> Any:
        def one(key: Any, params: Any) -> Any:
            if batch_size is None:
                return jax.value_and_grad(built.log_posterior)(params, data)
            return jax.value_and_grad(built.log_posterior.minibatch, 1)(
                key, params, data, batch_size
            )

        return jax.vmap(one)(keys, params)

    keys = meshes.place_chains(mesh, jax.random.split(jax.random.key(0), num_chains))
    params = jax.vmap(built.init)(keys)
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
    return statistics.median(times), analysis.temp_size_in_bytes if analysis else 0


def _size(num_bytes: int) -> str:
    return decimal(num_bytes, separator=" ")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} hours"
