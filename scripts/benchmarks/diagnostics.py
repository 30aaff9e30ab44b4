"""R-hat and effective sample sizes of many quantities: seconds, growth, memory."""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import figures, watching
from benchmarks.problems import Scale
from symjax import evaluation


@dataclass(frozen=True)
class Diagnostics:
    """Convergence of 4 chains of 200 draws."""

    scale: Scale = "full"
    sizes: tuple[int, ...] = (12_500, 25_000, 50_000, 100_000)
    """Quantities."""
    num_chains: int = 4
    num_draws: int = 200
    memory: tuple[int, ...] = (250_000, 1_000_000)
    """Quantities of a run in a file, whose diagnosis is watched."""
    repeats: int = 3
    out: Path = figures.OUT


def main(options):
    random, calls = np.random.default_rng(0), {}
    for size in sorted(options.sizes):
        shape = (options.num_chains, options.num_draws, size)
        draws = random.standard_normal(shape, np.float32)
        case = (
            f"{size:,} quantities of {options.num_chains} x {options.num_draws} draws"
        )
        calls[case] = lambda draws=draws: evaluation.summarise(draws) and None
    taken = figures.interleaved(calls, options.repeats)
    found = [
        figures.figure(case, "summarise", "s", times) for case, times in taken.items()
    ]
    for before, after in itertools.pairwise(taken):
        ratio = taken[after] / taken[before]
        found.append(
            figures.figure(after, f"over {before.split(' of')[0]}", "x", ratio)
        )
    found += [_memory(size, options) for size in options.memory]
    figures.report("diagnostics", options, found)


def _memory(size, options):
    peak, held = watching.elsewhere(watch, options.num_chains, options.num_draws, size)
    case = f"{size:,} quantities in a file, {held / 1e9:.2g} GB"
    return figures.figure(case, "peak of the host", "GB", peak / 1e9)


def watch(num_chains, num_draws, size):
    """Diagnose draws that lie in a file: the peak, and what the draws take."""
    with tempfile.TemporaryDirectory() as folder:
        name, shape = Path(folder) / "draws.npy", (num_chains, num_draws, size)
        made = np.lib.format.open_memmap(name, "w+", np.float32, shape)
        random = np.random.default_rng(0)
        for chain in range(num_chains):
            for draw in range(num_draws):
                made[chain, draw] = random.standard_normal(size, np.float32)
        made.flush()
        draws = np.load(name, mmap_mode="r")
        return watching.peak(lambda: evaluation.summarise(draws)), draws.nbytes
