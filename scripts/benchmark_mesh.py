"""What more devices and more processes make of a leapfrog.

HMC of made-up data on the mesh: the time of a leapfrog, of the sums over devices alone,
and the memory. Run it once for every arrangement, and compare; of several processes,
host 0 prints.

    python scripts/benchmark_mesh.py --model resnet20_frn --mesh chain=1,data=2
    python tpu/launch.py local --processes 2 -- \
        python scripts/benchmark_mesh.py --model mlp --num-chains 4
"""

import json
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro

from symjax import hosts


@dataclass(frozen=True)
class Benchmark:
    """HMC on a mesh of devices."""

    model: Literal["mlp", "resnet20_frn"] = "mlp"
    """mlp: 784-512-512-512-10, as for MNIST; resnet20_frn: as for CIFAR-10."""
    num_examples: int = 60_000
    num_chains: int = 1
    mesh: str | None = None
    """Such as chain=1,data=2. Default: chains first."""
    micro_batch: int | None = None
    """Examples at a time on a device; default: all."""
    num_leapfrogs: int = 20
    repeats: int = 7
    out: Path | None = None
    """A file that gets a line of JSON."""
    distributed: str = "auto"
    """auto, off, or ADDRESS,N,ID: as of symjax sample."""


def main():
    options = tyro.cli(Benchmark)
    hosts.start(options.distributed)
    found = measure(options)  # After the start: what it imports computes.
    if hosts.is_first():
        line = json.dumps(found)
        print(line)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(line + "\n")
    hosts.finish()


def measure(options: Benchmark) -> dict[str, Any]:
    import jax
    import numpy as np
    import numpyro.distributions as dist
    from jax.sharding import PartitionSpec as P

    from symjax import densities, mesh as meshes, models, posterior
    from symjax.samplers import hmc
    from symjax.types import Data

    widths = {"widths": (512, 512, 512)} if options.model == "mlp" else {}
    network = models.build(options.model, num_outputs=10, **widths)
    shape = (784,) if options.model == "mlp" else (32, 32, 3)
    rng = np.random.default_rng(0)
    count = options.num_examples
    data = Data(
        rng.normal(size=(count, *shape)).astype(np.float32),
        rng.integers(0, 10, count).astype(np.int32),
        np.ones(count, bool),
    )
    log_posterior = posterior.build(
        network.apply,
        densities.Prior(dist.Normal(0.0, 1.0)),
        densities.categorical,
        micro_batch=options.micro_batch,
    )
    sampler = hmc.build(log_posterior, step_size=1e-7, num_steps=options.num_leapfrogs)
    form = None if options.mesh is None else meshes.parse_shape(options.mesh)
    mesh = meshes.make_mesh(options.num_chains, shape=form)

    def start(keys):
        return jax.vmap(lambda key: network.init(key, data.x[:1]))(keys)

    keys = jax.random.split(jax.random.key(0), options.num_chains)
    params = meshes.place_chains(mesh, jax.tree.map(np.asarray, start(keys)))
    keys, placed = meshes.place_chains(mesh, keys), meshes.place_data(mesh, data)

    def block(function, keys, state, data):
        return meshes.vmap_chains(function, (0, 0, None))(keys, state, data)

    over = partial(meshes.map_chains, mesh)
    specs = P("chain"), P("chain"), P("data")
    init = jax.jit(over(partial(block, sampler.init), *specs))
    step = jax.jit(over(partial(block, sampler.step), *specs))

    def sums(params):
        def one(_, tree):
            summed = meshes.sum_over_data(tree)
            return jax.tree.map(lambda leaf: leaf * 0.5, summed)

        return jax.lax.fori_loop(0, options.num_leapfrogs, one, params)

    adding = jax.jit(over(jax.vmap(sums), P("chain")))
    state = jax.block_until_ready(init(keys, params, placed))
    times = {
        "ms_a_leapfrog": _time(lambda: step(keys, state, placed), options),
        "ms_of_sums": _time(lambda: adding(params), options),
    }
    stats = jax.local_devices()[0].memory_stats() or {}
    num_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    return {
        "model": options.model,
        "parameters": int(num_params) // options.num_chains,
        "examples": count,
        "chains": options.num_chains,
        "mesh": dict(mesh.shape),
        "processes": hosts.count(),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        **times,
        "peak_bytes_of_a_device": stats.get("peak_bytes_in_use"),
    }


def _time(call: Any, options: Benchmark) -> dict[str, float]:
    """Median, least and most milliseconds for each leapfrog, after a first call."""
    import jax

    times = []
    for repeat in range(options.repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        if repeat:
            times.append(1e3 * (time.perf_counter() - begin) / options.num_leapfrogs)
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


if __name__ == "__main__":
    main()
