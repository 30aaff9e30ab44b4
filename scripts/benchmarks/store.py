"""What keeping draws costs: writing, the run's delay, and reading back.

The run is one of a made-up sampler that takes no time; what a run of one draw takes,
mostly to compile, is subtracted. For the delay it sleeps, so that a draw of all chains
takes `--seconds-a-draw`; the same run without a store is the base.
"""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import figures
from benchmarks.problems import Scale
from symjax import run, store as stores
from symjax.types import Algorithm


@dataclass(frozen=True)
class Store:
    """Draws written and read a second, and what writing costs a run."""

    scale: Scale = "full"
    size: int = 100_000
    """Parameters of a draw."""
    num_chains: int = 4
    num_draws: int = 10_000
    """Written and read back, of all chains together."""
    seconds_a_draw: float = 1.0
    num_slow_draws: int = 30
    """Draws of the run that sleeps."""
    repeats: int = 3
    out: Path = figures.OUT


class _State(NamedTuple):
    position: Any


class _Info(NamedTuple):
    log_density: Any


def main(options):
    found = [*_write_and_read(options), *_delay(options)]
    figures.report("store", options, found)


def _algorithm(seconds):
    """A chain that counts, after a sleep that all chains share."""

    def sleep(x):
        time.sleep(seconds)
        return np.zeros(x.shape, np.float32)

    def wait(number):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(sleep, shape, number, vmap_method="broadcast_all")

    def step(key, state, data):
        pause = wait(state.position["weights"][0]) if seconds else 0.0
        moved = state.position["weights"] + 1 + pause
        return _State({"weights": moved}), _Info(jnp.float32(0))

    def init(key, params, data):
        return _State(params)

    return Algorithm(init, step)


def _sample(options, num_draws, seconds, place):
    """Seconds of a run of so many draws a chain."""
    start = {"weights": jnp.zeros((options.num_chains, options.size))}
    begin = time.perf_counter()
    run.sample(
        jax.random.key(0),
        _algorithm(seconds),
        start,
        None,
        num_draws=num_draws,
        store=place,
        show_progress=False,
    )
    return time.perf_counter() - begin


def _write_and_read(options):
    each = -(-options.num_draws // options.num_chains)
    case = f"{each * options.num_chains:,} draws of {options.size:,} parameters"
    writing, reading, slices = [], [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            long, short = (run.NewRun(Path(folder) / name) for name in ("run", "first"))
            beginning = _sample(options, 1, 0.0, short)
            writing.append(_sample(options, 1 + each, 0.0, long) - beginning)
            kept = stores.open(long.path)
            reading.append(figures.seconds(kept.read))
            lazy = kept.lazy()["weights"]
            part = partial(_read_part, lazy, max(1, each // 10))
            slices.append(figures.seconds(part))
    num_bytes = 4 * (1 + each) * options.num_chains * options.size
    rate = each * options.num_chains / np.array(writing)
    return [
        figures.figure(case, "draws written", "1/s", rate),
        figures.figure(case, "reading all of them", "s", reading),
        figures.figure(case, "the same", "GB/s", num_bytes / np.array(reading) / 1e9),
        figures.figure(case, "reading a tenth of a chain", "s", slices),
    ]


def _read_part(leaf, num_draws):
    return leaf[0, slice(0, num_draws)]


def _delay(options):
    """The whole run's time with a store over that without, of the same sleeps."""
    seconds, shares = options.seconds_a_draw, []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            new = run.NewRun(Path(folder) / "run")
            kept = _sample(options, options.num_slow_draws, seconds, new)
            alone = _sample(options, options.num_slow_draws, seconds, None)
            shares.append(100 * (kept / alone - 1))
    case = f"{options.num_slow_draws} draws of {seconds:g} s"
    case += f" and {options.size:,} parameters"
    return [figures.figure(case, "cost of the store", "%", shares, at_most=2)]
