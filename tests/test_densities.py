"""Priors and likelihoods against SciPy and float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import scipy.special
import scipy.stats

from symjax import densities


PARAMS = {
    "params": {
        "Dense_0": {"kernel": np.full((3, 4), 0.7, np.float32), "bias": np.ones(4)},
        "Dense_1": {"kernel": np.linspace(-3, 5, 8, dtype=np.float32).reshape(4, 2)},
    }
}


class Mixture:
    """0.25 N(0, 1.5^2) + 0.75 N(0, 0.2^2), as SciPy's frozen distributions are."""

    def logpdf(self, x):
        wide = scipy.stats.norm.logpdf(x, 0, 1.5) + np.log(0.25)
        return np.logaddexp(wide, scipy.stats.norm.logpdf(x, 0, 0.2) + np.log(0.75))

    def cdf(self, x):
        wide = scipy.stats.norm.cdf(x, 0, 1.5)
        return 0.25 * wide + 0.75 * scipy.stats.norm.cdf(x, 0, 0.2)

    def std(self):
        return np.sqrt(0.25 * 1.5**2 + 0.75 * 0.2**2)


FAMILIES: dict[str, tuple[dict, Any]] = {
    "normal": ({"variance": 0.25}, scipy.stats.norm(0, 0.5)),
    "laplace": ({"scale": 0.3}, scipy.stats.laplace(0, 0.3)),
    "student_t": ({"scale": 0.3, "df": 4.0}, scipy.stats.t(4, 0, 0.3)),
    "logistic": ({"scale": 0.3}, scipy.stats.logistic(0, 0.3)),
    "mixture": ({"scales": (1.5, 0.2), "weights": (0.25, 0.75)}, Mixture()),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prior_is_scipys(name):
    """Density, change of density, gradient, standard deviation and draws."""
    options, oracle = FAMILIES[name]
    logpdf = oracle.logpdf
    prior = densities.prior(name, **options)
    params = jax.tree.map(jnp.asarray, PARAMS)
    proposal = jax.tree.map(lambda leaf: 0.5 - leaf, params)

    def exact(params):
        return sum(
            logpdf(np.asarray(leaf, np.float64)).sum()
            for leaf in jax.tree.leaves(params)
        )

    value, gradient = jax.jit(jax.value_and_grad(prior))(params)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact(params), rtol=1e-5)
    change = jax.jit(prior.difference)(params, proposal)
    np.testing.assert_allclose(change, exact(proposal) - exact(params), rtol=1e-5)
    numerical = (logpdf(0.7 + 1e-6) - logpdf(0.7 - 1e-6)) / 2e-6
    kernel = gradient["params"]["Dense_0"]["kernel"]
    np.testing.assert_allclose(kernel, np.full((3, 4), numerical), rtol=1e-4)

    stds = jax.tree.leaves(prior.std(params))
    np.testing.assert_allclose(stds, [oracle.std()] * 3, rtol=1e-6)

    shapes = {"a": jax.ShapeDtypeStruct((40_000,), jnp.float32), "b": jnp.zeros(40_000)}
    draws = jax.vmap(lambda key: prior.sample(key, shapes))(
        jax.random.split(jax.random.key(0), 2)
    )
    flat = np.concatenate([draws["a"], draws["b"]]).astype(np.float64)
    assert len(np.unique(flat[:, 0])) == 4
    assert scipy.stats.kstest(flat.ravel(), oracle.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("distribution", "far", "exact"),
    [
        (dist.Normal(0.5, 1.0), False, lambda x: -((x - 0.5) ** 2) / 2),
        (dist.Normal(0.5, 1.0), True, lambda x: -((x - 0.5) ** 2) / 2),
        (dist.Laplace(0.0, 1.0), True, lambda x: -np.abs(x)),
    ],
)
def test_difference_holds_at_ten_million_parameters(distribution, far, exact):
    """Near by and half a turn away; the two float32 sums themselves are off by 0.1."""
    generator = np.random.default_rng(0)
    before, after = generator.standard_normal((2, 10_000_000), np.float32)
    if not far:
        after = before + np.float32(1e-3) * after
    truth = np.sum(exact(after.astype(float)) - exact(before.astype(float)))
    prior = densities.Prior(distribution)
    change = float(jax.jit(prior.difference)(before, after))
    assert abs(change - truth) < (1e-3 if far else 1e-5)
    assert abs(float(prior(after) - prior(before)) - truth) > 0.1


def test_the_first_matching_rule_gives_a_leafs_prior():
    rules = [
        ("*/Dense_1/*", dist.Laplace(0.0, 2.0)),
        ("*/kernel", dist.Normal(0.0, 0.5)),
        ("params/Dense_0/bias", dist.Normal(1.0, 3.0)),
    ]
    dense_0, dense_1 = PARAMS["params"].values()
    expected = (
        scipy.stats.laplace.logpdf(dense_1["kernel"], 0, 2).sum()
        + scipy.stats.norm.logpdf(dense_0["kernel"], 0, 0.5).sum()
        + scipy.stats.norm.logpdf(dense_0["bias"], 1, 3).sum()
    )
    for form in (rules, dict(rules)):
        prior = densities.Prior(form)
        np.testing.assert_allclose(prior(PARAMS), expected, rtol=1e-5)
    std = jax.jit(lambda params: prior.std(params)["params"])(PARAMS)
    np.testing.assert_allclose(std["Dense_1"]["kernel"], 2 * np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(std["Dense_0"]["bias"], 3, rtol=1e-6)

    with pytest.raises(ValueError, match="'params/Dense_0/bias' is matched by none of"):
        densities.Prior(rules[:2])(PARAMS)
    with pytest.raises(ValueError, match=r"'\*/Dense_2/\*' matches none of params/Den"):
        densities.Prior([("*/Dense_2/*", dist.Normal()), *rules]).std(PARAMS)


def test_bad_priors_are_named():
    with pytest.raises(ValueError, match="normal, laplace, student_t, logistic, mixtu"):
        densities.prior("gaussian")
    with pytest.raises(ValueError, match="`df` is no option of the prior normal, whic"):
        densities.prior("normal", df=3.0)
    with pytest.raises(ValueError, match="`scale` must be a positive number, got -1"):
        densities.prior("laplace", scale=-1.0)
    with pytest.raises(ValueError, match="`scale` or `variance` must be left out"):
        densities.prior("normal", scale=1.0, variance=1.0)
    with pytest.raises(ValueError, match="`weights` must sum to 1"):
        densities.prior("mixture", scales=(1.0, 2.0), weights=(1.0, 1.0))
    with pytest.raises(
        ValueError, match="`scales` and `weights` must be of one length"
    ):
        densities.prior("mixture", scales=(1.0, 2.0), weights=(1.0,))
    with pytest.raises(TypeError, match=r"got 1.0 for '\*'. Write numpyro"):
        densities.Prior({"*": 1.0})
    with pytest.raises(ValueError, match=r"Normal of shape \(3,\)"):
        densities.Prior(dist.Normal(jnp.zeros(3), 1.0))
    with pytest.raises(ValueError, match="HalfNormal of shape"):
        densities.Prior(dist.HalfNormal(1.0))
    with pytest.raises(ValueError, match="StudentT for 'w' has no variance"):
        densities.prior("student_t", df=2.0).std({"w": jnp.ones(3)})


def test_class_likelihoods_are_optaxs_and_safe():
    logits = jax.random.normal(jax.random.key(0), (5, 3)) * 4
    labels = np.array([0, 2, 1, 1, 0], np.int32)
    np.testing.assert_allclose(
        jax.jit(densities.categorical)(logits, labels),
        -jax.jit(optax.softmax_cross_entropy_with_integer_labels)(logits, labels),
        rtol=1e-5,
    )
    odds, ones = logits[:, :1], labels.clip(max=1)
    expected = -jax.jit(optax.sigmoid_binary_cross_entropy)(odds[:, 0], ones)
    for form in (odds, odds[:, 0]):
        np.testing.assert_allclose(
            jax.jit(densities.bernoulli)(form, ones), expected, rtol=1e-5
        )

    extreme = jnp.array([[1e4, 0.0, -1e4]])
    value, gradient = jax.jit(
        jax.value_and_grad(
            lambda logits: densities.categorical(logits, jnp.array([2]))[0]
        )
    )(extreme)
    assert (value, gradient.tolist()) == (-2e4, [[-1, 0, 1]])
    value, gradient = jax.jit(
        jax.value_and_grad(
            lambda logits: densities.bernoulli(logits, jnp.array([0]))[0]
        )
    )(jnp.array([[1e4]]))
    assert (value, gradient.tolist()) == (-1e4, [[-1]])


def test_gaussian_likelihoods_are_scipys():
    generator = np.random.default_rng(0)
    means, raw, targets = generator.normal(size=(3, 6, 2)).astype(np.float32)
    expected = scipy.stats.norm.logpdf(targets, means, 0.3)
    np.testing.assert_allclose(
        densities.gaussian(0.3)(means, targets), expected.sum(axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(
        densities.gaussian(0.3)(means[:, :1], targets[:, 0]), expected[:, 0], rtol=1e-5
    )
    with pytest.raises(ValueError, match="`scale` must be a positive number, got 0"):
        densities.gaussian(0.0)

    scales = np.log1p(np.exp(raw)) + densities.SCALE_FLOOR
    outputs = np.concatenate([means, raw], axis=1)
    expected = scipy.stats.norm.logpdf(targets, means, scales).sum(axis=1)
    np.testing.assert_allclose(
        densities.heteroscedastic(outputs, targets), expected, rtol=1e-5
    )
    steep = jnp.array([[0.0, -1e4]])
    assert densities.mean_and_scale(steep)[1] == np.float32(densities.SCALE_FLOOR)


@pytest.mark.parametrize("num_outputs", [None, 2])
def test_learned_noise_is_one_parameter_for_all_examples(num_outputs):
    model = lambda params, x: x @ params["w"]
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    y = np.ones((6, 2), np.float32)
    params = densities.add_noise(
        {"w": jnp.ones((3, 2))}, scale=0.4, num_outputs=num_outputs
    )
    apply = densities.learned_noise(model)
    outputs = apply(params, x)
    expected = densities.gaussian(0.4)(model(params["model"], x), y)
    np.testing.assert_allclose(
        densities.heteroscedastic(outputs, y), expected, rtol=1e-5
    )
    gradient = jax.grad(
        lambda params: densities.heteroscedastic(apply(params, x), y).sum()
    )(params)
    # d log N / d scale = (residual^2 / scale^2 - 1) / scale, through softplus.
    residual = x.sum(axis=1, keepdims=True) - y
    slope = (residual**2 / 0.4**2 - 1) / 0.4 * scipy.special.expit(params["noise"])
    axis = None if num_outputs is None else 0
    np.testing.assert_allclose(gradient["noise"], slope.sum(axis=axis), rtol=1e-4)
    with pytest.raises(ValueError, match="`scale` must be above 1e-05, got 1e-05"):
        densities.add_noise(params, scale=1e-5)
