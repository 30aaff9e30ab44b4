"""Pictures of the loss between draws of different chains, aligned and not."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from symjax.plots.barriers import interpolations, planes
from symjax.report.picture import Picture


def between(
    positions: Float[np.ndarray, " position"],
    panels: Mapping[str, Mapping[str, Float[np.ndarray, " position"]]],
) -> Picture:
    """The loss on the line between draws of two chains.

    Args:
        positions: From 0, the one draw, to 1, the other.
        panels: For every measure the values "before" and "after" alignment.
    """
    return Picture(
        "Between the chains",
        interpolations(positions, panels),
        "The last draws of chains 0 and 1 and the networks on the line between "
        "them. A hill that is gone after alignment was made by the order and the signs "
        "of units; one that stays separates different functions.",
    )


def across(panels: Mapping[str, tuple], names: Sequence[str]) -> Picture:
    """The loss on the plane through three draws.

    Args:
        panels: `x, y, values, points` "before" and "after" alignment.
        names: What the draws are called.
    """
    figure: Figure = planes(
        panels, label="training loss (nats an example)", names=names
    )
    return Picture(
        "On the plane through three draws",
        figure,
        "Alignment moves the draws nearer to each other, and leaves the loss of each "
        "as it is. Draws that share one basin lie on light ground together.",
    )
