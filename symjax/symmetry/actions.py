"""Operators that move parameters without changing the network, and their group.

An `Element` holds one permutation, scale or sign for each unit of each group of a
`Spec`. On a layer `x @ W -> activation -> @ V`, whose units lie along the columns of
`W` and the rows of `V`, it acts as

    W'[:, u] = W[:, p[u]] * scale[p[u]] * sign[p[u]]
    V'[u, :] = V[p[u], :] / scale[p[u]] * sign[p[u]]

Scales and signs act first, on the units as they are numbered before. Then permutations
act, those inside a batch (units of a head) before those that move the batch (heads) and
carry what is inside along.

All operators are pure and run under `jit`, `vmap` and `grad`. Draws are leading axes:
`jax.vmap(lambda element, params: act(spec, element, params))`. Leaves keep their dtype
and, over draws, their sharding; a leaf that no group acts on is returned itself.

Permutations and signs are symmetries of a posterior whose prior treats units alike and
is even. Scalings are symmetries of the function and the likelihood only: rescaled draws
are no draws from the posterior.

References:
    Laurent, Aldea, Franchi (2024), A symmetry-aware exploration of Bayesian neural
    network posteriors, for the scaling and permutation operators of MLPs and CNNs.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Num, Shaped

from symjax import trees
from symjax.symmetry.placement import multiply, reorder
from symjax.symmetry.spec import Axis, Group, Kind, Spec
from symjax.types import Params


class Element(NamedTuple):
    """One member of a network's symmetry group.

    Attributes:
        permutations: One array of each group's `shape`, in the order of
            `spec.permutations`, that holds each of `0 .. size - 1` once along its last
            axis.
        scales: Positive numbers, in the order of `spec.scalings`.
        signs: 1 or -1, in the order of `spec.signs`.
    """

    permutations: tuple[Int[Array, "..."], ...]
    scales: tuple[Num[Array, "..."], ...]
    signs: tuple[Num[Array, "..."], ...]


def identity(spec: Spec) -> Element:
    """The element that moves nothing.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 2)), "out": jnp.ones((2, 1))}
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> [array.tolist() for array in jax.tree.leaves(identity(spec))]
        [[0, 1], [1, 1]]
    """
    return Element(
        tuple(
            jnp.broadcast_to(jnp.arange(group.size), group.shape)
            for group in spec.permutations
        ),
        tuple(jnp.ones(group.shape) for group in spec.scalings),
        tuple(jnp.ones(group.shape, jnp.int8) for group in spec.signs),
    )


def act(spec: Spec, element: Element, params: Params) -> Params:
    """Rescale and flip, then permute.

    Args:
        spec: The network's symmetries.
        element: What to act with.
        params: One setting; `jax.vmap` over draws.

    Returns:
        Parameters of the same function.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[3.0], [4.0]])}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 1)))
        >>> element = Element((jnp.array([1, 0]),), (jnp.array([0.5, 2.0]),), ())
        >>> jax.tree.map(lambda leaf: leaf.tolist(), act(spec, element, params))
        {'in': [[4.0, 0.5]], 'out': [[2.0], [6.0]]}
    """
    check_element(spec, element)
    groups = (*spec.scalings, *spec.signs, *spec.permutations)
    values = (*element.scales, *element.signs, *element.permutations)
    return _moved(spec, groups, values, params)


def permute(
    spec: Spec, permutations: Sequence[Int[Array | np.ndarray, "..."]], params: Params
) -> Params:
    """Reorder units: `new[.., u, ..] = old[.., permutation[u], ..]`.

    Args:
        spec: The network's symmetries.
        permutations: One array for each of `spec.permutations`.
        params: One setting; `jax.vmap` over draws.

    Returns:
        Parameters of the same function.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[3.0], [4.0]])}
        >>> apply = lambda params, x: jax.nn.silu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 1)))
        >>> permute(spec, [jnp.array([1, 0])], params)["in"].tolist()
        [[2.0, 1.0]]
    """
    _check("permutations", spec.permutations, permutations)
    return _moved(spec, spec.permutations, permutations, params)


def rescale(
    spec: Spec, scales: Sequence[Num[Array | np.ndarray, "..."]], params: Params
) -> Params:
    """Scale units: `new = old * scale**exponent`, computed in the wider of both dtypes.

    It leaves the function unchanged, but not the density of a prior.

    Args:
        spec: The network's symmetries.
        scales: One array of positive numbers for each of `spec.scalings`.
        params: One setting; `jax.vmap` over draws.

    Returns:
        Parameters of the same function.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[3.0], [4.0]])}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 1)))
        >>> rescale(spec, [jnp.array([0.5, 2.0])], params)["out"].tolist()
        [[6.0], [2.0]]
    """
    _check("scales", spec.scalings, scales)
    return _moved(spec, spec.scalings, scales, params)


def flip(
    spec: Spec, signs: Sequence[Num[Array | np.ndarray, "..."]], params: Params
) -> Params:
    """Flip units: `new = old * sign**exponent`.

    Args:
        spec: The network's symmetries.
        signs: One array of 1 and -1 for each of `spec.signs`.
        params: One setting; `jax.vmap` over draws.

    Returns:
        Parameters of the same function.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[3.0], [4.0]])}
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 1)))
        >>> flip(spec, [jnp.array([1, -1])], params)["in"].tolist()
        [[1.0, -2.0]]
    """
    _check("signs", spec.signs, signs)
    return _moved(spec, spec.signs, signs, params)


def check_element(spec: Spec, element: Element) -> None:
    """Require arrays of the number and shapes of a spec's groups."""
    _check("permutations", spec.permutations, element.permutations)
    _check("scales", spec.scalings, element.scales)
    _check("signs", spec.signs, element.signs)


def _moved(
    spec: Spec,
    groups: tuple[Group, ...],
    values: Sequence[Shaped[Array | np.ndarray, "..."]],
    params: Params,
) -> Params:
    spec.check(params)
    leaves, structure = jax.tree.flatten(params)
    leaves = dict(zip(trees.paths(params), leaves, strict=True))
    acting = collections.defaultdict(list)
    arrays = collections.defaultdict(list)
    for group, value in zip(groups, values, strict=True):
        for axis in group.axes:
            _check_multiplied(group.kind, axis, leaves[axis.path])
            # Without its name, so that leaves of one make share a program.
            nameless = dataclasses.replace(axis, path="")
            acting[axis.path].append((group.kind, nameless))
            arrays[axis.path].append(value)
    for path, here in acting.items():
        leaves[path] = _move(tuple(here), arrays[path], leaves[path])
    return jax.tree.unflatten(structure, leaves.values())


def _check_multiplied(kind: Kind, axis: Axis, leaf: Any) -> None:
    moved = kind == "permutation" or (kind == "sign" and axis.exponent % 2 == 0)
    dtype = jnp.result_type(leaf)
    if not moved and not jnp.issubdtype(dtype, jnp.inexact):
        raise TypeError(
            f"`params` must have floating-point numbers at `{axis.path}` for its units "
            f"to be scaled or flipped, got {dtype}. Infer a spec from these parameters."
        )


# A program for each leaf: XLA moves a leaf two or three times as fast alone. For each
# operation compiling would take far longer.
@functools.partial(jax.jit, static_argnums=0)
def _move(
    acting: tuple[tuple[Kind, Axis], ...],
    values: Sequence[Shaped[Array, "..."]],
    leaf: Shaped[Array, "..."],
) -> Shaped[Array, "..."]:
    for (kind, axis), value in zip(acting, values, strict=True):
        leaf = _move_leaf(kind, axis, value, leaf)
    return leaf


def _move_leaf(kind: Kind, axis: Axis, value: Array, leaf: Array) -> Array:
    match kind:
        case "permutation":
            return reorder(axis, value, leaf)
        case "scaling":
            return multiply(axis, value ** _number(axis.exponent), leaf)
        case "sign":
            return multiply(axis, value, leaf) if axis.exponent % 2 else leaf


def _number(exponent: Fraction | int) -> int | float:
    """An integer where it is one: JAX multiplies for those instead of taking logs."""
    return int(exponent) if exponent == int(exponent) else float(exponent)


def _check(
    name: str,
    groups: Sequence[Group],
    values: Sequence[Shaped[Array | np.ndarray, "..."]],
) -> None:
    if len(values) != len(groups):
        raise ValueError(
            f"`{name}` must hold one array for each of the {len(groups)} groups of the "
            f"spec, got {len(values)}. Make elements with this spec."
        )
    for number, (group, value) in enumerate(zip(groups, values, strict=True)):
        if np.shape(value) != group.shape:
            raise ValueError(
                f"`{name}[{number}]` must have shape {group.shape}, that of the group "
                f"on `{group.axes[0].path}`, got {np.shape(value)}. Make elements with "
                f"this spec; for elements with leading axes, use `jax.vmap` over them."
            )
