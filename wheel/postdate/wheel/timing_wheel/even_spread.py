"""Chooses the time of a message with `postdate-spread: even`: the tick of its window with the fewest due entries.

A message with an even spread has a drawn time, which is always a valid choice. The drawn time lies in a *section*: the
whole window, or, if the window is longer than `span_ms`, the part of the window that contains the drawn time. The
emptiest tick of the section is chosen. If several ticks are equally empty, the first at or after the drawn time is
chosen, or if there is none, the first of the section. If the section has whole ticks, only these are chosen, since half
a tick would get twice the rate. Worked example, tick 1 s, window [10 s, 15 s), drawn 12.3 s:

    entries in the ticks 10 to 14       2 1 1 1 2    ->    tick 12, at 12.3 s
    the same before the next message    2 1 2 1 2    ->    tick 13
    and before the third message        2 1 2 2 2    ->    tick 11

The draw breaks the tie, since many shards with few messages would otherwise all use the first ticks of the window.

The choices of one batch take account of all earlier changes of the batch, although the wheel counts these only after
the write. The rings are a hint: wrong counts make the load less even, but a chosen time always lies in the window.

Cost: O(ticks of the section) for the first message of a section: 3 us for 600 ticks, 20 us for the maximum of 18,000.
About 1 us for a message with the same section as the previous message.
Thread rule: the thread that owns the index uses it.
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
    """Returns the length of the longest section. The fine ring holds at least the next hour, so the load of a section
    is known at the latest half an hour before its first tick."""
    return min(geometry.hour_ms // 2, limits.SPREAD_TICKS_MAX * geometry.tick_ms)


def known_before_ms(rings: Rings) -> int:
    """Returns a time such that the fine ring knows the load of every section with an earlier drawn time. Returns 0
    while the wheel is being built."""
    geometry = rings.geometry
    return 0 if rings.building else max(0, rings.cursor[0] - span_ms(geometry) - geometry.tick_ms)


class EvenSpread:
    """The choices for one batch of changes. The caller reports each change of the batch with `count`, including those
    that follow from a choice."""

    def __init__(self, rings: Rings, now_ms: int, put: Iterable[bytes]) -> None:
        """`now_ms`: only ticks that begin later are chosen. `put`: the keys of the entries that the batch has put so
        far."""
        geometry = rings.geometry
        self._rings = rings
        self._tick_ms = geometry.tick_ms
        self._span_ms = span_ms(geometry)
        self._first_tick = max(now_ms // geometry.tick_ms + 1, rings.window)
        self._end_tick = 0 if rings.building else rings.cursor[0] // geometry.tick_ms
        self._size = geometry.fine_slots
        self._changes: Signed = np.zeros(self._size, dtype=np.int64)  # of this batch, for each slot
        # The latest section: its ticks, their loads, the lowest load, and if needed, the ticks that have this load.
        self._section = (0, 0)
        self._loads: Signed = self._changes[:0]
        self._lowest = 0
        self._emptiest: list[int] = []
        for key in put:
            self.count(split_key(key)[0], 1)

    def choose(self, due_ms: int, last_ms: int, drawn_ms: int, is_counted: bool = False) -> int | None:
        """Returns the chosen time in [`due_ms`, `last_ms`], or None if the fine ring does not know the section yet.

        `drawn_ms` lies in the same range. It is returned if its tick is chosen, or if the section has no tick left that
        begins after `now_ms`. `is_counted`: the wheel already counts the message at `drawn_ms`, which is then also
        returned if its tick may not be chosen.
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
        """Counts an entry that the batch puts under a due time (`change` 1) or removes from there (-1)."""
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
        """Returns the index of the emptiest tick of [first, end). Among equally empty ticks, prefers the first one from
        `start` on.

        `is_counted`: the wheel counts the message at `start`, and choosing another tick would remove it from there.
        """
        is_other = (first, end) != self._section
        if is_other:
            self._section, self._emptiest = (first, end), []
            self._loads = self._rings.fine.loads(first, end, self._changes)
            self._lowest = int(self._loads.min())
        own = int(self._loads[start]) - 1 if is_counted else self._lowest + 1
        if own <= self._lowest:
            return start
        index = self._first_of_lowest(start) if is_other else self._next_of_lowest(start)
        if is_counted and own <= self._lowest:  # the lowest load has risen
            self._emptiest = []
            return start
        return index

    def _first_of_lowest(self, start: int) -> int:
        index = start + int(self._loads[start:].argmin())
        if start and self._loads[before := int(self._loads[:start].argmin())] < self._loads[index]:
            return before
        return index

    def _next_of_lowest(self, start: int) -> int:
        """Returns the same as `_first_of_lowest` for a section that is used repeatedly."""
        while True:
            if not self._emptiest:
                self._lowest = int(self._loads.min())
                self._emptiest = np.flatnonzero(self._loads == self._lowest).tolist()
            position = bisect_left(self._emptiest, start)
            index = self._emptiest.pop(position if position < len(self._emptiest) else 0)
            if self._loads[index] == self._lowest:  # otherwise an entry was put there since
                return index
