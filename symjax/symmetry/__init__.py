"""The symmetries of a network, found from its jaxpr, and operators that act with them."""

from symjax.symmetry.inference import infer
from symjax.symmetry.spec import Axis, Factor, Group, Pin, Spec
