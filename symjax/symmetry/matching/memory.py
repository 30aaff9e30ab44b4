"""How many networks are matched together."""

import math

import jax

from symjax.symmetry.matching import schedule, visits
from symjax.symmetry.matching.visits import Visit
from symjax.symmetry.spec import Spec


def default() -> int:
    """Bytes to work in: fewer on a CPU, which reads small blocks faster."""
    return 2**28 if jax.default_backend() == "cpu" else 2**30


def most_at_once(spec: Spec, max_bytes: int) -> int:
    """How many networks a part may hold, of which two are worked on at a time."""
    weights = sum(math.prod(shape) for _, shape in spec.shapes)
    pairs = [
        sum(_num_pairs(spec, visit, number) for number in visit.groups)
        for visit in schedule.plan(spec).first
        if isinstance(visit, Visit)
    ]
    # Parameters, boxes before and after a step, and features; gains and their sum.
    return max(1, max_bytes // (2 * 4 * (8 * weights + 2 * max(pairs))))


def _num_pairs(spec: Spec, visit: Visit, number: int) -> int:
    """How many gains are computed for a group, counting each pattern and the best."""
    group = spec.permutations[number]
    copies, _ = visits.copies_and_blocks(spec, visit, number)
    fixed = math.prod(group.batch_shape[i] for i in copies)
    patterns = {piece.pattern for piece in visits.pieces(spec, visit, number)}
    return math.prod(group.shape) ** 2 // fixed * (1 + len(patterns))
