"""The run directory: what is written comes back, whatever happens to the process."""

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import pkgutil
import resource
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax import store, trees
from symjax.store import arrays, commits, environment, files, runs


NUM_CHAINS = 3


class Info(NamedTuple):
    acceptance_rate: Any
    is_divergent: Any
    num_steps: Any


class Layer(NamedTuple):
    kernel: Any
    scale: Any


INFO = Info(
    jax.ShapeDtypeStruct((), jnp.float32),
    jax.ShapeDtypeStruct((), jnp.bool_),
    jax.ShapeDtypeStruct((), jnp.int32),
)
FLAX = {
    "params": {
        "Dense_0": {
            "kernel": jax.ShapeDtypeStruct((5, 4), jnp.float32),
            "bias": jax.ShapeDtypeStruct((4,), jnp.float32),
        },
        "Dense_1": {"kernel": jax.ShapeDtypeStruct((4, 2), jnp.float32)},
    }
}
NESTED = [
    Layer(
        jax.ShapeDtypeStruct((3, 2), jnp.bfloat16),
        jax.ShapeDtypeStruct((), jnp.float16),
    ),
    (jax.ShapeDtypeStruct((7,), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.bool_)),
]
ARRAY = jax.ShapeDtypeStruct((6,), jnp.float32)


def entries(tree, length, *, seed=0):
    """Random values `(chain, length, ...)`, zeros and the extremes among them."""
    rng = np.random.default_rng(seed)

    def leaf(shape):
        shape, dtype = (NUM_CHAINS, length, *shape.shape), shape.dtype
        return rng.normal(scale=100, size=shape).astype(dtype)

    return jax.tree.map(leaf, tree)


def columns(tree, start, stop):
    return jax.tree.map(lambda leaf: leaf[:, start:stop], tree)


def assert_same(found, expected):
    """The same structure, dtypes and bits."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def make(path, params=FLAX, *, num_draws=20, num_iterations=50, **options):
    return store.create(
        path,
        config={"sampler": {"step_size": 0.1}, "data": {"fingerprint": "abc"}},
        params=params,
        info=INFO,
        num_chains=NUM_CHAINS,
        num_draws=num_draws,
        num_iterations=num_iterations,
        **options,
    )


def make_state(seed=0):
    rng = np.random.default_rng(seed)
    position = {"w": jnp.asarray(rng.normal(size=(NUM_CHAINS, 40)), jnp.float32)}
    return {
        "position": position,
        "keys": jax.random.split(jax.random.key(seed), NUM_CHAINS),
        "optimiser": optax.adam(1e-3).init(position),
        "pair": (jnp.float32(seed), [None, jnp.arange(3)]),
    }


@pytest.fixture
def run(tmp_path):
    """Ten draws and twenty iterations committed, five and ten more appended."""
    run = make(tmp_path / "run")
    run.append(
        columns(entries(FLAX, 15), 0, 10), 0, columns(entries(INFO, 30), 0, 20), 0
    )
    run.commit(make_state(), iteration=20, num_draws=10)
    run.append(
        columns(entries(FLAX, 15), 10, 15), 10, columns(entries(INFO, 30), 20, 30), 20
    )
    return run


def test_a_run_goes_on_in_the_chunks_that_it_began_with(tmp_path, monkeypatch):
    draws = entries(FLAX, 20)
    monkeypatch.setattr(runs, "DRAW_CHUNK_BYTES", 200)
    run = make(tmp_path / "run", FLAX)
    run.append(columns(draws, 0, 7), 0, None, 0)
    run.commit(make_state(), iteration=0, num_draws=7)
    monkeypatch.setattr(runs, "DRAW_CHUNK_BYTES", 300)
    run = store.open(tmp_path / "run")
    run.append(columns(draws, 7, 20), 7, None, 0)
    run.commit(make_state(), iteration=0, num_draws=20)
    assert_same(store.open(tmp_path / "run").read(like=FLAX), draws)


def test_a_run_can_be_named_from_a_folder_beside_it(tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    draws, state = entries(FLAX, 20), make_state()
    run = make("../run", FLAX)
    run.append(draws, 0, None, 0)
    run.commit(state, iteration=0, num_draws=20)
    for place in ("../run", tmp_path / "run"):
        assert_same(store.open(place).read(like=FLAX), draws)
        again = store.open(place).restore(state)
        assert_same(again["position"], state["position"])


@pytest.mark.parametrize(
    "params", [FLAX, NESTED, ARRAY], ids=["flax", "nested", "array"]
)
def test_draws_and_info_come_back_bit_for_bit(tmp_path, monkeypatch, params):
    monkeypatch.setattr(runs, "DRAW_CHUNK_BYTES", 200)  # Several draws a chunk.
    monkeypatch.setattr(runs, "INFO_CHUNK_BYTES", 30)
    draws, info = entries(params, 20), entries(INFO, 50)
    run = make(tmp_path / "run", params)
    for start, stop in [(0, 1), (1, 1), (1, 9), (9, 20)]:
        run.append(columns(draws, start, stop), start, None, 0)
    for start, stop in [(0, 17), (17, 50)]:
        run.append(None, 0, columns(info, start, stop), start)
    run.commit(make_state(), iteration=50, num_draws=20, finished=True)

    run = store.open(tmp_path / "run")
    assert_same(run.read(like=params), draws)
    assert_same(Info(**run.info()), info)
    assert run.committed == store.Commit(50, 20, finished=True, has_state=True)
    if params is not NESTED:
        assert_same(run.read(), draws)
    picked = run.read(chains=[2, 0], draws=slice(3, None, 5), like=params)
    assert_same(picked, jax.tree.map(lambda leaf: leaf[[2, 0], 3::5], draws))
    lazy = run.lazy(like=params)
    assert_same(
        jax.tree.map(lambda leaf: leaf[2, 3:11], lazy),
        jax.tree.map(lambda leaf: leaf[2, 3:11], draws),
    )
    for leaf, whole in zip(jax.tree.leaves(lazy), jax.tree.leaves(draws), strict=True):
        assert (leaf.shape, leaf.dtype) == (whole.shape, whole.dtype)
    path, last = trees.paths(params)[-1], jax.tree.leaves(draws)[-1]
    assert_same(run.read_leaf(path, chains=1, draws=-1), last[1:2, -1:])


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("abstract", [False, True])
def test_state_and_keys_come_back(tmp_path, impl, abstract):
    state = make_state()
    state["keys"] = jax.random.split(jax.random.key(7, impl=impl), NUM_CHAINS)
    run = make(tmp_path / "run")
    run.commit(state, iteration=0, num_draws=0)
    other = jax.tree.map(lambda leaf: leaf[::-1] if leaf.ndim else leaf, state)
    like = jax.eval_shape(lambda: other) if abstract else other

    restored = store.open(run.path).restore(like)

    assert restored["keys"].dtype == state["keys"].dtype
    draw = jax.vmap(jax.random.normal)
    np.testing.assert_array_equal(draw(restored["keys"]), draw(state["keys"]))
    without_keys = lambda state: {**state, "keys": jax.random.key_data(state["keys"])}
    assert_same(without_keys(restored), without_keys(state))


def test_other_programs_can_read_the_arrays(run):
    """Zarr v3 read by hand, as its specification says."""
    folder = run.path / "draws" / "params" / "Dense_0"
    for group in (folder, *folder.parents[:2], run.path / "info"):
        node = json.loads((group / "zarr.json").read_text())
        assert (node["zarr_format"], node["node_type"]) == (3, "group")
    node = json.loads((folder / "kernel" / "zarr.json").read_text())
    assert node["shape"] == [NUM_CHAINS, 20, 5, 4]
    assert node["dimension_names"] == ["chain", "draw", "kernel_dim_0", "kernel_dim_1"]
    shape = node["chunk_grid"]["configuration"]["chunk_shape"]
    chunk = (folder / "kernel" / "c" / "2" / "0" / "0" / "0").read_bytes()
    values = np.frombuffer(chunk[:-4], "<f4").reshape(shape)  # Less the checksum.
    expected = entries(FLAX, 15)["params"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(values[0, :15], expected[2])
    assert np.isnan(values[0, 15:]).all()


def test_readers_see_what_is_committed(run):
    reader = store.open(run.path)
    assert_same(reader.read(), columns(entries(FLAX, 15), 0, 10))
    for leaf in jax.tree.leaves(run.lazy()):
        assert leaf.shape[1] == len(leaf[0, :]) == 10
    assert reader.info()["num_steps"].shape == (NUM_CHAINS, 20)
    run.commit(make_state(1), iteration=30, num_draws=15)
    assert_same(reader.read(), entries(FLAX, 15))
    assert_same(Info(**reader.info()), entries(INFO, 30))


def test_resuming_overwrites_what_was_not_committed(run, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commits, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            run.commit(make_state(1), iteration=30, num_draws=15)
    assert (run.path / "state" / "30").exists()

    resumed = store.open(run.path)
    assert_same(resumed.restore(make_state(5))["position"], make_state(0)["position"])
    draws, info = entries(FLAX, 4, seed=9), entries(INFO, 5, seed=9)
    resumed.append(draws, 10, info, 20)
    resumed.commit(make_state(2), iteration=25, num_draws=14)

    reader = store.open(run.path)
    assert_same(reader.read(draws=slice(0, 10)), columns(entries(FLAX, 15), 0, 10))
    assert_same(reader.read(draws=slice(10, None)), draws)
    assert_same(Info(**columns(reader.info(), 20, None)), info)
    assert_same(reader.restore(make_state())["position"], make_state(2)["position"])
    assert {step.name for step in (run.path / "state").iterdir()} == {"20", "25"}


def test_what_is_being_saved_counts_once_it_is(run):
    """Appended meanwhile or not, and whether its arrays are given away or not."""
    spoil = jax.jit(lambda state: jax.tree.map(jnp.zeros_like, state), donate_argnums=0)
    rng = np.random.default_rng(3)
    state = {"w": jnp.asarray(rng.normal(size=(NUM_CHAINS, 300_000)), jnp.float32)}
    expected = jax.tree.map(np.array, state)
    spoil(jax.tree.map(jnp.copy, state))  # Compiled by now.
    run.commit(state, iteration=30, num_draws=15, wait=False)
    for _ in range(3):
        state = spoil(state)
    run.append(columns(entries(FLAX, 20), 15, 20), 15, entries(INFO, 20), 30)
    reader = store.open(run.path)
    assert reader.committed == store.Commit(20, 10, has_state=True)
    run.settle()
    assert run.is_saved
    assert reader.committed == store.Commit(30, 15, has_state=True)
    assert_same(reader.read(), entries(FLAX, 15))
    assert_same(reader.restore(expected), expected)
    run.commit(state, iteration=50, num_draws=20, finished=True)
    late = reader.read(draws=slice(15, None))
    assert_same(late, columns(entries(FLAX, 20), 15, 20))


def wait_until_saved(run):
    end = time.monotonic() + 60
    while not run.is_saved and time.monotonic() < end:
        time.sleep(0.01)


def test_a_save_that_failed_is_told_and_does_not_count(run, monkeypatch):
    def broken(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("orbax.checkpoint.StandardCheckpointHandler.finalize", broken)
        run.commit(make_state(1), iteration=30, num_draws=15, wait=False)
        with pytest.raises(store.StoreError, match=r"state in .*state: .*Free some"):
            run.settle()
        run.commit(make_state(1), iteration=30, num_draws=15, wait=False)
        # Those that don't wait for it are told, too, and once.
        with pytest.raises(store.StoreError, match=r"state in .*state: .*Free some"):
            wait_until_saved(run)
        assert run.is_saved
        run.settle()
    assert run.committed == store.Commit(20, 10, has_state=True)
    assert_same(run.restore(make_state(5))["position"], make_state()["position"])
    run.commit(make_state(1), iteration=30, num_draws=15)
    assert_same(run.restore(make_state())["position"], make_state(1)["position"])


def test_a_finished_run_is_not_changed_by_resuming(run):
    run.commit(make_state(), iteration=30, num_draws=15, finished=True)
    contents = lambda: {
        file: (file.stat().st_mtime_ns, file.read_bytes())
        for file in run.path.rglob("*")
        if file.is_file()
    }
    before = contents()
    store.open(run.path).restore(make_state())
    assert contents() == before
    # A record alone may be written again, as `finished` often is.
    store.open(run.path).commit(make_state(4), iteration=30, num_draws=15)
    assert not run.committed.finished
    assert_same(run.restore(make_state())["position"], make_state()["position"])


# Killed at any moment

TOTAL = 400
PARAMS = {"a": jax.ShapeDtypeStruct((30,), jnp.float32), "b": ARRAY}


class ChainState(NamedTuple):
    position: Any
    keys: Any
    count: Any


def first_state():
    data = np.arange(2 * NUM_CHAINS, dtype=np.uint32).reshape(NUM_CHAINS, 2)
    position = {
        name: np.full((NUM_CHAINS, *leaf.shape), 0.3, np.float32)
        for name, leaf in PARAMS.items()
    }
    return _chain_state(position, data, 0)


def _chain_state(position, data, count):
    return ChainState(
        jax.tree.map(jnp.asarray, position),
        jax.random.wrap_key_data(jnp.asarray(data)),
        jnp.asarray(count),
    )


def simulate(state, length):
    """A chaotic chain: each draw and each key hangs on all that were before."""
    position = jax.tree.map(np.asarray, state.position)
    data = np.array(jax.random.key_data(state.keys))
    count = int(state.count)
    draws, info = [], []
    for _ in range(length):
        data = data * np.uint32(1664525) + np.uint32(1013904223)
        noise = (data[:, :1] >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
        position = {
            name: np.float32(3.9) * leaf * (1 - leaf) * (np.float32(0.5) + noise / 2)
            for name, leaf in position.items()
        }
        count += 1
        draws.append(position)
        steps = np.full(NUM_CHAINS, count, np.int32)
        info.append(Info(noise[:, 0], noise[:, 0] > 0.5, steps))
    stack = lambda *leaves: np.stack(leaves, axis=1)
    state = _chain_state(position, data, count)
    return state, jax.tree.map(stack, *draws), jax.tree.map(stack, *info)


def work(path, num_iterations=TOTAL, longest=4):
    """What a sampling loop does: begin or resume, then append and commit."""
    if (path / "config.json").exists():
        run = store.open(path)
    else:
        run = store.create(
            path,
            config={},
            params=PARAMS,
            info=INFO,
            num_chains=NUM_CHAINS,
            num_draws=TOTAL,
            num_iterations=TOTAL,
        )
    done = run.committed
    state = run.restore(first_state()) if done.has_state else first_state()
    start = done.iteration
    while start < num_iterations:
        # Not the lengths of the uninterrupted run: the clock decides them, in reality.
        length = min(1 + (start + done.has_state) % longest, TOTAL - start)
        state, draws, info = simulate(state, length)
        run.append(draws, start, info, start)
        start += length
        # Draws are appended while the state before them is being saved.
        is_last = start == TOTAL
        run.commit(
            state, iteration=start, num_draws=start, finished=is_last, wait=is_last
        )
    run.settle()


def kill_at(name, count):
    """Replace a function by one that kills the process at its `count`th call."""
    owner, name = name.rsplit(".", 1)
    owner = pkgutil.resolve_name(owner)
    original, calls = getattr(owner, name), itertools.count(1)

    def killing(*args, **kwargs):
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, killing)


def work_until_killed_at(path, name, count):
    kill_at(name, count)
    work(path)


def start(function, *args):
    """A process that forks from one with all imports done, so that it starts fast."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["symjax.store", "optax", "pytest"])
    process = context.Process(target=function, args=args)
    process.start()
    return process


@pytest.fixture(scope="module")
def uninterrupted():
    return simulate(first_state(), TOTAL)


def check(path, uninterrupted):
    """Record, draws, Info and state agree with the uninterrupted run."""
    run = store.open(path)
    done = run.committed
    assert done.iteration == done.num_draws
    _, draws, info = uninterrupted
    assert_same(run.read(), columns(draws, 0, done.num_draws))
    assert_same(Info(**run.info()), columns(info, 0, done.iteration))
    state = first_state()
    if done.has_state:
        if done.iteration:
            state, _, _ = simulate(state, done.iteration)
        restored = run.restore(first_state())
        assert_same(restored.position, state.position)
        assert restored.count == done.iteration
        assert jnp.array_equal(restored.keys, state.keys)
    return done.iteration


def committed_iteration(path):
    try:
        return json.loads((path / "commit.json").read_text())["iteration"]
    except FileNotFoundError:
        return 0


def test_killed_at_random_moments(tmp_path, uninterrupted):
    """SIGKILL at any phase of append and commit, again and again, loses nothing."""
    rng = np.random.default_rng(0)
    path = tmp_path / "run"
    reached, deadline = 0, time.monotonic() + 200
    for _ in range(12):
        process = start(work, path)
        target = reached + rng.integers(1, 4)
        while committed_iteration(path) < target and process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        before, reached = reached, check(path, uninterrupted)
        assert before < reached < TOTAL
    work(path, longest=99)
    assert check(path, uninterrupted) == TOTAL
    assert store.open(path).committed.finished


PLACES = {
    "while the run is created": ("os.replace", 3),
    "before the run is one": ("pathlib.Path.rename", 1),
    "before the first draws": ("symjax.store.arrays.Group.write", 1),
    "between draws and Info": ("symjax.store.arrays.Group.write", 4),
    "before the state": ("orbax.checkpoint.CheckpointManager.save", 2),
    "inside the state": ("orbax.checkpoint.StandardCheckpointHandler.finalize", 2),
    "between the first state and its record": ("symjax.store.states.flush", 1),
    "between a later state and its record": ("symjax.store.states.flush", 3),
    "before the record": ("symjax.store.commits.write_json", 3),
    "before the record is replaced": ("os.replace", 8),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_killed_at_a_place(tmp_path, uninterrupted, place):
    process = start(work_until_killed_at, tmp_path / "run", *place)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    work(tmp_path / "run", 12)
    assert check(tmp_path / "run", uninterrupted) >= 12
    names = {entry.name for entry in (tmp_path / "run" / "state").iterdir()}
    assert all(name.isdigit() for name in names)
    assert len(names) == 3


# Errors


@contextlib.contextmanager
def no_room_for(num_bytes):
    """Files can't grow beyond `num_bytes`: as on a full disk, the system says no."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_while_draws_are_written(run):
    message = r"kernel/c/\d/0/0/0: File too large\. Free some space"
    with no_room_for(1000), pytest.raises(store.StoreError, match=message):
        run.append(entries(FLAX, 5), 10, None, 0)
    with pytest.raises(ValueError, match=r"`num_draws` must be .* 10 appended, got 15"):
        run.commit(make_state(), iteration=30, num_draws=15)
    assert_same(store.open(run.path).read(), columns(entries(FLAX, 15), 0, 10))


def commit_without_room(path):
    run = store.open(path)
    run.append(None, 0, entries(INFO, 5), 20)
    with no_room_for(300), pytest.raises(store.StoreError, match="state.*Free some"):
        run.commit(make_state(1), iteration=25, num_draws=10)


def test_a_full_disk_while_the_state_is_saved(run):
    # Elsewhere, since what Orbax had under way then complains when it is collected.
    process = start(commit_without_room, run.path)
    process.join()
    assert process.exitcode == 0
    assert_same(run.restore(make_state(5))["position"], make_state()["position"])
    run.commit(make_state(1), iteration=30, num_draws=15)
    assert_same(run.restore(make_state())["position"], make_state(1)["position"])


def test_a_full_disk_while_the_record_is_replaced(run, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(store.StoreError, match=r"commit\.json.*Free some space"):
            run.commit(make_state(), iteration=20, num_draws=15)
    assert run.committed.num_draws == 10
    assert not list(run.path.glob("*.tmp"))


@contextlib.contextmanager
def read_only(folder):
    """Nobody may write below `folder`, not even root."""
    is_root = os.geteuid() == 0
    below = [folder, *(entry for entry in folder.rglob("*") if entry.is_dir())]
    for entry in below:
        entry.chmod(0o555)
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for entry in below:
            entry.chmod(0o755)


def test_a_read_only_folder_can_be_read_and_says_so_when_written(run):
    home = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others.
    try:
        shutil.copytree(run.path, home / "run")
        run = store.open(home / "run")
        with read_only(home):
            assert_same(run.read(), columns(entries(FLAX, 15), 0, 10))
            run.restore(make_state())
            for doing in (
                lambda: run.append(entries(FLAX, 5), 10, None, 0),
                lambda: run.append(None, 0, entries(INFO, 5), 20),
                lambda: run.commit(make_state(), iteration=20, num_draws=10),
                lambda: make(home / "other"),
                lambda: store.export_npz(run, home / "draws.npz"),
            ):
                with pytest.raises(store.StoreError, match=f"{home}.*writable"):
                    doing()
        assert run.committed == store.Commit(20, 10, has_state=True)
    finally:
        shutil.rmtree(home)


def damage(file, how):
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 3] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "truncated", "changed"])
@pytest.mark.parametrize(
    "name", ["draws/params/Dense_1/kernel/c/1/0/0/0", "info/num_steps/c/1/0"]
)
def test_a_damaged_chunk_is_never_read(run, name, how):
    damage(run.path / name, how)
    message = f"{name}: .*Put the file back from a copy"
    reopened = store.open(run.path)
    with pytest.raises(store.StoreError, match=message):
        reopened.read() if "draws" in name else reopened.info()
    with pytest.raises(store.StoreError, match=message):
        reopened.restore(make_state())


def test_only_what_is_asked_is_read(tmp_path, monkeypatch):
    """All other chunks are broken."""
    monkeypatch.setattr(runs, "DRAW_CHUNK_BYTES", 5 * 5 * 4 * 4)  # Five draws a chunk.
    draws = entries(FLAX, 20)
    run = make(tmp_path / "run")
    run.append(draws, 0, None, 0)
    run.commit(make_state(), iteration=0, num_draws=20)
    path = "params/Dense_0/kernel"
    kept = run.path / "draws" / path / "c" / "2" / "3" / "0" / "0"
    chunks = [f for f in (run.path / "draws").rglob("c/**/*") if f.is_file()]
    for file in chunks:
        if file != kept:
            damage(file, "truncated")

    run = store.open(run.path)
    found = run.read_leaf(path, chains=2, draws=slice(15, 20))
    expected = draws["params"]["Dense_0"]["kernel"][2:3, 15:20]
    np.testing.assert_array_equal(found, expected)
    for chains, selected in [(2, slice(14, 20)), (1, slice(15, 20))]:
        with pytest.raises(store.StoreError, match="Not enough data"):
            run.read_leaf(path, chains=chains, draws=selected)
    with pytest.raises(store.StoreError, match="Not enough data"):
        run.read(chains=2, draws=slice(15, 20))


@pytest.mark.parametrize("name", ["commit.json", "config.json", "state/20"])
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_damaged_record_configuration_or_state(run, name, how):
    file = run.path / name
    if name == "state/20" and how == "missing":
        shutil.rmtree(file)
    else:
        damage(file / "default/_METADATA" if name == "state/20" else file, how)
    with pytest.raises(store.StoreError, match=f"{run.path}.*(copy|Name)"):
        store.open(run.path).restore(make_state())


def test_a_folder_that_is_no_run(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(store.StoreError, match="is not a run: there is no config"):
            store.open(path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(store.StoreError, match=r"config\.json of a run"):
        store.open(tmp_path)


def test_a_run_of_a_newer_version(run):
    file = run.path / "config.json"
    header = json.loads(file.read_text())
    file.write_text(json.dumps({**header, "format": 2, "draws": "elsewhere"}))
    with pytest.raises(store.StoreError, match="newer symjax .*upgrade"):
        store.open(run.path)


def test_create_takes_no_folder_that_is_in_use(run, tmp_path):
    with pytest.raises(store.StoreError, match="already holds a run: resume it"):
        make(run.path)
    assert_same(run.read(), columns(entries(FLAX, 15), 0, 10))
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.tex").touch()
    with pytest.raises(store.StoreError, match="is not empty"):
        make(other)
    with pytest.raises(store.StoreError, match=r"chapter\.tex.*another directory"):
        make(other / "chapter.tex")


def test_a_creation_that_failed_can_be_repeated(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(arrays.Group, "_metadata", lambda *_: {})
        with pytest.raises(store.StoreError, match="create the arrays"):
            make(tmp_path / "run")
    with pytest.raises(store.StoreError, match="begin the run again"):
        store.open(tmp_path / "run")
    run = make(tmp_path / "run")
    run.append(entries(FLAX, 20), 0, None, 0)
    run.commit(make_state(), iteration=0, num_draws=20)
    assert_same(store.open(run.path).read(), entries(FLAX, 20))


def test_another_configuration_is_refused(run, monkeypatch):
    config = {"sampler": {"step_size": 0.1}, "data": {"fingerprint": "abc"}}
    assert run.check_config(config) == []
    for changed, message in [
        (
            {**config, "sampler": {"step_size": 0.2}},
            r"`sampler\.step_size` .*0\.1,.*0\.2",
        ),
        ({**config, "seed": 3}, "`seed` must stay unset.*got 3"),
        ({"data": config["data"]}, r"`sampler\.step_size` .*got unset"),
    ]:
        with pytest.raises(ValueError, match=message):
            run.check_config(changed)
    before = environment.describe()
    now = {**before, "jax": "99", "devices": "8 x TPU v4"}
    monkeypatch.setattr(environment, "describe", lambda: now)
    warnings = " ".join(run.check_config(config))
    assert f"jax {jax.__version__}, this is 99" in warnings
    assert f"devices {before['devices']}, this is 8 x TPU v4" in warnings


def test_a_configuration_that_json_changes_stays_the_same(tmp_path):
    config = {"widths": (64, 32), "scale": float("nan"), "options": {}}
    counts: Any = {"num_chains": 1, "num_draws": 1, "num_iterations": 1}
    run = store.create(tmp_path / "a", config=config, params=ARRAY, info=INFO, **counts)
    assert store.open(run.path).check_config(config) == []
    with pytest.raises(TypeError, match="`config` must hold numbers"):
        store.create(
            tmp_path / "b", config={"x": ARRAY}, params=ARRAY, info=INFO, **counts
        )


def test_appending_and_committing_leave_no_gap(run):
    draws, info = entries(FLAX, 5), entries(INFO, 5)
    for call in (
        lambda: run.append(draws, 9, None, 0),  # Committed already.
        lambda: run.append(draws, 16, None, 0),  # A gap.
        lambda: run.append(None, 0, info, 31),
        lambda: run.append(entries(FLAX, 6), 15, None, 0),  # Past the plan.
        lambda: run.append(draws["params"], 15, None, 0),  # Other names.
        lambda: run.append(info, 15, None, 0),
        lambda: run.append(None, 0, info._replace(num_steps=info.is_divergent), 30),
        lambda: run.append(columns(draws, 0, 2) | {"params": 0}, 15, None, 0),
        lambda: run.commit(make_state(), iteration=19, num_draws=10),
        lambda: run.commit(make_state(), iteration=30, num_draws=9),
        lambda: run.commit(make_state(), iteration=30, num_draws=16),
        lambda: run.commit(make_state(), iteration=31, num_draws=15),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
    assert run.committed == store.Commit(20, 10, has_state=True)


def test_a_state_of_another_algorithm_is_refused(run):
    state = make_state()
    for other in (
        {**state, "extra": jnp.ones(3)},
        {key: state[key] for key in ("position", "keys", "optimiser")},
        {**state, "position": {"w": jnp.ones((NUM_CHAINS, 41))}},
        {**state, "position": {"w": jnp.ones((NUM_CHAINS, 40), jnp.int32)}},
    ):
        with pytest.raises(store.StoreError, match="configuration it began with"):
            run.restore(other)


def test_one_writer_at_a_time_and_readers_beside_it(run):
    def fail():
        with store.hold(run.path):
            assert store.open(run.path).read_leaf("params/Dense_0/bias").shape[1] == 10
            with store.hold(store.open(run.path).path):
                pass

    for _ in range(2):  # The error let go of it.
        with pytest.raises(
            store.StoreError, match=f"by process {os.getpid()} on .* then resume"
        ):
            fail()
    with store.hold(run.path):
        pass
    assert not (run.path / "lock").read_text()


def test_where_a_file_system_has_no_locks_runs_go_on(run, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with store.hold(run.path):
        run.commit(make_state(1), iteration=30, num_draws=15)
    assert store.open(run.path).committed.num_draws == 15


def test_a_new_run_has_no_state(tmp_path):
    with pytest.raises(store.StoreError, match="from their beginning"):
        make(tmp_path / "run").restore(make_state())


@pytest.mark.parametrize(
    "params",
    [{}, {"a": {"b": ARRAY}, "a/b": ARRAY}, {"a/b": ARRAY, "a": ARRAY}, {"..": ARRAY}],
)
def test_names_that_make_no_folders_are_refused(tmp_path, params):
    with pytest.raises(ValueError, match="`params` must be a pytree"):
        make(tmp_path / "run", params)
    assert not (tmp_path / "run").exists()


# Exports

KEPT = range(32, 50, 2)


@pytest.fixture
def partly_done(tmp_path):
    """Seven of nine draws committed; each is the state after every second iteration."""
    run = make(tmp_path / "run", num_draws=9, kept=KEPT)
    run.append(entries(FLAX, 7), 0, entries(INFO, 47), 0)
    run.commit(make_state(), iteration=47, num_draws=7)
    return store.open(run.path)


def test_npz_holds_everything_committed(partly_done, tmp_path):
    store.export_npz(partly_done, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        draws = dict(
            zip(trees.paths(FLAX), jax.tree.leaves(entries(FLAX, 7)), strict=True)
        )
        expected = {f"draws/{path}": leaf for path, leaf in draws.items()}
        expected |= {f"info/{k}": v for k, v in entries(INFO, 47)._asdict().items()}
        assert_same(dict(found), expected)


def test_arviz_sees_draws_and_their_info(partly_done):
    exported = store.export_arviz(partly_done)
    import arviz  # Loaded by now; it warns whoever imports it first.

    posterior, stats = exported["posterior"], exported["sample_stats"]
    kernel = posterior["params.Dense_0.kernel"]
    assert kernel.dims[:2] == ("chain", "draw")
    draws, info = entries(FLAX, 7)["params"], entries(INFO, 47)
    np.testing.assert_array_equal(kernel, draws["Dense_0"]["kernel"])
    np.testing.assert_array_equal(stats["diverging"], info.is_divergent[:, 32:46:2])
    np.testing.assert_array_equal(stats["n_steps"], info.num_steps[:, 32:46:2])
    assert arviz.summary(exported, var_names=["params.Dense_1.kernel"]).shape[0] == 8


def test_arviz_finds_the_log_density_by_its_own_name(tmp_path):
    kept = store.create(
        tmp_path / "run",
        config={},
        params={"w": jax.ShapeDtypeStruct((), jnp.float32)},
        info={"log_density": jax.ShapeDtypeStruct((), jnp.float32)},
        num_chains=2,
        num_draws=3,
        num_iterations=4,
        kept=range(1, 4),
    )
    nats = np.arange(8, dtype=np.float32).reshape(2, 4)
    kept.append({"w": nats[:, 1:]}, 0, {"log_density": nats}, 0)
    kept.commit({"done": jnp.zeros(())}, iteration=4, num_draws=3, finished=True)
    stats = store.export_arviz(kept)["sample_stats"]
    np.testing.assert_array_equal(stats["lp"], nats[:, 1:])


@pytest.mark.parametrize("kept", [range(9, 50, 2), range(42, 51), range(-1, 8)])
def test_kept_must_fit_the_plan(tmp_path, kept):
    with pytest.raises(ValueError, match="`kept` must be 9 of the iterations 0 to 49"):
        make(tmp_path / "run", num_draws=9, kept=kept)
