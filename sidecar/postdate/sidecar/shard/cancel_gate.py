"""The cancel gate: holds messages back while requests that could change them are unread.

While the gate is closed, a message may leave only if its due time is not after the highest timestamp of the requests
read. So a cancel that was written before the due time wins, even if no process was running then. Modes: `takeover`
closes the gate until the requests that existed at the takeover have been read. `always` never opens it; once all
requests are read, messages up to the present time may leave. `off` never closes it.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.config.settings import CancelGateMode


class CancelGate:
    """The cancel gate of one shard: it is open or closed, and knows how far requests have been read."""

    def __init__(self, mode: CancelGateMode) -> None:
        self.always = mode == "always"
        self._off = mode == "off"
        self._open = False
        self._end = 0
        self.read_ms = -1  # requests up to this timestamp have been read; -1: not known

    def close(self, end: int, forgets_reads: bool) -> None:
        """Closes the gate after a takeover, until the requests below `end` have been read. `forgets_reads`: earlier
        reads do not count."""
        self._open, self._end = False, end
        if forgets_reads:
            self.read_ms = -1

    def note_read(self, timestamp_ms: int) -> None:
        """Notes that the requests up to this timestamp have been read. The mode `always` also passes the present time,
        once all requests are read."""
        self.read_ms = max(self.read_ms, timestamp_ms)

    def try_open(self, offset: int) -> bool:
        """Opens the gate if `offset` has reached the end, for `read_committed`, of the request topic at the takeover.
        Returns True if the gate was opened, now or since the last `close`. The mode may still override this in
        `before_ms`."""
        self._open = self._open or offset >= self._end
        return self._open

    def before_ms(self, now_ms: int) -> int:
        """Returns the time, epoch ms, before which messages must be due to pass the gate. It is at most `now_ms`, so
        their whole due millisecond has passed."""
        if self._off or (self._open and not self.always):
            return now_ms
        return min(now_ms, self.read_ms + 1)
