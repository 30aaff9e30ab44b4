"""Networks of the zoo: how they are written down, filled and run in float64."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from symjax import trees


# Compiling is most of the time.
QUICK = {"xla_backend_optimization_level": 0}


class Network(NamedTuple):
    apply: Callable[[Any, Any], Any]
    params: Any
    x: Any


class Case(NamedTuple):
    """A network and its groups, as in "32 32 3x5"; None where they are not stated."""

    name: str
    make: Callable[[], Network]
    permutations: str = ""
    scalings: str | None = ""
    signs: str | None = ""


def fill(params, seed=0):
    """Random values for every floating leaf, positive where a variance is kept."""
    generator = np.random.default_rng(seed)

    def values(path, leaf):
        if not np.issubdtype(leaf.dtype, np.floating):
            return np.zeros(leaf.shape, leaf.dtype)
        drawn = generator.normal(size=leaf.shape) * 0.7
        return np.asarray(np.abs(drawn) + 0.3 if "var" in path else drawn, np.float32)

    leaves, structure = jax.tree.flatten(params)
    named = zip(trees.paths(params), leaves, strict=True)
    return jax.tree.unflatten(structure, [values(*leaf) for leaf in named])


def inputs(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def tokens(vocabulary, *shape):
    """Token ids that use the whole vocabulary."""
    ids = np.arange(np.prod(shape)) % vocabulary
    return np.random.default_rng(1).permutation(ids).reshape(shape).astype(np.int32)


def linen(module, x) -> Network:
    params = jax.eval_shape(module.init, jax.random.key(0), x)
    return Network(module.apply, fill(params), x)


def plain(apply, x, **leaves) -> Network:
    """A network of a dict of arrays, given by their shapes."""
    params = {
        name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in leaves.items()
    }
    return Network(apply, fill(params), x)


def double(tree):
    """The floating leaves in float64; call it, and use the result, in `enable_x64`."""
    return jax.tree.map(
        lambda leaf: (
            np.asarray(leaf, np.float64)
            if np.issubdtype(np.asarray(leaf).dtype, np.floating)
            else leaf
        ),
        tree,
    )


def changes(network, others) -> Iterator[tuple[float, float]]:
    """For each `transform(params)`: how much outputs and parameters change, relatively.

    All in float64. The change of the parameters is the largest of any scalar.
    """
    with jax.enable_x64(True):
        apply = jax.jit(
            lambda params, x: ravel_pytree(network.apply(params, x))[0],
            compiler_options=QUICK,
        )
        params, x = double(network.params), double(network.x)
        before = np.asarray(apply(params, x))
        assert before.dtype == np.float64
        assert np.all(np.isfinite(before))
        for transform in others:
            moved = transform(params)
            after = np.asarray(apply(moved, x))
            output = np.max(np.abs(after - before)) / np.max(np.abs(before))
            pairs = zip(jax.tree.leaves(moved), jax.tree.leaves(params), strict=True)
            yield (
                output,
                max(np.max(np.abs(new - old), initial=0) for new, old in pairs),
            )
