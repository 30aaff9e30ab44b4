"""How far the weights of runs are apart, as drawn and with the symmetries removed."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from symjax import models, symmetry, trees
from symjax.cli import aligners
from symjax.cli.posteriors import Posterior
from symjax.cli.problem import Problem
from symjax.report import distances
from symjax.report.distances import Distance
from symjax.store import Run
from symjax.symmetry import Spec
from symjax.types import Params


_BLOCK_DRAWS = 32
_BLOCK_BYTES = 2**28


class Space(NamedTuple):
    """A form of the weights in which draws are compared.

    Attributes:
        transform: From weights as they were drawn; None for these themselves.
        draws: Of the reference, see `distances.sample`.
    """

    transform: Callable[[Params], Params] | None
    draws: Float[np.ndarray, "chain draw quantity"]


class Reference(NamedTuple):
    """The weights that those of methods are compared with.

    Attributes:
        network: Whose they are, see `network`.
        spaces: In which they are compared.
    """

    network: tuple[Any, ...]
    spaces: dict[str, Space]


def of_run(run: Run, built: Posterior) -> Reference:
    """The weights of a run as a reference."""
    beginning = aligners.start_of(run, built.shapes)
    return Reference(network_of(run), _spaces(run.lazy(built.shapes), built, beginning))


def of_draws(draws: Params, built: Posterior, network: tuple[Any, ...]) -> Reference:
    """Draws that are at hand, `(chain, draw)`, as a reference.

    Args:
        draws: The first of the first chain is what others are aligned to.
        built: Their posterior.
        network: Whose they are, see `network`.
    """
    beginning = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), draws)
    return Reference(network, _spaces(draws, built, beginning))


def _spaces(draws: Params, built: Posterior, beginning: Params) -> dict[str, Space]:
    """The forms of the reference's weights: as drawn, aligned, canonical.

    Those that the symmetries of the network allow. Aligned are all draws, also those of
    methods, to one network of the reference, by their weights. A canonical form takes
    no network to be near to; where the network has scalings these are removed with it,
    which are no symmetries of the prior, so that it is a summary, not a draw.

    Args:
        draws: Of the reference.
        built: Its posterior.
        beginning: The network to align to.
    """
    spec = symmetry.infer(built.apply, built.shapes, built.dataset.train.x[:2])
    transforms: dict[str, Callable[[Params], Params] | None] = {"weight": None}
    if spec.permutations:
        aligner = aligners.by_weights(spec, beginning)
        transforms["aligned"] = _in_blocks(lambda draws: aligner(draws)[0])
    if any(True for _ in spec):
        transforms["canonical"] = _in_blocks(_canonicaliser(spec))
    return {
        name: Space(transform, distances.sample(draws, transform))
        for name, transform in transforms.items()
    }


def compare(run: Run, built: Posterior, to: dict[str, Space]) -> dict[str, Distance]:
    """How far the weights of a run are from the reference's, in each space.

    Args:
        run: Of the reference's network.
        built: Its posterior.
        to: The spaces.
    """
    draws = run.lazy(built.shapes)
    found = {
        name: distances.compare(distances.sample(draws, space.transform), space.draws)
        for name, space in to.items()
    }
    return {name: one for name, one in found.items() if one is not None}


def network_of(run: Run) -> tuple[Any, ...]:
    """Whose weights those of a run are."""
    problem = run.config.get("options", {}).get("problem", {})
    return network(problem, run.leaves)


def network(problem: Mapping[str, Any], shapes: Params) -> tuple[Any, ...]:
    """What two networks must have in common for their weights to be compared.

    Args:
        problem: The options of the posterior.
        shapes: Of the weights, as a pytree or by path.
    """
    known = said_or_usual(problem)
    names = [known.get(key) for key in ("model", "widths", "activation", "pixels")]
    by_path = dict(zip(trees.paths(shapes), trees.shapes(shapes), strict=True))
    return (*names, by_path)


def said_or_usual(problem: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a posterior, the usual ones where none were given."""
    usual = {"pixels": Problem.pixels, **models.defaults(problem.get("model", ""))}
    filled = {k: v for k, v in usual.items() if problem.get(k) is None}
    found = {**problem, **filled}
    if found.get("widths") is not None:
        found["widths"] = tuple(found["widths"])
    return found


def _canonicaliser(spec: Spec) -> Callable[[Params], Params]:
    def canonical(params: Params) -> Params:
        return symmetry.canonicalise(spec, params).params

    return jax.jit(jax.vmap(jax.vmap(canonical)))


def _in_blocks(function: Callable[[Params], Params]) -> Callable[[Params], Params]:
    """Apply it to a few draws at a time, always as many, so that it compiles once."""

    def transform(draws: Params) -> Params:
        first = jax.tree.leaves(draws)[0]
        total = first.shape[0] * first.shape[1]
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws)):
            return jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), draws)
        joined = jax.tree.map(
            lambda leaf: leaf.reshape(1, total, *leaf.shape[2:]), draws
        )
        size = _BLOCK_BYTES // (trees.num_bytes(draws) // total)
        size = max(1, min(_BLOCK_DRAWS, size))
        parts = []
        for start in range(0, total, size):
            rows = np.minimum(np.arange(start, start + size), total - 1)
            block = jax.tree.map(lambda leaf, rows=rows: leaf[:, rows], joined)
            parts.append(jax.device_get(function(block)))
        moved = jax.tree.map(lambda *ls: np.concatenate(ls, axis=1)[:, :total], *parts)
        return jax.tree.map(lambda leaf, old: leaf.reshape(old.shape), moved, draws)

    return transform
