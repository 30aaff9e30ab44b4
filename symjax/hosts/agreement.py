"""What all hosts agree on. Each of these is to be called by all of them."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Int

from symjax.hosts import runtime


_PATIENCE = 1000 * 3600 * 24
"""Milliseconds: the watch ends a wait for a host that is lost."""

_calls: Counter[str] = Counter()
"""Calls of each kind: a barrier or a key of the runtime can be used once."""


def barrier(name: str) -> None:
    """Wait for all hosts.

    Args:
        name: What they wait for, for the error of a runtime that failed.
    """
    session = runtime.session()
    if session is not None:
        session.client.wait_at_barrier(_unique(f"barriers/{name}"), _PATIENCE)


def share(value: Any) -> Any:
    """The value that host 0 has, of JSON."""
    session = runtime.session()
    if session is None:
        return value
    key = _unique("shared")
    if runtime.is_first():
        session.client.key_value_set(key, json.dumps(value))
    return json.loads(session.client.blocking_key_value_get(key, _PATIENCE))


def vote(*values: int) -> Int[np.ndarray, "host value"]:
    """The numbers of all hosts: what each of them decides from is then the same."""
    own = np.array(values, np.int32)
    if runtime.session() is None:
        return own[None]
    return np.asarray(multihost_utils.process_allgather(own))


def require_equal(entries: Mapping[str, Any]) -> None:
    """Require the same of all hosts.

    Host 0 shares what it has; the others say where they differ; all read that.

    Args:
        entries: Name -> value, of JSON.

    Raises:
        ValueError: the same on all hosts, naming what differs and where.
    """
    session = runtime.session()
    if session is None:
        return
    first = share(dict(entries))
    own = json.loads(json.dumps(dict(entries)))
    differing = {
        name: [own.get(name), first.get(name)]
        for name in first | own
        if own.get(name) != first.get(name)
    }
    folder = _unique("differences")
    if differing:
        session.client.key_value_set(
            f"{folder}/{runtime.index()}", json.dumps(differing)
        )
    barrier("comparison")
    found = session.client.key_value_dir_get(f"{folder}/")
    told = {int(key.rsplit("/", 1)[1]): json.loads(value) for key, value in found}
    if told:
        raise ValueError(_describe(told, session.watch.names))


def _describe(told: dict[int, dict[str, Any]], names: list[str]) -> str:
    lines = [
        f"{name} is {_shown(mine)} on host {host} ({names[host]}), and {_shown(zeros)} "
        f"on host 0 ({names[0]})"
        for host, differing in sorted(told.items())
        for name, (mine, zeros) in differing.items()
    ]
    more = f"; and {len(lines) - 10} more" if len(lines) > 10 else ""
    return (
        f"The hosts differ: {'; '.join(lines[:10])}{more}. Make them the same: chains "
        "would otherwise be wrong without a sign of it."
    )


def _shown(value: Any) -> str:
    return "missing" if value is None else str(value) or "empty"


def _unique(kind: str) -> str:
    _calls[kind] += 1
    return f"symjax/{kind}/{_calls[kind]}"
