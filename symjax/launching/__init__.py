"""Starting one program as several processes, and when to start it again.

Standard library only, and imported without JAX: `tpu/launch.py` uses it on machines
where nothing is installed.
"""

from symjax.launching.local import (
    GRACE,
    Outcome,
    Process,
    free_port,
    processes,
    rehearse,
    run,
)
from symjax.launching.rules import (
    PERMANENT,
    PREEMPTED,
    begin_or_resume,
    run_of,
    shell_code,
    verdict,
    worth_restarting,
)
