"""The first meeting of all hosts, before JAX's own.

JAX ends every process without naming anyone if one of them does not come. So they first
meet on the port on which its service will then listen: host 0 counts who has come, and
when the time is up tells all who is there which are not. The connections stay open
until JAX's service has all of them: that one was lost before is seen from its end.
"""

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from symjax.hosts.places import Place


GRACE = 5.0
"""Seconds that others wait for the answer of host 0 after the time is up."""

_PATIENCE = 2.0
"""Seconds for one line to or from another host that is there."""

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds and number of the kernel's questions to one that is silent, where it asks
any; without an answer, as over a cut network, the connection has ended."""

_STARTED = b"started\n"
"""What a host says whose runtime has started, which needs all the others."""


class NotAllCame(RuntimeError):
    """A host is missing; to start again may help."""


class _Meeting(NamedTuple):
    """What came of it: the answer of host 0, and its connections or the one to it."""

    answer: dict[str, Any]
    connections: dict[int, socket.socket]


@contextlib.contextmanager
def meet(
    place: Place, seconds: float, lose: Callable[[str], None]
) -> Iterator[list[str]]:
    """Wait until every host has come; in the block, watch that none goes.

    To be left when the runtime has started, on all hosts.

    Args:
        place: Of this process.
        seconds: How long to wait.
        lose: Called in a thread, with a text that names the host, if one goes.

    Yields:
        The machines' names, in the order of the hosts.

    Raises:
        NotAllCame: naming the hosts that did not.
        ValueError: if hosts disagree on their number, or two have the same one.
    """
    attend = _receive if place.identity == 0 else _report
    answer, connections = attend(place, time.monotonic() + seconds)
    if "wrong" in answer:
        raise ValueError(answer["wrong"])
    if "missing" in answer:
        raise NotAllCame(f"Within {seconds:.0f} s {answer['missing']}")
    is_over = threading.Event()
    words = (connections, answer["names"], is_over, lose)
    threading.Thread(target=_watch, args=words, daemon=True).start()
    yield answer["names"]  # An error ends the process, which all others then see.
    is_over.set()
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.sendall(_STARTED)


def _watch(
    connections: dict[int, socket.socket],
    names: list[str],
    is_over: threading.Event,
    lose: Callable[[str], None],
) -> None:
    """Read what others say until all have said that they started, or one is lost.

    Host 0 hears all others, and tells them what it tells of its own.
    """
    with selectors.DefaultSelector() as selector:
        for host, connection in connections.items():
            selector.register(connection, selectors.EVENT_READ, host)
        while selector.get_map():
            key = selector.select()[0][0]
            connection = connections[key.data]
            said = _read_line(connection)
            selector.unregister(connection)
            if said == _STARTED or (is_over.is_set() and not said):
                connection.close()
                continue
            text = said.decode() or (
                f"Host {key.data} ({names[key.data]}) was lost while JAX's runtime "
                "started: it ended, was killed, or its network is cut. No run was "
                "begun or changed; start again."
            )
            for other in selector.get_map().values():
                with contextlib.suppress(OSError):
                    connections[other.data].sendall(text.encode() + b"\n")
            return lose(text.strip())
    return None


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _read_line(connection: socket.socket) -> bytes:
    """A line, or nothing of one that is gone. What comes after it stays unread."""
    with contextlib.suppress(OSError), connection.makefile("rb", 0) as lines:
        return lines.readline()
    return b""


def _receive(place: Place, end: float) -> _Meeting:
    """Host 0: collect the others and answer them."""
    port = int(place.address.rsplit(":", 1)[1])
    names = {0: socket.gethostname()}
    guests: dict[int, socket.socket] = {}
    answer: dict[str, Any] = {}
    with _listen(port) as server:
        while len(names) < place.number and not answer:
            server.settimeout(max(0.0, end - time.monotonic()) or 1e-3)
            try:
                guest, _ = server.accept()
            except TimeoutError:
                answer = {"missing": _describe_missing(names, place.number)}
                break
            _keep_alive(guest)
            try:
                said = _hear(guest, _PATIENCE)
                identity = said["identity"]
            except (ValueError, TypeError, LookupError):
                guest.close()  # Somebody else who tried the port.
                continue
            for gone in [i for i, guest in guests.items() if _has_ended(guest)]:
                guests.pop(gone).close()  # It may come again.
                del names[gone]
            answer = _contradiction(said, place.number, names)
            if answer:
                _answer(guest, answer)
            else:
                guests[identity], names[identity] = guest, said["name"]
    answer = answer or {"names": [names[i] for i in range(place.number)]}
    for guest in guests.values():
        _answer(guest, answer)
    return _Meeting(answer, guests)


def _hear(connection: socket.socket, seconds: float) -> Any:
    """A line of JSON; an error if there is none."""
    connection.settimeout(seconds)
    return json.loads(_read_line(connection))


def _has_ended(guest: socket.socket) -> bool:
    """Whether a host is gone, which says nothing while it waits."""
    guest.settimeout(0.0)
    try:
        return not guest.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _contradiction(
    said: dict[str, Any], number: int, names: dict[int, str]
) -> dict[str, str]:
    """What is wrong with a host that came, if anything."""
    identity, name = said["identity"], said["name"]
    if said["number"] != number:
        return {
            "wrong": f"Host {identity} ({name}) was started as one of "
            f"{said['number']}, host 0 ({names[0]}) as one of {number}: start all "
            "with the same number of processes."
        }
    if identity in names:
        return {
            "wrong": f"Two processes were started as host {identity}, on "
            f"{names[identity]} and on {name}: give each its own number."
        }
    return {}


def _describe_missing(names: dict[int, str], number: int) -> str:
    missing = [str(i) for i in range(number) if i not in names]
    here = ", ".join(f"{i} ({name})" for i, name in sorted(names.items()))
    return (
        f"host {', '.join(missing)} of {number} did not come; here are {here}. See "
        "whether it was started, and whether it reaches host 0."
    )


def _answer(guest: socket.socket, answer: dict[str, Any]) -> None:
    """Tell a host. If all is over it ends first, so that the port is free at once."""
    guest.settimeout(_PATIENCE)
    with contextlib.suppress(OSError):
        guest.sendall(json.dumps(answer).encode() + b"\n")
        if "names" not in answer:
            guest.recv(1)
    if "names" not in answer:
        guest.close()


def _listen(port: int) -> socket.socket:
    """A socket on all addresses, as JAX's service will have one.

    Raises:
        ValueError: if something else listens there.
    """
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True
            )
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"Host 0 can't listen on port {port}: {error.strerror}. Choose another "
            "port in the address of host 0, for all hosts."
        ) from error


def _report(place: Place, end: float) -> _Meeting:
    """Another host: come to host 0 and wait for its answer."""
    host, port = place.address.rsplit(":", 1)
    said = {
        "identity": place.identity,
        "number": place.number,
        "name": socket.gethostname(),
    }
    reason = ""
    while time.monotonic() < end:
        with ExitStack() as stack:
            try:
                connection = socket.create_connection(
                    (host.strip("[]"), int(port)), 5.0
                )
                _keep_alive(stack.enter_context(connection))
                if connection.getsockname() == connection.getpeername():
                    continue  # Nobody listens, and the kernel took this port for it.
                connection.sendall(json.dumps(said).encode() + b"\n")
                answer = _hear(connection, max(0.0, end - time.monotonic()) + GRACE)
            except (OSError, ValueError) as error:
                reason = f" ({error})"
            else:
                if "names" in answer:
                    stack.pop_all()
                return _Meeting(answer, {0: connection})
        time.sleep(0.2)
    text = (
        f"host {place.identity} could not reach host 0 at {place.address}"
        f"{reason}. See whether that was started, and whether a firewall lets its "
        "port through."
    )
    return _Meeting({"missing": text}, {})
