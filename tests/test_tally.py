"""What accept steps compare is kept of the point where a chain is, and stays true."""

import math
import re
from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from symjax import densities, energies, mesh, posterior
from symjax.samplers import ghmc, hmc, tempering
from symjax.types import Data


KEEPING = [
    case
    for case in cases.SAMPLERS
    if "tally"
    in jax.eval_shape(
        jax.vmap(case.build(cases.log_posterior()).init, (0, 0, None)),
        jax.random.split(jax.random.key(0), 16),
        cases.start(jax.random.key(1), 16),
        cases.data(),
    )._fields
]


EXACT = re.compile(
    r"f32\[[\d,]*\b21\b[\d,]*\] = dot_general\[\s+dimension_numbers=.*\s+"
    r"precision=\(Precision.HIGHEST"
)
"""A product of full precision of all examples, in a traced program."""


COARSE = partial(ghmc.build, step_size=0.06, damping=0.5)
"""With steps that are refused at times; those of the case are not."""


def test_samplers_with_an_accept_step_keep_it():
    names = {case.name for case in KEEPING}
    assert names >= {"hmc", "mala", "chees", "ghmc", "tempering", "adjusted_mclmc"}
    assert "nuts" not in names


@pytest.mark.parametrize("case", KEEPING, ids=lambda case: case.name)
def test_the_tally_is_that_of_the_position(case):
    """After moves, refusals and swaps: kept of one point, it would be of another."""
    log_posterior, data = cases.log_posterior(), cases.data()
    algorithm = (COARSE if case.name == "ghmc" else case.build)(log_posterior)
    keys = jax.random.split(jax.random.key(0), 16)
    every = partial(mesh.vmap_chains, in_axes=(0, 0, None))
    first = jax.jit(every(algorithm.init))(
        keys, cases.start(jax.random.key(1), 16), data
    )
    step, states, moved = jax.jit(every(algorithm.step)), [first], []
    for number in range(12):
        now = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        state, info = step(now, states[-1], data)
        states.append(state)
        moved.append(np.asarray(info.is_accepted))
    assert np.mean(moved) > 0
    assert np.mean(moved) < 1
    tally = jax.jit(jax.vmap(log_posterior.tally, (0, None)))
    for state in states:
        expected = tally(state.position, data)
        # Tempering's is in a tuple of its own.
        ours = sum(map(np.asarray, jax.tree.leaves(state.tally)))
        np.testing.assert_allclose(
            ours, np.asarray(expected.value + expected.rest), rtol=1e-5, atol=1e-5
        )


def test_an_accept_step_takes_one_pass_of_full_precision():
    """Two would count the start again. Of the network: two products a pass."""
    data = cases.data()
    algorithm = hmc.build(
        cases.log_posterior(force_precision="tensorfloat32"), step_size=0.1, num_steps=3
    )
    one = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(1), 1))
    state = jax.eval_shape(algorithm.init, jax.random.key(0), one, data)
    text = str(jax.make_jaxpr(algorithm.step)(jax.random.key(0), state, data))
    assert len(EXACT.findall(text)) == 2


def test_swaps_take_no_pass():
    data, log_posterior = cases.data(), cases.log_posterior()
    algorithm = tempering.build(
        lambda density: hmc.build(density, step_size=0.1, num_steps=3),
        log_posterior,
        temperatures=(1.0, 2.0),
    )
    start = cases.start(jax.random.key(1), 2)
    keys = jax.random.split(jax.random.key(0), 2)
    every = partial(mesh.vmap_chains, in_axes=(0, 0, None))
    state = jax.eval_shape(every(algorithm.init), keys, start, data)
    text = str(jax.make_jaxpr(every(algorithm.step))(keys, state, data))
    assert len(EXACT.findall(text)) == 2


@pytest.mark.parametrize("num_devices", [1, 2, 8])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_tally_is_the_same_on_any_devices(num_devices, micro_batch):
    log_posterior = cases.log_posterior(micro_batch=micro_batch)
    params = cases.start(jax.random.key(1), 1)
    made = mesh.make_mesh(1, jax.devices()[:num_devices])
    block = mesh.map_chains(
        made, jax.vmap(log_posterior.tally, (0, None)), P("chain"), P("data")
    )
    found = jax.jit(block)(params, mesh.place_data(made, cases.data()))
    one = jax.tree.map(lambda leaf: leaf[0], params)
    expected = energies.tally(cases.log_posterior(), one, cases.data())
    np.testing.assert_allclose(found.value[0], expected.value, rtol=1e-6)
    change = (found.value[0] - expected.value) + (found.rest[0] - expected.rest)
    assert abs(float(change)) < 1e-5


def test_a_tally_loses_nothing_between_devices():
    """Of 900,000 nats each: float32 sums of eight such are off by some tenths."""
    x = np.random.default_rng(0).normal(30, 0.1, (8000, 1)).astype(np.float32)
    data = Data(x, x[:, 0], np.ones(len(x), bool))
    density = posterior.build(
        lambda params, x: params + x,
        densities.prior("normal"),
        lambda out, y: out[:, 0] ** 2,
    )
    made = mesh.make_mesh(1, jax.devices()[:8])
    block = mesh.map_chains(
        made, jax.vmap(density.tally, (0, None)), P("chain"), P("data")
    )
    found = jax.jit(block)(jnp.zeros((1, 1)), mesh.place_data(made, data))
    expected = math.fsum(x[:, 0] ** 2)
    assert abs(float(found.value[0]) + float(found.rest[0]) - expected) < 1e-3


def test_densities_without_a_tally_are_subtracted():
    density = lambda x, data: -jnp.sum(x**2)
    ends = jnp.ones(2), jnp.zeros(2)
    before, after = (energies.tally(density, at, None) for at in ends)
    assert energies.gain(density, *ends, None, before, after) == 2
