"""Convolutions as XLA is fast with them, in gradients of many chains and in loops.

A vmap over chains makes of a convolution of every chain's maps with its own kernel one
with groups of channels, which takes longer than one after another on CPUs and GPUs.

Gradients of convolutions are convolutions whose axes have another order. XLA puts them
in order on a CPU, but not inside of loops, where a sampler has them; there it falls
back to plain loops over numbers, several times slower (github.com/jax-ml/jax, issue
12868).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
from jax.extend import core

from symjax.jaxprs import bind, rerun


Result = TypeVar("Result")

UNROLLED = 4
"""Convolutions of one pass of the loop over chains."""


def for_chains(function: Callable[..., Result]) -> Callable[..., Result]:
    """`function`, whose convolutions are taken chain by chain under a `vmap`.

    On a CPU their axes are put in order too. Numbers are the same. It is traced and run
    again. Loops within it (as of recurrent layers), and functions with rules of their
    own, are left as they are.
    """

    def again(*args: Any) -> Result:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        results = rerun(closed.jaxpr, closed.consts, jax.tree.leaves(args), _run)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return again


def _run(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    if eqn.primitive.name != "conv_general_dilated":
        return bind(eqn, values)
    on_cpu = jax.default_backend() == "cpu"
    return [_one_by_one(partial(_in_order if on_cpu else _bind, eqn))(*values)]


def _one_by_one(convolve: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`convolve`, of which a `vmap` over maps and kernels is a loop.

    Of maps that are shared, or a shared kernel, it stays one convolution, and so does
    what a derivative of it adds: a function with a rule for `vmap` has no reverse mode,
    and its forward mode no `vmap` over tangents alone.
    """
    alone = jax.custom_batching.custom_vmap(convolve)

    @alone.def_vmap
    def many(
        size: int, batched: Sequence[bool], maps: Any, kernel: Any
    ) -> tuple[Any, bool]:
        if not all(batched):
            axes = [0 if is_batched else None for is_batched in batched]
            return jax.vmap(convolve, axes)(maps, kernel), True

        def step(_: None, pair: tuple[Any, Any]) -> tuple[None, Any]:
            return None, convolve(*pair)

        pairs, unroll = (maps, kernel), min(size, UNROLLED)
        return jax.lax.scan(step, None, pairs, unroll=unroll)[1], True

    @jax.custom_jvp
    def differentiable(maps: Any, kernel: Any) -> Any:
        return alone(maps, kernel)

    differentiable.defjvps(
        lambda tangent, _, maps, kernel: convolve(tangent, kernel),
        lambda tangent, _, maps, kernel: convolve(maps, tangent),
    )
    return differentiable


def _in_order(eqn: core.JaxprEqn, maps: Any, kernel: Any) -> Any:
    """One convolution: examples, space, channels; of the kernel space, in, out."""
    numbers = eqn.params["dimension_numbers"]
    (example, *channel_space), (out, *in_space) = numbers.lhs_spec, numbers.rhs_spec
    maps = jax.lax.transpose(maps, (example, *channel_space[1:], channel_space[0]))
    kernel = jax.lax.transpose(kernel, (*in_space[1:], in_space[0], out))
    last = maps.ndim - 1
    space = tuple(range(1, last))
    ordered = jax.lax.ConvDimensionNumbers(
        (0, last, *space), (last, last - 1, *(i - 1 for i in space)), (0, last, *space)
    )
    result = _bind(eqn, maps, kernel, dimension_numbers=ordered)
    example, channel, *space = numbers.out_spec
    places = (example, *space, channel)
    back = sorted(range(len(places)), key=places.__getitem__)
    return jax.lax.transpose(result, back)


def _bind(eqn: core.JaxprEqn, maps: Any, kernel: Any, **params: Any) -> Any:
    # Derivatives name a sharding, in their own order of axes, even where no axis has
    # one (in a shard_map); with it JAX has no vmap of groups of channels.
    params |= {"out_sharding": None} if "out_sharding" in eqn.params else {}
    return bind(eqn, (maps, kernel), **params)[0]
