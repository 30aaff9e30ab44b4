"""Ctrl-C and SIGTERM, turned into a wish that is heard between chunks."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from symjax.run.errors import Preempted, Stopped


class Signal:
    """What was asked for, so far."""

    NONE, INTERRUPT, TERMINATE = range(3)
    kind = NONE


def raise_stopped(kind: int, message: str) -> NoReturn:
    """End a run that a signal of this kind has asked to stop.

    Raises:
        Preempted: after SIGTERM.
        Stopped: after Ctrl-C.
    """
    if kind == Signal.TERMINATE:
        raise Preempted(message)
    raise Stopped(message)


@contextmanager
def stop_signal(is_taken: bool) -> Iterator[Signal]:
    """Take the first Ctrl-C or SIGTERM as a request; a second one acts at once.

    Args:
        is_taken: False to leave signals alone.

    Yields:
        What becomes the request.
    """
    asked = Signal()
    if not is_taken or threading.current_thread() is not threading.main_thread():
        yield asked
        return
    kinds = {signal.SIGINT: Signal.INTERRUPT, signal.SIGTERM: Signal.TERMINATE}
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    def request(number: int, _: Any) -> None:
        asked.kind = kinds[signal.Signals(number)]
        restore()

    for kind in kinds:
        signal.signal(kind, request)
    try:
        yield asked
    finally:
        restore()
