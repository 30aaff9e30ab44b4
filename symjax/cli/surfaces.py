"""The loss on lines and planes between draws of a run, for its report."""

import contextlib

import jax
import jax.numpy as jnp

from symjax import progress, report, symmetry
from symjax.cli.posteriors import Posterior
from symjax.symmetry import barriers
from symjax.types import Params


MAX_EXAMPLES = 2048
"""Examples of train and test that a loss is taken over."""

NUM_POSITIONS, NUM_ACROSS = 21, 17


def pictures(draws: Params, aligned: Params, built: Posterior) -> list[report.Picture]:
    """What lies between the chains of a run, before and after alignment.

    Args:
        draws: Leaves `(chain, draw, ...)` that are read when indexed.
        aligned: The same draws, aligned.
        built: Their posterior.

    Returns:
        A line and, if there is one, a plane; nothing for a run of one chain.
    """
    num_chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    if num_chains < 2:
        return []
    # Without a third chain, an early draw of the second.
    places = [(0, num_draws - 1), (1, num_draws - 1), (1, 0)]
    if num_chains > 2:
        places[2] = (2, num_draws - 1)
    names = tuple(
        f"chain {chain}" if draw else f"chain {chain}, first" for chain, draw in places
    )
    sides = {
        f"{when} alignment": [_network(side, built, *place) for place in places]
        for when, side in (("before", draws), ("after", aligned))
    }
    train, test = (
        jax.tree.map(lambda leaf: leaf[:MAX_EXAMPLES], part)
        for part in (built.dataset.train, built.dataset.test)
    )
    with progress.bar("Measuring between chains", 2 * len(sides)) as update:
        lines, planes = {}, {}
        for number, (name, (one, two, three)) in enumerate(sides.items()):
            lines[name] = [
                barriers.curve(built.loss, one, two, data, num=NUM_POSITIONS)
                for data in (train, test)
            ]
            update(2 * number + 1, "")
            if num_draws > 1 or num_chains > 2:
                nets = (one, two, three)
                # Draws of a chain that stands still lie on a line, or in a point.
                with contextlib.suppress(ValueError):
                    plane = symmetry.plane(built.loss, nets, train, num=NUM_ACROSS)
                    planes[name] = plane
            update(2 * number + 2, "")
    shown = [_draw_lines(lines)]
    if planes:
        shown.append(report.across(planes, names))
    return shown


def _draw_lines(lines: dict[str, list[barriers.Curve]]) -> report.Picture:
    """Of each name the curves of training and test."""
    panels = {
        f"{part} loss (nats an example)": {
            name: curves[index].values for name, curves in lines.items()
        }
        for index, part in enumerate(("training", "test"))
    }
    return report.between(next(iter(lines.values()))[0].positions, panels)


def _network(draws: Params, built: Posterior, chain: int, draw: int) -> Params:
    leaves = [
        jnp.asarray(leaf[chain, slice(draw, draw + 1)][0])
        for leaf in jax.tree.leaves(draws)
    ]
    return jax.tree.unflatten(jax.tree.structure(built.shapes), leaves)
