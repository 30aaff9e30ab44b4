"""HMC of `izmailov2021_uci.py`, in units of the posterior's own width.

Where the noise is small the posterior is narrow: the largest eigenvalue of the
likelihood's Fisher information is 10^7 to 10^10 there, the prior's is 10. With one step
size for all directions a step is then some 10^-5, a quarter turn under the prior takes
10^4 to 10^5 leapfrogs, and a trajectory that meets a narrower place on its way
diverges. So each chain has a dense mass matrix: the Fisher information, averaged over
what the chain has seen in its warm-up, and a floor. That is the same as to sample z
with unit mass, where params = centre + factor z; the posterior is as it was.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import izmailov2021_uci_problem as problems
import jax
import jax.numpy as jnp
import numpy as np
from izmailov2021_uci_problem import Problem
from jax.flatten_util import ravel_pytree

from symjax.samplers import hmc
from symjax.types import Algorithm


ACCEPTANCE = 0.95
"""The stiffness varies over the posterior with the noise: at 0.9 proposals diverge."""

NUM_FITTING = 100
"""Last iterations of the warm-up, which fit the step size to the mass matrix."""

FIRST_STEP = 0.1
"""In units of the width; dual averaging is faster to shorten steps than to lengthen."""


class Whitened(NamedTuple):
    """The log density of z, `(D,)`; its data are centre, factor and examples.

    Attributes:
        log_posterior: Of the parameters.
        unravel: Parameters of a vector.
    """

    log_posterior: Any
    unravel: Callable[[Any], Any]

    def network(self, params: Any, data: Any) -> Any:
        """The network's parameters that z, here `params`, stands for."""
        centre, factor, _ = data
        along = jnp.matmul(factor, params, precision=jax.lax.Precision.HIGHEST)
        return self.unravel(centre + along)

    def __call__(self, params: Any, data: Any) -> Any:
        """In nats; differentiable in z."""
        return self.log_posterior(self.network(params, data), data[2])

    def tally(self, params: Any, data: Any) -> Any:
        """What `gain` needs of a point."""
        return self.log_posterior.tally(self.network(params, data), data[2])

    def gain(
        self, params: Any, proposal: Any, data: Any, before: Any, after: Any
    ) -> Any:
        """The log density at `proposal` less that at `params`, without cancellation."""
        ends = self.network(params, data), self.network(proposal, data)
        return self.log_posterior.gain(*ends, data[2], before, after)


class State(NamedTuple):
    """A chain: its parameters, HMC's own state at z = 0, its split and its factor."""

    position: Any
    inner: Any
    split: Any
    factor: Any


def build(problem: Problem, num_leapfrogs: int, num_warmup: int) -> Algorithm:
    """HMC of chains that start at `{"network", "split", "factor"}`.

    The step size is in the factor. Each iteration puts the centre where the chain is:
    z is then small, and float32 resolves the narrow directions.
    """
    like = jax.eval_shape(problem.init, jax.random.key(0))
    size, unravel = unraveller(like)
    density = Whitened(problem.log_posterior, unravel)
    method = hmc.build(
        density,
        step_size=1.0,
        num_steps=num_leapfrogs,
        num_warmup=num_warmup,
        target_acceptance=ACCEPTANCE,
    )

    def local(position: Any, factor: Any, split: Any, train: Any) -> Any:
        return ravel_pytree(position)[0], factor, problems.own(train, split)

    def init(key: Any, start: Any, train: Any) -> State:
        network, split, factor = (start[k] for k in ("network", "split", "factor"))
        data = local(network, factor, split, train)
        inner = method.init(key, jnp.zeros(size), data)
        return State(network, inner, split, factor)

    def step(key: Any, state: State, train: Any) -> tuple[State, Any]:
        data = local(state.position, state.factor, state.split, train)
        inner, info = method.step(key, state.inner, data)
        position = density.network(inner.position, data)
        inner = inner._replace(position=jnp.zeros(size))
        return State(position, inner, state.split, state.factor), info

    return Algorithm(init, step, num_warmup)


def no_factors(problem: Problem, first: Any) -> Any:
    """Starts as the warm-up makes them, for a run that has its own already."""
    size = unraveller(jax.eval_shape(problem.init, jax.random.key(0)))[0]
    return first | {"factor": np.zeros((len(first["split"]), size, size), np.float32)}


def unraveller(like: Any) -> tuple[int, Callable[[Any], Any]]:
    """How many parameters there are, and how a vector becomes them."""
    flat, unravel = ravel_pytree(jax.tree.map(lambda s: jnp.zeros(s.shape), like))
    return flat.size, unravel
