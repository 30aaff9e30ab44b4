"""One short rule for each primitive of `jax.lax`: what it ties, pins, and lets scale.

A rule is called as `rule(walk, eqn, operands)` and returns the values of its results;
None says that it has no answer for these parameters. What is not in the table pins all
that it touches.
"""

from symjax.symmetry.inference.rules import (
    blocks,
    calls,
    elementwise,
    indexing,
    linear,
    shapes,
)
from symjax.symmetry.inference.walk import Rule


RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **shapes.RULES,
    **blocks.RULES,
    **indexing.RULES,
    **linear.RULES,
    **calls.RULES,
}
