"""Number of entries that hold the low-water mark back, by block of 4,096 request offsets.

A row contains the number of entries of the block that are pending and not in STORE, and the lowest offset put into the
block since it was last empty. That offset is a lower bound of the smallest pending one, so a shard whose log begins at
offset 1,000 reports 1,000 and not 0. A row is deleted when its count reaches 0.

L = lowest offset of the first row, or R if there is no row. L never exceeds the smallest pending offset, and it is less
than a block below it. A block that never becomes empty would hold L back until it is full, so the timer log checks
which of its requests have ended and raises the bound (`raised`).

The rows change in the same WriteBatch as the entries. `changed` is pure except for the cache; `keep` is called once
the write has succeeded. Thread rule: that of the timer log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from postdate.wheel.errors import Corrupt
from postdate.wheel.limits import BLOCK_OFFSETS, BLOCKS_CACHED_MAX
from postdate.wheel.timer_log.write_delta import Unsigned, WriteDelta

_ROW = struct.Struct("<QQ")
_SMALL = 64  # below it a loop costs less than a dozen numpy calls


class Block(NamedTuple):
    """A row: entries that count, and a lower bound of their offsets."""

    pending: int
    lowest: int


NO_BLOCK = Block(0, 2**64 - 1)


class Blocks:
    """The rows of `blocks`, read through a bounded cache."""

    def __init__(self, read: Callable[[int], bytes | None]) -> None:
        """`read` returns the stored bytes of a block's row, or None."""
        self._read = read
        self._cache: dict[int, Block] = {}

    def changed(self, delta: WriteDelta) -> dict[int, Block]:
        """The rows that differ after the changes; 0 pending deletes a row. Corrupt if a count would be negative."""
        counts: dict[int, int] = {}
        lowest: dict[int, int] = {}
        for column in (delta.gained, delta.parked_gained):
            _add(counts, lowest, column.block_offsets())
        for column in (delta.lost, delta.parked_lost):
            _subtract(counts, column.block_offsets())
        rows: dict[int, Block] = {}
        for number, change in counts.items():
            before = self._row(number)
            count = before.pending + change
            if count < 0:
                raise Corrupt(f"block {number} counts {before.pending} entries, but {-change} ended")
            after = Block(count, min(before.lowest, lowest.get(number, before.lowest))) if count else NO_BLOCK
            if after != before:
                rows[number] = after
        return rows

    def raised(self, number: int, lowest: int) -> Block:
        """Returns a block's row with a higher lower bound. REQUIRES: the block counts entries."""
        block = self._row(number)
        assert block.pending > 0, "a block without entries has no lowest offset"
        assert lowest >= block.lowest, "the lower bound of a block never falls"
        return block._replace(lowest=lowest)

    def keep(self, rows: dict[int, Block]) -> None:
        """Remember rows that were written."""
        if len(self._cache) + len(rows) > BLOCKS_CACHED_MAX:
            self._cache.clear()
        self._cache.update(rows)

    def _row(self, number: int) -> Block:
        row = self._cache.get(number)
        if row is None:
            data = self._read(number)
            row = NO_BLOCK if data is None else decode_block(data)
            if len(self._cache) < BLOCKS_CACHED_MAX:
                self._cache[number] = row
        return row


def encode_block(block: Block) -> bytes:
    """The 16 bytes of a row: count, lowest offset; little-endian."""
    return _ROW.pack(*block)


def decode_block(data: bytes) -> Block:
    """The row of 16 bytes; raises Corrupt for any other length."""
    if len(data) != _ROW.size:
        raise Corrupt(f"a row of `blocks` has {len(data)} bytes")
    return Block(*_ROW.unpack(data))


def _add(counts: dict[int, int], lowest: dict[int, int], offsets: Unsigned) -> None:
    if len(offsets) < _SMALL:
        for offset in offsets.tolist():
            number = offset // BLOCK_OFFSETS
            counts[number] = counts.get(number, 0) + 1
            lowest[number] = min(lowest.get(number, offset), offset)
        return
    ordered = np.sort(offsets)
    numbers, first, found = np.unique(ordered // np.uint64(BLOCK_OFFSETS), return_index=True, return_counts=True)
    for number, low, count in zip(numbers.tolist(), ordered[first].tolist(), found.tolist(), strict=True):
        counts[number] = counts.get(number, 0) + count
        lowest[number] = min(lowest.get(number, low), low)


def _subtract(counts: dict[int, int], offsets: Unsigned) -> None:
    if len(offsets) < _SMALL:
        for offset in offsets.tolist():
            number = offset // BLOCK_OFFSETS
            counts[number] = counts.get(number, 0) - 1
        return
    numbers, found = np.unique(offsets // np.uint64(BLOCK_OFFSETS), return_counts=True)
    for number, count in zip(numbers.tolist(), found.tolist(), strict=True):
        counts[number] = counts.get(number, 0) - count
