"""The outcomes of ended requests, kept for a limited time. A later control gets the verdict `too-late` if the message
was sent, and `not-found` if another request ended it. A later request with `postdate-if-ended` is dropped if its id was
delivered.

Rows of the column family `ended`:

| key | value | kept |
| --- | --- | --- |
| `d`, hour u64, 16 bytes: a digest of the id, request offset u64 | epoch ms u64 | until the hour is forgotten |
| `i`, generation u64, caller's id | request offset u64, 1 byte: 1 if sent, 0 otherwise | one to two windows |
| `o`, request offset u64 | nothing | until `firsts` drops the request |

"Sent" means delivered or dead-lettered. A generation is as long as the window, and one range tombstone deletes it. A
row `o` means that another request ended this one: a control, or a request with the same id. Such rows are rare. A
message that is no longer pending was sent if it has no row `o`.

A row `d` is a delivery. Its time is the broker's timestamp of the dispatch-log record with the delivery, and determines
its hour. So all owners have the same rows. One range tombstone deletes all outdated hours. Each delivery has a separate
row, because an owner that replays the log reads a request after later deliveries of its id, and only earlier deliveries
count. A row takes about 30 bytes of disk and no memory. One process adds at most DELIVERED_IDS_PER_HOUR_MAX rows of an
hour, and at most DELIVERED_HOURS_MAX hours are kept. An id beyond these bounds is not remembered, so a repeated request
with this id is delivered.

Thread rule: the thread that owns the index uses it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from postdate.wheel import limits
from postdate.wheel.errors import Corrupt
from postdate.wheel.keys import key_number, number_key

_DELIVERED: Final = struct.Struct(">Q")
_OUTCOME: Final = struct.Struct(">QB")
_DELIVERED_ID: Final = b"d"
_ID: Final = b"i"
_ORIGIN: Final = b"o"
DELIVERED_END_KEY: Final = b"e"
"""The upper bound of all keys of delivered ids."""
_HOUR_MS: Final = 3_600_000
_HOUR_END: Final = 1 + 8
_OFFSET_AT: Final = _HOUR_END + 16


class RecentOutcome(NamedTuple):
    """How the last request of an id ended."""

    offset: int
    sent: bool


def id_outcome_key(generation: int, caller_id: bytes) -> bytes:
    """Returns the key of the row with the outcome of an id."""
    return _ID + number_key(generation) + caller_id


def generation_key(generation: int) -> bytes:
    """Returns the lower bound of the keys of this generation, and the upper bound of the keys of all earlier ones."""
    return _ID + number_key(generation)


def control_end_key(offset: int) -> bytes:
    """Returns the key of a row `o`. If it is present, another request has ended the request at `offset`."""
    return _ORIGIN + number_key(offset)


def encode_outcome(outcome: RecentOutcome) -> bytes:
    """Returns the value under an `id_outcome_key`."""
    return _OUTCOME.pack(outcome.offset, outcome.sent)


def decode_outcome(data: bytes) -> RecentOutcome:
    """Returns the outcome in bytes from `encode_outcome`. Raises Corrupt for other bytes."""
    try:
        offset, sent = _OUTCOME.unpack(data)
    except struct.error as error:
        raise Corrupt(f"an outcome of {len(data)} bytes does not decode: {error}") from error
    return RecentOutcome(offset, bool(sent))


class OutcomeWindow:
    """The window in which outcomes of ids are kept: the present generation and the previous one. One process adds a
    bounded number of outcomes to each."""

    def __init__(self, window_ms: int) -> None:
        """`window_ms` 0 keeps no outcome."""
        self._window_ms = window_ms
        self._generation = -1
        self._kept = 0
        self._outdated = -1

    def key(self, caller_id: bytes, at_ms: int) -> bytes | None:
        """Returns the key for the outcome of an id at `at_ms`. Returns None if the outcome is not kept, because the
        generation is full or the window is 0."""
        if self._window_ms == 0:
            return None
        generation = at_ms // self._window_ms
        if generation != self._generation:
            self._generation, self._kept = generation, 0
        if self._kept >= limits.OUTCOMES_PER_WINDOW_MAX:
            return None
        self._kept += 1
        return id_outcome_key(generation, caller_id)

    def keys(self, caller_id: bytes, at_ms: int) -> tuple[bytes, ...]:
        """Returns the keys that may have the outcome of an id at `at_ms`, the latest first."""
        if self._window_ms == 0:
            return ()
        generation = at_ms // self._window_ms
        return tuple(id_outcome_key(number, caller_id) for number in (generation, generation - 1) if number >= 0)

    def outdated(self, at_ms: int) -> bytes | None:
        """Returns the key below which every outcome is outdated, or None if an earlier call returned this key or a
        higher one."""
        generation = at_ms // self._window_ms - 1 if self._window_ms else 0
        if generation <= self._outdated:
            return None
        self._outdated = generation
        return generation_key(generation)


class DeliveredId(NamedTuple):
    """A delivery of an id: the offset of its request, and the broker's time of its dispatch-log record."""

    offset: int
    at_ms: int


def hour_key(hour: int) -> bytes:
    """Returns the lower bound of the keys of this hour, and the upper bound of the keys of all earlier hours."""
    return _DELIVERED_ID + number_key(hour)


def encode_delivered(at_ms: int) -> bytes:
    """Returns the value of a row `d`."""
    return _DELIVERED.pack(at_ms)


def decode_delivered(key: bytes, value: bytes) -> DeliveredId:
    """Returns the delivery in a row `d`. Raises Corrupt for other bytes."""
    try:
        return DeliveredId(key_number(key[_OFFSET_AT:]), *_DELIVERED.unpack(value))
    except struct.error as error:
        raise Corrupt(f"a delivered id of {len(key)} and {len(value)} bytes does not decode: {error}") from error


def is_same_id(key: bytes, other: bytes) -> bool:
    """Returns True if the keys of two rows `d` have the same id and hour."""
    return key[:_OFFSET_AT] == other[:_OFFSET_AT]


class DeliveredIds:
    """The hours that have rows `d`, and how many of these rows this process has added."""

    def __init__(self, window_ms: int) -> None:
        """`window_ms`: the time for which a delivery counts; 0 remembers no delivery."""
        self.window_ms = window_ms
        self._added: dict[int, int] = {}

    def load(self, first_key: Callable[[bytes], bytes | None]) -> None:
        """Finds the hours that have rows. `first_key` returns the first key at or above its argument. O(hours)."""
        start = hour_key(0)
        while (key := first_key(start)) is not None:
            hour = int.from_bytes(key[1:_HOUR_END], "big")
            self._added[hour] = 0
            start = hour_key(hour + 1)

    def has_any(self) -> bool:
        """Returns True if an hour has rows."""
        return bool(self._added)

    def key(self, digest: bytes, offset: int, at_ms: int) -> bytes | None:
        """Returns the key of a new row, or None if the id is not remembered."""
        if self.window_ms == 0:
            return None
        hour = at_ms // _HOUR_MS
        added = self._added.get(hour, 0)
        if added >= limits.DELIVERED_IDS_PER_HOUR_MAX:
            return None
        self._added[hour] = added + 1
        return hour_key(hour) + digest + number_key(offset)

    def keys(self, digest: bytes, offset: int, since_ms: int) -> list[bytes]:
        """Returns a key for each hour that has rows, from the hour of `since_ms` on: the upper bound (inclusive) of the
        keys of this id with request offsets up to `offset`. The latest hour comes first."""
        first, of_id = since_ms // _HOUR_MS, digest + number_key(offset)
        return [hour_key(hour) + of_id for hour in sorted(self._added, reverse=True) if hour >= first]

    def outdated(self, at_ms: int) -> bytes | None:
        """Returns the key below which rows are outdated, or None if there are no such rows. Rows are outdated if no
        request that is written at or after `at_ms` needs them, or if DELIVERED_HOURS_MAX later hours have rows.

        Keeps one more hour, since the timestamps of requests may go back.
        """
        first = (at_ms - self.window_ms) // _HOUR_MS - 1
        hours = sorted(self._added)
        if len(hours) > limits.DELIVERED_HOURS_MAX:
            first = max(first, hours[-limits.DELIVERED_HOURS_MAX])
        old = [hour for hour in hours if hour < first]
        for hour in old:
            del self._added[hour]
        return hour_key(first) if old else None
