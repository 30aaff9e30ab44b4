"""Matching by activations: known elements, all elements tried, and NumPy's numbers."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from zoo.network import fill, inputs, plain

from symjax import symmetry
from symjax.symmetry.matching import blocks, moments
from symjax.symmetry.matching.activations import match_activations
from symjax.symmetry.spec import Axis, Factor, Group


def more(x, count=60):
    generator = np.random.default_rng(5)
    if np.issubdtype(x.dtype, np.integer):
        return generator.integers(0, x.max() + 1, (count, *x.shape[1:])).astype(x.dtype)
    return generator.normal(size=(count, *x.shape[1:])).astype(np.float32)


def noisy(params, size):
    """Noise that turns no sign."""
    generator = np.random.default_rng(7)
    return jax.tree.map(
        lambda leaf: (
            leaf * (1 + size * generator.normal(size=leaf.shape)).astype(leaf.dtype)
        ),
        params,
    )


# Sign groups that no activation shows, as they lie before a normalisation that is odd.
UNSEEN = {
    "mlp tanh": [],
    "concatenated": [],
    "scan linen": [],
    "cnn lstm": [],
    "group norm, flattened": [0],
    "grouped": [],
    "grouped query": [],
    "transformer": [5],  # of the whole stream
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_random_element_is_undone(name):
    network, spec = zoo.known(name)
    element = symmetry.random_element(jax.random.key(1), spec)
    moved = symmetry.act(spec, element, noisy(network.params, 0.02))
    found = match_activations(
        network.apply, spec, moved, network.params, more(network.x)
    )
    assert all(np.all(scales == 1) for scales in found.scales)
    both = symmetry.compose(spec, found, element)
    for group, order in zip(spec.permutations, both.permutations, strict=True):
        stay = np.broadcast_to(range(group.size), order.shape)
        np.testing.assert_array_equal(order, stay)
    for number, signs in enumerate(both.signs):
        assert number in UNSEEN[name] or np.all(signs == 1)


def tiny(activation=jnp.tanh):
    """Units that are read twice."""

    def apply(p, x):
        z = x @ p["in"] + p["bias"]
        return activation(z) @ p["out"] + activation(3 * z) @ p["more"]

    shapes = {"in": (2, 4), "bias": (4,), "out": (4, 1), "more": (4, 1)}
    return plain(apply, inputs(30, 2), **shapes)


@pytest.mark.parametrize(
    ("centred", "normalised", "activation"),
    [
        *itertools.product([True, False], [True, False], [jnp.tanh]),
        (True, True, jax.nn.silu),
    ],
)
def test_no_element_does_better(centred, normalised, activation):
    """Every permutation and every sign is tried.

    Two unrelated networks, of which each way to compare finds another element.
    """
    network = tiny(activation)
    other = fill(network.params, seed=380)
    choices = (-1, 1) if activation is jnp.tanh else (1,)
    spec = symmetry.infer(network.apply, network.params, network.x)
    x = np.asarray(network.x, np.float64)

    def hidden(p, factor):
        values = factor * (x @ np.float64(p["in"]) + np.float64(p["bias"]))
        values = np.tanh(values) if len(choices) > 1 else values / (1 + np.exp(-values))
        values = values - values.mean(axis=0) if centred else values
        return values / np.linalg.norm(values, axis=0) if normalised else values

    taps = [hidden(network.params, f).T @ hidden(other, f) for f in (1, 3)]
    gains = np.sum(taps, axis=0)
    best = max(
        itertools.product(
            itertools.permutations(range(4)), itertools.product(choices, repeat=4)
        ),
        key=lambda pair: sum(gains[u, v] * pair[1][v] for u, v in enumerate(pair[0])),
    )
    found = match_activations(
        network.apply,
        spec,
        other,
        network.params,
        network.x,
        centred=centred,
        normalised=normalised,
    )
    np.testing.assert_array_equal(found.permutations[0], best[0])
    assert [signs.tolist() for signs in found.signs] == [list(best[1])] * len(
        spec.signs
    )
    assert bool(spec.signs) == (len(choices) > 1)


def group(units, size, batch=(), batch_shape=()):
    axis = Axis("w", Factor(0, size, 1), starts=((0, 0),))
    return Group("permutation", units, size, (axis,), batch, batch_shape)


def test_blocks_of_blocks_are_matched_best():
    """2 layers, in each 2 parts that are ordered alike, of 2 blocks of 3 units."""
    groups = (
        group(5, 3, (7, 9, 8), (2, 2, 2)),  # of a block (7), of a layer (9), of a part
        group(7, 2, (8, 9), (2, 2)),
        group(8, 2),
    )
    gains = np.random.default_rng(0).normal(size=(2, 4, 4, 3, 3))
    splits = blocks.layouts(groups)
    assert [split.moving for split in splits] == [(2, 0), (0,), ()]
    units, block, parts = blocks.match(groups, splits, [gains, None, None])

    def total(parts, order):
        """Of an order of blocks in each layer and part of the network."""
        return sum(
            max(
                sum(
                    gains[layer, 2 * i + k, 2 * j + order[layer][j][k], u, v]
                    for u, v in enumerate(permutation)
                )
                for permutation in itertools.permutations(range(3))
            )
            for layer in range(2)
            for i, j in enumerate(parts)
            for k in range(2)
        )

    orders = [(0, 1), (1, 0)]
    every = itertools.product(
        orders, itertools.product(itertools.product(orders, repeat=2), repeat=2)
    )
    best = max(every, key=lambda pair: total(*pair))
    np.testing.assert_array_equal(parts.permutations[0, 0], best[0])
    np.testing.assert_array_equal(block.permutations, best[1])
    reached = sum(
        gains[layer, origin, j, u, v]
        for layer in range(2)
        for j, origin in enumerate(units.origins[layer])
        for u, v in enumerate(units.permutations[layer, j])
    )
    np.testing.assert_allclose(reached, total(*best))


def test_blocks_that_overlap_are_refused():
    groups = (group(1, 3, (2, 3), (2, 2)), group(2, 2), group(3, 2))
    with pytest.raises(NotImplementedError, match="overlap"):
        blocks.layouts(groups)


def test_correlations_of_batches_are_those_of_all():
    """Means of 3,000 standard deviations, in float32, and a unit that does not vary."""
    generator = np.random.default_rng(0)
    one, two = 3_000 + generator.normal(size=(2, 500, 6)).astype(np.float32)
    two += one[:, ::-1] - 3_000
    one[:, 0] = 7.1
    split = blocks.Layout((), (), None)
    parts = [
        moments.of_batch(
            split, jnp.array(one[rows]), jnp.array(two[rows]), centred=True
        )
        for rows in (slice(0, 10), slice(10, 380), slice(380, 500))
    ]
    found = moments.similarity(functools.reduce(moments.merge, parts), normalised=True)
    wide = one[:, 1:].astype(np.float64), two.astype(np.float64)
    expected = np.corrcoef(*wide, rowvar=False)[:5, 5:]
    np.testing.assert_allclose(found[0, 1:], expected, atol=1e-4)
    np.testing.assert_array_equal(found[0, 0], 0)


def test_draws_are_matched_as_one_by_one():
    network = tiny()
    spec = symmetry.infer(network.apply, network.params, network.x)
    several = [fill(network.params, seed) for seed in range(1, 7)]
    draws = jax.tree.map(
        lambda *leaves: np.stack(leaves).reshape(2, 3, *leaves[0].shape), *several
    )
    match = functools.partial(match_activations, network.apply, spec)
    together = match(draws, network.params, network.x, batch_size=7, draws_at_once=4)
    for number, params in enumerate(several):
        alone = match(params, network.params, network.x)
        place = np.unravel_index(number, (2, 3))
        for one, all_of_them in zip(
            jax.tree.leaves(alone), jax.tree.leaves(together), strict=True
        ):
            np.testing.assert_array_equal(one, all_of_them[place])


def test_what_can_not_be_matched_is_named():
    network = tiny()
    spec = symmetry.infer(network.apply, network.params, network.x)
    draws = jax.tree.map(lambda leaf: np.stack([leaf] * 3), network.params)
    draws["in"][1, 0, 0] = np.nan
    with pytest.raises(ValueError, match="draw 1: `in`"):
        match_activations(network.apply, spec, draws, network.params, network.x)
    with pytest.raises(ValueError, match="`x` must hold at least one example"):
        match_activations(
            network.apply, spec, network.params, network.params, network.x[:0]
        )
    linear = plain(lambda p, x: x @ p["out"], inputs(4, 3), out=(3, 2))
    spec = symmetry.infer(linear.apply, linear.params, linear.x)
    with pytest.raises(ValueError, match="nothing to align"):
        match_activations(linear.apply, spec, linear.params, linear.params, linear.x)
    factors = plain(
        lambda p, x: x @ (p["left"] @ p["right"]),
        inputs(4, 3),
        left=(3, 5),
        right=(5, 2),
    )
    spec = symmetry.infer(factors.apply, factors.params, factors.x)
    with pytest.raises(ValueError, match="`left` axis 1"):
        match_activations(
            factors.apply, spec, factors.params, factors.params, factors.x
        )
