"""Negative controls: groups that a naive reading of a network would report are not.

For each, an explicit permutation, scale or sign of the naive group does change the
outputs, and no element of what is reported instead does.
"""

import jax.numpy as jnp
import pytest
import zoo
from test_inference import by_name, check_counts, check_elements, check_groups, infer
from zoo import moves, order
from zoo.network import changes, inputs, plain

from symjax import symmetry


@pytest.mark.parametrize("control", zoo.CONTROLS, ids=lambda c: by_name(c.case))
def test_a_naive_group_is_not_reported(control):
    network = control.case.make()
    ((output, moved),) = changes(network, [control.naive])
    assert output > 1e-3
    assert moved > 1e-2
    spec = infer(network)
    check_elements(network, spec)
    check_counts(network, spec)
    check_groups(control.case, spec)


def without_a_rule(name):
    """Layers of 5 and 7 units with an operation on the 7 that there is no rule for."""

    def apply(p, x):
        units = jnp.tanh(x @ p["first"]) @ p["in"]
        return order.NO_RULE[name](units, p) @ p["out"]

    shapes = {"first": (3, 5), "in": (5, 7), "out": (7, 2)}
    return plain(apply, inputs(16, 3), **shapes)


@pytest.mark.parametrize("name", sorted(order.NO_RULE))
def test_an_unknown_operation_pins_what_it_touches_and_says_so(name):
    network = without_a_rule(name)
    spec = infer(network)
    check_elements(network, spec)
    assert moves.table(spec.permutations) == moves.shapes("5")
    (pin,) = (pin for pin in spec.pins if not pin.has_rule)
    assert pin.primitive == name
    assert "order.py" in pin.source
    assert ("out", 0) in pin.axes
    with pytest.raises(NotImplementedError, match=f"`{name}` at .*order.py"):
        infer(network, strict=True)


def test_what_parameters_do_not_reach_needs_no_rule():
    """Random numbers have none; `strict` is about what may have hidden a symmetry."""
    control = next(c for c in zoo.CONTROLS if c.case.name == "dropout mask")
    infer(control.case.make(), strict=True)


def test_a_network_that_fails_is_named():
    with pytest.raises(ValueError, match=r"could not be traced: TypeError.*\n.*in \(3"):
        symmetry.infer(
            lambda p, x: x @ p["in"], {"in": jnp.ones((3, 7))}, jnp.ones((2, 4))
        )
