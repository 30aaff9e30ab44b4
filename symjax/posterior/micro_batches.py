"""How many examples a gradient can hold in memory at once."""

from typing import Any

import jax

from symjax.posterior.density import LogPosterior
from symjax.trees import num_bytes
from symjax.types import Data, Params


def choose_micro_batch(
    log_posterior: LogPosterior,
    params: Params,
    data: Data,
    *,
    max_bytes: int,
    num_chains: int = 1,
) -> int | None:
    """The largest micro-batch whose gradient fits in `max_bytes` of a device's memory.

    What reverse mode keeps for each example is read off the traced gradient; as much
    again is allowed for what it writes on the way back.

    Args:
        log_posterior: Whose gradient is taken.
        params: Parameters, or their shapes.
        data: One device's examples, or their shapes.
        max_bytes: Memory for the activations, in bytes.
        num_chains: Chains vmapped on the device.

    Returns:
        Examples in a micro-batch, or None where all of them fit.

    Raises:
        ValueError: if a single example does not fit.
    """
    shapes = jax.eval_shape(lambda tree: tree, (params, data))

    def residual_bytes(num_rows: int) -> int:
        batch = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_rows, *leaf.shape[1:]), leaf.dtype),
            shapes[1],
        )

        def pullback(params: Params, batch: Data) -> Any:
            return jax.vjp(
                lambda p: log_posterior.force_log_likelihood(p, batch), params
            )[1]

        return num_bytes(jax.eval_shape(pullback, shapes[0], batch))

    num_rows = len(data.mask)
    per_example = 2 * num_chains * max(1, residual_bytes(2) - residual_bytes(1))
    if per_example > max_bytes:
        raise ValueError(
            f"`max_bytes` must hold one example for {num_chains} chains, which takes "
            f"{per_example:,} bytes; got {max_bytes:,}. Run fewer chains on a device."
        )
    size = max_bytes // per_example
    if size >= num_rows:
        return None
    # Even micro-batches: the last one would otherwise be mostly masked rows.
    return -(-num_rows // -(-num_rows // size))
