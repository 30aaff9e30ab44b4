"""How many noisy, randomly permuted copies of a network are matched exactly."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import figures, networks
from benchmarks.problems import Scale
from symjax import models, symmetry, trees


IMAGES = jax.ShapeDtypeStruct((2, 16, 16, 3), jnp.float32)
TOKENS = jax.ShapeDtypeStruct((2, 12), jnp.int32)

MODELS = {
    "MLP, relu": lambda: (models.MLP(10, (128, 128, 128), nn.relu), IMAGES),
    "MLP, tanh": lambda: (models.MLP(10, (128, 128, 128), nn.tanh), IMAGES),
    "LeNet-5": lambda: (models.LeNet(10), IMAGES),
    "ResNet-20-FRN": lambda: (models.ResNet20FRN(10), IMAGES),
    "ResNet-18": lambda: (networks.ResNet18(16), IMAGES),
    "CNN-LSTM": lambda: (networks.ConvLSTM(32), TOKENS),
    "transformer": lambda: (networks.Transformer(32), TOKENS),
}


@dataclass(frozen=True)
class Recovery:
    """Match noisy copies that random elements moved, and count exact answers."""

    scale: Scale = "full"
    tries: int = 100
    noise: tuple[float, ...] = (0.1, 0.3)
    """Standard deviation of the noise on each weight, in that of its leaf."""
    models: tuple[str, ...] = tuple(MODELS)
    out: Path = figures.OUT


class Subject(NamedTuple):
    """A network to be copied."""

    spec: symmetry.Spec
    params: Any


def main(options):
    found = []
    for name in options.models:
        subject = make(name)
        order = subject.spec.log_order / np.log(10)
        case = f"{name}, {trees.size(subject.params):,} weights, 10^{order:,.0f} copies"
        kinds = [(noise, False) for noise in options.noise]
        if subject.spec.scalings:
            kinds.append((max(options.noise), True))
        for noise, scale in kinds:
            right = 100 * recovered(subject, options.tries, noise, scale=scale)
            words = f"exactly recovered, noise {noise:g}"
            words += ", random scales" if scale else ""
            share = np.mean(right)
            found.append(figures.figure(case, words, "%", share))
    notes = [f"Of {options.tries} copies each."]
    figures.report("recovery", options, found, notes)


def make(name):
    """A network with generic weights: an initialisation, and noise of 0.1 on it."""
    module, x = MODELS[name]()
    variables = jax.jit(module.init)(
        jax.random.key(0), jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), x)
    )
    spec = symmetry.infer(module.apply, variables, x)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), variables)
    generator = np.random.default_rng(0)
    return Subject(
        spec,
        jax.tree.map(
            lambda leaf: leaf + np.float32(0.1) * normal(generator, leaf.shape), params
        ),
    )


def normal(generator, shape):
    return generator.standard_normal(shape, np.float32)


def recovered(subject, tries, noise, *, scale):
    """For each try, whether the clean network was found again to the last bit."""
    spec, params = subject
    keys = jax.random.split(jax.random.key(1), tries)
    element = jax.vmap(partial(symmetry.random_element, spec=spec))(keys)
    ones = tuple(jnp.ones_like(scales) for scales in element.scales)
    generator = np.random.default_rng(2)

    def blur(leaf):
        width = np.float32(noise * leaf.std())
        return leaf + width * normal(generator, (tries, *leaf.shape))

    act = jax.jit(jax.vmap(partial(symmetry.act, spec)))
    used = element if scale else element._replace(scales=ones)
    copies = act(used, jax.tree.map(blur, params))
    found = symmetry.match_weights(spec, copies, params)
    both = jax.vmap(partial(symmetry.compose, spec))(found, element)
    clean = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (tries, *leaf.shape)), params
    )
    back = act(both._replace(scales=ones), clean)
    same = [
        np.all(np.asarray(moved) == leaf, axis=tuple(range(1, moved.ndim)))
        for moved, leaf in zip(
            jax.tree.leaves(back), jax.tree.leaves(params), strict=True
        )
    ]
    return np.logical_and.reduce(same)
