"""Networks stacked along the first axis of every leaf, handled a part at a time."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from symjax import trees
from symjax.symmetry.actions import Element, act
from symjax.symmetry.spec import Spec
from symjax.types import Params


S = TypeVar("S")
T = TypeVar("T")


class Part(NamedTuple):
    """Some networks, always as many, so that programs are compiled once.

    Attributes:
        networks: Which; the last is repeated to fill up.
        is_real: False for the repeats.
    """

    networks: Int[np.ndarray, " place"]
    is_real: Bool[np.ndarray, " place"]

    @property
    def real(self) -> Int[np.ndarray, " network"]:
        """The networks without repeats."""
        return self.networks[self.is_real]


def parts(networks: Int[np.ndarray, " network"], at_once: int) -> Iterator[Part]:
    """Divide networks into parts."""
    places = np.arange(at_once)
    for start in range(0, len(networks), at_once):
        number = start + places
        is_real = number < len(networks)
        yield Part(networks[np.minimum(number, len(networks) - 1)], is_real)


def pick(stack: Any, part: Part) -> Any:
    """The networks of a part, of parameters or elements; arrays of NumPy stay such."""
    leaves, structure = jax.tree.flatten(stack)
    on_device = [leaf for leaf in leaves if not isinstance(leaf, np.ndarray)]
    # In one program: to compile each gather on its own takes far longer.
    taken = iter(_take(on_device, part.networks) if on_device else [])
    rows = _rows(part.networks)
    picked = [
        leaf[rows] if isinstance(leaf, np.ndarray) else next(taken) for leaf in leaves
    ]
    return jax.tree.unflatten(structure, picked)


def write(part: Part, kept: np.ndarray, new: Array | np.ndarray) -> None:
    """Keep what was found for a part, without the repeats."""
    kept[_rows(part.real)] = np.asarray(new)[: len(part.real)]


def _rows(networks: Int[np.ndarray, " place"]) -> slice | Int[np.ndarray, " place"]:
    """An index that copies nothing, if these follow one another."""
    if np.all(np.diff(networks) == 1):
        return slice(int(networks[0]), int(networks[-1]) + 1)
    return networks


@jax.jit
def _take(leaves: list[Array], networks: Int[Array, " place"]) -> list[Array]:
    return [jnp.take(leaf, networks, axis=0) for leaf in leaves]


def count(stack: Any) -> int:
    """How many networks lie along the first axis."""
    return len(jax.tree.leaves(stack)[0])


def part_size(num_networks: int, at_once: int) -> int:
    """Places of a part: a power of two where one holds all networks.

    Runs with other numbers of draws then share their compiled programs, which small
    networks take longer to compile than to match.
    """
    return min(at_once, 1 << (num_networks - 1).bit_length())


def every_part(stack: Any, at_once: int) -> Iterator[Part]:
    """Divide all networks into parts of at most so many."""
    num_networks = count(stack)
    return parts(np.arange(num_networks), part_size(num_networks, at_once))


def each(parts: Iterable[Part], work: Callable[[Part], T]) -> list[tuple[Part, T]]:
    """Do the work of each part, two parts at a time.

    The host works on one, copying or assigning, while the device works on another.
    """
    parts = list(parts)
    return list(zip(parts, in_threads(work, parts), strict=True))


def in_threads(work: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Work on two items at a time."""
    if len(items) < 2:
        return list(map(work, items))
    # What is set for a thread, as by `with jax.enable_x64(True)`, others don't see.
    settings: Any = jax.config
    x64 = settings.jax_enable_x64
    precision = settings.jax_default_matmul_precision
    device = settings.jax_default_device

    def as_here(item: S) -> T:
        with (
            jax.enable_x64(x64),
            jax.default_matmul_precision(precision),
            jax.default_device(device),
        ):
            return work(item)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(as_here, items))


def join(found: Sequence[tuple[Part, Any]]) -> Any:
    """What was found for parts in turn, without the repeats."""
    real = [
        jax.tree.map(lambda leaf, part=part: leaf[: len(part.real)], one)
        for part, one in found
    ]
    return jax.tree.map(
        lambda *leaves: (
            np.concatenate(leaves)
            if isinstance(leaves[0], np.ndarray)
            else jnp.concatenate(leaves)
        ),
        *real,
    )


def flatten(spec: Spec, params: Params) -> tuple[Params, tuple[int, ...]]:
    """Networks along one axis, and the leading axes that they had.

    Raises:
        ValueError: If leaves don't have the same leading axes, or there is no network.
        TypeError: If the networks are traced.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(params)):
        raise TypeError(
            "`params` must be arrays, got some that are traced by `jax.jit` or another "
            "transformation: the assignments are solved on the host. Match outside of "
            "it, and move networks inside by `symmetry.act`."
        )
    shapes = dict(spec.shapes)
    named = list(zip(trees.paths(params), trees.shapes(params), strict=True))
    spare = [len(shape) - len(shapes[path]) for path, shape in named if path in shapes]
    num = max(0, min(spare, default=0))
    leading = named[0][1][:num] if named else ()
    for path, shape in named:
        if shape[:num] != leading:
            raise ValueError(
                f"`params` must have the same leading axes in all leaves, got "
                f"{leading} in `{named[0][0]}` and {shape[:num]} in `{path}`."
            )
    one = [jax.ShapeDtypeStruct(shape[num:], jnp.float32) for _, shape in named]
    spec.check(jax.tree.unflatten(jax.tree.structure(params), one))
    if math.prod(leading) == 0:
        raise ValueError(f"`params` must hold a network, got leading axes {leading}.")

    def flat(leaf: Any) -> Array | np.ndarray:
        numbers = np if isinstance(leaf, np.ndarray) else jnp
        return numbers.reshape(leaf, (-1, *np.shape(leaf)[num:]))

    return jax.tree.map(flat, params), leading


def restore(stack: Any, leading: tuple[int, ...]) -> Any:
    """Networks along the axes that they had before `flatten`."""
    return jax.tree.map(lambda leaf: leaf.reshape((*leading, *leaf.shape[1:])), stack)


def require_finite(
    name: str, stack: Params, leading: tuple[int, ...], at_once: int
) -> None:
    """Require finite numbers in an argument.

    Raises:
        ValueError: If a network is not finite, saying which, by its leading axes.
    """
    for part in every_part(stack, at_once):
        leaves = jax.tree.leaves(pick(stack, part))
        finite = np.stack([np.asarray(one) for one in _is_finite(leaves)], axis=1)
        if not finite.all():
            place, leaf = np.argwhere(~finite)[0]
            which = _name(leading, int(part.networks[place]))
            raise ValueError(
                f"`{name}` must be finite, but {which}`{trees.paths(stack)[leaf]}` is "
                f"not. Leave this network out."
            )


def _name(leading: tuple[int, ...], network: int) -> str:
    """Such as `chain 0, draw 17: `; nothing if there is but one network."""
    if not leading:
        return ""
    axes = {1: ["draw"], 2: ["chain", "draw"]}.get(
        len(leading), [f"axis {i}" for i in range(len(leading))]
    )
    index = np.unravel_index(network, leading)
    return ", ".join(f"{a} {int(i)}" for a, i in zip(axes, index, strict=True)) + ": "


def _is_finite(
    leaves: Sequence[Array | np.ndarray],
) -> Sequence[Bool[Array | np.ndarray, " network"]]:
    """For each leaf, which networks are finite there."""
    if isinstance(leaves[0], np.ndarray):
        return [
            np.all(np.isfinite(leaf).reshape(len(leaf), -1), axis=1) for leaf in leaves
        ]
    return _is_finite_on_device(leaves)


@jax.jit
def _is_finite_on_device(leaves: Sequence[Array]) -> list[Bool[Array, " network"]]:
    return [jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]


def act_all(
    spec: Spec,
    element: Element,
    stack: Params,
    at_once: int,
    reference: Params | None = None,
) -> tuple[Params, tuple[Float[Array, " network"], ...]]:
    """Move all networks by their elements, and measure how far they are.

    Returns:
        The networks, on the host if they were arrays of NumPy; and if there is a
        reference, their Euclidean distances to it, before and after.
    """
    on_host = all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(stack))
    element = jax.tree.map(np.asarray, element)
    result = jax.tree.map(_empty_like, stack) if on_host else None

    def move(part: Part) -> tuple[Params | None, tuple[Float[Array, " network"], ...]]:
        own, params = pick((element, stack), part)
        moved = jax.vmap(functools.partial(act, spec))(own, params)
        distances = () if reference is None else _distances(params, moved, reference)
        if not on_host:
            return moved, distances
        jax.tree.map(functools.partial(write, part), result, moved)
        return None, distances

    moved, distances = join(each(every_part(stack, at_once), move))
    return (result if on_host else moved), distances


def _empty_like(leaf: np.ndarray) -> np.ndarray:
    """Of the dtype that JAX computes in."""
    return np.empty(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


@jax.jit
def _distances(
    before: Params, after: Params, reference: Params
) -> tuple[Float[Array, " network"], ...]:
    distances = jax.vmap(trees.distance, (0, None))
    return distances(before, reference), distances(after, reference)
