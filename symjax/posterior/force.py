"""The network as the gradient sees it: at lower precision, where that is asked for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from symjax.types import Params


PRECISIONS = ("float32", "tensorfloat32", "bfloat16")
"""Of a force. float32 is full precision; tensorfloat32 rounds what matrices multiply,
where the device has such units; bfloat16 rounds parameters and inputs and stores
activations in half the memory, while likelihood, sums and gradient stay float32."""


def at_precision(
    apply: Callable[[Params, Any], Any], precision: str | None
) -> Callable[[Params, Any], Any]:
    """A network's function at a precision; float32 outputs.

    Args:
        apply: `(params, x) -> outputs (example, output)`.
        precision: One of `PRECISIONS`, or None for `apply` as it is.

    Raises:
        ValueError: if there is no such precision.
    """
    if precision is None:
        return apply
    if precision not in PRECISIONS:
        raise ValueError(
            f"`force_precision` must be one of {', '.join(PRECISIONS)}, got "
            f"{precision!r}."
        )

    def force_apply(params: Params, x: Any) -> Any:
        if precision == "bfloat16":
            return apply(*_to_bfloat16((params, x))).astype(jnp.float32)
        with jax.default_matmul_precision(precision):
            return apply(params, x)

    return force_apply


def _to_bfloat16(tree: Any) -> Any:
    """Round what is float32; labels, token ids and float64 stay."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf,
        tree,
    )
