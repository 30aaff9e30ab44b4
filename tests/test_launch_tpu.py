"""The launcher of TPU slices, against a stand-in for the cloud."""

import json
import shlex
import subprocess
import sys

import pytest
from cloud import Cloud

from tpu import hosts, launch, supervision, tpu_vm, worker as worker_file


HOSTILE = ("--data", "a b'c\"d", "$HOME `id` $(id) \\", "*", "", "--", "ü\n;x")
FAST = supervision.Patience(poll=0.25, queue=0.02, grace=0.3, max_restarts=2)
SLICE = tpu_vm.Slice(name="q", zone="z", accelerator="v4-16", project="p", spot=True)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a cloud, and the job on it."""
    made = []

    def build(*more, wanted=SLICE, patience=FAST, keep=False, **script):
        cloud = Cloud(tmp_path, **script)
        made.append(cloud)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        monkeypatch.chdir(tmp_path)
        job = supervision.Job(wanted, cloud.command(*more), patience, keep)
        return cloud, job

    yield build
    for cloud in made:
        cloud.kill_all()


BRING_UP = ["create", "scp", "report", "start"]


def test_a_run_from_creation_to_deletion(make):
    cloud, job = make(*HOSTILE)
    assert supervision.supervise(job) == 0
    assert cloud.verbs() == [*BRING_UP, "delete"]
    words = ["sample", "--out", str(cloud.run), *HOSTILE]
    assert cloud.attempts(0) == cloud.attempts(1) == [words]
    create = cloud.calls()[1]
    assert create[:5] == ["compute", "tpus", "queued-resources", "create", "q"]
    assert {"--spot", "--zone=z", "--project=p", "--node-id=q"} <= set(create)
    assert all({"--zone=z", "--project=p"} <= set(argv) for argv in cloud.calls())
    log = (cloud.folder / "host-0" / "symjax-launch" / "log").exists()
    assert not log, "the slice is deleted"


def test_one_host_that_fails_stops_all_at_once(make):
    cloud, job = make(keep=True)
    cloud.end(host_0=["wait"], host_1=[1])
    assert supervision.supervise(job) == 1
    assert cloud.verbs() == [*BRING_UP, "stop", "log"]
    assert not cloud.is_running(0)


def test_after_an_accident_the_run_is_resumed_on_the_same_slice(make):
    cloud, job = make(*HOSTILE)
    cloud.end(host_0=["wait", 0], host_1=[7, 0])
    assert supervision.supervise(job) == 0
    assert cloud.verbs() == [*BRING_UP, "stop", "start", "delete"]
    for host in (0, 1):
        first, second = cloud.attempts(host)
        assert first[-len(HOSTILE) :] == list(HOSTILE)
        assert second == ["sample", "--resume", str(cloud.run)]


def test_a_preempted_slice_is_deleted_made_again_and_resumed(make):
    cloud, job = make(preempt_at_poll=2)
    cloud.end(host_0=["wait", 0], host_1=["wait", 0], seconds=0)
    assert supervision.supervise(job) == 0
    assert cloud.verbs() == [*BRING_UP, "delete", *BRING_UP, "delete"]
    for host in (0, 1):
        assert cloud.attempts(host)[1] == ["sample", "--resume", str(cloud.run)]


def test_a_slice_preempted_before_it_was_there_is_asked_for_again(make):
    lives = [["ACCEPTED", "PROVISIONING", "SUSPENDING"], ["ACTIVE"]]
    cloud, job = make(lives=lives)
    assert supervision.supervise(job) == 0
    assert cloud.verbs() == ["create", "delete", *BRING_UP, "delete"]


def test_restarts_end(make, capfd):
    cloud, job = make()
    cloud.end(host_0=[7], host_1=[7], seconds=0.1)
    assert supervision.supervise(job) == 7
    assert cloud.verbs() == [*BRING_UP, "start", "start", "log", "delete"]
    assert "restart 2 of 2" in capfd.readouterr().out


def test_the_first_failure_decides(make):
    """What a host says that has lost its peer is not the cause."""
    cloud, job = make(patience=supervision.Patience(0.25, 0.02, 20.0, 0))
    cloud.end(host_0=[1], host_1=[42], seconds=0.1)
    # Host 0 ends later than host 1.
    text = cloud.program.read_text()
    cloud.program.write_text(
        text.replace("sys.exit(what)", "time.sleep(what == 1)\nsys.exit(what)")
    )
    assert supervision.supervise(job) == 42


def test_a_request_that_fails_is_deleted_and_ends(make, capfd):
    cloud, job = make(lives=[["ACCEPTED", "FAILED"]])
    assert supervision.supervise(job) == 1
    assert cloud.verbs() == ["create", "log", "delete"]
    assert "has failed" in capfd.readouterr().out


def test_hosts_with_different_versions_are_refused(make, capfd):
    cloud, job = make(odd_host="host-1")
    assert supervision.supervise(job) == 1
    assert "start" not in cloud.verbs()
    assert "different versions: host-" in capfd.readouterr().out


def test_a_host_that_gcloud_leaves_out_is_missed(make, monkeypatch):
    """gcloud warns and ends with 0 where a node could not be reached."""
    monkeypatch.setattr(supervision, "NUM_TRIES", 2)
    cloud, job = make(leave_out_at_polls=[2, 4, 5])
    cloud.end(host_0=["wait", 0], host_1=["wait", 0], seconds=0)
    assert supervision.supervise(job) == 0
    # Once is forgiven; twice in a row (here) the slice counts as lost.
    assert cloud.verbs() == [*BRING_UP, "delete", *BRING_UP, "delete"]


def test_a_program_that_runs_is_neither_started_again_nor_stopped(make, capfd):
    cloud, job = make(keep=True)
    cloud.end(host_0=["wait", 0], host_1=["wait", 0], seconds=0)
    assert supervision._ready(job, 0) == 2
    assert supervision.supervise(job) == 1
    assert "--attach" in capfd.readouterr().out
    assert cloud.verbs() == BRING_UP
    assert cloud.is_running(0)
    assert cloud.is_running(1)

    # Told to stop by hand, it has saved: who watches it goes on with it.
    hosts.run(job.commands().stop)
    assert not cloud.is_running(0)
    assert supervision.supervise(job, attach=True) == 0
    assert cloud.verbs() == [*BRING_UP, "stop", "start"]


def test_a_gcloud_that_fails_leaves_the_slice_alone(make, monkeypatch):
    cloud, job = make()
    cloud.end(host_0=["wait"], host_1=["wait"], seconds=0)
    assert supervision._ready(job, 0) == 2
    (cloud.folder / "bin" / "gcloud").write_text(
        "#!/bin/sh\necho no network >&2\nexit 1"
    )
    assert supervision.supervise(job, attach=True) == 1
    assert cloud.is_running(0)


def test_several_slices_count_all_their_hosts():
    many = tpu_vm.Slice("q", "z", "v5litepod-16", num_slices=3)
    commands = tpu_vm.build(many, ("x",))
    assert "--node-count=3" in commands.create.argv
    assert "q-0" in commands.count.argv
    assert "--node-id=q" not in commands.create.argv


@pytest.mark.parametrize(
    ("accelerator", "runtime"),
    [
        ("v2-8", "tpu-ubuntu2204-base"),
        ("v4-64", "tpu-ubuntu2204-base"),
        ("v5litepod-256", "v2-alpha-tpuv5-lite"),
        ("v5p-128", "v2-alpha-tpuv5"),
        ("v6e-32", "v2-alpha-tpuv6e"),
    ],
)
def test_each_generation_has_its_runtime(accelerator, runtime):
    commands = tpu_vm.build(tpu_vm.Slice("q", "z", accelerator), ("x",))
    assert f"--runtime-version={runtime}" in commands.create.argv


def typed(*words, command=("symjax", "sample", "--out", "/mnt/symjax/r")):
    return launch.main([*words, "--", *command])


NAMED = ("tpu-vm", "--name", "q", "--zone", "z", "--accelerator")


def test_what_cannot_work_is_refused_before_anything_is_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert typed(*NAMED, "tpu7x-64") == 2
    assert "launch.py tpu7x" in capsys.readouterr().err
    assert typed(*NAMED, "v4-64", command=("symjax", "sample", "--out", "runs/a")) == 2
    assert "--out /mnt/symjax/RUN" in capsys.readouterr().err
    for wrong in ("--slices=0", "--max-restarts=-1", "--poll=0"):
        with pytest.raises(SystemExit, match="2"):
            typed(*NAMED, "v4-64", wrong)
        assert "expected at least" in capsys.readouterr().err
    assert typed("tpu-vm", "--zone=z", "--accelerator=v4-8", "--name=A b") == 2
    assert "small letters" in capsys.readouterr().err
    assert launch.main([*NAMED, "v4-64"]) == 2
    assert "behind `--`" in capsys.readouterr().err


def test_a_dry_run_prints_every_command_and_runs_none(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert typed(*NAMED, "v4-64", "--dry-run") == 0
    text = capsys.readouterr().out
    words = shlex.split(text, comments=True)
    for verb in ("create", "describe", "scp", "ssh", "delete"):
        assert verb in words
    # The default port has been reported blocked.
    starts = [word for word in words if "worker.py start" in word]
    assert len(starts) == 2
    assert all("export JAX_COORDINATOR_PORT=8476; " in start for start in starts)
    assert (
        typed(
            "tpu7x",
            "--name",
            "a",
            "--cluster",
            "c",
            "--location",
            "us-east5-a",
            "--topology",
            "2x2x4",
        )
        == 0
    )
    assert "--placement-policy=a-policy" in capsys.readouterr().out


# What runs on each host.


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Run an action on one host, and give its exit code and its answer."""
    monkeypatch.setenv("SYMJAX_LAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOSTNAME", "host-7")

    def act(*words):
        done = subprocess.run(
            [sys.executable, "-S", worker_file.__file__, *words],
            capture_output=True,
            text=True,
            timeout=120,
        )
        found = hosts.answers(done.stdout)
        return done.returncode, found[0] if found else None

    yield act
    act("stop")


def test_a_host_starts_one_program_at_a_time(worker):
    assert worker("status") == (0, {"host": "host-7", "state": "none"})
    program = ("--", "sleep", "90")
    code, first = worker("start", "--attempt", "1", *program)
    assert (code, first["state"]) == (0, "running")
    code, again = worker("start", "--attempt", "1", *program)
    assert (code, again["attempt"]) == (0, 1), "asked twice, as after a lost answer"
    assert worker("start", "--attempt", "2", *program)[0] == 1
    assert worker("status")[1]["state"] == "running"
    _, stopped = worker("stop")
    assert (stopped["state"], stopped["code"]) == ("ended", 143)
    assert worker("start", "--attempt", "2", *program)[1]["state"] == "running"


def test_a_host_that_was_restarted_says_that_it_lost_its_program(worker, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    note = {"attempt": 0, "state": "running", "pid": gone.pid}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "status.json").write_text(json.dumps(note))
    _, answer = worker("status")
    assert (answer["state"], answer["code"]) == ("ended", 137)


def test_a_program_that_cannot_start_is_what_was_typed(worker, tmp_path):
    worker("start", "--", "no-such-program")
    _, answer = worker("status")
    assert (answer["state"], answer["code"]) == ("ended", 2)
    assert "no-such-program" in (tmp_path / "home" / "log").read_text()


def test_answers_are_found_wherever_they_are():
    line = 'symjax-host {"host": "a", "n": {"b": 1}}'
    other = line.replace('"a"', '"c"')
    text = f"noise\n{line}{other}\n\nsymjax-host {{broken\n{line}"
    assert [each["host"] for each in hosts.answers(text)] == ["a", "c"]
