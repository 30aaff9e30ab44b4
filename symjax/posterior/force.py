"""The network as the gradient sees it: at lower precision, where that is asked for.

A force need not be exact: leapfrogs with any function of the position are reversible
and keep volume, and the accept step mends the rest.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from symjax.rounding import round_products, scale_gradients
from symjax.types import Params


PRECISIONS = ("float32", "tensorfloat32", "bfloat16", "float16", "float16x2")
"""Of a force. float32 is full precision; tensorfloat32 rounds what matrices multiply to
11 bits, where the device has such units, and stores float32; bfloat16 keeps 8 bits and
float16 11 bits, both in half the memory, of products' operands and results. float16x2
is float16 but for the parameters that activations are multiplied by, which it keeps as
sums of two such numbers."""
HALVES = ("bfloat16", "float16", "float16x2")
"""Those that store half as much."""
_SIZE = 8
"""Of the largest gradient of an output, as a power of two, in float16: that has no
numbers below 6e-8, and none above 65,504."""


def at_precision(
    apply: Callable[[Params, Any], Any],
    precision: str | None,
    fused: Callable[..., Any] | None = None,
) -> Callable[[Params, Any], Any]:
    """A network's function at a precision; float32 outputs and gradients.

    Args:
        apply: `(params, x) -> outputs (example, output)`.
        precision: One of `PRECISIONS`, or None for `apply` as it is.
        fused: `(params, x, *, dtype, in_pairs) -> outputs`, the same function to the
            rounding of bfloat16, float16 or float16x2, the precisions that it is for.

    Raises:
        ValueError: if there is no such precision, or `fused` is not for it.
    """
    if precision not in (None, *PRECISIONS):
        raise ValueError(
            f"`force_precision` must be one of {', '.join(PRECISIONS)}, got "
            f"{precision!r}."
        )
    if fused is not None and precision not in HALVES:
        raise ValueError(
            f"`force_apply` is for `force_precision` {', '.join(HALVES)}, got "
            f"{precision!r}."
        )
    if precision is None:
        return apply
    if precision in HALVES:
        half = precision.removesuffix("x2")
        dtype, in_pairs = jnp.dtype(half), precision != half
        function = (
            partial(fused, dtype=dtype, in_pairs=in_pairs)
            if fused
            else round_products(apply, dtype, in_pairs=in_pairs)
        )
        return function if half == "bfloat16" else scale_gradients(function, _SIZE)

    def force_apply(params: Params, x: Any) -> Any:
        with jax.default_matmul_precision(precision):
            return apply(params, x)

    return force_apply
