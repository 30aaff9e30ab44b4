"""Processor seconds that `symmetry.infer` takes, tracing included.

A ResNet-50, and transformers of growing depth, whose cost should grow linearly with the
number of equations. The networks are never computed.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import figures, networks
from benchmarks.problems import Scale
from symjax import symmetry


@dataclass(frozen=True)
class Infer:
    """Time of finding the symmetries of a network, by its equations."""

    scale: Scale = "full"
    depths: tuple[int, ...] = (2, 4, 8, 12, 16, 32)
    """Of transformers of width 768."""
    repeats: int = 5
    out: Path = figures.OUT


def main(options):
    tokens = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
    cases = []
    if options.scale == "full":
        cases += [("ResNet-50", networks.ResNet50(), images)]
    for depth in options.depths:
        module = networks.Transformer(768, 12, depth, 4, 50_000, 50_000, pools=False)
        cases.append((f"transformer, depth {depth}", module, tokens))
    found, notes = [], []
    for name, module, x in cases:
        equations, taken, groups = _measure(module, x, options)
        case = f"{name}, {equations} equations"
        found += [
            figures.figure(case, "infer", "s", taken),
            figures.figure(case, "an equation", "ms", 1e3 * taken / equations),
        ]
        notes.append(f"{case}: {groups} groups")
    figures.report("infer", options, found, notes)


def _measure(module, x, options):
    """Equations, seconds of the processor, and groups."""
    params = jax.eval_shape(module.init, jax.random.key(0), x)
    taken, spec = [], ()
    for _ in range(options.repeats):
        if options.scale == "full":
            jax.clear_caches()
        start = time.process_time()
        spec = symmetry.infer(module.apply, params, x)
        taken.append(time.process_time() - start)
    jaxpr = jax.make_jaxpr(module.apply)(params, x).jaxpr
    return len(jaxpr.eqns), np.array(taken), len(list(spec))
