"""Random networks: what is found is sound, and elements form a group that acts."""

import jax
import numpy as np
from hypothesis import Phase, given, settings
from test_inference import check_counts, check_elements, infer_unchecked
from zoo import freedom, grammar, moves
from zoo.network import changes, double

from symjax import symmetry


# Shrinking a failure takes minutes, and the networks are small from the start.
few = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


@settings(few, max_examples=40)
@given(grammar.NETWORKS)
def test_no_group_of_a_random_network_changes_it(layers):
    network = grammar.network(layers)
    spec = infer_unchecked(network)
    check_elements(network, spec)
    check_counts(network, spec)


@settings(few, max_examples=12)
@given(grammar.PLAIN_NETWORKS)
def test_no_scale_of_a_random_network_is_missed(layers):
    network = grammar.network(layers)
    assert infer_unchecked(network).num_scalings == freedom.num_free_scales(network)


@settings(few, max_examples=6)
@given(grammar.NETWORKS)
def test_elements_of_a_random_network_form_a_group_that_acts(layers):
    network = grammar.network(layers)
    spec = infer_unchecked(network)

    def laws(one, two, params):
        moved = symmetry.act(spec, one, params)
        return (
            moved,
            symmetry.act(spec, symmetry.inverse(spec, one), moved),
            symmetry.act(spec, two, moved),
            symmetry.act(spec, symmetry.compose(spec, two, one), params),
        )

    with jax.enable_x64(True):
        generator = np.random.default_rng(0)
        one, two = (element(spec, generator) for _ in range(2))
        params = double(network.params)
        moved, back, twice, both = jax.jit(laws)(one, two, params)
    close(back, params)
    close(both, twice)
    for output, _ in changes(network, [lambda _: moved, lambda _: both]):
        assert output < 1e-10


def element(spec, generator):
    groups = (spec.permutations, spec.scalings, spec.signs)
    return symmetry.Element(
        *(tuple(moves.draw(group, generator) for group in kind) for kind in groups)
    )


def close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
