"""Matching by the loss at the midpoint, against all permutations of small networks."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import zoo
from zoo.network import inputs, plain

from symjax import symmetry
from symjax.symmetry.matching import matcher, sinkhorn
from symjax.symmetry.matching.sinkhorn import doubly_stochastic, match_sinkhorn, mix
from symjax.symmetry.matching.straight_through import match_straight_through, project
from symjax.types import Data


WIDTH = 4
X = inputs(200, 2)
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]], axis=1)
# The last rows only pad.
DATA = Data(
    np.concatenate([X, np.full((100, 2), 9.0, np.float32)]),
    np.concatenate([Y, np.full((100, 2), 99.0, np.float32)]),
    np.arange(300) < 200,
)


def apply(params, x):
    return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]


def loss(params, data):
    return jnp.sum((apply(params, data.x) - data.y) ** 2, axis=-1)


@functools.cache
def networks(seed):
    """Two networks trained from starts of their own, with a leaf of whole numbers."""
    optimiser, real = optax.adam(2e-2), Data(X, Y, np.ones(len(X), bool))
    shapes = {"in": (2, WIDTH), "bias": (WIDTH,), "out": (WIDTH, 2)}

    def trained(key):
        keys = dict(zip(shapes, jax.random.split(key, 3), strict=True))
        start = {n: jax.random.normal(keys[n], shape) for n, shape in shapes.items()}

        def step(state, _):
            params, moments = state
            gradient = jax.grad(lambda p: jnp.mean(loss(p, real)))(params)
            updates, moments = optimiser.update(gradient, moments)
            return (optax.apply_updates(params, updates), moments), None

        first = start, optimiser.init(start)
        return jax.lax.scan(step, first, None, length=500)[0][0]

    both = jax.jit(jax.vmap(trained))(jax.random.split(jax.random.key(seed)))
    return [
        {**jax.tree.map(lambda leaf, k=k: leaf[k], both), "steps": jnp.int32(500)}
        for k in range(2)
    ]


def at_midpoint(params, reference, order, signs):
    """Written out with NumPy, in float64."""
    order, signs = np.array(order), np.array(signs)
    moved = {
        "in": (params["in"] * signs)[:, order],
        "bias": (params["bias"] * signs)[order],
        "out": (params["out"] * signs[:, None])[order],
    }
    middle = {n: (np.float64(moved[n]) + np.float64(reference[n])) / 2 for n in moved}
    outputs = np.tanh(X @ middle["in"] + middle["bias"]) @ middle["out"]
    return np.mean(np.sum((outputs - Y) ** 2, axis=1))


# A pair of networks for each, and how they are matched.
MATCHERS = {
    "straight through": (
        7,
        functools.partial(
            match_straight_through, optimiser=optax.adam(0.2), num_steps=100
        ),
    ),
    "sinkhorn": (
        26,
        functools.partial(match_sinkhorn, optimiser=optax.adam(0.1), num_steps=200),
    ),
}


@pytest.mark.parametrize("name", MATCHERS)
def test_the_best_of_all_elements_is_found(name):
    """Where matching by weights, whose signs Sinkhorn keeps, finds another one."""
    seed, match = MATCHERS[name]
    reference, params = networks(seed)
    spec = symmetry.infer(apply, reference, X)
    by_weights = symmetry.match_weights(spec, params, reference)
    kept = tuple(by_weights.signs[0].tolist())
    free = itertools.product((-1, 1), repeat=WIDTH)
    order, signs = min(
        itertools.product(
            itertools.permutations(range(WIDTH)),
            free if name == "straight through" else [kept],
        ),
        key=lambda one: at_midpoint(params, reference, *one),
    )
    assert tuple(by_weights.permutations[0].tolist()) != order
    assert {-1, 1} == set(signs)
    assert order != tuple(np.argsort(order))
    element = match(loss, spec, params, reference, DATA, jax.random.key(0))
    np.testing.assert_array_equal(element.permutations[0], order)
    np.testing.assert_array_equal(element.signs[0], signs)


def test_latent_weights_are_matched_at_their_smallest_norm():
    network = plain(
        lambda p, x: jax.nn.relu(x @ p["in"]) @ p["out"],
        inputs(4, 3),
        **{"in": (3, 8), "out": (8, 2)},
    )
    spec = symmetry.infer(network.apply, network.params, network.x)
    element = symmetry.random_element(jax.random.key(0), spec, log_scale_std=3.0)
    moved = symmetry.act(spec, element, network.params)
    prepared, _ = matcher.prepare(spec, moved, max_sweeps=10, max_bytes=2**20)
    found = project(prepared, network.params, symmetry.identity(spec))
    back = symmetry.inverse(spec, element)
    np.testing.assert_array_equal(found.permutations[0], back.permutations[0])


def test_soft_permutations_are_permutations_where_they_are_hard():
    """On units in blocks, along packed axes and in several layers."""
    for name in ("transformer stacked", "packed lstm"):
        network = next(case for case in zoo.CASES if case.name == name).make()
        spec = symmetry.infer(network.apply, network.params, network.x)
        order = symmetry.random_element(jax.random.key(0), spec).permutations
        matrices = [
            jax.nn.one_hot(one, group.size)
            for one, group in zip(order, spec.permutations, strict=True)
        ]
        mixed = jax.jit(functools.partial(mix, spec))(matrices, network.params)
        moved = symmetry.permute(spec, order, network.params)
        for one, two in zip(
            jax.tree.leaves(mixed), jax.tree.leaves(moved), strict=True
        ):
            np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_step_of_sinkhorn_is_down_the_loss_of_soft_permutations(temperature):
    """By finite differences in float64, with Sinkhorn's iteration written out."""
    generator = np.random.default_rng(0)
    shapes = {"in": (2, 3), "bias": (3,), "out": (3, 2)}
    reference, params = (
        {name: generator.normal(size=shape) for name, shape in shapes.items()}
        for _ in range(2)
    )
    # Whichever rows are drawn.
    x, y = np.array([[0.7, -1.2]]), np.array([[0.4, 1.0]])
    latent = generator.normal(size=(3, 3))

    def at(latent):
        soft = np.exp(latent / temperature)
        for _ in range(20):
            soft = soft / soft.sum(axis=1, keepdims=True)
            soft = soft / soft.sum(axis=0, keepdims=True)
        mixed = {
            "in": params["in"] @ soft.T,
            "bias": soft @ params["bias"],
            "out": soft @ params["out"],
        }
        middle = {name: (mixed[name] + reference[name]) / 2 for name in shapes}
        outputs = np.tanh(x @ middle["in"] + middle["bias"]) @ middle["out"]
        return np.sum((outputs - y) ** 2)

    steps = 1e-5 * np.eye(9).reshape(9, 3, 3)
    slope = [(at(latent + one) - at(latent - one)) / 2e-5 for one in steps]
    spec = symmetry.infer(apply, reference, x)
    optimiser = optax.sgd(1.0)
    learnt = [jnp.asarray(latent, jnp.float32)]
    (found,), _ = sinkhorn._learn(
        *(loss, spec, optimiser, 4, jax.random.key(0), temperature),
        *((learnt, optimiser.init(learnt)), params, reference),
        Data(np.tile(x, (5, 1)), np.tile(y, (5, 1)), np.ones(5, bool)),
    )
    np.testing.assert_allclose(
        latent - found, np.reshape(slope, (3, 3)), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(("num_steps", "looks"), [(9, 1), (10, 1), (15, 2)])
def test_the_last_permutations_are_looked_at(monkeypatch, num_steps, looks):
    reference, params = networks(7)
    spec, seen = symmetry.infer(apply, reference, X), []

    def nearest(latent):
        seen.append(latent)
        return jnp.argsort(jnp.argmax(latent, axis=-1))

    monkeypatch.setattr(sinkhorn, "_nearest", nearest)
    key = jax.random.key(0)
    options = {"optimiser": optax.sgd(0.0), "num_steps": num_steps}
    match_sinkhorn(loss, spec, params, reference, DATA, key, **options)
    assert len(seen) == looks


def test_rows_and_columns_sum_to_one():
    """Sinkhorn keeps the cross ratios of what it normalises."""
    logits = np.random.default_rng(0).normal(size=(2, 5, 5))
    found = np.asarray(doubly_stochastic(jnp.asarray(logits)), np.float64)
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=-2), 1, atol=1e-5)

    def cross(logs):
        return (
            logs[..., 1:, 1:]
            + logs[..., :1, :1]
            - logs[..., 1:, :1]
            - logs[..., :1, 1:]
        )

    np.testing.assert_allclose(cross(np.log(found)), cross(logits), atol=1e-4)
