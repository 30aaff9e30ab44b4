"""Many processes, slow ones, and kills at any moment. Minutes: pytest -m slow."""

import random
import signal
import time

import jax
import numpy as np
import pytest
from hosts_program import NUM_CHAINS, execute
from test_hosts_processes import assert_same_run
from together import LONG, collect, processes, run_all

from symjax import mesh, store


pytestmark = pytest.mark.slow


def test_four_processes_of_which_one_is_slow_make_the_draws_of_one(tmp_path):
    """The last one sleeps for longer than a heartbeat, and is not taken for dead."""
    words = [f"{name}:chain=4,data=2" for name in ("hmc", "nuts", "sghmc", "ensemble")]
    command = ["hosts_program.py", tmp_path, *words, "sleep=9"]
    codes, outputs = run_all([command] * 4, 400)
    assert codes == [0] * 4, outputs
    assert outputs[0].endswith("made on 4 8\n")
    for word in words:
        name, shape = word.split(":")
        assert_same_run(tmp_path / word, name, shape, devices=8)
        assert len(list((tmp_path / word / "logs").iterdir())) == 4


@pytest.mark.parametrize("heartbeat", [6, 30])
@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.5])
def test_a_host_that_is_killed_before_a_commit_is_named(tmp_path, heartbeat, seconds):
    """At the start of the run, and while it compiles; 30 s is what users have."""
    path = tmp_path / "run"
    log = path / "logs" / "host-1.log"
    beats = {"SYMJAX_HEARTBEAT_SECONDS": str(heartbeat)}
    with processes([[*LONG, "--out", path]] * 2, **beats) as started:
        wait_for(log.exists)
        time.sleep(seconds)
        started[1].kill()
        begin = time.monotonic()
        codes, outputs = collect(started, 100)
        assert time.monotonic() - begin < heartbeat + 5
    assert codes == [75, -signal.SIGKILL], outputs
    last = (path / "logs" / "host-0.log").read_text().splitlines()[-1]
    assert "Host 1 (" in last
    assert f"was lost: it has not been heard of for {heartbeat} s" in last


def wait_for(condition, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


WORD = "hmc:chain=4,data=1"
NUM_DRAWS = 800
PLACES = [(2, 2), (4, 1), (1, 4)]
"""Numbers of processes, and of devices of each: always one for a chain."""


def test_kills_at_any_moment_cost_no_draw(tmp_path):
    """After the start, in a save, after a commit; it goes on on other processes."""
    draw, path = random.Random(0), tmp_path / WORD
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:4], (4, 1))
    expected = execute("hmc", made, None, num_draws=NUM_DRAWS)
    command = ["hosts_program.py", tmp_path, WORD, f"num_draws={NUM_DRAWS}"]
    before, kills = store.Commit(), []
    for moment in ("start", "save", "commit", "commit", "save", "start"):
        number, devices = PLACES[len(kills) % 3]
        with processes([command] * number, devices=devices) as started:
            lost = draw.randrange(number)
            ended_before = kill(started, lost, path, moment, draw.uniform(0, 2))
            codes, outputs = collect(started, 100)
        if ended_before:
            break
        assert codes[lost] == -signal.SIGKILL
        assert not {0, 1, 2, 42} & set(codes), outputs
        done = store.open(path).committed
        kills.append((number, lost, moment, done.iteration))
        assert done.num_draws >= before.num_draws, "what was saved stays"
        before = done
        assert_draws(path, expected, done.num_draws)
    print("kills: processes, which one, when, iteration saved:", kills)
    assert len(kills) > 3
    if not before.finished:
        codes, outputs = run_all([command] * 2, 300)
        assert codes == [0, 0], outputs
    assert store.open(path).committed.num_draws == NUM_DRAWS
    assert_draws(path, expected, NUM_DRAWS)


def kill(started, lost, path, moment, seconds):
    """Kill one of the processes at a moment; whether it had ended before."""
    log = path / "logs" / f"host-{lost}.log"
    logged = log.stat().st_size if log.exists() else 0
    began = store.open(path).committed if logged else store.Commit()
    left = set(path.glob("state/*tmp*"))
    has_come = {
        "start": lambda: True,
        # Orbax writes into a folder of a longer name, which it renames.
        "save": lambda: set(path.glob("state/*tmp*")) - left,
        "commit": lambda: store.open(path).committed.iteration > began.iteration,
    }

    def is_over():
        return started[lost].poll() is not None

    wait_for(lambda: is_over() or (log.exists() and log.stat().st_size > logged))
    wait_for(lambda: is_over() or has_come[moment]())
    if moment != "save":
        time.sleep(seconds)
    ended_before = is_over()
    started[lost].kill()
    return ended_before


def assert_draws(path, expected, number):
    """The draws that count are the first ones of a run that nobody killed."""
    if not number:
        return
    like = jax.tree.map(lambda leaf: leaf[0, 0], expected.draws)
    found = jax.tree.leaves(store.open(path).read(like=like))
    for a, b in zip(found, jax.tree.leaves(expected.draws), strict=True):
        np.testing.assert_array_equal(a, b[:, :number])
