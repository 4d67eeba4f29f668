"""Chooses the time of a message with `postdate-spread: even`: the tick of its window with the fewest due entries.

A message with an even spread has a drawn moment, which is always a valid choice. Around it lies its *section*: the
whole window, or, if that is longer than the span, the part of the window that contains the drawn moment. The emptiest
tick of the section is chosen. Of several, the first at or after the drawn moment is chosen; if there is none, the first
of the section. If the section has whole ticks, only these are chosen: half a tick would get twice the rate. Worked
example, tick 1 s, window [10 s, 15 s), drawn 12.3 s:

    entries in the ticks 10 to 14     2 1 1 1 2    ->    tick 12, at 12.3 s
    the same for the next message     2 1 2 1 2    ->    tick 13
    and the one after that            2 1 2 2 2    ->    tick 11

The draw breaks the tie, since many shards with few messages would otherwise all use the first ticks of the window.

The choices of one batch take account of all earlier changes of the batch, although the wheel counts these only after
the write. The rings are a hint: wrong counts make the load less even, and a chosen moment still lies in the window.

Cost: O(ticks of the section), at most 18,000, for the first message of a section: 3 us for 600 ticks, 20 us for 18,000.
About 1 us for a message with the same section as the one before it.
Thread rule: that of the timer index. Belongs to one batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from postdate.wheel import limits
from postdate.wheel.keys import split_key
from postdate.wheel.timer_log.write_delta import Signed
from postdate.wheel.timing_wheel.layout import Geometry
from postdate.wheel.timing_wheel.rings import Rings


def span_ms(geometry: Geometry) -> int:
    """Returns the length of the longest section. The fine ring holds the next hour at least, so a section is known
    half an hour before its moments at the latest."""
    return min(geometry.hour_ms // 2, limits.SPREAD_TICKS_MAX * geometry.tick_ms)


def known_before_ms(rings: Rings) -> int:
    """Returns a time: the section of each earlier moment is in the fine ring. 0 while the wheel is being built."""
    geometry = rings.geometry
    return 0 if rings.building else max(0, rings.cursor[0] - span_ms(geometry) - geometry.tick_ms)


class EvenSpread:
    """The choices of one batch of changes. The caller reports each change of the batch by `count`, also those that
    follow from a choice."""

    def __init__(self, rings: Rings, now_ms: int, put: Iterable[bytes]) -> None:
        """`now_ms`: only ticks that begin later are chosen. `put`: the keys of entries that the batch has put."""
        geometry = rings.geometry
        self._rings = rings
        self._tick_ms = geometry.tick_ms
        self._span_ms = span_ms(geometry)
        self._first_tick = max(now_ms // geometry.tick_ms + 1, rings.window)
        self._end_tick = 0 if rings.building else rings.cursor[0] // geometry.tick_ms
        self._size = geometry.fine_slots
        self._changes: Signed = np.zeros(self._size, dtype=np.int64)  # of this batch, for each slot
        # The last section: its ticks, their loads, the lowest load, and the ticks that have it if they were needed.
        self._section = (0, 0)
        self._loads: Signed = self._changes[:0]
        self._lowest = 0
        self._emptiest: list[int] = []
        for key in put:
            self.count(split_key(key)[0], 1)

    def choose(self, due_ms: int, last_ms: int, drawn_ms: int, is_counted: bool = False) -> int | None:
        """Returns the chosen moment in [`due_ms`, `last_ms`]; None if the fine ring does not know the section yet.

        `drawn_ms` lies in the same range. It is returned if no later tick of the section is left. `is_counted`: the
        message is counted at `drawn_ms` already.
        """
        if last_ms - due_ms >= self._span_ms:
            due_ms += (drawn_ms - due_ms) // self._span_ms * self._span_ms
            last_ms = min(last_ms, due_ms + self._span_ms - 1)
        tick_ms = self._tick_ms
        first, end, drawn_tick = -(-due_ms // tick_ms), (last_ms + 1) // tick_ms, drawn_ms // tick_ms
        if first >= end:  # no whole tick
            first, end = due_ms // tick_ms, last_ms // tick_ms + 1
        if end > self._end_tick:
            return None
        first = max(first, self._first_tick)
        is_inside = first <= drawn_tick < end
        if first >= end or (is_counted and not is_inside):
            return drawn_ms
        tick = first + self._find(first, end, drawn_tick - first if is_inside else 0, is_counted)
        if tick == drawn_tick:
            return drawn_ms
        earliest_ms = max(due_ms, tick * tick_ms)
        return earliest_ms + drawn_ms % (min(last_ms + 1, (tick + 1) * tick_ms) - earliest_ms)

    def count(self, due_ms: int, change: int) -> None:
        """The batch puts an entry under a due time (1), or removes it from there (-1)."""
        tick = due_ms // self._tick_ms
        if not self._rings.window <= tick < self._end_tick:
            return
        self._changes[tick % self._size] += change
        first, end = self._section
        if first <= tick < end:
            self._loads[tick - first] += change
            if change < 0 and self._loads[tick - first] <= self._lowest:
                self._lowest, self._emptiest = int(self._loads[tick - first]), []

    def _find(self, first: int, end: int, start: int, is_counted: bool) -> int:
        """Returns the index of the emptiest tick of [first, end), from `start` on if possible.

        `is_counted`: the message is counted at `start` and would leave that tick.
        """
        is_other = (first, end) != self._section
        if is_other:
            self._section, self._emptiest = (first, end), []
            self._loads = self._rings.fine.loads(first, end, self._changes)
            self._lowest = int(self._loads.min())
        own = int(self._loads[start]) - 1 if is_counted else self._lowest + 1
        if own <= self._lowest:
            return start
        found = self._first_of_lowest(start) if is_other else self._next_of_lowest(start)
        if is_counted and own <= self._lowest:  # it has risen
            self._emptiest = []
            return start
        return found

    def _first_of_lowest(self, start: int) -> int:
        found = start + int(self._loads[start:].argmin())
        if start and self._loads[before := int(self._loads[:start].argmin())] < self._loads[found]:
            return before
        return found

    def _next_of_lowest(self, start: int) -> int:
        """Returns the same for a section that is used repeatedly."""
        while True:
            if not self._emptiest:
                self._lowest = int(self._loads.min())
                self._emptiest = np.flatnonzero(self._loads == self._lowest).tolist()
            at = bisect_left(self._emptiest, start)
            found = self._emptiest.pop(at if at < len(self._emptiest) else 0)
            if self._loads[found] == self._lowest:  # otherwise an entry was put there since
                return found
