"""The networks and data that are timed: seeded and made up, but for the digits."""

from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from symjax import data as datasets, densities, mesh, models, posterior
from symjax.types import Data


Name: TypeAlias = Literal["digits", "mnist", "resnet", "lenet", "cnn_lstm"]
WithPeers: TypeAlias = Literal["digits", "mnist", "resnet"]
CONVOLUTIONAL = ("resnet", "lenet", "cnn_lstm")
Scale: TypeAlias = Literal["tiny", "full"]


class Shape(NamedTuple):
    """A network and its examples."""

    model: str
    options: dict[str, Any]
    inputs: tuple[int, ...]
    num_examples: int


SHAPES = {
    ("digits", "full"): Shape("mlp", {"widths": (32,)}, (64,), 1437),
    ("digits", "tiny"): Shape("mlp", {"widths": (4,)}, (64,), 100),
    ("mnist", "full"): Shape("mlp", {"widths": (512, 512, 512)}, (784,), 60_000),
    ("mnist", "tiny"): Shape("mlp", {"widths": (8, 8, 8)}, (16,), 50),
    ("resnet", "full"): Shape("resnet20_frn", {}, (32, 32, 3), 50_000),
    ("resnet", "tiny"): Shape("resnet20_frn", {"width": 2}, (8, 8, 3), 8),
    ("lenet", "full"): Shape("lenet", {}, (32, 32, 3), 2_000),
    ("lenet", "tiny"): Shape("lenet", {}, (12, 12, 1), 8),
    ("cnn_lstm", "full"): Shape("cnn_lstm", {}, (100,), 5_000),
    ("cnn_lstm", "tiny"): Shape("cnn_lstm", {"num_words": 50}, (12,), 8),
}


class Problem(NamedTuple):
    """A log posterior, its data on the device, and starts of its network.

    Attributes:
        name: In words.
        log_density: `(params, data) -> nats`.
        data: All examples.
        init: `key -> params`.
        apply: `(params, x) -> outputs`.
        test: Examples that the posterior does not see.
    """

    name: str
    log_density: Any
    data: Data
    init: Any
    apply: Any
    test: Data


def build(name, scale, *, force=None, micro_batch=None, num_examples=None, std=1.0):
    """One of `SHAPES`, by name and scale.

    Args:
        name: Of the problem.
        scale: `tiny` or `full`.
        force: `force_precision` of `posterior.build`, or "float16, fused".
        micro_batch: Examples at a time.
        num_examples: Fewer than the full number.
        std: Of the prior.

    Raises:
        SystemExit: if there are no fused kernels for it here.
    """
    shape = SHAPES[name, scale]
    count = num_examples or shape.num_examples
    network = models.build(shape.model, num_outputs=10, **shape.options)
    if name == "digits":
        data, test = _digits(count)
    else:
        data, test = _made_up(shape.inputs, count)
    if name == "cnn_lstm":
        data, test = (_read_as_words(part, network.num_words) for part in (data, test))
    data, test = jax.tree.map(jnp.asarray, (data, test))
    precision, _, kernels = (force or "").partition(", ")
    fused = models.fused.find(network) if kernels == "fused" else None
    if kernels and fused is None:
        raise SystemExit("There are fused kernels for resnet, on a GPU.")
    log_density = posterior.build(
        network.apply,
        densities.Prior(dist.Normal(0.0, std)),
        densities.categorical,
        micro_batch=micro_batch,
        force_precision=precision or None,
        force_apply=fused,
    )
    init = jax.jit(lambda key: network.init(key, data.x[:1]))
    size = sum(
        leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    )
    words = f"{name}, {len(data.y):,} examples, {size:,} parameters"
    return Problem(words, log_density, data, init, network.apply, test)


def num_transitions(name, given):
    """Of one call: what was given, or so many that the host's part of it vanishes."""
    return given or (10 if name == "digits" else 1)


def starts(problem, num_chains):
    """Parameters of chains at their initialisation, leaves `(chain, ...)`."""
    # One by one, as in `symjax.cli.starts.make`.
    return jax.lax.map(problem.init, jax.random.split(jax.random.key(0), num_chains))


def gradients(problem, num_steps):
    """`(params, data)` of chains through a jitted loop of bare gradients.

    Nothing is done but what keeps the compiler from leaving a gradient out.
    """
    force = mesh.vmap_chains(jax.value_and_grad(problem.log_density), (0, None))

    @jax.jit
    def loop(params, data):
        def body(_, carry):
            params, total = carry
            value, gradient = force(params, data)
            params = jax.tree.map(lambda p, g: p + 1e-9 * g, params, gradient)
            return params, total + value

        count = len(jax.tree.leaves(params)[0])
        return jax.lax.fori_loop(0, num_steps, body, (params, jnp.zeros(count)))

    return loop


def transitions(init, step, num_transitions):
    """Jitted `start(keys, params, data)` and `advance(keys, state, data)` of chains."""

    def begin(keys, params, data):
        state = mesh.vmap_chains(init, (0, 0, None))(keys, params, data)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), state)

    def advance(keys, state, data):
        def body(i, state):
            step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, i)
            return mesh.vmap_chains(step, (0, 0, None))(step_keys, state, data)[0]

        return jax.lax.fori_loop(0, num_transitions, body, state)

    return jax.jit(begin), jax.jit(advance)


def _digits(count):
    dataset = datasets.load("digits")
    flat = lambda data: data._replace(x=np.reshape(data.x, (len(data.x), -1)))
    train, test = flat(dataset.train), flat(dataset.test)
    return Data(*(leaf[:count] for leaf in train)), test


def _made_up(inputs, count):
    """Ten classes around patterns of their own, of which one in ten is mislabelled."""
    random = np.random.default_rng(0)
    patterns = random.standard_normal((10, *inputs), np.float32)

    def examples(count):
        y = random.integers(0, 10, count).astype(np.int32)
        x = 0.3 * patterns[y] + random.standard_normal((count, *inputs), np.float32)
        wrong = random.random(count) < 0.1
        y = np.where(wrong, random.integers(0, 10, count), y).astype(np.int32)
        return Data(x.astype(np.float32), y, np.ones(count, bool))

    return examples(count), examples(min(count, 1000))


def _read_as_words(data, num_words):
    """Numbers as ids of words, the smallest number as the first."""
    ids = np.clip((data.x + 4) / 8, 0, 1 - 1e-6) * num_words
    return data._replace(x=ids.astype(np.int32))
