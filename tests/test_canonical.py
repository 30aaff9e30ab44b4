"""Canonical forms: all copies of a network have the same one, and it is a copy."""

import doctest
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import known
from zoo.network import double, fill, plain

from symjax import models, symmetry
from symjax.symmetry import Axis, Factor, Group, Spec
from symjax.symmetry.canonical import form


quickly = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


def infer(network):
    return symmetry.infer(network.apply, network.params, network.x)


def attention():
    def apply(p, x):
        q, k, v = (jnp.einsum("lx,xhd->hld", x, p[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k))
        return jnp.einsum("hqk,hkd,hdo->qo", weights, v, p["out"])

    shapes = dict.fromkeys("qkv", (2, 3, 4)) | {"out": (3, 4, 2)}
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    return plain(apply, x, **shapes)


def canonicaliser(spec):
    """For draws; its parameters, elements and whether scales converged."""
    return quickly(jax.vmap(functools.partial(symmetry.canonicalise, spec)))


def copies(spec, params, num_copies):
    """The parameters themselves, and random equivalent ones."""

    def copy(key):
        element = symmetry.random_element(key, spec, log_scale_std=1.0)
        return symmetry.act(spec, element, params)

    others = quickly(jax.vmap(copy))(jax.random.split(jax.random.key(0), num_copies))
    return jax.tree.map(
        lambda leaf, more: jnp.concatenate([leaf[None], more]), params, others
    )


def differences(one, other):
    """The largest of any leaf."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(np.max(np.abs(np.subtract(*pair)), initial=0) for pair in pairs)


def spread(draws):
    """How far draws are from the first one."""
    return differences(draws, jax.tree.map(lambda leaf: leaf[:1], draws))


@pytest.mark.parametrize(
    "name",
    [
        "mlp linear",  # scales and signs of the same units
        "powers",  # exponents other than 1 and -1
        "weight norm",  # scales that no minimum fixes
        "group norm, flattened",  # permutations inside blocks and of blocks
        "attention",  # all three inside heads, which are permuted
        "scan linen",  # one permutation for each layer of a stacked parameter
        "packed lstm",
    ],
)
def test_copies_have_one_form(name):
    if name == "attention":
        network = attention()
        spec = infer(network)
    else:
        network, spec = known(name)
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, double(network.params))
        draws = copies(spec, params, 3)
        assert spread(draws) > 0.1
        canonicalise = canonicaliser(spec)
        found = canonicalise(draws)
        assert np.all(found.converged)
        assert spread(found.params) < 1e-9
        assert differences(canonicalise(found.params).params, found.params) < 1e-9
        copy, form = (jax.tree.map(lambda a: a[1], tree) for tree in (draws, found))
        reached = symmetry.act(spec, form.element, copy)
        assert differences(reached, form.params) < 1e-12
        apply = quickly(lambda params: network.apply(params, double(network.x)))
        outputs = apply(params)
        change = differences(apply(form.params), outputs)
        assert change < 1e-10 * differences(
            outputs, jax.tree.map(np.zeros_like, outputs)
        )


def layers(activation):
    """Two hidden layers of 4 units and no biases, and its canonical forms."""

    def apply(p, x):
        return activation(activation(x @ p["in"]) @ p["hidden"]) @ p["out"]

    shapes = {"in": (2, 4), "hidden": (4, 4), "out": (4, 1)}
    return infer(plain(apply, np.ones((3, 2), np.float32), **shapes))


ROLLED = np.roll(np.eye(4), 1, axis=1)
HIDDEN = np.random.default_rng(0).normal(size=(4, 4))
DEAD = HIDDEN * [[0, 1, 0, 1]] * np.array([[1], [0], [0], [1]])
ADRIFT = HIDDEN * [[0, 1, 1, 1]] * np.array([[0], [1], [1], [1]])
ADRIFT[0, 0], ADRIFT[1, 0] = 2.0, -3.0
TIES = {
    "twins": (
        [[1.0, 1.0, 2.0, 2.0], [2.0, 2.0, -1.0, -1.0]],
        np.repeat(np.repeat(HIDDEN[:2, :2], 2, axis=0), 2, axis=1),
        [3.0, 3.0, 1.0, 1.0],
    ),
    # What comes into a unit, what goes out, both, neither is zero.
    "dead": ([[1.0, 0.0, 3.0, 4.0], [2.0, 0.0, -1.0, 2.0]], DEAD, [1.0, 0.0, 2.0, 3.0]),
    # Each unit of a layer is like each other, but pairs of units are not.
    "crossed": (np.ones((2, 4)), 2 * np.eye(4) + ROLLED @ ROLLED, np.ones(4)),
    # Units differ only in what their units of the other layer do.
    "distant": (np.ones((2, 4)), 2 * ROLLED, [1.0, 2.0, 3.0, -4.0]),
    # Without their signs the units of the first layer are alike.
    "mirrored": (
        [[1.0, 1.0, 1.0, -1.0], [2.0, -2.0, 2.0, 2.0]],
        [[1.0, 2.0, 3.0, 1.0], [1.0, 2.0, -3.0, 1.0]] * 2,
        [1.0, 2.0, 3.0, 1.0],
    ),
    # The first two units of the first layer and the first of the second have weights
    # among themselves alone, so that nothing decides their signs.
    "adrift": (
        [[0.0, 0.0, 3.0, 4.0], [0.0, 0.0, -1.0, 2.0]],
        ADRIFT * np.array([[1, 0, 0, 0]] * 2 + [[0, 1, 1, 1]] * 2),
        [0.0, 1.0, 2.0, 3.0],
    ),
}


@functools.cache
def ties_canonicaliser(activation):
    spec = layers(activation)
    return spec, canonicaliser(spec)


@pytest.mark.parametrize("activation", [nn.relu, nn.tanh])
@pytest.mark.parametrize("name", TIES)
def test_units_that_are_alike_or_dead(name, activation):
    with jax.enable_x64(True):
        spec, canonicalise = ties_canonicaliser(activation)
        first, hidden, last = map(np.asarray, TIES[name])
        params = {"in": first, "hidden": hidden, "out": last[:, None]}
        draws = copies(spec, jax.tree.map(jnp.asarray, params), 15)
        found = canonicalise(draws)
        assert np.all(found.converged)
        assert spread(found.params) < 1e-9
        assert differences(canonicalise(found.params).params, found.params) < 1e-9


def test_float32_is_exact_where_nothing_scales():
    network = models.MLP(10, (64, 64), nn.tanh)
    x = np.ones((1, 8), np.float32)
    params = fill(jax.eval_shape(network.init, jax.random.key(0), x))
    spec = symmetry.infer(network.apply, params, x)
    found = canonicaliser(spec)(copies(spec, params, 7))
    assert spread(found.params) == 0


def test_float32_rounds_where_units_scale():
    network, spec = known("mlp relu")
    found = canonicaliser(spec)(copies(spec, network.params, 7))
    assert np.all(found.converged)
    assert 0 < spread(found.params) < 1e-5


def test_the_form_has_the_smallest_norm():
    """At which what comes into a unit of a ReLU and what goes out are as large."""
    shapes = {"in": (3, 4), "out": (4, 2)}
    network = plain(
        lambda p, x: nn.relu(x @ p["in"]) @ p["out"], np.ones((2, 3), "f"), **shapes
    )
    found = symmetry.canonicalise(infer(network), network.params).params
    into, out = (np.linalg.norm(found[name], axis=i) for i, name in enumerate(shapes))
    np.testing.assert_allclose(into, out, rtol=1e-5)
    norms = [np.linalg.norm(network.params[n], axis=i) for i, n in enumerate(shapes)]
    np.testing.assert_allclose(np.sum(into**2), np.sum(norms[0] * norms[1]), rtol=1e-5)


def test_example():
    assert doctest.testmod(form).failed == 0


def test_scales_that_have_a_minimum_alone_but_not_together():
    exponents = {"a": (1, 0), "b": (1, 1), "c": (-1, -1)}
    groups = (
        Group(
            "scaling",
            0,
            3,
            tuple(
                Axis(path, Factor(0, 3, 1), exponent=both[number])
                for path, both in exponents.items()
                if both[number]
            ),
        )
        for number in range(2)
    )
    spec = Spec((), tuple(groups), (), tuple((path, (3,)) for path in exponents))
    params = {path: jnp.arange(1.0, 4.0) for path in exponents}
    found = canonicaliser(spec)(copies(spec, params, 3))
    assert np.all(found.converged)
    assert spread(found.params) < 1e-5
