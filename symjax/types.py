"""The values that flow between the rooms: parameters, data, and the two contracts.

Nothing here computes. A sampler is an `Algorithm`, a method that is fitted and then
sampled is an `Approximation`; `run` drives both through one loop.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Key as KeyArray, Num, PRNGKeyArray


Params: TypeAlias = Any
"""A pytree of arrays. With leading `(chain, draw)` axes on every leaf it is `draws`."""

Key: TypeAlias = PRNGKeyArray
"""One key, made by `jax.random.key`."""

Keys: TypeAlias = KeyArray[Array, "chain ..."]
"""Keys of several chains."""


class Data(NamedTuple):
    """Examples along the first axis, on one device or split over the mesh.

    Attributes:
        x: Inputs, one row an example.
        y: Targets: integer labels `(example,)` or real targets `(example, output)`.
        mask: False for the rows that only pad the example count; they add nothing to
            any sum over examples.
    """

    x: Num[Array | np.ndarray, "example ..."]
    y: Num[Array | np.ndarray, "example ..."]
    mask: Bool[Array | np.ndarray, " example"]


@runtime_checkable
class LogDensity(Protocol):
    """An unnormalised log density of the parameters, in summed nats.

    A log density may also compute its changes without subtracting two large sums.
    Accept steps then use `tally(params, data)`, any pytree of scalars, which is kept of
    the point where a chain is, and `gain(params, proposal, data, before, after)`, the
    log density at `proposal` less that at `params`, whose tallies are the last two.
    NUTS uses `relative_to(params, data)`, a function of the proposal alone.
    """

    def __call__(self, params: Params, data: Any) -> Float[Array, ""]:
        """Return the log density of `params` given `data`."""
        ...


class Algorithm(NamedTuple):
    """A Markov chain: what every module of `symjax.samplers` builds.

    Attributes:
        init: `(key, params, data) -> state`, for one chain.
        step: `(key, state, data) -> (state, info)`, for one chain, pure and jittable.
            `state.position` is the params pytree; `info` is a NamedTuple of scalars.
        num_warmup: How many first iterations adapt or are not yet of the target; `run`
            never keeps them.
        schedule: `iteration -> step size`, where it does not depend on the chain; `run`
            looks whether it is positive to the end.
    """

    init: Callable[..., Any]
    step: Callable[..., Any]
    num_warmup: int = 0
    schedule: Callable[[Any], Any] | None = None


class Approximation(NamedTuple):
    """A fitted approximation: what every module of `symjax.approximations` builds.

    Attributes:
        init: `(key, params, data) -> state`, for one member.
        step: `(key, state, data) -> (state, info)`, one optimisation step of a member.
        sample: `(key, fitted) -> params`, one draw from the fitted member.
        finish: `(key, state, data) -> fitted`, once after the last step; what is saved
            is the last state, from which a continued run computes it again. Without
            it, the last state is what was fitted.
        describe: `fitted -> numbers`, a NamedTuple of scalars that tell a user what was
            fitted by a member; `run` keeps them.
    """

    init: Callable[..., Any]
    step: Callable[..., Any]
    sample: Callable[..., Any]
    finish: Callable[..., Any] | None = None
    describe: Callable[..., Any] | None = None
