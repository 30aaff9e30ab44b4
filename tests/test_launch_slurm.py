"""The batch script, run by bash with stand-ins for Slurm."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cloud import PROGRAM, is_alive

from tpu import slurm


CHECKOUT = str(Path(__file__).parents[1])
HOSTILE = ("--data", "a b'c\"d", "$HOME `id` $(id) \\", "*", "", "#x", "ü\n;x")

# Runs the command as two tasks; the first that fails ends the other, as srun
# --kill-on-bad-exit=1 does, and the highest code is its own.
SRUN = """#!{python} -IS
import os, signal, subprocess, sys, time
assert sys.argv[1] == "--kill-on-bad-exit=1"
tasks = []
for number in (0, 1):
    own = dict(SLURM_PROCID=str(number))
    tasks.append(subprocess.Popen(sys.argv[2:], env=os.environ | own, process_group=0))
signal.signal(signal.SIGTERM, lambda *_: [os.killpg(t.pid, 15) for t in tasks])
while None in [task.poll() for task in tasks]:
    if any(task.returncode for task in tasks):
        for task in tasks:
            if task.returncode is None:
                os.killpg(task.pid, signal.SIGKILL)
    time.sleep(0.02)
sys.exit(max(128 - code if code < 0 else code for code in (t.wait() for t in tasks)))
"""
SCONTROL = '#!/bin/sh\necho "$*" >>{folder}/requeued\n'


class Queue:
    """A folder where jobs run, with the stand-ins on its PATH."""

    def __init__(self, folder):
        self.folder = folder
        self.run = folder / "a run"
        stand_ins = {"srun": SRUN, "scontrol": SCONTROL, "sleep": "#!/bin/sh\n"}
        for name, text in stand_ins.items():
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(python=sys.executable, folder=folder))
            path.chmod(0o755)
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        wanted = slurm.Batch(
            "a-job", num_nodes=2, max_requeues=2, python=sys.executable
        )
        words = (sys.executable, str(self.program), "sample", "--out", str(self.run))
        self.text = slurm.script(wanted, (*words, *HOSTILE), CHECKOUT)

    def start(self, restarts=0, **ends):
        """Start the job; on each host, how the program ends, start by start."""
        plan = {name.replace("_", "-"): value for name, value in ends.items()}
        (self.folder / "program.json").write_text(json.dumps(plan))
        variables = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "SLURM_JOB_ID": "17",
            "SLURM_RESTART_COUNT": str(restarts),
        }
        return subprocess.Popen(
            ["bash", "-c", self.text],
            cwd=self.folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def requeues(self):
        path = self.folder / "requeued"
        return path.read_text().splitlines() if path.exists() else []

    def pids(self):
        return [int(path.read_text()) for path in self.run.glob("pid-*")]


@pytest.fixture
def queue(tmp_path):
    return Queue(tmp_path)


def test_a_job_that_is_done_is_not_requeued(queue):
    popen = queue.start()
    out, _ = popen.communicate(timeout=120)
    assert popen.returncode == 0
    assert "attempt 0 ended with exit code 0" in out
    assert not queue.requeues()
    assert not list(queue.folder.glob("*.codes"))
    for host in (0, 1):
        lines = (queue.run / f"attempts-host-{host}").read_text().splitlines()
        words = ["sample", "--out", str(queue.run), *HOSTILE]
        assert [json.loads(line) for line in lines] == [words]


def test_a_preempted_job_requeues_itself_and_resumes(queue):
    popen = queue.start(host_0=[42, 0], host_1=[42, 0])
    out, _ = popen.communicate(timeout=120)
    assert "attempt 0 ended with exit code 42" in out
    assert queue.requeues() == ["requeue 17"]
    popen = queue.start(restarts=1, host_0=[42, 0], host_1=[42, 0])
    popen.communicate(timeout=120)
    assert popen.returncode == 0
    assert queue.requeues() == ["requeue 17"]
    last = (queue.run / "attempts-host-1").read_text().splitlines()[-1]
    assert json.loads(last) == ["sample", "--resume", str(queue.run)]


def test_requeues_end(queue):
    popen = queue.start(restarts=2, host_0=[42], host_1=[42])
    out, _ = popen.communicate(timeout=120)
    assert popen.returncode == 42
    assert "2 restarts are used up" in out
    assert not queue.requeues()


@pytest.mark.parametrize(("code", "requeues"), [(1, 0), (2, 0), (7, 1)])
def test_the_task_that_failed_decides_not_the_one_that_was_killed(
    queue, code, requeues
):
    """Slurm kills the other task, and says 137 for both."""
    popen = queue.start(host_0=["wait"], host_1=[code])
    out, _ = popen.communicate(timeout=120)
    assert f"ended with exit code {code}\n" in out
    assert len(queue.requeues()) == requeues
    assert not any(map(is_alive, queue.pids()))


def test_a_job_that_is_cancelled_saves_and_stays_away(queue):
    popen = queue.start(host_0=["wait"], host_1=["wait"])
    deadline = time.monotonic() + 60
    while len(queue.pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in queue.pids():  # scancel signals the tasks and the script
        os.killpg(os.getpgid(pid), 15)
    popen.terminate()
    out, _ = popen.communicate(timeout=120)
    assert popen.returncode == 42
    assert "ended with exit code 42" in out
    assert not queue.requeues()


def test_the_script_is_one_for_bash_and_for_sbatch(queue):
    subprocess.run(["bash", "-nc", queue.text], check=True)
    directives = [line for line in queue.text.splitlines() if "SBATCH" in line]
    assert {"#SBATCH --nodes=2", "#SBATCH --requeue"} <= set(directives)
    first_command = queue.text.index("stopped=no")
    assert all(queue.text.index(line) < first_command for line in directives)
    assert "srun --kill-on-bad-exit=1 " in queue.text
    wanted = slurm.Batch("j", 2, 4, 4, options=("--partition=gpu",))
    text = slurm.script(wanted, ("x",), "/c")
    assert "#SBATCH --gpus-per-node=4\n#SBATCH --partition=gpu\n" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_nodes": 0},
        {"name": "a b"},
        {"name": "a/b"},
        {"time": "1 day"},
        {"options": ("--a\nrm -rf x",)},
        {"options": ("partition",)},
    ],
)
def test_what_would_break_the_script_is_refused(wrong):
    with pytest.raises(ValueError, match="expected to be"):
        slurm.Batch(**({"name": "a", "num_nodes": 1} | wrong))
