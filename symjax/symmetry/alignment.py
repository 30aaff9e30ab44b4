"""Bring draws to one copy among those that symmetries make equivalent: re-basin.

Permutations and signs are symmetries of a posterior whose prior treats units alike and
is even. Of each draw one of many equal copies is chosen, as near to the reference as
can be. Distances between draws, and with them R-hat of the weights, are smaller
afterwards by construction; functions are the same.

References:
    Ainsworth, Hayase, Srinivasa (2023), Git Re-Basin: merging models modulo permutation
    symmetries, section 3.2 and, for the mean of many, appendix A.10.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from symjax import checks
from symjax.symmetry.actions import Element
from symjax.symmetry.matching import matcher, moves, stacks
from symjax.symmetry.matching.gains import Boxes
from symjax.symmetry.matching.matcher import Matcher
from symjax.symmetry.matching.moves import Elements
from symjax.symmetry.spec import Spec
from symjax.types import Key, Params


class Aligned(NamedTuple):
    """Aligned draws, and how they came there; arrays have the leading axes of draws.

    Attributes:
        params: The draws, permuted and flipped but not scaled.
        element: `act(spec, element, params)` made each.
        distance_before: Euclidean, over all weights, to the reference.
        distance_after: And after the alignment.
        num_sweeps: Over all groups, until nothing changed.
        converged: Whether nothing changed in the end.
    """

    params: Params
    element: Element
    distance_before: Float[Array, "..."]
    distance_after: Float[Array, "..."]
    num_sweeps: Int[np.ndarray, "..."]
    converged: Bool[np.ndarray, "..."]


class AlignedToMean(NamedTuple):
    """Draws that are aligned to their own mean.

    Attributes:
        params: The draws, permuted and flipped but not scaled.
        element: `act(spec, element, params)` made each.
        spread: Before each round, the root mean squared distance of draws from their
            mean, over the weights that symmetries move, at the scales of smallest norm.
        converged: Whether the last round changed no draw.
    """

    params: Params
    element: Element
    spread: Float[np.ndarray, " round"]
    converged: bool


def rebasin(
    spec: Spec,
    params: Params,
    reference: Params,
    *,
    num_random_starts: int = 0,
    key: Key | None = None,
    max_sweeps: int = 100,
    max_bytes: int | None = None,
) -> Aligned:
    """Move each network or draw next to a reference, by permutations and signs.

    `match_weights` says how. A sweep costs, for each group and draw, one product of
    matrices of units by weights and one assignment; the draws of a part share the call
    to the solver, and those that no longer change are left out.

    Args:
        spec: The networks' symmetries.
        params: One network, or draws with any axes before those of the parameters, such
            as `(chain, draw)`. Arrays of NumPy stay on the host.
        reference: One network. For diagnostics of convergence fix it beforehand, to a
            draw of the warm-up for example.
        num_random_starts: Starts beyond the two that are always tried.
        key: PRNG key of the random starts.
        max_sweeps: Over all groups, from each start.
        max_bytes: Memory to work in, beyond the draws and the result; by default 1 GiB,
            and 256 MiB on a CPU, which reads small blocks faster.

    Returns:
        The aligned draws and what was done.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.eye(3), "out": jnp.ones((3, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> moved = symmetry.permute(spec, [jnp.array([1, 0, 2])], params)
        >>> aligned = rebasin(spec, moved, params)
        >>> float(aligned.distance_before), float(aligned.distance_after)
        (2.0, 0.0)
    """
    keys = matcher.split_key(key, num_random_starts)
    prepared, leading = matcher.prepare(spec, params, max_sweeps, max_bytes)
    found = prepared.match(matcher.cut(spec, reference), keys)
    element = moves.without_scales(found.element)
    moved, (before, after) = stacks.act_all(
        spec, element, prepared.stack, prepared.at_once, reference
    )
    aligned = Aligned(moved, element, before, after, found.num_sweeps, found.converged)
    return stacks.restore(aligned, leading)


def align_to_mean(
    spec: Spec,
    params: Params,
    *,
    start: Params | None = None,
    max_rounds: int = 100,
    max_sweeps: int = 100,
    max_bytes: int | None = None,
) -> AlignedToMean:
    """Align draws to their mean, which moves as they do, until none changes.

    No round adds to the spread of the draws. What it ends in depends on the start, but
    less than an alignment to one draw depends on that draw.

    Args:
        spec: The networks' symmetries.
        params: Draws with any axes before those of the parameters.
        start: The network that all are aligned to at first; by default the first draw.
        max_rounds: Where to give up; `converged` is then False.
        max_sweeps: Over all groups, in each round.
        max_bytes: Memory to work in, beyond the draws and the result; by default 1 GiB,
            and 256 MiB on a CPU, which reads small blocks faster.

    Returns:
        The aligned draws.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.eye(3), "out": jnp.ones((3, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> swap = lambda order: symmetry.permute(spec, [order], params)
        >>> draws = jax.vmap(swap)(jnp.array([[2, 0, 1], [1, 0, 2]]))
        >>> align_to_mean(spec, draws).spread.tolist()
        [0.0]
    """
    checks.at_least(1, max_rounds=max_rounds)
    prepared, leading = matcher.prepare(spec, params, max_sweeps, max_bytes)
    if start is None:
        start = jax.tree.map(lambda leaf: leaf[0], prepared.stack)
    element = prepared.match(matcher.cut(spec, start)).element
    spread, converged = [], False
    while not converged and len(spread) < max_rounds:
        mean = _mean(prepared, element)
        spread.append(_spread(prepared, element, mean))
        old, element = element, prepared.descend(mean, prepared.begin(element)).element
        converged = moves.is_same(old, element)
    element = moves.without_scales(element)
    moved, _ = stacks.act_all(spec, element, prepared.stack, prepared.at_once)
    moved, element = stacks.restore((moved, element), leading)
    return AlignedToMean(moved, element, np.array(spread), converged)


def _mean(prepared: Matcher, element: Elements) -> Boxes:
    """The mean of all draws' boxes."""
    total = None
    for part in stacks.every_part(prepared.stack, prepared.at_once):
        boxes = prepared.moved(part, element)
        one = [box[: len(part.real)].sum(axis=0) for box in boxes]
        total = one if total is None else list(map(jnp.add, total, one))
    assert total is not None
    return tuple(box / stacks.count(prepared.stack) for box in total)


def _spread(prepared: Matcher, element: Elements, mean: Boxes) -> float:
    """Root mean squared distance from the mean."""
    squares = 0.0
    for part in stacks.every_part(prepared.stack, prepared.at_once):
        boxes = prepared.moved(part, element)
        for box, centre in zip(boxes, mean, strict=True):
            squares += float(jnp.sum(jnp.square(box[: len(part.real)] - centre)))
    return (squares / stacks.count(prepared.stack)) ** 0.5
