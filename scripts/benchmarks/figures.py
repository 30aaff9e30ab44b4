"""Figures with their spread: how they are timed, judged, shown and written down.

Machines are shared and clocks drift, so contenders take turns, and a ratio is that of
one turn to the same turn of another; shown are the median and the quartiles.
"""

import json
import math
import shlex
import sys
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from symjax import hosts
from symjax.cli import ending


PACKAGES = ("jax", "jaxlib", "flax", "blackjax", "numpyro", "numpy", "scipy", "torch")


class Figure(NamedTuple):
    """One number with its spread over the repeats, and its goal if there is one."""

    case: str
    name: str
    unit: str
    median: float
    low: float
    high: float
    goal: str = ""
    is_met: bool | None = None


def figure(case, name, unit, values, *, at_most=None, at_least=None):
    """The median and quartiles of `values`; a goal is judged by the median."""
    low, median, high = map(float, np.quantile(np.ravel(values), (0.25, 0.5, 0.75)))
    goal, is_met = "", None
    if at_most is not None:
        goal, is_met = f"≤ {at_most:g}", median <= at_most
    if at_least is not None:
        goal, is_met = f"≥ {at_least:g}", median >= at_least
    return Figure(case, name, unit, median, low, high, goal, is_met)


def seconds(call):
    """What one call takes, to the end of what it started on the device."""
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def interleaved(calls, repeats):
    """Seconds of each call, `(repeat,)` by name: in turns, after one untimed round."""
    for call in calls.values():
        jax.block_until_ready(call())
    rounds = [
        {name: seconds(call) for name, call in calls.items()} for _ in range(repeats)
    ]
    return {name: np.array([one[name] for one in rounds]) for name in calls}


def memory(compiled):
    """Bytes that a compiled program holds: arguments, results and scratch, or None."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    held = found.argument_size_in_bytes + found.output_size_in_bytes
    return held + found.temp_size_in_bytes - found.alias_size_in_bytes


def peak_bytes():
    """The most that the device held since the process began; None on a CPU."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def report(name, options, figures, notes=()):
    """Print the table and write `NAME.json`; of several processes, on the first."""
    if not hosts.is_first():
        return
    if not figures:
        ending.fail("Nothing was measured: these options leave out all there is.", 2)
    if options.scale == "tiny":
        figures = [one._replace(goal="", is_met=None) for one in figures]
    where = {
        "benchmark": name,
        "command": shlex.join(["python", *sys.argv]),
        "device": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "processes": hosts.count(),
        "versions": _versions(),
        "options": {key: str(value) for key, value in asdict(options).items()},
    }
    console = Console(width=None if sys.stdout.isatty() else 150)
    versions = ", ".join(f"{package} {v}" for package, v in where["versions"].items())
    console.print(f"{where['device']}, {versions}\n{where['command']}", highlight=False)
    console.print(_table(name, figures))
    for note in notes:
        console.print(note, highlight=False)
    rows = [{key: _known(v) for key, v in one._asdict().items()} for one in figures]
    text = json.dumps(where | {"figures": rows, "notes": list(notes)}, indent=2)
    (options.out / f"{name}.json").write_text(text + "\n")


def _table(name, figures):
    table = Table(title=name, box=box.SIMPLE_HEAD)
    for column in ("case", "figure"):
        table.add_column(column, overflow="fold")
    for column in ("median", "quartiles", "unit", "goal", ""):
        table.add_column(column, justify="right", no_wrap=True)
    for one in figures:
        verdict = {True: "met", False: "MISSED", None: ""}[one.is_met]
        spread = f"{_short(one.low)} to {_short(one.high)}"
        row = (
            one.case,
            one.name,
            _short(one.median),
            spread,
            one.unit,
            one.goal,
            verdict,
        )
        table.add_row(*row)
    return table


def _known(value):
    """What JSON has: neither infinities nor what is not a number."""
    is_number = isinstance(value, float)
    return None if is_number and not math.isfinite(value) else value


def _short(value):
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _versions():
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


OUT = Path("runs/benchmark")
