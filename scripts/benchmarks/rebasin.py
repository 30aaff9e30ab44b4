"""Seconds to match two networks, to align many draws, and how both grow.

The sum over widths and draws is of the work of an alignment alone: the second call of
each, compiled before. The peak of the host's memory is measured in a process of its
own, whose draws lie in files, which do not count.
"""

import itertools
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import figures, watching
from benchmarks.problems import Scale
from benchmarks.recovery import normal
from symjax import models, symmetry, trees


@dataclass(frozen=True)
class Rebasin:
    """Alignment of a pair and of draws; growth; memory."""

    scale: Scale = "full"
    pair: tuple[int, ...] = (512, 512, 512)
    """Hidden widths of two networks."""
    draws: tuple[int, ...] = (125, 250, 500, 1000)
    """Of a network with one hidden layer of 512 units."""
    width: int = 512
    widths: tuple[int, ...] = (128, 256, 512, 1024)
    """Of one pair with two hidden layers."""
    memory: tuple[int, ...] = (25, 100)
    """Draws of a million parameters whose alignment is watched."""
    copies: bool = False
    """Noisy copies of the reference (of 0.3) rather than independent networks."""
    repeats: int = 3
    out: Path = figures.OUT


def main(options):
    found, taken = [], {}
    pair = {f"a pair of {_name(options.pair)}": (options.pair, None)}
    layer = (options.width,)
    draws = {f"{n} draws of {_name(layer)}": (layer, n) for n in options.draws}
    wider = {f"a pair of {_name((w, w))}": ((w, w), None) for w in options.widths}
    for case, (widths, num) in (pair | draws | wider).items():
        spec, reference, others = mlp(widths, num or 1, options.copies)
        if num is None:
            others = jax.tree.map(lambda leaf: leaf[0], others)
        align = partial(symmetry.rebasin, spec, others, reference)
        taken[case] = figures.interleaved({case: align}, options.repeats)[case]
        found.append(figures.figure(case, "alignment", "s", taken[case]))
    for group in (draws, wider):
        for before, after in itertools.pairwise(group):
            ratio = taken[after] / taken[before]
            found.append(figures.figure(after, f"over {before}", "x", ratio))
    found += [_memory(num) for num in options.memory]
    figures.report("rebasin", options, found)


def _name(widths):
    return "-".join(map(str, (784, *widths, 10)))


def mlp(widths, num, copies):
    """A spec, a reference, and networks of Gaussian weights by fan-in."""
    module = models.MLP(10, widths, nn.relu)
    x = jnp.zeros((1, 784))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x)
    spec = symmetry.infer(module.apply, shapes, x)
    generator = np.random.default_rng(0)

    def gaussian(leaf, num):
        return np.float32(leaf.shape[0] ** -0.5) * normal(generator, (num, *leaf.shape))

    reference = jax.tree.map(lambda leaf: gaussian(leaf, 1)[0], shapes)
    draws = jax.tree.map(lambda leaf: gaussian(leaf, num), shapes)
    if copies:
        draws = jax.tree.map(lambda own, new: own + 0.3 * new, reference, draws)
        keys = jax.random.split(jax.random.key(0), num)
        element = jax.vmap(partial(symmetry.random_element, spec=spec))(keys)
        ones = tuple(jnp.ones_like(scales) for scales in element.scales)
        act = jax.jit(jax.vmap(partial(symmetry.act, spec)))
        draws = jax.device_get(act(element._replace(scales=ones), draws))
    return spec, reference, draws


def _memory(num):
    """The host's peak beside the draws and the result, in the size of the draws."""
    peak, draws = watching.elsewhere(watch, num)
    case = f"{num} draws of a million parameters, {draws / 1e9:.2g} GB"
    return figures.figure(case, "peak beside draws and result", "GB", peak / 1e9)


def watch(num):
    """Align draws that lie in files: the peak beside them, and what they take."""
    spec, reference, _ = mlp((1024, 200), 1, copies=False)
    with tempfile.TemporaryDirectory() as folder:
        draws = jax.tree.map(partial(_in_a_file, folder, num), reference)
        size = trees.num_bytes(draws)
        grown = watching.peak(lambda: symmetry.rebasin(spec, draws, reference))
    return max(0, grown - size), size


def _in_a_file(folder, num, leaf):
    """Draws of one leaf, written one by one."""
    name = tempfile.mktemp(".npy", dir=folder)
    generator = np.random.default_rng(leaf.size)
    made = np.lib.format.open_memmap(name, "w+", np.float32, (num, *leaf.shape))
    for i in range(num):
        made[i] = np.float32(0.03) * normal(generator, leaf.shape)
    made.flush()
    return np.load(name, mmap_mode="r")
