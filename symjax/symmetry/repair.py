"""REPAIR: give a merged network the activation statistics of its ends.

The units of an interpolated network vary less than those of its ends, layer by layer
more so. REPAIR shifts and rescales what every layer gives, unit by unit, so that its
mean and standard deviation are those of the ends, interpolated.

References:
    Jordan, Sedghi, Saukh, Entezari, Neyshabur (2023), REPAIR: renormalizing permuted
    activations for interpolation repair, section 4.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from symjax import checks
from symjax.symmetry.batches import batches
from symjax.symmetry.inference.unification import positions
from symjax.symmetry.spec import Spec
from symjax.symmetry.tracing import Path, Trace, trace
from symjax.types import Params


Apply: TypeAlias = Callable[[Params, Any], Any]


def repair(
    apply: Apply,
    spec: Spec,
    params: Params,
    ends: tuple[Params, Params],
    x: Any,
    *,
    position: float = 0.5,
    batch_size: int = 1024,
) -> Apply:
    """A network whose layers have the statistics of those it was interpolated from.

    Renormalised is each product of activations with a parameter, before a bias is
    added, that holds units of a permutation group. Layers in loops stay as they are,
    and so does the last layer. Networks with batch normalisation need
    `reestimate_batch_norm` in its place.

    Statistics are those of all examples, however they are divided into batches; those
    of the merged network are taken behind layers that are renormalised already, with a
    pass over the examples for each layer.

    Args:
        apply: `apply(params, x) -> outputs`.
        spec: Its symmetries.
        params: The merged network, `interpolate(*ends, position)`.
        ends: The two networks, aligned.
        x: Inputs to take statistics on, examples along the first axis of every leaf.
        position: Of the merged network, from 0, the first end, to 1.
        batch_size: Examples at a time.

    Returns:
        `repaired(params, x) -> outputs`, for these `params`.

    Raises:
        ValueError: If no layer can be renormalised.
    """
    checks.at_least(1, batch_size=batch_size)
    for network in (params, *ends):
        spec.check(network)
    if not _sites(trace(apply, params, x), spec):
        raise ValueError(
            "`apply` must have a layer outside of loops that gives units of `spec`; "
            "here is nothing to renormalise."
        )
    one, two = (_average(apply, spec, end, x, batch_size) for end in ends)
    wanted = [
        _Statistics(
            (1 - position) * a.mean + position * b.mean,
            ((1 - position) * a.variance**0.5 + position * b.variance**0.5) ** 2,
        )
        for a, b in zip(one, two, strict=True)
    ]
    found = list(wanted)
    for number in range(len(wanted)):
        # What a layer gives depends on how those before it are renormalised.
        new = _average(apply, spec, params, x, batch_size, wanted, found, number)
        found[number] = new[number]

    def repaired(params: Params, x: Any) -> Any:
        return _run(apply, spec, params, x, wanted, found, len(wanted))[0]

    return repaired


class _Statistics(NamedTuple):
    """Of the units that one layer gives, with axes of size 1 in place of samples."""

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]


class _Site(NamedTuple):
    """A layer, and the axes of what it gives that are samples."""

    path: Path
    samples: tuple[int, ...]


def _sites(traced: Trace, spec: Spec) -> list[_Site]:
    moved = {traced.leaves(group)[0] for group in spec.permutations}
    sites = []
    for step in traced.steps:
        if step.eqn.primitive.name not in ("dot_general", "conv_general_dilated"):
            continue
        (value,) = step.results
        num_active = sum(operand in traced.activations for operand in step.operands)
        is_unit = [any(p.leaf in moved for p in positions(node)) for node in value.own]
        is_looped = len(value.axes) > value.rank + 1
        if num_active == 1 and any(is_unit) and not is_looped:
            samples = tuple(axis for axis, unit in enumerate(is_unit) if not unit)
            sites.append(_Site(step.path, samples))
    return sites


def _run(
    apply: Apply,
    spec: Spec,
    params: Params,
    x: Any,
    wanted: Sequence[_Statistics] = (),
    found: Sequence[_Statistics] = (),
    num_known: int | Int[Array, ""] = 0,
) -> tuple[Any, list[_Statistics]]:
    """Outputs, and the statistics of each layer in this batch.

    Args:
        apply: The network.
        spec: Its symmetries.
        params: Its parameters.
        x: One batch.
        wanted: What layers are renormalised to.
        found: The statistics that they have over all batches.
        num_known: Of how many layers; those after them are left as they are.
    """
    traced = trace(apply, params, x)
    sites = _sites(traced, spec)

    def visit(number: int, _: list, results: list) -> tuple[list, _Statistics]:
        (result,), axes = results, sites[number].samples
        own = _Statistics(
            jnp.mean(result, axes, keepdims=True), jnp.var(result, axes, keepdims=True)
        )
        if wanted:
            old, new = found[number], wanted[number]
            varies = old.variance > 0
            ratio = jnp.where(varies, new.variance / old.variance, 1) ** 0.5
            moved = (result - old.mean) * ratio + new.mean
            result = jnp.where(number < num_known, moved, result)
        return [result], own

    visits = [(s.path, functools.partial(visit, k)) for k, s in enumerate(sites)]
    outputs, kept = traced.run(params, x, visits)
    return outputs, [kept[number] for number in range(len(sites))]


_run_compiled = jax.jit(_run, static_argnums=(0, 1))


def _average(
    apply: Apply,
    spec: Spec,
    params: Params,
    x: Any,
    batch_size: int,
    wanted: Sequence[_Statistics] = (),
    found: Sequence[_Statistics] = (),
    num_known: int = 0,
) -> list[_Statistics]:
    """Statistics of each layer over all batches, as if these were one."""
    total: list[_Statistics] = []
    done = 0.0
    for batch, share in batches(x, batch_size):
        _, new = _run_compiled(apply, spec, params, batch, wanted, found, num_known)
        part = share / (done + share)
        total = [_joined(*pair, part) for pair in zip(total or new, new, strict=True)]
        done += share
    return total


def _joined(one: _Statistics, two: _Statistics, part: float) -> _Statistics:
    """Of both together, of which the second is this part."""
    step = two.mean - one.mean
    within = (1 - part) * one.variance + part * two.variance
    between = part * (1 - part) * step**2
    return _Statistics(one.mean + part * step, within + between)
