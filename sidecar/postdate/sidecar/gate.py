"""The cancel gate: what may leave while requests that could change it are not read yet.

With the gate closed a message leaves only if its due time is not after the timestamp of the last request read: a cancel
that was written before the due time then wins, also where nobody was there to read it. `takeover`: closed until the
requests that were there at the takeover have been read. `always`: never open. `off`: never closed.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.config import CancelGate


class Gate:
    """How far the requests have been read, in offsets and in their time."""

    def __init__(self, mode: CancelGate) -> None:
        self.always = mode == "always"
        self._off = mode == "off"
        self._open = False
        self._end = 0
        self._seen_ms = -1

    def close(self, end: int, anew: bool) -> None:
        """A takeover: requests below `end` are to be read first; `anew`, those read before count for nothing."""
        self._open, self._end = False, end
        if anew:
            self._seen_ms = -1

    def read(self, timestamp_ms: int) -> None:
        """Requests up to one of this timestamp have been read."""
        self._seen_ms = max(self._seen_ms, timestamp_ms)

    def reached(self, offset: int) -> bool:
        """True where everything that was there at the takeover lies below `offset`; the gate is open from then on."""
        self._open = self._open or offset >= self._end
        return self._open

    def before_ms(self, now_ms: int) -> int:
        """What is due before this may leave: its whole millisecond has passed, and the gate lets it through."""
        if self._off or (self._open and not self.always):
            return now_ms
        return min(now_ms, self._seen_ms + 1)
