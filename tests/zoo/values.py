"""Values that fix a scale or a sign."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from zoo.control import FLIPPED, SCALED, hidden


def _epsilon(h, p):
    """The norm of each unit over the examples, as in filter response normalisation."""
    return jnp.tanh(h * jax.lax.rsqrt(jnp.mean(h**2, axis=0) + 1e-6))


def _threshold(h, p):
    return jnp.where(h > 0.1, h, 0.0)


def _sign_branch(h, p):
    return jnp.where(h > 0, 2 * h, h)


def _learned_slope(h, p):
    return jnp.where(h > 0, h, p["slope"] * h)


def _varying_slope(h, p):
    return jnp.where(h > 0, h, jnp.arange(7) / 14 * h)


CONTROLS = [
    # Even functions let go of the sign before them and pass none on.
    hidden("abs", lambda h, p: jnp.abs(h), FLIPPED, "7", "7", "7"),
    hidden("cos", lambda h, p: jnp.cos(h), FLIPPED, "7", "", "7"),
    hidden("square", lambda h, p: h**2, SCALED, "7", "7", "7"),
    hidden("cube", lambda h, p: h**3, SCALED, "7", "7", "7"),
    hidden("root", lambda h, p: jnp.sqrt(jnp.abs(h)), SCALED, "7", "7", "7"),
    hidden("reciprocal", lambda h, p: 1 / h, SCALED, "7", "7", ""),
    hidden("sign", lambda h, p: jnp.sign(h), SCALED, "7", "7", "7"),
    hidden("relu", lambda h, p: nn.relu(h), FLIPPED, "7", "7", ""),
    hidden("leaky", lambda h, p: nn.leaky_relu(h), FLIPPED, "7", "7", ""),
    hidden("learned slope", _learned_slope, FLIPPED, "7", "7", "", slope=(7,)),
    hidden("threshold at zero", _sign_branch, FLIPPED, "7", "7", ""),
    hidden("threshold", _threshold, SCALED, "7", "", ""),
    hidden("varying slope", _varying_slope, FLIPPED, "", "7", ""),
    hidden("max", lambda h, p: jnp.maximum(h, 0.1), SCALED, "7", "", ""),
    hidden("clip", lambda h, p: jnp.clip(h, -1, 2), SCALED, "7", "", ""),
    hidden("tanh", lambda h, p: jnp.tanh(h), SCALED, "7", "", "7"),
    hidden("silu", lambda h, p: nn.silu(h), FLIPPED, "7", "", ""),
    hidden("exp", lambda h, p: jnp.exp(h), SCALED, "7", "", ""),
    hidden("log", lambda h, p: jnp.log(jnp.abs(h)), SCALED, "7", "", "7"),
    hidden("floor", lambda h, p: jnp.floor(4 * h), FLIPPED, "7", "", ""),
    hidden("round", lambda h, p: jnp.round(4 * h), SCALED, "7", "", "7"),
    hidden("shifted", lambda h, p: h + 0.1, SCALED, "7", "", ""),
    hidden("uniform constant", lambda h, p: h + np.full(7, 0.1), FLIPPED, "7", "", ""),
    hidden("epsilon", _epsilon, SCALED, "7", "", "7"),
    hidden("remainder", lambda h, p: jnp.remainder(h, 0.5), FLIPPED, "7", "", ""),
    hidden("comparison", lambda h, p: (h > 0).astype(h.dtype), FLIPPED, "7", "7", ""),
]
