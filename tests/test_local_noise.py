"""Noise of each example's own: its distribution, against Jacobians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symjax.approximations import gaussian, local_noise


NUM_EXAMPLES = 3
ROWS = jnp.arange(NUM_EXAMPLES)


def conv(params, x, **options):
    shape = jax.lax.conv_dimension_numbers(x.shape, params.shape, ("NHC", "HIO", "NHC"))
    return jax.lax.conv_general_dilated(
        x, params, (1,), "SAME", dimension_numbers=shape, **options
    )


def scanned(params, x):
    step = lambda carry, w: (carry, x @ w)
    return jax.lax.scan(step, 0.0, params)[1][0]


# What each example shares with the others, by the use of a leaf: nothing, or its draw.
USES = {
    "dense": (lambda w, x: x @ w, (2, 3), (2,), "own"),
    "transposed in jit": (
        jax.jit(lambda w, x: jnp.einsum("oi,bi->bo", w, x)),
        (3, 2),
        (2,),
        "own",
    ),
    "from the left": (lambda w, x: (w.T @ x.T).T, (2, 3), (2,), "own"),
    "heads": (lambda w, x: jnp.einsum("bhi,hio->bho", x, w), (2, 2, 2), (2, 2), "own"),
    "reshaped": (lambda w, x: x @ w.reshape(2, 3), (6,), (2,), "own"),
    "of a sequence": (lambda w, x: x @ w, (2, 3), (4, 2), "own"),
    "of heads of a sequence": (
        lambda w, x: jnp.einsum("bthi,hio->btho", x, w),
        (2, 2, 2),
        (3, 2, 2),
        "own",
    ),
    "convolution": (conv, (3, 2, 2), (4, 2), "own"),
    "convolution of groups": (
        lambda w, x: conv(w, x, feature_group_count=2),
        (2, 1, 2),
        (3, 2),
        "own",
    ),
    "bias": (lambda w, x: x + w, (2,), (2,), "own"),
    "scale": (lambda w, x: x * w, (2,), (3, 2), "own"),
    "bias twice": (lambda w, x: x + w + w[::-1], (2,), (2,), "own"),
    "embedding": (lambda w, x: w[x[:, 0].astype(int)], (2, 2), (1,), "shared"),
    "twice": (lambda w, x: x @ w + 2 * (x @ w), (2, 2), (2,), "shared"),
    "returned too": (lambda w, x: x @ w + w[:1], (2, 2), (2,), "shared"),
    "in a loop": (scanned, (1, 2, 2), (2,), "shared"),
    "of no input": (lambda w, x: x + (jnp.ones((2, 2)) @ w)[0], (2, 2), (2,), "shared"),
}


@pytest.mark.parametrize("use", USES)
def test_an_example_is_distributed_as_under_one_draw(use):
    """Of networks linear in their weights the Jacobian tells mean and covariance."""
    apply, shape, input_shape, kind = USES[use]
    keys = jax.random.split(jax.random.key(0), 3)
    mean = jax.random.normal(keys[0], shape)
    std = jnp.exp(jax.random.normal(keys[1], shape))
    x = jnp.abs(jax.random.normal(keys[2], (NUM_EXAMPLES, *input_shape)))

    def outputs(key):
        return local_noise.evaluate(apply, key, mean, std, x, ROWS).ravel()

    num_draws = 4_000
    draws = jax.jit(jax.vmap(outputs))(jax.random.split(jax.random.key(1), num_draws))
    jacobian = np.asarray(jax.jacobian(apply)(mean, x), float)
    jacobian = jacobian.reshape(draws.shape[1], -1)
    covariance = (jacobian * np.asarray(std, float).ravel() ** 2) @ jacobian.T
    if kind == "own":
        covariance *= np.kron(
            np.eye(NUM_EXAMPLES), np.ones((len(covariance) // NUM_EXAMPLES,) * 2)
        )
    else:
        assert np.max(np.abs(covariance[0, len(covariance) // NUM_EXAMPLES :])) > 0.1
    spread = np.sqrt(np.diag(covariance))
    error = (np.mean(draws, axis=0) - apply(mean, x).ravel()) / spread
    np.testing.assert_allclose(error, 0, atol=5.5 / np.sqrt(num_draws))
    # Of a product of normals the fourth moment is 3, of a flipout's at most 9.
    scaled = (np.cov(draws.T) - covariance) / np.outer(spread, spread)
    np.testing.assert_allclose(scaled, 0, atol=5.5 * np.sqrt(9 / num_draws))


@pytest.mark.parametrize("apply", [lambda w, x: x @ w, conv], ids=["dense", "conv"])
def test_signs_turn_inputs_and_outputs_of_a_shared_deviation(apply):
    """Of one deviation, over examples that read the same.

    With one kind of signs alone each example would be distributed as it should, but
    examples would share more of the deviation's noise than they do.
    """
    num_examples = 4_000

    def turned(shape):
        if apply is conv:
            shape = (1, *shape)
        noise = jnp.zeros(shape), jnp.ones(shape)
        # Both vectors of an example meet the same weights.
        x, rows = jnp.ones((num_examples, 2, shape[-2])), jnp.arange(num_examples)
        outputs = local_noise.evaluate(apply, jax.random.key(0), *noise, x, rows)
        np.testing.assert_array_equal(outputs[:, 0], outputs[:, 1])
        return np.asarray(outputs[:, 0], float)

    # Outputs of the only input would go together as the deviation's columns happen to.
    correlation = np.corrcoef(turned((1, 3)).T) - np.eye(3)
    np.testing.assert_allclose(correlation, 0, atol=5 / np.sqrt(num_examples))
    # The two inputs of the only output would always go together.
    sizes = np.unique(np.round(np.abs(turned((2, 1))), 4))
    assert len(sizes) == 2


def network(params, x):
    """A convolution, a dense layer and an activation between."""
    hidden = jnp.tanh(conv(params["kernel"], x) + params["bias"])
    return hidden.reshape(len(x), -1) @ params["out"] + params["shift"]


def estimate(key, mean, log_std, x, is_local):
    """A sum over examples that is not linear in the outputs."""
    std = jax.tree.map(jnp.exp, log_std)
    if is_local:
        rows = jnp.arange(len(x))
        outputs = local_noise.evaluate(network, key, mean, std, x, rows)
    else:
        outputs = network(gaussian.sample(key, gaussian.Gaussian(mean, std)), x)
    return -jnp.sum(jnp.square(outputs - jnp.sin(x.sum((1, 2)))[:, None]))


def test_estimates_are_unbiased_and_vary_less():
    """Value and gradients, against those with draws that all examples share."""
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = {"kernel": (3, 2, 2), "bias": (2,), "out": (8, 2), "shift": ()}
    mean = {name: jax.random.normal(keys[0], s) / 2 for name, s in shapes.items()}
    log_std = jax.tree.map(lambda leaf: jnp.full_like(leaf, -1.0), mean)
    x = jax.random.normal(keys[1], (16, 4, 2))
    gradient = jax.value_and_grad(estimate, (1, 2))
    drawn = []
    for is_local in (True, False):
        one = lambda key, is_local=is_local: gradient(key, mean, log_std, x, is_local)
        made = jax.jit(jax.vmap(one))(jax.random.split(keys[2], 4_000))
        drawn.append([np.asarray(leaf, float) for leaf in jax.tree.leaves(made)])
    for local, shared in zip(*drawn, strict=True):
        error = np.sqrt((local.var(axis=0) + shared.var(axis=0)) / len(local))
        difference = (local.mean(axis=0) - shared.mean(axis=0)) / error
        np.testing.assert_allclose(difference, 0, atol=5)
        assert local.var(axis=0).mean() < 0.7 * shared.var(axis=0).mean()


def test_an_example_without_input_has_a_gradient():
    def squares(std):
        outputs = local_noise.evaluate(
            lambda w, x: x @ w, jax.random.key(0), std, std, jnp.zeros((2, 3)), ROWS[:2]
        )
        return jnp.sum(outputs**2)

    np.testing.assert_array_equal(jax.grad(squares)(jnp.ones((3, 2))), 0)
