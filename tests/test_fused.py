"""The fused kernels, interpreted, against the same networks in flax and XLA.

Interpreted kernels run what a GPU runs, but for the hardware's tanh; the compiled ones
are compared by `scripts/benchmark.py gradient`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symjax import models, rounding
from symjax.models.fused import block, find, resnet
from symjax.models.fused.block import Layer, residual_block
from symjax.models.fused.resnet import _conv_frn
from symjax.posterior.force import at_precision


def layers(generator, channels):
    def normal(*shape):
        return generator.normal(size=shape).astype(np.float32)

    return [
        Layer(
            normal(3, 3, channels, channels) / np.sqrt(9 * channels),
            0.1 * normal(channels),
            1 + 0.2 * normal(channels),
            0.2 * normal(channels),
            -0.5 + 0.2 * normal(channels),
        )
        for _ in range(2)
    ]


def plain_block(maps, one, two):
    norm_conv = partial(_conv_frn, False)
    return jax.nn.silu(maps + norm_conv(jax.nn.silu(norm_conv(maps, one)), two))


@pytest.mark.parametrize(
    ("side", "channels", "programs"), [(32, 16, 528), (16, 32, 528), (8, 64, 2)]
)
def test_a_fused_block_and_its_gradient_are_those_of_the_plain_one(
    side, channels, programs, monkeypatch
):
    """For two chains at once, as `vmap` runs them.

    Two programs of the weights' gradient share three images: one has two, one has one.
    """
    monkeypatch.setattr(block, "_PROGRAMS", programs)
    generator = np.random.default_rng(side)
    shape = 2, 3, side, side, channels
    maps, gradient = (generator.normal(size=shape).astype(np.float32) for _ in "ab")
    weights = [layers(generator, channels) for _ in range(2)]
    weights = jax.tree.map(lambda *leaves: np.stack(leaves), *weights)

    def run(function):
        def one(maps, weights, gradient):
            out, pull = jax.vjp(function, maps, *weights)
            return out, pull(gradient)

        with jax.default_matmul_precision("highest"):
            return jax.jit(jax.vmap(one))(maps, weights, gradient)

    for fused, plain in zip(
        jax.tree.leaves(run(residual_block)),
        jax.tree.leaves(run(plain_block)),
        strict=True,
    ):
        assert fused.shape == plain.shape
        np.testing.assert_allclose(fused, plain, rtol=0, atol=1e-5 * abs(plain).max())


@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
def test_a_block_in_half_the_memory_is_as_near_as_the_plain_one_is(half):
    generator = np.random.default_rng(1)
    maps = generator.normal(size=(4, 8, 8, 64)).astype(np.float32)
    weights = layers(generator, 64)

    def gradient(function, dtype):
        def total(maps, weights):
            return jnp.sum(function(maps.astype(dtype), *weights).astype(jnp.float32))

        return jax.tree.leaves(jax.jit(jax.grad(total, argnums=(0, 1)))(maps, weights))

    def error(leaves):
        pairs = zip(leaves, gradient(plain_block, jnp.float32), strict=True)
        return max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs)

    plain = error(gradient(plain_block, half))
    assert error(gradient(residual_block, half)) < 1.2 * plain < 0.1


@partial(jax.jit, static_argnums=0)
def both_passes(in_pairs, x, gradient, kept_of, weights):
    """A block, and its gradient from the maps that other weights keep."""
    out = residual_block(x, *weights, in_pairs=in_pairs)
    *kept, _, _ = block._forward_pass(False, x, *kept_of)[1]
    back = block._backward_pass(in_pairs, (*kept, *weights), gradient)
    return out.astype(jnp.float32), back[0].astype(jnp.float32)


@pytest.mark.parametrize("in_pairs", [False, True])
@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
def test_what_rounding_takes_from_kernels_counts_in_pairs_alone(half, in_pairs):
    """What changes with it, forwards and backwards, as share of the change in float32.

    The backward passes begin with the same maps, so that their own kernels count.
    """
    generator = np.random.default_rng(3)
    shape = 16, 8, 8, 64
    maps, gradient = (generator.normal(size=shape).astype(np.float32) for _ in "ab")
    maps, gradient = (np.asarray(a.astype(half), np.float32) for a in (maps, gradient))
    exact = layers(generator, 64)
    low = [
        layer._replace(kernel=layer.kernel.astype(half).astype(np.float32))
        for layer in exact
    ]

    def changes(dtype, in_pairs=False):
        starts = jnp.asarray(maps, dtype), jnp.asarray(gradient, dtype), low
        sides = (both_passes(in_pairs, *starts, weights) for weights in (exact, low))
        return [np.ravel(a - b) for a, b in zip(*sides, strict=True)]

    expected = changes(jnp.float32)
    for ours, theirs in zip(changes(half, in_pairs), expected, strict=True):
        share = ours @ theirs / (theirs @ theirs)
        assert abs(share - in_pairs) < (0.1 if in_pairs else 1e-6)


def test_what_is_past_the_largest_number_of_float16_stays_finite():
    generator = np.random.default_rng(2)
    maps = jnp.asarray(generator.normal(size=(1, 8, 8, 64)), jnp.float16)
    one, two = layers(generator, 64)
    one, two = (layer._replace(gamma=3e4 * layer.gamma) for layer in (one, two))
    out, pull = jax.jit(lambda *a: jax.vjp(residual_block, *a))(maps, one, two)
    assert abs(out).max() == 65504
    for leaf in jax.tree.leaves(pull(jnp.full_like(out, 6e4))):
        assert np.isfinite(leaf).all()


def test_the_fused_network_is_the_network():
    model = models.build("resnet20_frn", 10, activation="silu")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 32, 32, 3)).astype(np.float32)
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * generator.normal(size=leaf.shape).astype(np.float32),
        jax.jit(model.init)(jax.random.key(0), x),
    )

    fused = jax.jit(lambda *a: resnet.apply(*a, dtype=jnp.float32))(params, x)
    plain = jax.jit(model.apply)(params, x)
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-4 * abs(plain).max())


def test_no_kernel_is_used_where_none_fits():
    assert find(models.build("resnet20_frn", 10)) is None  # There is no GPU here.
    assert find(models.build("mlp", 10)) is None
    model = models.build("resnet20_frn", 3, width=4)
    x = np.random.default_rng(0).normal(size=(2, 12, 12, 1)).astype(np.float32)
    params = jax.jit(model.init)(jax.random.key(0), x)
    fused = jax.jit(lambda *a: resnet.apply(*a, dtype=jnp.float32))(params, x)
    plain = jax.jit(model.apply)(params, x)
    np.testing.assert_allclose(fused, plain, rtol=1e-4, atol=1e-5)


def test_there_are_kernels_for_one_network_on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert find(models.build("resnet20_frn", 10)) is resnet.apply
    assert find(models.build("resnet20_frn", 10, activation="relu")) is None
    assert find(models.build("resnet18_frn", 10)) is None


@pytest.mark.parametrize(("size", "expected"), [((32, 32), 5), ((32, 16), 0)])
def test_kernels_take_square_images_alone(size, expected, monkeypatch):
    """Three blocks of 16 channels and two of 32; the others are left to XLA."""
    taken = []
    monkeypatch.setattr(
        resnet, "residual_block", lambda maps, *_, **__: (taken.append(1), maps)[1]
    )
    model = models.build("resnet20_frn", 10)
    x = jax.ShapeDtypeStruct((2, *size, 3), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    jax.eval_shape(lambda *a: resnet.apply(*a, dtype=jnp.float16), params, x)
    assert len(taken) == expected


@pytest.mark.parametrize("in_pairs", [False, True])
def test_every_kernel_is_told_of_pairs(in_pairs, monkeypatch):
    """Five blocks of two, and XLA's eleven; of `at_precision` on."""
    told, product = [], rounding.product

    def tell(maps, *_, in_pairs):
        told.extend([in_pairs] * 2)
        return maps

    def tell_of_one(*args, in_pairs):
        told.append(in_pairs)
        return product(*args, in_pairs=in_pairs)

    monkeypatch.setattr(resnet, "residual_block", tell)
    monkeypatch.setattr(rounding, "product", tell_of_one)
    model = models.build("resnet20_frn", 10)
    x = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    precision = "float16x2" if in_pairs else "float16"
    jax.eval_shape(at_precision(model.apply, precision, resnet.apply), params, x)
    assert told == [in_pairs] * 21
