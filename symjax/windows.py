"""Mass matrices learnt from the draws of a window of the warm-up.

References:
    Carpenter et al. (2017), Stan, section 5.3 of its reference manual (diagonal).
    Seyboldt et al. (2026), Preconditioning, Algorithm 1 (low rank), as in blackjax.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.metric_estimators import fisher_score_low_rank
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from symjax import trees
from symjax.energies import LowRankInverseMassMatrix
from symjax.types import Params


NUM_RECENT = 64
"""Draws and gradients that a low-rank mass matrix is made of."""

MAX_RANK = 10
"""Directions that it treats on their own."""


class Window(NamedTuple):
    """What a window keeps of the draws, and the mass matrix that it makes of them.

    Attributes:
        init: `params -> (M^-1, kept)`, before the first iteration.
        add: `(kept, position, gradient) -> kept`.
        close: `(kept, M^-1 so far) -> (M^-1, kept)`, at the window's end.
    """

    init: Callable[[Params], tuple[Any, Any]]
    add: Callable[..., Any]
    close: Callable[..., tuple[Any, Any]]


def fixed() -> Window:
    """Nothing is learnt."""
    return Window(lambda params: ((), ()), lambda *_: (), lambda *_: ((), ()))


class _Moments(NamedTuple):
    """Welford's, of each parameter."""

    number: Float[Array, ""]
    mean: Params
    squares: Params


def diagonal() -> Window:
    """Variances, shrunk as in Stan: towards a thousandth of their geometric mean."""

    def fresh(params: Params) -> _Moments:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return _Moments(jnp.zeros(()), zeros, zeros)

    def init(params: Params) -> tuple[Params, _Moments]:
        return jax.tree.map(jnp.ones_like, params), fresh(params)

    def add(moments: _Moments, position: Params, gradient: Params) -> _Moments:
        del gradient
        count = moments.number + 1
        off = jax.tree.map(jnp.subtract, position, moments.mean)
        mean = jax.tree.map(lambda m, d: m + d / count, moments.mean, off)
        squares = jax.tree.map(
            lambda s, d, x, m: s + d * (x - m), moments.squares, off, position, mean
        )
        return _Moments(count, mean, squares)

    def close(moments: _Moments, before: Params) -> tuple[Params, _Moments]:
        count = moments.number
        variance = jax.tree.map(lambda s: s / (count - 1), moments.squares)
        tiny = jnp.finfo(count.dtype).tiny
        logs = jax.tree.map(lambda v: jnp.sum(jnp.log(jnp.maximum(v, tiny))), variance)
        usual = jnp.exp(sum(jax.tree.leaves(logs)) / trees.size(variance))
        shrunk = jax.tree.map(
            lambda v: (count * v + 5e-3 * usual) / (count + 5), variance
        )
        # A chain that stood still has learnt nothing; no variance would be no mass.
        has_moved = usual > 1e3 * tiny
        kept = jax.tree.map(lambda a, b: jnp.where(has_moved, a, b), shrunk, before)
        return kept, fresh(moments.mean)

    return Window(init, add, close)


def low_rank() -> Window:
    """The estimate of blackjax from the last draws and gradients, ravelled."""

    def init(params: Params) -> tuple[LowRankInverseMassMatrix, Any]:
        flat = ravel_pytree(params)[0]
        rank = min(MAX_RANK, len(flat))
        start = LowRankInverseMassMatrix(
            jnp.ones_like(flat), jnp.zeros((len(flat), rank)), jnp.ones(rank)
        )
        recent = jnp.zeros((NUM_RECENT, len(flat)))
        return start, (jnp.array(0), recent, recent)

    def add(window: Any, position: Params, gradient: Params) -> Any:
        count, draws, gradients = window
        row = count % NUM_RECENT
        draws = draws.at[row].set(ravel_pytree(position)[0])
        return count + 1, draws, gradients.at[row].set(ravel_pytree(gradient)[0])

    def close(window: Any, before: Any) -> tuple[LowRankInverseMassMatrix, Any]:
        count, draws, gradients = window
        rank = before.lam.shape[0]
        learnt = fisher_score_low_rank(draws, gradients, max_rank=rank)
        enough = (count >= NUM_RECENT) & jnp.any(draws != draws[0])
        return jax.tree.map(
            lambda a, b: jnp.where(enough, a, b), learnt, before
        ), window

    return Window(init, add, close)
