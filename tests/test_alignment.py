"""Alignment of many draws, to one network, to their mean and to one another."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from zoo.network import fill, inputs, plain

from symjax import symmetry
from symjax.symmetry.matching import assignment


CASES = {case.name: case for case in zoo.CASES}


def tanh_network():
    def apply(p, x):
        hidden = jnp.tanh(jnp.tanh(x @ p["in"] + p["bias"]) @ p["between"])
        return hidden @ p["out"]

    shapes = {"in": (4, 9), "bias": (9,), "between": (9, 7), "out": (7, 3)}
    return plain(apply, inputs(5, 4), **shapes)


@pytest.fixture(scope="module")
def network():
    return tanh_network()


@pytest.fixture(scope="module")
def spec(network):
    return symmetry.infer(network.apply, network.params, network.x)


def draws_near(spec, params, leading, noise):
    """Random copies of noisy parameters, with leading axes."""
    generator = np.random.default_rng(0)

    def blur(leaf):
        return leaf + np.float32(noise) * generator.normal(
            size=(*leading, *leaf.shape)
        ).astype(np.float32)

    keys = jax.random.split(jax.random.key(0), leading)
    move = lambda key, one: symmetry.act(spec, symmetry.random_element(key, spec), one)
    for _ in leading:
        move = jax.vmap(move)
    return move(keys, jax.tree.map(blur, params))


def distances(draws, reference, num_leading):
    total = 0
    for many, one in zip(*map(jax.tree.leaves, (draws, reference)), strict=True):
        square = np.square(np.asarray(many, np.float64) - one)
        total += square.sum(axis=tuple(range(num_leading, square.ndim)))
    return np.sqrt(total)


def test_chains_come_near_the_reference_and_stay_the_same_functions(network, spec):
    draws = draws_near(spec, network.params, (2, 5), 0.2)
    aligned = symmetry.rebasin(spec, draws, network.params)
    before, after = (
        distances(one, network.params, 2) for one in (draws, aligned.params)
    )
    np.testing.assert_allclose(aligned.distance_before, before, rtol=1e-5)
    np.testing.assert_allclose(aligned.distance_after, after, rtol=1e-5)
    assert np.all(after < 0.25 * np.sqrt(4 * 9 + 9 + 9 * 7 + 7 * 3))
    assert np.all(before > 2 * after)
    apply = jax.vmap(jax.vmap(network.apply, (0, None)), (0, None))
    np.testing.assert_allclose(
        apply(aligned.params, network.x), apply(draws, network.x), atol=1e-5
    )
    assert aligned.converged.shape == aligned.num_sweeps.shape == (2, 5)
    assert aligned.converged.all()


def test_draws_are_aligned_alike_alone_and_together(network, spec):
    draws = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(3), 7)
    )
    together = symmetry.rebasin(spec, draws, network.params)
    # So little memory that only one draw fits.
    in_turn = symmetry.rebasin(spec, draws, network.params, max_bytes=1)
    for one, other in zip(*map(jax.tree.leaves, (together, in_turn)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for number in range(7):
        draw = jax.tree.map(lambda leaf, n=number: leaf[n], draws)
        alone = symmetry.rebasin(spec, draw, network.params)
        assert jax.tree.all(
            jax.tree.map(
                lambda a, b, n=number: np.array_equal(a, b[n]),
                alone.params,
                together.params,
            )
        )


@pytest.mark.parametrize("activation", [jax.nn.silu, jnp.tanh])
def test_a_unit_far_larger_than_others_does_not_hide_them(activation):
    generator = np.random.default_rng(0)
    params = {
        "in": generator.normal(size=(10, 32)).astype(np.float32),
        "out": generator.normal(size=(32, 3)).astype(np.float32),
    }
    params["in"][:, 0] *= 1e4
    params["out"][0] *= 1e4

    def apply(p, x):
        return activation(x @ p["in"]) @ p["out"]

    spec = symmetry.infer(apply, params, jnp.ones((4, 10)))
    element = symmetry.random_element(jax.random.key(1), spec)
    # Where it is in its place already, what the others gain is little beside it.
    for moved in (
        symmetry.act(spec, element, params),
        symmetry.permute(spec, [np.r_[0, 2:32, 1]], params),
    ):
        aligned = symmetry.rebasin(spec, moved, params)
        assert np.array_equal(aligned.params["in"], params["in"])


def test_no_step_parts_networks_whose_units_meet_in_one_matrix():
    """What pairs of units gain there depends on the other pairs."""

    def apply(p, x):
        hidden = jax.nn.silu(x @ p["in"])
        return jax.nn.silu(x @ p["in"] + hidden @ p["recurrent"]) @ p["out"]

    shapes = {"in": (1, 6), "recurrent": (6, 6), "out": (6, 1)}
    network = plain(apply, inputs(5, 1), **shapes)
    spec = symmetry.infer(apply, network.params, network.x)
    draws = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(0), 60)
    )
    for max_sweeps in (1, 100):
        aligned = symmetry.rebasin(spec, draws, network.params, max_sweeps=max_sweeps)
        assert np.all(aligned.distance_after <= aligned.distance_before * (1 + 1e-6))
    assert np.all(aligned.converged)


def test_settings_of_the_thread_hold_for_all_parts(network, spec):
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: np.float64(leaf) / 3, network.params)
        draws = jax.device_get(draws_near(spec, params, (6,), 0.0))
        aligned = symmetry.rebasin(spec, draws, params, max_bytes=1)
        for many, one in zip(
            *map(jax.tree.leaves, (aligned.params, params)), strict=True
        ):
            assert many.dtype == np.float64
            assert np.array_equal(many, np.broadcast_to(one, many.shape))


def test_masks_do_not_count_as_distance(network, spec):
    params = network.params | {"mask": np.ones(3, bool)}
    spec = symmetry.infer(
        lambda p, x: network.apply({k: p[k] for k in network.params}, x),
        params,
        network.x,
    )
    aligned = symmetry.rebasin(spec, params, params)
    assert aligned.distance_before == aligned.distance_after == 0
    assert aligned.params["mask"].dtype == bool


def test_draws_share_calls_of_the_solver_until_they_are_done(
    network, spec, monkeypatch
):
    draws = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(3), 7)
    )
    solve, counts = assignment.solve, []

    def counting(gains):
        counts.append(len(gains))
        return solve(gains)

    monkeypatch.setattr(assignment, "solve", counting)
    symmetry.rebasin(spec, draws, network.params)
    assert counts[:2] == [7, 7]
    # From each start it ends with those draws alone that took longest.
    assert min(counts) < 7
    assert sum(counts) < 0.9 * 7 * len(counts)


def fill_like(params, key):
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def test_arrays_stay_where_they_are(network, spec):
    on_device = draws_near(spec, network.params, (3,), 0.2)
    on_host = jax.device_get(on_device)
    for draws, kind in ((on_device, jax.Array), (on_host, np.ndarray)):
        aligned = symmetry.rebasin(spec, draws, network.params)
        assert all(isinstance(leaf, kind) for leaf in jax.tree.leaves(aligned.params))


def test_the_mean_draws_all_to_it(network, spec):
    draws = draws_near(spec, network.params, (4, 6), 0.3)
    aligned = symmetry.align_to_mean(spec, draws)
    assert aligned.converged
    assert np.all(np.diff(aligned.spread) <= 0)
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64).reshape(24, *leaf.shape[2:]),
        aligned.params,
    )
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), flat)
    spread = np.sqrt(np.mean(distances(flat, mean, 1) ** 2))
    assert aligned.spread[-1] == pytest.approx(spread, rel=1e-4)
    # Were all draws near one copy, noise alone would part them from their mean.
    num_weights = 4 * 9 + 9 + 9 * 7 + 7 * 3
    assert spread == pytest.approx(0.3 * np.sqrt(num_weights * 23 / 24), rel=0.1)


def test_rounds_that_move_draws_bring_them_nearer(network, spec):
    draws = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(5), 12)
    )
    aligned = symmetry.align_to_mean(spec, draws)
    assert len(aligned.spread) > 2
    assert np.all(np.diff(aligned.spread) < 0)
    assert aligned.converged
    stopped = symmetry.align_to_mean(spec, draws, max_rounds=2)
    assert not stopped.converged
    assert len(stopped.spread) == 2


def total_product(draws):
    """The sum of products over all pairs of networks."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(draws)]
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    return np.sum(flat @ flat.T) - np.sum(flat * flat)


def test_draws_are_compared_at_other_scales_but_keep_their_own():
    """A rescaled draw is none of the posterior: its numbers come elsewhere, no more."""
    shapes = {"in": (3, 6), "out": (6, 2)}
    network = plain(
        lambda p, x: jax.nn.relu(x @ p["in"]) @ p["out"], inputs(5, 3), **shapes
    )
    spec = symmetry.infer(network.apply, network.params, network.x)
    assert spec.scalings
    draws = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(3), 4)
    )
    for aligned in (
        symmetry.rebasin(spec, draws, network.params),
        symmetry.align_to_mean(spec, draws),
        symmetry.synchronise(spec, draws),
    ):
        assert all(np.all(scale == 1) for scale in aligned.element.scales)
        for name, leaf in aligned.params.items():
            assert np.any(leaf != draws[name])
            one, other = (
                np.sort(a.reshape(4, -1), axis=1) for a in (leaf, draws[name])
            )
            np.testing.assert_array_equal(one, other)


def test_synchronised_networks_are_as_near_as_elements_can_bring_them():
    """Against brute force: four networks of one hidden layer with three units."""
    shapes = {"in": (2, 3), "out": (3, 1)}
    network = plain(
        lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"], inputs(5, 2), **shapes
    )
    spec = symmetry.infer(network.apply, network.params, network.x)
    networks = [fill(network.params, seed) for seed in range(3)]
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), *networks)
    copies = []
    for one in networks:
        copies.append(
            [
                {
                    "in": one["in"][:, list(order)] * signs,
                    "out": one["out"][list(order)] * np.array(signs)[:, None],
                }
                for order in itertools.permutations(range(3))
                for signs in itertools.product((1, -1), repeat=3)
            ]
        )
    flat = [
        np.array([np.concatenate([c["in"].ravel(), c["out"].ravel()]) for c in group])
        for group in copies
    ]
    first = flat[0][0]
    best = max(
        float(np.max(first @ two + (first + two) @ flat[2].T)) for two in flat[1]
    )
    found = symmetry.synchronise(spec, stack)
    assert found.converged
    assert total_product(found.params) / 2 == pytest.approx(best, rel=1e-5)


def test_maps_between_synchronised_networks_agree_around_cycles(network, spec):
    stack = jax.vmap(lambda key: fill_like(network.params, key))(
        jax.random.split(jax.random.key(7), 4)
    )
    found = symmetry.synchronise(spec, stack)
    flat = [np.reshape(leaf, (4, -1)) for leaf in jax.tree.leaves(found.params)]
    flat = np.concatenate(flat, axis=1).astype(float)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    cosines = (flat @ flat.T)[~np.eye(4, dtype=bool)]
    assert found.similarity == pytest.approx(cosines.mean(), rel=1e-5)
    products = [total_product(found.params)]
    for number in range(4):
        reference = jax.tree.map(lambda leaf, n=number: leaf[n], stack)
        products.append(total_product(symmetry.rebasin(spec, stack, reference).params))
    assert products[0] >= max(products) * (1 - 1e-6)
    elements = [
        jax.tree.map(lambda leaf, n=number: leaf[n], found.element)
        for number in range(4)
    ]

    def between(one, two):
        return symmetry.compose(
            spec, symmetry.inverse(spec, elements[two]), elements[one]
        )

    around = symmetry.compose(spec, between(2, 0), between(1, 2))
    around = symmetry.compose(spec, around, between(0, 1))
    stay = symmetry.identity(spec)
    assert jax.tree.all(jax.tree.map(np.array_equal, around, stay))
    moved = jax.vmap(lambda e, p: symmetry.act(spec, e, p))(found.element, stack)
    assert jax.tree.all(jax.tree.map(np.array_equal, moved, found.params))


def test_one_network_alone_can_not_be_synchronised(network, spec):
    with pytest.raises(ValueError, match=r"`params` must hold two networks or more"):
        symmetry.synchronise(spec, network.params)
