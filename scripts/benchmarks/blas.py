"""The digits' gradient of several chains, beside one written by hand in NumPy.

An MLP 64-32-10 with silu, its softmax and its normal prior, in float32, on the same
examples. By hand: chain after chain, or with the chains' first layers side by side in
one product of matrices. Both are checked against the gradient that JAX takes.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from benchmarks import figures, problems
from benchmarks.contenders import ours
from benchmarks.problems import Scale


@dataclass(frozen=True)
class Blas:
    """The digits' gradient over one by hand in NumPy."""

    scale: Scale = "full"
    num_chains: int = 4
    num_gradients: int = 200
    """Between two looks at the clock."""
    repeats: int = 15
    out: Path = figures.OUT


def main(options):
    problem = problems.build("digits", options.scale)
    params = problems.starts(problem, options.num_chains)
    keys = jax.random.split(jax.random.key(1), options.num_chains)
    count, data = options.num_gradients, problem.data
    bare = problems.gradients(problem, count)
    init, step = ours(problem.log_density, 1e-4, count)
    begin, advance = problems.transitions(init, step, 1)
    state = begin(keys, params, data)
    weights = _weights(jax.device_get(params))
    x, y = np.asarray(data.x), np.eye(10, dtype=np.float32)[np.asarray(data.y)]
    _check(problem, params, weights, x, y)
    calls = {
        "bare gradients": lambda: bare(params, data),
        "HMC": lambda: advance(keys, state, data),
        "NumPy, chain by chain": lambda: (
            [
                [
                    gradient([w[i] for w in weights], x, y)
                    for i in range(options.num_chains)
                ]
                for _ in range(count)
            ]
            and None
        ),
        "NumPy, side by side": lambda: (
            [together(weights, x, y) for _ in range(count)] and None
        ),
    }
    taken = figures.interleaved(calls, options.repeats)
    case = f"{problem.name}, {options.num_chains} chains"
    found = [
        figures.figure(case, f"a gradient, {name}", "µs", 1e6 * seconds / count)
        for name, seconds in taken.items()
    ]
    faster = min((n for n in calls if "NumPy" in n), key=lambda n: np.median(taken[n]))
    for name in ("bare gradients", "HMC"):
        ratio = taken[name] / taken[faster]
        words = f"{name} over {faster}"
        found.append(figures.figure(case, words, "x", ratio, at_most=1.0))
    figures.report("blas", options, found)


def _weights(params):
    """W1, b1, W2, b2 of all chains."""
    layers = params["params"]
    return [layers[f"Dense_{i}"][kind] for i in (0, 1) for kind in ("kernel", "bias")]


def gradient(weights, x, y):
    """Value and gradient of one chain's log posterior."""
    w1, b1, w2, b2 = weights
    hidden = x @ w1
    hidden += b1
    gate = 1 / (1 + np.exp(-hidden))
    active = hidden * gate
    logits = active @ w2
    logits += b2
    logits -= logits.max(axis=1, keepdims=True)
    odds = np.exp(logits)
    total = odds.sum(axis=1, keepdims=True)
    value = np.vdot(logits, y) - np.log(total).sum()
    back = y - odds / total
    behind = (back @ w2.T) * (gate * (1 + hidden - active))
    value -= sum(np.vdot(w, w) for w in weights) / 2
    slopes = x.T @ behind, behind.sum(axis=0), active.T @ back, back.sum(axis=0)
    return value, [slope - w for slope, w in zip(slopes, weights, strict=True)]


def together(weights, x, y):
    """The same of all chains; their hidden units make one wide layer."""
    w1, b1, w2, b2 = weights
    num, depth, width = w1.shape
    wide = w1.transpose(1, 0, 2).reshape(depth, -1)
    hidden = x @ wide
    hidden += b1.reshape(-1)
    gate = 1 / (1 + np.exp(-hidden))
    active = hidden * gate
    by_chain = active.reshape(len(x), num, width).transpose(1, 0, 2)
    logits = by_chain @ w2
    logits += b2[:, None]
    logits -= logits.max(axis=2, keepdims=True)
    odds = np.exp(logits)
    total = odds.sum(axis=2, keepdims=True)
    value = (logits * y).sum(axis=(1, 2)) - np.log(total).sum(axis=(1, 2))
    back = y - odds / total
    slope = gate * (1 + hidden - active)
    behind = (back @ w2.transpose(0, 2, 1)).transpose(1, 0, 2).reshape(len(x), -1)
    behind *= slope
    first = (x.T @ behind).reshape(depth, num, width).transpose(1, 0, 2)
    slopes = (
        first,
        behind.sum(axis=0).reshape(num, width),
        by_chain.transpose(0, 2, 1) @ back,
        back.sum(axis=1),
    )
    value -= sum((w * w).reshape(num, -1).sum(axis=1) for w in weights) / 2
    return value, [slope - w for slope, w in zip(slopes, weights, strict=True)]


def _check(problem, params, weights, x, y):
    """Require the gradients by hand to be those of JAX."""
    force = jax.vmap(jax.grad(problem.log_density), (0, None))
    expected = _weights(jax.device_get(force(params, problem.data)))
    singles = [
        gradient([w[i] for w in weights], x, y)[1] for i in range(len(weights[0]))
    ]
    for found in (
        together(weights, x, y)[1],
        list(map(np.stack, zip(*singles, strict=True))),
    ):
        for by_hand, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(by_hand, theirs, rtol=1e-3, atol=1e-2)
