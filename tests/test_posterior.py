"""The log posterior against float64, and its one pass over micro-batches."""

import math
from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from symjax import densities, posterior
from symjax.types import Data


PARAMS = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(5), 1))


def exact(params, data, temperature=1.0):
    """The same in NumPy's float64 and SciPy."""
    (weight, bias), out, shift = params["hidden"], params["out"], params["shift"]
    mean = np.tanh(data.x.astype(float) @ weight + bias) @ out + shift
    likelihood = scipy.stats.norm(mean, 0.5).logpdf(data.y)[data.mask].sum()
    prior = sum(
        scipy.stats.norm(0, 1).logpdf(leaf).sum() for leaf in jax.tree.leaves(params)
    )
    return (likelihood + prior) / temperature


def as_float64(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


@pytest.mark.parametrize("micro_batch", [None, 1, 4, 7, 20, 21, 1000])
def test_every_micro_batch_gives_the_same_value_and_gradient(micro_batch):
    data = cases.data(21)
    data.mask[[3, 20]] = False
    log_posterior = cases.log_posterior(temperature=0.5, micro_batch=micro_batch)
    params = as_float64(PARAMS)
    value, gradient = jax.jit(jax.value_and_grad(log_posterior))(PARAMS, data)
    np.testing.assert_allclose(value, exact(params, data, 0.5), rtol=1e-5)
    np.testing.assert_allclose(log_posterior(PARAMS, data), value, rtol=1e-5)
    for i, leaf in enumerate(jax.tree.leaves(gradient)):
        index = (0,) * leaf.ndim
        shifted = jax.tree.map(np.copy, params)
        ends = []
        for sign in (1, -1):
            leaves = jax.tree.leaves(jax.tree.map(np.copy, shifted))
            leaves[i][index] += sign * 1e-5
            moved = jax.tree.unflatten(jax.tree.structure(params), leaves)
            ends.append(exact(moved, data, 0.5))
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(leaf[index], slope, rtol=2e-3, atol=2e-3)


def test_the_gradient_holds_one_micro_batch_in_memory():
    """Compiled scratch memory follows the micro-batch, not the data."""

    def scratch(num_examples, micro_batch):
        log_posterior = cases.log_posterior(micro_batch=micro_batch)
        gradient = jax.jit(jax.grad(log_posterior))
        data = cases.data(num_examples)
        return (
            gradient.lower(PARAMS, data).compile().memory_analysis().temp_size_in_bytes
        )

    assert scratch(40_000, None) > 10 * scratch(40_000, 400)
    assert scratch(40_000, 400) < 1.5 * scratch(4_000, 400)


def test_a_gain_keeps_what_two_large_sums_lose():
    """10^6 examples: the sums are near 10^6 nats, their change of order 1."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1_000_000, 3)).astype(np.float32)
    y = generator.normal(size=(1_000_000, 1)).astype(np.float32)
    data = Data(x, y, np.ones(len(x), bool))
    proposal = jax.tree.map(lambda leaf: leaf + 2e-6, PARAMS)
    log_posterior = cases.log_posterior(micro_batch=300_000)
    truth = exact(as_float64(proposal), data) - exact(as_float64(PARAMS), data)
    tallies = [jax.jit(log_posterior.tally)(at, data) for at in (PARAMS, proposal)]
    change = log_posterior.gain(PARAMS, proposal, data, *tallies)
    naive = log_posterior(proposal, data) - log_posterior(PARAMS, data)
    assert abs(float(change) - truth) < 0.02
    assert abs(float(naive) - truth) > 0.05


@pytest.mark.parametrize("micro_batch", [None, 4, 7])
def test_what_is_relative_to_a_start_is_its_difference(micro_batch):
    """Value, and the gradient of the log posterior itself, in one pass."""
    data = cases.data(21)
    data.mask[[3, 20]] = False
    log_posterior = cases.log_posterior(temperature=0.5, micro_batch=micro_batch)
    proposal = jax.tree.map(lambda leaf: leaf + 0.1, PARAMS)
    relative = log_posterior.relative_to(PARAMS, data)
    value, gradient = jax.jit(jax.value_and_grad(relative))(proposal)
    truth = exact(as_float64(proposal), data, 0.5) - exact(
        as_float64(PARAMS), data, 0.5
    )
    np.testing.assert_allclose(value, truth, rtol=1e-4)
    np.testing.assert_allclose(relative(proposal), value, rtol=1e-5)
    assert abs(float(relative(PARAMS))) < 1e-4
    expected = jax.grad(log_posterior)(proposal, data)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        gradient,
        expected,
    )


def test_a_relative_density_keeps_what_two_large_sums_lose():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1_000_000, 3)).astype(np.float32)
    y = generator.normal(size=(1_000_000, 1)).astype(np.float32)
    data = Data(x, y, np.ones(len(x), bool))
    proposal = jax.tree.map(lambda leaf: leaf + 2e-6, PARAMS)
    log_posterior = cases.log_posterior(micro_batch=300_000)
    truth = exact(as_float64(proposal), data) - exact(as_float64(PARAMS), data)
    value = jax.jit(log_posterior.relative_to(PARAMS, data))(proposal)
    assert abs(float(value) - truth) < 0.02


def test_the_accept_step_is_in_full_precision_whatever_the_force_is():
    """Read off the traced programs: a GPU would multiply in TF32 otherwise."""
    data = cases.data()

    def trace(function, *arguments):
        return str(jax.make_jaxpr(function)(*arguments))

    plain, exact, tensor = (
        cases.log_posterior(force_precision=precision)
        for precision in (None, "float32", "tensorfloat32")
    )

    def relative(log_posterior, params, proposal, data):
        return jax.value_and_grad(log_posterior.relative_to(params, data))(proposal)

    for log_posterior in (plain, exact, tensor):
        text = trace(log_posterior.tally, PARAMS, data)
        assert text.count("dot_general[") == text.count("Precision.HIGHEST") // 2 > 0
        text = trace(partial(relative, log_posterior), PARAMS, PARAMS, data)
        assert text.count("dot_general[") == text.count("Precision.HIGHEST") // 2 > 0
    assert "HIGHEST" not in trace(jax.grad(plain), PARAMS, data)
    assert "HIGHEST" in trace(jax.grad(exact), PARAMS, data)
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in trace(jax.grad(plain), PARAMS, data)
        text = trace(jax.grad(tensor), PARAMS, data)
        assert text.count("dot_general[") == text.count("Precision.HIGH") // 2 > 0
        assert "HIGHEST" not in text


def test_the_force_may_be_another_function_and_the_accept_step_is_not():
    data = cases.data()
    plain = cases.log_posterior()
    half = posterior.build(
        plain.apply,
        plain.prior,
        plain.likelihood,
        force_precision="float16",
        force_apply=lambda params, x, dtype, in_pairs: 0.5 * plain.apply(params, x),
    )
    proposal = jax.tree.map(lambda leaf: leaf + 0.1, PARAMS)
    assert half(PARAMS, data) == plain(PARAMS, data)
    assert half.tally(proposal, data) == plain.tally(proposal, data)
    relatives = [
        jax.value_and_grad(density.relative_to(PARAMS, data))(proposal)
        for density in (half, plain)
    ]
    jax.tree.map(np.testing.assert_array_equal, *relatives)
    forces = [jax.grad(density)(PARAMS, data)["out"] for density in (half, plain)]
    assert not np.allclose(*forces, rtol=0.05)
    for precision in (None, "float32"):
        with pytest.raises(ValueError, match="`force_apply` is for"):
            cases.log_posterior(force_precision=precision, force_apply=plain.apply)
    with pytest.raises(ValueError, match="must be one of float32"):
        cases.log_posterior(force_precision="highest")


def test_the_minibatch_estimate_is_unbiased():
    data = cases.data(21)
    data.mask[19:] = False
    log_posterior = cases.log_posterior(temperature=2.0)
    estimate = jax.grad(log_posterior.minibatch, argnums=1)
    keys = jax.random.split(jax.random.key(0), 40_000)
    estimates = jax.jit(
        jax.vmap(lambda key: estimate(key, PARAMS, data, 4)["out"][:, 0])
    )(keys)
    exact_gradient = jax.grad(log_posterior)(PARAMS, data)["out"][:, 0]
    error = estimates.std(axis=0) / np.sqrt(len(keys))
    assert np.all(np.abs(estimates.mean(axis=0) - exact_gradient) < 5 * error)
    assert np.all(error < 0.05 * np.abs(exact_gradient).max())


def test_a_chosen_micro_batch_fits_and_is_even():
    log_posterior = cases.log_posterior()
    data = cases.data(1000)
    choose = posterior.choose_micro_batch
    assert choose(log_posterior, PARAMS, data, max_bytes=10**9) is None
    sizes = [
        choose(log_posterior, PARAMS, data, max_bytes=budget)
        for budget in (2_000, 20_000, 50_000)
    ]
    assert 1 <= sizes[0] < sizes[1] < sizes[2] < 1000
    # None is larger than as many passes need.
    assert all(size == math.ceil(1000 / math.ceil(1000 / size)) for size in sizes)
    halved = choose(log_posterior, PARAMS, data, max_bytes=20_000, num_chains=2)
    assert abs(halved - sizes[1] / 2) < 0.2 * sizes[1]
    with pytest.raises(ValueError, match="must hold one example for 4 chains"):
        choose(log_posterior, PARAMS, data, max_bytes=100, num_chains=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "`temperature` must be a positive number, got 0.0"),
        ({"micro_batch": 0}, "`micro_batch` must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        posterior.build(cases.apply, densities.Prior(dist.Normal()), jnp.add, **options)
