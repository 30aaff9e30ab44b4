"""Solvers of linear assignment, on the host and on the device, in ratio to SciPy's.

From gains on the device to permutations on the device.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from benchmarks import figures
from benchmarks.problems import Scale
from symjax.symmetry.matching import assignment


@dataclass(frozen=True)
class Assignment:
    """Solve random problems on the host and on the device."""

    scale: Scale = "full"
    sizes: tuple[int, ...] = (256, 512, 1024)
    problems: tuple[int, ...] = (1, 64)
    """At once."""
    noise: tuple[float, ...] = (0.3, float("inf"))
    """Of copies, relatively; units of both sides are independent where it is inf."""
    repeats: int = 5
    most_seconds: float = 10
    """Leave a solver out where it took more on problems of half the size."""
    out: Path = figures.OUT


def _in_a_loop(gains):
    return np.stack([linear_sum_assignment(one, maximize=True)[1] for one in gains])


def _in_threads(gains):
    with ThreadPoolExecutor() as threads:
        solved = threads.map(partial(linear_sum_assignment, maximize=True), gains)
        return np.stack([columns for _, columns in solved])


def _by_optax(gains):
    # Rows come unsorted.
    rows, columns = optax.assignment.hungarian_algorithm(-gains)
    return columns[jnp.argsort(rows)]


def _from_host(solve):
    """With the way to the host and back."""
    return lambda gains: jax.device_put(solve(np.asarray(gains)))


SCIPY = "SciPy, a loop"
SOLVERS = {
    SCIPY: _from_host(_in_a_loop),
    "SciPy, threads": _from_host(_in_threads),
    "symjax": _from_host(assignment.solve),
    "optax, vmap": jax.jit(jax.vmap(_by_optax)),
    "optax, a loop": jax.jit(partial(jax.lax.map, _by_optax)),
}


@jax.jit
def _gains(ours, theirs):
    return jnp.einsum("puf,pvf->puv", ours, theirs, precision="highest")


def main(options):
    found, generator = [], np.random.default_rng(0)
    for noise in options.noise:
        for num in options.problems:
            left = dict(SOLVERS)
            for size in options.sizes:
                shape = (num, size, 800)
                ours, theirs = (
                    generator.standard_normal(shape, np.float32) for _ in range(2)
                )
                if noise < float("inf"):
                    theirs = ours + np.float32(noise) * theirs
                case = f"{num} problems of {size} units, noise {noise:g}"
                taken = _seconds(left, _gains(ours, theirs), options.repeats)
                found.append(figures.figure(case, SCIPY, "ms", 1e3 * taken[SCIPY]))
                for name in [name for name in taken if name != SCIPY]:
                    ratio = taken[name] / taken[SCIPY]
                    words = f"{name}, over SciPy"
                    found.append(figures.figure(case, words, "x", ratio))
                slow = [n for n in left if np.median(taken[n]) > options.most_seconds]
                for name in slow:
                    del left[name]
    figures.report("assignment", options, found)


def _seconds(solvers, gains, repeats):
    """Seconds of each, with answers that were compared with SciPy's."""
    expected = _in_a_loop(np.asarray(gains))
    for name, solve in solvers.items():
        assert np.array_equal(solve(gains), expected), name

    def fresh(solve):
        # Else the copy on the host is kept.
        return lambda: solve(gains + 0)

    calls = {name: fresh(solve) for name, solve in solvers.items()}
    return figures.interleaved(calls, repeats)
