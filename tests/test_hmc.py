"""HMC against exact answers; bounds are 5 Monte-Carlo standard errors (about 1e-6)."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from blackjax.diagnostics import effective_sample_size
from blackjax.mcmc import integrators, trajectory
from scipy.special import digamma, polygamma

from symjax import densities, energies, hamiltonian, mesh, posterior, run, sums, warmup
from symjax.samplers import chees, dynamic_hmc, ghmc, hmc, mala
from symjax.types import Data


SIGMAS = 5.0


def sample(log_density, start, *, num_draws, num_burn_in=100, data=None, **options):
    return run.sample(
        jax.random.key(0),
        hmc.build(log_density, **options),
        start,
        data,
        num_draws=num_draws,
        num_burn_in=num_burn_in,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )


def assert_mean(values, expected):
    """The mean over chains and draws `(chain, draw)`, within 5 standard errors."""
    values = np.asarray(values, np.float64)
    error = values.std() / np.sqrt(effective_sample_size(values))
    assert abs(values.mean() - expected) < SIGMAS * error
    # A bound that wide would hide a broken sampler.
    assert error < 0.15 * max(values.std(), abs(expected))


def gaussian(params, data):
    return -jnp.sum(params**2) / 2


@pytest.mark.parametrize(
    ("temperature", "force"),
    [(1.0, None), (0.3, "float16"), (1.0, "bfloat16"), (1.0, "float16x2")],
)
def test_bayesian_linear_regression_has_its_closed_form(temperature, force):
    """Whatever the force is rounded to, which the accept step corrects."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(30, 3)).astype(np.float32) * [1.0, 0.5, 2.0]
    y = x @ [0.5, -1.0, 0.2] + 0.4 * generator.normal(size=30)
    data = Data(x.astype("f4"), y.astype("f4")[:, None], np.ones(30, bool))
    precision = (x.T @ x / 0.4**2 + np.eye(3) / 0.8**2) / temperature
    covariance = np.linalg.inv(precision)
    mean = covariance @ x.T @ y / 0.4**2 / temperature
    log_posterior = posterior.build(
        lambda params, x: x @ params,
        densities.Prior(dist.Normal(0.0, 0.8)),
        densities.gaussian(0.4),
        temperature=temperature,
        micro_batch=7,
        force_precision=force,
    )
    start = jnp.zeros((4, 3, 1))
    draws = sample(
        log_posterior,
        start,
        num_draws=2000,
        data=data,
        step_size=0.04 * temperature**0.5,
        num_steps=8,
    ).draws[..., 0]
    for i in range(3):
        assert_mean(draws[..., i], mean[i])
        for j in range(i + 1):
            centred = (draws[..., i] - mean[i]) * (draws[..., j] - mean[j])
            assert_mean(centred / covariance[i, i], covariance[i, j] / covariance[i, i])


def test_a_skewed_target():
    """log of a Gamma(2, 1) variable: mean digamma(2), variance polygamma(1, 2)."""

    def log_density(params, data):
        return jnp.sum(2 * params - jnp.exp(params))

    draws = sample(
        log_density, jnp.zeros((4, 1)), num_draws=4000, step_size=0.9, num_steps=3
    ).draws[..., 0]
    assert_mean(draws, digamma(2))
    assert_mean((draws - digamma(2)) ** 2, polygamma(1, 2))
    quantile = np.log(scipy.stats.gamma(2).ppf(0.05))
    assert_mean(draws < quantile, 0.05)


def test_a_funnel():
    """v ~ N(0, 1), x | v ~ N(0, exp(v)): the marginal of v is known exactly."""

    def log_density(params, data):
        v, x = params["v"], params["x"]
        return -(v**2) / 2 - jnp.sum(x**2) * jnp.exp(-v) / 2 - v

    start = {"v": jnp.zeros(8), "x": jnp.ones((8, 2))}
    draws = sample(
        log_density, start, num_draws=6000, step_size=0.25, num_steps=9
    ).draws
    assert_mean(draws["v"], 0)
    assert_mean(draws["v"] ** 2, 1)
    assert_mean(draws["v"] < scipy.stats.norm.ppf(0.05), 0.05)
    assert_mean(np.abs(draws["x"][..., 0]) < 1, _share_within_one())


def _share_within_one():
    v = np.linspace(-8, 8, 4001)
    inside = 2 * scipy.stats.norm.cdf(np.exp(-v / 2)) - 1
    return np.trapezoid(inside * scipy.stats.norm.pdf(v), v)


def test_a_mixture_whose_modes_are_reachable():
    def log_density(params, data):
        return jnp.sum(
            jnp.logaddexp(-((params - 2) ** 2) / 2, -((params + 2) ** 2) / 2)
        )

    start = jnp.full((8, 1), 2.0)
    draws = sample(
        log_density, start, num_draws=4000, step_size=0.5, num_steps=6
    ).draws[..., 0]
    assert_mean(draws > 0, 0.5)
    assert_mean(draws**2, 1 + 4)


def test_rejected_proposals_count():
    """Averaging accepted states alone is biased, and by enough for this to see it."""
    result = sample(
        gaussian, jnp.zeros((4, 1)), num_draws=20_000, step_size=1.7, num_steps=2
    )
    squares = result.draws[..., 0] ** 2
    accepted = result.info.is_accepted[:, 100:]
    assert 0.3 < accepted.mean() < 0.9
    assert_mean(squares, 1)
    error = squares.std() / np.sqrt(effective_sample_size(np.asarray(squares, float)))
    assert abs(squares[accepted].mean() - 1) > 2 * SIGMAS * error


def test_an_unadjusted_burn_in_accepts_what_the_exact_step_would_refuse():
    result = sample(
        gaussian,
        jnp.zeros((4, 1)),
        num_draws=300,
        num_burn_in=0,
        step_size=1.9,
        num_steps=2,
        num_unadjusted=200,
    )
    burn_in, rest = np.split(result.info.is_accepted, [200], axis=1)
    assert burn_in.all()
    assert rest.shape == (4, 300)
    assert 0.05 < rest.mean() < 0.95
    assert result.draws.shape == (4, 300, 1)


class Steep:
    """A Gaussian, of which accept steps see each proposal 50 nats below its start."""

    def __call__(self, params, data):
        return gaussian(params, data)

    def tally(self, params, data):
        return ()

    def gain(self, params, proposal, data, before, after):
        return jnp.float32(-50)


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (hmc, {"num_steps": 3}),
        (dynamic_hmc, {"trajectory_length": 0.3}),
        (mala, {}),
        (ghmc, {"damping": 0.5}),
        (chees, {"num_warmup": 2}),
    ],
    ids=["hmc", "dynamic_hmc", "mala", "ghmc", "chees"],
)
@pytest.mark.parametrize(("threshold", "diverges"), [(40.0, True), (60.0, False)])
def test_the_rise_that_is_a_divergence_is_that_asked_for(
    sampler, options, threshold, diverges
):
    info = run.sample(
        jax.random.key(0),
        sampler.build(
            Steep(), step_size=0.05, divergence_threshold=threshold, **options
        ),
        jnp.ones((4, 3)),
        None,
        num_draws=3,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    ).info
    assert np.all(info.is_divergent == diverges)
    assert not info.is_accepted.any()


def test_the_accept_step_is_off_for_as_many_iterations_as_said():
    """Of proposals that it would refuse; the warm-up hears so even while it is off."""
    info = sample(
        Steep(),
        jnp.ones((2, 3)),
        num_draws=4,
        num_burn_in=0,
        step_size=0.1,
        num_steps=3,
        num_unadjusted=2,
    ).info
    np.testing.assert_array_equal(info.is_accepted, [[True] * 2 + [False] * 4] * 2)
    assert not info.is_divergent.any()
    assert info.acceptance_rate.max() < 1e-15


def test_what_is_said_of_a_transition_is_of_its_end_and_of_the_step_it_took():
    """The log density is that of the draw; the first step is the one given."""
    result = sample(
        gaussian,
        jnp.ones((3, 2)),
        num_draws=30,
        num_burn_in=0,
        step_size=1.3,
        num_steps=2,
        num_warmup=4,
    )
    accepted = result.info.is_accepted[:, 4:]
    assert 0 < accepted.mean() < 1
    expected = -np.sum(np.asarray(result.draws, float) ** 2, axis=2) / 2
    np.testing.assert_allclose(
        result.info.log_density[:, 4:], expected, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(result.info.step_size[:, 0], 1.3, rtol=1e-6)
    assert np.all(result.info.step_size[:, 1] != result.info.step_size[:, 0])


def test_warmup_reaches_the_target_acceptance_and_then_stands_still():
    result = sample(
        gaussian,
        jnp.zeros((4, 50)),
        num_draws=1000,
        step_size=0.01,
        trajectory_length=1.0,
        num_warmup=300,
        target_acceptance=0.7,
    )
    info = result.info
    assert np.ptp(info.step_size[:, 300:], axis=1).max() == 0
    assert abs(info.acceptance_rate[:, 300:].mean() - 0.7) < 0.12
    length = info.step_size * info.num_steps
    assert np.all((length >= 1.0 - 1e-5) & (length <= 1.0 + info.step_size))
    # The step kept is the average of those tried out, not the last of them.
    tried = info.step_size[:, 200:300]
    assert np.all(np.ptp(tried, axis=1) > 0)
    kept = info.step_size[:, 300]
    assert np.all(np.abs(np.log(kept / np.exp(np.log(tried).mean(1)))) < 0.1)


def test_a_first_step_that_meets_the_target_is_kept():
    begun = warmup.build(0.3, num_warmup=9, target_acceptance=0.8)
    adaptation = begun.init(())
    for i in range(12):
        adaptation = begun.update(adaptation, (), (), jnp.array(i), jnp.array(0.8))
        np.testing.assert_allclose(adaptation.step_size, 0.3, rtol=1e-5)


def test_a_trajectory_keeps_its_length_when_the_first_step_was_far_too_large():
    def narrow(params, data):
        return -jnp.sum((params / 0.01) ** 2) / 2

    info = sample(
        narrow,
        jnp.zeros((2, 20)),
        num_draws=20,
        step_size=0.5,
        trajectory_length=0.6,
        num_warmup=150,
    ).info
    assert np.all(info.num_steps[:, :150] <= hamiltonian.MAX_GROWTH * 2)
    assert np.all(info.num_steps[:, 150:] > hamiltonian.MAX_GROWTH * 2)
    length = info.step_size * info.num_steps
    assert np.all(length[:, 150:] >= 0.6 - 1e-5)


def test_a_length_of_whole_steps_takes_no_more_for_rounding():
    assert 3 * 0.1 / 0.1 > 3
    assert hamiltonian.count_steps(3 * 0.1, 0.1) == 3
    assert hamiltonian.count_steps(3 * 0.1, 0.0999) == 4
    sizes = jnp.float32([0.7, 0.699, 0.0997, 9])
    assert jnp.float32(4.9) / sizes[0] > 7
    count = lambda iteration: jax.vmap(
        lambda size: hamiltonian.limited_count(4.9, 2, 5, jnp.array(iteration), size)
    )(sizes)
    np.testing.assert_array_equal(count(5), [7, 8, 50, 1])
    np.testing.assert_array_equal(count(4), [7, 8, 16, 1])


@pytest.mark.parametrize("length", [0.3, 1.0, np.pi / 2, 4.9, 10.0])
def test_whole_steps_are_as_many_in_float32_however_many_they_are(length):
    """An ulp of 100 is above 1e-6; a step that is shorter by 1e-5 takes one more."""
    number = np.arange(1, 1000)
    sizes = length / number
    count = jax.vmap(
        lambda size: hamiltonian.limited_count(length, 1000, 0, jnp.array(0), size)
    )
    np.testing.assert_array_equal(count(jnp.float32(sizes)), number)
    np.testing.assert_array_equal(count(jnp.float32(sizes * (1 - 1e-5))), number + 1)
    given = [hamiltonian.count_steps(length, float(size)) for size in sizes]
    np.testing.assert_array_equal(given, number)


def test_warmup_frees_a_chain_that_starts_where_the_step_is_far_too_large():
    scale = 0.01

    def narrow(params, data):
        return -jnp.sum((params / scale) ** 2) / 2

    start = jnp.stack([jnp.zeros(20), jnp.full(20, 30.0)])
    options = {"step_size": 0.05, "num_steps": 8, "num_draws": 1000}
    stuck = sample(narrow, start, **options)
    assert not stuck.info.is_accepted[1].any()
    assert sum("is stuck" in message for message in stuck.messages) == 2
    assert "Chain 1 is stuck: it accepted 0 of 1000 proposals" in stuck.messages[1]
    assert "its log density is -90,000,000" in stuck.messages[1]

    freed = sample(narrow, start, num_warmup=400, **options)
    assert freed.messages == ()
    assert_mean(freed.draws[..., 0] ** 2 / scale**2, 1)


@pytest.mark.parametrize("inverse_mass", [4.0, {"a": 4.0, "b": jnp.array([1.0, 9.0])}])
def test_the_mass_matrix_changes_the_path_and_not_the_target(inverse_mass):
    def log_density(params, data):
        return -jnp.sum(params["a"] ** 2) / 8 - jnp.sum(params["b"] ** 2) / 2

    start = {"a": jnp.zeros((4,)), "b": jnp.zeros((4, 2))}
    draws = sample(
        log_density,
        start,
        num_draws=4000,
        step_size=0.4,
        num_steps=4,
        inverse_mass_matrix=inverse_mass,
    ).draws
    assert_mean(draws["a"] ** 2, 4)
    assert_mean(draws["b"][..., 1] ** 2, 1)


def test_a_scalar_mass_is_a_change_of_the_step_size():
    """M^-1 = m with step e moves the position as M = 1 with step e * sqrt(m)."""
    options = {"num_draws": 20, "num_burn_in": 0, "num_steps": 3}
    plain = sample(gaussian, jnp.ones((2, 3)), step_size=0.6, **options)
    scaled = sample(
        gaussian, jnp.ones((2, 3)), step_size=0.3, inverse_mass_matrix=4.0, **options
    )
    np.testing.assert_allclose(plain.draws, scaled.draws, rtol=1e-4, atol=1e-5)


def test_energy_error_at_ten_million_parameters_is_below_a_thousandth():
    """Against float64 at the same float32 ends of a trajectory."""
    prior = densities.Prior(dist.Normal(0.0, 1.0))

    class Density:
        def __call__(self, params, data):
            return prior(params)

        def tally(self, params, data):
            return ()

        def gain(self, params, proposal, data, before, after):
            return prior.difference(params, proposal)

    metric = energies.metric(1.0)
    keys = jax.random.split(jax.random.key(0))
    position, momentum = jax.random.normal(keys[0], (2, 10_000_000))
    start = integrators.new_integrator_state(prior, position, momentum)
    verlet = integrators.velocity_verlet(prior, metric.kinetic_energy)
    end = jax.jit(trajectory.static_integration(verlet))(start, 0.05, 20)

    @jax.jit
    def energy_change(start, end):
        after, before = (energies.kinetic(1.0, at.momentum) for at in (end, start))
        ends = start.position, end.position, None, (), ()
        return sums.difference(after, before) - energies.gain(Density(), *ends)

    change = energy_change(start, end)
    exact = _energy(end) - _energy(start)
    assert abs(exact) > 0.1
    assert abs(float(change) - exact) < 1e-3


def test_a_chain_holds_few_copies_of_many_parameters():
    """Two of the state, and three that move; one more where momenta are drawn early."""
    shape = jax.ShapeDtypeStruct((5000, 100), jnp.float32)
    params = {f"leaf_{i}": shape for i in range(8)}
    algorithm = hmc.build(
        lambda params, data: (
            -sum(jnp.sum((leaf @ data) ** 2) for leaf in jax.tree.leaves(params))
        ),
        step_size=1e-3,
        num_steps=10,
    )
    key, data = jax.random.key(0), jnp.ones((100, 1))
    state = jax.eval_shape(algorithm.init, key, params, data)
    step = jax.jit(algorithm.step, donate_argnums=1)
    used = step.lower(key, state, data).compile().memory_analysis()
    held = used.argument_size_in_bytes + used.temp_size_in_bytes
    assert held / (4 * 8 * 5000 * 100) < 5.6


def _energy(state):
    position = np.asarray(state.position, np.float64)
    momentum = np.asarray(state.momentum, np.float64)
    return (position @ position + momentum @ momentum) / 2


def test_a_divergence_is_refused_and_reported():
    def cliff(params, data):
        return jnp.where(jnp.sum(params) < 1, -jnp.sum(params**2) / 2, -jnp.inf)

    result = sample(cliff, jnp.zeros((4, 1)), num_draws=500, step_size=0.5, num_steps=5)
    divergent = result.info.is_divergent
    assert 0.05 < divergent.mean() < 0.9
    assert not result.info.is_accepted[divergent].any()
    assert result.draws.max() < 1
    assert len(result.messages) == 4
    counts = divergent[:, 100:].sum(axis=1)
    assert f"Chain 3: {counts[3]} of 500 proposals diverged" in result.messages[3]
    burn_in = sample(
        cliff,
        jnp.zeros((4, 1)),
        num_draws=1,
        step_size=0.5,
        num_steps=5,
        num_unadjusted=100,
    ).info
    assert burn_in.is_divergent.any()
    assert not burn_in.is_accepted[burn_in.is_divergent].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.1}, "exactly one of `num_steps` and `trajectory_length`"),
        ({"step_size": 0.1, "num_steps": 2, "trajectory_length": 1.0}, "exactly one"),
        ({"step_size": 0.0, "num_steps": 2}, "`step_size` must be a positive number"),
        ({"step_size": float("nan"), "num_steps": 2}, "`step_size` must be"),
        ({"step_size": 0.1, "num_steps": 0}, "`num_steps` must be at least 1, got 0"),
        ({"step_size": 0.1, "num_steps": 2, "num_warmup": -1}, "`num_warmup` must be"),
        (
            {"step_size": 0.1, "num_steps": 2, "target_acceptance": 1.0},
            "`target_acceptance` must be between 0 and 1, got 1.0",
        ),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        hmc.build(gaussian, **options)


def test_rule_length_makes_gaussian_draws_independent():
    """A quarter turn: the position after it does not depend on the one before."""
    length = hmc.rule_length(1.0)
    draws = sample(
        gaussian,
        jnp.full((4, 10), 3.0),
        num_draws=2000,
        step_size=0.02,
        trajectory_length=length,
    ).draws
    correlation = np.mean(draws[:, 1:] * draws[:, :-1])
    assert abs(correlation) < SIGMAS / np.sqrt(4 * 10 * 2000)
