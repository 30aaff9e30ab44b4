"""Convolutions in the one layout that XLA's CPU compiler is fast with everywhere.

Gradients of convolutions are convolutions whose axes have another order. XLA puts them
in order on a CPU, but not inside of loops, where a sampler has them; there it falls
back to plain loops over numbers, several times slower (github.com/jax-ml/jax, issue
12868).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax.extend import core

from symjax.rounding import bind, rerun


Result = TypeVar("Result")


def channels_last(function: Callable[..., Result]) -> Callable[..., Result]:
    """`function`, whose convolutions have their axes in order, on a CPU.

    Numbers are the same; the operands are transposed before, the result after. It is
    traced and run again. Loops within it (as of recurrent layers), and functions with
    rules of their own, are left as they are.
    """
    if jax.default_backend() != "cpu":
        return function

    def ordered(*args: Any) -> Result:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        results = rerun(closed.jaxpr, closed.consts, jax.tree.leaves(args), _run)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return ordered


def _run(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    if eqn.primitive.name == "conv_general_dilated":
        return [_convolve(eqn, *values)]
    return bind(eqn, values)


def _convolve(eqn: core.JaxprEqn, maps: Any, kernel: Any) -> Any:
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
    (result,) = bind(eqn, (maps, kernel), dimension_numbers=ordered)
    example, channel, *space = numbers.out_spec
    places = (example, *space, channel)
    back = sorted(range(len(places)), key=places.__getitem__)
    return jax.lax.transpose(result, back)
