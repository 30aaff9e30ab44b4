"""Time the solvers of linear assignment, on the host and on the device.

Prints a table in Markdown.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from symjax.symmetry.matching import assignment


@dataclass(frozen=True)
class Options:
    """Solve random problems on the host and on the device."""

    sizes: tuple[int, ...] = (256, 512, 1024)
    problems: tuple[int, ...] = (1, 64)
    """At once."""
    noise: tuple[float, ...] = (0.3, float("inf"))
    """Of copies, relatively; units of both sides are independent where it is inf."""
    repeats: int = 5
    most_seconds: float = 10
    """Leave a solver out where it took more on problems of half the size."""


def _in_a_loop(gains: np.ndarray) -> np.ndarray:
    return np.stack([linear_sum_assignment(one, maximize=True)[1] for one in gains])


def _in_threads(gains: np.ndarray) -> np.ndarray:
    with ThreadPoolExecutor() as threads:
        solved = threads.map(partial(linear_sum_assignment, maximize=True), gains)
        return np.stack([columns for _, columns in solved])


def _by_optax(gains: jax.Array) -> jax.Array:
    # Rows come unsorted.
    rows, columns = optax.assignment.hungarian_algorithm(-gains)
    return columns[jnp.argsort(rows)]


def _from_host(solve: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Any]:
    """With the way to the host and back."""
    return lambda gains: jax.device_put(solve(np.asarray(gains)))


SOLVERS: dict[str, Callable[[Any], Any]] = {
    "SciPy, a loop": _from_host(_in_a_loop),
    "SciPy, threads": _from_host(_in_threads),
    "symjax": _from_host(assignment.solve),
    "optax, vmap": jax.jit(jax.vmap(_by_optax)),
    "optax, a loop": jax.jit(partial(jax.lax.map, _by_optax)),
}


@jax.jit
def _gains(ours: jax.Array, theirs: jax.Array) -> jax.Array:
    return jnp.einsum("puf,pvf->puv", ours, theirs, precision="highest")


def compare(options: Options) -> None:
    """Print milliseconds, from gains on the device to permutations on the device."""
    names = [f"{name}, ms" for name in SOLVERS]
    table = Table("units", "problems", "noise", *names, box=box.MARKDOWN)
    generator = np.random.default_rng(0)
    for noise in options.noise:
        for num in options.problems:
            left = dict(SOLVERS)
            for size in options.sizes:
                ours, theirs = (
                    generator.standard_normal((num, size, 800), np.float32)
                    for _ in range(2)
                )
                if noise < float("inf"):
                    theirs = ours + np.float32(noise) * theirs
                gains = _gains(ours, theirs)
                times = _medians(left, gains, options.repeats)
                first = times["SciPy, a loop"]
                cells = [
                    f"{1000 * times[name]:.1f} ({times[name] / first:.2f})"
                    if name in times
                    else "-"
                    for name in SOLVERS
                ]
                table.add_row(f"{size}", f"{num}", f"{noise:g}", *cells)
                slow = [name for name in left if times[name] > options.most_seconds]
                for name in slow:
                    del left[name]
    Console(width=160).print(
        f"Medians (and ratios to the first), on {jax.devices()[0].device_kind}"
    )
    Console(width=160).print(table)


def _medians(
    solvers: dict[str, Callable[[Any], Any]], gains: jax.Array, repeats: int
) -> dict[str, float]:
    expected = _in_a_loop(np.asarray(gains))
    medians = {}
    for name, solve in solvers.items():
        assert np.array_equal(solve(gains), expected), name
        times = []
        # A slow one is timed but once.
        while len(times) < repeats and sum(times) < 2:
            # Else the copy on the host is kept.
            again = jax.block_until_ready(gains + 0)
            start = time.perf_counter()
            jax.block_until_ready(solve(again))
            times.append(time.perf_counter() - start)
        medians[name] = statistics.median(times)
    return medians


if __name__ == "__main__":
    compare(tyro.cli(Options, description=__doc__))
