"""How many scales a network has, measured, without a look at how it is made."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from zoo.network import QUICK, double, fill


def num_free_scales(network) -> int:
    """The dimension of the group of all scalings of single parameters.

    Scales exp(t d) leave a network unchanged for all t if and only if d is orthogonal
    to the gradient of every output with respect to the log-parameters, at all
    parameters and inputs. So the dimension is the nullity of a matrix of such gradients
    at random ones. Parameters that no output depends on are not counted.
    """

    def outputs(log_scales, params, x):
        scaled = jax.tree.map(lambda p, s: p * jnp.exp(s), params, log_scales)
        return ravel_pytree(network.apply(scaled, x))[0]

    rows, seed, size = [], 0, sum(np.size(p) for p in jax.tree.leaves(network.params))
    with jax.enable_x64(True):
        zeros = jax.tree.map(np.zeros_like, double(network.params))
        gradients = jax.jit(jax.jacrev(outputs), compiler_options=QUICK)
        while seed < 8 or sum(map(len, rows)) < 1.3 * size + 10:
            params = double(fill(network.params, seed))
            leaves = jax.tree.leaves(gradients(zeros, params, _other(network.x, seed)))
            new = np.hstack([np.reshape(leaf, (len(leaf), -1)) for leaf in leaves])
            rows.append(new / np.max(np.abs(new)))
            seed += 1
    matrix = np.concatenate(rows)
    length = np.linalg.norm(matrix, axis=0)
    used = length > 1e-9
    triangle = np.linalg.qr(matrix[:, used] / length[used], mode="r")
    values = np.linalg.svd(triangle, compute_uv=False)
    return int(np.sum(values < 1e-11 * values[0]))


def _other(x, seed):
    generator = np.random.default_rng(seed)
    if np.issubdtype(x.dtype, np.integer):
        return generator.permutation(x.ravel()).reshape(x.shape)
    return double(x) + generator.normal(size=x.shape)
