"""`symjax rehearse` with the real program, killed in the middle and resumed."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from symjax import store


pytestmark = pytest.mark.slow

OPTIONS = ["--processes", "2", "--devices", "2", "--max-restarts", "2", "--grace", "30"]
SAMPLE = [
    *("sample", "--data", "digits", "--widths", "8", "--map-steps", "20"),
    *("--hmc.step-size", "0.01", "--hmc.num-warmup", "5"),
    *("--hmc.trajectory-length", "0.5", "--num-chains", "4", "--num-draws", "400"),
    *("--no-bias-check", "--heartbeat-seconds", "10", "--out"),
]


def rehearsed(path):
    main = [sys.executable, "-c", "from symjax.cli import main; main()"]
    return subprocess.Popen(
        [*main, "rehearse", *OPTIONS, "--", *SAMPLE, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_rehearsed_run_that_loses_a_process_has_the_same_draws(tmp_path):
    killed = rehearsed(tmp_path / "killed")
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and killed.poll() is None:
        if (tmp_path / "killed" / "commit.json").exists():
            break
        time.sleep(0.1)
    log = (tmp_path / "killed" / "logs" / "host-1.log").read_text()
    os.kill(int(re.findall(r"process (\d+)\.", log)[-1]), signal.SIGKILL)
    said, _ = killed.communicate(timeout=300)
    assert killed.returncode == 0, said
    assert "process 1 ended with exit code 137" in said
    assert "process 0 ended with exit code 75" in said, "it stopped by itself"
    assert "starting again" in said

    whole = rehearsed(tmp_path / "whole")
    said, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, said
    draws = [store.open(tmp_path / name).read() for name in ("killed", "whole")]
    for name in draws[0]["params"]:
        for leaf, value in draws[0]["params"][name].items():
            np.testing.assert_array_equal(value, draws[1]["params"][name][leaf])
