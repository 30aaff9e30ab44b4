"""Taps against activations written out by hand, and how they move with the units."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from zoo import moves
from zoo.network import double, fill, inputs, linen, plain

from symjax import symmetry
from symjax.symmetry.taps import taps


def tapped(network):
    spec = symmetry.infer(network.apply, network.params, network.x)
    run = jax.jit(functools.partial(taps, network.apply, spec))
    return spec, run


def by_shape(spec, values):
    return dict(zip((group.shape for group in spec.permutations), values, strict=True))


def rows(array):
    """Samples in an order that does not depend on how axes were flattened."""
    flat = np.asarray(array, np.float64).reshape(len(array), -1)
    return flat[np.argsort(flat @ np.random.default_rng(2).normal(size=flat.shape[1]))]


def assert_same_samples(one, other):
    assert one.shape == other.shape
    np.testing.assert_allclose(rows(one), rows(other), atol=1e-5)


def test_a_dense_layer_is_tapped_after_its_activation():
    def apply(p, x):
        hidden = jax.nn.relu(x @ p["first"] + p["bias"])
        return jnp.tanh(hidden @ p["second"]) @ p["out"]

    shapes = {"first": (3, 7), "bias": (7,), "second": (7, 5), "out": (5, 2)}
    network = plain(apply, inputs(11, 3), **shapes)
    spec, run = tapped(network)
    p, x = network.params, network.x
    hidden = np.maximum(x @ p["first"] + p["bias"], 0)
    found = by_shape(spec, run(p, x))
    assert [len(group) for group in found.values()] == [1, 1]
    np.testing.assert_allclose(found[7,][0], hidden, atol=1e-5)
    np.testing.assert_allclose(found[5,][0], np.tanh(hidden @ p["second"]), atol=1e-5)


def test_channels_are_found_on_a_flattened_axis():
    """Pixels are samples: what the dense layer reads is cut into channels again."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            maps = nn.max_pool(nn.relu(nn.Conv(5, (3, 3))(x)), (2, 2), (2, 2))
            self.sow("maps", "last", maps)
            return nn.Dense(2)(maps.reshape(len(x), -1))

    network = linen(Network(), inputs(3, 8, 6, 2))
    spec, run = tapped(network)
    ((found,),) = run(network.params, network.x)
    _, kept = Network().apply(network.params, network.x, mutable=["maps"])
    assert_same_samples(found, kept["maps"]["last"][-1].reshape(-1, 5))


def test_a_recurrent_layer_is_tapped_at_every_step():
    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            steps = nn.RNN(nn.LSTMCell(6, param_dtype=float))(x)
            self.sow("steps", "all", steps)
            return nn.Dense(2)(steps[:, -1])

    network = linen(Network(), inputs(3, 4, 5))
    _, run = tapped(network)
    ((before, last),) = run(network.params, network.x)
    _, kept = Network().apply(network.params, network.x, mutable=["steps"])
    steps = kept["steps"]["all"][-1]
    start = jnp.zeros_like(steps[:, :1])
    read = jnp.concatenate([start, steps[:, :-1]], axis=1)
    assert_same_samples(before, read.reshape(-1, 6))
    np.testing.assert_allclose(last, steps[:, -1], atol=1e-5)


def test_heads_are_a_batch_of_their_units():
    def apply(p, x):
        q, k, v = (jnp.einsum("nld,dhe->nlhe", x, p[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("nqhe,nkhe->nhqk", q, k))
        mixed = jnp.einsum("nhqk,nkhe->nqhe", weights, v)
        return jnp.einsum("nqhe,heo->nqo", mixed, p["out"])

    shapes = {**dict.fromkeys("qk", (3, 4, 6)), "v": (3, 4, 5), "out": (4, 5, 2)}
    network = plain(apply, inputs(2, 3, 3), **shapes)
    spec, run = tapped(network)
    found = by_shape(spec, run(network.params, network.x))
    p, x = network.params, network.x
    q, k, v = (np.einsum("nld,dhe->nlhe", x, p[name]) for name in "qkv")
    weights = np.asarray(jax.nn.softmax(np.einsum("nqhe,nkhe->nhqk", q, k)))
    mixed = np.einsum("nhqk,nkhe->nqhe", weights, v)
    assert_same_samples(found[4, 5][0], mixed.reshape(-1, 4, 5))
    assert len(found[4, 6]) == 2
    for one, other in zip(found[4, 6], (q, k), strict=True):
        assert_same_samples(one, other.reshape(-1, 4, 6))
    # Heads have no activation of their own but their weights.
    assert_same_samples(found[4,][0], np.moveaxis(weights, 1, 3).reshape(-1, 4))


MOVED = [
    "concatenated",
    "scan linen",
    "transformed",
    "group norm, flattened",
    "separable",
    "densenet",
    "cnn lstm",
    "transformer stacked",
    "grouped query",
]


def reorder(values, group, order, other):
    """The samples of `other` after the units of `group` moved."""
    places = {kind: 1 + i for i, kind in enumerate((*other.batch, other.units))}
    kinds = (*group.batch, group.units)
    if group.units not in places:
        return values
    axes = [places[kind] for kind in kinds]
    order = np.transpose(order, np.argsort(axes))
    absent = [axis for axis in range(values.ndim) if axis not in axes]
    order = np.expand_dims(order, absent)
    return np.take_along_axis(np.asarray(values), order, places[group.units])


@pytest.mark.parametrize("name", MOVED)
def test_taps_move_with_their_units_and_only_with_them(name):
    network = next(case for case in zoo.CASES if case.name == name).make()
    generator = np.random.default_rng(0)
    with jax.enable_x64(True):
        params, x = double(network.params), double(network.x)
        spec = symmetry.infer(network.apply, params, x)
        run = jax.jit(
            functools.partial(taps, network.apply, spec),
            compiler_options={"xla_backend_optimization_level": 0},
        )
        before = run(params, x)
        for number, group in enumerate(spec.permutations):
            order = moves.draw(group, generator)
            after = run(moves.move(group, order, params), x)
            for other, old, new in zip(spec.permutations, before, after, strict=True):
                assert len(old) == len(new)
                for one, two in zip(old, new, strict=True):
                    assert one.shape[1:] == other.shape
                    expected = reorder(one, group, order, other)
                    np.testing.assert_allclose(two, expected, rtol=1e-9, atol=1e-9)
            parents = {kind for inner in spec.permutations for kind in inner.batch}
            assert before[number] or group.units in parents
            for one in before[number]:
                assert np.ptp(one) > 1e-3


def test_draws_are_tapped_together():
    network = plain(
        lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"],
        inputs(4, 3),
        **{"in": (3, 7), "out": (7, 2)},
    )
    _, run = tapped(network)
    draws = [fill(network.params, seed) for seed in range(3)]
    together = jax.vmap(run, (0, None))(
        jax.tree.map(lambda *leaves: np.stack(leaves), *draws), network.x
    )
    for number, params in enumerate(draws):
        np.testing.assert_allclose(
            together[0][0][number], run(params, network.x)[0][0], atol=1e-6
        )


def test_units_of_a_weight_alone_have_no_tap():
    """The rank of a factorised matrix is no activation; a loop may hide its units."""

    def factors(p, x):
        return x @ (p["left"] @ p["right"])

    def hidden(p, x):
        def body(state):
            return state[0] + 1, state[1] + jnp.tanh(x @ p["in"]) @ p["out"]

        start = (0, jnp.zeros((len(x), 2)))
        return jax.lax.while_loop(lambda state: state[0] < 2, body, start)[1]

    x = inputs(4, 3)
    for apply, shapes in (
        (factors, {"left": (3, 5), "right": (5, 2)}),
        (hidden, {"in": (3, 5), "out": (5, 2)}),
    ):
        network = plain(apply, x, **shapes)
        spec, run = tapped(network)
        assert len(spec.permutations) == 1
        assert run(network.params, x) == ((),)
