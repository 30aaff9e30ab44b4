"""What the warm-up learns, against NumPy and against the scales that are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.metric_estimators import fisher_score_low_rank
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.diagnostics import effective_sample_size

from symjax import mesh, run, warmup, windows
from symjax.samplers import dynamic_hmc, hmc, nuts


def feed(matrix, draws, *, num_warmup, gradient=lambda x: x):
    """A warm-up that is shown these draws, one an iteration, all of them accepted."""
    built = warmup.build(
        0.1,
        num_warmup=num_warmup,
        target_acceptance=0.8,
        inverse_mass_matrix=matrix,
    )

    def advance(adaptation, at):
        iteration, position = at
        new = built.update(
            adaptation, position, gradient(position), iteration, jnp.array(0.8)
        )
        return new, new

    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), draws)
    steps = (jnp.arange(len(jax.tree.leaves(draws)[0])), draws)
    adapted, every = jax.jit(lambda s: jax.lax.scan(advance, built.init(start), s))(
        steps
    )
    return built.inverse_mass_matrix(adapted), every


def shown(rates, *, num_warmup):
    """Step sizes after each iteration, from `(iteration, step size) -> acceptance`."""
    built = warmup.build(0.1, num_warmup=num_warmup, target_acceptance=0.8)
    position = jnp.zeros(())

    def advance(adaptation, iteration):
        rate = rates(iteration, adaptation.step_size)
        new = built.update(adaptation, position, position, iteration, rate)
        return new, new.step_size

    start = built.init(position)
    return jax.lax.scan(advance, start, jnp.arange(num_warmup + 3))[1]


@pytest.mark.parametrize("late", [0.01, 0.3])
def test_a_step_size_forgets_what_was_accepted_on_the_way(late):
    """Steps above a limit are refused; after a third it becomes another one."""

    def rates(iteration, step_size):
        limit = jnp.where(iteration < 13, 0.1, late)
        return jnp.where(step_size < limit, 0.95, 0.3)

    sizes = np.asarray(shown(rates, num_warmup=40))
    assert 0.7 * late < sizes[-1] < 1.2 * late
    np.testing.assert_array_equal(sizes[39:], sizes[39])


@pytest.mark.parametrize("falls", [True, False])
@pytest.mark.parametrize(("num_warmup", "since"), [(40, 20), (20, 10), (19, 0)])
def test_a_step_size_is_dual_averaging_over_the_second_half(num_warmup, since, falls):
    """As by blackjax's own, from the step that the first half ended with."""
    least = 0.0 if falls else 0.7
    accepted = jnp.asarray(np.random.default_rng(0).uniform(least, 1.0, size=43))
    sizes = shown(lambda iteration, _: accepted[iteration], num_warmup=num_warmup)
    begin, update, final = dual_averaging_adaptation(0.8, gamma=warmup.ADAPTATION_GAMMA)
    first = sizes[since - 1] if since else 0.1
    averaging = begin(first)._replace(mu=jnp.log(first))
    for rate in accepted[since:num_warmup]:
        averaging = update(averaging, rate)
    last = np.exp(averaging.log_step_size)
    assert falls == (last < final(averaging))
    np.testing.assert_allclose(sizes[-1], min(final(averaging), last), rtol=1e-5)


def test_a_step_size_that_still_falls_is_not_the_average():
    """A limit that falls to a third near the end: the average is above it."""

    def rates(iteration, step_size):
        limit = jnp.where(iteration < 34, 0.1, 0.03)
        return jnp.where(step_size < limit, 0.95, 0.0)

    assert np.asarray(shown(rates, num_warmup=40))[-1] < 0.03


def test_a_diagonal_is_the_variance_of_the_last_window_shrunk_a_little():
    generator = np.random.default_rng(0)
    draws = {
        "a": (generator.normal(size=(300, 3)) * [0.1, 1.0, 50.0] + 7).astype("f4"),
        "b": generator.normal(size=300).astype("f4"),
    }
    matrix, every = feed("diagonal", draws, num_warmup=300)
    ends = [i for i, (_, end) in enumerate(build_schedule(300)) if end]
    last = slice(ends[-2] + 1, ends[-1] + 1)
    count = last.stop - last.start
    variance = {
        k: np.var(v[last].astype(float), axis=0, ddof=1) for k, v in draws.items()
    }
    logs = [*np.log(variance["a"]), np.log(variance["b"])]
    for name, values in variance.items():
        expected = (count * values + 5e-3 * np.exp(np.mean(logs))) / (count + 5)
        np.testing.assert_allclose(matrix[name], expected, rtol=1e-4)
    # Unchanged between the ends of windows, and after the last.
    changes = np.flatnonzero(np.diff(np.asarray(every.inverse_mass_matrix["b"])))
    np.testing.assert_array_equal(changes + 1, ends)


def test_a_step_keeps_its_size_in_units_of_what_it_is_most_limited_by():
    """The narrowest of independent parameters limits it before and after."""
    draws = np.random.default_rng(0).normal(size=(150, 2)).astype("f4") * [0.01, 1.0]
    _, every = feed("diagonal", draws.astype("f4"), num_warmup=150)
    end = next(i for i, (_, end) in enumerate(build_schedule(150)) if end)
    ratio = every.step_size[end] / 0.1
    scale = np.sqrt(np.asarray(every.inverse_mass_matrix)[end, 0])
    np.testing.assert_allclose(ratio, 1 / scale, rtol=0.05)


def dense(low_rank):
    """The inverse mass matrix that such a one stands for."""
    sigma, vectors, values = map(np.asarray, low_rank)
    scaled = sigma[:, None] * vectors
    return np.diag(sigma**2) + scaled @ np.diag(values - 1) @ scaled.T


def test_a_low_rank_finds_one_wide_direction_in_many():
    generator = np.random.default_rng(1)
    direction = generator.normal(size=30)
    direction /= np.linalg.norm(direction)
    covariance = np.eye(30) + 99 * np.outer(direction, direction)
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    draws = generator.multivariate_normal(np.zeros(30), covariance, 400).astype("f4")
    matrix, _ = feed(
        "low_rank", draws, num_warmup=400, gradient=lambda x: -precision @ x
    )
    # What leapfrogs see: the precision in units of the learnt mass.
    seen = np.linalg.eigvals(dense(matrix) @ np.linalg.inv(covariance)).real
    assert seen.max() / seen.min() < 10  # 100 with unit mass


def test_a_low_rank_is_that_of_the_last_draws():
    """The draws of before are of other scales, as of a chain that still descends."""
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(400, 5)).astype("f4")
    gradients = generator.normal(size=(400, 5)).astype("f4")
    end = [i for i, (_, end) in enumerate(build_schedule(400)) if end][-1]
    last = slice(end + 1 - windows.NUM_RECENT, end + 1)
    for array in (draws, gradients):
        array[: last.start] *= [100, 1, 10, 0.1, 0.01]
    known = jnp.asarray(draws), jnp.asarray(gradients)
    of_draw = lambda x: known[1][jnp.argmin(jnp.sum((known[0] - x) ** 2, axis=1))]
    learnt, _ = feed("low_rank", draws, num_warmup=400, gradient=of_draw)
    expected = fisher_score_low_rank(draws[last], gradients[last], max_rank=5)
    np.testing.assert_allclose(dense(learnt), dense(expected), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("matrix", ["diagonal", "low_rank"])
def test_a_chain_that_stood_still_has_learnt_nothing(matrix):
    """No variance would be no mass, and a step size that is not finite, for good."""
    draws = np.ones((300, 3), "f4")
    learnt, every = feed(matrix, draws, num_warmup=300)
    unit = feed(matrix, draws[:1], num_warmup=300)[0]
    for a, b in zip(jax.tree.leaves(learnt), jax.tree.leaves(unit), strict=True):
        np.testing.assert_array_equal(a, b)
    # The acceptance is at its target: the step size never begins anew.
    np.testing.assert_allclose(every.step_size, 0.1, rtol=1e-3)


@pytest.mark.parametrize(
    ("sampler", "matrix"),
    [(hmc, "diagonal"), (dynamic_hmc, "diagonal"), (dynamic_hmc, "low_rank")],
)
def test_learnt_masses_sample_correlated_scales(sampler, matrix):
    """12 comparisons at 5 standard errors: a false alarm in 1e-5."""
    covariance = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 1e-4]])
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def log_density(params, data):
        return -params @ precision @ params / 2

    result = run.sample(
        jax.random.key(0),
        sampler.build(
            log_density,
            step_size=0.005,
            trajectory_length=1.5,
            inverse_mass_matrix=matrix,
            num_warmup=300,
        ),
        jnp.zeros((4, 3)),
        None,
        num_draws=2000,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    x = np.asarray(result.draws, np.float64) / np.sqrt(np.diag(covariance))
    for values, expected in [
        (x[..., 0], 0),
        (x[..., 0] ** 2, 1),
        (x[..., 2] ** 2, 1),
    ]:
        error = values.std() / np.sqrt(effective_sample_size(values))
        assert abs(values.mean() - expected) < 5 * error
        assert error < 0.1
    # With unit mass 1.5 would be several hundred leapfrogs.
    assert np.asarray(result.info.num_steps)[:, 300:].mean() < 30


@pytest.mark.parametrize(("matrix", "shortest"), [("diagonal", 80), ("low_rank", 135)])
def test_all_warm_ups_learn_and_then_fit_the_step_size(matrix, shortest):
    """Ten iterations for it, as Stan has in short warm-ups, were far too few."""
    for num_warmup in (shortest, 150):
        draws = np.random.default_rng(0).normal(size=(num_warmup, 2)).astype("f4")
        learnt, every = feed(matrix, draws, num_warmup=num_warmup)
        changed = [
            np.flatnonzero(np.any(np.diff(leaf.reshape(num_warmup, -1), axis=0), 1))
            for leaf in jax.tree.leaves(every.inverse_mass_matrix)
        ]
        assert max(leaf.max() for leaf in changed if leaf.size) + 1 == num_warmup - 51


def test_a_short_warm_up_of_badly_scaled_chains_leaves_none_stuck():
    """The learnt mass removes scales of 1 to 1000, but not the correlations.

    Of 40 proposals of each chain three quarters are accepted; of none that is stuck.
    """
    generator = np.random.default_rng(0)
    scales = 10.0 ** np.linspace(-2, 1, 20)
    x = generator.normal(size=(300, 20)) * scales
    y = x @ (generator.normal(size=20) / scales) + 0.05 * generator.normal(size=300)
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def log_density(params, data):
        std = jax.nn.softplus(params["noise"]) + 1e-6
        errors = (data[1] - data[0] @ params["weights"]) / std
        prior = jnp.sum((params["weights"] / 100) ** 2) + params["noise"] ** 2
        return -(jnp.sum(errors**2) + prior) / 2 - len(errors) * jnp.log(std)

    starts = 0.1 * jax.random.normal(jax.random.key(1), (4, 20))
    result = run.sample(
        jax.random.key(0),
        hmc.build(
            log_density,
            step_size=1e-3,
            num_steps=100,
            inverse_mass_matrix="diagonal",
            num_warmup=100,
            target_acceptance=0.9,
        ),
        {"noise": jnp.zeros(4), "weights": starts},
        data,
        num_draws=40,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    assert result.info.is_accepted[:, 100:].mean(axis=1).min() > 0.25


def test_a_low_rank_mass_gives_nuts_more_for_its_gradients():
    """Of 50 parameters one direction is wide, along which unit mass walks slowly."""
    covariance = np.eye(50) + 900 * np.full((50, 50), 1 / 50)
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)

    def log_density(params, data):
        return -params @ precision @ params / 2

    def efficiency(matrix):
        result = run.sample(
            jax.random.key(0),
            nuts.build(
                log_density, step_size=0.2, inverse_mass_matrix=matrix, num_warmup=300
            ),
            jnp.zeros((2, 50)),
            None,
            num_draws=300,
            mesh=mesh.make_mesh(1, jax.devices()[:1]),
            show_progress=False,
        )
        size = effective_sample_size(np.asarray(result.draws).sum(axis=-1))
        return size / np.asarray(result.info.num_steps)[:, 300:].sum()

    assert efficiency("low_rank") > 5 * efficiency(1.0)


def test_chains_of_a_wrong_name_or_a_short_warm_up_are_refused():
    options = {"num_warmup": 100, "target_acceptance": 0.8}
    with pytest.raises(ValueError, match="one of diagonal, low_rank, got 'full'"):
        warmup.build(0.1, inverse_mass_matrix="full", **options)
    with pytest.raises(ValueError, match="at least 135 to learn a low_rank mass"):
        warmup.build(0.1, inverse_mass_matrix="low_rank", **options)
