"""How requests ended, kept for a while: a later control on one is answered with `too-late`.

Rows of the column family `ended`:

| key | value | kept |
| --- | --- | --- |
| `i`, generation u64, caller's id | request offset u64, 1 byte: 1 sent, 0 ended by a control | one to two windows |
| `o`, request offset u64 | nothing | as long as `firsts` names the request |

"Sent" is delivered or dead-lettered. A generation is as long as the window, so one range tombstone deletes a whole one.
The second kind of row is rare: a request that was pending, is no longer, and has no such row was sent.

Thread rule: that of the timer log.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from postdate.wheel import limits
from postdate.wheel.errors import Corrupt
from postdate.wheel.keys import number_key

_VALUE = struct.Struct(">QB")
_ID: Final = b"i"
_ORIGIN: Final = b"o"


class RecentOutcome(NamedTuple):
    """How the last request of an id ended."""

    offset: int
    sent: bool


def id_outcome_key(generation: int, caller_id: bytes) -> bytes:
    """The key under which the end of an id is kept."""
    return _ID + number_key(generation) + caller_id


def generation_key(generation: int) -> bytes:
    """The upper bound of the keys of this generation and of all before it."""
    return _ID + number_key(generation)


def control_end_key(offset: int) -> bytes:
    """The key whose presence means that a control ended the request."""
    return _ORIGIN + number_key(offset)


def encode_outcome(outcome: RecentOutcome) -> bytes:
    """The value under an `id_outcome_key`."""
    return _VALUE.pack(outcome.offset, outcome.sent)


def decode_outcome(data: bytes) -> RecentOutcome:
    """The inverse; raises Corrupt for other bytes."""
    try:
        offset, sent = _VALUE.unpack(data)
    except struct.error as error:
        raise Corrupt(f"an outcome of {len(data)} bytes does not decode: {error}") from error
    return RecentOutcome(offset, bool(sent))


class OutcomeWindow:
    """How long the ends of ids are kept, and how many: in the present generation and the one before it."""

    def __init__(self, window_ms: int) -> None:
        """`window_ms` 0 keeps none."""
        self._window_ms = window_ms
        self._generation = -1
        self._kept = 0
        self._outdated = -1

    def key(self, caller_id: bytes, at_ms: int) -> bytes | None:
        """The key for the outcome of an id at `at_ms`; None if it is not kept: a generation has a bounded number."""
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
        """The keys under which the outcome of an id may be found at `at_ms`, the latest first."""
        if self._window_ms == 0:
            return ()
        generation = at_ms // self._window_ms
        return tuple(id_outcome_key(number, caller_id) for number in (generation, generation - 1) if number >= 0)

    def outdated(self, at_ms: int) -> bytes | None:
        """The key below which every outcome is outdated; None if an earlier call returned it."""
        generation = at_ms // self._window_ms - 1 if self._window_ms else 0
        if generation <= self._outdated:
            return None
        self._outdated = generation
        return generation_key(generation)
