"""Laws of scales and signs of single operations, against numbers.

Units with one parameter each go through an operation: `f(x * in, y * other) * out`.
Which scales and signs of `in` and `other` a factor of `out` can undo is tried out in
float64, without any law; inference must find these, no more and no fewer.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from test_inference import infer_unchecked
from zoo import moves
from zoo.network import Network

from symjax.symmetry.inference.rules import elementwise


UNITS = 3
POWERS = (-2, -1, -1 / 2, 0, 77 / 256, 1 / 3, 1 / 2, 1, 2, 3)
SIGNS = np.array([1.0, -1.0, -1.0])
SCALES = {"each": np.array([0.6, 1.0, 1.7]), "all": np.full(UNITS, 1.7)}


def integers(f):
    return lambda *h: f(*((10 * v).astype(jnp.int32) for v in h)).astype(float)


def flags(f):
    return lambda h, k: f(h > k, h > 0).astype(float)


def as_numbers(f):
    return lambda h, k: f(h, k).astype(float)


ONE = {
    **{
        name: getattr(lax, name)
        for name in (
            *("neg", "abs", "sign", "square", "sqrt", "rsqrt", "cbrt", "tanh", "sinh"),
            *("asinh", "atanh", "sin", "asin", "tan", "atan", "erf", "erf_inv", "cos"),
            *("round", "cosh", "bessel_i0e", "exp", "exp2", "expm1", "log", "log1p"),
            *("logistic", "acos", "acosh", "erfc", "lgamma", "digamma", "bessel_i1e"),
            *("floor", "ceil"),
        )
    },
    "real": lambda h: lax.real(h * (1 + 2j)),
    "imag": lambda h: lax.imag(h * (1 + 2j)),
    "conj": lambda h: lax.imag(lax.conj(h * (1 + 2j))),
    "copy": jnp.copy,
    "device_put": jax.device_put,
    "log2": jnp.log2,
    "sharding_constraint": lambda h: jax.lax.with_sharding_constraint(
        h, jax.NamedSharding(jax.make_mesh((1,), ("units",)), jax.P())
    ),
    "stop_gradient": lax.stop_gradient,
    "add_any": lambda h: jax.grad(lambda h: jnp.sum(h * jnp.sin(h)))(h),
    "add_any of scales": lambda h: jax.grad(lambda h: jnp.sum(h * h * h))(h),
    "composite": lax.composite(lambda h: jnp.tanh(h), "units.tanh"),
    "name": lambda h: checkpoint_name(h, "units"),
    "reduce_precision": lambda h: lax.reduce_precision(h, 11, 52),
    "is_finite": lambda h: lax.is_finite(h).astype(float),
    "polygamma": lambda h: lax.polygamma(jnp.ones_like(h), jnp.abs(h)),
    "not": lambda h: (~(h > 0)).astype(float),
    "population_count": integers(lax.population_count),
    "clz": integers(lax.clz),
    "bitcast_convert_type": lambda h: lax.bitcast_convert_type(
        h.astype(jnp.float32), jnp.int32
    ).astype(float),
    # Not in the table of laws.
    "integer_pow 3": lambda h: lax.integer_pow(h, 3),
    "integer_pow -2": lambda h: lax.integer_pow(h, -2),
    "pow 1/2": lambda h: lax.pow(h, 0.5),
    "pow 2": lambda h: lax.pow(h, 2.0),
    "pow infinity": lambda h: lax.pow(jnp.abs(h), jnp.full_like(h, jnp.inf)),
    "pow next to 1": lambda h: lax.pow(jnp.abs(h), 1 + 4e-7),
    "pow pi": lambda h: lax.pow(2.0, h),
    "to integers": integers(lambda h: h),
    "to unsigned": lambda h: (10 * h).astype(jnp.uint8).astype(float),
    "to bytes": lambda h: (100 * h).astype(jnp.int8).astype(float),
    "to complex": lambda h: jnp.abs(h + jnp.full_like(h, 0.5).astype(complex)),
    "plus imaginary": lambda h: jnp.real(jnp.sqrt(h + 1j)),
    "to complex zeros": lambda h: jnp.abs(h + jnp.zeros_like(h).astype(complex)),
    "to complex powers": lambda h: jnp.abs(
        lax.pow(h.astype(complex), jnp.full_like(h, 2.0).astype(complex))
    ),
    "from zeros": lambda h: jnp.where(h > 0, h, jnp.zeros_like(h).astype(bool)),
    "flags": lambda h: h.astype(bool).astype(float),
    "to flags": lambda h: (h * (h > 0.5)).astype(bool).astype(float),
    "clamp below": lambda h: lax.clamp(0.0, h, jnp.inf),
    "clamp above": lambda h: lax.clamp(-jnp.inf, h, 0.0),
    "clamp both": lambda h: lax.clamp(-1.0, h, 1.0),
    "not a number": lambda h: jnp.where(h > 0, h, jnp.nan),
    "by zero": lambda h: jnp.atan(h / 0.0),
    "by minus zero": lambda h: jnp.atan(h / -0.0),
    "power of zero": lambda h: h * jnp.sign(lax.integer_pow(jnp.zeros_like(h), -1)),
    "reduce_max": lambda h: jnp.max(h, axis=1, keepdims=True),
    "reduce_min": lambda h: jnp.min(h, axis=1, keepdims=True),
    "reduce_sum": lambda h: jnp.sum(h, axis=1, keepdims=True),
    "reduce_max examples": lambda h: jnp.max(h, axis=0, keepdims=True),
    "reduce_min examples": lambda h: jnp.min(h, axis=0, keepdims=True),
    "argmax": lambda h: jnp.argmax(h, axis=1, keepdims=True).astype(float),
    "argmin": lambda h: jnp.argmin(h, axis=1, keepdims=True).astype(float),
    "argmax examples": lambda h: jnp.argmax(h, axis=0, keepdims=True).astype(float),
    "argmin examples": lambda h: jnp.argmin(h, axis=0, keepdims=True).astype(float),
    "reduce_prod examples": lambda h: jnp.prod(h[:2], axis=0, keepdims=True),
    "cumprod examples": lambda h: lax.cumprod(h[:5], 0),
    "cumsum": lambda h: lax.cumsum(h, 1),
    "cummax": lambda h: lax.cummax(h, 1),
    "cummin": lambda h: lax.cummin(h, 1),
    "cumsum examples": lambda h: lax.cumsum(h, 0),
    "cummax examples": lambda h: lax.cummax(h, 0),
    "cummin examples": lambda h: lax.cummin(h, 0),
    "cumlogsumexp examples": lambda h: lax.cumlogsumexp(h, 0),
    "rev": lambda h: lax.rev(h, [1]),
    "sort": lambda h: lax.sort(h, dimension=1),
    "sort examples": lambda h: lax.sort(h, dimension=0),
    "top_k": lambda h: lax.top_k(h, 2)[0][:, :1],
    "top_k indices": lambda h: lax.top_k(h.T, 1)[1].T.astype(float),
    "window sum examples": lambda h: lax.reduce_window(
        h, 0.0, lax.add, (2, 1), (1, 1), "VALID"
    ),
    "window max examples": lambda h: lax.reduce_window(
        h, -jnp.inf, lax.max, (2, 1), (1, 1), "VALID"
    ),
    "window min examples": lambda h: lax.reduce_window(
        h, jnp.inf, lax.min, (2, 1), (1, 1), "VALID"
    ),
    "window max, summed": lambda h: _summed(
        lax.reduce_window(h, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID")
    ),
    "every other, summed": lambda h: _summed(
        lax.reduce_window(h, 0.0, lax.add, (1, 1), (1, 2), "VALID")
    ),
    "window sum": lambda h: lax.reduce_window(h, 0.0, lax.add, (1, 2), (1, 1), "SAME"),
    "scatter": lambda h: h.at[0].set(h[1]),
    "doubled in place": lambda h: lax.dynamic_update_slice(h, 2 * h[:2], (3, 0)),
    "scatter a constant": lambda h: h.at[0].apply(lambda _: np.float64(2.0)),
    "scatter-sub": lambda h: h.at[0].subtract(h[1]),
    "scatter zero": lambda h: h.at[0].set(0.0),
    "scatter one": lambda h: h.at[0].set(1.0),
    "scatter-add": lambda h: h.at[0].add(h[1]),
    "scatter-max": lambda h: h.at[0].max(h[1]),
    "scatter-min": lambda h: h.at[0].min(h[1]),
    "scatter function": lambda h: h.at[0].apply(jnp.exp),
    "pad between": lambda h: lax.pad(h, 0.0, ((0, 0, 1), (0, 0, 0))),
    "pad between by one": lambda h: lax.pad(h, 1.0, ((0, 0, 1), (0, 0, 0))),
    "pad less": lambda h: lax.pad(h, 0.0, ((-1, 1, 0), (0, 0, 0))),
    "pad by one": lambda h: lax.pad(h, 1.0, ((0, 2, 0), (0, 0, 0))),
    "pad less above": lambda h: lax.pad(h, 0.0, ((0, 0, 0), (1, -1, 0))),
    "pad less units": lambda h: lax.pad(h, 0.0, ((0, 0, 0), (-1, 1, 0))),
    "window of one, shifted": lambda h: (
        h + lax.reduce_window(h, 0.0, lax.add, (1, 1), (1, 1), ((0, 0), (1, -1)))
    ),
    "window of one, strided": lambda h: (
        h + lax.reduce_window(h, -9.0, lax.max, (1, 1), (1, 2), ((0, 0), (0, 2)))
    ),
    "rounded power": lambda h: lax.pow(
        jnp.abs(h), jnp.full_like(h, 0.3, jnp.bfloat16).astype(float)
    ),
    "power rounded on its way": lambda h: lax.pow(
        jnp.abs(h), jnp.full_like(h, 0.3).astype(jnp.bfloat16).astype(float)
    ),
    "odd of infinity": lambda h: jnp.tanh(jnp.where(_is_even(h), h, jnp.inf)),
    "while": lambda h: lax.while_loop(
        lambda state: state[0] < 2, lambda s: (s[0] + 1, jnp.exp(s[1])), (0, h)
    )[1],
    "empty reshape": lambda h: h + jnp.sum(h[:0].T.reshape(0)),
    "gather part": lambda h: _first_units(h),
    "gather part, summed": lambda h: _summed(_first_units(h)),
    "gather fill zero": lambda h: jnp.take(
        h, np.array([1, 2, 3, 4, 5, 30]), axis=0, mode="fill", fill_value=0.0
    ),
    "gather fill nan": lambda h: jnp.take(
        h, np.array([1, 2, 3, 4, 5, 30]), axis=0, mode="fill", fill_value=np.nan
    ),
    "gather fill": lambda h: jnp.take(
        h, np.array([1, 2, 3, 4, 5, 30]), axis=0, mode="fill", fill_value=3.0
    ),
    "by zeros of a margin": lambda h: jnp.tanh(
        1 / jnp.concatenate([h, jnp.zeros_like(h[:1])])
    ),
    "iota": lambda h: h * lax.iota(float, UNITS),
    # JAX keeps the case of False first.
    "second branch": lambda h: lax.cond(jnp.sum(h * h) > 0, jnp.tanh, jnp.negative, h),
    "branches": lambda h: lax.cond(jnp.sum(h * h) > 0, jnp.abs, jnp.negative, h),
    "second branch, units": lambda h: lax.cond(
        jnp.sum(h * h) > 0, lambda h: h[:, ::-1], jnp.tanh, h
    ),
}

TWO = {
    **{
        name: getattr(lax, name)
        for name in ("add", "sub", "max", "min", "mul", "div", "atan2", "nextafter")
    },
    "rem": lax.rem,
    "complex": lambda h, k: lax.real(lax.complex(h, k) * (1 - 2j)),
    "zeta": lambda h, k: lax.zeta(1 + jnp.abs(h), jnp.abs(k)),
    "igamma": lambda h, k: lax.igamma(jnp.abs(h), jnp.abs(k)),
    "igammac": lambda h, k: lax.igammac(jnp.abs(h), jnp.abs(k)),
    "regularized_incomplete_beta": lambda h, k: lax.betainc(
        jnp.abs(h), jnp.abs(k), jnp.full_like(h, 0.3)
    ),
    **{
        name: as_numbers(getattr(lax, name))
        for name in ("gt", "ge", "lt", "le", "eq", "ne")
    },
    "and": flags(lax.bitwise_and),
    "or": flags(lax.bitwise_or),
    "xor": flags(lax.bitwise_xor),
    "shift_left": integers(lax.shift_left),
    "shift_right_logical": integers(lax.shift_right_logical),
    "shift_right_arithmetic": integers(lax.shift_right_arithmetic),
    # Not in the table of laws.
    "select_n": lambda h, k: lax.select_n(k > 0, h, 2 * h),
    "select_n of both": lambda h, k: lax.select_n(k > 0, h, k),
    "clamp": lambda h, k: lax.clamp(h, k, 2.0),
    "clamp of both": lambda h, k: lax.clamp(h, k, 2 * h),
    "clamp from above": lambda h, k: lax.clamp(-jnp.inf, k, h),
    "sort by another": lambda h, k: lax.sort((h, k), dimension=0)[1],
    "written in place": lambda h, k: lax.dynamic_update_slice(h, k[:2], (3, 0)),
    "scatter of both": lambda h, k: h.at[0].set(k[0]),
    "scatter of each unit": lambda h, k: jax.vmap(
        lambda h, k, i: h.at[i].set(k), in_axes=1, out_axes=1
    )(h, k[:1], np.array([[1, 2, 1]])),
    "scatter-mul": lambda h, k: h.at[0].multiply(k[0]),
    "barrier": lambda h, k: _behind_a_barrier(h, k),
    "mutable": lambda h, k: _written(h, k),
}

WITHOUT_A_TEST = {
    "one_minus_square",  # not a primitive of every version of JAX
}

CONSERVATIVE = {
    # Scaling both changes the result alike, but for rounding where it jumps.
    "rem": (0, 0),
    "nextafter": (0, 0),
    "div": (2 * UNITS, UNITS),  # divisors may hold zeros, whose signs stay
    # What is known of constants does not pass through functions.
    "by zero": (0, UNITS),
    "by minus zero": (0, UNITS),
    "pow 2": (UNITS, 0),
    "to complex powers": (UNITS, 0),
    "clamp both": (0, 0),
    "to integers": (0, 0),
    "atan2": (UNITS, 0),  # odd in the first alone
    "sort by another": (0, 0),
    "second branch, units": (0, 1),
    "branches": (1, 0),
    "reduce_prod examples": (0, 0),
    "mutable": (0, 0),
    "scatter-mul": (0, 0),
    "gather part": (1, 1),
    "empty reshape": (0, 0),
}
"""Scales and signs that are found where there are more."""

ORDERED = {
    "top_k",
    "scatter function",
    "scatter a constant",
    "scatter-mul",
    "mutable",
    "empty reshape",
}
"""Where no permutation is found though there is one."""


def _is_even(h):
    return (np.arange(len(h)) % 2 == 0)[:, None]


def _summed(h):
    return jnp.sum(h, axis=1, keepdims=True)


def _first_units(h):
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    return lax.gather(h, np.arange(len(h))[:, None], numbers, (1, 2))


def _behind_a_barrier(h, k):
    h, k = lax.optimization_barrier((h, k))
    return jnp.tanh(h) * k


def _written(h, k):
    ref = jax.new_ref(jnp.zeros_like(h))
    ref[...] = k
    return h + ref[...]


def network(f, num_inputs):
    """`f` of one or two sets of units, each with a factor before and after."""
    half = np.geomspace(0.05, 6, 12)
    x = np.concatenate([half, -1.1 * half])[:, None]
    # Some entries of the two are equal.
    y = np.where(np.arange(24)[:, None] % 3 == 0, x, x[::-1] * 1.3)
    names = ("in", "other")[:num_inputs]

    def units(p, x):
        return f(*(v * p[name] for name, v in zip(names, x, strict=False)))

    def apply(p, x):
        return units(p, x) @ p["out"]

    params = {name: np.array([1.0, 1.2, 0.8]) for name in names}
    width = jax.eval_shape(units, params, (x, y)).shape[1]
    params["out"] = np.array([[0.7, -0.4], [1.1, 0.3], [-0.5, 0.9]])[:width]
    return Network(apply, params, (x, y))


def is_same(one, other):
    return np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)


def rank(vectors):
    return np.linalg.matrix_rank(np.array(vectors)) if vectors else 0


def measured(network):
    """How many scales and how many signs leave the outputs alone."""
    run = jax.jit(network.apply)
    names = [name for name in network.params if name != "out"]
    width = len(network.params["out"])
    before = np.asarray(run(network.params, network.x))
    assert np.sum(np.isfinite(before).all(axis=1)) > 3 or len(before) == 1

    def undone(factors, exponents, powers):
        moved = {
            name: network.params[name] * factors**exponent
            for name, exponent in zip(names, exponents, strict=True)
        }
        for power in powers:
            out = network.params["out"] * (factors[:width] ** -power)[:, None]
            if is_same(run(moved | {"out": out}, network.x), before):
                return True
        return False

    tried = [e for e in itertools.product((0, 1), repeat=len(names)) if any(e)]
    scales, signs = (
        [e for e in tried if undone(factors, e, powers)]
        for factors, powers in ((SCALES["each"], POWERS), (SIGNS, (0, 1)))
    )
    together = [e for e in tried if undone(SCALES["all"], e, POWERS)]
    flipped = [e for e in tried if undone(-np.ones(UNITS), e, (0, 1))]
    return (
        UNITS * rank(scales) or rank(together),
        UNITS * rank(signs) or rank(flipped),
    )


def is_permutable(network):
    """Whether the units have no order."""
    run = jax.jit(network.apply)
    before, order = run(network.params, network.x), [2, 0, 1]
    moved = {
        name: leaf[order] if len(leaf) == UNITS else leaf
        for name, leaf in network.params.items()
    }
    return is_same(run(moved, network.x), before)


CASES = [
    *((name, f, 1) for name, f in ONE.items()),
    *((n, f, 2) for n, f in TWO.items()),
]


def check_elements(network, spec):
    generator = np.random.default_rng(0)
    run = jax.jit(network.apply)
    before = run(network.params, network.x)
    for group in spec:
        moved = moves.move(group, moves.draw(group, generator), network.params)
        assert is_same(run(moved, network.x), before), group


@pytest.mark.parametrize(("name", "f", "num_inputs"), CASES, ids=[c[0] for c in CASES])
def test_what_an_operation_lets_through_is_what_numbers_say(name, f, num_inputs):
    with jax.enable_x64(True):
        made = network(f, num_inputs)
        spec = infer_unchecked(made)
        expected = measured(made)
        permutable = is_permutable(made)
        check_elements(made, spec)
    found = (spec.num_scalings, spec.num_signs)
    assert bool(spec.permutations) == (permutable and name not in ORDERED)
    assert permutable or name not in ORDERED
    if name in CONSERVATIVE:
        assert found == CONSERVATIVE[name]
        assert found != expected
        assert all(np.array(found) <= expected)
    else:
        assert found == expected


def test_every_law_is_tested():
    assert {*ONE, *TWO, *WITHOUT_A_TEST} >= set(elementwise.LAWS)
