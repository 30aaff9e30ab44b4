"""Momenta of large networks, drawn block by block, and what a change decides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import new_integrator_state, velocity_verlet
from blackjax.mcmc.metrics import LowRankInverseMassMatrix
from blackjax.mcmc.trajectory import static_integration
from scipy import stats

from symjax import energies, hamiltonian, leapfrogs


def test_momenta_of_many_parameters_are_independent_normals(monkeypatch):
    monkeypatch.setattr(energies, "BLOCK", 1000)
    params = {"a": jnp.zeros((50, 70)), "b": jnp.zeros(123), "c": jnp.zeros(())}
    metric = energies.metric(4.0)
    draw = jax.jit(jax.vmap(metric.sample_momentum, (0, None)))
    drawn = draw(jax.random.split(jax.random.key(0), 3), params)
    assert jax.tree.map(jnp.shape, drawn) == {
        "a": (3, 50, 70),
        "b": (3, 123),
        "c": (3,),
    }
    flat = np.concatenate([np.reshape(leaf, (3, -1)) for leaf in drawn.values()], 1)
    # The mass is a quarter. No number twice: neither between chains nor between blocks.
    assert stats.kstest(2 * flat.ravel(), "norm").pvalue > 1e-4
    assert len(np.unique(flat)) > 0.999 * flat.size


def test_momenta_of_few_parameters_are_drawn_together():
    from blackjax.util import generate_gaussian_noise

    params = {"a": jnp.zeros((5, 7)), "b": jnp.zeros(3)}
    key = jax.random.key(1)
    drawn = energies.metric(1.0).sample_momentum(key, params)
    jax.tree.map(
        np.testing.assert_array_equal, drawn, generate_gaussian_noise(key, params)
    )


def test_what_is_subtracted_is_in_full_precision():
    def log_density(params, data):
        return jnp.sum(jnp.square(data @ params))

    def both(start, end, data):
        relative = energies.relative_density(log_density, start, data)
        before, after = (energies.tally(log_density, at, data) for at in (start, end))
        gain = energies.gain(log_density, start, end, data, before, after)
        return relative(end), gain

    start, end, data = jnp.ones(3), jnp.arange(3.0), jnp.ones((2, 3))
    equations = jax.make_jaxpr(both)(start, end, data).eqns
    products = [eqn for eqn in equations if eqn.primitive.name == "dot_general"]
    assert len(products) == 4
    highest = (jax.lax.Precision.HIGHEST,) * 2
    assert all(eqn.params["precision"] == highest for eqn in products)
    assert both(start, end, data) == (0, 0)  # 2 (1 + 1 + 1)^2 and 2 (0 + 1 + 2)^2.
    assert both(start, 2 * start, data) == (54, 54)


@pytest.mark.parametrize(
    ("change", "log_density", "log_acceptance", "is_divergent"),
    [
        (-2000.0, 1.0, 0.0, False),
        (3.0, 1.0, -3.0, False),
        (10.0, 1.0, -10.0, False),
        (10.5, 1.0, -10.5, True),
        (np.nan, 1.0, -np.inf, True),
        (-1.0, np.nan, -np.inf, True),
        (-np.inf, np.inf, -np.inf, True),
    ],
)
def test_what_rises_past_the_threshold_or_is_no_number_diverged(
    change, log_density, log_acceptance, is_divergent
):
    found = hamiltonian.judge(jnp.float32(change), jnp.float32(log_density), 10.0)
    assert tuple(map(float, found)) == (log_acceptance, is_divergent)


def test_a_proposal_without_a_finite_value_is_refused():
    """Of a rough force it may be none where the change of energy is one."""
    point = lambda value: hamiltonian.Point(jnp.ones(2), jnp.float32(value), (), ())
    accept = lambda value, accept_all: hamiltonian.accept(
        jax.random.key(0), jnp.float32(-1), point(0), point(value), accept_all
    )
    for accept_all in (False, True):
        for value, is_taken in ((1.0, True), (np.inf, False), (np.nan, False)):
            new, outcome = accept(value, accept_all)
            assert outcome.is_accepted == is_taken
            assert outcome.is_divergent != is_taken
            assert new.log_density == (value if is_taken else 0)


def test_leapfrogs_are_those_of_blackjax():
    """Joined half kicks round otherwise; for every kind of mass matrix."""
    draw = lambda i, n: jax.random.normal(jax.random.key(i), (n,))
    params = {"a": draw(0, 5), "b": draw(1, 3)}
    density = lambda p: (
        -jnp.sum(jnp.cosh(p["a"])) - jnp.sum(p["b"] ** 4) * jnp.sum(p["a"] ** 2)
    )
    vectors = jnp.linalg.qr(draw(2, 16).reshape(8, 2))[0]
    low_rank = LowRankInverseMassMatrix(
        jnp.exp(draw(3, 8) / 4), vectors, jnp.array([2.0, 0.3])
    )
    diagonal = jax.tree.map(lambda leaf: jnp.exp(leaf / 4), params)
    for inverse_mass_matrix in (0.7, diagonal, low_rank):
        metric = energies.metric(inverse_mass_matrix)
        momentum = metric.sample_momentum(jax.random.key(4), params)
        begin = new_integrator_state(density, params, momentum)
        verlet = velocity_verlet(density, metric.kinetic_energy)
        for count in (1, 7):
            expected = static_integration(verlet)(begin, 0.05, count)
            found = jax.jit(
                lambda begin, count=count, m=inverse_mass_matrix: leapfrogs.integrate(
                    density, m, begin, jnp.float32(0.05), count
                )
            )(begin)
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
                found,
                expected,
            )


@pytest.mark.parametrize("small", [0, 64, 10**6])
def test_a_kinetic_energy_keeps_what_rounding_takes(small, monkeypatch):
    monkeypatch.setattr(energies, "_SMALL", small)
    sizes = [(1000, 301), (31,), (), (64,), (200_000,)]
    keys = jax.random.split(jax.random.key(0), len(sizes))
    momentum = [10 * jax.random.normal(k, s) for k, s in zip(keys, sizes, strict=True)]
    inverse_mass_matrix = [0.5, 2.0, 1.0, 0.1, 1.5]
    # A function of its own, as JAX would find what it compiled for another `small`.
    found = jax.jit(lambda *args: energies.kinetic(*args))(
        inverse_mass_matrix, momentum
    )
    exact = sum(
        m * np.sum(np.square(np.asarray(p, np.float64))) / 2
        for m, p in zip(inverse_mass_matrix, momentum, strict=True)
    )
    assert exact > 10**7
    assert abs(float(found.value) + float(found.rest) - exact) < 0.02
