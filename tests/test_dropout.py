"""Monte-Carlo dropout: which weights are left out, and the fit that is known."""

import cases
import exact
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

from symjax import densities, models, posterior, trees
from symjax.approximations import dropout
from symjax.types import Data


RATE = 0.3


def draws_of(params, num_draws, **options):
    options = {"optimiser": optax.adam(0.1), "rate": RATE} | options
    approximation = dropout.build(cases.log_posterior(), **options)
    state = approximation.init(jax.random.key(0), params, cases.data())
    keys = jax.random.split(jax.random.key(1), num_draws)
    return jax.jit(jax.vmap(approximation.sample, (0, None)))(keys, state)


def test_outputs_of_a_linear_model_have_the_known_moments():
    """w = z m / (1 - p): mean x m, variance p / (1 - p) sum x^2 m^2."""
    generator = np.random.default_rng(0)
    mean = generator.normal(size=(6, 2)).astype(np.float32)
    x = generator.normal(size=(5, 6))
    num_draws = 20_000
    both = draws_of({"a": mean, "b": mean}, num_draws, layers=["*"])
    draws = np.asarray(both["a"], float)
    outputs = np.einsum("ni,dio->dno", x, draws)
    variance = RATE / (1 - RATE) * np.einsum("ni,io->no", x**2, mean.astype(float) ** 2)
    error = (outputs.mean(axis=0) - x @ mean) / np.sqrt(variance / num_draws)
    assert np.max(np.abs(error)) < 5
    # The standard error of a variance here is at most 1.2 % (kurtosis below 4).
    np.testing.assert_allclose(outputs.var(axis=0), variance, rtol=0.06)
    # An input is dropped for all outputs at once, each input of each layer by itself.
    is_kept = np.concatenate([both["a"], both["b"]], axis=1) != 0
    np.testing.assert_array_equal(is_kept[..., 0], is_kept[..., 1])
    correlation = np.corrcoef(is_kept[..., 0].T) - np.eye(12)
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(num_draws)


def test_dropping_weights_is_dropping_the_units_that_they_read():
    """Of flax's convolutional and dense layers, against the activations by hand."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x, scales=(1.0, 1.0)):
            x = nn.tanh(nn.Conv(3, (3, 3))(x))
            x = nn.tanh(nn.Conv(4, (3, 3))(x * scales[0]))
            return nn.Dense(2)(jnp.mean(x, axis=(1, 2)) * scales[1])

    x = jax.random.normal(jax.random.key(0), (2, 5, 5, 2))
    network = Network()
    params = network.init(jax.random.key(1), x)
    one = jax.tree.map(lambda leaf: leaf[0], draws_of(params, 1, rate=0.5))
    scales = []
    for layer, axes in (("Conv_1", (0, 1, 3)), ("Dense_0", 1)):
        after = one["params"][layer]["kernel"]
        scales.append(np.any(after != 0, axis=axes) / 0.5)
    assert {0.0, 2.0} == set(np.concatenate(scales))
    np.testing.assert_allclose(
        network.apply(one, x), network.apply(params, x, scales), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("name", "first"), [("mlp", "Dense_0"), ("lenet", "Conv_0")])
def test_all_but_the_first_layer_are_dropped_and_no_bias(name, first):
    options = {"widths": (4,) * 10} if name == "mlp" else {}
    x = jnp.zeros((1, 16, 16, 1))
    network = models.build(name, num_outputs=3, **options)
    params = jax.eval_shape(network.init, jax.random.key(0), x)
    kernels = {path for path in trees.paths(params) if path.endswith("kernel")}
    assert len(kernels) == (11 if name == "mlp" else 5)
    found = dropout.find_layers(params)
    assert kernels - set(found) == {f"params/{first}/kernel"}
    assert set(found) < kernels


def test_numbers_in_paths_are_sorted_as_numbers():
    """The first is Layer_2, which as text comes after Layer_10; a pattern names any."""
    params = {f"Layer_{i}": {"w": jnp.zeros((2, 2))} for i in range(2, 11)}
    assert "Layer_2/w" not in dropout.find_layers(params)
    assert "Layer_10/w" in dropout.find_layers(params)
    assert dropout.find_layers(params, ["*_2/w", "*_1?/*"]) == (
        "Layer_10/w",
        "Layer_2/w",
    )


def test_the_fit_of_a_linear_regression_is_a_ridge_regression():
    """Srivastava et al., section 9.1, with the prior of the dropped weights."""
    noise, prior, rate = 0.5, 0.2, 0.4
    generator = np.random.default_rng(0)
    x = generator.normal(size=(30, 3)) * [0.5, 1.0, 2.0]
    y = x @ [[1.0], [-1.0], [0.5]] + 0.3 * generator.normal(size=(30, 1))
    data = Data(*(a.astype(np.float32) for a in (x, y)), np.ones(30, bool))
    gram = x.T @ x
    ridge = rate / (1 - rate) * np.diag(np.diag(gram)) / noise**2
    ridge += np.eye(3) / prior**2 / (1 - rate)
    expected = np.linalg.solve(gram / noise**2 + ridge, x.T @ y / noise**2)
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        densities.Prior(dist.Normal(0.0, prior)),
        densities.gaussian(noise),
    )
    num_steps = 3000
    approximation = dropout.build(
        log_posterior,
        optimiser=optax.adam(optax.cosine_decay_schedule(0.03, num_steps)),
        rate=rate,
        layers=["*"],
        num_masks=4,
        batch_size=10,
    )
    start = jax.random.normal(jax.random.key(0), (20, 3, 1))
    state, infos = fit(approximation, start, data, num_steps)
    found = np.asarray(state.position, float)
    error = found.std(axis=0) / np.sqrt(20)
    assert np.all(np.abs(found.mean(axis=0) - expected) < 5 * error + 0.003)
    assert np.max(error) < 0.01
    # As far from the fits without dropout, and with the prior of M itself.
    for other in (0 * ridge, ridge - np.eye(3) / prior**2 * rate / (1 - rate)):
        there = np.linalg.solve(gram / noise**2 + other, x.T @ y / noise**2)
        assert np.max(np.abs(there - expected) - 10 * error) > 0.003
    squares = np.sum((y - x @ expected) ** 2)
    squares += rate / (1 - rate) * np.diag(gram) @ expected[:, 0] ** 2
    nats = -15 * np.log(2 * np.pi * noise**2) - squares / (2 * noise**2)
    nats -= 1.5 * np.log(2 * np.pi * prior**2)
    nats -= np.sum(expected**2) / (2 * prior**2 * (1 - rate))
    late = np.asarray(infos.log_density[:, -500:], float)
    assert abs(late.mean() - nats) < 5 * late.std() / np.sqrt(late.size) + 0.05


def test_masks_of_one_step_are_drawn_by_themselves():
    """A mean over four of them varies a quarter as much."""
    params = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))
    keys = jax.random.split(jax.random.key(1), 4_000)
    variances = []
    for num_masks in (1, 4):
        approximation = dropout.build(
            cases.log_posterior(), optimiser=optax.sgd(0.0), num_masks=num_masks
        )
        state = approximation.init(jax.random.key(0), params, cases.data())
        step = jax.jit(jax.vmap(approximation.step, (0, None, None)))
        variances.append(np.var(step(keys, state, cases.data())[1].log_density))
    assert 3.2 < variances[0] / variances[1] < 5


def test_an_input_in_ten_is_left_out_if_nothing_is_said():
    approximation = dropout.build(cases.log_posterior(), optimiser=optax.sgd(0.0))
    params = {"a": jnp.ones((1, 1)), "b": jnp.ones((50_000, 1))}
    state = approximation.init(jax.random.key(0), params, cases.data())
    share = np.mean(approximation.sample(jax.random.key(1), state)["b"] == 0)
    assert abs(share - 0.1) < 5 * np.sqrt(0.1 * 0.9 / 50_000)


def fit(approximation, starts, data, num_steps):
    """The last states and all Info of several fits."""
    data = jax.tree.map(jnp.asarray, data)

    def one(key, params):
        keys = jax.random.split(key, num_steps)
        state = approximation.init(key, params, data)
        step = lambda state, key: approximation.step(key, state, data)
        return jax.lax.scan(step, state, keys)

    keys = jax.random.split(jax.random.key(1), len(starts))
    return jax.jit(jax.vmap(one))(keys, starts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "`rate` must be above 0 and below 1, got 0.0"),
        ({"rate": 1.0}, "`rate` must be above 0 and below 1, got 1.0"),
        ({"num_masks": 0}, "`num_masks` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        dropout.build(exact.log_posterior(), optimiser=optax.adam(0.1), **options)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (None, "`layers` must name what is dropped in a network with 1 weight matrix"),
        (["b*"], r"`layers` must match weight matrices, but 'b\*' matches none of a"),
    ],
)
def test_layers_that_are_not_there_are_named(layers, message):
    params = {"a": jnp.zeros((2, 1)), "b": jnp.zeros(1)}
    with pytest.raises(ValueError, match=message):
        draws_of(params, 1, layers=layers)
