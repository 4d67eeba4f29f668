"""Timer indexes for tests: tiny rings that wrap after milliseconds, functions that fill them, and a heap as the
reference."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from pathlib import Path

from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wheel.timing_wheel.platform import Platform
from postdate.wheel.timing_wheel.wheel_view import WheelSnapshot

IDENTITY = Identity("cluster-1", "requests-id", "dispatch-log-id", 3)
TINY = IndexOptions(tick_ms=1, fine_slots=4, hour_ms=2, hour_slots=4)
NOW_MS = 1_000


def open_index(
    directory: Path,
    options: IndexOptions = TINY,
    now_ms: int = NOW_MS,
    identity: Identity = IDENTITY,
    platform: Platform | None = None,
) -> TimerIndex:
    """Opens a timer index with the identity that all tests share."""
    return TimerIndex.open(directory, identity, options, now_ms, platform)


def put_entries(index: TimerIndex, keys: Iterable[tuple[int, int]], size_bytes: int = 10) -> None:
    """Puts entries of the same size in one write; the next request to read then follows the highest offset."""
    changes = EntryChanges()
    pairs = list(keys)
    for due_ms, offset in pairs:
        changes.insert(entry_key(due_ms, offset), bytes(size_bytes))
    changes.next_request = max((offset for _, offset in pairs), default=-1) + 1
    index.write(changes)


def note_firsts(index: TimerIndex, first_offset: int, dues_ms: list[int]) -> None:
    """Records the first due times of consecutive requests in one write."""
    changes = EntryChanges()
    changes.firsts.append((first_offset, struct.pack(f"<{len(dues_ms)}Q", *dues_ms)))
    index.write(changes)


def finish_wheel(index: TimerIndex, now_ms: int) -> None:
    """Loads or rebuilds the wheel until it is complete; fails if it never is."""
    for _ in range(100_000):
        if not index.load_step(now_ms, keys_max=7):
            return
    raise AssertionError("the wheel is never finished")


def drain(index: TimerIndex, before_ms: int, limit: int = 1_000_000) -> list[tuple[int, int]]:
    """Scans and ends all due entries in small steps, as a dispatcher does; returns them."""
    result: list[tuple[int, int]] = []
    while True:
        keys, values = index.scan_due(before_ms, limit)
        if not keys:
            return result
        changes = EntryChanges()
        changes.delete_span(keys[0], keys[-1], keys, [len(value) for value in values])
        index.write(changes)
        result += [split_key(key) for key in keys]


def counted_twice(snapshot: WheelSnapshot) -> tuple[int, int]:
    """Returns the total that is counted at each change, and the sum over all slots. They are equal in every consistent
    copy."""
    rings = snapshot._rings
    slots = rings.fine.sums()[0] + rings.hours.sums()[0]
    return rings.total.count, slots + rings.overdue.count + rings.ending.count + rings.beyond.count


class HeapTimer:
    """The reference implementation: all entries in a heap, and their sizes in a dict."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[int, int]] = []

    def put(self, due_ms: int, offset: int, size_bytes: int) -> None:
        """Adds an entry."""
        self.held[due_ms, offset] = size_bytes
        heapq.heappush(self._heap, (due_ms, offset))

    def remove(self, due_ms: int, offset: int) -> int:
        """Removes an entry; returns its size."""
        return self.held.pop((due_ms, offset))

    def first(self) -> tuple[int, int] | None:
        """Returns the earliest entry."""
        while self._heap and self._heap[0] not in self.held:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def due(self, before_ms: int) -> list[tuple[int, int]]:
        """Returns all entries due before a time, in order."""
        return sorted(key for key in self.held if key[0] < before_ms)
