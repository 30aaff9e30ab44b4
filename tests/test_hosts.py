"""Several processes as one program: how they meet, agree, compute and end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from hosts_program import NUM_CHAINS, execute
from together import collect, free_address, processes, run_all

from symjax import hosts, mesh, store
from symjax.hosts import last_words, meeting


VARIABLES = {
    hosts.ADDRESS: "ten:8476",
    hosts.NUMBER: "4",
    hosts.IDENTITY: "3",
}


def test_a_process_knows_its_place():
    assert hosts.find("off", VARIABLES) is None
    assert hosts.find("auto", {}) is None
    # Of JAX alone, which other programs read too.
    assert hosts.find("auto", {hosts.ADDRESS: "ten:8476"}) is None
    assert hosts.find("auto", VARIABLES) == ("ten:8476", 4, 3, False)
    assert hosts.find("[fe80::1]:80,2,0", VARIABLES) == ("[fe80::1]:80", 2, 0, False)
    # A shell of Slurm, and one of its tasks among none.
    assert hosts.find("auto", {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"}) is None


@pytest.mark.parametrize("name", [hosts.ADDRESS, hosts.IDENTITY, hosts.NUMBER])
def test_a_variable_that_is_missing_is_named(name):
    rest = {key: value for key, value in VARIABLES.items() if key != name}
    with pytest.raises(ValueError, match=f"but lacks {name}"):
        hosts.find("auto", rest)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("on", "must be auto, off or ADDRESS,N,ID"),
        ("ten,4,0", "as host:port, got 'ten'"),
        ("ten:1,4,-1", "the one this is, from 0, got '4' and '-1'"),
        ("ten:1,4,4", "a process from 0 to 3 of 4, got 4"),
    ],
)
def test_a_wrong_place_is_refused(word, message):
    with pytest.raises(ValueError, match=message):
        hosts.find(word, {})


def test_slurm_is_detected(monkeypatch):
    """As JAX reads its variables; the port is made of the job's number."""
    variables = {
        "SLURM_JOB_ID": "4097", "SLURM_STEP_NODELIST": "node[07-08]",
        "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hosts.find("auto") == ("node07:61441", 2, 1, True)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert hosts.find("auto") is None


def meet(places, seconds=20.0):
    """What each of several processes gets from their meeting, here in threads."""
    found = [None] * len(places)

    def one(i):
        try:
            found[i] = meeting.meet(places[i], seconds)
        except (RuntimeError, ValueError) as error:
            found[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 20)
    return found


def test_all_come():
    address = free_address()
    names = meet([hosts.Place(address, 3, i) for i in (2, 0, 1)])
    assert names == [[os.uname().nodename] * 3] * 3


def test_who_does_not_come_is_named_to_all(monkeypatch):
    address = free_address()
    found = meet([hosts.Place(address, 4, i) for i in (0, 2)], seconds=1.5)
    for error in found:
        assert isinstance(error, meeting.NotAllCame)
        assert "Within 2 s host 1, 3 of 4 did not come; here are 0 (" in str(error)
    monkeypatch.setattr(meeting, "GRACE", 0.1)
    (error,) = meet([hosts.Place(address, 2, 1)], seconds=0.5)
    assert f"host 1 could not reach host 0 at {address} (" in str(error)


def test_hosts_that_were_started_differently_are_refused():
    address = free_address()
    for error in meet([hosts.Place(address, 3, i) for i in (0, 1, 1)]):
        assert "Two processes were started as host 1" in str(error)
    address = free_address()
    for error in meet([hosts.Place(address, 3, 0), hosts.Place(address, 2, 1)]):
        assert "started as one of 2, host 0" in str(error)


def test_last_words_are_said_if_the_end_was_not(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-I", "-S", last_words.__file__, "Host 1 (ten)"]
    for fact, said in (({"ended": "done"}, False), ({"log": str(log)}, True)):
        facts = json.dumps({"run": str(tmp_path)}) + "\n" + json.dumps(fact)
        made = subprocess.run(command, input=facts, capture_output=True, text=True)
        assert made.returncode == 0
        assert ("Host 1 (ten) ended without a word" in made.stderr) == said
    assert f"Nothing is saved in {tmp_path}" in log.read_text()


def test_everything_is_the_identity_on_one_process():
    assert (hosts.index(), hosts.count(), hosts.is_first()) == (0, 1, True)
    assert hosts.share({"a": 1}) == {"a": 1}
    np.testing.assert_array_equal(hosts.vote(3, True), [[3, 1]])
    hosts.barrier("here")
    hosts.require_equal({"a": 1})
    assert not hosts.is_preempted()


def assert_same_run(path, name, shape, tolerance=0.0, **changes):
    """What several processes wrote is what this one makes on as many devices."""
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:4], mesh.parse_shape(shape))
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
    """Bit for bit, where no sum over the examples crosses the processes."""
    apart = ("hmc", "nuts", "sghmc", "ensemble", "ghmc")
    words = [f"{name}:chain=4,data=1" for name in apart]
    words += ["hmc:chain=2,data=2", "sghmc:chain=1,data=4"]
    codes, outputs = run_all([["hosts_program.py", tmp_path, *words]] * 2, 280)
    assert codes == [0, 0], outputs
    assert outputs[0].endswith("made on 2 4\n")
    for word in words:
        name, shape = word.split(":")
        tolerance = 1e-4 if shape.startswith("chain=1") else 0.0
        assert_same_run(tmp_path / word, name, shape, tolerance)
        assert len(list((tmp_path / word / "logs").iterdir())) == 2


COMMAND = ["-c", "from symjax.cli import main; main()"]
WINE = [
    "sample", "--data", "wine", "--widths", "4", "--num-chains", "4", "--start", "init",
    "--hmc.trajectory-length", "0.1", "--hmc.num-warmup", "10",
]  # fmt: skip
LONG = [*COMMAND, *WINE, "--num-draws", "100000"]


def wait_for_commit(started, path, after=20, seconds=150):
    """Wait until a commit past iteration `after` is on the disk."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert all(process.poll() is None for process in started)
        try:
            done = store.open(path).committed
        except store.StoreError:
            done = store.Commit()
        if done.iteration > after:
            return done
        time.sleep(0.05)
    raise AssertionError("no commit came")


HEARTBEAT = 6


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
    assert codes[1 - lost] not in (0, 1, 2, 42)
    done = store.open(path).committed
    assert not done.finished
    saved = f"Saved in {path}: {done.iteration} iterations, {done.num_draws} draws"
    log = (path / "logs" / f"host-{1 - lost}.log").read_text()
    # JAX's runtime sometimes ends host 0 before it has found out who was lost.
    named = f"Host {lost} (" in log or "because another host was lost" in log
    assert named if lost else "because host 0 was lost" in log
    assert saved in log.splitlines()[-1]
    if lost:
        codes, outputs = run_all([command] * 2)
        assert codes == [0, 0], outputs
        assert_same_run(path, "hmc", "chain=4,data=1", num_draws=300)
        return
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:4], (4, 1))
    with pytest.warns(UserWarning, match="began with devices 4 x cpu, this is 8"):
        execute("hmc", made, store.open(path), num_draws=300)
    assert_same_run(path, "hmc", "chain=4,data=1", num_draws=300)


def test_a_host_that_is_asked_to_stop_saves_with_all_others(tmp_path):
    """SIGTERM to one: exit code 42, what to type, and that continues on one process."""
    path = tmp_path / "run"
    with processes([[*LONG, "--out", path]] * 2) as started:
        wait_for_commit(started, path)
        started[1].send_signal(signal.SIGTERM)
        codes, outputs = collect(started, 60)
    assert codes == [42, 42], outputs
    done = store.open(path).committed
    assert done.has_state
    assert f"Stopped at iteration {done.iteration} of 100010" in outputs[0]
    assert f"Continue with: symjax sample --resume {path}" in outputs[0]
    assert "Error" not in outputs[1]  # It is in the log.
    log = (path / "logs" / "host-1.log").read_text()
    assert f"Continue with: symjax sample --resume {path}" in log
    # On one process, for as long as it takes to see that it goes on.
    with processes([[*COMMAND, "sample", "--resume", path]]) as started:
        wait_for_commit(started, path, after=done.iteration)
        started[0].send_signal(signal.SIGTERM)
        codes, outputs = collect(started, 60)
    assert codes == [42], outputs


FAULT = (
    "import symjax.progress as p\n"
    "def bar(*a, **k): raise KeyError('no such thing')\n"
    "p.bar = bar\n"
)


def test_an_exception_on_one_host_ends_all(tmp_path):
    """At once there, within seconds elsewhere, with its words and its exit code."""
    path = tmp_path / "run"
    broken = ["-c", FAULT + LONG[1], *LONG[2:]]
    codes, outputs = run_all([[*LONG, "--out", path], [*broken, "--out", path]], 100)
    assert codes == [1, 1], outputs
    assert "stopped: KeyError: 'no such thing'. Saved in" in outputs[0]
    log = (path / "logs" / "host-1.log").read_text()
    assert "Traceback" in log


def test_hosts_that_differ_are_refused(tmp_path):
    path = tmp_path / "run"
    commands = [[*LONG, "--seed", seed, "--out", path] for seed in (0, 1)]
    codes, outputs = run_all(commands, 100)
    assert codes == [2, 2], outputs
    for output in outputs:
        assert "--seed is 1 on host 1 (" in output
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


OTHER_VERSION = (
    "import importlib.metadata as m\n"
    "real = m.version\n"
    "m.version = lambda name: '0.0.1' if name == 'optax' else real(name)\n"
)


def test_hosts_with_other_versions_are_refused(tmp_path):
    path = tmp_path / "run"
    other = ["-c", OTHER_VERSION + LONG[1], *LONG[2:]]
    codes, outputs = run_all([[*LONG, "--out", path], [*other, "--out", path]], 100)
    assert codes == [2, 2], outputs
    for output in outputs:
        assert "optax is 0.0.1 on host 1 (" in output
    assert not path.exists()
