"""How processes find each other, what they compare, and who watches whom."""

import contextlib
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from together import free_address

from symjax import hosts, store
from symjax.hosts import last_words, meeting, runtime, software, watch as watching
from symjax.hosts.watch import Watch


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
    assert hosts.find("auto", VARIABLES) == ("ten:8476", 4, 3, None)
    assert hosts.find("[fe80::1]:80,2,0", VARIABLES) == ("[fe80::1]:80", 2, 0, None)
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
        ("ten,4,0", "as host:port, with a port from 1 to 65535, got 'ten'"),
        ("ten:0,4,0", "a port from 1 to 65535, got 'ten:0'"),
        ("ten:65536,4,0", "a port from 1 to 65535, got 'ten:65536'"),
        ("ten:1,0,0", "at least 1 process, got 0"),
        ("ten:1,4,-1", "the one this is, from 0, got '4' and '-1'"),
        ("ten:1,4,4", "a process from 0 to 3 of 4, got 4"),
    ],
)
def test_a_wrong_place_is_refused(word, message):
    with pytest.raises(ValueError, match=message):
        hosts.find(word, {})


def meet(places, seconds=20.0):
    """What each of several processes gets from their meeting, here in threads.

    They leave it one after another, which is no loss.
    """
    found, lost = [None] * len(places), []

    def one(i):
        try:
            with meeting.meet(places[i], seconds, lost.append) as found[i]:
                time.sleep(0.1 * ((places[i].identity + 1) % 3))
        except (RuntimeError, ValueError) as error:
            found[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 20)
    assert not lost
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


def test_a_host_may_be_started_again_while_others_are_waited_for():
    """Its first process has ended; two that live are refused, see above."""
    address = free_address()
    said = json.dumps({"identity": 1, "number": 3, "name": "the first one"})
    all_names = [os.uname().nodename] * 3
    with ThreadPoolExecutor() as pool:
        first = pool.submit(meet, [hosts.Place(address, 3, 0)])
        connected = False
        while not connected:
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(address.split(":")) as connection,
            ):
                connection.sendall(said.encode() + b"\n")
                connected = True
        assert meet([hosts.Place(address, 3, i) for i in (1, 2)]) == [all_names] * 2
        assert first.result() == [all_names]


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


def test_last_words_name_who_was_silent():
    silent = {"Host 1 (ten)": time.monotonic() - 12, "Host 3 (two)": time.monotonic()}
    for facts, said in (
        ({}, r"because another host was lost\."),
        (
            {"silent": silent},
            r"not heard of Host 1 \(ten\) for \d\d s, Host 3 \(two\) for",
        ),
    ):
        made = subprocess.run(
            [sys.executable, "-I", "-S", last_words.__file__, "Host 0 (one)"],
            input=json.dumps(facts),
            capture_output=True,
            text=True,
        )
        assert re.search(said, made.stderr)


def test_what_only_one_host_has_is_a_difference(monkeypatch):
    """Of host 1, which finds what host 0 shared."""
    told = {}
    client = SimpleNamespace(
        blocking_key_value_get=lambda *_: json.dumps({"a": [1, 2], "b": 2, "d": ""}),
        key_value_set=told.__setitem__,
        wait_at_barrier=lambda *_: None,
        key_value_dir_get=lambda _: told.items(),
    )
    watch = SimpleNamespace(own=1, names=["one", "two"])
    session = SimpleNamespace(client=client, watch=watch)
    monkeypatch.setattr(runtime, "session", lambda: session)
    monkeypatch.setattr(runtime, "index", lambda: 1)
    with pytest.raises(ValueError, match="The hosts differ") as error:
        hosts.require_equal({"a": (1, 2), "c": 3, "d": 5})
    for said in (
        "b is missing on host 1 (two), and 2 on host 0 (one)",
        "c is 3 on host 1 (two), and missing on host 0 (one)",
        "d is 5 on host 1 (two), and empty on host 0 (one)",
    ):
        assert said in str(error.value)
    assert "a is" not in str(error.value)
    told.clear()
    hosts.require_equal({"a": (1, 2), "b": 2, "d": ""})


class Store:
    """The key-value store of JAX's runtime, as far as the watch uses it."""

    def __init__(self):
        self.entries = {}

    def key_value_set(self, key, value, allow_overwrite):
        assert allow_overwrite
        self.entries[key] = value

    def key_value_dir_get(self, folder):
        return [each for each in self.entries.items() if each[0].startswith(folder)]


def test_the_host_that_falls_silent_is_suspected_and_then_named(monkeypatch):
    """Of three, host 2 beats no more; all others are told of it and no other."""
    for name in ("INTERVAL", "GRACE"):
        monkeypatch.setattr(watching, name, 0.05)
    monkeypatch.setattr(watching, "ALARM", 1.0)
    shared, names, told = Store(), ["a", "b", "c"], {0: [], 1: [], 2: []}
    watches = []
    for own, said in told.items():
        end = lambda code, text, can_tell, own=own, said=said: (
            setattr(watches[own], "is_over", True),
            said.append((code, text)),
        )
        watches.append(Watch(shared, own, names, 2.0, end, said.append))
    for watch in watches:
        watch.begin()
    time.sleep(0.7)
    assert told == {0: [], 1: [], 2: []}
    watches[2].is_over = True
    end = time.monotonic() + 20
    while time.monotonic() < end and not (len(told[0]) > 1 and told[1]):
        time.sleep(0.05)
    suspected, (code, text) = told[0]
    assert list(suspected) == ["Host 2 (c)"]
    assert code == 75
    assert text.startswith("Host 2 (c) was lost: it has not been heard of for 2 s")
    assert told[1] == [(75, f"Host 2 (c) stopped: {text.partition(': ')[2]}")]


def test_jax_misses_a_host_only_after_all_know_which_it_is():
    """Its own time-out may be half over when a host is killed; it would name nobody."""
    for heartbeat in (1.0, 6.0, 30.0, 300.0):
        watch = Watch(None, 0, ["a", "b"], heartbeat, print, print)
        assert runtime._patience_of_jax(int(heartbeat)) / 2 > watch.patience + 2


def test_a_host_that_is_alone_is_not_lost_when_its_service_ends():
    ended = []
    watch = Watch(None, 0, ["a"], 2.0, lambda *words: ended.append(words), print)
    watch.begin()  # None has no service: to ask it is to lose it.
    time.sleep(0.3)
    assert not ended


class Enough(Exception):
    """Of what a start does."""


def test_jax_is_told_its_place_and_time_outs_and_leaves_sigterm_alone(monkeypatch):
    told, before = {}, signal.getsignal(signal.SIGTERM)

    def initialize(*place, **options):
        told.update(options, place=place)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # As JAX does, in its own way.

    def watch(*_):
        raise Enough

    mine = hosts.Place("ten:8476", 2, 1, (3,))
    monkeypatch.setattr(runtime, "find", lambda _: mine)
    company = contextlib.nullcontext(["one", "two"])
    monkeypatch.setattr(runtime, "meet", lambda *_: company)
    monkeypatch.setattr(runtime, "Watch", watch)
    monkeypatch.setattr(runtime.xla_bridge, "backends_are_initialized", lambda: False)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    try:
        with pytest.raises(Enough):
            hosts.start("auto", hosts.Timeouts(7, 11, 13))
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told["place"] == mine
    assert told["cluster_detection_method"] == "deactivate", "JAX would choose a GPU"
    assert told["heartbeat_timeout_seconds"] == runtime._patience_of_jax(7)
    assert told["shutdown_timeout_seconds"] == 11
    assert told["initialization_timeout"] == 13


def test_what_computes_is_described(tmp_path, monkeypatch):
    found = software.describe()
    for name in ("jax", "jaxlib", "scipy", "numpy", "optax", "orbax-checkpoint"):
        assert found[name] == importlib.metadata.version(name)
    assert found["the kind of device"] == jax.local_devices()[0].device_kind
    assert found["the number of devices"] == str(jax.local_device_count())
    assert "pytest" not in found
    for plugin in ("jax_cuda13_plugin", "libtpu", "nvidia_cudnn_cu13"):
        folder = tmp_path / f"{plugin}-1.2.3.dist-info"
        folder.mkdir()
        folder.joinpath("METADATA").write_text(f"Name: {plugin}\nVersion: 1.2.3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = f"{os.environ['XLA_FLAGS']} --xla_dump_to=here"
    monkeypatch.setenv("XLA_FLAGS", " ".join(reversed(flags.split())))
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_b=1 --xla_a=2")
    with jax.enable_x64(True):
        changed = dict(software.describe().items() - found.items())
    assert changed == {
        "LIBTPU_INIT_ARGS": "--xla_a=2 --xla_b=1",
        "jax-cuda13-plugin": "1.2.3",
        "jax_enable_x64": "True",
        "libtpu": "1.2.3",
        "nvidia-cudnn-cu13": "1.2.3",
    }


def chained(outer, inner):
    """An exception that was raised from another one."""
    outer.__cause__ = inner
    return outer


LOST = "UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:27882"


@pytest.mark.parametrize(
    ("error", "is_of_runtime"),
    [
        (ValueError(LOST), True),
        (chained(store.StoreError("Could not save."), ValueError(LOST)), True),
        (jax.errors.JaxRuntimeError("INTERNAL: something"), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), False),
        (ValueError("INVALID_ARGUMENT: shapes"), False),
        (chained(ValueError("`x` must be 1."), KeyError("x")), False),
    ],
)
def test_a_failure_of_the_runtime_is_told_from_an_error(error, is_of_runtime):
    """After the one another start helps; after the other it does not."""
    assert hosts.is_of_runtime(error) == is_of_runtime
