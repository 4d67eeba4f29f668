"""Limits the pending entries, the pending bytes and the requests per second of one shard. Beyond a limit, the shard
refuses requests.

A request topic belongs to one tenant. A tenant that exceeds a limit gets dead letters (`limit-exceeded`), and delays no
other tenant. Only requests to schedule count, since a control adds no message, and a cancel even removes one.

The rate is a token bucket over the timestamps of the requests, with the capacity of one second. So a shard that catches
up after an outage refuses no request that it would have accepted in time. The bucket is in memory only, and is full
after a restart.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.kafka.interface import Record
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.wheel.index import TimerIndex
from postdate.wire.errors import RequestRefused
from postdate.wire.reasons import Reason


class Quota:
    """The limits of one partition of a request topic. A limit of 0 in the configuration means no limit."""

    def __init__(self, topic: RequestTopicConfig) -> None:
        self._pending_max = topic.pending_max
        self._size_bytes_max = topic.pending_size_bytes_max
        self._per_second = topic.requests_per_second_max
        self.limits = bool(self._pending_max or self._size_bytes_max or self._per_second)
        self._tokens = float(self._per_second)
        self._filled_ms = -1
        self._pending = self._size_bytes = 0
        self._from_offset = 0

    def resume(self, offset: int) -> None:
        """Exempts requests below this offset: earlier owners have read them, and a request that one of them accepted
        must be accepted again."""
        self._from_offset = offset

    def begin(self, index: TimerIndex) -> None:
        """Reads the pending totals of the index before a batch."""
        totals = index.checkpoint.totals
        self._pending = index.count
        self._size_bytes = totals.entries_bytes + totals.parked_bytes

    def refusal(self, record: Record) -> RequestRefused | None:
        """Returns the refusal if the request exceeds a limit. Otherwise counts the request and returns None; does not
        count requests below the offset of `resume`."""
        if record.offset < self._from_offset:
            return None
        size_bytes = len(record.key or b"") + len(record.value or b"")
        if self._pending_max and self._pending >= self._pending_max:
            return _exceeded(f"{self._pending} requests are pending, the limit of a partition is {self._pending_max}")
        if self._size_bytes_max and self._size_bytes + size_bytes > self._size_bytes_max:
            return _exceeded(
                f"{self._size_bytes} bytes are pending, the limit of a partition is {self._size_bytes_max}"
            )
        if self._per_second and not self._spend(record.timestamp_ms):
            return _exceeded(f"more than {self._per_second} requests a second, the limit of a partition")
        self._pending += 1
        self._size_bytes += size_bytes
        return None

    def _spend(self, at_ms: int) -> bool:
        if at_ms > self._filled_ms:
            if self._filled_ms >= 0:
                filled = self._tokens + (at_ms - self._filled_ms) * self._per_second / 1000
                self._tokens = min(filled, float(self._per_second))
            self._filled_ms = at_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _exceeded(detail: str) -> RequestRefused:
    return RequestRefused(Reason.LIMIT_EXCEEDED, detail)
