"""The batch script on a real Slurm: two nodes of one machine, each with its own slurmd.

Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge:

    apt-get install slurmctld slurmd slurm-client munge
    pytest -m slow tests/test_launch_slurm_cluster.py
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cloud import PROGRAM, is_alive

from symjax.launching import free_port
from tpu import slurm


PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.getuid() != 0 or not all(shutil.which(each, path=PATH) for each in PROGRAMS),
        reason="needs root and Slurm's programs",
    ),
]

CONFIGURATION = """
ClusterName=rehearsal
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=n0 NodeHostname=localhost Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n1 NodeHostname=localhost Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n[0-1] Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Slurm's daemons, and jobs on them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.run = folder / "a run"
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.environment["PATH"] = PATH
        for name in ("state", "n0", "n1"):
            (folder / name).mkdir()
        ports = [free_port() for _ in range(3)]
        text = CONFIGURATION.format(folder=folder, ports=ports)
        (folder / "slurm.conf").write_text(text)
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        (folder / "program.py").write_text(PROGRAM)
        munge = {"key-file": "key", "socket": "munge.socket", "pid-file": "munged.pid"}
        munge |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self.daemons = []
        options = [f"--{name}={folder / file}" for name, file in munge.items()]
        self._start("munged", "--foreground", "--force", *options)
        assert until((folder / "munge.socket").exists)
        self._start("slurmctld", "-D", "-c")
        for node in ("n0", "n1"):
            self._start("slurmd", "-D", "-N", node)
        assert until(lambda: self("sinfo", "-h", "-o", "%T %D") == "idle 2")

    def _start(self, *words):
        log = (self.folder / f"{words[0]}-{words[-1]}.out".replace("/", "_")).open("w")
        daemon = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)
        self.daemons.append(daemon)
        log.close()

    def __call__(self, *words) -> str:
        """What one of Slurm's commands says."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=30
        )
        return done.stdout.strip()

    def submit(self, **ends) -> str:
        """Submit the job; on each host, how the program ends, start by start."""
        shutil.rmtree(self.run, ignore_errors=True)
        plan = {name.replace("_", "-"): value for name, value in ends.items()}
        (self.folder / "program.json").write_text(json.dumps(plan))
        wanted = slurm.Batch("job", 2, python=sys.executable, time="5")
        words = (sys.executable, str(self.folder / "program.py"), "sample")
        text = slurm.script(
            wanted,
            (*words, "--out", str(self.run), "--data", "a b'c\"d $HOME"),
            str(Path(__file__).parents[1]),
        )
        (self.folder / "job.sbatch").write_text(text)
        said = self("sbatch", f"--chdir={self.folder}", str(self.folder / "job.sbatch"))
        return said.split()[-1]

    def shown(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self("scontrol", "show", "job", job)))

    def comes_to(self, job: str, **wanted: str) -> bool:
        """Whether the job comes to be so."""
        return until(lambda: wanted.items() <= self.shown(job).items())

    def hurry(self, job: str) -> None:
        """Start a requeued job soon: Slurm would wait for two minutes.

        In the second in which it was ended, its nodes still refuse it.
        """
        time.sleep(2)
        self("scontrol", "update", f"JobId={job}", "StartTime=now")

    def starts(self, host: int) -> list[list[str]]:
        lines = (self.run / f"attempts-host-{host}").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def is_running(self) -> bool:
        begun = (self.run / "config.json").exists()
        return begun and len(list(self.run.glob("pid-*"))) == 2

    def end(self) -> None:
        self("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(timeout=20)


def until(condition, seconds=40.0) -> bool:
    """Wait for something; whether it came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    yield made
    made.end()


def test_a_preempted_job_is_requeued_and_resumed(cluster):
    job = cluster.submit(host_0=[42, 0], host_1=[42, 0])
    assert cluster.comes_to(job, JobState="PENDING", Restarts="1")
    cluster.hurry(job)
    assert cluster.comes_to(job, JobState="COMPLETED", ExitCode="0:0")
    for host in (0, 1):
        first, second = cluster.starts(host)
        assert first[1:] == ["--out", str(cluster.run), "--data", "a b'c\"d $HOME"]
        assert second == ["sample", "--resume", str(cluster.run)]


def test_a_lost_node_costs_a_restart(cluster):
    job = cluster.submit(host_0=["wait", 0], host_1=["wait", 0])
    assert until(cluster.is_running)
    cluster("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    assert cluster.comes_to(job, JobState="PENDING", Restarts="1")
    cluster("scontrol", "update", "NodeName=n1", "State=RESUME")
    assert until(lambda: cluster("sinfo", "-h", "-o", "%T %D") == "idle 2")
    cluster.hurry(job)
    assert cluster.comes_to(job, JobState="COMPLETED", ExitCode="0:0")
    assert cluster.starts(0)[1] == ["sample", "--resume", str(cluster.run)]


@pytest.mark.parametrize("code", [1, 2])
def test_a_permanent_error_of_one_task_ends_all(cluster, code):
    job = cluster.submit(host_0=["wait"], host_1=[code])
    assert cluster.comes_to(job, JobState="FAILED", ExitCode=f"{code}:0", Restarts="0")
    pids = [int(path.read_text()) for path in cluster.run.glob("pid-*")]
    assert len(pids) == 2
    assert until(lambda: not any(map(is_alive, pids)))


def test_a_cancelled_job_saves_and_is_not_requeued(cluster):
    job = cluster.submit(host_0=["wait"], host_1=["wait"])
    assert until(cluster.is_running)
    cluster("scancel", job)
    assert cluster.comes_to(job, JobState="CANCELLED", ExitCode="42:0", Restarts="0")
