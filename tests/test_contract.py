"""What every sampler and every approximation owes the loop that runs it."""

import functools

import cases
import jax
import numpy as np
import pytest

from symjax import mesh, run, store
from symjax.run import loop
from symjax.run.signals import Signal
from symjax.samplers import cyclical, hmc, nuts, sgld, split_hmc


EVERY = [*cases.SAMPLERS, *cases.TRAJECTORIES, *cases.APPROXIMATIONS]
KEY = jax.random.key(7)
NUM_CHAINS = 4


def execute(case, *, devices=None, kept=None, build=None):
    algorithm = (build or case.build)(cases.log_posterior(temperature=0.5))
    common = {
        "mesh": mesh.make_mesh(NUM_CHAINS, devices),
        "store": kept,
        "show_progress": False,
    }
    start = cases.start(jax.random.key(3), NUM_CHAINS)
    if case not in cases.APPROXIMATIONS:
        options = {"num_draws": 6, "thinning": 2, "num_burn_in": 3}
        return run.sample(KEY, algorithm, start, cases.data(), **options, **common)
    return run.fit(KEY, algorithm, start, cases.data(), num_steps=15, **common)


def assert_equal_trees(left, right, **tolerance):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@functools.cache
def run_on(case, num_devices):
    """A run in chunks of one iteration or draw.

    Returns:
        The run, how often its step was traced, and the number of its chunks.
    """
    traces, chunks = [], []

    def build(log_posterior):
        algorithm = case.build(log_posterior)

        def step(key, state, data):
            traces.append(1)
            return algorithm.step(key, state, data)

        return algorithm._replace(step=step)

    advance = loop._advance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHUNK_SECONDS", 0.0)
        patch.setattr(loop, "_advance", lambda *of: (chunks.append(1), advance(*of))[1])
        made = execute(case, devices=jax.devices()[:num_devices], build=build)
    return made, len(traces), len(chunks)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_draws_keep_structure_shape_and_dtype(case):
    draws = run_on(case, 1)[0].draws
    start = cases.start(jax.random.key(3), NUM_CHAINS)
    num_draws = 1 if case in cases.APPROXIMATIONS else 6
    assert jax.tree.structure(draws) == jax.tree.structure(start)
    for leaf, first in zip(jax.tree.leaves(draws), jax.tree.leaves(start), strict=True):
        assert leaf.shape == (NUM_CHAINS, num_draws, *first.shape[1:])
        assert leaf.dtype == first.dtype
        assert np.all(leaf[:, -1] != first)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_eight_devices_give_the_draws_of_one(case):
    """Four chains: each with its data on two of them."""
    one, many = run_on(case, 1)[0], run_on(case, 8)[0]
    assert_equal_trees(one.draws, many.draws, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_step_is_not_traced_again_after_the_first_chunk(case):
    """Once for the shapes, once for the program: nothing for the other chunks."""
    assert run_on(case, 1)[1] == 2


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_a_resumed_run_equals_an_uninterrupted_one(case, tmp_path, monkeypatch):
    """Stopped twice or thrice, after chunks of one iteration or draw, and continued."""
    whole, _, num_chunks = run_on(case, 8)
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(StopAfterChunks, "number", -(-num_chunks // 3))
    monkeypatch.setattr("symjax.run.signals.Signal", StopAfterChunks)
    kept = run.NewRun(tmp_path / "run")
    num_stops = 0
    while isinstance(kept, run.NewRun) or not kept.committed.finished:
        try:
            execute(case, devices=jax.devices()[:8], kept=kept)
        except run.Stopped:
            num_stops += 1
        kept = store.open(tmp_path / "run")
    assert num_stops >= 2
    like = jax.tree.map(lambda leaf: leaf[0, 0], whole.draws)
    assert_equal_trees(whole.draws, kept.read(like=like), rtol=0, atol=0)
    for name, values in kept.info().items():
        np.testing.assert_array_equal(values, getattr(whole.info, name))


@pytest.mark.parametrize(
    "build",
    [
        lambda lp, number: hmc.build(lp, step_size=0.01, num_steps=number),
        lambda lp, number: nuts.build(
            lp, step_size=0.01, max_num_doublings=10, num_warmup=number
        ),
        lambda lp, number: split_hmc.build(
            lp, step_size=0.01, trajectory_length=0.01 * number, num_blocks=3
        ),
        lambda lp, number: cyclical.build(
            functools.partial(sgld.build, lp, batch_size=6),
            step_size=0.01,
            cycle_length=number,
        ),
    ],
    ids=["hmc", "nuts", "split_hmc", "cyclical"],
)
def test_memory_of_a_step_does_not_grow_with_its_number_of_steps(build):
    """Of the compiled program, its schedules of whole numbers left out."""
    start = jax.tree.map(lambda leaf: leaf[0], cases.start(jax.random.key(0), 1))

    def scratch(number):
        algorithm = build(cases.log_posterior(), number)
        key = jax.random.key(0)
        state = algorithm.init(key, start, cases.data())
        step = jax.jit(algorithm.step).lower(key, state, cases.data()).compile()
        return step.memory_analysis().temp_size_in_bytes

    assert scratch(5000) <= scratch(50) + 1000


class StopAfterChunks(Signal):
    """Asked once a chunk."""

    number, times_asked = 3, 0

    @property
    def kind(self):
        self.times_asked += 1
        return Signal.INTERRUPT if self.times_asked >= self.number else Signal.NONE
