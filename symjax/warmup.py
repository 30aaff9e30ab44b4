"""How Hamiltonian samplers adapt in their first iterations: step size, mass matrix.

The step size follows dual averaging, which begins anew at a quarter and at half of a
warm-up of 20 iterations or more: what chains accept on their way to the posterior says
little of what they will there. What is kept is its average or the last step tried, the
smaller one. A mass matrix is learnt in Stan's windows, each twice as
long as the one before, from that window's draws alone (see `windows`); the last 50
adapt the step size to what was learnt.

References:
    Hoffman and Gelman (2014), The No-U-Turn sampler, section 3.2 (dual averaging).
    Carpenter et al. (2017), Stan, section 5.3 of its reference manual (windows).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import (
    DualAveragingAdaptationState,
    dual_averaging_adaptation,
)
from jaxtyping import Array, Bool, Float, Int

from symjax import checks, windows
from symjax.energies import InverseMassMatrix, LowRankInverseMassMatrix
from symjax.mesh import same_in_all_chains
from symjax.types import Params


ADAPTATION_GAMMA = 0.5
"""Shrinkage of dual averaging. In thousands of dimensions acceptance falls from 1 to 0
within a factor of two of the step size; the usual 0.05 then throws the step size up and
down by factors of ten, and its average comes out too small."""

LEARNT = {"diagonal": 18, "low_rank": windows.NUM_RECENT}
"""Mass matrices that the warm-up learns, and of how many draws at the least."""

FINAL = 50
"""Last iterations, in which the step size is fitted to what was learnt. The size that
they begin with may be far too large, and ten of them can't mend that: no proposal of
the run is then accepted."""

_LONG = 20
"""Iterations of a warm-up that can forget its first ones."""

_INITIAL = 0.15
"""Share of a short warm-up in which nothing is learnt but the step size."""


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
        num_warmup: Iterations that adapt; from then on the step size is the average of
            their second half (of all, if fewer than 20), or of those since a mass
            matrix was learnt, but at most the last that was tried. At least 80 to learn
            a diagonal mass matrix, 135 for one of low rank.
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
    begin_at = partial(_begin_at, begin)
    kind = _check_mass_matrix(inverse_mass_matrix, num_warmup)
    is_long = num_warmup >= _LONG and not kind
    anew = [num_warmup // 4, num_warmup // 2] if is_long else []
    fit = partial(_fit, average, begin_at, np.array(anew, int), num_warmup)
    made = {"diagonal": windows.diagonal, "low_rank": windows.low_rank}
    window = made.get(kind, windows.fixed)()
    is_slow, is_end = _schedule(num_warmup, LEARNT[kind]) if kind else ((), ())
    learn = partial(_learn, window, begin_at, final)

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
        size, averaging = fit(adaptation.averaging, iteration, acceptance_rate)
        new = adaptation._replace(step_size=size, averaging=averaging)
        if kind:
            clock = jnp.minimum(same_in_all_chains(iteration), num_warmup - 1)
            new = jax.lax.cond(
                jnp.asarray(is_slow)[clock] & (iteration < num_warmup),
                lambda: learn(new, position, gradient, jnp.asarray(is_end)[clock]),
                lambda: new,
            )
        return _where(iteration < num_warmup, new, adaptation)

    def mass_matrix(adaptation: Adaptation) -> InverseMassMatrix:
        return adaptation.inverse_mass_matrix if kind else inverse_mass_matrix

    return Warmup(init, update, mass_matrix)


def kept_step_size(averaging: DualAveragingAdaptationState) -> Float[Array, "..."]:
    """What is kept of dual averaging: its average, or the last step if that is smaller.

    A chain still on its way down has an average that nothing is accepted at.
    """
    logs = averaging.log_step_size_avg, averaging.log_step_size
    return jnp.exp(jnp.minimum(*logs))


def _fit(
    average: Callable[[Any, Any], DualAveragingAdaptationState],
    begin_at: Callable[[Any], DualAveragingAdaptationState],
    anew: Int[np.ndarray, " _begun"],
    num_warmup: int,
    averaging: DualAveragingAdaptationState,
    iteration: Int[Array, ""],
    acceptance_rate: Float[Array, ""],
) -> tuple[Float[Array, ""], DualAveragingAdaptationState]:
    """The next step size, after an acceptance; dual averaging begins anew at `anew`."""
    averaging = average(averaging, acceptance_rate)
    tried = jnp.exp(averaging.log_step_size)
    if anew.size:
        is_anew = jnp.isin(iteration + 1, anew)
        averaging = _where(is_anew, begin_at(tried), averaging)
    is_over = iteration + 1 >= num_warmup
    return jnp.where(is_over, kept_step_size(averaging), tried), averaging


def _learn(
    window: Any,
    begin_at: Callable[[Any], DualAveragingAdaptationState],
    final: Callable[[DualAveragingAdaptationState], Any],
    adaptation: Adaptation,
    position: Params,
    gradient: Params,
    is_end: Any,
) -> Adaptation:
    """What a window has after one more iteration, its end taken in."""
    seen = window.add(adaptation.window, position, gradient)
    adaptation = adaptation._replace(window=seen)
    size = final(adaptation.averaging)
    return jax.lax.cond(
        is_end,
        lambda: _close(window, adaptation, size, begin_at),
        lambda: adaptation,
    )


def _begin_at(
    begin: Callable[[Any], DualAveragingAdaptationState], step_size: Any
) -> DualAveragingAdaptationState:
    """Dual averaging that has seen nothing, around a step size.

    blackjax draws it towards ten times the first one, for those who have no idea of it;
    here it was given, or is known from before.
    """
    averaging = begin(step_size)._replace(mu=jnp.log(step_size))
    return jax.tree.map(jnp.asarray, averaging)


def _close(
    window: Any,
    adaptation: Adaptation,
    step_size: Float[Array, ""],
    begin_at: Callable[[Any], DualAveragingAdaptationState],
) -> Adaptation:
    """Take what the window has learnt, and begin the next one.

    Args:
        window: Of `windows`.
        adaptation: With all that the window has seen.
        step_size: The average so far.
        begin_at: Dual averaging's state at a step size.
    """
    before = adaptation.inverse_mass_matrix
    after, fresh = window.close(adaptation.window, before)
    # Steps in the new units, as far as parameters are independent.
    size = step_size * jnp.sqrt(_largest_ratio(before, after))
    # Where nothing was learnt the step size goes on as it was.
    return _where(
        _differs(before, after),
        Adaptation(size, begin_at(size), after, fresh),
        adaptation._replace(window=fresh),
    )


def _where(is_new: Bool[Array, ""], new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(is_new, a, b), new, old)


def _schedule(num_warmup: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each iteration, whether a window sees it, and whether it ends one.

    Stan's, but for warm-ups too short for it: there blackjax, as Stan, would leave a
    tenth to fit the step size in.
    """
    initial = int(_INITIAL * num_warmup)
    is_short = num_warmup < 75 + max(25, least) + FINAL
    lengths = (initial, FINAL, num_warmup - initial - FINAL) if is_short else ()
    stages, ends = zip(*build_schedule(num_warmup, *lengths), strict=True)
    return np.array([stage == 1 for stage in stages]), np.array(ends)


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
    least = math.ceil((LEARNT[inverse_mass_matrix] + FINAL) / (1 - _INITIAL))
    if num_warmup < least:
        raise ValueError(
            f"`num_warmup` must be at least {least} to learn a {inverse_mass_matrix} "
            f"mass matrix, got {num_warmup}."
        )
    return inverse_mass_matrix


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
