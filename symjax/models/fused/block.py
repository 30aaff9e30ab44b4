"""A residual block with fused kernels: convolutions, normalisation, residual, swish.

One program holds one image, so that a convolution, the normalisation over the image's
pixels, the residual and swish are one pass over memory, where XLA makes five to ten;
the gradient's passes are fused in the same way. Off the GPU the kernels are
interpreted: slow, for tests.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from symjax.models.fused.tiles import (
    Norm,
    Tiling,
    convolve,
    dot,
    get,
    is_interpreted,
    load,
    narrow,
    put,
    sigmoid,
    swish_slope,
    widen,
    window,
)
from symjax.rounding import pair


_WARPS = {16: 8, 32: 4, 64: 4}
_TILE = 64
"""Rows that a step of the weights' gradient sums over."""
_PROGRAMS = 528
"""Of the weights' gradient: four for each multiprocessor of the largest GPUs."""


class Layer(NamedTuple):
    """A 3 x 3 convolution with its normalisation.

    Attributes:
        kernel: `(3, 3, in, out)`.
        bias: `(out,)`, as the others.
        gamma: Scale of the normalised maps.
        beta: Shift of the normalised maps.
        tau: Threshold from below.
    """

    kernel: Any
    bias: Any
    gamma: Any
    beta: Any
    tau: Any


def residual_block(
    maps: Float[Array, "image side side channel"],
    one: Layer,
    two: Layer,
    *,
    in_pairs: bool = False,
) -> Float[Array, "image side side channel"]:
    """swish(maps + norm(conv(swish(norm(conv(maps)))))), stored as `maps` is.

    Args:
        maps: Of square images with a side of 8 to 32 pixels and 16, 32 or 64 channels.
        one: The first convolution and its normalisation.
        two: The second.
        in_pairs: Whether kernels are sums of two numbers of the type of `maps`.
    """
    return _block(in_pairs, maps, one, two)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _block(in_pairs: bool, maps: Any, one: Layer, two: Layer) -> Any:
    return _forward_pass(in_pairs, maps, one, two)[0]


def _forward_pass(in_pairs: bool, maps: Any, one: Layer, two: Layer) -> tuple[Any, Any]:
    tiling = Tiling(maps.shape[1], maps.shape[3])
    x = maps.reshape(len(maps), -1)
    weights = [
        _prepare(layer, layer.kernel, tiling, x.dtype, in_pairs) for layer in (one, two)
    ]
    c1, y1 = _each_image(_forward, tiling, (x,), weights[0], "mww", num_out=2)
    c2, y2 = _each_image(_forward, tiling, (y1, x), weights[1], "mwwm", num_out=2)
    return y2.reshape(maps.shape), (x, c1, y1, c2, one, two)


def _backward_pass(
    in_pairs: bool, kept: Any, gradient: Any
) -> tuple[Any, Layer, Layer]:
    x, c1, y1, c2, one, two = kept
    tiling = Tiling(gradient.shape[1], gradient.shape[3])
    turned = [layer.kernel[::-1, ::-1].swapaxes(2, 3) for layer in (one, two)]
    (w1, p1), (w2, p2) = (
        _prepare(layer, kernel, tiling, x.dtype, in_pairs)
        for layer, kernel in zip((one, two), turned, strict=True)
    )
    run = partial(_each_image, tiling=tiling)
    d2, residual, sums2 = run(
        _end_backward,
        maps=(gradient.reshape(x.shape), x, c2),
        weights=(p2,),
        order="mmmw",
        num_out=2,
        has_sums=True,
    )
    d1, sums1 = run(
        _middle_backward,
        maps=(d2, c1),
        weights=(w2, p1),
        order="mwmw",
        num_out=1,
        has_sums=True,
    )
    (d0,) = run(
        _start_backward, maps=(d1, residual), weights=(w1,), order="mwm", num_out=1
    )
    return (
        d0.reshape(gradient.shape),
        _layer_gradient(x, d1, sums1, tiling),
        _layer_gradient(y1, d2, sums2, tiling),
    )


_block.defvjp(_forward_pass, _backward_pass)


def _prepare(
    layer: Layer, kernel: Any, tiling: Tiling, dtype: Any, in_pairs: bool
) -> tuple[Any, Any]:
    """Banded matrices, `(1 or 2, 3, ...)`; the other weights for each of a row."""
    others = jnp.stack(layer[1:]).astype(jnp.float32)
    wide = widen(kernel, tiling.pixels)
    matrices = jnp.stack(pair(dtype, wide) if in_pairs else (wide,)).astype(dtype)
    return matrices, jnp.tile(others, (1, tiling.pixels))


def _layer_gradient(maps: Any, gradient: Any, sums: Any, tiling: Tiling) -> Layer:
    """All of a layer's gradient, from its input and the gradient of its maps."""
    each = -(-len(maps) // _PROGRAMS)
    num_programs = -(-len(maps) // each)
    shape = (3, tiling.lanes + 2 * tiling.channels, tiling.lanes)
    whole = pl.BlockSpec(maps.shape, lambda i: (0, 0))
    parts = pl.pallas_call(
        partial(_weights_backward, tiling, each, len(maps)),
        grid=(num_programs,),
        in_specs=[whole, whole],
        out_specs=pl.BlockSpec((None, *shape), lambda i: (i, 0, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((num_programs, *shape), jnp.float32),
        interpret=is_interpreted(),
        compiler_params=triton.CompilerParams(4, 2),
    )(maps, gradient)
    others = sums.sum(0).reshape(4, tiling.pixels, tiling.channels).sum(1)
    return Layer(narrow(parts.sum(0), tiling), *others)


def _forward(
    tiling: Tiling, maps: Any, matrices: Any, weights: Any, *refs: Any
) -> None:
    """Swish of the normalised convolution, and of the residual if there is one."""
    *residual, convolved, out = refs
    conv = convolve(maps, matrices, tiling) + weights[0][None, :]
    put(convolved, conv, tiling)
    z = Norm(conv, weights, tiling)()
    for ref in residual:
        z += get(ref, tiling)
    put(out, z * sigmoid(z), tiling)


def _end_backward(
    tiling: Tiling,
    gradient: Any,
    residual: Any,
    convolved: Any,
    weights: Any,
    *outs: Any,
) -> None:
    """From the block's output to its second convolution and its residual."""
    to_convolved, to_residual, sums = outs
    norm = Norm(get(convolved, tiling), weights, tiling)
    change = get(gradient, tiling) * swish_slope(norm() + get(residual, tiling))
    put(to_residual, change, tiling)
    put(to_convolved, norm.pull(change, sums), tiling)


def _middle_backward(
    tiling: Tiling,
    gradient: Any,
    matrices: Any,
    convolved: Any,
    weights: Any,
    *outs: Any,
) -> None:
    """From the second convolution to the first one."""
    to_convolved, sums = outs
    change = convolve(gradient, matrices, tiling)
    norm = Norm(get(convolved, tiling), weights, tiling)
    put(to_convolved, norm.pull(change * swish_slope(norm()), sums), tiling)


def _start_backward(
    tiling: Tiling, gradient: Any, matrices: Any, residual: Any, to_maps: Any
) -> None:
    """From the first convolution and the residual to the block's input."""
    change = convolve(gradient, matrices, tiling) + get(residual, tiling)
    put(to_maps, change, tiling)


def _weights_backward(
    tiling: Tiling, each: int, num_images: int, maps: Any, gradient: Any, out: Any
) -> None:
    """The gradient of the banded matrices, summed over `each` images."""
    tiles = jnp.int32(tiling.rows // _TILE)
    first = pl.program_id(0) * each

    def add(step: Any, totals: Any) -> Any:
        image = first + jax.lax.div(step, tiles)
        rows = jax.lax.rem(step, tiles) * _TILE + jnp.arange(_TILE)
        at = jnp.minimum(image, num_images - 1)
        is_image = jnp.broadcast_to(image < num_images, rows.shape)
        right = load(gradient, (at,), rows * tiling.lanes, tiling.lanes, is_image)
        windows = [window(maps, tiling, rows, line - 1, at) for line in range(3)]
        lefts = [tile for window in windows for tile in window]
        return [a + dot(b.T, right) for a, b in zip(totals, lefts, strict=True)]

    zeros = [
        jnp.zeros((length, tiling.lanes), jnp.float32)
        for _ in range(3)
        for _, length in tiling.parts
    ]
    totals = iter(jax.lax.fori_loop(0, each * (tiling.rows // _TILE), add, zeros))
    for line in range(3):
        for part in tiling.parts:
            out[line, pl.ds(*part)] = next(totals)


def _each_image(
    kernel: Callable[..., None],
    tiling: Tiling,
    maps: tuple[Any, ...],
    weights: tuple[Any, ...],
    order: str,
    *,
    num_out: int,
    has_sums: bool = False,
) -> list[Any]:
    """Run a kernel on every image; `order` mixes its maps (m) and its weights (w)."""
    like = maps[0]
    outs = [jax.ShapeDtypeStruct(like.shape, like.dtype)] * num_out
    if has_sums:
        shape = len(like), 4, tiling.lanes
        outs.append(jax.ShapeDtypeStruct(shape, jnp.float32))

    def of_image(leaf: Any) -> Any:
        zeros = (0,) * (leaf.ndim - 1)
        return pl.BlockSpec((None, *leaf.shape[1:]), lambda i: (i, *zeros))

    def of_all(leaf: Any) -> Any:
        zeros = (0,) * leaf.ndim
        return pl.BlockSpec(leaf.shape, lambda i: zeros)

    sources = {"m": iter(maps), "w": iter(weights)}
    inputs = [next(sources[kind]) for kind in order]
    specs = [
        of_image(leaf) if kind == "m" else of_all(leaf)
        for kind, leaf in zip(order, inputs, strict=True)
    ]
    results: Any = pl.pallas_call(
        partial(kernel, tiling),
        grid=(len(like),),
        in_specs=specs,
        out_specs=[of_image(out) for out in outs],
        out_shape=outs,
        interpret=is_interpreted(),
        compiler_params=triton.CompilerParams(_WARPS[tiling.channels], 2),
    )(*inputs)
    return list(results)
