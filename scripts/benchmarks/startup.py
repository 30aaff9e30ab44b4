"""What a user waits for: imports, and compiling, with and without the cache."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from benchmarks import figures, problems
from benchmarks.problems import Name, Scale
from symjax.samplers import hmc


IMPORTS = {
    "symjax --help": "symjax.cli",
    "the library, to sample": "symjax.run, symjax.models, symjax.data, "
    "symjax.densities, symjax.posterior, symjax.samplers.hmc",
    "symjax sample": "symjax.cli.chains",
    "symjax align": "symjax.cli.alignment",
    "symjax report": "symjax.cli.results",
    "jax alone": "jax",
}
NOT_JUDGED = ("symjax report", "jax alone")
NUM_HEAVY = 12


@dataclass(frozen=True)
class Startup:
    """Seconds of imports, and of compiling HMC of each network."""

    problems: tuple[Name, ...] = ("digits", "mnist", "resnet", "lenet", "cnn_lstm")
    scale: Scale = "full"
    imports: tuple[str, ...] = tuple(IMPORTS)
    repeats: int = 5
    out: Path = figures.OUT


def main(options):
    found = []
    for name in options.imports:
        code = f"import {IMPORTS[name]}"
        taken = [_run(code)[0] for _ in range(options.repeats + 1)][1:]
        goal = None if name in NOT_JUDGED else 1.5
        found.append(
            figures.figure(f"import: {name}", "warm", "s", taken, at_most=goal)
        )
    for name in options.problems:
        found += _compile(name, options)
    figures.report("startup", options, found, _heavy() if options.imports else [])


def _run(code, *flags):
    """Seconds of a new Python, and what it said."""
    words = [sys.executable, *flags, "-c", code]
    done: Any = None

    def call():
        nonlocal done
        done = subprocess.run(words, check=True, capture_output=True, text=True)

    taken = figures.seconds(call)
    return taken, done.stderr


def _heavy():
    """Lines about the packages that take longest, from the first to import them."""
    code = f"import {IMPORTS['symjax sample']}"
    lines = _run(code, "-X", "importtime")[1].splitlines()
    totals = {}
    for line in lines:
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdigit():
            package = parts[2].strip().split(".")[0]
            totals[package] = totals.get(package, 0) + int(parts[0]) / 1e6
    largest = sorted(totals.items(), key=lambda item: -item[1])[:NUM_HEAVY]
    words = ", ".join(f"{package} {taken:.2f}" for package, taken in largest)
    return [f"Seconds of symjax sample's imports, by package: {words}."]


def _compile(name, options):
    """Compiling a transition of HMC: tracing, XLA, and the same from the cache."""
    problem = problems.build(name, options.scale)
    algorithm = hmc.build(problem.log_density, step_size=1e-3, num_steps=10)
    params = problems.starts(problem, 1)
    keys = jax.random.split(jax.random.key(0), 1)
    begin, advance = problems.transitions(algorithm.init, algorithm.step, 1)
    state = begin(keys, params, problem.data)
    taken = {"tracing": [], "XLA": [], "from the cache": []}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
            for by in ("XLA", "from the cache"):
                jax.clear_caches()
                begin_at = time.perf_counter()
                lowered = advance.lower(keys, state, problem.data)
                traced_at = time.perf_counter()
                lowered.compile()
                taken[by].append(time.perf_counter() - traced_at)
                taken["tracing"].append(traced_at - begin_at)
    case = f"compile: HMC, {problem.name}"
    return [figures.figure(case, what, "s", np.array(v)) for what, v in taken.items()]


class _cache_in:  # noqa: N801  (a context manager)
    """A compilation cache in a folder of its own."""

    NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.before = [getattr(jax.config, name) for name in self.NAMES]
        self._set(self.folder, 0.0)

    def __exit__(self, *error):
        self._set(*self.before)

    def _set(self, *values):
        for name, value in zip(self.NAMES, values, strict=True):
            jax.config.update(name, value)
        compilation_cache.reset_cache()
