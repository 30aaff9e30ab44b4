"""Many processes of one machine: all stop together, and none stays behind."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cloud import PROGRAM, is_alive
from hypothesis import given, strategies as st

from symjax import launching
from symjax.cli import rehearsal
from symjax.cli.options import Rehearse
from tpu import launch


def until(condition, seconds=60.0):
    """Wait for something; whether it came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def program(tmp_path):
    """Write a program that processes run; its pids are in files."""
    common = "import os, pathlib, signal, subprocess, sys, time\n"
    common += f"folder = pathlib.Path({str(tmp_path)!r})\n"
    common += "me = os.environ['SYMJAX_PROCESS_ID']\n"
    common += "def note(pid): (folder / f'pid-{pid}').touch()\n"
    common += "note(os.getpid())\n"

    def write(text):
        path = tmp_path / "a program.py"
        path.write_text(common + text)
        return (sys.executable, "-S", str(path))

    yield write
    for path in tmp_path.glob("pid-*"):
        pid = int(path.name.removeprefix("pid-"))
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def pids(tmp_path):
    return [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]


def none_is_left(tmp_path):
    return until(lambda: not any(map(is_alive, pids(tmp_path))), 30)


def launched(command, *options):
    """The launcher as its own process."""
    words = [sys.executable, "-S", launch.__file__, "local", *options, "--", *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def here(command, num_processes=2, grace=0.2, **options):
    plan = launching.processes(
        command, num_processes=num_processes, num_devices=2, port=1234, **options
    )
    return launching.run(plan, grace=grace)


def test_each_process_knows_its_place(program, capfd):
    names = "JAX_COORDINATOR_ADDRESS SYMJAX_NUM_PROCESSES JAX_NUM_CPU_DEVICES XLA_FLAGS"
    text = f"print(me, *(os.environ.get(name) for name in {names.split()}))"
    flags = "--xla_force_host_platform_device_count=8 --xla_other=1"
    assert here(program(text), num_processes=3, xla_flags=flags).code == 0
    assert sorted(capfd.readouterr().out.splitlines()) == [
        f"[{number}] {number} 127.0.0.1:1234 3 2 --xla_other=1" for number in range(3)
    ]


def gpus_of(num_processes, num_devices):
    plan = launching.processes(
        ["x"],
        num_processes=num_processes,
        num_devices=num_devices,
        port=1,
        platform="cuda",
    )
    assert "JAX_NUM_CPU_DEVICES" not in plan[0].environment
    return [process.environment["CUDA_VISIBLE_DEVICES"] for process in plan]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A machine of four GPUs, one of them in parts."""
    listed = "".join(
        f"GPU {i}: NVIDIA H200 (UUID: GPU-{i})\n  MIG 1g.18gb Device 0: (UUID: MIG-0)\n"
        for i in range(4)
    )
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-gpus ] && printf "{listed}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_each_process_has_gpus_of_its_own(nvidia_smi, monkeypatch):
    assert gpus_of(2, 2) == ["0,1", "2,3"]
    with pytest.raises(ValueError, match="which are 6, but here are 4"):
        gpus_of(3, 2)
    # A batch system has given this program some of the machine's.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-3,7")
    assert gpus_of(3, 1) == ["5", "GPU-3", "7"]
    with pytest.raises(ValueError, match="which are 4, but here are 3"):
        gpus_of(2, 2)
    for none in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        with pytest.raises(ValueError, match="but here are 0"):
            gpus_of(1, 1)


def test_gpus_where_there_are_none_are_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for options in ([], ["--dry-run"]):
        words = ["local", "--platform", "cuda", *options, "--", sys.executable]
        assert launch.main(words) == 2
        assert "but here are 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [{"num_processes": 0}, {"num_devices": 0}, {"platform": "tpu"}]
)
def test_a_plan_of_nothing_is_refused(wrong):
    options = {"num_processes": 1, "num_devices": 1, "port": 1} | wrong
    with pytest.raises(ValueError, match=r"expected to be .*got"):
        launching.processes(["x"], **options)


def test_one_that_fails_ends_all_with_what_they_started(program, tmp_path, capfd):
    text = """
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(90)"])
note(child.pid)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while me == "1" and len(list(folder.glob("pid-*"))) < 6: time.sleep(0.02)
if me == "1": sys.exit(7)
time.sleep(90)
"""
    start = time.monotonic()
    assert here(program(text), num_processes=3).code == 7
    assert time.monotonic() - start < 50
    assert len(pids(tmp_path)) == 6
    assert none_is_left(tmp_path)
    said = capfd.readouterr().err
    assert "process 1 ended with exit code 7" in said
    assert "killing what still runs: 0, 2" in said


def test_the_others_may_stop_by_themselves(program, capfd):
    """What comes after the first failure does not count, and is not killed."""
    text = "time.sleep(0.5 * (me == '1')); sys.exit(42 if me == '0' else 1)"
    assert here(program(text), grace=30.0).code == 42
    assert "killing" not in capfd.readouterr().err


def test_a_killed_process_is_seen(program, tmp_path):
    text = "if me == '0': os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(90)"
    assert here(program(text)).code == 137
    assert none_is_left(tmp_path)


def test_a_program_that_is_not_there_leaves_nothing(program, tmp_path, capsys):
    good = launching.Process(program("time.sleep(90)"), {"SYMJAX_PROCESS_ID": "0"})
    with pytest.raises(FileNotFoundError):
        launching.run([good, launching.Process(("/nonexistent",), {})])
    assert none_is_left(tmp_path)
    assert launch.main(["local", "--", "no-such-program"]) == 2
    assert "no-such-program" in capsys.readouterr().err


WAITING = """
def stop(*_):
    (folder / f"stopped-{me}").write_text("x" + (folder / f"stopped-{me}").read_text())
    time.sleep(0.2)
    sys.exit(42)
(folder / f"stopped-{me}").write_text("")
signal.signal(signal.SIGTERM, stop)
(folder / f"ready-{me}").touch()
time.sleep(90)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_passed_on_once(program, tmp_path, number):
    run = tmp_path / "run"
    command = (*program(WAITING), "sample", "--out", str(run))
    popen = launched(command, "--max-restarts", "3")
    assert until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    popen.send_signal(number)
    assert popen.wait(timeout=60) == 42, "asked to stop, it starts nothing again"
    popen.communicate()
    assert [(tmp_path / f"stopped-{me}").read_text() for me in (0, 1)] == ["x", "x"]
    assert none_is_left(tmp_path)


def test_a_second_request_kills(program, tmp_path):
    text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    text += "(folder / f'ready-{me}').touch()\ntime.sleep(90)"
    popen = launched(program(text))
    assert until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    popen.terminate()
    assert b"once more kills" in popen.stderr.readline()
    popen.terminate()
    assert popen.wait(timeout=60) == 137
    popen.communicate()
    assert none_is_left(tmp_path)


def test_a_launcher_that_is_killed_leaves_nothing(program, tmp_path):
    text = "note(subprocess.Popen(['sleep', '90']).pid)\n"
    text += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    text += "(folder / f'ready-{me}').touch()\ntime.sleep(90)"
    popen = launched(program(text))
    assert until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    popen.kill()
    popen.communicate()
    assert len(pids(tmp_path)) == 4
    assert none_is_left(tmp_path)


# Restarts.


@pytest.fixture
def run(tmp_path):
    """Run the program that keeps symjax's rules, and give the words of its starts."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    folder = tmp_path / "a run"

    def start(*ends, max_restarts):
        plan = {"0": list(ends), "1": list(ends)}
        (tmp_path / "program.json").write_text(json.dumps(plan))
        command = [sys.executable, "-S", str(path), "sample", "--out", str(folder)]
        options = ["--max-restarts", str(max_restarts), "--grace", "0.5"]
        code = launch.main(["local", *options, "--", *command, "--data", "a b"])
        lines = (folder / "attempts-0").read_text().splitlines()
        return code, [json.loads(line) for line in lines], str(folder)

    return start


def test_after_an_accident_the_run_is_resumed(run):
    code, starts, folder = run(137, 42, 0, max_restarts=5)
    assert code == 0
    assert starts == [
        ["sample", "--out", folder, "--data", "a b"],
        ["sample", "--resume", folder],
        ["sample", "--resume", folder],
    ]


@pytest.mark.parametrize("code", [1, 2])
def test_what_a_restart_does_not_mend_is_not_restarted(run, code):
    assert run(code, max_restarts=5)[0] == code
    assert len(run(code, max_restarts=0)[1]) == 2, "one start of each"


def test_restarts_end(run):
    code, starts, _ = run(9, max_restarts=1)
    assert (code, len(starts)) == (9, 2)


@pytest.mark.parametrize("wrong", [{"max_restarts": -1}, {"grace": float("nan")}])
def test_restarts_without_end_and_waits_for_ever_are_refused(wrong):
    with pytest.raises(ValueError, match="was expected to be at least 0, got"):
        launching.rehearse(["x", "--out", "r"], pytest.fail, **wrong)


def test_a_command_that_is_not_marked_is_asked_for(capsys):
    with pytest.raises(SystemExit, match="2"):
        launch.main(["local", "sample", "--data", "digits"])
    assert "behind `--`" in capsys.readouterr().err


def test_restarts_need_a_run(capsys):
    command = [sys.executable, "-c", "pass"]
    assert launch.main(["local", "--max-restarts", "1", "--", *command]) == 2
    assert "--out RUN" in capsys.readouterr().err


@given(st.lists(st.sampled_from([0, 1, 2, 42, 137])))
def test_the_first_failure_is_the_verdict(codes):
    failures = [code for code in codes if code]
    assert launching.verdict(codes) == (failures[0] if failures else 0)


@given(st.lists(st.text(max_size=6), max_size=4), st.text(min_size=1, max_size=9))
def test_a_resumed_command_has_no_other_options(more, folder):
    more = [word for word in more if not word.startswith(("--out", "--resume"))]
    for words in (["--out", folder], [f"--out={folder}"]):
        command = ["symjax", "sample", "--data", "digits", *words, *more]
        assert launching.run_of(command) == folder
        assert launching.begin_or_resume(command, False) == tuple(command)
        resumed = ("symjax", "sample", "--resume", folder)
        assert launching.begin_or_resume(command, True) == resumed
        assert launching.begin_or_resume(resumed, True) == resumed
    with pytest.raises(ValueError, match=r"--out RUN"):
        launching.begin_or_resume(["symjax", "sample", "--data", "digits"], True)


def test_a_resumed_command_keeps_what_is_said_at_every_start():
    command = ["symjax", "fit", "--seed", "3", "--mesh=chain=2,data=2", "--out", "r"]
    # As symjax takes them: _ for -, and the last one of several.
    command += ["--max-minutes", "4", "--max_minutes", "5", "--data", "x"]
    command += ["--chains-at-once", "1"]
    assert launching.begin_or_resume(command, True) == (
        *("symjax", "fit", "--resume", "r"),
        *("--max-minutes", "5", "--mesh", "chain=2,data=2", "--chains-at-once", "1"),
    )


@pytest.mark.parametrize("name", [[], ["symjax"], ["--"], ["--", "symjax"]])
def test_a_rehearsal_is_of_what_is_typed_without_it(name):
    command = ["sample", "--data", "symjax", "--", "x"]
    options, behind = rehearsal.split(["rehearse", "--grace", "1", *name, *command])
    assert options == ["rehearse", "--grace", "1"]
    assert behind == tuple(command)


@pytest.mark.parametrize("words", [(), ("list", "."), ("rehearse", "--", "sample")])
def test_what_runs_as_one_process_is_not_rehearsed(words):
    with pytest.raises(ValueError, match="sample or fit was expected behind"):
        rehearsal.rehearse(Rehearse(), words)


def test_symjax_rehearse_is_the_same_launcher():
    code = "from symjax.cli import main; main()"
    words = ["rehearse", "--processes", "2", "--grace", "0.5", "--"]
    asked = [sys.executable, "-c", code, *words, "sample", "--sampler", "none"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert {line[:4] for line in lines} == {"[0] ", "[1] "}
    assert "ended with exit code 2" in done.stderr


def test_a_rehearsal_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"rehearse -- sample"):
        rehearsal.rehearse(Rehearse(), ())
