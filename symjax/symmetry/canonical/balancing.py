"""Scales that balance what comes into each unit of a network with what goes out.

The squared norm of the scaled parameters is a sum of exponentials of linear functions
of the log-scales: convex, with one minimum. It is found unit by unit: where the
incoming weights of a unit are multiplied by `scale` and the outgoing ones by
`1 / scale`, the best scale is `(outgoing mass / incoming mass) ** (1/4)`. Sweeps over
all units are repeated until none moves. With other exponents the step is the largest
that can't overshoot, so that no sweep adds to the mass.

References:
    Osborne (1960), On pre-conditioning of matrices, Journal of the ACM 7(4), for the
    sweeps. Boyd, Vandenberghe (2004), Convex optimization, section 4.5, for geometric
    programs.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Inexact, Int
from scipy import optimize

from symjax import trees
from symjax.symmetry.canonical.incidence import collect, patterns
from symjax.symmetry.placement import spread
from symjax.symmetry.spec import Axis, Spec
from symjax.types import Params


class Balance(NamedTuple):
    """Log-scales at which no unit moves; each tuple has one entry for each scaling.

    Attributes:
        log_scales: In nats, each of `group.shape`.
        dead: Units with nothing that comes in, or nothing that goes out.
        unbounded: Groups along which the mass can shrink for ever.
        num_sweeps: Over all groups.
        converged: Whether the last sweep moved no log-scale by more than the tolerance.
    """

    log_scales: tuple[Float[Array, "..."], ...]
    dead: tuple[Bool[Array, "..."], ...]
    unbounded: tuple[Bool[Array, ""], ...]
    num_sweeps: Int[Array, ""]
    converged: Bool[Array, ""]


def everything(path: str) -> bool:
    """Include every parameter."""
    del path
    return True


def balance(
    spec: Spec,
    params: Params,
    *,
    include: Callable[[str], bool],
    tolerance: float,
    max_sweeps: int,
) -> Balance:
    """Log-scales of the minimum; 0 for what has none.

    Args:
        spec: The network's symmetries.
        params: One setting.
        include: Which parameters count, by path.
        tolerance: In nats, and relative to log-scales above 1 nat.
        max_sweeps: Where to give up.

    Returns:
        The log-scales, and which units and groups have no minimum.
    """
    entries = _entries(spec, params, include)
    unbounded = unbounded_groups(spec, include)
    included = {g for at in entries.axes.values() for g, _ in at}
    moving = sorted(included - set(unbounded))
    dtype = jnp.result_type(jnp.float32, *entries.log_squares.values())
    start = tuple(jnp.zeros(group.shape, dtype) for group in spec.scalings)

    def sweep(carry: tuple) -> tuple:
        log_scales, num_sweeps, _ = carry
        largest = jnp.zeros((), dtype)
        for g in moving:
            step = _step(_unit_masses(entries, g, log_scales))
            moved = log_scales[g] + step
            log_scales = (*log_scales[:g], moved, *log_scales[g + 1 :])
            relative = jnp.abs(step) / jnp.maximum(1, jnp.abs(moved))
            largest = jnp.maximum(largest, jnp.max(relative))
        return log_scales, num_sweeps + 1, largest

    log_scales, num_sweeps, largest = jax.lax.while_loop(
        lambda carry: (carry[1] < max_sweeps) & (carry[2] > tolerance),
        sweep,
        (start, jnp.zeros((), int), jnp.full((), jnp.inf, dtype)),
    )
    return Balance(
        log_scales,
        _dead(spec, entries, moving, start),
        tuple(jnp.asarray(g in unbounded) for g in range(len(start))),
        num_sweeps,
        largest <= tolerance,
    )


def _dead(
    spec: Spec,
    entries: "_Entries",
    moving: Sequence[int],
    log_scales: Sequence[Float[Array, "..."]],
) -> tuple[Bool[Array, "..."], ...]:
    dead = [jnp.zeros(group.shape, bool) for group in spec.scalings]
    for g in moving:
        slopes = jnp.stack(_log_slopes(_unit_masses(entries, g, log_scales)))
        dead[g] = jnp.any(jnp.isneginf(slopes), axis=0)
    return tuple(dead)


class _Entries(NamedTuple):
    """Logs of the squared weights that count, and the axes of scalings that meet there.

    Logs, as squares of float32 weights that weight decay has all but removed are 0.
    Where there is but one axis, the weights of each unit are summed.
    """

    log_squares: dict[str, Float[Array, "..."]]
    axes: dict[str, list[tuple[int, Axis]]]


def _entries(spec: Spec, params: Params, include: Callable[[str], bool]) -> _Entries:
    leaves = dict(zip(trees.paths(params), jax.tree.leaves(params), strict=True))
    axes = axes_by_path(spec, include)
    log_squares = {path: _log_square(leaves[path]) for path in axes}
    for path, at in axes.items():
        if len(at) == 1:
            log_squares[path] = _log_sum(at[0][1], log_squares[path])
    return _Entries(log_squares, axes)


def axes_by_path(
    spec: Spec, include: Callable[[str], bool] = everything
) -> dict[str, list[tuple[int, Axis]]]:
    """Which scalings act on each included parameter, and where."""
    axes = defaultdict(list)
    for g, group in enumerate(spec.scalings):
        for axis in group.axes:
            if include(axis.path):
                axes[axis.path].append((g, axis))
    return dict(axes)


def _log_square(leaf: Inexact[Array, "..."]) -> Float[Array, "..."]:
    size = jnp.abs(jnp.atleast_1d(leaf))
    return 2 * jnp.log(size.astype(jnp.result_type(size, jnp.float32)))


def _unit_masses(
    entries: _Entries, group: int, log_scales: Sequence[Float[Array, "..."]]
) -> dict[float, Float[Array, "..."]]:
    """What each unit of a scaling adds to the mass.

    Returns:
        Logs of masses by rates. If the log-scale of each unit moves by its `step`, the
        mass grows by at most the sum over units and rates of
        `mass * (exp(2 * rate * step) - 1)`, with equality to first order. It is equal
        throughout, with the exponents as the rates, unless several units of the group
        meet in one entry, as in a recurrent matrix; Jensen's inequality separates them.
    """
    masses = {}
    for path, log_square in entries.log_squares.items():
        at = entries.axes[path]
        own = [axis for g, axis in at if g == group]
        if not own:
            continue
        log_mass = log_square
        for g, axis in at:
            log_scale = float(2 * axis.exponent) * log_scales[g]
            if len(at) > 1:
                log_scale = spread(axis, log_scale, log_square.shape)
            log_mass = log_mass + log_scale
        most = max(map(len, patterns(own, log_square.shape))) if own[1:] else 1
        for axis in own:
            moving = _without_cancelling(axis, own, log_mass) if own[1:] else log_mass
            rate = float(axis.exponent * most)
            mass = _log_sum(axis, moving) - math.log(most) if at[1:] else log_mass
            masses[rate] = jnp.logaddexp(masses[rate], mass) if rate in masses else mass
    return masses


def _without_cancelling(
    axis: Axis, axes: Sequence[Axis], log_mass: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Leave out what a unit scales by axes that cancel: the diagonal of a matrix."""
    unit = jnp.arange(1, 1 + math.prod(_shape(axis))).reshape(_shape(axis))
    units = [spread(one, unit, log_mass.shape) for one in axes]
    own = spread(axis, unit, log_mass.shape)
    exponent = sum(
        jnp.where(other == own, float(one.exponent), 0.0)
        for one, other in zip(axes, units, strict=True)
    )
    return jnp.where(exponent == 0, -jnp.inf, log_mass)


def _shape(axis: Axis) -> tuple[int, ...]:
    return (*(factor.size for factor in axis.batch), axis.unit.size)


def _log_sum(axis: Axis, logs: Float[Array, "..."]) -> Float[Array, "..."]:
    largest = collect(axis, logs, jnp.max)
    offset = jnp.where(jnp.isneginf(largest), 0, largest)
    return offset + jnp.log(
        collect(axis, jnp.exp(logs - spread(axis, offset, logs.shape)))
    )


def _log_slopes(
    masses: Mapping[float, Float[Array, "..."]],
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Logs of half the slopes of what shrinks and of what grows with the log-scale."""
    nothing = jnp.full_like(next(iter(masses.values())), -jnp.inf)
    falls = rises = nothing
    for rate, mass in masses.items():
        slope = mass + math.log(abs(rate))
        falls = jnp.logaddexp(falls, slope if rate < 0 else nothing)
        rises = jnp.logaddexp(rises, slope if rate > 0 else nothing)
    return falls, rises


def _step(masses: Mapping[float, Float[Array, "..."]]) -> Float[Array, "..."]:
    """How far to move each log-scale: to the minimum, if there are but two rates.

    `rises - falls` grows with the log-scale, by at most `2 * (max rate - min rate)` a
    nat, so that the step never passes the zero.
    """
    falls, rises = _log_slopes(masses)
    step = (falls - rises) / (2 * (max(0, *masses) - min(0, *masses)))
    return jnp.where(jnp.isneginf(falls) | jnp.isneginf(rises), 0, step)


def unbounded_groups(spec: Spec, include: Callable[[str], bool]) -> list[int]:
    """The scalings that have no minimum even if no parameter is zero.

    There is no minimum if and only if some log-scales let entries shrink and none grow.
    Units of a group are alike and the mass is convex, so that one log-scale a group
    decides: a linear program. Groups are left out in order, until the others have one.
    """
    shapes = dict(spec.shapes)
    rows = set()
    for path, at in axes_by_path(spec, include).items():
        for meeting in patterns([axis for _, axis in at], shapes[path] or (1,)):
            row = np.zeros(len(spec.scalings))
            for g, axis in (at[i] for i in meeting):
                row[g] += float(axis.exponent)
            rows.add(tuple(row))
    exponents = np.array(sorted(rows)).reshape(len(rows), len(spec.scalings))
    if _has_minimum(exponents):
        return []
    bounded: list[int] = []
    for g in range(len(spec.scalings)):
        if _has_minimum(exponents[:, [*bounded, g]]):
            bounded.append(g)
    return [g for g in range(len(spec.scalings)) if g not in bounded]


def _has_minimum(exponents: np.ndarray) -> bool:
    if exponents.size == 0:
        return True
    best = optimize.linprog(
        exponents.sum(0), exponents, np.zeros(len(exponents)), bounds=(-1, 1)
    )
    return best.fun > -1e-9
