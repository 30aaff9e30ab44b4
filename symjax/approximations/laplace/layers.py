"""Which parameters are those of the last layer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from symjax import trees
from symjax.types import Params


def find_last_layer(
    apply: Callable[[Params, Any], Any],
    params: Params,
    x: Num[Array | np.ndarray, "example ..."],
) -> str:
    """The pattern of the last layer's parameters, for `leaves` of `build`.

    A bias of which each entry is added to one output and nothing else does that of the
    last layer: the Jacobian is the identity. Its neighbours in the pytree are the rest
    of the layer.

    Args:
        apply: `(params, x) -> outputs (example, output)`.
        params: Of one network, with values.
        x: Inputs, of which two are tried.

    Raises:
        ValueError: if there is no such bias, or it has no neighbours.

    Example:
        >>> params = {"hidden": {"w": jnp.ones((1, 2)), "b": jnp.ones(2)},
        ...           "out": {"w": jnp.ones((2, 1)), "b": jnp.ones(1)}}
        >>> def apply(params, x):
        ...     z = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
        ...     return z @ params["out"]["w"] + params["out"]["b"]
        >>> find_last_layer(apply, params, jnp.ones((2, 1)))
        'out/*'
    """
    leaves, structure = jax.tree.flatten(params)
    names = trees.paths(params)
    rows = jnp.asarray(x[:2])
    for index, name in enumerate(names):
        leaf = leaves[index]
        if jnp.ndim(leaf) != 1 or "/" not in name:
            continue

        def outputs(leaf: Any, index: int = index) -> Any:
            changed = [*leaves[:index], leaf, *leaves[index + 1 :]]
            return apply(structure.unflatten(changed), rows)

        if jax.eval_shape(outputs, leaf).shape[-1] < len(leaf):
            continue
        jacobian = np.asarray(jax.jacobian(outputs)(leaf))
        pattern = f"{name.rpartition('/')[0]}/*"
        has_more = any(n.startswith(pattern[:-1]) and n != name for n in names)
        added = np.eye(jacobian.shape[1], len(leaf))
        if has_more and np.array_equal(
            jacobian, np.broadcast_to(added, jacobian.shape)
        ):
            return pattern
    raise ValueError(
        "`params` must have a bias that is added to the outputs, to tell the last "
        f"layer by, but none of {', '.join(names)} is one. Give `leaves`, a pattern."
    )
