"""The outputs of many draws on many examples, in bounded memory."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from symjax import checks, trees
from symjax.types import Params


def predict(
    apply: Callable[..., Any],
    draws: Params,
    x: Num[np.ndarray | Array, "example ..."],
    *,
    batch_size: int | None = None,
    max_bytes: int = 2**28,
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "chain draw example output"]:
    """The outputs of every draw on every example, in bounded device memory.

    Draws are vmapped in groups within a chain and examples taken in batches; what does
    not divide is padded, so that one program is compiled. Networks with convolutions
    are taken one by one within a group: XLA is slower with a batch of kernels. Matrix
    products are in full float32 on every device: TF32 would answer for a network that
    was not sampled.

    Args:
        apply: `(params, x) -> outputs (example, output)`. Hashable; calls with an equal
            `apply` and equal shapes share a compiled program.
        draws: A pytree with leading `(chain, draw)` on every leaf, NumPy or JAX, or
            anything with `shape` and `dtype` that gives an array when indexed by
            `[chain, slice]`, so that a stored run can be read a group at a time.
        x: Inputs.
        batch_size: Examples at a time; by default as many as `max_bytes` allows.
        max_bytes: Device memory to aim at beside `x`, in bytes: a group of draws, its
            outputs, and all values that `apply` computes for a batch, as if none were
            freed early. One draw and one example are taken whatever they need.
        progress: Called as `progress(done, total)`, in draws, after every group.

    Returns:
        The outputs (logits, for a classifier), float32 in host memory.

    Raises:
        ValueError: If `x` is empty, `draws` is empty or its leaves differ in the
            leading axes.
    """
    checks.at_least(1, batch_size=batch_size, max_bytes=max_bytes)
    if not x.shape[0]:
        raise ValueError("`x` must hold at least one example; it holds none.")
    leaves, structure = jax.tree.flatten(draws)
    sizes = {leaf.shape[:2] for leaf in leaves}
    if len(sizes) != 1 or len(min(sizes)) < 2 or 0 in min(sizes):
        raise ValueError(
            "`draws` must have the same leading axes (chain, draw), not empty, on "
            f"every leaf; they are {sorted(sizes)}."
        )
    # Indexing a JAX array by other numbers would compile once more each time.
    leaves = [np.asarray(a) if isinstance(a, jax.Array) else a for a in leaves]
    num_chains, num_draws = sizes.pop()
    params = [_on_device(leaf.shape[2:], leaf.dtype) for leaf in leaves]
    group, batch, width, convolves = _plan(
        apply, structure.unflatten(params), x, num_draws, batch_size, max_bytes
    )
    batches = _pad(jnp.asarray(x), batch).reshape(-1, batch, *x.shape[1:])
    result = np.empty((num_chains, num_draws, x.shape[0], width), np.float32)
    for chain in range(num_chains):
        for start in range(0, num_draws, group):
            stop = min(start + group, num_draws)
            some = [_pad(np.asarray(leaf[chain, start:stop]), group) for leaf in leaves]
            with jax.default_matmul_precision("highest"):
                outputs = _outputs(apply, convolves, structure.unflatten(some), batches)
            outputs = np.asarray(outputs)[: stop - start, : x.shape[0]]
            result[chain, start:stop] = outputs
            if progress is not None:
                progress(chain * num_draws + stop, num_chains * num_draws)
    return result


def _on_device(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """What becomes of such an array on a device, float32 of float64."""
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _outputs(
    apply: Callable[..., Any],
    one_by_one: bool,
    params: Params,
    batches: Num[Array, "batch row ..."],
) -> Float[Array, "draw example output"]:
    def over_draws(x: Array) -> Float[Array, "draw row output"]:
        if one_by_one:
            return jax.lax.map(lambda one: apply(one, x), params)
        return jax.vmap(apply, in_axes=(0, None))(params, x)

    outputs = jnp.moveaxis(jax.lax.map(over_draws, batches), 0, 1)
    return outputs.reshape(outputs.shape[0], -1, outputs.shape[-1])


def _plan(
    apply: Callable[..., Any],
    params: Params,
    x: Num[np.ndarray | Array, "example ..."],
    num_draws: int,
    batch_size: int | None,
    max_bytes: int,
) -> tuple[int, int, int, bool]:
    """How many draws and examples to take at a time, the output's width, and its kind.

    The kind is whether the network has convolutions.

    Raises:
        ValueError: If `apply` does not give (example, output).
    """
    example = _on_device((1, *x.shape[1:]), x.dtype)
    jaxpr = jax.make_jaxpr(apply)(params, example)
    out = jaxpr.out_avals
    if len(out) != 1 or len(out[0].shape) != 2 or out[0].shape[0] != 1:
        raise ValueError(
            "`apply` must give outputs of the shape (example, output); for one example "
            f"it gives {[aval.shape for aval in out]}."
        )
    values = [variable.aval for eqn in jaxpr.eqns for variable in eqn.outvars]
    each_example = max(1, trees.num_bytes(values))
    each_draw = trees.num_bytes(params) + x.shape[0] * trees.num_bytes(out)
    batch = batch_size or max(1, (max_bytes - each_draw) // each_example)
    batch = _even(x.shape[0], batch)
    group = max(1, max_bytes // (each_draw + batch * each_example))
    # Printed, so that those in inner functions count.
    convolves = "conv_general_dilated" in str(jaxpr)
    return _even(num_draws, group), batch, out[0].shape[1], convolves


def _even(total: int, limit: int) -> int:
    """The size of the fewest equal parts of `total` that are at most `limit`."""
    return math.ceil(total / math.ceil(total / limit))


def _pad(
    array: Num[np.ndarray | Array, "n ..."], multiple: int
) -> Num[np.ndarray | Array, "m ..."]:
    """Repeat the last row until the rows divide: a real row can't make a NaN."""
    missing = -array.shape[0] % multiple
    numpy = jnp if isinstance(array, jax.Array) else np
    return numpy.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1), mode="edge")
