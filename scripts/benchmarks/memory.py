"""Memory of the device: by the number of parameters, and by the micro-batch.

What a program holds is read off the compiled program: arguments, results and scratch.
Where the device keeps count, its peak is printed too, which only ever grows: sizes go
up, so that each one's is its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

from benchmarks import figures, problems
from benchmarks.contenders import CONTENDERS
from benchmarks.problems import Name, Scale
from symjax import mesh


NUM_LEAVES = 8
WIDTH = 100


@dataclass(frozen=True)
class Memory:
    """Copies of the parameters that a chain of HMC holds; bytes of a gradient."""

    sizes: tuple[int, ...] = (10**5, 10**6, 10**7, 10**8)
    """Parameters."""
    problems: tuple[Name, ...] = ()
    """Whose gradients are compiled for every micro-batch."""
    scale: Scale = "full"
    micro_batches: tuple[int, ...] = ()
    num_chains: int = 1
    contenders: tuple[Literal["symjax", "blackjax", "numpyro"], ...] = (
        "symjax",
        "blackjax",
    )
    out: Path = figures.OUT


def main(options):
    found = []
    for size in sorted(options.sizes):
        found += _by_size(size, options)
    for name in options.problems:
        found += _by_micro_batch(name, options)
    notes = [
        "A chain's copies: the compiled transition's arguments, results and scratch, "
        "the state given away; 4 bytes a parameter are one copy."
    ]
    figures.report("memory", options, found, notes)


def linear(params, data):
    """A density of matrices that needs next to no memory of its own.

    Its gradient is a product of matrices, as a network's is, and no part of what the
    compiler makes of a leapfrog.
    """
    return -0.5 * sum(jnp.sum(jnp.square(w @ data)) for w in jax.tree.leaves(params))


def _by_size(size, options):
    chains, rows = options.num_chains, max(1, size // NUM_LEAVES // WIDTH)
    size, shape = NUM_LEAVES * rows * WIDTH, (chains, rows, WIDTH)
    data = jnp.ones((WIDTH, 8))
    params = {f"leaf_{i}": jnp.zeros(shape) for i in range(NUM_LEAVES)}
    keys = jax.random.split(jax.random.key(0), chains)
    found = []
    for name in options.contenders:
        init, step = CONTENDERS[name](linear, 1e-3, 10)
        state = jax.jit(mesh.vmap_chains(init, (0, 0, None)))(keys, params, data)
        run = jax.jit(mesh.vmap_chains(step, (0, 0, None)), donate_argnums=1)
        program = run.lower(keys, state, data).compile()
        held = figures.memory(program)
        case = f"{size:,} parameters, {chains} chains"
        goal = 5.05 if name == "symjax" else None
        copies = held / (4 * size * chains)
        words = f"copies a chain, {name}"
        found.append(figures.figure(case, words, "", copies, at_most=goal))
        if name == "symjax":
            jax.block_until_ready(program(keys, state, data))
            found += _peak(case, 4 * size * chains)
    return found


def _peak(case, one_copy):
    peak = figures.peak_bytes()
    if peak is None:
        return []
    return [figures.figure(case, "peak of the device, copies", "", peak / one_copy)]


def _by_micro_batch(name, options):
    whole = problems.build(name, options.scale)
    params = problems.starts(whole, options.num_chains)
    found = []
    for size in (*sorted(options.micro_batches), None):
        problem = problems.build(name, options.scale, micro_batch=size)
        force = jax.jit(
            mesh.vmap_chains(jax.value_and_grad(problem.log_density), (0, None))
        )
        compiled = force.lower(params, problem.data).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        scratch = analysis.temp_size_in_bytes
        case = f"{problem.name}, micro-batch {'all' if size is None else f'{size:,}'}"
        found.append(figures.figure(case, "scratch of a gradient", "MB", scratch / 1e6))
    return found
