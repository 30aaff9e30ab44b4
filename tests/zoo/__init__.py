"""Small networks of every kind, each with the symmetry groups that it has."""

from zoo import (
    attention,
    convolutional,
    dense,
    entangled,
    order,
    recurrent,
    structure,
    values,
)
from zoo.control import Control
from zoo.network import Case, Network


CASES: list[Case] = [
    *dense.CASES,
    *structure.CASES,
    *convolutional.CASES,
    *recurrent.CASES,
    *attention.CASES,
]


CONTROLS: list[Control] = [*order.CONTROLS, *entangled.CONTROLS, *values.CONTROLS]
