"""The symmetries of a network, found from its jaxpr, and operators on parameters."""

from symjax.symmetry.actions import Element, act, flip, identity, permute, rescale
from symjax.symmetry.alignment import Aligned, AlignedToMean, align_to_mean, rebasin
from symjax.symmetry.canonical.form import Canonical, canonicalise
from symjax.symmetry.canonical.scales import MinimumNorm, minimum_norm
from symjax.symmetry.elements import (
    compose,
    inverse,
    random_element,
    total_transpositions,
)
from symjax.symmetry.inference.pipeline import infer
from symjax.symmetry.invariance import Invariance, check_invariance
from symjax.symmetry.matching.activations import match_activations
from symjax.symmetry.matching.sinkhorn import match_sinkhorn
from symjax.symmetry.matching.straight_through import match_straight_through
from symjax.symmetry.matching.weights import match_weights
from symjax.symmetry.permutations import (
    cycles,
    num_transpositions,
    random_permutation,
)
from symjax.symmetry.planes import Plane, plane
from symjax.symmetry.spec import Axis, Factor, Group, Pin, Spec
from symjax.symmetry.synchronisation import Synchronised, synchronise
