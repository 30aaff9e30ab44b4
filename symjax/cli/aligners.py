"""How the draws of a run are aligned: by what, and to which network."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from symjax import symmetry, trees
from symjax.cli.posteriors import Posterior
from symjax.store import Run
from symjax.symmetry import Element, Spec
from symjax.types import Params


MAX_DRAWS = 32
"""Draws of each chain between two commits."""

MAX_BYTES = 2**28
"""The same, in memory, of all chains."""

MAX_EXAMPLES = 2048
"""Training examples whose activations are compared."""


@dataclass(frozen=True)
class Aligner:
    """How draws are aligned, and to what.

    Attributes:
        spec: The network's symmetries.
        reference: The network that draws are brought next to.
        match: `draws -> element`, for any leading axes.
    """

    spec: Spec
    reference: Params
    match: Callable[[Params], Element]

    def __call__(self, draws: Params) -> tuple[Params, dict[str, np.ndarray]]:
        """Align draws `(chain, draw, ...)`; what was done to each, `(chain, draw)`."""
        element = self.match(draws)
        act = partial(symmetry.act, self.spec)
        aligned = jax.device_get(jax.vmap(jax.vmap(act))(element, draws))
        count = jax.vmap(jax.vmap(symmetry.total_transpositions))
        flips = sum(
            np.sum(np.asarray(signs) < 0, axis=tuple(range(2, np.ndim(signs))))
            for signs in element.signs
        )
        done = {
            "distance_before": _distances(draws, self.reference),
            "distance_after": _distances(aligned, self.reference),
            "transpositions": np.asarray(count(element), np.int32),
            "flips": np.broadcast_to(flips, _leading(draws)).astype(np.int32),
        }
        return aligned, done


class NoPermutationsError(ValueError):
    """The network has no group of permutations, so that there is nothing to align."""


def build(source: Run, built: Posterior, reference: Run, method: str) -> Aligner:
    """How the draws of a run are aligned.

    Args:
        source: The run.
        built: Its posterior.
        reference: The run whose first chain gives the reference: where it was at the
            end of its warm-up, or its first draw if it had none.
        method: weights, activations or straight-through.

    Raises:
        NoPermutationsError: If the network has no permutations.
    """
    like = built.shapes
    train = built.dataset.train
    spec = symmetry.infer(built.apply, like, train.x[:2])
    if not spec.permutations:
        raise NoPermutationsError(
            f"{source.path} is of a network whose units can't be permuted: there is "
            "nothing to align. `symjax symmetries` says why."
        )
    network = start_of(reference, like)
    if method == "activations":
        x = train.x[:MAX_EXAMPLES]
        match = partial(
            symmetry.match_activations, built.apply, spec, reference=network, x=x
        )
    elif method == "straight-through":
        match = partial(_match_by_loss, built, spec, network)
    else:
        return by_weights(spec, network)
    return Aligner(spec, network, match)


def by_weights(spec: Spec, network: Params) -> Aligner:
    """Aligning by the distance of the weights to those of a network."""
    return Aligner(
        spec, network, partial(symmetry.match_weights, spec, reference=network)
    )


def start_of(run: Run, like: Params) -> Params:
    """The network that a run's first chain began with, after the warm-up if any."""
    warm = run.warmup(like)
    if warm is None:
        warm = jax.tree.map(lambda leaf: leaf[:, 0], run.read(draws=0, like=like))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), warm)


def _match_by_loss(
    built: Posterior, spec: Spec, reference: Params, draws: Params
) -> Element:
    """Match draws one by one, by the training loss halfway to the reference."""
    leading = _leading(draws)
    found = [
        symmetry.match_straight_through(
            built.loss,
            spec,
            jax.tree.map(lambda leaf, place=place: jnp.asarray(leaf[place]), draws),
            reference,
            built.dataset.train,
            jax.random.key(0),
            optimiser=optax.adam(1e-3),
        )
        for place in np.ndindex(leading)
    ]
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves).reshape(*leading, *leaves[0].shape), *found
    )


def draw_bytes(run: Run) -> int:
    """Memory of one draw of all chains, in bytes."""
    return run.num_chains * trees.num_bytes(run.leaves)


def block_size(run: Run, method: str) -> int:
    """How many draws of each chain are aligned together."""
    if method == "straight-through":
        return 1
    return max(1, min(MAX_DRAWS, MAX_BYTES // draw_bytes(run)))


def aligned_block(
    source: Run, built: Posterior, aligner: Aligner, start: int, stop: int
) -> tuple[Params, dict[str, np.ndarray]]:
    """The aligned draws from `start` to `stop` of a run, and what was done to each.

    Raises:
        ValueError: naming a draw that is not finite.
    """
    like = built.shapes
    draws = source.read(draws=slice(start, stop), like=like)
    for path, leaf in zip(source.leaves, jax.tree.leaves(draws), strict=True):
        finite = np.isfinite(leaf).reshape(*leaf.shape[:2], -1).all(axis=2)
        if not finite.all():
            chain, draw = np.argwhere(~finite)[0]
            raise ValueError(
                f"{source.path} has numbers that are not finite at {path}, in draw "
                f"{start + draw} of chain {chain}. Make the run again."
            )
    return aligner(draws)


def _leading(draws: Params) -> tuple[int, ...]:
    return jax.tree.leaves(draws)[0].shape[:2]


def _distances(draws: Params, reference: Params) -> np.ndarray:
    """How far each draw is from the reference."""
    squares = [
        np.sum(
            np.square(np.asarray(leaf, float) - centre), axis=tuple(range(2, leaf.ndim))
        )
        for leaf, centre in zip(
            jax.tree.leaves(draws),
            map(np.asarray, jax.tree.leaves(reference)),
            strict=True,
        )
    ]
    return np.sqrt(np.sum(squares, axis=0)).astype(np.float32)
