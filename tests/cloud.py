"""A stand-in for Google Cloud: `gcloud`, `uv` and `git` on the PATH, hosts as folders.

`gcloud` notes every call. A queued resource goes through states that a test lists; each
host is a folder, which is the home of what `ssh` runs there; a preemption kills what
runs on the hosts and empties them.
"""

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path


CHECKOUT = Path(__file__).parents[1]

_GCLOUD = """#!{python} -IS
import json, os, shutil, signal, subprocess, sys
from pathlib import Path

folder = Path({folder!r})
argv = sys.argv[1:]
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(argv) + "\\n")
options = dict(word[2:].split("=", 1) for word in argv if "=" in word)
script = json.loads((folder / "script.json").read_text())
group, verb = argv[2], argv[3]
states = folder / "states.json"
hosts = [folder / f"host-{{n}}" for n in range(script["num_hosts"])]


def kill_all():
    for host in hosts:
        for note in host.glob("symjax-launch/status.json"):
            try:
                os.killpg(json.loads(note.read_text())["pid"], signal.SIGKILL)
            except (KeyError, ProcessLookupError):
                pass
        shutil.rmtree(host, ignore_errors=True)


if verb == "create":
    if states.exists():
        sys.exit("ALREADY_EXISTS")
    lives = script["lives"]
    life = len((folder / "created").read_text()) if (folder / "created").exists() else 0
    (folder / "created").write_text("x" * (life + 1))
    states.write_text(json.dumps(lives[min(life, len(lives) - 1)]))
    for host in hosts:
        host.mkdir()
elif group == "tpu-vm" and verb == "describe":
    addresses = [dict(ipAddress=host.name) for host in hosts]
    print(json.dumps(dict(networkEndpoints=addresses)))
elif verb == "describe":
    if not states.exists():
        sys.exit("ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: q")
    left = json.loads(states.read_text())
    print(left[0])
    if left[0] == "SUSPENDED":
        kill_all()
    if len(left) > 1:
        states.write_text(json.dumps(left[1:]))
elif verb == "delete":
    if not states.exists():
        sys.exit("NOT_FOUND")
    kill_all()
    states.unlink()
elif verb == "scp":
    for host in hosts:
        for name in argv[4 : argv.index("q:")]:
            shutil.copy(name, host)
elif verb == "ssh":
    if "worker.py status" in options["command"]:
        polls = folder / "polls"
        number = int(polls.read_text()) + 1 if polls.exists() else 1
        polls.write_text(str(number))
        if number == script.get("preempt_at_poll"):
            kill_all()
            states.write_text(json.dumps(["SUSPENDING", "SUSPENDED"]))
            sys.exit(255)
        if number in script.get("leave_out_at_polls", []):
            print("WARNING: Could not prepare all 2 nodes", file=sys.stderr)
            hosts = hosts[1:]
    running = []
    for host in hosts:
        own = dict(HOME=str(host), HOSTNAME=host.name, PYTHONPATH=str(host / "extra"))
        words = ["bash", "-c", options["command"]]
        running.append(subprocess.Popen(words, env=os.environ | own))
    codes = [each.wait() for each in running]
    sys.exit(next((code for code in codes if code), 0))
"""

_UV = """#!/bin/bash
if [ "$1" = venv ]; then mkdir -p venv/bin && ln -sf {python} venv/bin/python; fi
if [ "$2" = compile ]; then : >"${{@: -1}}"; touch symjax-lock.txt; fi
if [ "$2" = sync ] && [ "$HOSTNAME" = "{odd_host}" ]; then
  mkdir -p ~/extra/odd-1.0.dist-info
  printf 'Name: odd\\nVersion: 1.0\\n' > ~/extra/odd-1.0.dist-info/METADATA
fi
"""

_GIT = """#!/bin/bash
tar -czf symjax-source.tar.gz -C {checkout} tpu symjax/__init__.py symjax/launching
"""

# A program that keeps symjax's rules: it begins a run or resumes it, notes what it was
# given, saves when it is told to stop, and ends as the test wants.
PROGRAM = """
import json, os, pathlib, signal, sys, time
words = sys.argv[1:]
option = "--resume" if "--resume" in words else "--out"
run = pathlib.Path(words[words.index(option) + 1])
host = os.environ.get("SYMJAX_PROCESS_ID") or os.environ.get("HOSTNAME")
host = "host-" + os.environ["SLURM_PROCID"] if "SLURM_PROCID" in os.environ else host
run.mkdir(parents=True, exist_ok=True)
attempts = run / f"attempts-{host}"
with open(attempts, "a") as file:
    file.write(json.dumps(words) + "\\n")
attempt = len(attempts.read_text().splitlines()) - 1
signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
(run / f"pid-{host}").write_text(str(os.getpid()))
plan = json.loads((run.parent / "program.json").read_text())
here = plan.get(host, [0])
what = here[min(attempt, len(here) - 1)]
time.sleep(plan.get("seconds", 0.3))  # until the others have decided, too
(run / "config.json").write_text("{}")
deadline = time.monotonic() + 90  # whatever the test does, nothing stays
while what == "wait" and time.monotonic() < deadline:
    time.sleep(0.05)
sys.exit(what)
"""


class Cloud:
    """The stand-ins and their folder."""

    def __init__(self, folder: Path, odd_host: str = "none", **script: object):
        self.folder = folder
        self.run = folder / "shared" / "a run $HOME"
        self.run.parent.mkdir()
        names = {"python": sys.executable, "folder": str(folder), "checkout": CHECKOUT}
        names["odd_host"] = odd_host
        for name, text in {"gcloud": _GCLOUD, "uv": _UV, "git": _GIT}.items():
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(**names))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        settings = {"num_hosts": 2, "lives": [["PROVISIONING", "ACTIVE"]], **script}
        (folder / "script.json").write_text(json.dumps(settings))
        self.program = folder / "pro gram.py"
        self.program.write_text(PROGRAM)
        self.end()

    def end(self, **plan: object) -> None:
        """How the program ends on each host, attempt by attempt."""
        names = {name.replace("_", "-"): value for name, value in plan.items()}
        (self.run.parent / "program.json").write_text(json.dumps(names))

    def command(self, *more: str) -> tuple[str, ...]:
        """The program as it is given to the launcher."""
        words = (sys.executable, str(self.program), "sample")
        return (*words, "--out", str(self.run), *more)

    def calls(self) -> list[list[str]]:
        """What gcloud was given, call by call."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def verbs(self) -> list[str]:
        """What gcloud did, without looks; `ssh` by the action it ran."""
        verbs = []
        for argv in self.calls():
            verb = argv[3]
            if verb == "ssh":
                action = re.search(r"worker\.py (\w+)", argv[-1])
                verb = action[1] if action else "log"
            if verb not in ("describe", "status"):
                verbs.append(verb)
        return verbs

    def attempts(self, host: int) -> list[list[str]]:
        """What the program was given on a host, start by start."""
        lines = (self.run / f"attempts-host-{host}").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def is_running(self, host: int) -> bool:
        """Whether the program runs on a host."""
        return is_alive(int((self.run / f"pid-host-{host}").read_text()))

    def kill_all(self) -> None:
        """Leave nothing behind."""
        for path in self.run.glob("pid-*"):
            if is_alive(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be read does not."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False
