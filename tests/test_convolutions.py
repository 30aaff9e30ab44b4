"""Convolutions in order, and chain by chain."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.lax import conv_general_dilated
from jax.sharding import PartitionSpec as P

from symjax import densities, mesh as meshes, models, posterior
from symjax.posterior.convolutions import for_chains
from symjax.types import Data


IN_ORDER = ("NHWC", "HWIO", "NHWC")
NWC = ("NWC", "WIO", "NWC")

KINDS = {
    "plain": ((2, 6, 7, 3), (3, 2, 3, 4), {}),
    "strided": ((2, 7, 6, 3), (3, 3, 3, 4), {"window_strides": (2, 1)}),
    "dilated": ((2, 9, 7, 3), (3, 3, 3, 4), {"rhs_dilation": (2, 1)}),
    "spread": ((2, 5, 4, 3), (3, 3, 3, 4), {"lhs_dilation": (1, 2)}),
    "grouped": ((2, 6, 5, 4), (3, 3, 2, 6), {"feature_group_count": 2}),
    "channels first": (
        (2, 3, 6, 5),
        (4, 3, 3, 2),
        {"dimension_numbers": ("NCHW", "OIHW", "NCHW")},
    ),
    "mixed": (
        (3, 6, 5, 2),
        (3, 4, 2, 3),
        {"dimension_numbers": ("CWHN", "IOHW", "HCNW")},
    ),
    "words": (
        (2, 9, 3),
        (4, 3, 5),
        {"dimension_numbers": NWC, "window_strides": (2,)},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_derivatives_stay_as_they_are(kind):
    maps, kernel, options = KINDS[kind]
    options = {
        "window_strides": (1,) * (len(maps) - 2),
        "padding": "SAME",
        "dimension_numbers": IN_ORDER,
    } | options
    arrays = [
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate((maps, kernel))
    ]
    if "lhs_dilation" in options:
        options["padding"] = ((1, 1), (1, 1))

    def function(maps, kernel):
        convolved = jax.nn.relu(conv_general_dilated(maps, kernel, **options))
        return jnp.sum(jnp.sin(convolved)), convolved

    gradient = jax.value_and_grad(function, (0, 1), has_aux=True)
    ordered = for_chains(gradient)

    @jax.jit
    def all_of(*arrays):
        several = [jnp.stack([array, -array, 2 * array]) for array in arrays]
        return [
            (jax.jvp(function, arrays, arrays), jax.vmap(function)(*several))
            for function in (ordered, gradient)
        ]

    ours, theirs = all_of(*arrays)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert set(_layouts(ordered, *arrays)) == {_in_order(len(maps))}


def test_the_gradient_of_a_posterior_has_its_convolutions_in_order():
    net = models.build("lenet", num_outputs=3)
    x = jax.random.normal(jax.random.key(0), (4, 28, 28, 1))
    data = Data(x, jnp.arange(4) % 3, jnp.ones(4, bool))
    prior = densities.Prior(dist.Normal(0.0, 0.3))
    density = posterior.build(net.apply, prior, densities.categorical, micro_batch=2)
    params = jax.eval_shape(net.init, jax.random.key(0), x)
    layouts = _layouts(jax.grad(density), params, data)
    # Two forward, and of the gradient two of kernels and one of maps.
    assert layouts == [_in_order(4)] * 5


def _in_order(ndim):
    last, space = ndim - 1, tuple(range(1, ndim - 1))
    kernel = (last, last - 1, *range(ndim - 2))
    return (0, last, *space), kernel, (0, last, *space)


def _layouts(function, *args):
    """Dimension numbers of all convolutions."""
    found = _convolutions(function, *args)
    return [tuple(eqn.params["dimension_numbers"]) for eqn in found]


def _convolutions(function, *args):
    """All of them, those in loops and functions too."""
    found = []

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "conv_general_dilated":
                found.append(eqn)
            for inner in jax.tree.leaves(
                list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")
            ):
                if hasattr(inner, "jaxpr"):
                    visit(inner.jaxpr)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return found


def test_chains_have_convolutions_of_their_own():
    net = models.build("lenet", num_outputs=3)
    x = jax.random.normal(jax.random.key(0), (4, 28, 28, 1))
    data = Data(x, jnp.arange(4) % 3, jnp.ones(4, bool))
    prior = densities.Prior(dist.Normal(0.0, 0.3))
    density = posterior.build(net.apply, prior, densities.categorical)
    shapes = jax.eval_shape(net.init, jax.random.key(0), x)
    keys = jax.random.split(jax.random.key(1), 5)
    chains = [prior.sample(key, shapes) for key in keys]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)
    gradients = jax.vmap(jax.grad(density), (0, None))
    # Those at the start too: else a density relative to it is not zero there.
    relative = jax.vmap(lambda chain: density.relative_to(chain, data)(chain))
    found = _convolutions(gradients, together, data) + _convolutions(relative, together)
    kinds = "feature_group_count", "batch_group_count"
    assert {eqn.params[kind] for eqn in found for kind in kinds} == {1}
    alone = jax.jit(jax.grad(density))
    apart = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(alone(chain, data) for chain in chains)
    )
    for a, b in zip(
        jax.tree.leaves(jax.jit(gradients)(together, data)),
        jax.tree.leaves(apart),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_derivatives_of_a_posterior_can_be_differentiated():
    kernel = jax.random.normal(jax.random.key(0), (3, 1, 2)) / 2
    x = jax.random.normal(jax.random.key(1), (3, 4, 1))
    data = Data(x, jnp.arange(3) % 2, jnp.ones(3, bool))

    def apply(kernel, x):
        convolved = conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=NWC)
        return jnp.sum(jnp.tanh(convolved), axis=1)

    prior = densities.Prior(dist.Normal(0.0, 0.3))
    density = posterior.build(apply, prior, densities.categorical)

    def plain(kernel):
        nats = densities.categorical(apply(kernel, data.x), data.y)
        return jnp.sum(nats) + prior(kernel)

    @jax.jit
    def all_of(kernel):
        ours = lambda kernel: density(kernel, data)
        total = lambda kernel, batch: jnp.sum(
            densities.categorical(apply(kernel, batch.x), batch.y)
        )
        change = lambda new: density.sum_over_examples(total, new, data) + prior(new)
        forward, reverse = jax.jacfwd, jax.jacrev
        return (
            [forward(jax.grad(ours))(kernel), reverse(jax.grad(ours))(kernel)],
            jax.hessian(plain)(kernel),
            jax.grad(change)(kernel),
            jax.grad(plain)(kernel),
        )

    second, expected, first, slope = all_of(kernel)
    for one in second:
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first, slope, rtol=1e-4, atol=1e-4)


def test_groups_of_channels_are_sampled_on_several_devices():
    """A JAX vmap of a grouped convolution's gradient fails in a shard_map."""
    maps = jax.random.normal(jax.random.key(0), (2, 3, 3, 2))
    kernels = jax.random.normal(jax.random.key(1), (2, 3, 3, 1, 4))
    options = {"dimension_numbers": IN_ORDER, "feature_group_count": 2}

    def loss(kernel, maps):
        convolved = conv_general_dilated(maps, kernel, (1, 1), "SAME", **options)
        return jnp.sum(jnp.sin(convolved))

    def gradient(kernels, maps):
        ours = jax.vmap(for_chains(jax.grad(loss)), (0, None))(kernels, maps)
        return meshes.sum_over_data(ours)

    mesh = meshes.make_mesh(1, jax.devices()[:2], (1, 2))
    run = meshes.map_chains(mesh, gradient, P("chain"), P("data"))
    ours = jax.jit(run)(kernels, maps)
    alone = [jax.grad(loss)(kernel, maps) for kernel in kernels]
    np.testing.assert_allclose(ours, np.asarray(alone), rtol=1e-5, atol=1e-5)
