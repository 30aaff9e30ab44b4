"""The first meeting of all hosts, before JAX's own.

JAX ends every process without naming anyone if one of them does not come. So they first
meet on the port on which its service will then listen: host 0 counts who has come, and
when the time is up tells all who is there which are not.
"""

import json
import socket
import time
from contextlib import ExitStack, closing
from typing import Any

from symjax.hosts.places import Place


GRACE = 5.0
"""Seconds that others wait for the answer of host 0 after the time is up."""


class NotAllCame(RuntimeError):
    """A host is missing; to start again may help."""


def meet(place: Place, seconds: float) -> list[str]:
    """Wait until every host has come.

    Args:
        place: Of this process.
        seconds: How long.

    Returns:
        The machines' names, in the order of the hosts.

    Raises:
        NotAllCame: naming the hosts that did not.
        ValueError: if hosts disagree on their number, or two have the same one.
    """
    meeting = _receive if place.identity == 0 else _report
    answer = meeting(place, time.monotonic() + seconds)
    if "wrong" in answer:
        raise ValueError(answer["wrong"])
    if "missing" in answer:
        raise NotAllCame(f"Within {seconds:.0f} s {answer['missing']}")
    return answer["names"]


def _receive(place: Place, end: float) -> dict[str, Any]:
    """Host 0: collect the others and answer them."""
    port = int(place.address.rsplit(":", 1)[1])
    names = {0: socket.gethostname()}
    with ExitStack() as stack:
        server = stack.enter_context(_listen(port))
        guests = []
        answer: dict[str, Any] = {}
        while len(names) < place.number and not answer:
            server.settimeout(max(0.0, end - time.monotonic()) or 1e-3)
            try:
                guest, _ = server.accept()
            except TimeoutError:
                answer = {"missing": _describe_missing(names, place.number)}
                break
            guest.settimeout(2.0)
            try:
                said = json.loads(guest.makefile().readline())
                identity = said["identity"]
            except (OSError, ValueError, TypeError, LookupError):
                guest.close()  # Somebody else who tried the port.
                continue
            guests.append(stack.enter_context(guest))
            answer = _contradiction(said, place.number, names)
            names[identity] = said["name"]
        answer = answer or {"names": [names[i] for i in range(place.number)]}
        for guest in guests:
            _answer(guest, answer)
    return answer


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
    """Tell a host; it closes first, so that the port is free at once."""
    try:
        guest.sendall(json.dumps(answer).encode() + b"\n")
        guest.recv(1)
    except OSError:
        pass


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


def _report(place: Place, end: float) -> dict[str, Any]:
    """Another host: come to host 0 and wait for its answer."""
    host, port = place.address.rsplit(":", 1)
    said = {
        "identity": place.identity,
        "number": place.number,
        "name": socket.gethostname(),
    }
    reason = ""
    while time.monotonic() < end:
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), 5.0)
            with closing(connection):
                connection.sendall(json.dumps(said).encode() + b"\n")
                connection.settimeout(max(0.0, end - time.monotonic()) + GRACE)
                line = connection.makefile().readline()
            if line:
                return json.loads(line)
        except (OSError, ValueError) as error:
            reason = f" ({error})"
        time.sleep(0.2)
    return {
        "missing": f"host {place.identity} could not reach host 0 at {place.address}"
        f"{reason}. See whether that was started, and whether a firewall lets its "
        "port through."
    }
