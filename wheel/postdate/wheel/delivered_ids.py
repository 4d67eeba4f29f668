"""The ids of delivered messages, kept for a while: a later request may ask to be dropped for one.

Rows of the column family `ended`:

| key | value | kept |
| --- | --- | --- |
| `d`, hour u64, 16 bytes: a digest of the id, request offset u64 | epoch ms u64 | until the hour is forgotten |

The time is that of the dispatch-log record with the delivery, by the broker's clock, and the hour is that of this time.
So all owners have the same rows, and one range tombstone deletes an hour. Each delivery has a separate row: an owner
that replays the log reads requests after later deliveries of their id, and only earlier deliveries count. A row takes
about 30 bytes of disk and no memory. One process adds at most DELIVERED_IDS_PER_HOUR_MAX rows of an hour, and at most
DELIVERED_HOURS_MAX hours are kept. An id beyond these bounds is not remembered, so its repetition is delivered.

Thread rule: that of the timer log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from postdate.wheel import limits
from postdate.wheel.errors import Corrupt
from postdate.wheel.keys import key_number, number_key

_VALUE = struct.Struct(">Q")
_PREFIX: Final = b"d"
_HOUR_MS: Final = 3_600_000
_HOUR_END: Final = 1 + 8
_OFFSET_AT: Final = _HOUR_END + 16
END_KEY: Final = b"e"
"""The upper bound of all keys."""


class DeliveredId(NamedTuple):
    """A delivery of an id: the offset of its request, and the broker's time of its dispatch-log record."""

    offset: int
    at_ms: int


def hour_key(hour: int) -> bytes:
    """The lower bound of the keys of this hour, and the upper bound of those of all hours before it."""
    return _PREFIX + number_key(hour)


def encode_delivered(at_ms: int) -> bytes:
    """The value of a row."""
    return _VALUE.pack(at_ms)


def decode_delivered(key: bytes, value: bytes) -> DeliveredId:
    """The delivery of a row; raises Corrupt for other bytes."""
    try:
        return DeliveredId(key_number(key[_OFFSET_AT:]), *_VALUE.unpack(value))
    except struct.error as error:
        raise Corrupt(f"a delivered id of {len(key)} and {len(value)} bytes does not decode: {error}") from error


def is_same_id(key: bytes, other: bytes) -> bool:
    """True if the rows under these keys are of the same id and hour."""
    return key[:_OFFSET_AT] == other[:_OFFSET_AT]


class DeliveredIds:
    """The hours that have rows, and how many rows of each this process has added."""

    def __init__(self, window_ms: int) -> None:
        """`window_ms`: how long a delivery counts; 0 remembers none."""
        self.window_ms = window_ms
        self._added: dict[int, int] = {}

    def load(self, first_key: Callable[[bytes], bytes | None]) -> None:
        """Finds the hours that have rows; `first_key` returns the first key at or above another one. O(hours)."""
        at = hour_key(0)
        while (found := first_key(at)) is not None:
            hour = int.from_bytes(found[1:_HOUR_END], "big")
            self._added[hour] = 0
            at = hour_key(hour + 1)

    def has_any(self) -> bool:
        """True if an hour has rows."""
        return bool(self._added)

    def key(self, digest: bytes, offset: int, at_ms: int) -> bytes | None:
        """The key of a new row; None if the id is not remembered."""
        if self.window_ms == 0:
            return None
        hour = at_ms // _HOUR_MS
        added = self._added.get(hour, 0)
        if added >= limits.DELIVERED_IDS_PER_HOUR_MAX:
            return None
        self._added[hour] = added + 1
        return hour_key(hour) + digest + number_key(offset)

    def keys(self, digest: bytes, offset: int, since_ms: int) -> list[bytes]:
        """The greatest keys that a delivery of a request up to `offset` may have, for each hour from `since_ms` on, the
        latest first."""
        first, of_id = since_ms // _HOUR_MS, digest + number_key(offset)
        return [hour_key(hour) + of_id for hour in sorted(self._added, reverse=True) if hour >= first]

    def outdated(self, at_ms: int) -> bytes | None:
        """The key below which no request that is written at or after `at_ms` needs a row; None if there is no such row.

        One more hour is kept, since the timestamps of requests may go back.
        """
        first = (at_ms - self.window_ms) // _HOUR_MS - 1
        hours = sorted(self._added)
        if len(hours) > limits.DELIVERED_HOURS_MAX:
            first = max(first, hours[-limits.DELIVERED_HOURS_MAX])
        old = [hour for hour in hours if hour < first]
        for hour in old:
            del self._added[hour]
        return hour_key(first) if old else None
