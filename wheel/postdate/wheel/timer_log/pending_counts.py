"""Counts of the pending entries that hold back the low-water mark, one for each range of 4,096 request offsets.

A row of the column family `blocks` contains the number of entries of its range that are pending and not in STORE, and
the lowest offset put into the range since it was last empty. This offset is a lower bound of the offsets of the counted
entries, so a shard whose log begins at offset 1,000 reports 1,000 and not 0. A row is deleted when its count reaches 0.

Without regard to bulk controls, the low-water mark is the lowest offset of the first row, or the next request to read
if there is no row. It never exceeds the smallest offset of a counted entry, and both lie in the same range. A range
that does not become empty would hold the mark at the first offset put into it. So the timer log checks which requests
of the range have ended, and raises the lower bound (`raised`).

The rows change in the same WriteBatch as the entries. `changed` is pure except for the cache. The timer log calls
`keep` after the write has succeeded. Thread rule: the thread that owns the index uses it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from postdate.wheel.errors import Corrupt
from postdate.wheel.limits import RANGE_OFFSETS, RANGES_CACHED_MAX
from postdate.wheel.timer_log.write_delta import Unsigned, WriteDelta

_ROW = struct.Struct("<QQ")
_SMALL = 64  # for fewer offsets, a loop costs less than a dozen numpy calls


class RangeCount(NamedTuple):
    """A row: the number of pending entries of a range that are not in STORE, and a lower bound of their offsets."""

    pending: int
    lowest: int


EMPTY_RANGE = RangeCount(0, 2**64 - 1)


class PendingCounts:
    """The rows of `blocks`, read through a bounded cache."""

    def __init__(self, read: Callable[[int], bytes | None]) -> None:
        """`read` returns the stored bytes of a range's row, or None."""
        self._read = read
        self._cache: dict[int, RangeCount] = {}

    def changed(self, delta: WriteDelta) -> dict[int, RangeCount]:
        """Returns the new content of the rows that the changes alter. The caller deletes rows with 0 pending entries.
        Raises Corrupt if a count would be negative, or if a row does not decode."""
        counts: dict[int, int] = {}
        lowest: dict[int, int] = {}
        for column in (delta.gained, delta.parked_gained):
            _add(counts, lowest, column.counted_offsets())
        for column in (delta.lost, delta.parked_lost):
            _subtract(counts, column.counted_offsets())
        rows: dict[int, RangeCount] = {}
        for number, change in counts.items():
            before = self._row(number)
            count = before.pending + change
            if count < 0:
                raise Corrupt(f"row {number} of `blocks` counts {before.pending} entries, but {-change} ended")
            after = RangeCount(count, min(before.lowest, lowest.get(number, before.lowest))) if count else EMPTY_RANGE
            if after != before:
                rows[number] = after
        return rows

    def raised(self, number: int, lowest: int) -> RangeCount:
        """Returns a range's row with a higher lower bound. REQUIRES: the range has pending entries."""
        row = self._row(number)
        assert row.pending > 0, "a range without entries has no lowest offset"
        assert lowest >= row.lowest, "the lower bound of a range never falls"
        return row._replace(lowest=lowest)

    def keep(self, rows: dict[int, RangeCount]) -> None:
        """Caches rows that were written."""
        if len(self._cache) + len(rows) > RANGES_CACHED_MAX:
            self._cache.clear()
        self._cache.update(rows)

    def _row(self, number: int) -> RangeCount:
        row = self._cache.get(number)
        if row is None:
            data = self._read(number)
            row = EMPTY_RANGE if data is None else decode_count(data)
            if len(self._cache) < RANGES_CACHED_MAX:
                self._cache[number] = row
        return row


def encode_count(row: RangeCount) -> bytes:
    """Returns the 16 bytes of a row: count and lowest offset, little-endian."""
    return _ROW.pack(*row)


def decode_count(data: bytes) -> RangeCount:
    """Returns the row in 16 bytes. Raises Corrupt for any other length."""
    if len(data) != _ROW.size:
        raise Corrupt(f"a row of `blocks` has {len(data)} bytes")
    return RangeCount(*_ROW.unpack(data))


def _add(counts: dict[int, int], lowest: dict[int, int], offsets: Unsigned) -> None:
    if len(offsets) < _SMALL:
        for offset in offsets.tolist():
            number = offset // RANGE_OFFSETS
            counts[number] = counts.get(number, 0) + 1
            lowest[number] = min(lowest.get(number, offset), offset)
        return
    ordered = np.sort(offsets)
    numbers, first_indexes, range_counts = np.unique(
        ordered // np.uint64(RANGE_OFFSETS), return_index=True, return_counts=True
    )
    for number, low, count in zip(
        numbers.tolist(), ordered[first_indexes].tolist(), range_counts.tolist(), strict=True
    ):
        counts[number] = counts.get(number, 0) + count
        lowest[number] = min(lowest.get(number, low), low)


def _subtract(counts: dict[int, int], offsets: Unsigned) -> None:
    if len(offsets) < _SMALL:
        for offset in offsets.tolist():
            number = offset // RANGE_OFFSETS
            counts[number] = counts.get(number, 0) - 1
        return
    numbers, range_counts = np.unique(offsets // np.uint64(RANGE_OFFSETS), return_counts=True)
    for number, count in zip(numbers.tolist(), range_counts.tolist(), strict=True):
        counts[number] = counts.get(number, 0) - count
