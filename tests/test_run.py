"""The loop: what is kept, what it notices, and what survives."""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax import hamiltonian, hosts, mesh, run, store
from symjax.run import api
from symjax.run.loop import SAVE_SECONDS
from symjax.run.signals import Signal
from symjax.samplers import chees, hmc, sgld


KEY = jax.random.key(0)


def gaussian(params, data):
    return -jnp.sum(params**2) / 2


def sample(log_density=gaussian, start=None, *, num_warmup=0, **options):
    algorithm = hmc.build(
        log_density, step_size=0.3, num_steps=3, num_warmup=num_warmup
    )
    start = jnp.zeros((2, 3)) if start is None else start
    devices = mesh.make_mesh(1, jax.devices()[:1])
    return run.sample(
        KEY, algorithm, start, None, mesh=devices, show_progress=False, **options
    )


def test_hosts_compare_what_they_are_to_run(monkeypatch):
    def refuse(entries):
        raise ValueError(f"The hosts differ in one of {sorted(entries)}")

    monkeypatch.setattr(hosts, "require_equal", refuse)
    with pytest.raises(ValueError, match="'key', 'num_chains', .*'num_draws', 'thin"):
        sample(num_draws=25)


def test_draws_are_the_last_of_every_thinning_after_warmup_and_burn_in():
    every = sample(num_draws=25, num_warmup=4)
    kept = sample(num_draws=6, thinning=3, num_burn_in=5, num_warmup=4)
    assert kept.info.log_density.shape == (2, 4 + 5 + 6 * 3)
    np.testing.assert_array_equal(kept.draws, every.draws[:, 7:25:3])


def test_the_end_of_the_warm_up_is_kept_apart(tmp_path):
    every = sample(num_draws=9, num_warmup=4)
    plan = {"num_draws": 3, "thinning": 2, "num_burn_in": 5, "num_warmup": 4}
    kept = sample(**plan)
    np.testing.assert_array_equal(kept.warmup, every.draws[:, 4])
    sample(**plan, store=run.NewRun(tmp_path / "run"))
    stored = store.open(tmp_path / "run")
    np.testing.assert_array_equal(stored.warmup(), kept.warmup)
    np.testing.assert_array_equal(stored.read(), kept.draws)
    assert sample(num_draws=2).warmup is None
    sample(num_draws=2, store=run.NewRun(tmp_path / "none"))
    assert store.open(tmp_path / "none").warmup() is None


def test_draws_do_not_depend_on_the_length_of_chunks(monkeypatch):
    whole = sample(num_draws=40, num_warmup=5)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    single = sample(num_draws=40, num_warmup=5)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 1e9)
    monkeypatch.setattr("symjax.run.chunks.MAX_CHUNK_DRAWS", 7)
    sevens = sample(num_draws=40, num_warmup=5)
    np.testing.assert_array_equal(whole.draws, single.draws)
    np.testing.assert_array_equal(whole.draws, sevens.draws)


def test_chains_differ_and_a_chain_does_not_depend_on_its_siblings():
    two = sample(num_draws=5).draws
    assert not np.allclose(two[0], two[1])
    four = sample(start=jnp.zeros((4, 3)), num_draws=5).draws
    np.testing.assert_allclose(two, four[:2], rtol=1e-5, atol=1e-6)


def test_a_start_that_is_not_finite_is_named():
    start = jnp.zeros((4, 3)).at[2, 1].set(jnp.nan)
    with pytest.raises(run.NonFiniteError, match="`params` of chain 2 give"):
        sample(start=start, num_draws=2)


def test_a_chain_that_leaves_the_finite_numbers_is_named_with_its_iterations():
    def step(key, state, data):
        position = jnp.where(state.iteration == 13, jnp.nan, state.position)
        state, info = algorithm.step(key, state, data)
        return state._replace(position=state.position + 0 * position), info

    algorithm = hmc.build(gaussian, step_size=0.3, num_steps=3)
    broken = algorithm._replace(step=step)
    with pytest.raises(
        run.NonFiniteError, match="Chain 0 left .* iterations 12 and 15"
    ):
        run.sample(
            KEY, broken, jnp.zeros((2, 3)), None,
            num_draws=9, thinning=3, show_progress=False,
        )  # fmt: skip


def test_params_without_one_chain_axis_are_refused():
    with pytest.raises(ValueError, match="`params` must have one leading chain axis"):
        sample(start={"a": jnp.zeros((2, 3)), "b": jnp.zeros((4,))}, num_draws=1)


def test_a_run_of_another_key_or_plan_is_not_continued(tmp_path):
    sample(num_draws=5, store=run.NewRun(tmp_path / "run"))
    with pytest.raises(ValueError, match="`run.num_draws` must stay 5"):
        sample(num_draws=6, store=store.open(tmp_path / "run"))


def test_a_run_goes_on_from_its_state_whatever_the_starts_are_now(
    tmp_path, monkeypatch
):
    whole = sample(num_draws=5).draws
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    monkeypatch.setattr("symjax.run.loop.SAVE_SECONDS", -1.0)
    monkeypatch.setattr(store.Run, "is_saved", True)  # A save takes no time.

    def die(done, text):
        if done == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("symjax.progress.bar", lambda *_, **__: nullcontext(die))
        with pytest.raises(KeyboardInterrupt):
            sample(num_draws=5, store=run.NewRun(tmp_path / "run"))
    kept = store.open(tmp_path / "run")
    assert kept.committed == store.Commit(3, 3, has_state=True)
    # A start that is evaluated would be refused.
    sample(start=jnp.full((2, 3), jnp.nan), num_draws=5, store=kept)
    np.testing.assert_array_equal(kept.read(), whole)


def test_a_finished_run_is_left_as_it_is(tmp_path):
    first = sample(num_draws=5, store=run.NewRun(tmp_path / "run"))
    again = sample(num_draws=5, store=store.open(tmp_path / "run"))
    np.testing.assert_array_equal(first.info.log_density, again.info.log_density)
    assert store.open(tmp_path / "run").committed.finished


@pytest.fixture
def slow_clock(monkeypatch):
    """A clock that moves by a second at each look, and chunks of one iteration."""
    clock = itertools.count()
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("symjax.run.loop.time", fake)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("is_stored", [False, True])
def test_when_the_time_is_up_a_run_is_finished_with_fewer_draws(tmp_path, is_stored):
    plan = {"num_draws": 1000, "thinning": 2, "num_warmup": 3}
    kept = {"store": run.NewRun(tmp_path / "run")} if is_stored else {}
    made = sample(**plan, max_seconds=60.0, **kept)
    num_iterations = made.info.log_density.shape[1]
    num_draws = (num_iterations - 3) // 2
    assert 5 < num_draws < 20
    if is_stored:
        stored = store.open(tmp_path / "run")
        expected = store.Commit(num_iterations, num_draws, True, True)
        assert stored.committed == expected
        draws = stored.read()
        again = sample(**plan, max_seconds=60.0, store=stored)
        np.testing.assert_array_equal(again.info.log_density, made.info.log_density)
    else:
        draws = made.draws
    plan["num_draws"] = num_draws
    np.testing.assert_array_equal(draws, sample(**plan).draws)


@pytest.mark.usefixtures("slow_clock")
def test_time_that_is_up_before_the_first_draw_stops_a_run(tmp_path):
    plan = {"num_draws": 10, "num_warmup": 50}
    with pytest.raises(run.OutOfTime, match="30 seconds .*before the first draw"):
        sample(**plan, max_seconds=30.0, store=run.NewRun(tmp_path / "run"))
    kept = store.open(tmp_path / "run")
    assert kept.committed.has_state
    assert 0 < kept.committed.iteration < 50
    assert not kept.committed.finished
    sample(**plan, store=kept)
    np.testing.assert_array_equal(kept.read(), sample(**plan).draws)


def test_time_must_be_positive():
    with pytest.raises(ValueError, match="`max_seconds` must be a positive"):
        sample(num_draws=1, max_seconds=0.0)


@pytest.mark.parametrize(
    ("schedule", "size", "iteration"),
    [
        (optax.linear_schedule(0.125, 0.0, 8), "0", 8),
        (lambda i: jnp.where(i < 19, 0.1, 0.0), "0", 19),
        (lambda i: 0.055 - 0.01 * i, "-0.005", 6),
        (lambda i: 1.0 / (i - 3.0), "-0.3", 0),
    ],
)
def test_a_schedule_that_ends_before_the_run_is_refused(schedule, size, iteration):
    algorithm = sgld.build(
        SimpleNamespace(minibatch=None), step_size=schedule, batch_size=1, num_warmup=4
    )
    message = f"all 20 iterations of the run, got {size}.* at iteration {iteration}\\."
    with pytest.raises(ValueError, match=message):
        run.sample(KEY, algorithm, jnp.zeros((2, 3)), None, num_draws=8, thinning=2)


def test_a_chain_whose_step_is_tiny_is_named_though_it_accepts_everything():
    algorithm = hmc.build(gaussian, step_size=0.3, num_steps=3)

    def init(key, params, data):
        state = algorithm.init(key, params, data)
        tiny = jnp.where(params[0] == 2, 1e-6, 1.0)
        size = tiny * state.adaptation.step_size
        return state._replace(adaptation=state.adaptation._replace(step_size=size))

    start = jnp.zeros((4, 30)).at[2].set(2.0)
    result = run.sample(
        KEY, algorithm._replace(init=init), start, None,
        num_draws=40, show_progress=False,
    )  # fmt: skip
    assert result.info.is_accepted[2].all()
    (message,) = result.messages
    assert message.startswith("Chain 2 is stuck: an accepted proposal changes its")
    assert "step size is 3e-07, theirs 0.3." in message


def logged(*, scale, step_size, chains=4):
    """Info of chains of which the last one differs by these factors from the others."""
    rng = np.random.default_rng(0)
    own = np.ones((chains, 1))
    own[-1] = scale
    log_density = -500 + 10 * own * rng.normal(size=(chains, 60))
    accepted = rng.random((chains, 60)) < 0.4
    for t in range(1, 60):
        repeats = ~accepted[:, t]
        log_density[repeats, t] = log_density[repeats, t - 1]
    steps = np.full((chains, 60), 0.1)
    steps[-1] *= step_size
    return hamiltonian.Info(
        np.full((chains, 60), 0.4), accepted,
        np.zeros((chains, 60), bool), np.zeros((chains, 60)), log_density,
        steps, np.full((chains, 60), 12),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "step_size", "chains", "is_stuck"),
    [
        (1e-3, 1e-6, 4, True),
        (1e-3, 1e-6, 2, True),
        (1e-3, 1e-6, 1, False),  # nothing to compare it with
        (1.0, 1e-3, 4, False),  # a narrow mode
        (1e-3, 1.0, 4, False),  # the others still climb
        (0.03, 0.03, 4, False),  # slower, not stuck
    ],
)
def test_healthy_chains_are_not_called_stuck(scale, step_size, chains, is_stuck):
    info = logged(scale=scale, step_size=step_size, chains=chains)
    messages = run.describe_stuck_chains(info, 20)
    assert [m[:16] for m in messages] == [f"Chain {chains - 1} is stuck"] * is_stuck


def test_divergences_count_after_what_is_discarded():
    divergent = np.zeros((4, 60), bool)
    divergent[1, :20], divergent[2, 19:23] = True, True
    info = logged(scale=1.0, step_size=1.0)._replace(is_divergent=divergent)
    (message,) = run.describe_divergences(info, 20)
    assert message.startswith("Chain 2: 3 of 40 proposals diverged after warm-up.")


def test_what_the_warm_up_mended_is_not_told():
    algorithm = hmc.build(gaussian, step_size=60.0, num_steps=3, num_warmup=80)
    result = run.sample(
        KEY, algorithm, jnp.ones((2, 3)), None, num_draws=20, show_progress=False,
        mesh=mesh.make_mesh(2, jax.devices()[:1]),
    )  # fmt: skip
    assert result.info.is_divergent[:, :80].any()
    assert not result.info.is_divergent[:, 80:].any()
    assert result.messages == ()


def test_the_state_is_saved_every_few_seconds(tmp_path, monkeypatch):
    """On a clock that moves by a second at each look; a chunk takes one of them."""
    clock = itertools.count()
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("symjax.run.loop.time", fake)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    chunks, commits = [], []
    append, commit = store.Run.append, store.Run.commit

    def timed_append(self, *args):
        chunks.append(next(clock))
        append(self, *args)

    def timed_commit(self, state, **record):
        commits.append((next(clock), record["iteration"]))
        commit(self, state, **record)

    monkeypatch.setattr(store.Run, "append", timed_append)
    monkeypatch.setattr(store.Run, "commit", timed_commit)
    monkeypatch.setattr(store.Run, "is_saved", True)  # Not of this clock.
    sample(num_draws=60, store=run.NewRun(tmp_path / "run"))
    saved_at, iterations = np.array(commits).T
    assert iterations[-1] == 60
    assert len(chunks) == 60
    longest = np.diff(chunks).max()
    gaps = np.diff([0, *saved_at])
    assert gaps[:-1].min() > SAVE_SECONDS
    assert gaps.max() <= SAVE_SECONDS + longest


def test_chunks_grow_where_writing_is_slow(tmp_path, monkeypatch):
    """A write that takes longer than chunks should: they are made as long all the same.

    Without that, each chunk would be of the one iteration that the last one was.
    """
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.1)
    lengths, append = [], store.Run.append

    def slow(self, draws, start_draw, info, *others):
        lengths.append(info.log_density.shape[1])
        time.sleep(0.2)
        append(self, draws, start_draw, info, *others)

    monkeypatch.setattr(store.Run, "append", slow)
    sample(num_draws=300, store=run.NewRun(tmp_path / "run"))
    assert sum(lengths) == 300
    assert len(lengths) < 60


def test_chunks_go_on_while_a_state_is_being_saved(tmp_path, monkeypatch):
    """Draws are appended meanwhile, no other save begins, and the record waits."""
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    monkeypatch.setattr("symjax.run.loop.SAVE_SECONDS", -1.0)
    path, begun, seen = tmp_path / "run", [], []
    commit = store.Run.commit

    def count(self, state, **record):
        begun.append(record["iteration"])
        commit(self, state, **record)

    def look(done, text):
        seen.append((done, store.open(path).committed.iteration))

    monkeypatch.setattr(store.Run, "commit", count)
    monkeypatch.setattr("symjax.progress.bar", lambda *_, **__: nullcontext(look))
    # Saved when it is looked at for the third time after.
    looks = property(lambda self: len(seen) - (begun or [0])[-1] >= 2)
    monkeypatch.setattr(store.Run, "is_saved", looks)
    sample(num_draws=9, store=run.NewRun(path))
    assert begun == [3, 6, 9]
    expected = [0, 0, 0, 0, 0, 3, 3, 3, 3]
    assert seen == list(zip(range(1, 10), expected, strict=True))
    assert store.open(path).committed == store.Commit(9, 9, True, True)


PROGRAM = textwrap.dedent(
    """
    import sys, warnings
    warnings.filterwarnings("ignore")
    import jax, jax.numpy as jnp
    import symjax.run.loop as loop
    from symjax import run, store
    from symjax.samplers import hmc

    loop.CHUNK_SECONDS, loop.SAVE_SECONDS = 0.02, 0.0
    path = sys.argv[1]
    try:
        kept = store.open(path)
    except store.StoreError:
        kept = run.NewRun(path)
    algorithm = hmc.build(
        lambda x, _: -jnp.sum(x**2) / 2, step_size=0.1, num_steps=200, num_warmup=50
    )
    print("ready", flush=True)
    run.sample(
        jax.random.key(1), algorithm, jnp.ones((2, 5000)), None, num_draws=300,
        store=kept, show_progress=False,
    )
    """
)


def start_program(path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XLA_FLAGS": ""},
        cwd=Path(__file__).parent,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for_commit(path, after, seconds=120):
    """Wait until a commit past iteration `after` is on the disk; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            done = store.open(path).committed
        except store.StoreError:
            done = store.Commit()
        if done.iteration > after or done.finished:
            return done
        time.sleep(0.01)
    raise AssertionError("no commit came")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    process = start_program(path)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return store.open(path)


def assert_same_run(path, uninterrupted):
    kept = store.open(path)
    assert kept.committed == uninterrupted.committed
    np.testing.assert_array_equal(kept.read(), uninterrupted.read())
    for name, values in uninterrupted.info().items():
        np.testing.assert_array_equal(kept.info()[name], values)


def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(
    tmp_path, uninterrupted
):
    generator = random.Random(5)
    path, done = tmp_path / "run", store.Commit()
    for _ in range(3):
        process = start_program(path)
        done = wait_for_commit(path, done.iteration)
        time.sleep(generator.uniform(0, 0.3))
        process.kill()
        process.communicate()
        assert not store.open(path).committed.finished, "killed too late to test"
        done = store.open(path).committed
    process = start_program(path)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert_same_run(path, uninterrupted)


def test_two_processes_do_not_write_one_run(tmp_path):
    path = tmp_path / "run"
    first = start_program(path)
    wait_for_commit(path, 0)
    first.send_signal(signal.SIGSTOP)
    before = store.open(path).committed
    second = start_program(path)
    _, errors = second.communicate(timeout=200)
    assert second.returncode == 1
    assert f"is being written by process {first.pid} on" in errors.splitlines()[-1]
    assert store.open(path).committed == before
    first.kill()
    first.communicate()
    with store.hold(path):  # Free again, though nobody cleared it away.
        assert f"process {os.getpid()} on" in (path / "lock").read_text()


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_chunk_and_stops(tmp_path, uninterrupted, kind):
    path = tmp_path / "run"
    process = start_program(path)
    wait_for_commit(path, 0)
    process.send_signal(kind)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    last = errors.strip().splitlines()[-1]
    done = store.open(path).committed
    assert 0 < done.iteration < 350
    expected = f"Stopped at iteration {done.iteration} of 350, with {done.num_draws}"
    assert expected in last
    assert ("Preempted" in last) == (kind == signal.SIGTERM)
    if kind == signal.SIGTERM:  # What was saved is the same.
        process = start_program(path)
        process.communicate(timeout=200)
        assert_same_run(path, uninterrupted)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_last_chunk_ends_the_program_after_the_run(
    tmp_path, monkeypatch, kind
):
    """The run is finished then, and a program of several does not begin the next."""
    path, append = tmp_path / "run", store.Run.append

    def append_signalled(*args):
        append(*args)
        signal.raise_signal(kind)

    monkeypatch.setattr(store.Run, "append", append_signalled)
    algorithm = hmc.build(lambda p, data: -p @ p, step_size=0.1, num_steps=1)
    chains = jax.random.key(0), algorithm, jnp.zeros((2, 3)), None
    with pytest.raises(run.Stopped, match="iteration 1 of 1, with 1 of 1") as stopped:
        run.sample(*chains, num_draws=1, store=run.NewRun(path))
    assert (stopped.type is run.Preempted) == (kind == signal.SIGTERM)
    kept = store.open(path)
    assert kept.committed.finished
    again = run.sample(*chains, num_draws=1, store=kept)
    np.testing.assert_array_equal(again.info.num_steps, [[1], [1]])


def test_a_signal_in_the_last_chunk_leaves_what_memory_alone_holds(
    tmp_path, monkeypatch
):
    """As several hosts, which take signals without a run directory too."""
    iterate, terminate = api.iterate, Signal.TERMINATE
    monkeypatch.setattr(api, "iterate", lambda *args: (*iterate(*args)[:2], terminate))
    algorithm = hmc.build(lambda p, data: -p @ p, step_size=0.1, num_steps=1)
    chains = jax.random.key(0), algorithm, jnp.zeros((2, 3)), None
    assert run.sample(*chains, num_draws=1).draws.shape == (2, 1, 3)
    with pytest.raises(run.Preempted):
        run.sample(*chains, num_draws=1, store=run.NewRun(tmp_path / "run"))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_params_of_another_precision_are_refused(dtype):
    start = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(2, dtype)}
    algorithm = hmc.build(lambda p, data: -p["w"] @ p["w"], step_size=0.1, num_steps=1)
    name = jnp.dtype(dtype).name
    with pytest.raises(TypeError, match=rf"must be float32 .*, got {name} at \['b'\]"):
        run.sample(jax.random.key(0), algorithm, start, None, num_draws=1)


def test_what_is_refused_when_chains_start_leaves_no_run(tmp_path):
    """A run that can't begin could not be continued either."""
    algorithm = chees.build(lambda p, data: -p @ p, step_size=0.1, num_warmup=5)
    with pytest.raises(ValueError, match="ChEES needs several chains"):
        run.sample(
            jax.random.key(0),
            algorithm,
            jnp.zeros((1, 3)),
            None,
            num_draws=1,
            store=run.NewRun(tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()
