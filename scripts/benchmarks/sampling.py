"""Chains brought to where they sample, and what they then do in a second."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import problems
from symjax import evaluation, mesh
from symjax.samplers import hmc


NUM_PREDICTIONS = 100


class Settled(NamedTuple):
    """Chains after their warm-up, leaves `(chain, ...)`, and their step size."""

    params: Any
    step_size: float


def climb(problem, num_chains, num_steps):
    """Each chain's own optimised network: Adam on the log posterior an example."""
    optimiser = optax.adam(1e-2)

    @jax.jit
    def run(params, data):
        def loss(params):
            return -problem.log_density(params, data) / len(data.y)

        def one(params):
            def body(_, carry):
                params, state = carry
                change, state = optimiser.update(jax.grad(loss)(params), state)
                return optax.apply_updates(params, change), state

            carry = params, optimiser.init(params)
            return jax.lax.fori_loop(0, num_steps, body, carry)[0]

        return jax.vmap(one)(params)

    return run(problems.starts(problem, num_chains), problem.data)


def settle(problem, params, *, length, num_warmup, step_size, target=0.8):
    """HMC's own warm-up at a fixed length: the chains, and their median step size."""
    algorithm = hmc.build(
        problem.log_density,
        step_size=step_size,
        trajectory_length=length,
        num_warmup=num_warmup,
        target_acceptance=target,
    )
    keys = jax.random.split(jax.random.key(2), len(jax.tree.leaves(params)[0]))
    begin, advance = problems.transitions(algorithm.init, algorithm.step, num_warmup)
    state = advance(keys, begin(keys, params, problem.data), problem.data)
    sizes = np.asarray(state.adaptation.step_size)
    return Settled(state.position, float(np.median(sizes)))


def sampler(problem, init, step, position, num_draws):
    """A jitted `(keys, state, data) -> (state, predictions)` and its first state.

    Predictions are the probabilities of the true classes of some test examples,
    `(chain, draw, example)`.
    """
    x, y = problem.test.x[:NUM_PREDICTIONS], problem.test.y[:NUM_PREDICTIONS]

    def predict(params):
        return jax.nn.softmax(problem.apply(params, x))[jnp.arange(len(y)), y]

    @partial(jax.jit, donate_argnums=1)
    def sample(keys, state, data):
        def draw(state, i):
            step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, i)
            state, info = mesh.vmap_chains(step, (0, 0, None))(step_keys, state, data)
            return state, (jax.vmap(predict)(position(state)), info)

        state, (made, info) = jax.lax.scan(draw, state, jnp.arange(num_draws))
        return state, jnp.swapaxes(made, 0, 1), info

    begin, _ = problems.transitions(init, step, 1)
    return begin, sample


def stands_still(predictions):
    """Whether a chain's predictions `(chain, draw, example)` never change."""
    return np.all(predictions == predictions[:, :1], axis=(1, 2)).any()


def sample_size(predictions):
    """Bulk effective sample size of the predictions, the median of them, or NaN.

    NaN too where a chain stands still: of such ones the estimate is some draws each.
    """
    predictions = np.asarray(predictions)
    found = evaluation.summarise(predictions)
    if found.ess_bulk is None or stands_still(predictions):
        return float("nan")
    return float(np.nanmedian(found.ess_bulk[""]))
