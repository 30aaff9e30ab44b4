"""A figure of the report."""

from typing import NamedTuple

from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure as the report shows it.

    Attributes:
        title: Heading above it.
        figure: The figure.
        reading: How to read it, in a sentence or two.
    """

    title: str
    figure: Figure
    reading: str
