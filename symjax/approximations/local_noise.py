"""Noise of independent normal weights that each example draws for itself.

An expectation of a sum over examples needs of every example only that its own outputs
are distributed as under a draw of the weights. Examples that share no draw cancel each
other's noise, which a common draw never does. `evaluate` runs any network that way, one
example at a time under `vmap`. What a leaf of the parameters is used for decides how:

- As the weights of a product with one vector an example, and nothing else: the products
  are drawn, independent normals of mean x m and variance x^2 s^2 (local
  reparameterisation). This is exact, and its noise is that of as many draws as there
  are examples.
- As the weights of a product with several vectors of an example, or of a convolution:
  those vectors meet the same weights, so that their products are not independent. The
  examples share one deviation, whose rows and columns each turns over by random signs
  (flipout). It is exact for each example.
- Vectors and numbers in any other use, such as biases: each example has its own draw.
- Everything else, such as an embedding or weights that are used twice: one draw that
  all examples share.

Leaves may be transposed, reshaped and converted on their way, also inside of `jit`. In
functions with derivatives of their own, in loops and in branches they are used as in
the last two points.

References:
    Kingma, Salimans, Welling (2015), Variational dropout and the local
    reparameterization trick, section 2.2, eq. 6.
    Wen, Vicol, Ba, Tran, Grosse (2018), Flipout: efficient pseudo-independent weight
    perturbations on mini-batches, section 3, eqs. 3 and 4.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Int

from symjax.jaxprs import bind
from symjax.types import Key, Params


_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call"})
_REARRANGED = frozenset({"transpose", "reshape", "squeeze", "copy"})


class _Leaf(NamedTuple):
    """A leaf of the parameters on its way, by number."""

    number: int


class _Weights(NamedTuple):
    """A leaf on its way to its product: means, deviations, a shared standard normal.

    Attributes:
        mean: Means.
        std: Standard deviations.
        deviation: A draw of the leaf less its mean, which all examples share.
        key: The example's, for this leaf.
    """

    mean: Any
    std: Any
    deviation: Any
    key: Any


def evaluate(
    apply: Callable[[Params, Any], Any],
    key: Key,
    mean: Params,
    std: Params,
    x: Any,
    rows: Int[Array, " example"],
) -> Any:
    """The outputs of a network whose weights are independent normals.

    Costs the products of two evaluations, and a random number for every output of
    every example, which on a CPU take longer than those. Differentiable in `mean` and
    `std`.

    Args:
        apply: `(params, x) -> outputs`, of which no example looks at another.
        key: Of all noise.
        mean: Params pytree of means.
        std: The same of standard deviations.
        x: Inputs, examples first.
        rows: A number for each example. Those of one number share their noise.

    Returns:
        Outputs, examples first. Each example's are distributed as those of one draw of
        the weights; those of different examples are not distributed jointly so.
    """
    one = jax.tree.map(lambda leaf: leaf[:1], x)
    closed, shape = jax.make_jaxpr(apply, return_shape=True)(mean, one)
    means, stds = jax.tree.leaves(mean), jax.tree.leaves(std)
    products = _find_products(closed, len(means))
    keys = jax.random.split(key, (len(means), 2))

    def deviate(key: Key, mean: Array, std: Array) -> Array:
        return std * jax.random.normal(key, mean.shape, mean.dtype)

    def leaf_of(number: int, row: Any) -> Any:
        mean, std = means[number], stds[number]
        own = jax.random.fold_in(keys[number, 1], row)
        if number in products:
            # Of a local product it is never used, and never computed.
            shared = deviate(keys[number, 0], mean, std)
            return _Weights(mean, std, shared, own)
        return mean + deviate(own if mean.ndim < 2 else keys[number, 0], mean, std)

    def output(x: Any, row: Any) -> Any:
        leaves = [leaf_of(number, row) for number in range(len(means))]
        inputs = jax.tree.leaves(jax.tree.map(lambda leaf: leaf[None], x))
        outputs = _walk(closed.jaxpr, closed.consts, [*leaves, *inputs], _perturbed)
        return [leaf[0] for leaf in outputs]

    return jax.tree.unflatten(jax.tree.structure(shape), jax.vmap(output)(x, rows))


def _find_products(closed: core.ClosedJaxpr, num_leaves: int) -> set[int]:
    """The leaves that are the weights of one product with an activation alone."""
    uses: dict[int, list[bool]] = {number: [] for number in range(num_leaves)}

    def note(eqn: core.JaxprEqn, operands: list[Any]) -> list[Any]:
        """Values are `_Leaf`s, or whether they depend on the inputs."""
        leaves = [operand for operand in operands if isinstance(operand, _Leaf)]
        if leaves and _is_rearranged(eqn):
            return leaves
        is_product = len(leaves) == 1 and _is_product(eqn, operands)
        for leaf in leaves:
            uses[leaf.number].append(is_product)
        depends = any(operand is True for operand in operands)
        return [depends] * len(eqn.outvars)

    jaxpr = closed.jaxpr
    leaves = [_Leaf(number) for number in range(num_leaves)]
    inputs = [True] * (len(jaxpr.invars) - num_leaves)
    outputs = _walk(jaxpr, [False] * len(closed.consts), [*leaves, *inputs], note)
    returned = {output.number for output in outputs if isinstance(output, _Leaf)}
    return {n for n, kinds in uses.items() if kinds == [True] and n not in returned}


def _is_rearranged(eqn: core.JaxprEqn) -> bool:
    """Whether this only puts the numbers of its operand elsewhere."""
    if eqn.primitive.name == "convert_element_type":
        return bool(jnp.issubdtype(eqn.params["new_dtype"], jnp.floating))
    return eqn.primitive.name in _REARRANGED


def _is_product(eqn: core.JaxprEqn, operands: list[Any]) -> bool:
    """Whether this is linear in a leaf, of what depends on the inputs."""
    if eqn.primitive.name == "dot_general":
        return True in operands
    return (
        eqn.primitive.name == "conv_general_dilated"
        and operands[0] is True
        and eqn.params["batch_group_count"] == 1
    )


def _walk(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    arguments: Sequence[Any],
    rule: Callable[[core.JaxprEqn, list[Any]], list[Any]],
) -> list[Any]:
    """Run a jaxpr, its calls opened where a leaf goes in, its operations by a rule."""
    values = dict(zip(jaxpr.invars, arguments, strict=True))
    values |= dict(zip(jaxpr.constvars, consts, strict=True))
    is_abstract = any(isinstance(value, _Leaf) for value in arguments)

    def read(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return False if is_abstract else atom.val
        return values[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        is_open = any(isinstance(value, _Leaf | _Weights) for value in operands)
        if is_open and eqn.primitive.name in _CALLS:
            inner = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
            inner_consts = [False] * len(inner.consts) if is_abstract else inner.consts
            results = _walk(inner.jaxpr, inner_consts, operands, rule)
        else:
            results = rule(eqn, operands)
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _perturbed(eqn: core.JaxprEqn, operands: list[Any]) -> list[Any]:
    """What an operation gives; of one that reads weights, with their noise."""
    places = [i for i, value in enumerate(operands) if isinstance(value, _Weights)]
    if not places:
        return bind(eqn, operands)
    (place,) = places
    weights = operands[place]

    def product(x: Any, w: Any) -> Any:
        return bind(eqn, [w, x] if place == 0 else [x, w])[0]

    if _is_rearranged(eqn):
        mean, std, shared = (bind(eqn, [part])[0] for part in weights[:3])
        return [_Weights(mean, std, shared, weights.key)]
    x = operands[1 - place]
    mean = product(x, weights.mean)
    contracted, num_vectors, own = _axes(eqn, place, x.shape, weights.mean.ndim)
    if num_vectors == 1:
        variance = product(jnp.square(x), jnp.square(weights.std))
        # Of no input at all it is zero, where a root has no derivative.
        is_noisy = variance > 0
        std = jnp.where(is_noisy, jnp.sqrt(jnp.where(is_noisy, variance, 1)), 0)
        return [mean + std * jax.random.normal(weights.key, mean.shape, mean.dtype)]
    of_input, of_output = jax.random.split(weights.key)
    turned = x * _signs(of_input, x, contracted)
    return [mean + product(turned, weights.deviation) * _signs(of_output, mean, own)]


def _axes(
    eqn: core.JaxprEqn, place: int, shape: Sequence[int], num_axes: int
) -> tuple[Sequence[int], int | None, Sequence[int]]:
    """Which axes random signs may turn, and how many vectors meet the same weights.

    The axes of the activation that are summed over, and the axes of the result that are
    the weights' own. The number is that of vectors of one example;
    of a convolution it is None.
    """
    if eqn.primitive.name == "conv_general_dilated":
        numbers = eqn.params["dimension_numbers"]
        # Of channels only: the kernel is the same at every place.
        return [numbers.lhs_spec[1]], None, [numbers.out_spec[1]]
    contracted, batch = eqn.params["dimension_numbers"]
    x = 1 - place
    taken = {*contracted[x], *batch[x]}
    free = [i for i in range(len(shape)) if i not in taken]
    num_batch = len(batch[0])
    first = num_batch if place == 0 else num_batch + len(free)
    own = range(first, first + num_axes - len(taken))
    return contracted[x], math.prod(shape[i] for i in free), own


def _signs(key: Key, like: Any, axes: Sequence[int]) -> Any:
    """Random signs that differ along some axes, to be multiplied with `like`."""
    shape = [size if i in axes else 1 for i, size in enumerate(like.shape)]
    return jax.random.rademacher(key, shape, like.dtype)
