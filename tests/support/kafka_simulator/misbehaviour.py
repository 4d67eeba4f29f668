"""Topics with a fault while the cluster has none: they refuse records by their value, or limit the records per second.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable

from support.kafka_simulator.time import SimTime


class Misbehaviour:
    """The fault of one topic. `refuses` decides by the value of a record; `per_second` is the maximum number of records
    per second, 0: no limit."""

    def __init__(
        self, time: SimTime, refuses: Callable[[bytes | None], bool] | None = None, per_second: float = 0.0
    ) -> None:
        self._time = time
        self._refuses = refuses
        self._per_second = per_second
        self._free = per_second
        self._free_at_ms = time.now_ms

    def refuses(self, value: bytes | None) -> bool:
        """True if the record is refused, however often it is sent."""
        return self._refuses is not None and self._refuses(value)

    def takes(self) -> bool:
        """True if the rate permits one more record now, and counts that record; otherwise it must wait."""
        if not self._per_second:
            return True
        now_ms = self._time.now_ms
        self._free = min(self._free + (now_ms - self._free_at_ms) * self._per_second / 1000, self._per_second)
        self._free_at_ms = now_ms
        if self._free < 1:
            return False
        self._free -= 1
        return True
