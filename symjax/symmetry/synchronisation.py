"""Bring several networks to one common order of units, that of none of them.

References:
    Crisostomi, Fumero, Baieri, Bernard, Rodolà (2024), C2M3: cycle-consistent
    multi-model merging, for the objective and for maps by way of a common order; they
    maximise it over all networks at once, by Frank-Wolfe.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from symjax import checks
from symjax.symmetry.actions import Element
from symjax.symmetry.matching import matcher, moves, stacks
from symjax.symmetry.matching.gains import Boxes
from symjax.symmetry.matching.matcher import Matcher
from symjax.symmetry.matching.moves import Elements
from symjax.symmetry.spec import Spec
from symjax.types import Params


class Synchronised(NamedTuple):
    """Networks in one common order.

    Attributes:
        params: The networks, permuted and flipped but not scaled.
        element: `act(spec, element, params)` made each. From network `i` to network `j`
            leads `compose(spec, inverse(spec, element_j), element_i)`; these maps agree
            around every cycle of networks.
        similarity: Mean cosine of two networks, over the weights that symmetries move,
            at the scales of smallest norm.
        converged: Whether in the end no network alone could come nearer to the others.
    """

    params: Params
    element: Element
    similarity: float
    converged: bool


class _Common(NamedTuple):
    element: Elements
    similarity: float
    converged: bool


def synchronise(
    spec: Spec,
    params: Params,
    *,
    num_starts: int | None = None,
    max_rounds: int = 100,
    max_sweeps: int = 100,
    max_bytes: int | None = None,
) -> Synchronised:
    """Align a few networks to one another, so that no one of them is the reference.

    It maximises the sum of products over all pairs of networks, moving one at a time to
    the sum of the others, so that (unlike in `align_to_mean`) none is held by itself.
    That is done once from the alignment to each network, and the best end is kept. It
    costs `starts * networks * rounds` alignments of one network.

    Args:
        spec: The networks' symmetries.
        params: Networks with any axes before those of the parameters.
        num_starts: How many networks to start from, the first ones; by default all.
        max_rounds: Where to give up; `converged` is then False.
        max_sweeps: Over all groups, for each network and round.
        max_bytes: Memory to work in, beyond three times the networks; by default 1 GiB,
            and 256 MiB on a CPU.

    Returns:
        The aligned networks.

    Raises:
        ValueError: If there are no two networks.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.eye(3), "out": jnp.ones((3, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> swap = lambda order: symmetry.permute(spec, [order], params)
        >>> networks = jax.vmap(swap)(jnp.array([[2, 0, 1], [1, 0, 2]]))
        >>> round(synchronise(spec, networks).similarity, 5)
        1.0
    """
    checks.at_least(1, num_starts=num_starts, max_rounds=max_rounds)
    prepared, leading = matcher.prepare(spec, params, max_sweeps, max_bytes)
    num_networks = stacks.count(prepared.stack)
    if num_networks < 2:
        raise ValueError(
            f"`params` must hold two networks or more, got leading axes {leading}. To "
            "align one network to another there is `rebasin`."
        )
    ends = [
        _from_one(prepared, number, max_rounds)
        for number in range(min(num_networks, num_starts or num_networks))
    ]
    best = max(ends, key=lambda end: end.similarity)
    element = moves.without_scales(best.element)
    moved, _ = stacks.act_all(spec, element, prepared.stack, prepared.at_once)
    moved, element = stacks.restore((moved, element), leading)
    return Synchronised(moved, element, best.similarity, best.converged)


def _from_one(prepared: Matcher, number: int, max_rounds: int) -> _Common:
    """Align all to one, then each to the sum of the others until none moves."""
    spec, stack = prepared.spec, prepared.stack
    reference = jax.tree.map(lambda leaf: leaf[number], stack)
    element = prepared.match(matcher.cut(spec, reference)).element
    num_networks = stacks.count(stack)
    (only,) = stacks.parts(np.arange(1), 1)
    (everything,) = stacks.parts(np.arange(num_networks), num_networks)
    boxes = prepared.moved(everything, element)
    moved, num_rounds = True, 0
    while moved and num_rounds < max_rounds:
        moved, num_rounds = False, num_rounds + 1
        for i in range(num_networks):
            one = jax.tree.map(lambda array, i=i: array[i : i + 1], prepared[1:3])
            old = jax.tree.map(lambda array, i=i: array[i : i + 1], element)
            alone = Matcher(spec, *one, at_once=1, max_sweeps=prepared.max_sweeps)
            new = alone.descend(_sum_of_others(boxes, i), alone.begin(old)).element
            if not moves.is_same(old, new):
                moved = True
                put = functools.partial(_put, i)
                element = jax.tree.map(put, element, new)
                boxes = _replace(boxes, alone.moved(only, new), i)
    return _Common(element, _mean_cosine(boxes), not moved)


def _put(i: int, array: np.ndarray, new: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[i] = new[0]
    return array


@jax.jit
def _replace(boxes: Boxes, new: Boxes, i: int | Int[Array, ""]) -> Boxes:
    return jax.tree.map(lambda box, one: box.at[i].set(one[0]), boxes, new)


@jax.jit
def _sum_of_others(boxes: Boxes, i: int | Int[Array, ""]) -> Boxes:
    return jax.tree.map(lambda box: box.sum(axis=0) - box[i], boxes)


def _mean_cosine(boxes: Boxes) -> float:
    products = np.asarray(_products(boxes))
    norms = np.sqrt(np.diag(products))
    lengths = np.outer(norms, norms)
    cosines = np.divide(products, lengths, np.zeros_like(products), where=lengths > 0)
    return float(cosines[~np.eye(len(cosines), dtype=bool)].mean())


@jax.jit
def _products(boxes: Boxes) -> Float[Array, "network network"]:
    flat = [box.reshape(len(box), -1) for box in boxes]
    with jax.default_matmul_precision("highest"):
        return functools.reduce(jnp.add, [one @ one.T for one in flat])
