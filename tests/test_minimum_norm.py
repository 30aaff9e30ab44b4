"""The smallest equivalent parameters, against SciPy on the norms of scaled ones."""

import doctest
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax.flatten_util import ravel_pytree
from zoo import CASES
from zoo.network import Network, double, fill, plain

from symjax import symmetry, trees
from symjax.symmetry import Axis, Factor, Group, Spec
from symjax.symmetry.canonical import scales


ZOO = {case.name: case for case in CASES}
quickly = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0}
)


def recurrent():
    """Units that meet in one matrix, so that all of them are coupled."""

    def apply(p, x):
        hidden = jax.nn.relu(x @ p["in"])
        for _ in range(2):
            hidden = jax.nn.relu(x @ p["in"] + hidden @ p["recurrent"])
        return hidden @ p["out"]

    x = np.ones((4, 3), np.float32)
    return plain(apply, x, **{"in": (3, 6), "recurrent": (6, 6), "out": (6, 2)})


def no_bias(path):
    return "bias" not in path


def everything(path):
    del path
    return True


def minimise(network: Network, **options):
    spec = symmetry.infer(network.apply, network.params, network.x)
    run = functools.partial(symmetry.minimum_norm, spec, **options)
    return spec, run


def smallest_by_scipy(spec, params, include):
    """Newton's method on the logs of scales, from the operator of scalings alone."""
    start, unravel = ravel_pytree([jnp.zeros(group.shape) for group in spec.scalings])

    def mass(logs):
        scaled = symmetry.rescale(spec, jax.tree.map(jnp.exp, unravel(logs)), params)
        leaves = zip(trees.paths(scaled), jax.tree.leaves(scaled), strict=True)
        return sum(jnp.sum(leaf**2) for path, leaf in leaves if include(path))

    found = scipy.optimize.minimize(
        quickly(mass),
        start,
        jac=quickly(jax.grad(mass)),
        hess=quickly(jax.hessian(mass)),
        method="trust-exact",
        options={"gtol": 1e-9},
    )
    return found.x, found.fun


@pytest.mark.parametrize(
    ("name", "include"),
    [
        ("mlp relu", everything),
        ("mlp relu", no_bias),
        ("powers", everything),  # exponents other than 1 and -1
        ("reglu", everything),  # two scalings of the same units
        ("scan", everything),  # one for each layer of a stacked parameter
        ("mlp tuples", everything),  # of whole parameters, one a single number
        ("recurrent", everything),
    ],
)
def test_minimum_is_that_of_newtons_method(name, include):
    network = recurrent() if name == "recurrent" else ZOO[name].make()
    spec, run = minimise(network, include=include, tolerance=1e-11)
    with jax.enable_x64(True):
        params, x = double(network.params), double(network.x)
        found = quickly(run)(params)
        logs = np.log(ravel_pytree(found.element.scales)[0])
        expected, mass = smallest_by_scipy(spec, params, include)
        assert found.converged
        np.testing.assert_allclose(logs, expected, atol=1e-8)
        np.testing.assert_allclose(found.mass_after, mass, rtol=1e-12)
        leaves = zip(trees.paths(params), jax.tree.leaves(params), strict=True)
        before = sum(np.sum(leaf**2) for path, leaf in leaves if include(path))
        np.testing.assert_allclose(found.mass_before, before, rtol=1e-12)
        assert np.max(np.abs(logs)) > 0.1
        outputs, same = network.apply(params, x), network.apply(found.params, x)
        np.testing.assert_allclose(same, outputs, rtol=1e-10, atol=1e-12)
        assert not any(map(np.any, found.dead))
        assert not any(found.unbounded)


def test_dead_units_keep_their_scale_and_faint_ones_do_not():
    """Squares of the faint unit's weights are 0 in float32."""
    params = {
        "in": jnp.array([[1.0, 0.0, 2.0, 0.0, 3e-25]] * 2, jnp.float32),
        "out": jnp.array([[0.0], [3.0], [1.0], [0.0], [4e-25]], jnp.float32),
    }
    x = jnp.ones((3, 2))
    spec, run = minimise(
        Network(lambda p, x: jax.nn.relu(x @ p["in"]) @ p["out"], params, x)
    )
    found = quickly(run)(params)
    dead = [True, True, False, True, False]
    np.testing.assert_array_equal(found.dead[0], dead)
    (scale,) = found.element.scales
    np.testing.assert_array_equal(scale[np.array(dead)], 1)
    norms = np.linalg.norm(np.float64(found.params["in"]), axis=0)
    others = np.linalg.norm(np.float64(found.params["out"]), axis=1)
    np.testing.assert_allclose(norms[[2, 4]], others[[2, 4]], rtol=1e-6)
    assert found.converged
    assert symmetry.act(spec, found.element, params)["in"].tolist() == (
        found.params["in"].tolist()
    )


def test_a_unit_that_feeds_only_itself_is_dead():
    network = recurrent()
    others = 1 - np.eye(6, dtype=np.float32)[0]
    params = network.params | {
        "recurrent": network.params["recurrent"]
        * np.where(np.arange(6)[:, None] == 0, np.eye(6)[0], 1).astype(np.float32),
        "out": network.params["out"] * others[:, None],
    }
    _, run = minimise(network)
    found = quickly(run)(params)
    assert found.converged
    np.testing.assert_array_equal(found.dead[0], others == 0)


def test_scales_that_a_normalisation_takes_out_are_reported():
    def apply(p, x):
        units = x @ p["in"]
        units = units * jax.lax.rsqrt(jnp.mean(units**2, axis=0))
        return jax.nn.relu(units * p["gain"]) @ p["out"]

    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    network = plain(apply, x, **{"in": (3, 4), "gain": (4,), "out": (4, 2)})
    _, run = minimise(network)
    found = quickly(run)(network.params)
    assert sorted(map(bool, found.unbounded)) == [False, True]
    assert found.converged
    assert not any(map(np.any, found.dead))
    np.testing.assert_array_equal(found.params["in"], network.params["in"])
    balanced = np.linalg.norm(found.params["out"], axis=1)
    np.testing.assert_allclose(np.abs(found.params["gain"]), balanced, rtol=1e-5)


def two_sided(*exponents):
    """A spec of one group of 3 units for each `{path: exponent}`; all are vectors."""
    groups = tuple(
        Group(
            "scaling",
            0,
            3,
            tuple(
                Axis(path, Factor(0, 3, 1), exponent=exponent)
                for path, exponent in powers.items()
            ),
        )
        for powers in exponents
    )
    return Spec((), groups, (), (("a", (3,)), ("b", (3,)), ("c", (3,))))


@pytest.mark.parametrize(
    ("exponents", "options", "unbounded"),
    [
        # Together, the first without the second, they scale `a` alone.
        (({"a": 1, "b": 1, "c": -1}, {"b": 1, "c": -1}), {}, [False, True]),
        (({"a": 1, "b": -1}, {"b": 1, "c": -1}), {}, [False, False]),
        (
            ({"a": 1, "b": -1}, {"b": 1, "c": -1}),
            {"include": lambda path: path != "c"},
            [False, True],
        ),
        # Of the included parameters it moves none.
        (({"a": 1, "b": -1},), {"include": lambda path: path == "c"}, [False]),
    ],
)
def test_groups_without_a_minimum_stay_where_they_are(exponents, options, unbounded):
    spec = two_sided(*exponents)
    params = {"a": jnp.full(3, 2.0), "b": jnp.arange(1.0, 4.0), "c": jnp.full(3, 0.5)}
    found = symmetry.minimum_norm(spec, params, max_sweeps=200, **options)
    assert [bool(one) for one in found.unbounded] == unbounded
    assert found.converged
    assert found.mass_after <= found.mass_before
    for scale, still in zip(found.element.scales, unbounded, strict=True):
        assert not still or np.all(scale == 1)


def test_draws_one_by_one_and_together_and_an_early_stop():
    network = ZOO["mlp tuples"].make()
    _, run = minimise(network)
    draws = trees.stack([fill(network.params, seed) for seed in (0, 1)])
    together = quickly(jax.vmap(run))(draws)
    run = quickly(run)
    for draw in range(2):
        alone = run(jax.tree.map(lambda leaf, draw=draw: leaf[draw], draws))
        np.testing.assert_allclose(
            together.mass_after[draw], alone.mass_after, rtol=1e-6
        )
        assert together.num_sweeps[draw] == alone.num_sweeps
    assert together.num_sweeps[0] != together.num_sweeps[1]
    _, stop = minimise(network, max_sweeps=1)
    stopped = quickly(stop)(network.params)
    assert not stopped.converged
    assert stopped.num_sweeps == 1
    assert stopped.mass_after < stopped.mass_before
    not_finite = run(jax.tree.map(lambda leaf: leaf * np.nan, network.params))
    assert not not_finite.converged


def test_example():
    assert doctest.testmod(scales).failed == 0


def test_complex_weights_count_by_their_magnitude():
    params = {
        "in": jnp.array([[3.0 + 4.0j, 1.0j]]),
        "out": jnp.array([[2.0], [-1.0]]),
        "key": jax.random.key(0),
    }
    spec = symmetry.infer(
        lambda p, x: jnp.abs(x @ p["in"]) @ p["out"], params, jnp.ones((2, 1))
    )
    found = symmetry.minimum_norm(spec, params)
    np.testing.assert_allclose(found.mass_before, 25 + 1 + 4 + 1, rtol=1e-6)
    # Two products of norms, each shared out evenly.
    np.testing.assert_allclose(found.mass_after, 2 * (5 * 2) + 2 * (1 * 1), rtol=1e-5)
    with pytest.raises(TypeError, match="complex64 at `in`"):
        symmetry.canonicalise(spec, params)


def test_include_must_leave_something():
    with pytest.raises(ValueError, match="`include` must accept at least one path"):
        symmetry.minimum_norm(
            two_sided(), dict.fromkeys("abc", jnp.ones(3)), include=lambda path: False
        )
