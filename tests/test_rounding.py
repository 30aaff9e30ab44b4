"""Rounded products: exact where nothing is to be rounded, rounded as NumPy rounds."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from symjax import models
from symjax.posterior.force import at_precision
from symjax.rounding import round_products, scale_gradients


HALVES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def gradients(apply, params, x):
    return jax.jit(jax.grad(lambda params: jnp.sum(apply(params, x))))(params)


@pytest.mark.parametrize("name", HALVES)
def test_operands_and_results_are_rounded_as_numpy_rounds_them(name):
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=(5, 5)).astype(np.float32) for _ in "xw")
    low_x, low_w = (leaf.astype(HALVES[name]).astype(np.float64) for leaf in (x, w))
    # Summed in more digits, rounded once.
    expected = (low_x @ low_w).astype(np.float32).astype(HALVES[name])
    found = round_products(lambda w, x: x @ w, name)(w, x)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(found), expected.astype(np.float32))


@pytest.mark.parametrize("name", HALVES)
def test_convolutions_and_products_of_jitted_functions_are_rounded(name):
    model = nn.Sequential([nn.Conv(3, (2, 2)), jax.jit(lambda x: x @ x.mT)])
    x = np.random.default_rng(4).normal(size=(2, 4, 4, 2)).astype(np.float32)
    params = model.init(jax.random.key(0), x)
    conv = lambda params, x: model.layers[0].apply(
        {"params": params["params"]["layers_0"]}, x
    )
    for apply in (conv, model.apply):
        exact = np.asarray(apply(params, x))
        found = np.asarray(round_products(apply, name)(params, x))
        np.testing.assert_allclose(found, exact, rtol=0.02, atol=0.02)
        assert np.array_equal(found, found.astype(HALVES[name]))
        assert not np.array_equal(exact, exact.astype(HALVES[name]))


@pytest.mark.parametrize("name", HALVES)
def test_what_needs_no_rounding_is_exact(name):
    """Small whole numbers through convolution, dense layers and a branch."""

    def apply(params, x):
        maps = jax.lax.conv_general_dilated(
            x, params["k"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        flat = nn.relu(maps).reshape(len(x), -1)
        signs = jnp.clip(flat, -1, 1)
        both = jnp.sum(signs @ signs.T) + jnp.sum(params["w"] @ params["w"].T)
        return flat @ params["w"] + both

    generator = np.random.default_rng(1)

    def whole(*shape):
        return generator.integers(-1, 2, shape).astype(np.float32)

    params = {"k": whole(3, 3, 2, 3), "w": whole(12, 4)}
    x = whole(3, 4, 4, 2)
    rounded = round_products(apply, name)
    np.testing.assert_array_equal(rounded(params, x), apply(params, x))
    jax.tree.map(
        np.testing.assert_array_equal,
        gradients(rounded, params, x),
        gradients(apply, params, x),
    )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", HALVES)
def test_pairs_of_numbers_are_multiplied_as_numpy_does_it(name, side):
    """Of parameters, forwards and backwards; what comes back to them is one product."""
    ahead = {"bfloat16": 2.0**8, "float16": 2.0**11}[name]

    def low(values):
        return values.astype(np.float32).astype(HALVES[name]).astype(np.float64)

    def twice(multiply, values):
        first = low(values)
        rest = low(multiply(low(ahead * (values - first)))) / ahead
        return low(low(multiply(first)) + rest)

    generator = np.random.default_rng(6)
    # Whole numbers, so that no product depends on the order of its sum.
    x, back = (generator.integers(-8, 8, (5, 5)).astype(np.float32) for _ in "xb")
    one, two = (generator.integers(-(2**12), 2**12, (5, 5)) / 2**9 for _ in "12")
    one, two = one.astype(np.float32), two.astype(np.float32)
    apply = {
        "left": lambda p, x: (p[1].T @ (p[0].T @ x.T)).T,
        "right": lambda p, x: (x @ p[0]) @ p[1],
    }[side]
    rounded = round_products(apply, name, in_pairs=True)
    found, pull = jax.vjp(lambda p: rounded(p, x), (one, two))
    hidden = twice(lambda w: low(x) @ w, one)
    np.testing.assert_array_equal(found, twice(lambda w: hidden @ w, two))
    assert not np.array_equal(found, round_products(lambda p, x: x @ p, name)(two, x))
    to_hidden = twice(lambda w: low(back) @ w.T, two)
    gradients = pull(jnp.asarray(back))[0]
    expected = low(x).T @ to_hidden, hidden.T @ low(back)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("function", ["dot", "convolution", "jitted", "loop"])
@pytest.mark.parametrize("name", HALVES)
def test_pairs_keep_what_one_number_loses(function, name):
    """1 + 2^-13 less 1: of parameters alone, in all that is a product."""
    tiny = {"bfloat16": 2.0**-10, "float16": 2.0**-13}[name]

    def loop(w, x):
        start = jnp.zeros((len(x), 1), jnp.float32)
        return jax.lax.scan(lambda sum, now: (sum + now @ w, None), start, x[None])[0]

    apply = {
        "dot": lambda w, x: x @ w,
        "convolution": lambda w, x: convolve(w[None, None], x[None, None])[0, 0],
        "jitted": jax.jit(lambda w, x: x @ w),
        "loop": loop,
    }[function]
    w = np.array([[1 + tiny], [1]], np.float32)
    x = np.array([[1, -1], [2, -2]], np.float32)
    lost, kept = (round_products(apply, name, in_pairs=p)(w, x) for p in (False, True))
    np.testing.assert_array_equal(lost, [[0], [0]])
    np.testing.assert_array_equal(kept, [[tiny], [2 * tiny]])
    # Activations keep one number, and so do two parameters.
    both = lambda *a: apply(a[0][0], a[0][1])
    np.testing.assert_array_equal(
        round_products(both, name, in_pairs=True)((w, x), x), [[0], [0]]
    )
    swapped = round_products(lambda w, x: apply(x, w), name, in_pairs=True)
    np.testing.assert_array_equal(swapped(x, w), [[0], [0]])
    # What is looked up in a parameter is an activation.
    one = np.array([[1], [-1]], np.float32)
    look_up = lambda w, ids: apply(one, w[ids].T)
    found = round_products(look_up, name, in_pairs=True)(w, np.array([0, 1]))
    np.testing.assert_array_equal(look_up(w, np.array([0, 1])), [[tiny]])
    np.testing.assert_array_equal(found, [[0]])


def test_products_of_whole_numbers_are_left_alone():
    """257 has more digits than bfloat16 holds."""
    product = round_products(lambda w, x: x @ w, "bfloat16")
    assert product(np.full((1, 1), 257), np.ones((1, 1), int))[0, 0] == 257


@pytest.mark.parametrize("name", HALVES)
def test_gradients_are_of_numbers_that_numpy_rounds(name):
    """All that comes back through a product, but what is summed up for parameters."""

    def low(values):
        return values.astype(np.float32).astype(HALVES[name]).astype(np.float64)

    generator = np.random.default_rng(3)
    x, one, two, back = (
        generator.normal(size=(5, 5)).astype(np.float32) for _ in range(4)
    )
    slope = generator.normal(size=5).astype(np.float32)
    last = jax.jit(jnp.matmul)
    rounded = round_products(lambda p, x: last((x @ p[0]) * slope, p[1]), name)
    _, pull = jax.jit(lambda params: jax.vjp(lambda p: rounded(p, x), params))(
        (one, two)
    )
    hidden = low(low(low(x) @ low(one)) * slope)
    to_hidden = low(low(low(back) @ low(two).T) * slope)
    expected = low(x).T @ to_hidden, hidden.T @ low(back)
    for found, gradient in zip(pull(back)[0], expected, strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", HALVES)
def test_products_in_a_loop_are_rounded_as_those_of_its_steps(name):
    """The state does not vary at first, and does after a step."""

    def start(params, x):
        return jnp.zeros((x.shape[1], len(params["b"])))

    def step(params, state, now):
        new = jnp.tanh(now @ params["a"] + state @ params["b"])
        return new, jnp.sin(new @ params["c"])

    def in_a_loop(params, x):
        state, rest = jax.lax.scan(partial(step, params), start(params, x), x, unroll=2)
        return jnp.sum(rest, 0) + state @ params["c"]

    def one_by_one(params, x):
        state, total = start(params, x), 0.0
        for now in x:
            state, one = step(params, state, now)
            total += one
        return total + state @ params["c"]

    generator = np.random.default_rng(4)
    sizes = {"a": (3, 4), "b": (4, 4), "c": (4, 2), "x": (3, 5, 3)}
    params = {k: generator.normal(size=v).astype("f4") for k, v in sizes.items()}
    x = params.pop("x")
    for function in (lambda f: f(params, x), lambda f: gradients(f, params, x)):
        loop, steps, exact = map(
            function,
            (
                round_products(in_a_loop, name),
                round_products(one_by_one, name),
                in_a_loop,
            ),
        )
        for ours, theirs, full in zip(
            *map(jax.tree.leaves, (loop, steps, exact)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
            assert np.max(np.abs(ours - full)) > 1e-4


@pytest.mark.parametrize("name", HALVES)
def test_gradients_of_parameters_are_sums_in_float32(name):
    """5,001 has more digits than either type holds, and is past float16's if scaled."""
    x = np.ones((5001, 1), np.float32)
    force = at_precision(lambda w, x: x @ w, name)
    assert gradients(force, np.ones((1, 1), np.float32), x)[0, 0] == 5001


def convolve(kernel, x):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def kernel_gradient(apply, kernel, x, back):
    pull = jax.jit(lambda k: jax.vjp(lambda k: apply(k, x), k)[1](back)[0])
    return np.asarray(pull(kernel))


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_gradients_of_kernels_are_rounded_to_float16_alone(size):
    """Against NumPy in float64: a kernel of one pixel sums up a matrix product."""
    generator = np.random.default_rng(5)
    x, back = (generator.normal(size=(64, 8, 8, 9)).astype(np.float32) for _ in "xb")
    back *= size * np.exp(generator.normal(size=(64, 1, 1, 1), scale=2))
    kernel = np.zeros((1, 1, 9, 9), np.float32)
    for name, bound in (("bfloat16", 1e-5), ("float16", 2**-11)):
        low_x, low_back = (
            leaf.astype(HALVES[name]).astype(np.float64).reshape(-1, 9)
            for leaf in (x, back)
        )
        exact = low_x.T @ low_back
        found = kernel_gradient(round_products(convolve, name), kernel, x, back)
        error = np.linalg.norm(found[0, 0] - exact) / np.linalg.norm(exact)
        assert error < bound
    # 4,096 terms: divided by 64, what is stored has the digits of float16.
    assert error > 1e-4
    stored = found / 64
    np.testing.assert_array_equal(stored, stored.astype(np.float16))


def test_sums_for_kernels_neither_overflow_nor_vanish():
    x = np.ones((64, 8, 8, 1), np.float32)
    rounded = round_products(convolve, "float16")
    kernel = np.ones((1, 1, 1, 1), np.float32)
    for size, expected in (
        (2**8, 4096 * 2**8),  # 16 times the largest float16.
        (2**-18, 4096 * 2**-18),
        (6e4, 64 * 65504),  # Past what is stored: not infinite.
        (-6e4, -64 * 65504),
    ):
        back = np.full_like(x, size)
        assert kernel_gradient(rounded, kernel, x, back)[0, 0, 0, 0] == expected


@pytest.mark.parametrize("products", [1, 2])
@pytest.mark.parametrize(("name", "sums"), [("bfloat16", "float32"), ("float16",) * 2])
def test_what_convolutions_and_dots_store_on_a_gpu(name, sums, products, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def apply(params, x):
        maps = convolve(params["k2"], convolve(params["k1"], x))
        return maps.reshape(len(x), -1) @ params["w"]

    shapes = {"k1": (3, 3, 2, 4), "k2": (3, 3, 4, 4), "w": (64, 5)}
    params = {key: jnp.ones(shape) for key, shape in shapes.items()}
    rounded = round_products(apply, name, in_pairs=products == 2)
    total = lambda *a: jnp.sum(rounded(*a))
    jaxpr = jax.make_jaxpr(jax.grad(total))(params, jnp.ones((3, 4, 4, 2)))
    stored = {"conv_general_dilated": [], "dot_general": []}

    def find(jaxpr):
        for eqn in jaxpr.eqns:
            for inner in jaxprs_in_params(eqn.params):
                find(inner)
            if eqn.primitive.name in stored:
                assert {str(atom.aval.dtype) for atom in eqn.invars} == {name}
                dtype = str(eqn.outvars[0].aval.dtype)
                stored[eqn.primitive.name].append(dtype)

    find(jaxpr.jaxpr)
    # Both forwards, both of their maps; both of their kernels.
    convolutions = [name] * 4 * products + [sums] * 2
    assert sorted(stored["conv_general_dilated"]) == sorted(convolutions)
    dots = [name] * 2 * products + ["float32"]
    assert sorted(stored["dot_general"]) == sorted(dots)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_gradients_of_any_size_survive_in_float16(size):
    """Units of which one is far below the other are not lost either."""

    def apply(params, x):
        return (x @ params["a"]) @ params["b"]

    params = {"a": np.ones((1, 2), np.float32), "b": np.array([[1], [1e-3]], "f")}
    x = np.ones((2, 1), np.float32)

    def gradient(apply):
        return jax.jit(jax.grad(lambda params: size * jnp.sum(apply(params, x))))(
            params
        )["a"]

    expected = 2 * size * params["b"].T
    if size != 1:
        assert not np.allclose(gradient(round_products(apply, "float16")), expected)
    found = gradient(at_precision(apply, "float16"))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_what_is_past_the_largest_number_of_float16_stays_finite():
    """Forwards and backwards: an infinity would make the next product NaN."""

    def apply(params, x):
        return (x @ params["a"]) @ params["b"] @ params["c"]

    x = np.ones((2, 1), np.float32)
    params = {key: np.full((1, 1), 6e3, np.float32) for key in "abc"}
    outputs = round_products(apply, "float16")(params, x)
    np.testing.assert_array_equal(outputs, 65504)
    found = gradients(at_precision(apply, "float16"), params, x)["a"]
    # 2^7 and twice 6,000 are past 65,504; two examples are added up, and scaled back.
    np.testing.assert_array_equal(found, 2 * 65504 / 2**7)


def test_a_gradient_is_scaled_by_a_power_of_two_for_each_chain():
    seen = []

    @jax.custom_vjp
    def watched(x):
        return x

    def see(_, gradient):
        jax.debug.callback(lambda g: seen.append(float(g)), jnp.max(jnp.abs(gradient)))
        return (gradient,)

    watched.defvjp(lambda x: (x, None), see)
    apply = scale_gradients(lambda w, x: watched(w * x), 8)
    gradient = jax.vmap(jax.grad(lambda w, c: jnp.sum(c * apply(w, jnp.ones(3)))))
    sizes = jnp.array([3e-7, 0.7, 1.0, 5e5, 1e-37, 0.0])
    found = gradient(jnp.ones(6), sizes)
    np.testing.assert_array_equal(found, 3 * sizes)
    *scaled, smallest, zero = sorted(seen, reverse=True)
    assert all(128 <= size < 256 for size in scaled)
    assert 1e-37 < smallest < 1
    assert zero == 0


@pytest.mark.parametrize(
    ("model", "options", "shape"),
    [("mlp", {"widths": (16, 16)}, (20,)), ("lenet", {}, (12, 12, 1))],
)
def test_float16_is_nearer_than_bfloat16_through_whole_networks(model, options, shape):
    network = models.build(model, 3, **options)
    x = np.random.default_rng(2).normal(size=(30, *shape)).astype(np.float32)
    params = jax.jit(network.init)(jax.random.key(0), x)

    def vector(precision):
        force = at_precision(network.apply, precision)
        tree = gradients(lambda *a: force(*a)[:, 0] ** 2, params, x)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    exact = vector(None)
    errors = [
        np.linalg.norm(vector(name) - exact) / np.linalg.norm(exact) for name in HALVES
    ]
    assert 1e-6 < 3 * errors[1] < errors[0] < 0.05


def test_pairs_are_nearer_the_more_the_more_examples_there_are():
    """What rounds activations averages over them; of parameters it does not."""
    network = models.build("mlp", 3, widths=(32, 32), activation="tanh")
    params = jax.jit(network.init)(jax.random.key(0), np.zeros((1, 20), np.float32))
    ratios = []
    for num in (10, 10_000):
        x = np.random.default_rng(7).normal(size=(num, 20)).astype(np.float32)

        def vector(precision, x=x):
            force = at_precision(network.apply, precision)
            tree = gradients(lambda *a: force(*a)[:, 0] ** 2, params, x)
            return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

        exact = vector(None)
        one, two = (
            np.linalg.norm(vector(name) - exact) for name in ("float16", "float16x2")
        )
        ratios.append(two / one)
    assert ratios[1] < 0.5 < 0.7 < ratios[0]
