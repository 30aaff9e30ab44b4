"""More chains on one device, and chains and data over several devices.

`--counts` asks how many chains fill one device. `--meshes` shares the same work out
over devices (strong scaling: the time of one device over N times that of N), or gives
each group of devices its own chains (weak), with the time that the sums over devices
alone take. Of several processes every one runs this, and the first prints:

    python tpu/launch.py local --processes 2 --devices 1 -- \
        python scripts/benchmark.py chains --meshes chain=1,data=2
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from benchmarks import figures, problems
from benchmarks.problems import Name, Scale
from symjax import hosts, mesh as meshes
from symjax.samplers import hmc


@dataclass(frozen=True)
class Chains:
    """Draws a second by chains and devices."""

    problem: Name = "digits"
    scale: Scale = "full"
    counts: tuple[int, ...] = ()
    """Chains on one device, such as 1 4 16 64."""
    meshes: tuple[str, ...] = ()
    """Such as chain=1,data=2. Of one process, all on the first devices of it."""
    num_chains: int = 1
    """Of strong scaling; of weak scaling, for each group of devices."""
    num_leapfrogs: int = 20
    """Of a transition."""
    num_transitions: int | None = None
    """Between two looks at the clock. Default: 10 of digits, 1 of the others."""
    force: str | None = None
    micro_batch: int | None = None
    repeats: int = 7
    out: Path = figures.OUT


def main(options):
    problem = problems.build(
        options.problem,
        options.scale,
        force=options.force,
        micro_batch=options.micro_batch,
    )
    found = []
    if options.counts:
        found += _by_count(problem, options)
    if options.meshes:
        found += _by_mesh(problem, options)
    figures.report("chains", options, found)


def _by_count(problem, options):
    calls = {
        count: _program(problem, count, (1, 1), options)[0] for count in options.counts
    }
    times, found = figures.interleaved(calls, options.repeats), []
    least, draws = min(options.counts), _num_transitions(options)
    for count in options.counts:
        case = f"{problem.name}, {count} chains on one device"
        rate = draws * count / times[count]
        found.append(figures.figure(case, "draws of all chains", "1/s", rate))
        if count > least:
            words = f"as fast as {least} chains"
            ratio = rate / (draws * least / times[least])
            found.append(figures.figure(case, words, "x", ratio))
    return found


def _by_mesh(problem, options):
    shapes = {word: meshes.parse_shape(word) for word in options.meshes}
    alone = len(jax.devices()) > 1 and hosts.count() == 1
    runs, sums, chains = {}, {}, {}
    if alone:
        shapes = {"one device": (1, 1)} | shapes
    for word, shape in shapes.items():
        for kind, times in (("strong", 1), ("weak", shape[0])):
            chains[word, kind] = options.num_chains * times
            if kind == "weak" and times == 1:
                continue
            run, adding = _program(problem, chains[word, kind], shape, options)
            runs[word, kind], sums[word, kind] = run, adding
    taken = figures.interleaved(runs, options.repeats)
    adding = figures.interleaved(sums, options.repeats)
    found, count = [], options.num_leapfrogs * _num_transitions(options)
    for word, kind in runs:
        num_devices = int(np.prod(shapes[word]))
        case = f"{problem.name}, {chains[word, kind]} chains, {word}, {kind}"
        one = 1e3 * taken[word, kind] / count
        found.append(figures.figure(case, "a leapfrog of all chains", "ms", one))
        if shapes[word][1] > 1:
            share = 100 * adding[word, kind] / taken[word, kind]
            words = "share of the sums over devices"
            found.append(figures.figure(case, words, "%", share))
        if alone and num_devices > 1:
            base = taken["one device", "strong"]
            # In weak scaling a group still shares its chains' examples out.
            ideal = base / (num_devices if kind == "strong" else shapes[word][1])
            goal = _goal(options.problem, kind, shapes[word])
            efficiency = 100 * ideal / taken[word, kind]
            words = f"{kind} efficiency"
            found.append(figures.figure(case, words, "%", efficiency, at_least=goal))
    return found


def _goal(name, kind, shape):
    """Percent, at two devices, and at four or more."""
    num_devices = int(np.prod(shape))
    if kind == "weak":
        return None if shape[1] > 1 else 99 if num_devices == 2 else 95
    if num_devices > 2:
        return 90
    return {"resnet": 97, "mnist": 85}.get(name) if shape == (1, 2) else None


def _num_transitions(options):
    return problems.num_transitions(options.problem, options.num_transitions)


def _program(problem, num_chains, shape, options):
    """Transitions on a mesh of that shape, and their sums over devices, as calls."""
    devices = None if hosts.count() > 1 else jax.devices()[: int(np.prod(shape))]
    mesh = meshes.make_mesh(num_chains, devices, shape)
    sampler = hmc.build(
        problem.log_density, step_size=1e-5, num_steps=options.num_leapfrogs
    )
    host = jax.tree.map(np.asarray, problems.starts(problem, num_chains))
    params = meshes.place_chains(mesh, host)
    keys = jax.random.split(jax.random.key(0), num_chains)
    keys = meshes.place_chains(mesh, keys)
    data = meshes.place_data(mesh, jax.tree.map(np.asarray, problem.data))

    num_transitions = _num_transitions(options)
    blocks = problems.transitions(sampler.init, sampler.step, num_transitions)
    specs = P("chain"), P("chain"), P("data")
    over = partial(meshes.map_chains, mesh)
    begin, advance = (jax.jit(over(block, *specs)) for block in blocks)
    state = begin(keys, params, data)

    def sums(params):
        def one(_, tree):
            summed = meshes.sum_over_data(tree)
            return jax.tree.map(lambda leaf: leaf * 0.5, summed)

        count = options.num_leapfrogs * num_transitions
        return jax.lax.fori_loop(0, count, one, params)

    adding = jax.jit(over(jax.vmap(sums), P("chain")))
    return lambda: advance(keys, state, data), lambda: adding(params)
