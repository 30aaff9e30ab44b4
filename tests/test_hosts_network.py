"""Two hosts with a network of their own, which is cut while they run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from together import (
    COMMAND,
    HEARTBEAT,
    LONG,
    collect,
    environment,
    processes,
    wait_for_commit,
)

from symjax import store


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, check=True, timeout=20)


@pytest.fixture
def hosts(tmp_path):
    """Names and addresses of two network namespaces with a cable between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces take root and iproute2")
    names = [f"symjax{os.getpid()}{side}" for side in "ab"]
    folders = [Path("/etc/netns", name) for name in names]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            cable = ["type", "veth", "peer", "name", "cable", "netns", names[1]]
            ip("link", "add", "cable", "netns", names[0], *cable)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode()}")
        addresses = ["10.77.0.1", "10.77.0.2"]
        for name, folder, address in zip(names, folders, addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            for link in ("lo", "cable"):
                ip("-n", name, "link", "set", link, "up")
            # What `ip netns exec` shows as /etc/hosts: Gloo asks for the own name.
            folder.mkdir(parents=True)
            lines = f"{address} {os.uname().nodename}\n127.0.0.1 localhost\n"
            (folder / "hosts").write_text(lines)
        yield list(zip(names, addresses, strict=True))
    finally:
        for name, folder in zip(names, folders, strict=True):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def on_both(hosts, *words):
    """Start a program on both hosts; none outlives the block."""
    address, started = f"{hosts[0][1]}:8476", []
    try:
        for i, (name, _) in enumerate(hosts):
            started.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, sys.executable, *map(str, words)],
                    env=environment(address, 2, i, devices=2),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=Path(__file__).parent,
                )
            )
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)


def cut(hosts, started):
    """Cut the network: exit codes, outputs, and the seconds until both have ended."""
    ip("-n", hosts[1][0], "link", "set", "cable", "down")
    begin = time.monotonic()
    return *collect(started, 60), time.monotonic() - begin


HANGING = """
import time, jax
from symjax import hosts
def hang(*a, **k):
    print("hangs", flush=True)
    time.sleep(300)
if hosts.find("auto").identity == 1:
    jax.distributed.initialize = hang
hosts.start()
"""


@pytest.mark.slow
def test_both_hosts_stop_when_the_network_is_cut_while_jax_starts(hosts):
    """No connection ends by itself, and JAX would wait for a minute."""
    with on_both(hosts, "-c", HANGING) as started:
        assert started[1].stdout.readline() == "hangs\n"
        codes, outputs, seconds = cut(hosts, started)
    assert seconds < 25
    assert codes == [75, 75], outputs
    for i, lost in ((0, 1), (1, 0)):
        assert f"Host {lost} (" in outputs[i]


def test_both_hosts_stop_when_the_network_is_cut(tmp_path, hosts):
    path = tmp_path / "run"
    with on_both(hosts, *LONG, "--out", path) as started:
        wait_for_commit(started, path)
        codes, outputs, seconds = cut(hosts, started)
    assert seconds < HEARTBEAT + 5
    assert codes == [75, 75], outputs
    assert "Host 1 (" in outputs[0]
    done = store.open(path).committed
    said = f"Saved in {path}: {done.iteration} iterations, {done.num_draws} draws"
    for i, lost in ((0, 1), (1, 0)):
        log = (path / "logs" / f"host-{i}.log").read_text()
        assert f"Host {lost} (" in log
        assert said in log
    with processes([[*COMMAND, "sample", "--resume", path]]) as resumed:
        wait_for_commit(resumed, path, after=done.iteration)
