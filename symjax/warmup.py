"""How Hamiltonian samplers adapt in their first iterations: step size, mass matrix.

The step size follows dual averaging from the first iteration to the last. A mass matrix
is learnt in Stan's windows, each twice as long as the one before, from that window's
draws alone; the last iterations adapt the step size to what was learnt.

References:
    Hoffman and Gelman (2014), The No-U-Turn sampler, section 3.2 (dual averaging).
    Carpenter et al. (2017), Stan, section 5.3 of its reference manual (windows).
    Seyboldt et al. (2026), Preconditioning, Algorithm 1 (low rank), as in blackjax.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.metric_estimators import fisher_score_low_rank
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import (
    DualAveragingAdaptationState,
    dual_averaging_adaptation,
)
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, trees
from symjax.energies import InverseMassMatrix, LowRankInverseMassMatrix
from symjax.mesh import same_in_all_chains
from symjax.types import Params


ADAPTATION_GAMMA = 0.5
"""Shrinkage of dual averaging. In thousands of dimensions acceptance falls from 1 to 0
within a factor of two of the step size; the usual 0.05 then throws the step size up and
down by factors of ten, and its average comes out too small."""

LEARNT = ("diagonal", "low_rank")
"""Names of mass matrices that the warm-up learns."""

NUM_RECENT = 64
"""Draws and gradients that a low-rank mass matrix is made of."""

MAX_RANK = 10
"""Directions that it treats on their own."""


class Adaptation(NamedTuple):
    """What a chain has adapted.

    Attributes:
        step_size: That of the next trajectory.
        averaging: Dual averaging's own state.
        inverse_mass_matrix: M^-1 where it is learnt; empty where it was given.
        window: What the present window has seen: the count, mean and sum of squared
            deviations of each parameter; or the last draws and gradients; or empty.
    """

    step_size: Float[Array, ""]
    averaging: DualAveragingAdaptationState
    inverse_mass_matrix: Any
    window: Any


class Warmup(NamedTuple):
    """How a chain adapts.

    Attributes:
        init: `params -> Adaptation`, before the first iteration.
        update: `(adaptation, position, gradient, iteration, acceptance_rate) ->
            adaptation`, after iteration `iteration` (from 0); past the warm-up it
            changes nothing.
        inverse_mass_matrix: `adaptation -> M^-1`.
    """

    init: Callable[[Params], Adaptation]
    update: Callable[..., Adaptation]
    inverse_mass_matrix: Callable[[Adaptation], InverseMassMatrix]


def build(
    step_size: float,
    *,
    num_warmup: int,
    target_acceptance: float,
    inverse_mass_matrix: InverseMassMatrix | str = 1.0,
) -> Warmup:
    """The warm-up of one chain.

    Args:
        step_size: The first one.
        num_warmup: Iterations that adapt; the step size is their average from then on.
        target_acceptance: What the step size aims at, between 0 and 1.
        inverse_mass_matrix: M^-1, kept as it is; or `diagonal`, the variance of each
            parameter, regularised; or `low_rank`, which also treats a few directions
            on their own, and keeps 128 parameter vectors a chain in memory.

    Raises:
        ValueError: if `target_acceptance` is not between 0 and 1, if there is no such
            mass matrix, or if the warm-up is too short to learn one.
    """
    checks.positive(step_size=step_size)
    checks.at_least(0, num_warmup=num_warmup)
    if not 0 < target_acceptance < 1:
        raise ValueError(
            f"`target_acceptance` must be between 0 and 1, got {target_acceptance}."
        )
    begin, average, final = dual_averaging_adaptation(
        target_acceptance, gamma=ADAPTATION_GAMMA
    )
    kind = _check_mass_matrix(inverse_mass_matrix, num_warmup)
    window = {"diagonal": _diagonal, "low_rank": _low_rank}.get(kind, _fixed)()
    schedule = build_schedule(num_warmup) if kind else ()
    is_slow = np.array([stage == 1 for stage, _ in schedule] or [False])
    is_end = np.array([end for _, end in schedule] or [False])

    def begin_at(step_size: Any) -> DualAveragingAdaptationState:
        # blackjax draws the step size towards ten times the first one, for those who
        # have no idea of it; here it was given, or is known from before.
        averaging = begin(step_size)._replace(mu=jnp.log(step_size))
        return jax.tree.map(jnp.asarray, averaging)

    def init(params: Params) -> Adaptation:
        first = jnp.asarray(step_size, float)
        return Adaptation(first, begin_at(first), *window.init(params))

    def update(
        adaptation: Adaptation,
        position: Params,
        gradient: Params,
        iteration: Int[Array, ""],
        acceptance_rate: Float[Array, ""],
    ) -> Adaptation:
        if not num_warmup:
            return adaptation
        averaging = average(adaptation.averaging, acceptance_rate)
        is_last = iteration + 1 >= num_warmup
        tried = jnp.exp(averaging.log_step_size)
        size = jnp.where(is_last, final(averaging), tried)
        new = adaptation._replace(step_size=size, averaging=averaging)
        if kind:
            clock = jnp.minimum(same_in_all_chains(iteration), num_warmup - 1)
            new = jax.lax.cond(
                jnp.asarray(is_slow)[clock] & (iteration < num_warmup),
                lambda: learn(new, position, gradient, jnp.asarray(is_end)[clock]),
                lambda: new,
            )
        is_warmup = iteration < num_warmup
        return jax.tree.map(lambda a, b: jnp.where(is_warmup, a, b), new, adaptation)

    def learn(
        adaptation: Adaptation, position: Params, gradient: Params, is_end: Any
    ) -> Adaptation:
        seen = window.add(adaptation.window, position, gradient)
        before = adaptation.inverse_mass_matrix

        def close() -> Adaptation:
            after, fresh = window.close(seen, before)
            # Steps in the new units, as far as parameters are independent.
            size = final(adaptation.averaging) * jnp.sqrt(_largest_ratio(before, after))
            # Where nothing was learnt the step size goes on as it was.
            return jax.tree.map(
                lambda a, b: jnp.where(_differs(before, after), a, b),
                Adaptation(size, begin_at(size), after, fresh),
                adaptation._replace(window=fresh),
            )

        return jax.lax.cond(is_end, close, lambda: adaptation._replace(window=seen))

    def mass_matrix(adaptation: Adaptation) -> InverseMassMatrix:
        return adaptation.inverse_mass_matrix if kind else inverse_mass_matrix

    return Warmup(init, update, mass_matrix)


def _check_mass_matrix(
    inverse_mass_matrix: InverseMassMatrix | str, num_warmup: int
) -> str:
    """The name of what is to be learnt, or nothing.

    Raises:
        ValueError: if the name is unknown or the warm-up too short.
    """
    if not isinstance(inverse_mass_matrix, str):
        return ""
    if inverse_mass_matrix not in LEARNT:
        raise ValueError(
            "`inverse_mass_matrix` must be a number, a pytree like the parameters, or "
            f"one of {', '.join(LEARNT)}, got {inverse_mass_matrix!r}."
        )
    least = 20 if inverse_mass_matrix == "diagonal" else 2 * NUM_RECENT
    if num_warmup < least:
        raise ValueError(
            f"`num_warmup` must be at least {least} to learn a {inverse_mass_matrix} "
            f"mass matrix, got {num_warmup}."
        )
    return inverse_mass_matrix


class _Window(NamedTuple):
    """What a window keeps of the draws, and the mass matrix that it makes of them."""

    init: Callable[[Params], tuple[Any, Any]]
    add: Callable[..., Any]
    close: Callable[..., tuple[Any, Any]]


def _fixed() -> _Window:
    """Nothing is learnt."""
    return _Window(lambda params: ((), ()), lambda *_: (), lambda *_: ((), ()))


class _Moments(NamedTuple):
    """Welford's, of each parameter."""

    number: Float[Array, ""]
    mean: Params
    squares: Params


def _diagonal() -> _Window:
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

    return _Window(init, add, close)


def _low_rank() -> _Window:
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

    return _Window(init, add, close)


def _differs(before: Any, after: Any) -> Bool[Array, ""]:
    """Whether a window has changed the mass matrix."""
    same = jax.tree.map(lambda a, b: jnp.all(a == b), before, after)
    return ~jnp.all(jnp.stack(jax.tree.leaves(same)))


def _largest_ratio(before: Any, after: Any) -> Float[Array, ""]:
    """The largest entry of M^-1 before to after, of their diagonals."""
    if isinstance(before, LowRankInverseMassMatrix):
        return jnp.max((before.sigma / after.sigma) ** 2)
    ratios = jax.tree.map(lambda a, b: jnp.max(a / b), before, after)
    return jnp.max(jnp.stack(jax.tree.leaves(ratios)))
