"""Who is alive: each host says so every second, and hears who has stopped.

Through the key-value store of JAX's runtime. Host 0 looks at all beats and names the
host that fell silent; the others hear of it from there, and notice when host 0 itself
no longer answers. A host that stops on its own account leaves a note.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any


RESTART = 75
"""Exit code of a host that stops because another one was lost: to start again helps."""
INTERVAL = 1.0
"""Seconds between two beats."""
GRACE = 2.0
"""Seconds in which a host that stops for the same reason may say so itself."""

ALARM = 3.0
"""Seconds of silence that are worth telling, should this process end without a word."""

_BEATS = "symjax/beats/"
_NOTES = "symjax/notes/"


class Watch:
    """Two threads: one that beats and listens, one that judges.

    Attributes:
        client: Of JAX's runtime.
        own: This host.
        names: Of the machines, one a host.
        seconds: Silence that counts as death.
        end: Called once, in a thread, with an exit code, what happened, and whether
            others can be told.
        suspect: Called when other hosts fall silent or speak again, with the names of
            the silent ones and when they were last heard of, by `time.monotonic`.
    """

    def __init__(
        self,
        client: Any,
        own: int,
        names: list[str],
        seconds: float,
        end: Callable[[int, str, bool], None],
        suspect: Callable[[dict[str, float]], None],
    ) -> None:
        self.client = client
        self.own = own
        self.names = names
        self.seconds = seconds
        self.end = end
        self.suspect = suspect
        self.is_over = False
        now = time.monotonic()
        self._heard = now
        self._beats = {host: ("", now) for host in range(len(names)) if host != own}

    @property
    def patience(self) -> float:
        """Seconds after which every host has heard who was lost."""
        return self.seconds + GRACE + 4 * INTERVAL

    def begin(self) -> None:
        """Start the threads, if there is anybody to watch.

        A host alone would take the end of its own service, at its exit, for a loss.
        """
        if len(self.names) == 1:
            return
        for work in (self._listen, self._judge):
            threading.Thread(target=work, daemon=True).start()

    def leave_note(self, code: int, text: str, host: int | None = None) -> None:
        """Tell the others that a host stops, with which exit code, and why."""
        host = self.own if host is None else host
        note = json.dumps({"code": code, "text": text})
        self.client.key_value_set(f"{_NOTES}{host}", note, allow_overwrite=True)

    def wait_for_others(self, seconds: float) -> None:
        """Let others read the notes: without host 0 there is nothing to read from."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(self._notes()) < len(self.names):
            time.sleep(0.1)

    def name(self, host: int) -> str:
        """A host for a reader."""
        return f"Host {host} ({self.names[host]})"

    def _notes(self) -> dict[int, dict[str, Any]]:
        found = self.client.key_value_dir_get(_NOTES)
        return {int(key.rsplit("/", 1)[1]): json.loads(note) for key, note in found}

    def _listen(self) -> None:
        number = 0
        while not self.is_over:
            number += 1
            try:
                beat = f"{_BEATS}{self.own}"
                self.client.key_value_set(beat, str(number), allow_overwrite=True)
                beats = self.client.key_value_dir_get(_BEATS) if self.own == 0 else []
                notes = self._notes()
            except Exception:  # JAX names no type for what its client raises.
                return self._lose_contact()
            self._heard = time.monotonic()
            for key, value in beats:
                host = int(key.rsplit("/", 1)[1])
                if host != self.own and self._beats[host][0] != value:
                    self._beats[host] = (value, self._heard)
            for host, note in notes.items():
                time.sleep(GRACE)
                text = f"{self.name(host)} stopped: {note['text']}"
                return self._stop(note["code"], text)
            time.sleep(INTERVAL)
        return None

    def _judge(self) -> None:
        suspected: dict[str, float] = {}
        while not self.is_over:
            time.sleep(INTERVAL / 2)
            now = time.monotonic()
            heard = self._last_heard()
            silent = {
                self.name(host): last
                for host, last in heard.items()
                if now - last > ALARM
            }
            if silent != suspected:
                self.suspect(silent)
                suspected = silent
            for host, last in heard.items():
                if now - last > self.seconds:
                    return (
                        self._lose_contact() if host == 0 else self._declare_dead(host)
                    )
        return None

    def _last_heard(self) -> dict[int, float]:
        """Of the hosts that this one listens to: host 0 to all, the others to it."""
        if self.own:
            return {0: self._heard}
        return {host: heard for host, (_, heard) in self._beats.items()}

    def _lose_contact(self) -> None:
        text = f"{self.name(0)} was lost: it does not answer any more."
        self._stop(RESTART, text, can_tell=False)

    def _declare_dead(self, host: int) -> None:
        text = (
            f"it has not been heard of for {self.seconds:.0f} s. It was killed, hangs, "
            "or its network is cut."
        )
        self.leave_note(RESTART, text, host)
        self._stop(RESTART, f"{self.name(host)} was lost: {text}")

    def _stop(self, code: int, text: str, can_tell: bool = True) -> None:
        if not self.is_over:
            self.end(code, text, can_tell)
