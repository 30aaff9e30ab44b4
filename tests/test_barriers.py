"""Barriers against closed forms and float64, on networks of known distance."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from zoo.network import fill, inputs, linen, plain

from symjax import data, models, symmetry
from symjax.plots.barriers import interpolations
from symjax.symmetry.barriers import (
    Curve,
    barrier,
    classification,
    curve,
    interpolate,
    loss_barrier,
    mean,
    reestimate_batch_norm,
)
from symjax.symmetry.matching.weights import match_weights
from symjax.symmetry.repair import repair
from symjax.symmetry.transpositions import (
    permuted_trials,
    random_transpositions,
    transpositions_along,
)
from symjax.types import Data


def examples(x, y):
    return Data(np.asarray(x), np.asarray(y), np.ones(len(x), bool))


def test_the_barrier_of_a_concave_quadratic_is_its_height():
    """f(t) = a - b |p|^2 on a line is above its chord by b t (1 - t) |p1 - p0|^2."""
    p, q = np.array([1.0, -2.0], np.float32), np.array([3.0, 1.0], np.float32)
    weights = np.array([0.5, 1.0, 3.0], np.float32)
    rows = Data(weights, weights, np.array([True, True, False]))

    def measure(params, rows):
        return {"value": 2 - rows.x * jnp.sum(params**2), "flat": rows.y}

    found = loss_barrier(measure, p, q, rows, num=5, batch_size=2)
    assert found["value"] == pytest.approx(0.75 * 13 / 4, rel=1e-6)
    assert found["flat"] == pytest.approx(0, abs=1e-6)
    convex = loss_barrier(lambda p, d: d.x * jnp.sum(p**2), p, q, rows)
    assert convex == pytest.approx(0, abs=1e-6)


def test_a_line_is_looked_at_in_25_places_if_nothing_is_said():
    """Of a wave that is 0 at every other of them, and 1 at the rest."""
    ends, rows = (jnp.zeros(()), jnp.ones(())), examples([0.0, 0.0], [0, 0])

    def measure(params, rows):
        return rows.x + jnp.sin(12 * jnp.pi * params) ** 2

    assert loss_barrier(measure, *ends, rows) == pytest.approx(1, abs=1e-4)
    values = curve(measure, *ends, rows).values
    np.testing.assert_allclose(values, np.arange(25) % 2, atol=1e-4)


def test_a_barrier_is_above_the_line_between_unequal_ends():
    values = np.array([1.0, 5.0, 7.0, 4.0])
    assert barrier(Curve(np.linspace(0, 1, 4), values)) == pytest.approx(4.0)


def test_a_picture_shows_every_curve():
    """The same numbers, also where one line covers another."""
    values = {"before": np.array([1.0, 3.0, 1.0]), "after": np.array([1.0, 0.5, 1.0])}
    panels = {"loss": values, "error": dict.fromkeys(values, values["after"])}
    figure = interpolations(np.linspace(0, 1, 3), panels)
    for ax, (title, lines) in zip(figure.axes, panels.items(), strict=True):
        assert ax.get_title(loc="left") == title
        before, after = ax.lines
        for line, name in ((before, "before"), (after, "after")):
            assert line.get_label() == name
            np.testing.assert_array_equal(line.get_ydata(), lines[name])
        assert before.get_linewidth() > after.get_linewidth()


def test_examples_are_counted_once_whatever_the_batch():
    """Padding rows count for nothing, and leaves of whole numbers stay."""
    apply = lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"] + p["count"]
    shapes = {"in": (3, 5), "out": (5, 4)}
    p, q = (fill(plain(apply, 0, **shapes).params, seed) for seed in (0, 1))
    p["count"], q["count"] = np.int32(2), np.int32(5)
    x, y = inputs(23, 3), np.arange(23) % 4
    rows = Data(x, y, np.arange(23) < 21)
    found = curve(classification(apply), p, q, rows, num=3, batch_size=8)
    middle = {name: (np.float64(p[name]) + q[name]) / 2 for name in shapes}
    for params, at in ((p, 0), (middle, 1)):
        logits = np.tanh(x[:21] @ params["in"]) @ params["out"]
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = -log_probs[np.arange(21), y[:21]].mean()
        error = (logits.argmax(axis=1) != y[:21]).mean()
        assert found.values["loss"][at] == pytest.approx(loss, rel=1e-5)
        assert found.values["error"][at] == pytest.approx(error, abs=1e-6)
    assert interpolate(p, q, 1.0)["count"] == 2
    np.testing.assert_array_equal(interpolate(p, q, 1.0)["in"], q["in"])
    half = interpolate(jnp.float16(1.0), jnp.float16(2.0), jnp.float32(0.5))
    assert (half, half.dtype) == (1.5, jnp.float16)


@functools.cache
def digits():
    """A small network on handwritten digits, how it starts, and its training."""
    train = data.load("digits").train
    model = models.MLP(10, (24, 24), nn.relu)
    params = model.init(jax.random.key(0), train.x[:1])
    measure = classification(model.apply)
    optimiser = optax.adam(1e-2)

    @jax.jit
    def trained(params):
        def step(state, _):
            def loss(params):
                return jnp.mean(measure(params, train)["loss"])

            params, moments = state
            updates, moments = optimiser.update(jax.grad(loss)(params), moments)
            return (optax.apply_updates(params, updates), moments), None

        start = params, optimiser.init(params)
        return jax.lax.scan(step, start, None, length=100)[0][0]

    spec = symmetry.infer(model.apply, params, train.x[:2])
    return train, measure, spec, params, trained


def test_a_permuted_copy_is_behind_a_barrier_until_it_is_matched():
    """Training treats all units alike, so that a permuted start ends permuted."""
    train, measure, spec, params, trained = digits()
    (none, some) = permuted_trials(
        jax.random.key(1),
        spec,
        params,
        [0, 40],
        train=trained,
        match=functools.partial(match_weights, spec),
        barrier=lambda one, two: loss_barrier(measure, one, two, train, num=9),
    )
    assert mean(measure, trained(params), train)["error"] < 0.02
    assert none.barrier["loss"] == pytest.approx(0, abs=1e-5)
    assert (none.found, some.found) == (0, 40)
    assert some.barrier["loss"] > 0.2
    assert some.barrier["error"] > 0.05
    assert some.barrier_matched["loss"] < 0.01
    assert some.distance > 3
    assert some.distance_matched < 0.05


def test_training_starts_from_the_permuted_network():
    shapes = {"in": (3, 8), "out": (8, 2)}
    network = plain(lambda p, x: jax.nn.silu(x @ p["in"]) @ p["out"], 0, **shapes)
    spec = symmetry.infer(network.apply, network.params, inputs(4, 3))
    steps = fill(network.params, seed=3)
    (trial,) = permuted_trials(
        jax.random.key(0),
        spec,
        network.params,
        [4],
        train=lambda params: jax.tree.map(jnp.add, params, steps),
        match=lambda params, reference: symmetry.identity(spec),
        barrier=lambda one, two: two,
    )
    start = jax.tree.map(jnp.subtract, trial.barrier, steps)
    gap = np.abs(start["in"][:, :, None] - network.params["in"][:, None]).max(axis=0)
    order = gap.argmin(axis=1)
    assert int(symmetry.num_transpositions(jnp.asarray(order))) == 4
    np.testing.assert_allclose(start["out"], network.params["out"][order], atol=1e-5)
    changes = [start[name] - network.params[name] for name in shapes]
    distance = np.sqrt(sum(np.sum(np.square(change)) for change in changes))
    assert trial.distance == pytest.approx(distance, rel=1e-5)


def test_the_number_of_transpositions_grows_along_the_line():
    train, _, spec, params, trained = digits()
    start = trained(params)
    element = random_transpositions(jax.random.key(2), spec, 46)
    with pytest.raises(ValueError, match="at most 46"):
        random_transpositions(jax.random.key(2), spec, 47)
    found = transpositions_along(
        functools.partial(match_weights, spec),
        start,
        symmetry.act(spec, element, start),
        [0.0, 0.25, 0.75, 1.0],
    )
    assert found.tolist()[0] == 0
    assert found.tolist()[-1] == 46
    assert 0 <= found[1] < found[2] <= 46


def test_transpositions_are_shared_out_over_groups():
    """As many as were asked for; those of one group are hypergeometric."""
    _, _, spec, _, _ = digits()
    sizes = [group.size for group in spec.permutations]
    assert sizes == [24, 24]
    counts = [
        [
            int(symmetry.num_transpositions(order))
            for order in random_transpositions(
                jax.random.key(seed), spec, 23
            ).permutations
        ]
        for seed in range(60)
    ]
    assert all(sum(pair) == 23 for pair in counts)
    # Hypergeometric: 23 of 46 places, half of them of the first group.
    first = np.array(counts)[:, 0]
    std = np.sqrt(23 * 0.25 * 23 / 45)
    assert abs(first.mean() - 11.5) < 4 * std / np.sqrt(60)
    assert 0.6 * std < first.std() < 1.5 * std


class Normalised(nn.Module):
    train: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(5)(x)
        x = nn.BatchNorm(use_running_average=not self.train, momentum=0.0)(x)
        return nn.Dense(2)(nn.relu(x))


def test_batch_statistics_are_those_of_the_merged_network():
    x = 3 + inputs(50, 4)
    params = linen(Normalised(), x).params

    def update(params, x):
        _, new = Normalised(train=True).apply(params, x, mutable=["batch_stats"])
        return {**params, **new}

    found = reestimate_batch_norm(update, params, x, batch_size=20)
    layer = params["params"]["Dense_0"]
    hidden = np.float64(x) @ layer["kernel"] + layer["bias"]
    batches = [hidden[:20], hidden[20:40], hidden[40:]]
    variance = np.average([b.var(axis=0) for b in batches], axis=0, weights=(2, 2, 1))
    stats = found["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(stats["mean"], hidden.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(stats["var"], variance, rtol=1e-4)
    for old, new in zip(
        jax.tree.leaves(params["params"]), jax.tree.leaves(found["params"]), strict=True
    ):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("batch_size", [30, 20, 1])
def test_repair_gives_each_layer_the_statistics_of_the_ends(batch_size):
    """A network written out layer by layer; batches make no difference."""

    def apply(p, x):
        x = jax.nn.relu(x @ p["first"] + p["bias"])
        return jax.nn.relu(x @ p["second"]) @ p["out"]

    shapes = {"first": (4, 6), "bias": (6,), "second": (6, 5), "out": (5, 2)}
    network = plain(apply, inputs(30, 4), **shapes)
    ends = tuple(fill(network.params, seed) for seed in (1, 2))
    spec = symmetry.infer(apply, network.params, network.x)
    merged = interpolate(*ends, 0.25)
    repaired = repair(
        apply, spec, merged, ends, network.x, position=0.25, batch_size=batch_size
    )

    def layers(p, x, change):
        for name in ("first", "second"):
            bias = p["bias"] if name == "first" else 0
            x = np.maximum(change(name, x @ np.float64(p[name])) + bias, 0)
        return x @ p["out"]

    def statistics(p, change=lambda name, values: values):
        found = {}

        def keep(name, values):
            found[name] = np.array([values.mean(axis=0), values.var(axis=0)])
            return change(name, values)

        layers(p, np.float64(network.x), keep)
        return found

    of_ends = [statistics(end) for end in ends]
    wanted = {
        name: [
            0.75 * of_ends[0][name][0] + 0.25 * of_ends[1][name][0],
            0.75 * of_ends[0][name][1] ** 0.5 + 0.25 * of_ends[1][name][1] ** 0.5,
        ]
        for name in ("first", "second")
    }

    def renormalise(name, values, mean, variance):
        return (values - mean) / variance**0.5 * wanted[name][1] + wanted[name][0]

    of_merged = statistics(
        merged, lambda n, v: renormalise(n, v, v.mean(axis=0), v.var(axis=0))
    )
    new = inputs(7, 4) - 1
    expected = layers(
        merged, np.float64(new), lambda n, v: renormalise(n, v, *of_merged[n])
    )
    np.testing.assert_allclose(jax.jit(repaired)(merged, new), expected, rtol=2e-4)


def test_repair_of_an_end_is_the_end():
    """In a convolutional network, and with the layers inside of a loop left alone."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.relu(nn.Conv(5, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.RNN(nn.SimpleCell(6))(x.reshape(len(x), 4, -1))
            return {"logits": nn.Dense(2)(x[:, -1])}

    network = linen(Network(), inputs(20, 8, 8, 2))
    other = fill(network.params, seed=4)
    spec = symmetry.infer(network.apply, network.params, network.x)
    repaired = repair(
        network.apply, spec, other, (other, network.params), network.x, position=0.0
    )
    one = repaired(other, network.x)["logits"]
    two = network.apply(other, network.x)["logits"]
    np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)


def test_repair_needs_a_layer():
    network = plain(lambda p, x: x @ p["out"], inputs(4, 3), out=(3, 2))
    spec = symmetry.infer(network.apply, network.params, network.x)
    p = network.params
    with pytest.raises(ValueError, match="nothing to renormalise"):
        repair(network.apply, spec, p, (p, p), network.x)
