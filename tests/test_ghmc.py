"""Generalised HMC against exact answers, and what MEADS finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from scipy.special import digamma, polygamma

from symjax import mesh, run
from symjax.samplers import ghmc


SCALES = np.array([0.1, 1.0, 3.0, 10.0])


def gaussian(params, data):
    return -jnp.sum((params / SCALES) ** 2) / 2


def skewed(params, data):
    """log of Gamma(2, 1) variables: mean digamma(2), variance polygamma(1, 2)."""
    return jnp.sum(2 * params - jnp.exp(params))


def sample(density, start, num_devices=1, **options):
    kept = {"num_draws": 4000, "thinning": 2} | {
        name: options.pop(name) for name in ("num_draws", "thinning") if name in options
    }
    return run.sample(
        jax.random.key(0),
        ghmc.build(density, **options),
        start,
        None,
        num_burn_in=200,
        mesh=mesh.make_mesh(len(start), jax.devices()[:num_devices]),
        show_progress=False,
        **kept,
    )


def assert_mean(values, expected):
    """Within 5 standard errors: a false alarm in 1e-6 of the cases."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < 5 * error
    assert error < 0.05 * max(values.std(), abs(expected))


@pytest.mark.parametrize("step_size", [0.3, 1.2])
def test_a_skewed_target_at_fine_and_coarse_steps(step_size):
    result = sample(skewed, jnp.zeros((8, 2)), step_size=step_size, damping=0.7)
    assert_mean(result.draws[..., 0], digamma(2))
    assert_mean((result.draws[..., 0] - digamma(2)) ** 2, polygamma(1, 2))
    accepted = np.mean(result.info.is_accepted)
    assert (accepted > 0.9) if step_size < 1 else (0.3 < accepted < 0.9)


def test_little_damping_carries_a_chain_further_than_none_of_its_momentum():
    wide = {"thinning": 1, "num_draws": 2000, "step_size": 0.2}
    start = jnp.zeros((4, 3))
    sizes = [
        effective_sample_size(
            np.asarray(sample(skewed, start, damping=damping, **wide).draws)[..., 0]
        )
        for damping in (0.5, 50.0)
    ]
    assert sizes[0] > 3 * sizes[1]


def test_meads_frees_chains_that_start_at_one_point():
    result = sample(skewed, jnp.ones((16, 2)), num_warmup=200, num_draws=500)
    assert np.all(np.mean(result.info.is_accepted[:, 200:], axis=1) > 0.9)
    assert_mean(result.draws[..., 0], digamma(2))


def test_what_is_not_finite_is_refused_by_a_slice_at_0_too():
    damping, step_size = 0.5, 0.5
    algorithm = ghmc.build(
        lambda x, data: jnp.where(x[0] == 1, 0.0 * x[0], jnp.nan),
        step_size=step_size,
        damping=damping,
    )
    state = algorithm.init(jax.random.key(0), jnp.ones(1), None)
    share = -np.expm1(-2 * step_size * damping)
    for level in np.float32(-share / 2) + np.arange(-4, 5) * 2.0**-24:
        at = state._replace(slice=jnp.float32(level))
        after, info = algorithm.step(jax.random.key(1), at, None)
        assert info.is_divergent
        assert not info.is_accepted
        assert after.position[0] == 1


@pytest.fixture(scope="module")
def adapted():
    start = SCALES * jax.random.normal(jax.random.key(1), (32, 4))
    return sample(gaussian, start, num_warmup=600)


def test_meads_samples_a_gaussian_of_many_scales(adapted):
    for i in range(4):
        assert_mean(adapted.draws[..., i] / SCALES[i], 0)
        assert_mean((adapted.draws[..., i] / SCALES[i]) ** 2, 1)


def test_meads_then_stands_still_in_all_chains_alike(adapted):
    sizes = np.asarray(adapted.info.step_size)
    assert np.ptp(sizes, axis=0).max() == 0
    assert np.ptp(sizes[:, 600:]) == 0
    # Hoffman and Sountsov: half of the scaled gradients' root, here near 0.5.
    assert 0.3 < sizes[0, -1] < 0.7
    assert np.mean(adapted.info.acceptance_rate[:, 600:]) > 0.85


@pytest.mark.parametrize("num_devices", [2, 8])
def test_chains_on_other_devices_count_as_much(num_devices):
    start = SCALES * jax.random.normal(jax.random.key(1), (8, 4))
    options = {"num_warmup": 20, "num_draws": 1}
    one, many = (sample(gaussian, start, n, **options) for n in (1, num_devices))
    np.testing.assert_allclose(one.info.step_size, many.info.step_size, rtol=1e-3)
    np.testing.assert_allclose(one.draws, many.draws, rtol=1e-3, atol=1e-3)


def test_a_cliff_is_turned_away_from():
    def cliff(params, data):
        return jnp.where(jnp.sum(params) < 1, -jnp.sum(params**2) / 2, -jnp.inf)

    result = sample(cliff, jnp.zeros((4, 1)), step_size=0.5, damping=0.5)
    assert result.info.is_divergent.any()
    assert result.draws.max() < 1


def test_a_steep_refusal_leaves_the_slice_in_place():
    """Energies that rise by more than exp can hold in float32."""

    def steep(params, data):
        return -jnp.sum(params**8) / 2

    result = sample(steep, jnp.zeros((4, 1)), step_size=1.0, damping=0.5)
    change = np.asarray(result.info.energy_change)
    assert np.any(change[:, :1000] > 100)
    assert np.asarray(result.info.is_accepted)[:, -1000:].any(axis=1).all()


def test_few_chains_are_refused_a_warm_up():
    with pytest.raises(ValueError, match="at least 4 chains.*got 2"):
        sample(gaussian, jnp.zeros((2, 4)), num_warmup=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either a `num_warmup` or both `step_size` and `damping`"),
        ({"step_size": 0.1}, "got 0, 0.1 and None"),
        ({"num_warmup": 5, "step_size": 0.1, "damping": 1.0}, "either a `num_warmup`"),
        ({"step_size": -0.1, "damping": 1.0}, "`step_size` must be a positive number"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ghmc.build(gaussian, **options)


def meads(positions, gradients, iteration):
    """Hoffman and Sountsov's rules in float64: step size, damping and scale."""

    def root(x):
        gram = x @ x.T
        squares = np.sum(gram**2) - np.sum(np.diag(gram) ** 2)
        return np.sqrt(squares / (len(x) - 1) / np.trace(gram))

    scale = positions.std(axis=0)
    size = min(1.0, 0.5 / root(gradients * scale))
    centred = (positions - positions.mean(axis=0)) / scale
    return size, max(1 / root(centred), 1 / ((iteration + 1) * size)), scale


def test_meads_finds_what_its_rules_say_and_averages_the_second_half():
    start = SCALES * jax.random.normal(jax.random.key(1), (16, 4))
    start += jnp.outer(start[:, 0], jnp.array([0.0, 8.0, 20.0, 0.0]))
    algorithm = ghmc.build(gaussian, num_warmup=20)
    keys = jax.random.split(jax.random.key(2), 16)
    first = mesh.vmap_chains(algorithm.init, (0, 0, None))(keys, start, None)
    step = jax.jit(mesh.vmap_chains(algorithm.step, (0, 0, None)))
    exact = np.asarray(start, np.float64)
    for iteration, share in ((0, 1), (5, 1), (9, 1), (10, 1), (13, 1 / 4), (20, 0)):
        at = first._replace(iteration=jnp.full(16, iteration))
        found = step(keys, at, None)[0].adaptation
        wanted = meads(exact, -exact / SCALES**2, iteration)
        for new, old, seen in zip(found, first.adaptation, wanted, strict=True):
            np.testing.assert_allclose(
                new, old + share * (np.log(seen) - old), rtol=1e-3, atol=1e-4
            )
