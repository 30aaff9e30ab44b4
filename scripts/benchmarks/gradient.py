"""The full-batch gradient, as a share of what the device can do.

Ceilings are measured in the same run: a product of large square matrices at the same
precision, and a copy. The operations of a gradient are those of its matrix products and
convolutions, counted in its jaxpr, those of a pair (float16x2) as one; its bytes are
what XLA expects the compiled program to move.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks import figures, problems
from benchmarks.problems import CONVOLUTIONAL, Name, Scale
from symjax.posterior.convolutions import UNROLLED
from symjax.posterior.force import HALVES


@dataclass(frozen=True)
class Gradient:
    """Milliseconds and shares of the ceilings, by precision and micro-batch."""

    problems: tuple[Name, ...] = ("digits",)
    scale: Scale = "full"
    forces: tuple[str, ...] = ("float32",)
    """Values of `force_precision`; of resnet on a GPU also 'float16, fused'."""
    micro_batch: int | None = None
    """Of every precision. Default: all examples at once."""
    micro_batches: tuple[int, ...] = ()
    """Sizes to try beside it, for the last precision."""
    num_chains: int = 1
    num_gradients: int | None = None
    """Between two looks at the clock. Default: what takes a quarter of a second."""
    matrix: int | None = None
    """Side of the ceiling's matrices. Default: 8192, and 2048 on a CPU."""
    repeats: int = 7
    out: Path = figures.OUT


def main(options):
    found = []
    copy = _copy_rate(options)
    found.append(figures.figure("ceiling", "copy", "GB/s", copy / 1e9))
    rates = {force: _matrix_rate(force, options) for force in options.forces}
    found += [
        figures.figure("ceiling", f"matrices, {force}", "TFLOP/s", rate / 1e12)
        for force, rate in rates.items()
    ]
    for name in options.problems:
        variants = [(force, options.micro_batch) for force in options.forces]
        variants += [(options.forces[-1], size) for size in options.micro_batches]
        built = {
            variant: problems.build(
                name, options.scale, force=variant[0], micro_batch=variant[1]
            )
            for variant in variants
        }
        found += _measure(name, built, rates, copy, options)
    figures.report("gradient", options, found)


def _measure(name, built, rates, copy, options):
    first = next(iter(built.values()))
    params = problems.starts(first, options.num_chains)
    count = options.num_gradients or _count(first, params)
    calls, bytes_moved = {}, {}
    for variant, problem in built.items():
        program = problems.gradients(problem, count).lower(params, problem.data)
        compiled = program.compile()
        calls[variant] = lambda run=compiled, data=problem.data: run(params, data)
        size = min(variant[1] or math.inf, len(problem.data.y))
        # XLA counts one pass of a loop: over an LSTM's steps, a convolution's chains.
        has_loop = name in CONVOLUTIONAL and options.num_chains > UNROLLED
        is_counted = not has_loop and name != "cnn_lstm"
        if variant[1] == options.micro_batch and is_counted:
            bytes_moved[variant] = _bytes_of_one(compiled, len(problem.data.y), size)
    times = figures.interleaved(calls, options.repeats)
    plain = problems.build(name, options.scale).log_density
    operations = count_operations(jax.vmap(jax.grad(plain), (0, None)))(
        params, first.data
    )
    base, found = next(iter(calls)), []
    for variant, taken in times.items():
        force, size = variant
        case = f"{first.name}, {options.num_chains} chains, {force}"
        case += "" if size is None else f", micro-batches of {size:,}"
        one = taken / count
        found += [
            figures.figure(case, "a gradient", "ms", 1e3 * one),
            figures.figure(case, "operations", "TFLOP/s", operations / one / 1e12),
            figures.figure(
                case, "share of the matrix rate", "%",
                100 * operations / one / rates[force].max(),
            ),
        ]  # fmt: skip
        if bytes_moved.get(variant):
            share = 100 * bytes_moved[variant] / one / copy.max()
            found.append(figures.figure(case, "share of the copy rate", "%", share))
        if variant != base:
            ratio = times[base] / taken
            words = f"faster than the first, {base[0]}"
            found.append(figures.figure(case, words, "x", ratio))
    return found


def _count(problem, params):
    """Gradients that take about a quarter of a second."""
    one = problems.gradients(problem, 1)
    jax.block_until_ready(one(params, problem.data))
    took = figures.seconds(lambda: one(params, problem.data))
    return max(1, min(1000, round(0.25 / took)))


def _bytes_of_one(compiled, num_examples, size):
    """What XLA expects a gradient to move: of a micro-batch, times their number.

    It counts what is in a loop once, that over the gradients and that over the
    micro-batches in them.
    """
    costs = compiled.cost_analysis() or {}
    return costs.get("bytes accessed", 0) * num_examples / size


def count_operations(function):
    """`function` as one that counts its multiplications and additions of matrices."""
    return lambda *args: _operations(jax.make_jaxpr(function)(*args).jaxpr)


def _operations(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            depth = math.prod(shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * depth
        elif name == "conv_general_dilated":
            total += _of_convolution(equation)
        times = params.get("length", 1) if name == "scan" else 1
        for value in jax.tree.leaves(tuple(params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += times * _operations(inner)
    return total


def _of_convolution(equation):
    """An output adds up a kernel's worth of inputs, those put in as zeros left out."""
    kernel, spec = equation.invars[1].aval.shape, equation.params["dimension_numbers"]
    depth = math.prod(kernel) // kernel[spec.rhs_spec[0]]
    zeros = math.prod(equation.params["lhs_dilation"])
    zeros *= math.prod(equation.params["rhs_dilation"])
    grouped = equation.params["batch_group_count"]
    outputs = math.prod(equation.outvars[0].aval.shape)
    return 2 * outputs * depth // (zeros if zeros > 1 else 1) // max(1, grouped)


def _matrix_rate(force, options):
    """Operations a second of a square product, in turns."""
    side = options.matrix or (2048 if jax.default_backend() == "cpu" else 8192)
    is_half = force.startswith(HALVES)
    dtype = jnp.bfloat16 if is_half else jnp.float32
    a = jax.random.normal(jax.random.key(0), (side, side), dtype)
    if is_half:
        product = jax.jit(lambda a: a @ a)
    else:
        precision = force
        product = jax.jit(lambda a: jnp.matmul(a, a, precision=precision))
    times = figures.interleaved({"product": lambda: product(a)}, options.repeats)
    return 2 * side**3 / times["product"]


def _copy_rate(options):
    """Bytes read and written a second."""
    size = 2**20 if options.scale == "tiny" else 2**28
    values = jnp.ones(size, jnp.float32)
    copy = jax.jit(lambda x: x + 1)
    times = figures.interleaved({"copy": lambda: copy(values)}, options.repeats)
    return 8 * size / times["copy"]
