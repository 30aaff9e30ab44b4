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
    least = min(options.counts)
    for count in options.counts:
        case = f"{problem.name}, {count} chains on one device"
        rate = count / times[count]
        found.append(figures.figure(case, "draws of all chains", "1/s", rate))
        if count > least:
            words = f"as fast as {least} chains"
            ratio = rate / (least / times[least])
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
    found = []
    for word, kind in runs:
        num_devices = int(np.prod(shapes[word]))
        case = f"{problem.name}, {chains[word, kind]} chains, {word}, {kind}"
        one = 1e3 * taken[word, kind] / options.num_leapfrogs
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


def _program(problem, num_chains, shape, options):
    """A transition on a mesh of that shape, and its sums over devices, as calls."""
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

    def block(function, keys, state, data):
        return meshes.vmap_chains(function, (0, 0, None))(keys, state, data)

    specs = P("chain"), P("chain"), P("data")
    over = partial(meshes.map_chains, mesh)
    init = jax.jit(over(partial(block, sampler.init), *specs))
    step = jax.jit(over(partial(block, sampler.step), *specs))
    state = init(keys, params, data)

    def sums(params):
        def one(_, tree):
            summed = meshes.sum_over_data(tree)
            return jax.tree.map(lambda leaf: leaf * 0.5, summed)

        return jax.lax.fori_loop(0, options.num_leapfrogs, one, params)

    adding = jax.jit(over(jax.vmap(sums), P("chain")))
    return lambda: step(keys, state, data), lambda: adding(params)
