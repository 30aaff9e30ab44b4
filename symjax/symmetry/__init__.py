"""The symmetries of a network, found from its jaxpr, and operators on parameters."""

from symjax.symmetry.inference import infer
from symjax.symmetry.spec import Axis, Factor, Group, Pin, Spec
