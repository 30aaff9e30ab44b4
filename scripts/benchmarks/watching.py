"""The peak of the host's memory while something runs, in a process of its own."""

import json
import subprocess
import sys
import threading
from pathlib import Path


def elsewhere(function, *numbers):
    """What `MODULE.FUNCTION` of the benchmarks prints as JSON in a new process."""
    module, name = function.__module__, function.__name__
    code = f"import json, {module}; print(json.dumps({module}.{name}(*{numbers})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak(call):
    """Bytes that the process grew by while `call` ran, at the most."""
    before = _anonymous()
    seen, is_over = [before], threading.Event()

    def look():
        while not is_over.wait(0.002):
            seen.append(_anonymous())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        call()
    finally:
        is_over.set()
        watcher.join()
    return max(seen) - before


def _anonymous():
    """Bytes of this process that are no file's (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(x for x in lines if x.startswith("RssAnon")).split()[1])
