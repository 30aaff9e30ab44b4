"""Several processes as one program: how they compute, agree, and end."""

import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import symjax as symjax_command
from hosts_program import NUM_CHAINS, execute
from object_store import serve
from together import (
    COMMAND,
    HEARTBEAT,
    HERE,
    LONG,
    WINE,
    collect,
    processes,
    run_all,
    wait_for_commit,
)

import symjax
from symjax import mesh, store


def assert_same_run(path, name, shape, tolerance=0.0, devices=4, **changes):
    """What several processes wrote is what this one makes on as many devices."""
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:devices], mesh.parse_shape(shape))
    expected = execute(name, made, None, **changes)
    kept = store.open(path)
    assert kept.committed.finished
    like = jax.tree.map(lambda leaf: leaf[0, 0], expected.draws)
    pairs = [(kept.read(like=like), expected.draws)]
    if expected.warmup is not None:
        pairs.append((kept.warmup(like=like), expected.warmup))
    pairs.append((kept.info(), expected.info._asdict()))
    for found, wanted in pairs:
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_two_processes_make_the_draws_of_one(tmp_path):
    """Bit for bit, where no sum over the examples crosses the processes.

    The last one is in a bucket, where each process writes what its own devices hold.
    """
    apart = ("hmc", "nuts", "ensemble", "ghmc")
    words = [f"{name}:chain=4,data=1" for name in apart]
    words += ["sghmc:chain=1,data=4"]
    alone = "sghmc:chain=4,data=1:1"
    bucket = "s3://bucket/runs/hmc:chain=2,data=2"
    command = [HERE / "hosts_program.py", tmp_path, *words, alone, bucket]
    with serve() as (server, variables), pytest.MonkeyPatch.context() as patch:
        codes, outputs = run_all([command] * 2, 280, cwd=tmp_path, **variables)
        assert codes == [0, 0], outputs
        for name, value in variables.items():
            patch.setenv(name, value)
        assert_same_run(bucket, "hmc", "chain=2,data=2")
        # The state of each group of chains is an object, and their list comes last.
        state = f"/state/{store.open(bucket).committed.iteration}/"
        parts = [key.partition(state)[2] for key in server.objects if state in key]
        assert {part[:5] for part in parts} > {"0/c/0", "0/c/1"}, parts
        assert parts[-1] == "leaves.json"
    logs = tmp_path / "hmc:chain=2,data=2.logs"
    assert len(list(logs.iterdir())) == 2
    assert outputs[0].endswith("made on 2 4\n")
    for word in words:
        name, shape = word.split(":")
        tolerance = 1e-4 if shape.startswith("chain=1") else 0.0
        assert_same_run(tmp_path / word, name, shape, tolerance)
        assert len(list((tmp_path / word / "logs").iterdir())) == 2
    # One chain at a time makes on four devices what it makes on one.
    one = {"shape": "chain=1,data=1", "devices": 1, "chains_at_once": 1}
    assert_same_run(tmp_path / alone, "sghmc", **one)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_that_is_killed_is_named_and_its_run_goes_on(tmp_path, lost):
    """On two processes, or on one: no draw is lost, wrong or twice."""
    word, path = "hmc:chain=4,data=1", tmp_path / "hmc:chain=4,data=1"
    command = ["hosts_program.py", tmp_path, word, "num_draws=300"]
    with processes([command] * 2) as started:
        wait_for_commit(started, path)
        started[lost].kill()
        begin = time.monotonic()
        codes, outputs = collect(started, 60)
        assert time.monotonic() - begin < HEARTBEAT + 5
    assert codes[lost] == -signal.SIGKILL
    assert codes[0] == 75 if lost else codes[1] not in (0, 1, 2, 42)
    done = store.open(path).committed
    assert not done.finished
    saved = f"Saved in {path}: {done.iteration} iterations, {done.num_draws} draws"
    log = (path / "logs" / f"host-{1 - lost}.log").read_text()
    last = log.splitlines()[-1]
    # JAX ends the others at once when host 0 is lost, if they have not seen it before.
    named = f"Host {lost} (" in last or (not lost and "because host 0 was lost" in last)
    assert named, log
    assert saved in last
    if lost:
        codes, outputs = run_all([command] * 2)
        assert codes == [0, 0], outputs
        assert_same_run(path, "hmc", "chain=4,data=1", num_draws=300)
        return
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:4], (4, 1))
    with pytest.warns(UserWarning, match="began with devices 4 x cpu, this is 8"):
        execute("hmc", made, store.open(path), num_draws=300)
    assert_same_run(path, "hmc", "chain=4,data=1", num_draws=300)


def test_a_host_that_is_asked_to_stop_saves_with_all_others(tmp_path, monkeypatch):
    """SIGTERM to one: exit code 42, what to type, and that continues on one process."""
    path = tmp_path / "a run"
    often = "import symjax.run.loop as loop\nloop.SAVE_SECONDS = 1.0\n"
    command = ["-c", often + LONG[1], *LONG[2:], "--out", path]
    with processes([command] * 2) as started:
        wait_for_commit(started, path)
        started[1].send_signal(signal.SIGTERM)
        codes, outputs = collect(started, 60)
    assert codes == [42, 42], outputs
    done = store.open(path).committed
    assert done.has_state
    assert f"Stopped at iteration {done.iteration} of 100010" in outputs[0]
    assert f"Continue with: symjax sample --resume '{path}'" in outputs[0]
    assert "Error" not in outputs[1]  # It is in the log.
    log = (path / "logs" / "host-1.log").read_text()
    assert f"Continue with: symjax sample --resume '{path}'" in log
    # On one process, this one, until its time is over.
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)
    with pytest.warns(UserWarning, match="began with devices 4 x cpu, this is 8"):
        symjax_command("sample", "--resume", path, "--max-minutes", 1e-9)
    kept = store.open(path).committed
    assert kept.finished
    assert done.iteration < kept.iteration < 100010


STARTING = """
import os, sys, time, jax
from symjax import hosts
def fail(*a, **k):
    time.sleep(1)
    os._exit(9)
if hosts.find("auto").identity == int(sys.argv[1]):
    jax.distributed.initialize = fail
hosts.start()
"""


@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_that_is_lost_while_jax_starts_is_named(lost):
    """JAX would wait for a minute, and end all without a name."""
    with processes([["-c", STARTING, lost]] * 3) as started:
        started[lost].wait(60)
        begin = time.monotonic()
        codes, outputs = collect(started, 30)
        assert time.monotonic() - begin < 5
    assert codes == [9 if host == lost else 75 for host in range(3)], outputs
    for host in {0, 1, 2} - {lost}:
        assert f"Host {lost} (" in outputs[host]
        assert "was lost while JAX's runtime started" in outputs[host]


FAULT = (
    "import symjax.progress as p\n"
    "def bar(*a, **k): raise KeyError('no such thing')\n"
    "p.bar = bar\n"
    "import pathlib\n"
    "real = pathlib.Path.open\n"
    "def opened(f, *a, **k):\n"
    "    if f.suffix == '.log': raise OSError(28, 'No space left on device')\n"
    "    return real(f, *a, **k)\n"
    "pathlib.Path.open = opened\n"
)


def test_an_exception_on_one_host_ends_all(tmp_path):
    """At once there, within seconds elsewhere, with its words and its exit code.

    Though its disk is full, so that it cannot add to its log.
    """
    path = tmp_path / "run"
    broken = ["-c", FAULT + LONG[1], *LONG[2:]]
    codes, outputs = run_all([[*LONG, "--out", path], [*broken, "--out", path]], 100)
    assert codes == [1, 1], outputs
    assert "stopped: KeyError: 'no such thing'. Saved in" in outputs[0]
    log = (path / "logs" / "host-1.log").read_text()
    assert "Traceback" in log


FULL = """
import errno, os
import orbax.checkpoint._src.checkpointers.async_checkpointer as saving
def full(*a, **k): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
saving._background_wait_for_commit_futures = full
"""


def test_a_save_that_fails_on_one_host_ends_all(tmp_path):
    """Orbax would have all of them wait for ten minutes."""
    path = tmp_path / "run"
    end = [*WINE, "--num-draws", 5, "--out", path]
    commands = [["-c", before + COMMAND[1], *end] for before in ("", FULL)]
    codes, outputs = run_all(commands, 100)
    assert codes == [1, 1], outputs
    assert "Host 1 (" in outputs[0]
    assert "state: No space left on device. Free some space" in outputs[0]
    assert not store.open(path).committed.has_state


OTHER_VERSION = (
    "import importlib.metadata as m, sys\n"
    "real = m.version\n"
    "m.version = lambda name: '0.0.1' if name == 'scipy' else real(name)\n"
)


def test_hosts_that_differ_are_refused(tmp_path):
    """In a seed, a version, and an edit that git would not tell from another one.

    And in what they are to do, or how chains are shared out: they would wait for ever.
    """
    path, edited = tmp_path / "run", tmp_path / "edited"
    shutil.copytree(Path(symjax.__file__).parent, edited / "symjax")
    with (edited / "symjax" / "energies.py").open("a") as file:
        file.write("# Only here.\n")
    other = f"{OTHER_VERSION}sys.path.insert(0, {str(edited)!r})\n{LONG[1]}"
    end = [*LONG[2:], "--out", path, "--seed"]
    another = ["-c", other, *end, 1, "--dry-run", "--mesh", "chain=2,data=2"]
    codes, outputs = run_all([[*LONG[:2], *end, 0], another], 100)
    assert codes == [2, 2], outputs
    for output in outputs:
        for said in ("--seed is 1", "scipy is 0.0.1", "--dry-run is true"):
            assert f"{said} on host 1 (" in output
        assert '--mesh is "chain=2,data=2" on host 1 (' in output
        assert "symjax/energies.py is " in output
        assert output.count(" on host 1 (") <= 6, output
    assert not path.exists()


def test_hosts_with_other_data_are_refused(tmp_path):
    """The same name of a file, with one number changed on host 1."""
    draw = np.random.default_rng(0)
    arrays = {f"x_{part}": draw.normal(size=(12, 3)) for part in ("train", "test")}
    arrays |= {f"y_{part}": np.arange(12) % 2 for part in ("train", "test")}
    path, files = tmp_path / "run", [tmp_path / "one.npz", tmp_path / "other.npz"]
    for file in files:
        np.savez(file, **arrays)
        arrays["x_train"][3, 1] += 1
    other = (
        f"import numpy as n\nr = n.load\nn.load = lambda f, **k: r({str(files[1])!r})\n"
    )
    end = [*LONG[2:], "--data", files[0], "--out", path]
    commands = [["-c", before + LONG[1], *end] for before in ("", other)]
    codes, outputs = run_all(commands, 100)
    assert codes == [2, 2], outputs
    for output in outputs:
        assert "the data's fingerprint is " in output
        assert " on host 1 (" in output
    assert not path.exists()
