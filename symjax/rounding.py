"""Matrix products and convolutions of rounded numbers, with gradients to match.

What is rounded are the operands, and the results as they are stored; what is added up
inside a product, all other arithmetic and the gradients of parameters are float32. But
convolutions that sum up a kernel's gradient in float16 store it as that: cuDNN has none
of float16 numbers with float32 results, so that XLA would copy the operands to float32.
In bfloat16 they would lose three bits more, and are left.

What rounding does to activations averages over the examples. Parameters are rounded
alike in all of them: the force is that of another position near by. So parameters can
be kept as sums of two numbers, which makes two products of one. Embeddings are not:
what is looked up in them varies, and is rounded as activations are.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend import core

from symjax.jaxprs import bind, opened, rerun, scan_counts
from symjax.types import Params


_Multiply: TypeAlias = Callable[[Any, Sequence[bool]], Callable[[Any, Any], Any]]
"""The product of an equation, from whether its operands vary."""

PRODUCTS = ("dot_general", "conv_general_dilated")


def round_products(
    apply: Callable[[Params, Any], Any], dtype: Any, *, in_pairs: bool = False
) -> Callable[[Params, Any], Any]:
    """A network's function with its float32 products rounded.

    It is traced and run again, with every product replaced, those of a `jax.lax.scan`
    (as of recurrent layers) too, but those of other loops and of functions with rules
    of their own (`jax.checkpoint`, `jax.custom_vjp`), which are left as they are.

    Args:
        apply: `(params, x) -> outputs`.
        dtype: bfloat16 (8 bits) or float16 (11 bits, none below 6e-8).
        in_pairs: Whether parameters are sums of two numbers of the type, and products
            with them sums of two products.
    """

    def rounded(params: Params, x: Any) -> Any:
        leaves, treedef = jax.tree.flatten(params)
        closed = jax.make_jaxpr(lambda *a: apply(treedef.unflatten(a[:-1]), a[-1]))(
            *leaves, x
        )
        varies = [False] * len(leaves) + [True]
        values = *leaves, x
        multiply = partial(_product, jnp.dtype(dtype), in_pairs)
        return _run(closed.jaxpr, closed.consts, values, varies, multiply)[0][0]

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
    jaxpr: Any, consts: Any, values: Any, varies: list[bool], multiply: _Multiply
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
            results = [multiply(eqn, flags)(*inputs)]
        elif eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            results, varied = _run(
                inner.jaxpr, inner.consts, inputs, list(flags), multiply
            )
        elif eqn.primitive.name == "scan":
            results, varied = _scan(eqn.params, inputs, list(flags), multiply)
        else:
            results = bind(eqn, inputs)
        env |= dict(zip(eqn.outvars, zip(results, varied, strict=True), strict=True))
    outputs, varied = zip(*map(read, jaxpr.outvars), strict=True)
    return list(outputs), list(varied)


def _scan(
    params: dict[str, Any], values: Any, varies: list[bool], multiply: _Multiply
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
            results, varied[:] = _run(body, consts, inputs, varies, multiply)
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


def _product(
    dtype: Any, in_pairs: bool, eqn: Any, varies: Sequence[bool]
) -> Callable[[Any, Any], Any]:
    """The product of an equation, of rounded numbers."""

    def multiply(one: Any, other: Any, result: Any) -> Any:
        return bind(eqn, (one, other), preferred_element_type=result)[0]

    return product(multiply, dtype, *varies, in_pairs=in_pairs)


def product(
    multiply: Callable[[Any, Any, Any], Any],
    dtype: Any,
    *varies: bool,
    in_pairs: bool = False,
) -> Callable[[Any, Any], Any]:
    """A product of two float32 operands that are rounded.

    Args:
        multiply: `(one, other, dtype of the result) -> result`, linear in both.
        dtype: To round to.
        *varies: Of each operand, whether it varies from example to example: then its
            gradient is rounded too.
        in_pairs: Whether an operand that does not vary is a sum of two numbers, where
            the other varies.
    """
    storage = _storage(dtype)
    in_pairs = in_pairs and any(varies)
    rounded, join = partial(_rounded, dtype), partial(_join, dtype)
    store = partial(bind, preferred_element_type=storage)
    sum_up = partial(_sum_up, store, rounded if dtype == jnp.float16 else None)

    def parts(value: Any, varied: bool) -> tuple[Any, ...]:
        return pair(dtype, value) if in_pairs and not varied else (rounded(value),)

    @jax.custom_vjp
    def rounded_product(one: Any, other: Any) -> Any:
        return forward(one, other)[0]

    def forward(one: Any, other: Any) -> tuple[Any, Any]:
        ones, others = parts(one, varies[0]), parts(other, varies[1])
        results = [multiply(a, b, storage) for a in ones for b in others]
        return join(results), (ones, others)

    def backward(kept: Any, gradient: Any) -> tuple[Any, ...]:
        ones, others = kept
        gradient = rounded(gradient)
        sides = (
            (ones[0], [lambda a, b=b: multiply(a, b, storage) for b in others]),
            (others[0], [lambda b, a=a: multiply(a, b, storage) for a in ones]),
        )

        def pull(side: Any, functions: Any, rounds: bool) -> Any:
            run = store if rounds else sum_up
            pulled = [_pull(function, side, gradient, run) for function in functions]
            return join(pulled) if rounds else pulled[0]

        return tuple(
            pull(*side, rounds) for side, rounds in zip(sides, varies, strict=True)
        )

    rounded_product.defvjp(forward, backward)
    return rounded_product


def _storage(dtype: Any) -> Any:
    # XLA has no such products on a CPU: there rounded numbers are stored as float32.
    return jnp.dtype(jnp.float32) if jax.default_backend() == "cpu" else dtype


def saturated(dtype: Any, value: Any) -> Any:
    """Numbers past the largest of a type are that."""
    # Infinities would become NaN in the next product, and the chain stand still.
    largest = float(jnp.finfo(dtype).max)
    return jnp.clip(value, -largest, largest)


def _rounded(dtype: Any, value: Any) -> Any:
    return saturated(dtype, value).astype(dtype).astype(_storage(dtype))


def pair(dtype: Any, value: Any) -> tuple[Any, Any]:
    """The two numbers of each, of which the second is multiplied by `ahead`."""
    limits = jnp.finfo(dtype)
    kept = saturated(dtype, value)
    # XLA may skip a conversion to a type and back, but no `reduce_precision`.
    first = jax.lax.reduce_precision(kept, limits.nexp, limits.nmant)
    return _rounded(dtype, first), _rounded(dtype, ahead(dtype) * (kept - first))


def ahead(dtype: Any) -> float:
    """What makes a rest as large as what it is the rest of: so it does not vanish."""
    return 2.0 ** (jnp.finfo(dtype).nmant + 1)


def _join(dtype: Any, products: Sequence[Any]) -> Any:
    """A product that was stored, or the sum of those of a pair, as it is stored."""
    first, *rest = (_rounded(dtype, value).astype(jnp.float32) for value in products)
    if not rest:
        return first
    return _rounded(dtype, first + rest[0] / ahead(dtype)).astype(jnp.float32)


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
