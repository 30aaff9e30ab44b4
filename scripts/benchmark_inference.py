"""Processor seconds that `symmetry.infer` takes, tracing included.

Prints a table for a ResNet-50, a 12-layer transformer, and transformers of depth 2 to
32, whose cost should grow linearly with the number of equations.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.table import Table

from symjax import symmetry


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with BatchNorm around a residual stream."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        shortcut = x
        sizes = ((1, 1, self.features), (3, self.stride, self.features))
        for size, stride, features in sizes:
            x = nn.Conv(features, (size, size), (stride, stride), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.Conv(4 * self.features, (1, 1), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        if x.shape != shortcut.shape:
            stride = (self.stride, self.stride)
            shortcut = nn.Conv(x.shape[-1], (1, 1), stride, use_bias=False)(shortcut)
            shortcut = nn.BatchNorm(use_running_average=True)(shortcut)
        return nn.relu(x + shortcut)


class ResNet50(nn.Module):
    """Four stages of bottleneck blocks (He et al. 2016, Table 1)."""

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                x = Bottleneck(64 * 2**stage, stride)(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


class Transformer(nn.Module):
    """Pre-LN blocks of attention and an MLP over token embeddings."""

    depth: int
    width: int = 768
    heads: int = 12

    @nn.compact
    def __call__(self, tokens):
        """Return outputs."""
        x = nn.Embed(50_000, self.width)(tokens)
        x = x + self.param("positions", nn.initializers.normal(), x.shape[1:])
        for _ in range(self.depth):
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(h, h)
            h = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(h))
        return nn.Dense(50_000)(nn.LayerNorm()(x))


@dataclass(frozen=True)
class Options:
    """What to measure."""

    repeats: int = 5
    """Times that each network is inferred; the median counts."""


def measure(module: nn.Module, x: Any, repeats: int) -> tuple[int, float, int]:
    """Equations, median seconds, and groups of a network that is never computed."""
    params = jax.eval_shape(module.init, jax.random.key(0), x)
    seconds, spec = [], ()
    for _ in range(repeats):
        jax.clear_caches()
        start = time.process_time()
        spec = symmetry.infer(module.apply, params, x)
        seconds.append(time.process_time() - start)
    jaxpr = jax.make_jaxpr(module.apply)(params, x).jaxpr
    return len(jaxpr.eqns), statistics.median(seconds), len(list(spec))


def main() -> None:
    """Print the table."""
    options = tyro.cli(Options, description=__doc__)
    images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    table = Table("network", "equations", "seconds", "ms an equation", "groups")
    networks = [("ResNet-50", ResNet50(), images)]
    networks += [
        (f"transformer, depth {depth}", Transformer(depth), tokens)
        for depth in (2, 4, 8, 12, 16, 32)
    ]
    for name, module, x in networks:
        equations, seconds, groups = measure(module, x, options.repeats)
        each = f"{1000 * seconds / equations:.2f}"
        table.add_row(name, f"{equations}", f"{seconds:.2f}", each, f"{groups}")
    Console().print(table)


if __name__ == "__main__":
    main()
