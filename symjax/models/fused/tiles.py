"""How a GPU program holds an image, convolves it and normalises it (Pallas).

An image lies in memory as rows of 64 numbers, which are 64 / channels neighbouring
pixels. A 3 x 3 convolution is then, for each of the kernel's three lines, a matrix
product of the rows with a banded matrix, and two narrow ones with the pixels left and
right of the row. What is between loads and stores is float32.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from symjax.models.resnet import EPSILON
from symjax.rounding import ahead, saturated


_LANES = 64


class Tiling(NamedTuple):
    """How an image lies in memory."""

    side: int
    channels: int

    @property
    def pixels(self) -> int:
        """Neighbours that share a row."""
        return max(1, _LANES // self.channels)

    @property
    def lanes(self) -> int:
        """Numbers in a row."""
        return self.pixels * self.channels

    @property
    def rows(self) -> int:
        """Of an image."""
        return self.side**2 // self.pixels

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Start and length of what is left of, at and right of a row."""
        channels, lanes = self.channels, self.lanes
        return (0, channels), (channels, lanes), (channels + lanes, channels)


def widen(kernel: Any, pixels: int) -> Any:
    """The banded matrices of a kernel: `(3, (pixels + 2) * in, pixels * out)`."""
    wide = jnp.einsum("abd,ydio->yaibo", _band(pixels), kernel, precision="highest")
    return wide.reshape(3, (pixels + 2) * kernel.shape[2], pixels * kernel.shape[3])


def narrow(wide: Any, tiling: Tiling) -> Any:
    """The adjoint of `widen`: a kernel's gradient from that of its matrices."""
    pixels, channels = tiling.pixels, tiling.channels
    blocks = wide.reshape(3, pixels + 2, channels, pixels, channels)
    return jnp.einsum("abd,yaibo->ydio", _band(pixels), blocks, precision="highest")


def _band(pixels: int) -> np.ndarray:
    """Which tap leads from pixel a - 1 of a row to pixel b, as 0 and 1."""
    a, b, tap = np.ogrid[: pixels + 2, :pixels, :3]
    return (a - b == tap).astype(np.float32)


def load(ref: Any, at: Any, start: Any, lanes: int, mask: Any) -> Any:
    """Rows of `lanes` numbers from their starts on; zeros where the mask is false."""
    here = start[:, None] + jnp.arange(lanes)[None, :]
    mask = jnp.broadcast_to(mask[:, None], here.shape)
    return triton.load(ref.at[(*at, here)], mask=mask, other=0.0)


def window(ref: Any, tiling: Tiling, rows: Any, line: Any, *at: Any) -> list[Any]:
    """What is left of, at and right of rows, `line` image lines below; else zeros."""
    side, channels, pixels = *tiling, tiling.pixels
    in_line = jnp.int32(side // pixels)
    y, x = jax.lax.div(rows, in_line) + line, jax.lax.rem(rows, in_line)
    is_inside = (y >= 0) & (y < side)
    start = rows * pixels + line * side

    def tile(pixel: Any, mask: Any, num_pixels: int) -> Any:
        # Pointers stay in the image even where nothing is loaded.
        pixel = jnp.clip(pixel, 0, side * side - num_pixels)
        return load(ref, at, pixel * channels, num_pixels * channels, mask)

    return [
        tile(start - 1, is_inside & (x > 0), 1),
        tile(start, is_inside, pixels),
        tile(start + pixels, is_inside & (x < in_line - 1), 1),
    ]


def dot(one: Any, other: Any) -> Any:
    """A matrix product, summed in float32."""
    return jnp.dot(one, other, preferred_element_type=jnp.float32)


def convolve(maps: Any, matrices: Any, tiling: Tiling) -> Any:
    """The 3 x 3 convolution of an image, with zeros around it.

    Args:
        maps: The image.
        matrices: `(1 or 2, 3, ...)`: banded ones, of single numbers or of pairs.
        tiling: How they lie.
    """
    total = jnp.zeros((tiling.rows, tiling.lanes), jnp.float32)
    for line in range(3):
        tiles = window(maps, tiling, jnp.arange(tiling.rows), line - 1)
        for tile, part in zip(tiles, tiling.parts, strict=True):
            total += dot(tile, matrices[0, line, pl.ds(*part)])
            if matrices.shape[0] == 2:
                # The tile is divided, so that one sum holds both products.
                less = tile * jnp.asarray(1 / ahead(tile.dtype), tile.dtype)
                total += dot(less, matrices[1, line, pl.ds(*part)])
    return total


def _rows(tiling: Tiling) -> Any:
    starts = jnp.arange(tiling.rows) * tiling.lanes
    return starts[:, None] + jnp.arange(tiling.lanes)[None, :]


def get(ref: Any, tiling: Tiling) -> Any:
    """A whole image."""
    return triton.load(ref.at[_rows(tiling)]).astype(jnp.float32)


def put(ref: Any, value: Any, tiling: Tiling) -> None:
    """Store a whole image; what is past the largest number of its type is that."""
    kept = saturated(ref.dtype, value).astype(ref.dtype)
    triton.store(ref.at[_rows(tiling)], kept)


def _fold(sums: Any, tiling: Tiling) -> Any:
    """Sums over the pixels that share a row, given back to each of them."""
    if tiling.pixels == 1:
        return sums
    shape = tiling.pixels, tiling.channels
    total = jnp.sum(sums.reshape(shape), axis=0)
    return jnp.broadcast_to(total[None, :], shape).reshape(tiling.lanes)


def sigmoid(x: Any) -> Any:
    """By the hardware's tanh, which is good to 2^-11."""
    tanh = jnp.tanh if is_interpreted() else triton.approx_tanh
    return 0.5 * tanh(0.5 * x) + 0.5


def swish_slope(x: Any) -> Any:
    """The derivative of x sigmoid(x)."""
    gate = sigmoid(x)
    return gate * (1 + x * (1 - gate))


class Norm:
    """Filter response normalisation of a convolution's maps, and its gradient."""

    def __init__(self, maps: Any, weights: Any, tiling: Tiling) -> None:
        self.tiling = tiling
        self.gamma, self.beta, self.tau = (weights[i][None, :] for i in (1, 2, 3))
        square = _fold(jnp.sum(maps * maps, axis=0), tiling) / tiling.side**2
        self.inverse = jax.lax.rsqrt(square + EPSILON)[None, :]
        self.unit = maps * self.inverse
        self.line = self.gamma * self.unit + self.beta

    def __call__(self) -> Any:
        """The normalised maps: max(gamma x / nu + beta, tau)."""
        return jnp.maximum(self.line, self.tau)

    def pull(self, gradient: Any, sums: Any) -> Any:
        """The gradient of the maps; `sums` gets those of bias, gamma, beta and tau."""
        passed = jnp.where(self.line > self.tau, gradient, 0.0)
        gamma, beta = jnp.sum(passed * self.unit, axis=0), jnp.sum(passed, axis=0)
        mean = _fold(gamma, self.tiling)[None, :] / self.tiling.side**2
        maps = self.inverse * self.gamma * (passed - self.unit * mean)
        sums[0] = jnp.sum(maps, axis=0)
        sums[1] = gamma
        sums[2] = beta
        sums[3] = jnp.sum(gradient, axis=0) - beta
        return maps


def is_interpreted() -> bool:
    """Whether there is no GPU to compile for."""
    return jax.default_backend() != "gpu"
