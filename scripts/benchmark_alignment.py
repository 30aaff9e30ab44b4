"""How well and how fast networks are aligned by their weights.

All print tables in Markdown.

    recovery     how many random symmetric copies are matched exactly, by model
    speed        seconds to match two networks, and to align many draws
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from symjax import models, symmetry, trees


class ResNet18(nn.Module):
    """Four stages of two blocks with batch normalisation (He et al. 2016, table 1)."""

    width: int

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        norm = partial(nn.BatchNorm, use_running_average=True)

        def layer(x, features, kernel=3, stride=1):
            sides, strides = (kernel, kernel), (stride, stride)
            return norm()(nn.Conv(features, sides, strides, use_bias=False)(x))

        x = nn.relu(layer(x, self.width))
        for stage in range(4):
            features = self.width * 2**stage
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                change = nn.relu(layer(x, features, stride=stride))
                change = layer(change, features)
                if stride == 2:
                    x = layer(x, features, kernel=1, stride=2)
                x = nn.relu(x + change)
        return nn.Dense(10)(jnp.mean(x, axis=(1, 2)))


class ConvLSTM(nn.Module):
    """Embedded tokens, a convolution, pooling, an LSTM, and two classes."""

    width: int

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Embed(100, self.width)(x)
        x = nn.max_pool(nn.relu(nn.Conv(self.width, (3,))(x)), (2,), (2,))
        states = jnp.asarray(nn.RNN(nn.LSTMCell(self.width))(x))
        return nn.Dense(2)(states[:, -1])


class Transformer(nn.Module):
    """Pre-norm layers of attention and an MLP over embedded tokens."""

    width: int
    heads: int = 4
    layers: int = 2

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Embed(100, self.width)(x)
        x = x + self.param("positions", nn.initializers.normal(), x.shape[1:])
        for _ in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
            hidden = nn.gelu(nn.Dense(2 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(hidden)
        return nn.Dense(10)(nn.LayerNorm()(x).mean(axis=1))


IMAGES = jax.ShapeDtypeStruct((2, 16, 16, 3), jnp.float32)
TOKENS = jax.ShapeDtypeStruct((2, 12), jnp.int32)

MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "MLP, relu": lambda: (models.MLP(10, (128, 128, 128), nn.relu), IMAGES),
    "MLP, tanh": lambda: (models.MLP(10, (128, 128, 128), nn.tanh), IMAGES),
    "LeNet-5": lambda: (models.LeNet(10), IMAGES),
    "ResNet-20-FRN": lambda: (models.ResNet20FRN(10), IMAGES),
    "ResNet-18": lambda: (ResNet18(16), IMAGES),
    "CNN-LSTM": lambda: (ConvLSTM(32), TOKENS),
    "transformer": lambda: (Transformer(32), TOKENS),
}


@dataclass(frozen=True)
class Recovery:
    """Match noisy copies that random elements moved, and count exact answers."""

    tries: int = 100
    noise: tuple[float, ...] = (0.1, 0.3)
    """Standard deviation of the noise on each weight, in that of its leaf."""
    model: tuple[str, ...] = tuple(MODELS)


@dataclass(frozen=True)
class Speed:
    """Match pairs of networks, and align draws, with what it takes to compile."""

    draws: int = 1000
    copies: bool = False
    """Noisy copies of the reference (of 0.3) rather than independent networks."""


class Subject(NamedTuple):
    """A network to be copied."""

    spec: symmetry.Spec
    params: Any


def make(name: str) -> Subject:
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
            lambda leaf: leaf + np.float32(0.1) * _normal(generator, leaf.shape), params
        ),
    )


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_normal(shape, np.float32)


def recovered(subject: Subject, tries: int, noise: float, *, scale: bool) -> np.ndarray:
    """For each try, whether the clean network was found again to the last bit."""
    spec, params = subject
    keys = jax.random.split(jax.random.key(1), tries)
    element = jax.vmap(partial(symmetry.random_element, spec=spec))(keys)
    ones = tuple(jnp.ones_like(scales) for scales in element.scales)
    generator = np.random.default_rng(2)

    def blur(leaf: np.ndarray) -> np.ndarray:
        return leaf + np.float32(noise * leaf.std()) * _normal(
            generator, (tries, *leaf.shape)
        )

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


def recovery(options: Recovery) -> None:
    """Print the table, a row whenever one is known."""
    print(f"Exactly recovered of {options.tries}, on {_device()}:\n")
    columns = [f"noise {noise:g}" for noise in options.noise]
    head = ["model", "weights", "copies, log10", *columns, "and random scales"]
    print(" | ".join(["", *head, ""]).strip())
    print(f"| --- |{' ---: |' * (len(head) - 1)}")
    for name in options.model:
        subject = make(name)
        counts = [
            f"{recovered(subject, options.tries, noise, scale=False).sum()}"
            for noise in options.noise
        ]
        scaled = "-"
        if subject.spec.scalings:
            most = max(options.noise)
            scaled = f"{recovered(subject, options.tries, most, scale=True).sum()}"
        order = f"{subject.spec.log_order / np.log(10):,.0f}"
        size = f"{trees.size(subject.params):,}"
        row = ["", name, size, order, *counts, scaled, ""]
        print(" | ".join(row).strip(), flush=True)


def mlp(widths: tuple[int, ...], num: int, copies: bool) -> tuple[Any, Any, Any]:
    """A spec, a reference, and networks of Gaussian weights by fan-in."""
    module = models.MLP(10, widths, nn.relu)
    x = jnp.zeros((1, 784))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x)
    spec = symmetry.infer(module.apply, shapes, x)
    generator = np.random.default_rng(0)

    def gaussian(leaf: Any, num: int) -> np.ndarray:
        std = np.float32(leaf.shape[0] ** -0.5)
        return std * _normal(generator, (num, *leaf.shape))

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


def speed(options: Speed) -> None:
    """Print seconds of a first and of a second call."""
    table = Table("networks", "first call, s", "second, s", "sweeps", box=box.MARKDOWN)
    for widths, num in (((512, 512, 512), None), ((512,), options.draws)):
        spec, reference, draws = mlp(widths, num or 1, options.copies)
        if num is None:
            draws = jax.tree.map(lambda leaf: leaf[0], draws)
        times, aligned = [], None
        for _ in range(2):
            start = time.perf_counter()
            aligned = jax.block_until_ready(symmetry.rebasin(spec, draws, reference))
            times.append(f"{time.perf_counter() - start:.2f}")
        assert aligned is not None
        name = "-".join(map(str, (784, *widths, 10)))
        sweeps = f"{np.mean(aligned.num_sweeps):.1f}"
        table.add_row(f"{num or 'a pair'} of {name}", *times, sweeps)
    Console().print(f"Aligned to a reference, on {_device()}")
    Console().print(table)


def _device() -> str:
    return f"{jax.devices()[0].device_kind}"


def main() -> None:
    """Run what was asked for."""
    chosen = tyro.cli(Recovery | Speed, description=__doc__)
    match chosen:
        case Recovery():
            recovery(chosen)
        case Speed():
            speed(chosen)


if __name__ == "__main__":
    main()
