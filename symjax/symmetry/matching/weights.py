"""Match networks by their weights.

References:
    Ainsworth, Hayase, Srinivasa (2023), Git Re-Basin: merging models modulo permutation
    symmetries, section 3.2, for coordinate descent.
"""

from symjax.symmetry.actions import Element
from symjax.symmetry.matching import matcher, moves, stacks
from symjax.symmetry.spec import Spec
from symjax.types import Key, Params


def match_weights(
    spec: Spec,
    params: Params,
    reference: Params,
    *,
    num_random_starts: int = 0,
    key: Key | None = None,
    max_sweeps: int = 100,
    max_bytes: int | None = None,
) -> Element:
    """The permutations and signs after which weights are nearest to a reference.

    They minimise the squared distance between `reference` and `act(spec, element,
    params)`, both at the scales of smallest norm where the network has scalings. It is
    a local minimum, the best of several starts; the global one if a single assignment
    is all there is, as with one hidden layer.

    Args:
        spec: The networks' symmetries.
        params: One network, or draws with any axes before those of the parameters.
        reference: One network, which all are matched to.
        num_random_starts: Starts beyond the two that are always tried.
        key: PRNG key of the random starts; without them nothing is random.
        max_sweeps: Over all groups, from each start.
        max_bytes: Memory to work in, which decides how many draws are matched together;
            by default 1 GiB, and 256 MiB on a CPU, which reads small blocks faster.

    Returns:
        The element, with the leading axes of `params`. Its scales are 1: scaling is no
        symmetry of a posterior.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from symjax import symmetry
        >>> params = {"in": jnp.eye(3), "out": jnp.ones((3, 1))}
        >>> apply = lambda params, x: jax.nn.relu(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> moved = symmetry.permute(spec, [jnp.array([2, 0, 1])], params)
        >>> element = match_weights(spec, moved, params)
        >>> symmetry.act(spec, element, moved)["in"].tolist() == jnp.eye(3).tolist()
        True
    """
    keys = matcher.split_key(key, num_random_starts)
    prepared, leading = matcher.prepare(spec, params, max_sweeps, max_bytes)
    found = prepared.match(matcher.cut(spec, reference), keys)
    return stacks.restore(moves.without_scales(found.element), leading)
