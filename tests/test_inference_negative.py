"""Negative controls: groups that a naive reading of a network would report are not.

For each, an explicit permutation, scale or sign of the naive group does change the
outputs, and no element of what is reported instead does.
"""

import inspect

import jax
import jax.numpy as jnp
import pytest
import zoo
from test_inference import by_name, check_counts, check_elements, check_groups, infer
from zoo import moves, order
from zoo.control import hidden
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


def pins_of(layer):
    """What pins, in a network of one layer of 7 units."""
    return infer(hidden("layer", layer, None).case.make()).pins


def test_the_line_that_is_named_is_the_innermost():
    def looped(h, p):
        return jax.lax.scan(lambda h, _: (spectrum(h, p), None), h, None, length=1)[0]

    spectrum = order.NO_RULE["fft"]
    line = inspect.getsourcelines(spectrum)[1] + 1
    (pin,) = (pin for pin in pins_of(looped) if not pin.has_rule)
    assert f"order.py:{line}:" in pin.source


def test_the_first_of_two_pins_counts():
    (pin,) = pins_of(lambda h, p: jnp.sort(jnp.cumsum(h, axis=1), axis=1))
    assert pin.primitive == "cumsum"
    assert pin.axes == (("in", 1), ("out", 0))


def test_a_rule_for_other_parameters_is_said_to_be_there():
    (pin,) = pins_of(lambda h, p: h.at[0].apply(jnp.exp))
    assert not pin.has_rule
    assert pin.reason == "symjax has no rule for it with these parameters"
    (pin,) = pins_of(order.NO_RULE["fft"])
    assert pin.reason == "symjax has no rule for it"


def test_what_is_printed_pins_nothing():
    def layer(h, p):
        jax.debug.print("{}", h)
        return jnp.tanh(h)

    network = hidden("printed", layer, None).case.make()
    spec = infer(network, strict=True)
    assert moves.table(spec.permutations) == moves.shapes("7")
    assert not spec.pins


def _beside_a_constant(h, p):
    return jax.scipy.linalg.solve_triangular(jnp.eye(len(h)), h)


def _counted_by_a_parameter(h, p):
    """The number of steps is a parameter's, what is counted is not."""
    count = jax.lax.while_loop(
        lambda state: state[0] < p["in"][0, 0],
        lambda state: (state[0] + 1, state[1] + 1),
        (0.0, jnp.zeros(7)),
    )[1]
    return h + jnp.fft.fft(count).real


def _chosen_by_a_parameter(h, p):
    chosen = jax.lax.cond(p["in"][0, 0] > 0, lambda: jnp.ones(7), lambda: jnp.zeros(7))
    return h + jnp.fft.fft(chosen).real


@pytest.mark.parametrize(
    "layer", [_beside_a_constant, _counted_by_a_parameter, _chosen_by_a_parameter]
)
def test_what_parameters_reach_in_any_way_needs_a_rule(layer):
    network = hidden("reached", layer, None).case.make()
    with pytest.raises(NotImplementedError, match="no rule for the primitive"):
        infer(network, strict=True)


def test_the_first_operation_without_a_rule_is_named():
    def layer(h, p):
        return jnp.fft.fft(jnp.linalg.cholesky(h.T @ h + jnp.eye(7))).real[:1]

    network = hidden("two", layer, None).case.make()
    with pytest.raises(NotImplementedError, match="`cholesky`"):
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
