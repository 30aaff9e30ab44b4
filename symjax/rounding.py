"""Matrix products and convolutions of rounded numbers, with gradients to match.

What is rounded are the operands, and the results as they are stored; what is added up
inside a product, all other arithmetic and the gradients of parameters are float32. But
convolutions that sum up a kernel's gradient in float16 store it as that: cuDNN has none
of float16 numbers with float32 results, so that XLA would copy the operands to float32.
In bfloat16 they would lose three bits more, and are left.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from symjax.jaxprs import bind, opened, rerun, scan_counts
from symjax.types import Params


PRODUCTS = ("dot_general", "conv_general_dilated")


def round_products(
    apply: Callable[[Params, Any], Any], dtype: Any
) -> Callable[[Params, Any], Any]:
    """A network's function with its float32 products rounded.

    It is traced and run again, with every product replaced, those of a `jax.lax.scan`
    (as of recurrent layers) too, but those of other loops and of functions with rules
    of their own (`jax.checkpoint`, `jax.custom_vjp`), which are left as they are.

    Args:
        apply: `(params, x) -> outputs`.
        dtype: bfloat16 (8 bits) or float16 (11 bits, none below 6e-8).
    """

    def rounded(params: Params, x: Any) -> Any:
        leaves, treedef = jax.tree.flatten(params)
        closed = jax.make_jaxpr(lambda *a: apply(treedef.unflatten(a[:-1]), a[-1]))(
            *leaves, x
        )
        varies = [False] * len(leaves) + [True]
        values = *leaves, x
        return _run(closed.jaxpr, closed.consts, values, varies, jnp.dtype(dtype))[0][0]

    return rounded


def scale_gradients(
    apply: Callable[[Params, Any], Any], size: int
) -> Callable[[Params, Any], Any]:
    """`apply`, whose gradient is taken as if the outputs' were smaller or larger.

    What comes back to the outputs depends on the likelihood alone, and may be past all
    numbers of a type, or below them. It is multiplied by a power of two, so that
    nothing is rounded, which makes its largest number `2^(size - 1)` to `2^size`; the
    gradient of the parameters is divided by it.

    Args:
        apply: `(params, x) -> outputs`.
        size: Logarithm to base 2.
    """

    @jax.custom_vjp
    def scaled(params: Params, x: Any) -> Any:
        return apply(params, x)

    def forward(params: Params, x: Any) -> tuple[Any, Any]:
        return jax.vjp(lambda params: apply(params, x), params)

    def backward(pull: Any, gradient: Any) -> tuple[Params, None]:
        _, exponent = jnp.frexp(jnp.max(jnp.abs(gradient)))
        one = jnp.ones_like(gradient, shape=())
        power = jnp.ldexp(one, jnp.minimum(size - exponent, 100))
        (pulled,) = pull(power * gradient)
        return jax.tree.map(lambda leaf: leaf / power, pulled), None

    scaled.defvjp(forward, backward)
    return scaled


def _run(
    jaxpr: Any, consts: Any, values: Any, varies: list[bool], dtype: Any
) -> tuple[list[Any], list[bool]]:
    """Results of a jaxpr, and which of them vary from example to example."""
    env = dict(zip(jaxpr.constvars, ((c, False) for c in consts), strict=True))
    env |= dict(zip(jaxpr.invars, zip(values, varies, strict=True), strict=True))

    def read(atom: Any) -> tuple[Any, bool]:
        return (atom.val, False) if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs, flags = zip(*map(read, eqn.invars), strict=True) or ((), ())
        varied = [any(flags)] * len(eqn.outvars)
        if eqn.primitive.name in PRODUCTS and _is_float32(inputs):
            results = [product(partial(_multiply, eqn), dtype, *flags)(*inputs)]
        elif eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            results, varied = _run(
                inner.jaxpr, inner.consts, inputs, list(flags), dtype
            )
        elif eqn.primitive.name == "scan":
            results, varied = _scan(eqn.params, inputs, list(flags), dtype)
        else:
            results = bind(eqn, inputs)
        env |= dict(zip(eqn.outvars, zip(results, varied, strict=True), strict=True))
    outputs, varied = zip(*map(read, jaxpr.outvars), strict=True)
    return list(outputs), list(varied)


def _scan(
    params: dict[str, Any], values: Any, varies: list[bool], dtype: Any
) -> tuple[list[Any], list[bool]]:
    """Results of a loop, and which of them vary from example to example."""
    first, num_carry = scan_counts(params)
    carried, (body, consts) = slice(first, first + num_carry), opened(params["jaxpr"])
    start, steps = list(values[carried]), list(values[carried.stop :])
    how = {name: params[name] for name in ("length", "reverse", "unroll")}
    varied: list[bool] = []

    def loop() -> list[Any]:
        def step(carry: Any, now: Any) -> tuple[list[Any], list[Any]]:
            inputs = *values[:first], *carry, *now
            results, varied[:] = _run(body, consts, inputs, varies, dtype)
            return results[:num_carry], results[num_carry:]

        # A function of its own each time: that of before would not be traced again.
        carry, rest = jax.lax.scan(step, start, steps, **how)
        return [*carry, *rest]

    while True:
        results, before = loop(), varies[carried]
        # What varies after a pass does in the next.
        varies[carried] = map(operator.or_, before, varied[:num_carry])
        if varies[carried] == before:
            return results, varied


def _is_float32(values: Any) -> bool:
    return all(value.dtype == jnp.float32 for value in values)


def _multiply(eqn: Any, one: Any, other: Any, dtype: Any) -> Any:
    return bind(eqn, (one, other), preferred_element_type=dtype)[0]


def product(
    multiply: Callable[[Any, Any, Any], Any], dtype: Any, *varies: bool
) -> Callable[[Any, Any], Any]:
    """A product of two float32 operands that are rounded.

    Args:
        multiply: `(one, other, dtype of the result) -> result`, linear in both.
        dtype: To round to.
        *varies: Of each operand, whether it varies from example to example: then its
            gradient is rounded too.
    """
    # XLA has no such products on a CPU: there rounded numbers are stored as float32.
    storage = jnp.dtype(jnp.float32) if jax.default_backend() == "cpu" else dtype
    largest = float(jnp.finfo(dtype).max)

    def rounded(value: Any) -> Any:
        # Infinities would become NaN in the next product, and the chain stand still.
        return jnp.clip(value, -largest, largest).astype(dtype).astype(storage)

    def result(one: Any, other: Any) -> Any:
        return rounded(multiply(one, other, storage)).astype(jnp.float32)

    store = partial(bind, preferred_element_type=storage)
    sum_up = partial(_sum_up, store, rounded if dtype == jnp.float16 else None)

    @jax.custom_vjp
    def rounded_product(one: Any, other: Any) -> Any:
        return result(rounded(one), rounded(other))

    def forward(one: Any, other: Any) -> tuple[Any, Any]:
        kept = rounded(one), rounded(other)
        return result(*kept), kept

    def backward(kept: Any, gradient: Any) -> tuple[Any, ...]:
        one, other = kept
        sides = (
            (lambda a: multiply(a, other, storage), one),
            (lambda b: multiply(one, b, storage), other),
        )
        pulled = (
            _pull(function, side, rounded(gradient), store if rounds else sum_up)
            for (function, side), rounds in zip(sides, varies, strict=True)
        )
        return tuple(
            rounded(value).astype(jnp.float32) if rounds else value
            for value, rounds in zip(pulled, varies, strict=True)
        )

    rounded_product.defvjp(forward, backward)
    return rounded_product


def _pull(
    function: Any, side: Any, gradient: Any, multiply: Callable[[Any, Any], list[Any]]
) -> Any:
    """The pullback of a linear function, whose products are run by `multiply`."""
    transpose = jax.linear_transpose(function, side)
    closed = jax.make_jaxpr(lambda gradient: transpose(gradient)[0])(gradient)

    def run(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
        return (multiply if eqn.primitive.name in PRODUCTS else bind)(eqn, values)

    (pulled,) = rerun(closed.jaxpr, closed.consts, (gradient,), run)
    return pulled.astype(jnp.float32)


def _sum_up(store: Any, rounded: Any, eqn: Any, values: Sequence[Any]) -> list[Any]:
    """A product with float32 results, which a convolution in float16 stores as that.

    A sum of n terms with random signs is sqrt(n) times as large as one of them, n times
    if they have the same sign. So the operands are divided by n^(1/4) each, rounded to
    a power of two: the sum is stored as large as its terms are, which a float16
    holds, and sqrt(n) times as large at most. An operand's numbers lose digits below
    6e-5 n^(1/4); with all of sqrt(n) in one operand they would below 6e-5 n^(1/2).
    """
    if rounded is None or eqn.primitive.name != "conv_general_dilated":
        return bind(eqn, values, preferred_element_type=jnp.dtype(jnp.float32))
    window, spec = values[1].shape, eqn.params["dimension_numbers"].rhs_spec
    num_terms = math.prod(window) // window[spec[0]]
    power = 2.0 ** round(math.log2(num_terms) / 4)
    (sums,) = store(eqn, [rounded(value / power) for value in values])
    return [power**2 * rounded(sums).astype(jnp.float32)]
