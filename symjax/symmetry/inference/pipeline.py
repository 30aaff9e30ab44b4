"""Find the symmetry groups of a network from its jaxpr.

Method: walk the jaxpr once, unify the axes that each operation ties, and pin those that
it distinguishes. A unit kind that is not pinned is a group of permutations; what the
constraints on exponents leave free are groups of scalings and of signs. Every rule errs
on the safe side, so that a group that is reported leaves the function unchanged, while
one may be missed; what was given up is listed in `Spec.pins`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from symjax import trees
from symjax.symmetry.inference.assembly import assemble
from symjax.symmetry.inference.rules import RULES
from symjax.symmetry.inference.unification import Cause, pin
from symjax.symmetry.inference.walk import NOTHING, Relation, Value, Walk
from symjax.symmetry.spec import Spec
from symjax.types import Params


def infer(
    apply: Callable[[Params, Any], Any], params: Params, x: Any, *, strict: bool = False
) -> Spec:
    """The permutations, scalings and signs of parameters that change no output.

    The cost is one trace of `apply` and a walk that is linear in its equations;
    nothing is computed. No names of parameters are looked at.

    Args:
        apply: `apply(params, x) -> outputs`, any JAX function over any pytrees.
        params: Parameters, or their `jax.ShapeDtypeStruct`s. Everything in it may be
            moved, so that state which belongs to units (the running statistics of batch
            normalisation) has to be part of it.
        x: An input (arrays or `ShapeDtypeStruct`s); the groups do not depend on its
            values.
        strict: Refuse a network with an operation that symjax has no rule for, instead
            of pinning what it touches.

    Returns:
        The groups. `print` it to read them.

    Raises:
        ValueError: if `apply(params, x)` can't be traced.
        NotImplementedError: if `strict`, naming the first operation without a rule.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from symjax import symmetry
        >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((8, 2))}
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 3)))
        >>> [group.size for group in spec.permutations], spec.num_signs
        ([8], 8)
    """
    try:
        closed = jax.make_jaxpr(apply)(params, x)
    except Exception as error:
        raise ValueError(
            f"`apply(params, x)` could not be traced: {type(error).__name__}: {error}\n"
            f"`params` has the leaves {_describe(params)}; `x` has {_describe(x)}. "
            f"`apply` must take exactly these two and return arrays."
        ) from error
    walk = Walk(RULES)
    leaves = [walk.fresh(shape) for shape in trees.shapes(params)]
    for leaf in leaves:
        leaf.depends = True
    inputs = [walk.fresh(shape) for shape in trees.shapes(x)]
    _fix(
        walk, inputs, Cause("input", "", "its order is that of the data", natural=True)
    )
    outputs = walk.run(closed.jaxpr, closed.consts, [*leaves, *inputs])
    _fix(walk, outputs, Cause("output", "", "outputs have an order", natural=True))
    _forbid_scales(walk, leaves, params)
    read = {id(v) for relation in walk.relations for v in relation.operands}
    unread = [leaf for leaf in leaves if id(leaf) not in read]
    _fix(walk, unread, Cause("input", "", "the function does not use it"))
    if strict and walk.unknown:
        first = walk.unknown[0]
        raise NotImplementedError(
            f"symjax has no rule for the primitive `{first.primitive}` at "
            f"{first.source}. With `strict=False` what it touches is pinned, and "
            f"`Spec.pins` says so."
        )
    names = list(zip(trees.paths(params), trees.shapes(params), strict=True))
    return assemble(names, leaves, walk.relations)


def _fix(walk: Walk, values: Sequence[Value], cause: Cause) -> None:
    """Nothing about these values may change."""
    for value in values:
        for node in value.axes:
            pin(node, cause)
        walk.relations.append(Relation(value, (), (), NOTHING, NOTHING))


def _forbid_scales(walk: Walk, leaves: Sequence[Value], params: Params) -> None:
    """Integers, keys and flags among the parameters can move but not be scaled."""
    for value, leaf in zip(leaves, jax.tree.leaves(params), strict=True):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            walk.relations.append(Relation(value, (), (), NOTHING, NOTHING))


def _describe(tree: Any) -> str:
    shapes = zip(trees.paths(tree), trees.shapes(tree), strict=True)
    return ", ".join(f"{path or '(array)'} {shape}" for path, shape in shapes)
