"""Particles that repel each other, against blackjax, NumPy and a known posterior."""

import blackjax
import cases
import exact
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from blackjax.vi.svgd import median_heuristic

from symjax import mesh, run
from symjax.approximations import ensemble, svgd


NUM_PARTICLES = 5
DATA = jax.tree.map(jnp.asarray, cases.data())
START = cases.start(jax.random.key(0), NUM_PARTICLES)


def advance(approximation, start, num_steps=1, data=DATA):
    """Steps of particles that know of each other, on one device."""
    keys = jax.random.split(jax.random.key(1), len(jax.tree.leaves(start)[0]))
    state = mesh.vmap_chains(approximation.init, (0, 0, None))(keys, start, data)
    step = jax.jit(mesh.vmap_chains(approximation.step, (0, 0, None)))
    state, info = step(keys, state, data)
    for _ in range(num_steps - 1):
        state, info = step(keys, state, data)
    return state.position, info


def flat(particles):
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(particles)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def test_steps_in_weight_space_are_blackjax_s():
    optimiser = optax.adam(0.05)
    log_posterior = cases.log_posterior()
    moved, info = advance(svgd.build(log_posterior, optimiser=optimiser), START, 6)
    gradient = jax.grad(lambda params: log_posterior(params, DATA))
    scaled = optax.chain(optax.scale(1 / len(DATA.mask)), optimiser)
    other = blackjax.svgd(gradient, scaled)
    state = other.init(START, median_heuristic({"length_scale": 1.0}, START))
    step = jax.jit(other.step)
    for _ in range(5):
        state = step(state)
    bandwidth = state.kernel_parameters["length_scale"]
    state = step(state)
    np.testing.assert_allclose(flat(moved), flat(state.particles), atol=1e-5)
    np.testing.assert_allclose(info.bandwidth, bandwidth, rtol=1e-4)
    assert np.max(np.abs(flat(moved) - flat(START))) > 0.1


@pytest.mark.parametrize("where", ["data", "inputs"])
def test_a_step_in_function_space_is_the_paper_s(where):
    """D'Angelo and Fortuin's section 4 by NumPy, with the Jacobians written out."""
    log_posterior = cases.log_posterior(temperature=500.0, micro_batch=4)
    inputs = None if where == "data" else 2 * DATA.x[:4]
    x = DATA.x if inputs is None else inputs
    moved, info = advance(
        svgd.build(
            log_posterior, optimiser=optax.sgd(1.0), space="functions", inputs=inputs
        ),
        START,
    )
    gradient = flat(jax.vmap(jax.grad(log_posterior), (0, None))(START, DATA))
    outputs = np.asarray(jax.vmap(cases.apply, (0, None))(START, x), float)[..., 0]
    jacobian = jax.vmap(jax.jacobian(cases.apply), (0, None))(START, x)
    jacobian = [
        np.asarray(leaf, float).reshape(NUM_PARTICLES, len(x), -1)
        for leaf in jax.tree.leaves(jacobian)
    ]
    jacobian = np.concatenate(jacobian, axis=2)
    apart = outputs[:, None] - outputs
    squares = np.sum(apart**2, axis=2)
    distances = np.sqrt(squares[np.tril_indices(NUM_PARTICLES, k=-1)])
    bandwidth = np.median(distances) ** 2 / np.log(NUM_PARTICLES)
    kernel = np.exp(-squares / bandwidth)
    slope = -2 / bandwidth * kernel[..., None] * apart
    push = -np.sum(slope, axis=1) / kernel.sum(axis=1, keepdims=True)
    pulled = np.einsum("pfw,pf->pw", jacobian, push)
    assert np.linalg.norm(pulled) > 0.2 * np.linalg.norm(gradient)
    direction = len(DATA.mask) * (flat(moved) - flat(START))
    np.testing.assert_allclose(direction, gradient + pulled, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(info.bandwidth, bandwidth, rtol=1e-4)


@pytest.mark.parametrize("where", ["data", "inputs"])
def test_functions_are_compared_at_the_examples_of_all_devices(where):
    """Eight share 21 examples, so that some rows are masked; given inputs all have."""
    log_posterior = cases.log_posterior(temperature=500.0)
    approximation = svgd.build(
        log_posterior,
        optimiser=optax.sgd(1.0),
        space="functions",
        inputs=None if where == "data" else 2 * DATA.x[:4],
    )
    one, many = (
        run.fit(
            jax.random.key(0),
            approximation,
            START,
            cases.data(),
            num_steps=2,
            mesh=mesh.make_mesh(NUM_PARTICLES, jax.devices()[:number]),
            show_progress=False,
        )
        for number in (1, 8)
    )
    np.testing.assert_allclose(many.info.bandwidth, one.info.bandwidth, rtol=1e-4)
    np.testing.assert_allclose(flat(many.draws), flat(one.draws), atol=1e-4)


def test_functions_are_compared_at_the_batch():
    """One example of two: a step is that of comparing there, and not at the other."""
    two = jax.tree.map(lambda leaf: leaf[:2], DATA)

    def step(inputs):
        approximation = svgd.build(
            cases.log_posterior(temperature=500.0),
            optimiser=optax.sgd(1.0),
            space="functions",
            batch_size=1,
            inputs=inputs,
        )
        return flat(advance(approximation, START, data=two)[0])

    at_batch, first, second, both = map(step, (None, two.x[:1], two.x[1:], two.x))
    apart = [np.max(np.abs(at_batch - other)) for other in (first, second, both)]
    assert min(apart[:2]) < 1e-5
    assert sorted(apart)[1] > 0.01


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_one_particle_is_a_member_of_an_ensemble(space):
    start = jax.tree.map(lambda leaf: leaf[:1], START)
    options = {"optimiser": optax.adam(0.05), "batch_size": 6}
    log_posterior = cases.log_posterior()
    alone, info = advance(svgd.build(log_posterior, space=space, **options), start, 5)
    member, of_member = advance(ensemble.build(log_posterior, **options), start, 5)
    np.testing.assert_allclose(flat(alone), flat(member), rtol=1e-6)
    np.testing.assert_allclose(info.log_density, of_member.log_density, rtol=1e-6)


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_particles_that_start_together_stay_together(space):
    """They take the same batch, and without a distance have no direction to part in."""
    start = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], 3, axis=0), START)
    options = {"optimiser": optax.adam(0.1), "space": space, "batch_size": 6}
    moved, _ = advance(svgd.build(cases.log_posterior(), **options), start)
    np.testing.assert_allclose(flat(moved)[1:], flat(moved)[:-1], atol=1e-5)
    assert np.max(np.abs(flat(moved) - flat(start))) > 0.01


@pytest.mark.parametrize("space", ["weights", "functions"])
def test_particles_spread_like_a_gaussian_posterior(space):
    """A density of kernels is wider than its particles, by half the bandwidth."""
    data, mean, covariance = exact.regression(20)
    optimiser = optax.adam(optax.cosine_decay_schedule(0.1, 1000))
    result = run.fit(
        jax.random.key(0),
        svgd.build(exact.log_posterior(), optimiser=optimiser, space=space),
        jax.random.normal(jax.random.key(1), (100, 2, 1)),
        data,
        num_steps=1000,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    particles = np.asarray(result.draws[:, 0, :, 0], float)
    spread = np.cov(particles.T)
    if space == "functions":
        half = float(result.info.bandwidth[0, -1]) / 2
        spread += half * np.linalg.inv(np.asarray(data.x.T @ data.x, float))
    inverse = np.linalg.inv(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(inverse @ (particles.mean(axis=0) - mean), 0, atol=0.01)
    # A hundred particles lack 7 % of the variance: they do not repel themselves.
    np.testing.assert_allclose(inverse @ spread @ inverse.T, np.eye(2), atol=0.09)


def test_bad_options_are_named():
    def build(**options):
        svgd.build(cases.log_posterior(), optimiser=optax.adam(0.1), **options)

    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        build(batch_size=0)
    with pytest.raises(ValueError, match="`space` must be weights or functions"):
        build(space="outputs")
    with pytest.raises(ValueError, match="`inputs` must be left out for space='weigh"):
        build(inputs=DATA.x)
