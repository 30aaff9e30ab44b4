"""Whether a run has begun, in a folder or in a bucket."""

import re
import subprocess
import sys
from pathlib import Path


_LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
from symjax import store
print("begun" if (store.place(sys.argv[2]) / "config.json").exists() else "none")
"""


def is_bucket(run: str) -> bool:
    """Whether a run is in an object store."""
    return re.match(r"(gs|s3):/", run) is not None


def has_begun(run: str | None) -> bool:
    """Whether there is a `config.json`, so that the run is to be resumed.

    A small process looks into a bucket, of this Python, which must have all that
    symjax needs.

    Args:
        run: The run directory.

    Raises:
        ValueError: if a bucket can't be looked into.
    """
    if run is None or not is_bucket(run):
        return run is not None and Path(run, "config.json").exists()
    code = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", _LOOK, code, run]
    done = subprocess.run(words, capture_output=True, text=True)
    found = done.stdout.split()[-1:]
    if done.returncode != 0 or found not in (["begun"], ["none"]):
        why = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ValueError(f"{run} could not be looked into for a run: {why[0]}")
    return found == ["begun"]
