"""One representative of all parameters that symmetries make equivalent.

Scales first: the smallest parameters (`balancing`), from a start that is the same for
all equivalent ones (`levelling`). Then signs and the order of units (`arrangement`),
which do not depend on those that they replace.

Scalings are symmetries of the function and of the likelihood, not of a Gaussian prior
and so not of the posterior (permutations and signs are of both). Where the network has
scalings, canonical forms of draws are summaries of functions, not draws from the
posterior.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from symjax import checks, trees
from symjax.symmetry.actions import Element, act, rescale
from symjax.symmetry.canonical.arrangement import arrange
from symjax.symmetry.canonical.balancing import balance, everything
from symjax.symmetry.canonical.levelling import level
from symjax.symmetry.spec import Spec
from symjax.types import Params


class Canonical(NamedTuple):
    """The representative, and how to reach it.

    Attributes:
        params: The same for all equivalent parameters, up to rounding.
        element: `act(spec, element, params)` makes it.
        converged: Whether the scales stopped moving.
    """

    params: Params
    element: Element
    converged: Bool[Array, ""]


def canonicalise(spec: Spec, params: Params, *, max_sweeps: int = 1000) -> Canonical:
    """Map equivalent parameters to one representative.

    It has the smallest squared norm that the scales allow. Where there is none (dead
    units, or scales that a normalisation takes out), the logs of the absolute values of
    the weights are as near to 0 as can be. Signs and order come from generic sums over
    the weights of a unit, and mean nothing in themselves.

    Runs under `jit` and `vmap`. Costs the sweeps of `minimum_norm` down to rounding,
    where there are scalings, and some ten reads of the parameters; more where units are
    copies of others, each of which is set apart on its own.

    The order jumps where two units swap places, which rounding can bring about. Without
    scalings the form is exact in any precision. With them, 3 of 40 ReLU networks with
    three layers of 512 units had two units swapped in float32, and none of 200 with 128
    units; float64 makes it rare.

    Args:
        spec: The network's symmetries.
        params: One setting; `jax.vmap` over draws.
        max_sweeps: Where to give up on the scales; `converged` is then False.

    Returns:
        The representative. Rescaled draws are summaries, not draws from the posterior.

    Raises:
        TypeError: If parameters are complex.

    Example:
        >>> from symjax import symmetry
        >>> params = {"in": jnp.array([[2.0, -1.0]]), "out": jnp.array([[3.0], [1.0]])}
        >>> apply = lambda params, x: jnp.tanh(x @ params["in"]) @ params["out"]
        >>> spec = symmetry.infer(apply, params, jnp.ones((5, 1)))
        >>> copy = {"in": jnp.array([[1.0, 2.0]]), "out": jnp.array([[-1.0], [3.0]])}
        >>> one, other = (canonicalise(spec, each).params for each in (params, copy))
        >>> all(bool((one[name] == other[name]).all()) for name in one)
        True
    """
    spec.check(params)
    checks.at_least(1, max_sweeps=max_sweeps)
    for path, leaf in zip(trees.paths(params), jax.tree.leaves(params), strict=True):
        if jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating):
            raise TypeError(
                f"`params` must be real to have a canonical form, got "
                f"{jnp.result_type(leaf)} at `{path}`. `minimum_norm` takes complex "
                "numbers."
            )
    return _canonicalise(spec, params, max_sweeps)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _canonicalise(spec: Spec, params: Params, max_sweeps: int) -> Canonical:
    levels = tuple(jnp.exp(logs) for logs in level(spec, params))
    eps = jnp.finfo(jnp.result_type(jnp.float32, *levels)).eps
    found = balance(
        spec,
        rescale(spec, levels, params),
        include=everything,
        tolerance=8 * float(eps),
        max_sweeps=max_sweeps,
    )
    balances = tuple(jnp.exp(logs) for logs in found.log_scales)
    scales = jax.tree.map(jnp.multiply, levels, balances)
    leaves = jax.tree.leaves(rescale(spec, scales, params))
    permutations, signs = arrange(
        spec, dict(zip(trees.paths(params), leaves, strict=True))
    )
    signs = tuple(sign.astype(jnp.int8) for sign in signs)
    element = Element(permutations, scales, signs)
    return Canonical(act(spec, element, params), element, found.converged)
