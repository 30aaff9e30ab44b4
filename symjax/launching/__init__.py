"""Starting one program as several processes, and when to start it again.

Standard library only, and imported without JAX: `tpu/launch.py` uses it on machines
where nothing is installed.
"""

from symjax.launching.begun import has_begun, is_bucket
from symjax.launching.local import GRACE, Outcome, rehearse, run
from symjax.launching.plan import Process, free_port, processes
from symjax.launching.rules import (
    PERMANENT,
    PREEMPTED,
    VERBS,
    begin_or_resume,
    run_of,
    shell_code,
    verdict,
    whole,
    worth_restarting,
)
