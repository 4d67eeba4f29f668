"""Marks entries that are pending for longer than expected, so that they are stored before retention deletes their
requests.

Thread rule: a `Sweep` belongs to the shard's thread.
"""

from __future__ import annotations

import msgspec

from postdate.sidecar.dispatch.limits import SWEEP_OFFSETS_MAX
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.limits import ENDING_ENTRIES_MAX, ENDING_SIZE_BYTES_MAX
from postdate.wheel.entry import PENDING, Kind
from postdate.wheel.index import TimerIndex


class Sweep:
    """Marks entries that are still pending, and not stored, when the age of their request is half of the retention,
    such as parked entries. The next transaction stores them.

    A sweep visits the requests in order, each once, and stops at the first such entry below this age, since later
    requests are normally younger still. It then rests until that request is old enough, but for at most an eighth of
    the age, since a broker's clock may have gone back. Its state is in memory only: after a restart it begins at the
    low-water mark again, and skips ranges of 4,096 offsets that contain only stored entries.
    """

    def __init__(self, age_ms: int) -> None:
        """`age_ms`: the age at which a pending request is stored; 0: never."""
        self._age_ms = age_ms
        self._next = 0
        self._rests_until_ms = 0
        self._index: TimerIndex | None = None

    def step(self, index: TimerIndex, now_ms: int) -> int:
        """Visits a bounded number of requests. Returns how many entries the next transaction will store.

        These entries are moved under key 0, which must stay within the bounds of rule 1.
        """
        if not self._age_ms or index.timer_log.bulks:  # entries that a bulk control selects must keep their keys
            return 0
        if index is not self._index:  # a rebuilt index may contain earlier entries that are not stored
            self._index, self._next, self._rests_until_ms = index, 0, 0
        if now_ms < self._rests_until_ms:
            return 0
        first = index.timer_log.unstored_from(max(self._next, index.timer_log.low_water()))
        if first is None:
            return 0
        overlay, marked, visited_to = IndexOverlay(index), 0, self._next
        for offset in range(first, min(first + SWEEP_OFFSETS_MAX, read_up_to(index))):
            if overlay.ending_count >= ENDING_ENTRIES_MAX or overlay.ending_bytes >= ENDING_SIZE_BYTES_MAX:
                break
            key = overlay.find(offset)
            entry = None if key is None else overlay.entry(key)
            if key is not None and entry is not None and entry.kind in PENDING and not entry.stored:
                if entry.accepted_ms > now_ms - self._age_ms:
                    self._rests_until_ms = min(entry.accepted_ms + self._age_ms, now_ms + max(self._age_ms // 8, 1))
                    break
                if entry.kind == Kind.DELIVER:
                    overlay.move(key, offset, entry, msgspec.structs.replace(entry, kind=Kind.STORE))
                    marked += 1
            visited_to = offset + 1
        if marked:
            overlay.write()
        self._next = visited_to
        return marked
