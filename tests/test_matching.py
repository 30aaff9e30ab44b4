"""Matching by weights, against brute force, SciPy and permutations that are known."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from zoo.network import fill, inputs, plain

from symjax import symmetry, trees
from symjax.symmetry.matching import boxes, descent, gains, matcher, schedule


CASES = {case.name: case for case in zoo.CASES}


def spec_of(network):
    return symmetry.infer(network.apply, network.params, network.x)


def distance(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return sum(float(np.sum(np.square(a - b, dtype=np.float64))) for a, b in pairs)


def tanh_layer():
    """One layer of 4 units, which a bias and a gate without sign act on too."""

    def apply(p, x):
        hidden = jnp.tanh(x @ p["in"] + p["bias"]) * jax.nn.sigmoid(p["gate"])
        return hidden @ p["out"]

    shapes = {"in": (2, 4), "bias": (4,), "gate": (4,), "out": (4, 1)}
    return plain(apply, inputs(5, 2), **shapes)


def heads():
    """Three heads of 2 units each, which compete inside a head."""

    def apply(p, x):
        hidden = jax.nn.softmax(jnp.einsum("ni,ihu->nhu", x, p["in"]))
        return jnp.einsum("nhu,huo->no", hidden, p["out"])

    return plain(apply, inputs(5, 2), **{"in": (2, 3, 2), "out": (3, 2, 1)})


def every_element(spec):
    """All permutations and signs."""
    choices = [
        itertools.product(itertools.permutations(range(g.size)), repeat=g.num_copies)
        for g in spec.permutations
    ]
    signs = [itertools.product((1, -1), repeat=math.prod(g.shape)) for g in spec.signs]
    groups = (*spec.permutations, *spec.signs)
    stacked = [
        np.array(list(choice)).reshape(-1, *group.shape)
        for choice, group in zip([*choices, *signs], groups, strict=True)
    ]
    grid = np.indices([len(choice) for choice in stacked]).reshape(len(stacked), -1)
    arrays = [choice[i] for choice, i in zip(stacked, grid, strict=True)]
    count = len(spec.permutations)
    return symmetry.Element(tuple(arrays[:count]), (), tuple(arrays[count:]))


@pytest.mark.parametrize("make", [tanh_layer, heads])
def test_matches_are_as_near_as_any_element_comes(make):
    network = make()
    spec = spec_of(network)
    everything = every_element(spec)
    assert len(everything.permutations[0]) == round(math.exp(spec.log_order))
    act = jax.jit(jax.vmap(lambda e, p: symmetry.act(spec, e, p), in_axes=(0, None)))
    for seed in range(1, 6):
        other = fill(network.params, seed)
        found = symmetry.match_weights(spec, other, network.params)
        copies = act(everything, other)
        leaves = zip(*map(jax.tree.leaves, (copies, network.params)), strict=True)
        squares = sum(
            np.square(many - one, dtype=np.float64).reshape(len(many), -1).sum(axis=1)
            for many, one in leaves
        )
        reached = distance(symmetry.act(spec, found, other), network.params)
        assert reached == pytest.approx(squares.min(), rel=1e-5)


def copies_of(spec, params, num, noise, *, scale=False, seed=0):
    """Noisy copies that random elements moved, and the elements."""
    keys = jax.random.split(jax.random.key(seed), num)
    draw = functools.partial(symmetry.random_element, spec=spec, log_scale_std=2.0)
    element = jax.vmap(draw)(keys)
    if not scale:
        ones = tuple(map(jnp.ones_like, element.scales))
        element = element._replace(scales=ones)
    generator = np.random.default_rng(seed)

    def blur(leaf):
        noises = generator.normal(size=(num, *leaf.shape)) * noise * leaf.std()
        return (leaf + noises).astype(leaf.dtype)

    noisy = jax.tree.map(blur, params)
    move = jax.jit(jax.vmap(lambda e, p: symmetry.act(spec, e, p)))
    return element, move(element, noisy)


def num_recovered(spec, params, element, found):
    """How many elements undo others, so that the clean network comes back exactly."""

    def undo(first, second):
        both = symmetry.compose(spec, second, first)
        ones = tuple(map(jnp.ones_like, both.scales))
        return symmetry.act(spec, both._replace(scales=ones), params)

    back = jax.jit(jax.vmap(undo))(element, found)
    same = [
        np.all(np.asarray(many) == one, axis=tuple(range(1, many.ndim)))
        for many, one in zip(*map(jax.tree.leaves, (back, params)), strict=True)
    ]
    return np.logical_and.reduce(same).sum()


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("mlp tanh", 0.3),
        ("packed lstm", 0.3),
        ("transformer stacked", 0.1),
        ("grouped query", 0.1),
    ],
)
def test_random_copies_are_recovered_exactly(name, noise):
    network, spec = zoo.known(name)
    element, copies = copies_of(spec, network.params, 20, noise)
    found = symmetry.match_weights(spec, copies, network.params)
    assert num_recovered(spec, network.params, element, found) == 20


def test_residual_streams_are_recovered_where_the_identity_does_not_lead():
    def apply(p, x):
        stream = x @ p["in"]
        for block in ("0", "1"):
            stream = stream + jax.nn.silu(stream @ p["up" + block]) @ p["down" + block]
        return stream @ p["out"]

    shapes = {"in": (10, 30), "up0": (30, 50), "down0": (50, 30), "up1": (30, 50)}
    network = plain(apply, inputs(4, 10), **shapes, down1=(50, 30), out=(30, 10))
    spec = spec_of(network)
    element, copies = copies_of(spec, network.params, 20, 0.3)
    found = symmetry.match_weights(spec, copies, network.params)
    assert num_recovered(spec, network.params, element, found) == 20


def test_networks_are_compared_at_their_smallest_scales():
    network, spec = zoo.known("mlp relu")
    element, copies = copies_of(spec, network.params, 20, 0.1, scale=True)
    found = symmetry.match_weights(spec, copies, network.params)
    assert num_recovered(spec, network.params, element, found) == 20
    assert all(bool(jnp.all(scale == 1)) for scale in found.scales)


def test_units_that_are_alike_stay():
    network = CASES["mlp tanh"].make()
    params = jax.tree.map(np.copy, network.params)
    kernel = params["params"]["Dense_0"]["kernel"]
    # A pair of equal units and three dead ones, whose order and signs say nothing.
    dense = params["params"]
    dense["Dense_0"]["kernel"][:, 4] = kernel[:, 9]
    dense["Dense_0"]["bias"][4] = dense["Dense_0"]["bias"][9]
    dense["Dense_1"]["kernel"][4] = dense["Dense_1"]["kernel"][9]
    for dead in (2, 5, 30):
        dense["Dense_0"]["kernel"][:, dead] = 0
        dense["Dense_0"]["bias"][dead] = 0
        dense["Dense_1"]["kernel"][dead] = 0
    spec = spec_of(network)
    found = symmetry.match_weights(spec, params, params)
    stay = symmetry.identity(spec)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, stay))


def test_the_best_signs_are_those_of_brute_force():
    generator = np.random.default_rng(0)
    patterns = ((), (0,), (0, 1), (1,), (0, 2), (2,), (2, 3), (0, 1, 3))
    gain = [jnp.asarray(generator.normal(size=(6, 5))) for _ in patterns]
    best, signs = gains.best_signs(patterns, gain)

    def total(values):
        return sum(
            math.prod((values[one] for one in pattern), start=1.0) * value
            for pattern, value in zip(patterns, gain, strict=True)
        )

    every = [total(tried) for tried in itertools.product((1, -1), repeat=4)]
    np.testing.assert_allclose(best, np.max(every, axis=0), rtol=1e-5)
    np.testing.assert_allclose(total(signs), np.max(every, axis=0), rtol=1e-5)


def test_gains_are_computed_in_full_precision():
    spec = spec_of(tanh_layer())
    (step,) = schedule.plan(spec).again
    (compared,) = gains.prepare(spec, step).recipe.compared
    network = [jnp.ones(box.shape) for box in boxes.cut(spec)]
    program = str(
        jax.make_jaxpr(functools.partial(gains.gains, compared))(network, network)
    )
    full = program.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
    assert full == program.count("dot_general") > 0


@pytest.mark.parametrize("name", ["rotary halves", "separable", "concatenated"])
def test_elements_act_on_boxes_as_on_parameters(name):
    network, spec = zoo.known(name)
    element = symmetry.random_element(jax.random.key(0), spec)
    ones = tuple(map(jnp.ones_like, element.scales))
    moved = symmetry.act(spec, element._replace(scales=ones), network.params)
    before, after = (
        dict(zip(trees.paths(params), jax.tree.leaves(params), strict=True))
        for params in (network.params, moved)
    )
    for box in boxes.cut(spec):
        values = box.extract(jnp.asarray(before[box.path]))
        for place in box.signs:
            values = boxes.multiply(values, place.dims, element.signs[place.group])
        # Those inside a batch come first.
        for place in sorted(box.permutations, key=lambda place: place.group):
            permutation = element.permutations[place.group]
            values = boxes.reorder(values, place.dims, permutation)
        assert np.array_equal(values, box.extract(after[box.path]))


def test_matching_spreads_from_what_has_an_order():
    network, spec = zoo.known("mlp relu")
    plan = schedule.plan(spec)
    sides = [spec.permutations[step.groups[0]].axes[0].path for step in plan.first]
    assert [side.split("/")[1] for side in sides] == ["Dense_0", "Dense_1"]
    assert np.array_equal(plan.wakes, [[False, True], [True, False]])
    assert not plan.is_exact
    assert schedule.plan(spec_of(tanh_layer())).is_exact


@pytest.mark.parametrize("name", ["mlp relu", "residual", "transformer stacked"])
def test_steps_of_a_round_do_not_depend_on_one_another(name):
    plan = schedule.plan(zoo.known(name)[1])
    assert sorted(step for steps in plan.rounds for step in steps) == list(
        range(len(plan.again))
    )
    for steps in plan.rounds:
        alone = len(steps) == 1
        assert alone or not plan.wakes[np.ix_(steps, steps)].any()
    assert len(plan.rounds) <= len(plan.again)


def test_groups_with_others_between_them_are_matched_at_once():
    params = {name: jnp.ones((4, 4)) for name in "abcd"}

    def apply(p, x):
        for name in "abc":
            x = jnp.tanh(x @ p[name])
        return x @ p["d"]

    plan = schedule.plan(symmetry.infer(apply, params, jnp.ones((2, 4))))
    assert sorted(map(len, plan.rounds)) == [1, 2]


def test_random_starts_are_never_worse():
    network, spec = zoo.known("mlp silu")
    for seed in range(3):
        other = fill(network.params, seed + 1)
        alone = symmetry.match_weights(spec, other, network.params)
        more = symmetry.match_weights(
            spec, other, network.params, num_random_starts=8, key=jax.random.key(seed)
        )
        near, nearer = (
            distance(symmetry.act(spec, found, other), network.params)
            for found in (alone, more)
        )
        assert nearer <= near * (1 + 1e-6)


def test_no_random_start_is_another_one_again():
    """Of three networks, two each."""
    network, spec = zoo.known("mlp silu")
    draws = trees.stack([network.params] * 3)
    prepared, _ = matcher.prepare(spec, draws, 10, None)
    keys = matcher.split_key(jax.random.key(0), 2)
    orders = np.concatenate([prepared.random(key).permutations[0] for key in keys])
    assert len(np.unique(orders, axis=0)) == 6


def test_traced_networks_are_refused():
    network, spec = zoo.known("mlp relu")
    match = jax.jit(lambda p: symmetry.match_weights(spec, p, network.params))
    with pytest.raises(TypeError, match="`params` must be arrays, got some that"):
        match(network.params)


def test_parameters_of_another_network_are_refused():
    (network, spec), other = zoo.known("mlp relu"), CASES["mlp equinox"].make()
    with pytest.raises(ValueError, match=r"`params` has no leaf `params/Dense_0/bias`"):
        symmetry.match_weights(spec, other.params, network.params)
    with pytest.raises(ValueError, match=r"`params` has no leaf `params/Dense_0/bias`"):
        symmetry.match_weights(spec, network.params, other.params)
    draws = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), network.params)
    draws["params"]["Dense_1"]["bias"] = network.params["params"]["Dense_1"]["bias"]
    with pytest.raises(ValueError, match=r"shape \(2, 32\) at `params/Dense_0/bias`"):
        symmetry.match_weights(spec, draws, network.params)


def test_a_network_without_permutations_is_refused():
    network = plain(lambda p, x: x @ p["w"], inputs(4, 3), w=(3, 2))
    with pytest.raises(ValueError, match=r"`spec` must have a group of permutations"):
        symmetry.match_weights(spec_of(network), network.params, network.params)


def test_draws_that_are_not_finite_are_named():
    network, spec = zoo.known("mlp relu")
    draws = jax.tree.map(
        lambda leaf: np.tile(leaf, (2, 3) + (1,) * leaf.ndim), network.params
    )
    draws["params"]["Dense_1"]["kernel"][1, 2, 0, 0] = np.nan
    with pytest.raises(
        ValueError, match=r"`params` .* chain 1, draw 2: `params/Dense_1/kernel`"
    ):
        symmetry.match_weights(spec, draws, network.params)
    one = jax.tree.map(lambda leaf: leaf[1, 2], draws)
    with pytest.raises(ValueError, match=r"`reference` must be finite, but `params/D"):
        symmetry.match_weights(spec, network.params, one)


def test_random_starts_need_a_key():
    network = CASES["mlp relu"].make()
    with pytest.raises(ValueError, match=r"`key` must be given for 2 random starts"):
        symmetry.match_weights(
            spec_of(network), network.params, network.params, num_random_starts=2
        )


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_no_kernel_of_a_descent_is_searched_for_on_a_gpu(backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "jit", lambda function, **options: lambda: options)
    options = descent._compiled_measure.__wrapped__()()["compiler_options"]
    assert options == ({"xla_gpu_autotune_level": 0} if backend == "gpu" else None)
