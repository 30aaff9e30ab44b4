"""`symjax symmetries`: the groups of a built-in network, or of one in a user's file."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from symjax import symmetry
from symjax.cli import networks
from symjax.cli.analyses import Symmetries
from symjax.cli.networks import Network
from symjax.symmetry.invariance import narrowest_dtype


def show(options: Symmetries, console: Console) -> None:
    """Print the groups, and whether random elements of them leave the outputs alone.

    Raises:
        ValueError: if `--seed` is none.
    """
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"`--seed` must be from 0 to 2^32 - 1, got {options.seed}.")
    apply, params, x = networks.build(options)
    start = time.perf_counter()
    spec = symmetry.infer(apply, params, x, strict=options.strict)
    seconds = time.perf_counter() - start
    console.print(str(spec), highlight=False, markup=False, soft_wrap=True)
    console.print(f"inferred in {seconds:.2f} s", style="dim")
    if options.check and not list(spec):
        console.print("There is nothing to check, as no group was found.")
    elif options.check:
        _check((apply, params, x), spec, options.seed, console)


def _check(network: Network, spec: symmetry.Spec, seed: int, console: Console) -> None:
    """Try random elements and print the largest change of each kind.

    Raises:
        ValueError: if parameters or inputs have no values.
        RuntimeError: if a group changes the outputs, or they are not finite.
    """
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(network)):
        raise ValueError(
            "`--check` needs numbers, but params or x hold a jax.ShapeDtypeStruct."
        )
    with console.status("trying random elements"):
        found, dtype = _try(network, spec, seed)
    if np.isnan(found.per_group).all():
        raise RuntimeError(
            "`--check` can't compare outputs that are not finite. It draws parameters "
            "near those of the network, none of them zero."
        )
    console.print(_table(spec, found))
    still = [
        _name(group)
        for group, moved in zip(spec, found.moved, strict=True)
        if moved == 0
    ]
    if still:
        console.print(
            f"Not tried, as what it moves are equal numbers: {', '.join(still)}.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    _require_unchanged(spec, found, dtype)
    inside = "" if dtype == np.float64 else ", the narrowest type in the network"
    console.print(
        f"All together change no output by more than {found.largest:.1e} of its "
        f"largest value, in {dtype}{inside}.",
        highlight=False,
        soft_wrap=True,
    )


def _require_unchanged(
    spec: symmetry.Spec, found: symmetry.Invariance, dtype: np.dtype
) -> None:
    """Require that nothing but rounding changed the outputs.

    Raises:
        RuntimeError: naming the group that changed them most.
    """
    # Half of the digits: rounding grows with depth, and a wrong group changes all.
    tolerance = float(jnp.finfo(dtype).eps) ** 0.5
    if not found.largest < tolerance:
        worst = list(spec)[int(np.argmax(found.per_group))]
        raise RuntimeError(
            f"The {_name(worst)}, or all groups together, change an output by "
            f"{found.largest:.1e} of its largest value, where rounding in {dtype} "
            f"explains {tolerance:.0e}. This is a defect of symjax: please report it "
            f"with the network."
        )


def _try(
    network: Network, spec: symmetry.Spec, seed: int
) -> tuple[symmetry.Invariance, np.dtype]:
    """The changes, and the narrowest type in the network as it was run."""
    apply, *given = network
    generator = np.random.default_rng(seed)
    params, x = jax.tree.map(_wide, given)
    params = jax.tree.map(lambda leaf: _generic(leaf, generator), params)
    with jax.enable_x64(True):
        runs_wide = _runs(apply, params, x)
    if not runs_wide:
        params, x = jax.tree.map(_as_given, [params, x], given)
    with jax.enable_x64(runs_wide), jax.default_matmul_precision("highest"):
        key = jax.random.key(seed)
        found = symmetry.check_invariance(apply, spec, params, x, key)
        return jax.tree.map(np.asarray, found), narrowest_dtype(apply, params, x)


def _runs(apply: Callable[[Any, Any], Any], params: Any, x: Any) -> bool:
    """Whether it takes these types: a loop that starts from float32 ends in it."""
    try:
        jax.eval_shape(apply, params, x)
    except Exception:
        return False
    return True


def _wide(leaf: Any) -> Any:
    """In float64, or complex128; as it is if it is a key, an integer or a flag."""
    dtype = jnp.result_type(leaf)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return leaf
    return np.asarray(leaf, np.result_type(dtype, np.float64))


def _generic(leaf: Any, generator: np.random.Generator) -> Any:
    """Numbers near a parameter but none of them zero, positive where it is."""
    if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
        return leaf
    noise = generator.normal(size=(2, *leaf.shape))
    return leaf * np.exp(0.3 * noise[0]) + 0.05 * abs(noise[1])


def _as_given(leaf: Any, given: Any) -> Any:
    """In the type that it had."""
    return leaf if leaf is given else np.asarray(leaf, jnp.result_type(given))


def _name(group: symmetry.Group) -> str:
    """Such as `permutation of Dense_0/bias`."""
    return f"{group.kind} of {group.axes[0].path or 'params'}"


def _table(spec: symmetry.Spec, found: symmetry.Invariance) -> Table:
    """The changes of each kind."""
    table = Table("groups", "number", "outputs change at most", "parameters at least")
    kinds = np.array([group.kind for group in spec])
    for kind in dict.fromkeys(kinds):
        here = kinds == kind
        table.add_row(
            f"{kind}s",
            f"{here.sum()}",
            f"{found.per_group[here].max():.1e}",
            f"{found.moved[here].min():.1e}",
        )
    return table
