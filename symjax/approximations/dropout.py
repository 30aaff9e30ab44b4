"""Monte-Carlo dropout: weight matrices whose inputs are left out at random.

A draw of a weight matrix is W = diag(z) M / (1 - p), its z independently 0 with
probability p and 1 otherwise, one for each input: dropping an input is dropping its row
of weights. A draw thus is a network like any other, which all examples share; its mean
is M, which is fitted. Biases are never dropped.

The fit maximises E_q[log posterior(W)], likelihood and prior both of the draw. That is
the evidence lower bound up to a constant, since the entropy of q does not depend on M.
(Of a normal prior of deviation s the prior's part is -M^2 / (2 s^2 (1 - p)): the
weight decay of the paper.)

Members are independent fits, vmapped and spread over the mesh like chains: draws of
several together are of several modes.

References:
    Gal, Ghahramani (2016), Dropout as a Bayesian approximation: representing model
    uncertainty in deep learning, section 3, and its appendix, section 3.2.
    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov (2014), Dropout: a simple
    way to prevent neural networks from overfitting, section 9.1.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symjax import checks, trees
from symjax.approximations import descent
from symjax.posterior import LogPosterior
from symjax.types import Approximation, Data, Key, Params


class State(NamedTuple):
    """A fit under way: the means M and biases, and the state of the optimiser."""

    position: Params
    optimiser: Any


class Info(NamedTuple):
    """What one step saw, as scalars.

    Attributes:
        log_density: Log posterior in nats, mean over the step's draws; an estimate if
            minibatched.
    """

    log_density: Float[Array, ""]


def build(
    log_posterior: LogPosterior,
    *,
    optimiser: optax.GradientTransformation,
    rate: float = 0.1,
    layers: Sequence[str] | None = None,
    num_masks: int = 1,
    batch_size: int | None = None,
) -> Approximation:
    """Monte-Carlo dropout, one independent fit a member.

    The objective is minus the expected log posterior divided by the number of examples,
    so that learning rates mean what they mean in training. A step costs `num_masks`
    gradients.

    Args:
        log_posterior: Whose network is fitted, its prior and temperature included.
        optimiser: An optax optimiser, schedule included.
        rate: Probability p that an input is left out.
        layers: Which arrays are dropped, as `find_layers` takes it.
        num_masks: Draws of the weights in a step, each with its own minibatch.
        batch_size: Examples of each of them; None for the whole data set.

    Returns:
        `Approximation` whose `sample` draws a network with inputs left out.

    Raises:
        ValueError: If a number is out of range; from `init`, if `layers` does not fit
            the parameters.

    Example:
        >>> approximation = build(
        ...     log_posterior, optimiser=optax.adam(1e-3), rate=0.1, batch_size=100
        ... )  # doctest: +SKIP
    """
    checks.at_least(1, num_masks=num_masks, batch_size=batch_size)
    if not 0 < rate < 1:
        raise ValueError(f"`rate` must be above 0 and below 1, got {rate}.")

    def init(key: Key, params: Params, data: Data) -> State:
        del key, data
        find_layers(params, layers)
        return State(params, optimiser.init(params))

    def step(key: Key, state: State, data: Data) -> tuple[State, Info]:
        def log_density(params: Params) -> Float[Array, ""]:
            def one(key: Key) -> Float[Array, ""]:
                mask_key, batch_key = jax.random.split(key)
                whole = descent.estimate(log_posterior, batch_size, batch_key, data)
                return whole(_drop(mask_key, params, rate, layers))

            return jnp.mean(jax.vmap(one)(jax.random.split(key, num_masks)))

        *new, value = descent.step(optimiser, log_density, *state, data)
        return State(*new), Info(value)

    def sample(key: Key, state: State) -> Params:
        return _drop(key, state.position, rate, layers)

    return Approximation(init, step, sample)


def find_layers(params: Params, layers: Sequence[str] | None = None) -> tuple[str, ...]:
    """The paths of the arrays whose inputs are dropped.

    An array's last axis must be its layer's outputs and the one before it the inputs,
    as flax lays out the kernels of dense and convolutional layers. (Those of attention
    and of grouped convolutions are otherwise: name what to drop.)

    Args:
        params: Of the network.
        layers: Patterns such as `*/Dense_1/kernel`, matched with `fnmatch` against the
            paths that `trees.paths` gives. Default: all arrays of two axes or more but
            the first, whose inputs are the network's own. First is the lowest path,
            `Dense_2` before `Dense_10`.

    Raises:
        ValueError: If there is none, or a pattern matches no weight matrix.

    Example:
        >>> layer = {"kernel": jnp.ones((3, 3)), "bias": jnp.zeros(3)}
        >>> find_layers({"Dense_0": layer, "Dense_1": layer})
        ('Dense_1/kernel',)
    """
    paths, shapes = trees.paths(params), trees.shapes(params)
    matrices = [p for p, s in zip(paths, shapes, strict=True) if len(s) >= 2]
    if layers is None:
        found = sorted(matrices, key=_in_words_and_numbers)[1:]
        if not found:
            raise ValueError(
                "`layers` must name what is dropped in a network with "
                f"{len(matrices)} weight matrix: by default all but the first are, "
                "which here is none. Take a network with a hidden layer, or give "
                "the path, or '*'."
            )
        return tuple(found)
    for pattern in layers:
        if not any(fnmatchcase(path, pattern) for path in matrices):
            raise ValueError(
                f"`layers` must match weight matrices, but {pattern!r} matches none of "
                f"{', '.join(matrices)}. Biases are not dropped."
            )
    return tuple(p for p in matrices if any(fnmatchcase(p, one) for one in layers))


def _in_words_and_numbers(path: str) -> list[Any]:
    """A key that sorts numbers in a path as numbers: words and numbers alternate."""
    parts = re.split(r"(\d+)", path)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def _drop(
    key: Key, params: Params, rate: float, layers: Sequence[str] | None
) -> Params:
    """One draw of the network."""
    dropped = find_layers(params, layers)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))

    def draw(key: Key, path: str, leaf: Array) -> Array:
        if path not in dropped:
            return leaf
        is_kept = jax.random.bernoulli(key, 1 - rate, (leaf.shape[-2], 1))
        return jnp.where(is_kept, leaf / (1 - rate), 0)

    return structure.unflatten(map(draw, keys, trees.paths(params), leaves))
