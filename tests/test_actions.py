"""Operators on parameters, against loops that read a spec word by word."""

import dataclasses
import doctest
import itertools
import math
from collections import namedtuple
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree

from symjax import mesh, symmetry, trees
from symjax.symmetry import Axis, Factor, Group, Spec, actions, elements, invariance


SHAPES = {
    "in": (5, 4),
    "recurrent": (4, 4),
    "gates": (2, 13),
    "flat": (12, 2),
    "packed": (5, 18),
    "attention": (5, 2, 3),
    "stacked": (2, 5, 2, 3),
    "stacked_flat": (2, 6, 5),
    "count": (4,),
    "number": (),
    "whole": (3,),
    "untouched": (7,),
}


def axis(path, unit, batch=(), rest=(), start=0, exponent=1):
    """Factors are `(axis, size, stride)`; the start is on the axis of the unit."""
    unit, batch, rest = Factor(*unit), starmap(batch), starmap(rest)
    involved = {factor.axis for factor in (unit, *batch, *rest)}
    starts = tuple((i, start if i == unit.axis else 0) for i in sorted(involved))
    return Axis(path, unit, batch, rest, starts, exponent)


def starmap(factors):
    return tuple(Factor(*factor) for factor in factors)


def hand_written():
    """Every way in which units lie in a parameter.

    Kinds of unit: 0 plain ones, 1 heads, 2 those inside heads, 3 stacked layers (which
    are not moved), 4 heads of each layer, 5 those inside the heads of each layer, 6
    channels that were flattened with 4 positions, 7 whole parameters.
    """
    plain = [
        axis("in", (1, 4, 1)),
        axis("recurrent", (0, 4, 1)),
        axis("recurrent", (1, 4, 1), exponent=-1),
        # One place between the gates belongs to no unit.
        axis("gates", (1, 4, 1), exponent=Fraction(1, 2)),
        axis("gates", (1, 4, 1), start=5, exponent=2),
        axis("gates", (1, 4, 1), start=9, exponent=-3),
    ]
    heads = [
        *(axis("packed", (1, 2, 3), (), [(1, 3, 1)], start) for start in (0, 6, 12)),
        axis("attention", (1, 2, 1)),
    ]
    in_heads = [
        axis("packed", (1, 3, 1), [(1, 2, 3)]),
        axis("packed", (1, 3, 1), [(1, 2, 3)], start=6, exponent=-1),
        axis("attention", (2, 3, 1), [(1, 2, 1)], exponent=-2),
    ]
    layers = [(0, 2, 1)]
    layer_heads = [
        axis("stacked", (2, 2, 1), layers),
        axis("stacked_flat", (1, 2, 3), layers, [(1, 3, 1)], exponent=-1),
    ]
    in_layer_heads = [
        axis("stacked", (3, 3, 1), [*layers, (2, 2, 1)], exponent=3),
        axis("stacked_flat", (1, 3, 1), [*layers, (1, 2, 3)], exponent=-1),
    ]
    flat = [axis("flat", (0, 3, 1), (), [(0, 4, 3)])]
    whole = [
        axis("number", (0, 1, 1)),
        axis("whole", (0, 1, 1), (), [(0, 3, 1)], exponent=-1),
    ]
    kinds = [
        (5, 3, in_layer_heads, (3, 4), (2, 2)),
        (4, 2, layer_heads, (3,), (2,)),
        (2, 3, in_heads, (1,), (2,)),
        (0, 4, plain, (), ()),
        (1, 2, heads, (), ()),
        (6, 3, flat, (), ()),
        (7, 1, whole, (), ()),
    ]

    def groups(kind, also=()):
        fits = lambda axis: kind != "sign" or axis.exponent.denominator == 1
        return tuple(
            Group(
                kind,
                units,
                size,
                tuple(filter(fits, (*axes, *(also if units == 0 else ())))),
                batch,
                shape,
            )
            for units, size, axes, batch, shape in kinds
            if size > 1 or kind != "permutation"
        )

    return Spec(
        groups("permutation", [axis("count", (0, 4, 1))]),
        groups("scaling"),
        groups("sign"),
        tuple(SHAPES.items()),
    )


SPEC = hand_written()


def filled(seed=0, dtype=np.float32):
    generator = np.random.default_rng(seed)
    params = {
        path: np.asarray(generator.normal(size=shape), dtype)
        for path, shape in SHAPES.items()
    }
    return params | {"count": np.arange(4, dtype=np.int32)}


def element(seed=0, spec=SPEC):
    return symmetry.random_element(jax.random.key(seed), spec)


def stack(trees):
    """On the host: JAX compiles one program for each shape."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def places(axis, batch, unit, shape):
    """The indices of all of a parameter that belongs to one unit, in a fixed order."""
    inside = itertools.product(*(range(factor.size) for factor in axis.rest))
    involved = dict(axis.starts)
    outside = [range(1) if i in involved else range(n) for i, n in enumerate(shape)]
    for rest, index in itertools.product(inside, itertools.product(*outside)):
        index = [involved.get(i, 0) + place for i, place in enumerate(index)]
        factors = (*axis.batch, axis.unit, *axis.rest)
        for factor, number in zip(factors, (*batch, unit, *rest), strict=True):
            index[factor.axis] += factor.stride * number
        yield tuple(index)


def loop(groups, values, params):
    """Act with one kind of group, one scalar at a time."""
    params = {path: np.array(leaf) for path, leaf in params.items()}
    for group, value in zip(groups, values, strict=True):
        for axis in group.axes:
            new = params[axis.path]
            new = new.reshape(new.shape or (1,))
            old = new.copy()
            for batch in np.ndindex(*group.batch_shape):
                for unit in range(group.size):
                    to = list(places(axis, batch, unit, new.shape))
                    if group.kind == "permutation":
                        source = places(axis, batch, value[*batch, unit], new.shape)
                        for into, out_of in zip(to, source, strict=True):
                            new[into] = old[out_of]
                    else:
                        for into in to:
                            new[into] *= value[*batch, unit] ** float(axis.exponent)
    return params


def assert_same(one, other, rtol=1e-6):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for path, a, b in zip(
        trees.paths(one), jax.tree.leaves(one), jax.tree.leaves(other), strict=True
    ):
        assert np.asarray(a).dtype == np.asarray(b).dtype, path
        np.testing.assert_allclose(a, b, rtol=rtol, err_msg=path)


@pytest.mark.parametrize("module", [actions, elements, invariance])
def test_examples_in_the_docstrings(module):
    tested = doctest.testmod(module)
    assert tested.attempted > 0
    assert tested.failed == 0


def test_each_verb_does_what_the_spec_says_and_act_does_all_of_them():
    params, drawn = filled(), element()
    host = jax.tree.map(np.asarray, drawn)
    permuted = loop(SPEC.permutations, host.permutations, params)
    rescaled = loop(SPEC.scalings, host.scales, params)
    flipped = loop(SPEC.signs, host.signs, params)
    assert_same(symmetry.permute(SPEC, drawn.permutations, params), permuted, 0)
    assert_same(symmetry.rescale(SPEC, drawn.scales, params), rescaled)
    assert_same(symmetry.flip(SPEC, drawn.signs, params), flipped, 0)
    both = loop(SPEC.signs, host.signs, rescaled)
    both = loop(SPEC.permutations, host.permutations, both)
    assert_same(symmetry.act(SPEC, drawn, params), both)
    assert_same(symmetry.act(SPEC, host, params), both)


def test_heads_carry_their_units_along():
    """The convention of nested groups, by hand: units move first, then their blocks."""
    heads = Group("permutation", 0, 2, (axis("w", (0, 2, 2), (), [(0, 2, 1)]),))
    inside = Group(
        "permutation", 1, 2, (axis("w", (0, 2, 1), [(0, 2, 2)]),), (0,), (2,)
    )
    spec = Spec((inside, heads), (), (), (("w", (4,)),))
    swapped = [jnp.array([[1, 0], [0, 1]]), jnp.array([1, 0])]
    moved = symmetry.permute(spec, swapped, {"w": jnp.array([1, 2, 3, 4])})
    assert moved["w"].tolist() == [3, 4, 2, 1]


def test_group_laws():
    with jax.enable_x64(True):
        params = filled(dtype=np.float64)
        one, two, three = (element(seed) for seed in range(3))
        identity = symmetry.identity(SPEC)

        def compose(second, first):
            return symmetry.compose(SPEC, second, first)

        def act(element, params=params):
            return symmetry.act(SPEC, element, params)

        def assert_exact(one, other):
            assert_same(one, other, 1e-13)

        assert_exact(act(identity), params)
        assert_exact(act(compose(two, one)), act(two, act(one)))
        last, first = compose(three, two), compose(two, one)
        assert_exact(compose(three, first), compose(last, one))
        assert_exact(compose(one, identity), one)
        assert_exact(compose(identity, one), one)
        back = symmetry.inverse(SPEC, one)
        assert_exact(compose(back, one), identity)
        assert_exact(compose(one, back), identity)
        assert_exact(act(back, act(one)), params)


def test_a_spec_that_is_not_closed_is_refused_by_compose():
    """Swapping units in each head anew leaves no one scale a unit for all heads."""
    in_heads = next(group for group in SPEC.permutations if group.units == 2)
    scaling = Group("scaling", 2, 3, (axis("attention", (2, 3, 1)),))
    spec = Spec((in_heads,), (scaling,), (), SPEC.shapes)
    one = symmetry.identity(spec)
    with pytest.raises(
        ValueError, match="`spec` must have batches that hold their own"
    ):
        symmetry.compose(spec, one, one)


def dense(params, x):
    """Rows of each matrix are the layer's units, as in the papers."""
    for weight, bias in params[:-1]:
        x = jax.nn.relu(weight @ x + bias[:, None])
    weight, bias = params[-1]
    return weight @ x + bias[:, None]


def convolution(params, x):
    """Kernels are `(out, in, height, width)`, images `(example, channel, ...)`."""
    for weight, bias in params[:-1]:
        x = jax.lax.conv(x, weight, (1, 1), "SAME") + bias[:, None, None]
        x = jax.nn.relu(x)
    weight, bias = params[-1]
    return jax.lax.conv(x, weight, (1, 1), "SAME") + bias[:, None, None]


@pytest.mark.parametrize(
    ("apply", "kernel", "x"), [(dense, (), (3, 9)), (convolution, (3, 3), (2, 3, 5, 5))]
)
def test_scalings_and_permutations_are_the_operators_of_laurent_et_al(apply, kernel, x):
    """T_s: rows of a layer times lambda, columns of the next over it; T_p: pi, pi^T.

    lambda scales the units as numbered before pi moves them.
    """
    generator = np.random.default_rng(0)
    sizes = [3, 4, 6, 2]
    with jax.enable_x64(True):
        params = [
            (
                generator.normal(size=(rows, columns, *kernel)),
                generator.normal(size=rows),
            )
            for columns, rows in itertools.pairwise(sizes)
        ]
        x = generator.normal(size=x)
        spec = symmetry.infer(apply, params, x)
        drawn = symmetry.random_element(jax.random.key(0), spec)
        assert [len(one) for one in drawn.permutations] == sizes[1:-1]
        before = [np.eye(3), *map(np.diag, drawn.scales), np.eye(2)]
        pi = [np.eye(3), *(np.eye(len(p))[p] for p in drawn.permutations), np.eye(2)]
        moved = symmetry.act(spec, drawn, params)
        for number, (weight, bias) in enumerate(params):
            rows = pi[number + 1] @ before[number + 1]
            columns = np.linalg.inv(before[number]) @ pi[number].T
            expected = np.einsum("ij,jk...,kl->il...", rows, weight, columns)
            np.testing.assert_allclose(moved[number][0], expected, rtol=1e-13)
            np.testing.assert_allclose(moved[number][1], rows @ bias, rtol=1e-13)
        change = np.abs(apply(moved, x) - apply(params, x)).max()
        assert change < 1e-12 * np.abs(apply(params, x)).max()


def test_draws_are_leading_axes():
    drawn = [jax.tree.map(np.asarray, element(seed)) for seed in range(3)]
    params = [filled(seed) for seed in range(3)]
    apart = [symmetry.act(SPEC, *pair) for pair in zip(drawn, params, strict=True)]
    mapped = jax.vmap(lambda *pair: symmetry.act(SPEC, *pair))
    assert_same(mapped(stack(drawn), stack(params)), stack(apart))
    for_all = jax.vmap(lambda params: symmetry.act(SPEC, drawn[0], params))
    assert_same(for_all(stack([params[0]] * 2)), stack([apart[0]] * 2))
    composed = jax.vmap(lambda *pair: symmetry.compose(SPEC, *pair))
    pairs = zip(drawn, drawn[::-1], strict=True)
    apart = [symmetry.compose(SPEC, *pair) for pair in pairs]
    assert_same(composed(stack(drawn), stack(drawn[::-1])), stack(apart))


def test_gradients_of_parameters_and_scales():
    """Against central differences along random directions."""
    with jax.enable_x64(True):
        params, drawn = filled(dtype=np.float64), element()
        count = {"count": params.pop("count")}
        weights = filled(7, np.float64)

        def dot(params, scales):
            moved = symmetry.act(SPEC, drawn._replace(scales=scales), params | count)
            return sum(jnp.vdot(weights[path], moved[path]) for path in params)

        at, unravel = ravel_pytree((params, drawn.scales))
        value = jax.jit(lambda flat: dot(*unravel(flat)))
        slopes = jax.jit(jax.grad(value))(at)
        for direction in np.random.default_rng(0).normal(size=(5, at.size)):
            step = 1e-6 * direction
            expected = (value(at + step) - value(at - step)) / 2e-6
            np.testing.assert_allclose(slopes @ direction, expected, rtol=1e-7)


def test_structure_dtypes_and_untouched_leaves_are_kept():
    layer = namedtuple("layer", "weight steps")
    params = {
        "in": jnp.linspace(-3, 3, 12, dtype=jnp.bfloat16).reshape(3, 4),
        "hidden": [layer(jnp.ones((4, 2), jnp.float16), jnp.arange(4)), None],
        "other": (jnp.ones(4, jnp.int8), np.ones(2)),
    }
    plain = (axis("in", (1, 4, 1)), axis("hidden/0/weight", (0, 4, 1), exponent=-1))
    spec = Spec(
        (Group("permutation", 0, 4, (*plain, axis("hidden/0/steps", (0, 4, 1)))),),
        (Group("scaling", 0, 4, plain),),
        (Group("sign", 0, 4, plain),),
        tuple(zip(trees.paths(params), trees.shapes(params), strict=True)),
    )
    drawn = element(spec=spec)._replace(permutations=(jnp.array([2, 3, 1, 0]),))
    moved = symmetry.act(spec, drawn, params)
    assert jax.tree.structure(moved) == jax.tree.structure(params)
    assert moved["other"][0] is params["other"][0]
    assert moved["other"][1] is params["other"][1]
    assert jax.tree.map(jnp.result_type, moved) == jax.tree.map(jnp.result_type, params)
    assert moved["hidden"][0].steps.tolist() == [2, 3, 1, 0]
    # Rounded to 8 bits once: the scale is not.
    wide = params["in"].astype(jnp.float32) * drawn.scales[0] * drawn.signs[0]
    once = wide[:, drawn.permutations[0]].astype(jnp.bfloat16)
    assert jnp.array_equal(moved["in"], once)


def test_draws_stay_on_their_devices():
    """Each device acts on its own chains: no collectives at all."""
    made = mesh.make_mesh(8)
    keys = jax.random.split(jax.random.key(0), 16)
    drawn = jax.vmap(lambda key: symmetry.random_element(key, SPEC))(keys)
    params = stack([filled(seed) for seed in range(16)])
    drawn, params = mesh.place_chains(made, (drawn, params))
    mapped = jax.jit(jax.vmap(lambda *pair: symmetry.act(SPEC, *pair)))
    compiled = mapped.lower(drawn, params).compile().as_text()
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in compiled
    for path, leaf in mapped(drawn, params).items():
        assert leaf.sharding.is_equivalent_to(params[path].sharding, leaf.ndim), path
        assert not leaf.sharding.is_fully_replicated


def test_index_arrays_are_as_small_as_the_axes_that_move():
    big = 50
    shapes = (("w", (big, 6, big)), ("heads", (big, 2, 3)))
    group = Group(
        "permutation",
        1,
        3,
        (
            axis("w", (1, 3, 1), [(1, 2, 3)]),
            axis("heads", (2, 3, 1), [(1, 2, 1)]),
        ),
        (0,),
        (2,),
    )
    spec = Spec((group,), (), (), shapes)
    params = {path: jnp.ones(shape) for path, shape in shapes}
    permutation = symmetry.identity(spec).permutations
    jaxpr = str(
        jax.make_jaxpr(lambda p: symmetry.permute(spec, permutation, p))(params)
    )
    held = [line for line in jaxpr.splitlines() if f"i32[{big}" in line]
    assert "gather" in jaxpr
    assert not held


def network(params, x):
    """Two hidden layers and outputs of two kinds, one of them nearly zero."""
    hidden = jnp.tanh(jax.nn.relu(x @ params["a"]) @ params["b"])
    outputs = hidden @ params["c"]
    return outputs, 1e-9 * outputs, jnp.argmax(outputs, axis=1)


def network_and_spec():
    generator = np.random.default_rng(1)
    shapes = {"a": (3, 4), "b": (4, 6), "c": (6, 2)}
    params = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    x = generator.normal(size=(8, 3))
    relu = (axis("a", (1, 4, 1)), axis("b", (0, 4, 1), exponent=-1))
    tanh = (axis("b", (1, 6, 1)), axis("c", (0, 6, 1)))
    spec = Spec(
        (Group("permutation", 0, 4, relu), Group("permutation", 1, 6, tanh)),
        (Group("scaling", 0, 4, relu),),
        (Group("sign", 1, 6, tanh),),
        tuple(shapes.items()),
    )
    return params, x, spec


def check(spec, params, x, apply=network, **options):
    key = jax.random.key(0)
    return symmetry.check_invariance(apply, spec, params, x, key, **options)


def test_invariance_of_a_spec_that_fits():
    with jax.enable_x64(True):
        params, x, spec = network_and_spec()
        found = check(spec, params, x)
        assert found.per_group.shape == found.moved.shape == (4,)
        assert 0 < found.largest < 1e-12
        assert np.all(found.per_group <= found.largest)
        assert np.all(found.moved > 0.1)
        still = check(spec, jax.tree.map(np.zeros_like, params), x)
        assert not np.any(still.moved)


def test_invariance_shows_which_groups_do_not_fit():
    params, x, spec = network_and_spec()
    first, second = spec.permutations
    wrong = dataclasses.replace(
        spec,
        permutations=(first, dataclasses.replace(second, axes=second.axes[1:])),
        scalings=tuple(
            dataclasses.replace(group, axes=group.axes[:1]) for group in spec.scalings
        ),
    )
    found = check(wrong, params, x)
    assert np.all(found.per_group[jnp.array([1, 2])] > 1e-2)
    assert np.all(found.per_group[jnp.array([0, 3])] < 1e-5)
    assert found.largest >= found.per_group.max()


def test_the_worst_element_counts():
    """A third of all permutations bring each of three units to where one is read."""
    group = Group("permutation", 0, 3, (axis("w", (0, 3, 1)),))
    spec = Spec((group,), (), (), (("w", (3,)),))
    for seed in range(5):
        found = symmetry.check_invariance(
            lambda params, x: params["w"][2] * x,
            spec,
            {"w": jnp.array([1.0, 2.0, 4.0])},
            jnp.ones(1),
            jax.random.key(seed),
            num_elements=40,
        )
        np.testing.assert_allclose(found.per_group, [0.75])
        np.testing.assert_allclose(found.moved, [0.75])


def test_invariance_compares_each_output_with_its_own_size():
    """An output a billion times smaller than the others shows in full."""
    params, x, spec = network_and_spec()

    def apply(params, x):
        hidden = x @ params["a"]
        return network(params, x)[0], 1e-9 * hidden, jnp.zeros(3), jnp.zeros(0)

    found = check(spec, params, x, apply=apply)
    assert np.all(found.per_group[jnp.array([0, 2])] > 0.1)
    assert np.all(found.per_group[jnp.array([1, 3])] < 1e-5)
    nan = check(spec, params | {"a": params["a"] * np.nan}, x, apply=apply)
    assert np.isnan(nan.largest)


def test_every_element_that_is_tried_moves_something():
    """Half of all permutations of two units are the identity, and a quarter of signs.

    Of the four in a batch as well: a copy that stays hides what it is of.
    """
    units = axis("w", (1, 2, 1), [(0, 4, 1)])
    spec = Spec(
        (Group("permutation", 0, 2, (units,), (1,), (4,)),),
        (),
        (Group("sign", 0, 2, (units,), (1,), (4,)),),
        (("w", (4, 2)),),
    )
    params = {"w": jnp.arange(1.0, 9).reshape(4, 2)}

    def least(moved, x):
        """Two where every row moved by one at least, and otherwise less."""
        change = jnp.max(jnp.abs(moved["w"] - params["w"]), axis=1)
        return 1 + jnp.minimum(jnp.min(change), 1)

    keys = jax.random.split(jax.random.key(0), 8)
    tried = lambda key: symmetry.check_invariance(
        least, spec, params, 0.0, key, num_elements=1
    )
    found = jax.jit(jax.vmap(tried))(keys)
    assert np.all(found.per_group == 1)
    assert np.all(found.moved > 0)


def test_keys_among_parameters_and_outputs_are_compared():
    params, x, spec = network_and_spec()
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (*spec.shapes, ("keys", (4,)))
    params["keys"] = keys
    still = dataclasses.replace(spec, shapes=shapes)
    apply = lambda params, x: (network(params, x), params["keys"])
    assert check(still, params, x, apply=apply, num_elements=1).largest < 1e-5
    first = spec.permutations[0]
    moving = dataclasses.replace(first, axes=(*first.axes, axis("keys", (0, 4, 1))))
    found = check(
        dataclasses.replace(still, permutations=(moving, spec.permutations[1])),
        params, x, apply=apply,
    )  # fmt: skip
    assert found.per_group[0] > 1e-2


@pytest.mark.parametrize("narrow", ["float64", "float32", "float16", "bfloat16"])
def test_the_narrowest_type_is_found_wherever_it_is(narrow):
    def layer(w, h):
        return jnp.tanh(h.astype(narrow) @ w.astype(narrow)).astype(h.dtype)

    def scanned(w, h):
        return jax.lax.scan(lambda h, w: (layer(w, h), None), h, w[None])[0]

    def branched(w, h):
        return jax.lax.cond(h[0, 0] > 0, layer, lambda w, h: h, w, h)

    def mapped(w, h):
        return jax.vmap(jax.jit(layer), (None, 0))(w, h[None])

    for apply in (
        layer,
        jax.jit(layer),
        jax.checkpoint(layer),
        scanned,
        branched,
        mapped,
    ):
        with jax.enable_x64(True):
            found = invariance.narrowest_dtype(
                apply, jnp.ones((3, 3)), jnp.ones((3, 3))
            )
        assert found == narrow


def test_random_elements_are_uniform_independent_and_log_normal():
    num_draws = 20_000
    inside = (axis("w", (1, 3, 1), [(0, 2, 1)]),)
    whole = (axis("w", (1, 3, 1)),)
    spec = Spec(
        (
            Group("permutation", 0, 3, inside, (1,), (2,)),
            Group("permutation", 2, 3, whole),
        ),
        (Group("scaling", 0, 3, whole), Group("scaling", 2, 3, whole)),
        (Group("sign", 0, 3, whole), Group("sign", 2, 3, whole)),
        (("w", (2, 3)),),
    )
    keys = jax.random.split(jax.random.key(0), num_draws)
    draw = lambda key: symmetry.random_element(key, spec, log_scale_std=0.2)
    drawn = jax.tree.map(np.asarray, jax.vmap(draw)(keys))
    # Three permutations of three units, and six signs: 216 and 64 cells.
    units = [*np.swapaxes(drawn.permutations[0], 0, 1), drawn.permutations[1]]
    ranks = [3 * one[:, 0] + one[:, 1] for one in units]
    cells = np.unique(ranks, axis=1, return_counts=True)[1]
    assert len(cells) == 6**3
    assert scipy.stats.chisquare(cells).pvalue > 1e-4
    signs = np.unique(np.concatenate(drawn.signs, axis=1), axis=0, return_counts=True)[
        1
    ]
    assert len(signs) == 2**6
    assert scipy.stats.chisquare(signs).pvalue > 1e-4
    logs = np.log(np.concatenate(drawn.scales, axis=1))
    assert scipy.stats.kstest(logs.ravel() / 0.2, "norm").pvalue > 1e-4
    # Ranks within a permutation depend on each other; nothing else may.
    places = np.argsort(np.concatenate(units, axis=1).reshape(-1, 3, 3), axis=-1)
    everything = np.c_[logs, *drawn.signs, places.reshape(num_draws, 9)]
    between = np.kron(np.eye(7), np.ones((3, 3))) == 0
    between[:12, :12] = ~np.eye(12, dtype=bool)
    correlation = np.corrcoef(everything.T)[between]
    assert np.abs(correlation).max() < 5 / math.sqrt(num_draws)


def test_transpositions_of_an_element_are_summed_over_groups_and_copies():
    drawn = element()
    cycles = [
        symmetry.cycles(one)
        for group, array in zip(SPEC.permutations, drawn.permutations, strict=True)
        for one in np.asarray(array).reshape(-1, group.size)
    ]
    expected = sum(len(cycle) - 1 for one in cycles for cycle in one)
    assert expected > 0
    assert symmetry.total_transpositions(drawn) == expected
    both = stack([drawn, symmetry.identity(SPEC)])
    assert jax.vmap(symmetry.total_transpositions)(both).tolist() == [expected, 0]


def test_parameters_of_another_network_are_refused():
    params = filled()
    with pytest.raises(ValueError, match=r"shape \(5, 3\) at `in`, .* with \(5, 4\)"):
        symmetry.act(SPEC, element(), params | {"in": params["in"][:, :3]})
    stacked = stack([params])
    with pytest.raises(ValueError, match=r"use `jax.vmap` over them"):
        jax.jit(lambda p: symmetry.flip(SPEC, element().signs, p))(stacked)


def test_elements_of_another_spec_are_refused():
    params, drawn = filled(), element()
    with pytest.raises(
        ValueError, match="`scales` must hold one array for each of the 7"
    ):
        symmetry.act(SPEC, drawn._replace(scales=drawn.scales[:-1]), params)
    shorter = (*drawn.permutations[:3], jnp.arange(3), *drawn.permutations[4:])
    message = r"`permutations\[3\]` must have shape \(4,\), .* on `in`, got \(3,\)"
    with pytest.raises(ValueError, match=message):
        symmetry.act(SPEC, drawn._replace(permutations=shorter), params)
    for wrong in (drawn._replace(permutations=shorter), stack([drawn])):
        with pytest.raises(ValueError, match="must have shape"):
            symmetry.compose(SPEC, drawn, wrong)
        with pytest.raises(ValueError, match="must have shape"):
            symmetry.compose(SPEC, wrong, drawn)
        with pytest.raises(ValueError, match="must have shape"):
            symmetry.inverse(SPEC, wrong)


def test_integers_are_permuted_but_not_scaled():
    params = filled()
    params["in"] = params["in"].astype(np.int32)
    with pytest.raises(TypeError, match="`params` must have floating-point .* at `in`"):
        symmetry.rescale(SPEC, element().scales, params)
    moved = symmetry.permute(SPEC, element().permutations, params)
    assert moved["in"].dtype == jnp.int32


def test_random_scales_of_large_exponents_stay_in_range():
    def apply(p, x):
        return jnp.abs(x @ p["in"]) ** (1 / 128) @ p["out"]

    params = {"in": jnp.ones((3, 5)), "out": jnp.ones((5, 2))}
    spec = symmetry.infer(apply, params, jnp.ones((4, 3)))
    element = symmetry.random_element(jax.random.key(0), spec)
    moved = symmetry.act(spec, element, params)
    assert np.ptp(np.log(np.abs(moved["in"]))) < 5
    assert np.ptp(np.log(np.abs(moved["in"]))) > 0.1
