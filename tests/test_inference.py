"""The groups found in networks of every kind, against groups thought out by hand.

Every group is checked in float64 with elements that an independent reading of the spec
(`zoo.moves`) acts with, and their number with what gradients say (`zoo.freedom`).
"""

import functools

import jax
import jaxtyping
import numpy as np
import pytest
import zoo
from zoo import dense, freedom, moves, recurrent, structure
from zoo.network import changes

from symjax import symmetry, trees


KINDS = ("permutations", "scalings", "signs")


def by_name(case):
    return case.name.replace(" ", "-")


def infer(network, **options):
    return symmetry.infer(network.apply, network.params, network.x, **options)


def infer_unchecked(network, **options):
    """Without checks of annotations at run time, which take ten times as long."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        return infer(network, **options)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@functools.cache
def inferred(case):
    network = case.make()
    return network, infer_unchecked(network, strict=True)


def check_groups(case, spec):
    expected = {kind: getattr(case, kind) for kind in KINDS}
    found = {kind: moves.table(getattr(spec, kind)) for kind in KINDS}
    for kind, table in expected.items():
        if table is not None:
            assert found[kind] == moves.shapes(table), (kind, spec)


def check_elements(network, spec):
    """No group changes the outputs, and each moves the parameters."""
    generator = np.random.default_rng(0)
    groups = list(spec)
    elements = [moves.draw(group, generator) for group in groups]
    transforms = [
        lambda params, group=group, element=element: moves.move(group, element, params)
        for group, element in zip(groups, elements, strict=True)
    ]
    for group, change in zip(groups, changes(network, transforms), strict=True):
        output, moved = change
        assert output < 1e-10, group
        assert moved > 1e-2, group


def check_counts(network, spec):
    """Groups do not say the same thing twice."""
    if trees.size(network.params) > 3_500:
        return
    scalings, signs = (
        moves.generators(groups, network.params)
        for groups in (spec.scalings, spec.signs)
    )
    assert moves.rank(scalings) == spec.num_scalings
    assert moves.rank(signs) == spec.num_signs


@pytest.mark.parametrize("case", zoo.CASES, ids=by_name)
def test_all_groups_are_found_and_leave_the_network_unchanged(case):
    network, spec = inferred(case)
    check_elements(network, spec)
    check_counts(network, spec)
    check_groups(case, spec)
    spec.check(network.params)


MEASURED = [
    case
    for case in (*dense.CASES, *structure.CASES, *recurrent.CASES)
    if not case.name.startswith(("mlp ", "cnn ", "bidirectional", "packed"))
]


@pytest.mark.parametrize("case", MEASURED, ids=by_name)
def test_no_scale_is_missed(case):
    network, spec = inferred(case)
    assert spec.num_scalings == freedom.num_free_scales(network)


def test_a_spec_is_a_value():
    """It depends on shapes alone, hashes, and tells networks apart."""
    case, other = zoo.CASES[0], zoo.CASES[2]
    first = infer(case.make())
    network = case.make()
    shapes = jax.eval_shape(lambda: network.params)
    again = symmetry.infer(network.apply, shapes, network.x)
    assert first == again
    assert hash(first) == hash(again)
    assert first != infer(other.make())
