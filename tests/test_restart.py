"""Stuck chains are put where healthy ones are, in the warm-up and never after it."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_contract import StopAfterChunks

from symjax import mesh, run, store
from symjax.run import trouble
from symjax.samplers import hmc, mclmc, tempering


STARTS = jnp.array([[0.1], [0.3], [50.0], [-0.2]])


def island(params, data):
    """A normal distribution, and an island from which no leapfrog leads."""
    normal = -jnp.sum(params**2) / 2
    on_island = jnp.all(jnp.abs(params - 50) < 1e-4)
    inside = jnp.all(jnp.abs(params) < 10)
    return jnp.where(inside, normal, jnp.where(on_island, -5.0, -jnp.inf))


def sample(starts=STARTS, num_devices=1, num_warmup=100, density=island, **options):
    options = {"num_draws": 400, "restart_stuck": True} | options
    return run.sample(
        jax.random.key(0),
        hmc.build(density, step_size=0.5, num_steps=4, num_warmup=num_warmup),
        starts,
        None,
        mesh=mesh.make_mesh(4, jax.devices()[:num_devices]),
        show_progress=False,
        **options,
    )


@pytest.mark.parametrize("num_devices", [1, 4])
def test_a_stuck_chain_goes_on_from_a_healthy_one(num_devices):
    result = sample(num_devices=num_devices)
    assert np.abs(np.asarray(result.draws)).max() < 6
    # It has its own way from there: another one than the chain it was put to.
    assert np.all(result.draws[2] != result.draws[0])
    assert 0.7 < np.asarray(result.draws)[2].std() < 1.3
    assert len(result.messages) == 1
    message = result.messages[0]
    assert message.startswith("Chain 2 was stuck in its warm-up: it accepted")
    assert "its log density was -5" in message
    assert "At iteration 50 it was restarted where chain 0 was" in message


def test_unasked_nothing_is_restarted():
    result = sample(restart_stuck=False)
    assert np.all(np.abs(np.asarray(result.draws)[2] - 50) < 1e-3)
    assert any("Chain 2" in message for message in result.messages)


def test_healthy_chains_are_left_alone():
    starts = STARTS.at[2].set(0.5)
    plain = sample(starts, restart_stuck=False)
    asked = sample(starts)
    np.testing.assert_array_equal(plain.draws, asked.draws)
    assert asked.messages == ()


def test_what_counts_is_the_second_quarter_of_the_warm_up():
    """Of a chain that moves in the first, and then stands still until it is moved."""
    made = hmc.build(
        lambda params, data: -(params[0] ** 2) / 2e8 - params[1] ** 2 / 2,
        step_size=0.5,
        num_steps=2,
        num_warmup=40,
    )

    def step(key, state, data):
        new, info = made.step(key, state, data)
        stays = (state.position[0] > 100) & (state.iteration >= 10)
        kept = state._replace(iteration=new.iteration)
        state = jax.tree.map(lambda a, b: jnp.where(stays, a, b), kept, new)
        return state, info._replace(is_accepted=info.is_accepted & ~stays)

    result = run.sample(
        jax.random.key(0),
        made._replace(step=step),
        jnp.zeros((3, 2)).at[1, 0].set(200.0),
        None,
        num_draws=5,
        restart_stuck=True,
        mesh=mesh.make_mesh(3, jax.devices()[:1]),
        show_progress=False,
    )
    assert result.info.is_accepted[1, :10].sum() > 5
    assert np.abs(result.draws[..., 0]).max() < 100
    assert result.messages[0].startswith(
        "Chain 1 was stuck in its warm-up: it accepted 0 of 10 proposals"
    )


def test_where_all_are_stuck_none_is_restarted():
    """Points from which nothing is accepted, at any step size."""

    def point(params, data):
        return jnp.where(jnp.all(params == 0), -5.0, -jnp.inf)

    result = sample(jnp.zeros((4, 1)), density=point, num_draws=5)
    assert not np.asarray(result.info.is_accepted).any()
    assert result.messages[0].startswith("All chains were stuck at iteration 50: none")
    assert np.all(np.asarray(result.draws) == 0)


def test_a_run_that_is_stopped_all_the_time_restarts_the_same_chains(
    tmp_path, monkeypatch
):
    whole = sample(num_draws=4, num_warmup=60)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    # Also right before chains are restarted, at iteration 30 of 64, and right after.
    monkeypatch.setattr(StopAfterChunks, "number", 10)
    monkeypatch.setattr("symjax.run.signals.Signal", StopAfterChunks)
    kept, messages, stops = run.NewRun(tmp_path / "run"), (), []
    while isinstance(kept, run.NewRun) or not kept.committed.finished:
        with contextlib.suppress(run.Stopped):
            messages = sample(num_draws=4, num_warmup=60, store=kept).messages
        kept = store.open(tmp_path / "run")
        stops.append(kept.committed.iteration)
    assert stops == [10, 20, 30, 40, 50, 60, 64]
    np.testing.assert_array_equal(kept.read(), whole.draws)
    assert messages == whole.messages


def test_a_short_warm_up_is_refused():
    with pytest.raises(ValueError, match="a warm-up of at least 40 iterations.*got 30"):
        sample(num_warmup=30)


def ladder():
    return tempering.build(
        lambda density: hmc.build(density, step_size=0.5, num_steps=4, num_warmup=100),
        island,
        temperatures=(1.0, 2.0),
    )


def without_accept_step():
    return mclmc.build(
        lambda params, data: island(params, data),
        step_size=0.5,
        decoherence_length=1.0,
        num_warmup=100,
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (ladder, "left out for chains of different temperatures"),
        (without_accept_step, "left out for a sampler without accept step"),
    ],
)
def test_chains_that_cannot_be_restarted_are_refused(build, message):
    """A hot chain's density and step size are not a cold one's."""
    starts = jnp.zeros((4, 2))
    with pytest.raises(ValueError, match=message):
        run.sample(
            jax.random.key(0), build(), starts, None, num_draws=5, restart_stuck=True
        )


def test_stuck_chains_are_spread_over_the_healthy_ones():
    found = trouble.sources(np.array([0, 2, 4, 5]), np.array([1, 3, 6]))
    np.testing.assert_array_equal(found, [1, 3, 6, 1])
