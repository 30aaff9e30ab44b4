"""One program on several hosts: how its processes find each other, agree and end.

A host is a process; JAX's distributed runtime joins them. Everything here is the
identity, or does nothing, in a program of one process. What is called "by all hosts"
waits for all of them: to call it on some only is a deadlock.
"""

from symjax.hosts.agreement import barrier, require_equal, share, vote
from symjax.hosts.failures import is_of_runtime
from symjax.hosts.places import ADDRESS, IDENTITY, NUMBER, Place, find
from symjax.hosts.runtime import (
    RESTART,
    Timeouts,
    count,
    end_with,
    finish,
    index,
    is_first,
    is_preempted,
    leave,
    log,
    start,
    write_logs,
)
from symjax.hosts.software import describe as describe_software
