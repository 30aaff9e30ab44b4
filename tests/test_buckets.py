"""Runs in an object store: as in a folder, whatever happens to the process."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import object_store
import pytest
from commands import symjax
from object_store import serve
from test_contract import StopAfterChunks
from test_store import check, kill_at, start, uninterrupted, work  # noqa: F401

from symjax import launching, run, store
from symjax.hosts import last_words
from symjax.samplers import hmc
from symjax.store import bucket_states


@pytest.fixture(scope="module")
def server():
    with serve() as (server, variables), pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        server.variables = variables
        yield server


def names(server, folder):
    """Of all objects in it."""
    return {key.removeprefix(folder) for key in server.objects if folder in key}


def test_a_bucket_reads_like_a_folder(server):
    folder = store.place("s3://bucket/some/folder")
    assert str(folder) == "s3://bucket/some/folder"
    assert not folder.exists()
    for name, text in (("a.json", "1"), ("b/c.json", "2"), ("b/d.json", "é")):
        store.write_text(folder / name, text)
    assert [entry.name for entry in folder.iterdir()] == ["a.json", "b"]
    assert (folder / "b").exists()
    assert (folder / "b/d.json").read_text() == "é"
    assert not (folder / "b/c").exists()
    assert (folder / "b/c.json").parent == folder / "b"
    above = PurePosixPath("s3:/bucket/some/folder/b/c.json").parents
    found = (folder / "b/c.json").parents
    assert [str(place).replace("//", "/") for place in found] == [
        str(place) for place in above if len(place.parts) > 1
    ]
    assert (folder / "b").is_dir()
    assert not (folder / "b/c.json").is_dir()
    (folder / "a.json").rename(folder / "e.json")
    store.remove(folder / "b")
    store.remove(folder / "nothing")
    assert names(server, "bucket/some/folder/") == {"e.json"}
    with pytest.raises(FileNotFoundError, match="a.json does not exist"):
        (folder / "a.json").read_text()
    with pytest.raises(store.StoreError, match=r"s3://bucket/some/folder/a\.json"):
        store.read_json(folder / "a.json")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("gs://bucket/a/b/", "gs://bucket/a/b"),
        ("s3:/bucket/a", "s3://bucket/a"),  # As `pathlib` has it.
        ("runs/s3", "runs/s3"),
        ("/data/gs:/x", "/data/gs:/x"),
    ],
)
def test_an_address_is_told_from_a_folder(typed, found):
    assert str(store.place(typed)) == found


def test_a_bucket_of_google_is_opened_by_its_own_driver(server):
    """Whatever is set for the other stores."""
    spec = store.place("gs://bucket/a/b").spec()
    assert spec == {"driver": "gcs", "bucket": "bucket", "path": "a/b/"}


def test_a_bucket_without_a_folder_is_refused():
    with pytest.raises(ValueError, match="must have a folder of its own"):
        store.place("s3://bucket")


def test_a_name_that_no_bucket_has_is_said_to_be_one():
    with pytest.raises(
        store.StoreError, match=r'/runs: Invalid S3 bucket name: "b"\.$'
    ):
        store.open("s3://b/runs")


def sample(kept, mesh=None):
    density = lambda x, _: -jnp.sum(x**2) / 2
    algorithm = hmc.build(density, step_size=0.3, num_steps=3, num_warmup=2)
    return run.sample(
        jax.random.key(1), algorithm, jnp.ones((4, 3)), None,
        num_draws=6, store=kept, mesh=mesh, show_progress=False,
    )  # fmt: skip


def test_a_run_that_is_stopped_all_the_time_ends_as_if_it_had_not_been(
    server, monkeypatch
):
    """Four chains on four devices; each device's part of the state is an object."""
    whole = sample(None)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    monkeypatch.setattr("symjax.run.loop.SAVE_SECONDS", -1.0)
    monkeypatch.setattr("symjax.run.signals.Signal", StopAfterChunks)
    kept, num_stops = run.NewRun("s3://bucket/runs/stopped"), 0
    while isinstance(kept, run.NewRun) or not kept.committed.finished:
        try:
            sample(kept)
        except run.Stopped:
            num_stops += 1
        kept = store.open("s3://bucket/runs/stopped")
    assert num_stops >= 2
    np.testing.assert_array_equal(kept.read(), whole.draws)
    np.testing.assert_array_equal(kept.warmup(), whole.warmup)
    np.testing.assert_array_equal(kept.info()["log_density"], whole.info.log_density)
    found = names(server, "bucket/runs/stopped/")
    assert "creating.json" not in found
    assert len({name.split("/")[1] for name in found if "state/" in name}) == 3
    with pytest.raises(store.StoreError, match="already holds a run: resume it"):
        sample(run.NewRun("s3://bucket/runs/stopped"))


def work_in_bucket(path, variables, *killed):
    os.environ.update(variables)
    if killed:
        kill_at(*killed)
    work(path)


PLACES = {
    "before the run is one": ("symjax.store.buckets.Bucket.rename", 1),
    "between draws and Info": ("symjax.store.arrays.Group.write", 4),
    "in a state": ("symjax.store.bucket_states.write_json", 3),
    "before the record": ("symjax.store.commits.write_json", 4),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_killed_at_a_place(server, uninterrupted, place):  # noqa: F811
    path = store.place(f"s3://bucket/killed/{place[0]}")
    process = start(work_in_bucket, path, server.variables, *place)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    work(path, 12)
    assert check(path, uninterrupted) >= 12


def test_killed_at_random_moments(server, uninterrupted, monkeypatch):  # noqa: F811
    """In a slow store, so that objects are on their way at most moments."""
    monkeypatch.setattr(server, "delay", 0.003)
    path, reached = store.place("s3://bucket/killed/random"), 0
    rng = np.random.default_rng(1)
    for _ in range(3):
        process = start(work_in_bucket, path, server.variables)
        end = time.monotonic() + 100
        while _committed(server, path) <= reached and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.join()
        before, reached = reached, check(path, uninterrupted)
        assert before < reached
    work(path, reached + 5)
    assert check(path, uninterrupted) >= reached + 5


def _committed(server, path):
    content = server.objects.get(f"{'/'.join(path.parts)}/commit.json")
    return 0 if content is None else json.loads(content)["iteration"]


@pytest.fixture(scope="module")
def finished(server):
    sample(run.NewRun("s3://bucket/runs/finished"))
    return store.open("s3://bucket/runs/finished")


@pytest.mark.parametrize("how", ["lost", "changed"])
def test_an_object_that_is_lost_or_changed_is_told(server, finished, monkeypatch, how):
    key = "bucket/runs/finished/draws/value/c/1/0/0"
    content = server.objects[key]
    if how == "lost":
        monkeypatch.delitem(server.objects, key)
    else:
        other = bytes([content[10] ^ 1])
        monkeypatch.setitem(server.objects, key, content[:10] + other + content[11:])
    with pytest.raises(store.StoreError, match="Put the file back from a copy"):
        finished.read()


def test_a_state_that_is_not_whole_is_told(server, finished, monkeypatch):
    step = finished.committed.iteration
    key = f"bucket/runs/finished/state/{step}/leaves.json"
    monkeypatch.delitem(server.objects, key)
    with pytest.raises(store.StoreError, match="no whole sampler state in s3://"):
        finished.restore({"a": jnp.zeros(3)})


def test_a_state_is_listed_when_all_of_it_is_there(server, monkeypatch):
    """Its arrays are slow, the list of them is not."""
    put, done = server.put, []

    def slow(key, content):
        time.sleep(0.3 * ("/c/" in key))
        put(key, content)
        done.append(key.partition("/state/")[2])

    kept = store.create(
        "s3://bucket/runs/slow", config={}, params=jnp.zeros(3),
        info={"a": jnp.ones(())}, num_chains=2, num_draws=4, num_iterations=4,
    )  # fmt: skip
    monkeypatch.setattr(server, "put", slow)
    state = {"w": jnp.arange(6.0).reshape(2, 3)}
    kept.commit(state, iteration=0, num_draws=0, wait=False)
    assert not kept.is_saved
    assert kept.committed == store.Commit()
    kept.settle()
    assert [name for name in done if name] == [
        "0/0/zarr.json",
        "0/0/c/0/0",
        "0/leaves.json",
    ]
    np.testing.assert_array_equal(kept.restore(state)["w"], state["w"])


@pytest.fixture
def begun(server, request):
    return store.create(
        f"s3://bucket/runs/{request.node.name}", config={}, params=jnp.zeros(3),
        info={"a": jnp.ones(())}, num_chains=2, num_draws=4, num_iterations=4,
    )  # fmt: skip


@pytest.mark.parametrize("leaf", ["b", "zeros"])
@pytest.mark.parametrize("how", ["lost", "changed"])
def test_a_part_of_a_state_that_is_lost_or_changed_is_told(
    server, begun, monkeypatch, leaf, how
):
    state = {"b": jnp.arange(6.0).reshape(2, 3), "zeros": jnp.zeros((2, 3))}
    begun.commit(state, iteration=0, num_draws=0)
    found = begun.restore(state)
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
    number = list(state).index(leaf)
    key = f"{'/'.join(begun.path.parts)}/state/0/{number}/c/0/0"
    content = server.objects[key]
    if how == "lost":
        monkeypatch.delitem(server.objects, key)
    else:
        other = bytes([content[5] ^ 1])
        monkeypatch.setitem(server.objects, key, content[:5] + other + content[6:])
    with pytest.raises(store.StoreError, match="Put the file back from a copy"):
        begun.restore(state)


def test_a_state_that_cannot_be_written_is_told(begun, monkeypatch):
    """By a store that says no, to a part of it."""
    put = object_store._Handler.do_PUT

    def refuse(handler):
        if "/state/" not in handler.path or "/c/" not in handler.path:
            return put(handler)
        handler.rfile.read(int(handler.headers["Content-Length"]))
        return handler._answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    monkeypatch.setattr(object_store._Handler, "do_PUT", refuse)
    with pytest.raises(store.StoreError, match="save the sampler state in s3://"):
        begun.commit({"w": jnp.ones((2, 3))}, iteration=0, num_draws=0)
    assert begun.committed == store.Commit()


class Parts(NamedTuple):
    """In another order than that of the alphabet."""

    shared: Any
    chains: Any


def test_each_device_writes_its_part_of_a_state_and_what_all_hold_is_written_once(
    server, begun, monkeypatch
):
    mesh = jax.make_mesh((4, 2), ("chain", "data"))
    shard = lambda *axes: jax.NamedSharding(mesh, jax.P(*axes))
    state = Parts(
        jax.device_put(jnp.arange(24.0).reshape(8, 3) - 30, shard()),
        jax.device_put(jnp.arange(24.0).reshape(8, 3), shard("chain")),
    )
    put, written = server.put, []

    def note(key, content):
        written.append(key.partition("/state/0/")[2])
        put(key, content)

    monkeypatch.setattr(server, "put", note)
    begun.commit(state, iteration=0, num_draws=0)
    parts = ["0/c/0/0", *(f"1/c/{chain}/0" for chain in range(4))]
    assert sorted(name for name in written if "/c/" in name) == parts
    found = begun.restore(state)
    for read, array in zip(found, state, strict=True):
        np.testing.assert_array_equal(read, array)
        assert read.sharding == array.sharding


@pytest.mark.parametrize(("committed", "left"), [(10, "3 10 12"), (None, "12")])
def test_two_states_before_the_new_one_are_kept(server, committed, left):
    """The newest by their number, none that is later than the committed one."""
    folder = store.place(f"s3://bucket/states/{committed}")
    for step in (1, 2, 3, 10, 11, 20):
        (folder / f"{step}/leaves.json").write_text("{}")
    saving = bucket_states.save(folder, 12, {"w": jnp.ones(3)}, committed)
    saving.wait()
    assert sorted(int(place.name) for place in folder.iterdir()) == [
        int(step) for step in left.split()
    ]


def test_chains_that_go_on_do_not_change_the_state_that_is_on_its_way(
    server, begun, monkeypatch
):
    monkeypatch.setattr(server, "delay", 0.2)
    go_on = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = {"w": go_on(jnp.zeros((2, 1000)))}
    begun.commit(state, iteration=0, num_draws=0, wait=False)
    after = state["w"]
    for _ in range(5):
        after = go_on(after)
    begun.settle()
    assert after[0, 0] == 6
    found = begun.restore({"w": after})["w"]
    np.testing.assert_array_equal(found, np.ones((2, 1000)))


def test_a_state_of_another_algorithm_is_refused(finished):
    with pytest.raises(store.StoreError, match="configuration it began with"):
        finished.restore({"a": jnp.zeros(3)})


def test_a_bucket_that_holds_no_run_says_so(server):
    with pytest.raises(store.StoreError, match=r"s3://bucket/no is not a run"):
        store.open("s3://bucket/no")


def test_commands_write_to_a_bucket_and_others_refuse_it(server, capsys):
    path = "s3://bucket/runs/wine"
    symjax(
        "sample", "--data", "wine", "--widths", 2, "--num-chains", 1, "--start", "init",
        "--hmc.num-warmup", 4, "--hmc.num-steps", 2, "--num-draws", 3, "--out", path,
    )  # fmt: skip
    assert f"Finished: {path}" in capsys.readouterr().out
    assert {"timing.json", "commit.json"} <= names(server, "bucket/runs/wine/")
    symjax("sample", "--resume", path)
    assert f"{path} is finished: 3 draws." in capsys.readouterr().out
    symjax("evaluate", path, code=2)
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert f"aws s3 cp --recursive {path} FOLDER" in said
    with contextlib.suppress(FileNotFoundError):
        assert not os.listdir("s3:")


def test_a_launcher_resumes_a_run_that_is_in_a_bucket(server, tmp_path):
    # A run of which the first host has begun, as its program finds it.
    server.objects["bucket/runs/begun/config.json"] = b"{}"
    words = ("sample", "--data", "wine", "--out")
    note = "import sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n')"

    def plan(chosen):
        log = str(tmp_path / "log")
        code = f"{note}; sys.exit(9)"
        return (launching.Process((sys.executable, "-c", code, log, *chosen), {}),)

    for path in ("s3://bucket/runs/begun", "s3://bucket/runs/not-begun"):
        assert launching.rehearse((*words, path), plan, max_restarts=1) == 9
    assert (tmp_path / "log").read_text().splitlines() == [
        "sample --data wine --out s3://bucket/runs/begun",
        "sample --resume s3://bucket/runs/begun",
        *["sample --data wine --out s3://bucket/runs/not-begun"] * 2,
    ]


def test_a_bucket_that_cannot_be_looked_into_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ValueError, match="s3://bucket/a could not be looked into"):
        launching.has_begun("s3://bucket/a")


def test_last_words_do_not_look_into_a_bucket():
    """They are said by a small process without tensorstore."""
    said = last_words.describe("s3://bucket/runs/a", "symjax sample --resume it")
    assert said.startswith("What is saved is told by s3://bucket/runs/a/commit.json.")
    assert said.endswith("Continue with: symjax sample --resume it")
