"""Small networks of every kind, each with the symmetry groups that it has."""

import functools

from symjax import symmetry
from symjax.symmetry import Spec
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


@functools.cache
def known(name: str) -> tuple[Network, Spec]:
    """A network by its name, and its symmetries as they are found."""
    network = next(case for case in CASES if case.name == name).make()
    return network, symmetry.infer(network.apply, network.params, network.x)
