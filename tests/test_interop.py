"""numpyro models and plain log densities, under every sampler here."""

import arviz
import blackjax
import cases
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import assert_mean
from numpyro.infer import MCMC, NUTS

from symjax import interop, mesh, run
from symjax.samplers import baoab, hmc, izmailov2021, sgld


X = np.random.default_rng(0).normal(size=(12, 2))
Y = X @ [0.5, -1.0] + 1.2


def model(x, num_weights, y):
    """A positive site, one whose support depends on it, and a deterministic one."""
    low = numpyro.sample("low", dist.Exponential(1.0))
    high = numpyro.sample("high", dist.Uniform(low, low + 2))
    weight = numpyro.sample("weight", dist.Normal(0.0, 1.0).expand([num_weights]))
    numpyro.deterministic("gap", high - low)
    numpyro.sample("y", dist.Normal(x @ weight + high, 0.5), obs=y)


def by_hand(params, data):
    """The same density in its unconstrained parameters, up to a constant."""
    x, y = data
    low = jnp.exp(params["low"])
    share = jax.nn.sigmoid(params["high"])
    prior = params["low"] - low + jnp.log(share) + jnp.log1p(-share)
    prior -= jnp.sum(params["weight"] ** 2) / 2
    residual = y - x @ params["weight"] - low - 2 * share
    return prior - 2 * jnp.sum(residual**2)


@pytest.fixture(scope="module", autouse=True)
def float64():
    """So that rounding doesn't part two chains that ought to be one."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def target(float64):
    key = jax.random.key(0)
    return interop.from_numpyro(key, model, 4, args=(X, 2), kwargs={"y": Y})


# These lines of the table count examples, which a density without any can't have.
OTHERWISE = {"sgld", "baoab", "izmailov2021"}
SAMPLERS = [
    *(case for case in cases.SAMPLERS if case.name not in OTHERWISE),
    cases.Case("sgld", lambda lp: sgld.build(lp, step_size=0.01, batch_size=6)),
    cases.Case(
        "baoab",
        lambda lp: baoab.build(lp, step_size=0.01, friction=5.0, batch_size=6),
    ),
    cases.Case(
        "izmailov2021",
        lambda lp: izmailov2021.build(
            lp,
            step_size=1e-3,
            momentum_decay=0.9,
            batch_size=6,
            batches="replacement",
        ),
    ),
]


def one_device():
    return mesh.make_mesh(4, jax.devices()[:1])


def draws_of(case, log_density, params, data):
    """A few iterations."""
    return run.sample(
        jax.random.key(1),
        case.build(log_density),
        params,
        data,
        num_draws=3,
        thinning=2,
        num_burn_in=10,
        mesh=one_device(),
        show_progress=False,
    ).draws


# They ask for the density as hmc or sghmc do, by code that these share.
ALIKE = {"dynamic_hmc", "mala", "chees", "sgnht", "baoab", "cyclical"}


@pytest.mark.parametrize(
    "case",
    [case for case in SAMPLERS if case.name not in ALIKE],
    ids=lambda case: case.name,
)
def test_a_sampler_moves_by_the_density_of_the_model(case, target):
    """Draw for draw as with the density written by hand."""
    expected = interop.Density(by_hand)
    draws = draws_of(case, target.log_density, target.params, target.data)
    by_oracle = draws_of(case, expected, target.params, (X, Y))
    for name, leaf in draws.items():
        assert leaf.shape[:2] == (4, 3)
        np.testing.assert_allclose(leaf, by_oracle[name], rtol=1e-6, atol=1e-6)
        assert np.any(leaf[:, -1] != target.params[name])
    made = target.constrain(draws)
    low, high = np.exp(draws["low"]), made["high"]
    np.testing.assert_allclose(made["low"], low, rtol=1e-9)
    inside = low + 2 * np.asarray(jax.nn.sigmoid(draws["high"]))
    np.testing.assert_allclose(high, inside, rtol=1e-9)
    np.testing.assert_allclose(made["gap"], high - low, atol=1e-12)


@pytest.mark.parametrize("case", SAMPLERS[::5], ids=lambda case: case.name)
def test_a_sampler_moves_by_a_function_of_the_parameters(case):
    keys = jax.random.split(jax.random.key(0))
    params = {
        "a": jax.random.normal(keys[0], (4, 3)),
        "b": jax.random.normal(keys[1], (4,)),
    }

    def logdensity_fn(params):
        return -jnp.sum((params["a"] - params["b"]) ** 2) / 2 - params["b"] ** 2 / 2

    given = interop.from_function(logdensity_fn)
    expected = interop.Density(lambda params, data: data * logdensity_fn(params))
    draws = draws_of(case, given, params, None)
    by_oracle = draws_of(case, expected, params, jnp.ones(()))
    for name, leaf in draws.items():
        np.testing.assert_allclose(leaf, by_oracle[name], rtol=1e-6, atol=1e-6)
        assert np.any(leaf[:, -1] != params[name])


def test_data_are_arguments_and_not_constants(target):
    """Other data of the same shapes give another density, without a new model."""
    assert [leaf.shape for leaf in target.data] == [(12, 2), (12,)]
    params = jax.tree.map(lambda leaf: leaf[0], target.params)
    jitted = jax.jit(target.log_density)
    for other in ((X, Y), (2 * X, Y - 1)):
        offset = jitted(params, other) - by_hand(params, other)
        first = target.log_density(params, target.data) - by_hand(params, (X, Y))
        np.testing.assert_allclose(offset, first, rtol=1e-9)


def test_starts_differ_and_are_finite(target):
    values = jax.vmap(target.log_density, (0, None))(target.params, target.data)
    assert values.shape == (4,)
    assert np.all(np.isfinite(values))
    assert len(set(np.asarray(target.params["low"]).tolist())) == 4


def assert_quantities(ours, oracle):
    """Mean and mean square by name, within 5 joint standard errors by ESS.

    A false alarm has a probability of 6e-7 for each of at most 12 numbers.
    """
    for name, leaf in ours.items():
        for power in (1, 2):
            a, b = (
                np.reshape(x**power, (*x.shape[:2], -1)) for x in (leaf, oracle[name])
            )
            for i in range(a.shape[-1]):
                errors = [
                    x.std() / np.sqrt(arviz.ess(x, method="mean"))
                    for x in (a[..., i], b[..., i])
                ]
                error = np.hypot(*errors)
                assert abs(a[..., i].mean() - b[..., i].mean()) < 5 * error
                assert error < 0.1 * a[..., i].std()


@pytest.fixture(scope="module")
def ours(target):
    algorithm = hmc.build(
        target.log_density, step_size=0.1, trajectory_length=0.7, num_warmup=300
    )
    draws = run.sample(
        jax.random.key(1),
        algorithm,
        target.params,
        target.data,
        num_draws=2000,
        mesh=one_device(),
        show_progress=False,
    ).draws
    return target.constrain(draws)


def test_hmc_agrees_with_numpyro(ours):
    mcmc = MCMC(
        NUTS(model),
        num_warmup=500,
        num_samples=2000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(2), X, 2, Y)
    oracle = mcmc.get_samples(group_by_chain=True)
    assert_quantities(ours, jax.tree.map(np.asarray, oracle))


@pytest.mark.parametrize("name", ["nuts", "hmc"])
def test_hmc_agrees_with_blackjax(ours, target, name):
    def logdensity_fn(params):
        return by_hand(params, (X, Y))

    options = {"num_integration_steps": 7} if name == "hmc" else {}
    inverse_mass_matrix = jnp.ones(4)
    algorithm = getattr(blackjax, name)(
        logdensity_fn, 0.1, inverse_mass_matrix, **options
    )

    def chain(key, params):
        def advance(state, key):
            state, _ = algorithm.step(key, state)
            return state, state.position

        keys = jax.random.split(key, 2500)
        return jax.lax.scan(advance, algorithm.init(params), keys)[1]

    keys = jax.random.split(jax.random.key(3), 4)
    draws = jax.jit(jax.vmap(chain))(keys, target.params)
    draws = jax.tree.map(lambda leaf: leaf[:, 500:], draws)
    assert_quantities(ours, jax.tree.map(np.asarray, target.constrain(draws)))


def test_a_model_without_data_is_sampled():
    def prior():
        numpyro.sample("x", dist.Beta(2.0, 5.0))

    key = jax.random.key(0)
    target = interop.from_numpyro(key, prior, 100)
    algorithm = hmc.build(target.log_density, step_size=0.5, num_steps=3)
    draws = run.sample(
        key,
        algorithm,
        target.params,
        target.data,
        num_draws=200,
        num_burn_in=50,
        mesh=mesh.make_mesh(100, jax.devices()[:1]),
        show_progress=False,
    ).draws
    x = np.asarray(target.constrain(draws)["x"])
    assert_mean(x, 2 / 7)
    assert_mean(x**2, 2 / 7 * 3 / 8)


def test_an_improper_site_is_constrained_by_the_sites_before_it():
    def simplex():
        first = numpyro.sample("first", dist.Uniform(0.0, 1.0))
        support = dist.constraints.interval(0.0, 1 - first)
        numpyro.sample("second", dist.ImproperUniform(support, (), ()))

    target = interop.from_numpyro(jax.random.key(0), simplex, 3)
    draws = jax.tree.map(lambda leaf: leaf[:, None], target.params)
    made = target.constrain(draws)
    share = jax.nn.sigmoid(draws["second"])
    np.testing.assert_allclose(made["second"], (1 - made["first"]) * share, rtol=1e-9)
