"""HMC of `izmailov2021_uci.py`, in units of the posterior's own width.

Where the noise is small the posterior is narrow: the largest eigenvalue of the
likelihood's Fisher information is 10^7 to 10^10 there, the prior's is 10. With one step
size for all directions a step is then some 10^-5, a quarter turn under the prior takes
10^4 to 10^5 leapfrogs, and a trajectory that meets a narrower place on its way
diverges. So each chain has a dense mass matrix: the Fisher information, averaged over
what the chain has seen in its warm-up, and a floor. That is the same as to sample z
with unit mass, where params = centre + factor z; the posterior is as it was.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import izmailov2021_uci_problem as problems
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from izmailov2021_uci_problem import Problem
from jax.flatten_util import ravel_pytree

from symjax import mesh as meshes
from symjax.samplers import hmc
from symjax.types import Algorithm


ACCEPTANCE = 0.95
"""The stiffness varies over the posterior with the noise: at 0.9 proposals diverge."""

NUM_FITTING = 100
"""Last iterations of the warm-up, which fit the step size to the mass matrix."""

BLOCK = 10
"""Iterations of the warm-up that are one program; its position at their end counts."""

FIRST_STEP = 0.1
"""In units of the width; dual averaging is faster to shorten steps than to lengthen."""

FLOOR = 100
"""Times the prior's precision that the mass matrix has in all directions, those
included in which no position so far was narrow: some place else, they are. On boston
100 gives twice the effective draws of 3 or 30, and 1.7 times those of 1000."""

MOST = 20
"""Positions that a mass matrix is averaged over: of the later half of all, so many."""


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
    size, unravel = _unraveller(like)
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
    """Starts as `warm_up` makes them, for a run that has its own already."""
    size = _unraveller(jax.eval_shape(problem.init, jax.random.key(0)))[0]
    return first | {"factor": np.zeros((len(first["split"]), size, size), np.float32)}


def warm_up(
    problem: Problem,
    key: Any,
    first: Any,
    mesh: Any,
    *,
    num_leapfrogs: int,
    num_iterations: int,
    seconds: float | None,
) -> tuple[Any, int]:
    """Find the mass matrices and step sizes, from iteration to iteration.

    The mass matrix is renewed when the iterations have doubled, and at the end, each
    time from the later half of all positions so far.

    Args:
        problem: The posteriors.
        key: Of the momenta.
        first: Starts of the chains.
        mesh: Devices of the chains.
        num_leapfrogs: Of each trajectory.
        num_iterations: The most, at least 1.
        seconds: After so many it ends, at the end of a block; None for no end.

    Returns:
        Starts of the chains with factors, and the iterations made.
    """
    began, scale = time.monotonic(), FIRST_STEP
    begin, advance = _programs(problem, num_leapfrogs, len(first["split"]))
    average = _averager(problem)
    start = first | {"factor": _factors(problem, average([first]), scale)}
    state, history, done = begin(meshes.place_chains(mesh, start)), [], 0
    num_blocks = -(-num_iterations // BLOCK)
    for block in range(1, num_blocks + 1):
        state, info = advance(jax.random.fold_in(key, block), state)
        history.append(first | {"network": jax.device_get(state.position)})
        done = block * BLOCK
        passed = time.monotonic() - began
        is_last = block == num_blocks or (seconds is not None and passed > seconds)
        if is_last or block & (block - 1) == 0:
            averaging = state.inner.adaptation.averaging
            scale = scale * np.exp(np.asarray(averaging.log_step_size_avg))
            print(
                f"Warm-up: {done} iterations, {passed:.0f} s, "
                f"log density {np.mean(info.log_density[-1]):,.0f}, "
                f"acceptance {np.mean(info.acceptance_rate):.2f}, "
                f"step {np.mean(scale):.2g}",
                flush=True,
            )
            information = average(history[len(history) // 2 :])
            start = history[-1] | {"factor": _factors(problem, information, scale)}
            if is_last:
                break
            state = begin(meshes.place_chains(mesh, start))
    return start, done


def _programs(problem: Problem, num_leapfrogs: int, num_chains: int) -> Any:
    """`starts -> states`, and `(key, states) -> states, Info` of `BLOCK` iterations."""
    train = jax.tree.map(jnp.asarray, problem.train)
    algorithm = build(problem, num_leapfrogs, np.iinfo(np.int32).max)
    step = jax.vmap(algorithm.step, (0, 0, None))

    @jax.jit
    def begin(start: Any) -> State:
        # HMC's init needs no randomness.
        return jax.vmap(lambda s: algorithm.init(jax.random.key(0), s, train))(start)

    @jax.jit
    def advance(key: Any, state: State) -> tuple[State, Any]:
        keys = jax.random.split(key, (BLOCK, num_chains))
        return jax.lax.scan(lambda s, k: step(k, s, train), state, keys)

    return begin, advance


def _averager(problem: Problem) -> Callable[[list[Any]], np.ndarray]:
    """`positions -> information (chain, D, D)`, of `MOST` of them, in float64."""
    size, _ = _unraveller(jax.eval_shape(problem.init, jax.random.key(0)))
    single = jax.vmap(
        lambda start, train: _information(problem, start, train), (0, None)
    )
    add = jax.jit(lambda total, start, train: total + single(start, train))

    def average(positions: list[Any]) -> np.ndarray:
        some = positions[:: -(-len(positions) // MOST)]
        with jax.enable_x64(True):
            train = jax.tree.map(jnp.asarray, problem.train)
            total = jnp.zeros((len(some[0]["split"]), size, size))
            for start in some:
                total = add(total, start, train)
            return np.asarray(total) / len(some)

    return average


def _factors(problem: Problem, information: np.ndarray, scale: Any) -> np.ndarray:
    """Of all chains, `(chain, D, D)`: scale times F^-1/2, F the mass matrix.

    Decompositions are in float64: the eigenvalues differ by 10^9.
    """
    out, identity = np.empty(information.shape, np.float32), np.eye(len(information[0]))
    floor = FLOOR / problem.prior_variance * identity
    for i, size in enumerate(np.broadcast_to(scale, len(information))):
        root = np.linalg.cholesky(information[i] + floor)
        out[i] = size * scipy.linalg.solve_triangular(root, identity, lower=True).T
    return out


def _information(problem: Problem, start: Any, train: Any) -> Any:
    """The likelihood's Fisher information where a chain is, `(D, D)`, float64."""
    examples = problems.own(train, start["split"])
    flat, unravel = ravel_pytree(start["network"])

    def outputs(vector: Any, x: Any) -> Any:
        return problem.apply(unravel(vector), x[None])[0]

    slopes = jax.vmap(jax.jacrev(outputs), (None, 0))(flat, examples.x)
    weights = problem.information(problem.apply(start["network"], examples.x))
    weights = jnp.where(examples.mask[:, None], weights, 0).astype(float)
    slopes = slopes.astype(float)
    return jnp.einsum("nki,nk,nkj->ij", slopes, weights, slopes)


def _unraveller(like: Any) -> tuple[int, Callable[[Any], Any]]:
    """How many parameters there are, and how a vector becomes them."""
    flat, unravel = ravel_pytree(jax.tree.map(lambda s: jnp.zeros(s.shape), like))
    return flat.size, unravel
