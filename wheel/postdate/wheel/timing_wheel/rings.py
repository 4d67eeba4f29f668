"""Both rings and the counters of a wheel, and the place where each entry is counted.

An entry (due, offset) is counted in exactly one place. Its key and three bounds, which only grow, determine the place:

    due 0                                    ending
    key < cursor, tick of due <  window      overdue
    key < cursor, tick of due >= window      its tick in the fine ring
    key >= cursor, hour of due < limit       its hour in the hour ring
    otherwise                                beyond

`window` is the first tick of the fine ring. `cursor` is the key below which entries were loaded into the fine ring.
`limit` is the first hour that the hour ring does not hold. While the wheel is being built, only keys below `built` are
counted; `built` also only grows. Only `reset` may lower these bounds.

Invariants: window <= tick of cursor; cursor <= the end of the fine ring; the hour ring holds the hours [hour of cursor,
limit). When the window passes a tick, the sums of its slot move to overdue. When the window passes an hour that was not
loaded completely, the sums of that hour's slot move to overdue. So a restart after a day costs O(hours) and not
O(entries).

A contradiction sets `wrong`; the owner then rebuilds the wheel. Cost: `apply` takes about 2 us an entry for short
columns, and otherwise 0.2 us an entry, but at least 0.1 ms; `advance` is O(ticks passed). Thread rule: one writer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from postdate.wheel.keys import ENDING_DUE
from postdate.wheel.timer_log.write_delta import Column, WriteDelta
from postdate.wheel.timing_wheel.layout import COUNTERS, COUNTERS_OFFSET, HEADER_SIZE_BYTES, SLOT, Geometry
from postdate.wheel.timing_wheel.ring import Ring

MAX_KEY: Final = (2**64 - 1, 2**64 - 1)
Mask = NDArray[np.bool_]


class WheelLevel(IntEnum):
    """The part of the wheel that counts an entry."""

    ENDING = 0
    OVERDUE = 1
    FINE = 2
    HOUR = 3
    BEYOND = 4


class Count:
    """A number of entries and of their bytes."""

    __slots__ = ("count", "size_bytes")

    def __init__(self, count: int = 0, size_bytes: int = 0) -> None:
        self.count = count
        self.size_bytes = size_bytes

    def change(self, count: int, size_bytes: int) -> bool:
        """Adds the numbers, which may be negative. Returns False if the count fell below 0; it is then set to 0."""
        self.count += count
        self.size_bytes = max(0, self.size_bytes + size_bytes)
        consistent = self.count >= 0
        if self.count <= 0:
            self.count = self.size_bytes = 0
        return consistent


class Rings:
    """The counts of a wheel over a buffer with the layout of its file. `publish` writes the counters into the
    buffer."""

    def __init__(self, geometry: Geometry, buffer: memoryview) -> None:
        """Reads the content of the buffer. REQUIRES: the buffer has the size of a file of this
        geometry."""
        self.geometry = geometry
        self._buffer = buffer
        fine = np.frombuffer(buffer, dtype=SLOT, count=geometry.fine_slots, offset=HEADER_SIZE_BYTES)
        hours = np.frombuffer(buffer, dtype=SLOT, count=geometry.hour_slots, offset=geometry.hour_offset)
        self.fine = Ring(fine)
        self.hours = Ring(hours)
        self.wrong = False
        (
            self.sequence,
            window,
            cursor_due,
            cursor_offset,
            limit_hour,
            building,
            built_due,
            built_offset,
            *counts,
        ) = COUNTERS.unpack_from(buffer, COUNTERS_OFFSET)
        self.window: int = window
        self.limit_hour: int = limit_hour
        self.cursor: tuple[int, int] = (cursor_due, cursor_offset)
        self.built: tuple[int, int] = (built_due, built_offset)
        self.building = bool(building)
        self.overdue, self.ending, self.parked, self.beyond, self.total = (
            Count(counts[index], counts[index + 1]) for index in range(0, len(counts), 2)
        )
        self._fine_start = self.window
        self._hour_start = 0

    def publish(self) -> None:
        """Writes the counters, including the update sequence, for readers of the buffer.

        Assigns a slice instead of calling `pack_into`, which first sets the bytes to zero: a reader could take the zero
        for an even sequence.
        """
        counts = (self.overdue, self.ending, self.parked, self.beyond, self.total)
        self._buffer[COUNTERS_OFFSET : COUNTERS_OFFSET + COUNTERS.size] = COUNTERS.pack(
            self.sequence,
            self.window,
            *self.cursor,
            self.limit_hour,
            self.building,
            *self.built,
            *(number for count in counts for number in (count.count, count.size_bytes)),
        )

    def reset(self, now_ms: int, building: bool) -> None:
        """Empties everything and sets the window to the present tick. `building`: `build` will count the entries of the
        timer log. O(slots)."""
        geometry = self.geometry
        self.fine.clear()
        self.hours.clear()
        self.wrong = False
        self.window = now_ms // geometry.tick_ms
        hour = (self.window + geometry.fine_slots) * geometry.tick_ms // geometry.hour_ms
        self.cursor = (hour * geometry.hour_ms, 0)
        self.limit_hour = hour + geometry.hour_slots
        self.building = building
        self.built = (0, 0) if building else MAX_KEY
        self.overdue, self.ending, self.parked, self.beyond, self.total = (Count() for _ in range(5))
        self._fine_start = self.window
        self._hour_start = hour

    # ---- counting

    def apply(self, delta: WriteDelta) -> None:
        """Counts the entries that a write added and removed. O(n log n) for n entries."""
        if len(delta.lost):
            self.count_column(delta.lost, -1)
        if len(delta.gained):
            self.count_column(delta.gained, 1)
        parked = len(delta.parked_gained) - len(delta.parked_lost)
        if len(delta.parked_gained) or len(delta.parked_lost):
            size_bytes = int(delta.parked_gained.size_bytes.sum() - delta.parked_lost.size_bytes.sum())
            self._check_change(self.parked.change(parked, size_bytes))

    def count_column(self, entries: Column, sign: int) -> None:
        """Adds (`sign` 1) or subtracts (`sign` -1) entries; while the wheel is being built, only those below
        `built`."""
        if self.building:
            below = _below(entries, self.built)
            entries = Column(entries.due[below], entries.offset[below], entries.size_bytes[below])
        if entries.is_short:
            for due_ms, offset, size_bytes in entries.rows():
                self._count_one(due_ms, offset, size_bytes, sign)
            return
        self._check_change(self.total.change(sign * len(entries), sign * int(entries.size_bytes.sum())))
        geometry = self.geometry
        due = entries.due
        ending = due == ENDING_DUE
        loaded = _below(entries, self.cursor) & ~ending
        later = ~loaded & ~ending
        past = due < np.uint64(self.window * geometry.tick_ms)
        limited = due < np.uint64(min(self.limit_hour * geometry.hour_ms, MAX_KEY[0]))
        self._count_number(self.ending, entries, ending, sign)
        self._count_number(self.overdue, entries, loaded & past, sign)
        self._count_number(self.beyond, entries, later & ~limited, sign)
        self._count_ring(self.fine, entries, loaded & ~past, geometry.tick_ms, sign)
        self._count_ring(self.hours, entries, later & limited, geometry.hour_ms, sign)

    def _count_one(self, due_ms: int, offset: int, size_bytes: int, sign: int) -> None:
        zone, number = self.zone_of(due_ms, offset)
        self._check_change(self.total.change(sign, sign * size_bytes))
        if zone in (WheelLevel.FINE, WheelLevel.HOUR):
            ring = self.fine if zone == WheelLevel.FINE else self.hours
            if sign < 0:
                self._check_change(ring.remove_one(number, size_bytes))
                return
            self._check_change(ring.add_one(number, due_ms, size_bytes))
            self._lower_start(ring, number)
        else:
            self._check_change(self._counts[zone].change(sign, sign * size_bytes))

    def _lower_start(self, ring: Ring, number: int) -> None:
        if ring is self.fine:
            self._fine_start = min(self._fine_start, number)
        else:
            self._hour_start = min(self._hour_start, number)

    @property
    def _counts(self) -> dict[WheelLevel, Count]:
        return {WheelLevel.ENDING: self.ending, WheelLevel.OVERDUE: self.overdue, WheelLevel.BEYOND: self.beyond}

    def _count_number(self, counter: Count, entries: Column, mask: Mask, sign: int) -> None:
        count = int(np.count_nonzero(mask))
        if count:
            self._check_change(counter.change(sign * count, sign * int(entries.size_bytes[mask].sum())))

    def _count_ring(self, ring: Ring, entries: Column, mask: Mask, unit_ms: int, sign: int) -> None:
        if not mask.any():
            return
        due, sizes = entries.due[mask], entries.size_bytes[mask]
        numbers = due // np.uint64(unit_ms)
        if sign < 0:
            self._check_change(ring.remove(numbers, sizes))
            return
        self._check_change(ring.add(numbers, due, sizes))
        self._lower_start(ring, int(numbers.min()))

    def _check_change(self, consistent: bool) -> None:
        if not consistent:
            self.wrong = True

    # ---- time

    def advance(self, now_ms: int) -> bool:
        """Moves the window to the present tick, but not beyond `cursor`. Before that, if hours before the present one
        were not loaded completely, counts their entries as overdue and moves `cursor` to the start of the present hour.
        Returns True if the window moved."""
        geometry = self.geometry
        target = now_ms // geometry.tick_ms
        if target <= self.window:
            return False
        hour, target_hour = self.cursor[0] // geometry.hour_ms, target * geometry.tick_ms // geometry.hour_ms
        if hour < target_hour:  # hours that were never loaded, or only in part
            self._to_overdue(*self.hours.empty_slots(hour, min(target_hour, self.limit_hour)))
            self._set_cursor((target_hour * geometry.hour_ms, 0))
        target = min(target, self.cursor[0] // geometry.tick_ms)
        if target <= self.window:
            return False
        self._to_overdue(*self.fine.empty_slots(self.window, target))
        self.window = target
        return True

    def _to_overdue(self, count: int, size_bytes: int) -> None:
        if count:
            self.overdue.change(count, size_bytes)

    def _set_cursor(self, cursor: tuple[int, int]) -> None:
        self.cursor = cursor
        hour = cursor[0] // self.geometry.hour_ms
        if self.beyond.count == 0:
            self.limit_hour = max(self.limit_hour, hour + self.geometry.hour_slots)
        elif hour >= self.limit_hour:
            self.wrong = True  # entries beyond the horizon may now be within it: only a rebuild can separate them

    def next_load(self) -> tuple[tuple[int, int], int] | None:
        """Returns (cursor, end in ms) of the hour to load next. Returns None while this hour does not fit into the fine
        ring yet, or while the wheel is being built.

        Moves the cursor over empty hours.
        """
        geometry = self.geometry
        fine_end_ms = (self.window + geometry.fine_slots) * geometry.tick_ms
        while not self.building:
            hour = self.cursor[0] // geometry.hour_ms
            end_ms = (hour + 1) * geometry.hour_ms
            if end_ms > fine_end_ms:
                return None
            if self.hours.slot_totals(hour)[0]:
                return self.cursor, end_ms
            self._set_cursor((end_ms, 0))
        return None

    def load(self, keys: Column, end_ms: int, is_last: bool) -> None:
        """Moves the next keys of the hour of `cursor` from the slot of this hour into the fine ring. `is_last`: the
        hour has no more keys."""
        hour = self.cursor[0] // self.geometry.hour_ms
        held, held_bytes = self.hours.slot_totals(hour)
        if len(keys):
            mean = held_bytes // held if held else 0
            sized = Column(keys.due, keys.offset, np.full(len(keys), mean, dtype=np.int64))
            self._check_change(self.hours.remove(keys.due // np.uint64(self.geometry.hour_ms), sized.size_bytes))
            last = (int(keys.due[-1]), int(keys.offset[-1]) + 1)
            self._set_cursor((end_ms, 0) if is_last else last)
            past = keys.due < np.uint64(self.window * self.geometry.tick_ms)
            self._count_number(self.overdue, sized, past, 1)
            self._count_ring(self.fine, sized, ~past, self.geometry.tick_ms, 1)
        else:
            self._set_cursor((end_ms, 0))
        if is_last:
            left, _ = self.hours.empty_slots(hour, hour + 1)
            self._check_change(left == 0)

    def build(self, keys: Column, is_last: bool) -> None:
        """Counts the next keys of the timer log, in order. `is_last`: the log has no more keys. REQUIRES:
        `building`."""
        if len(keys):
            self.built = MAX_KEY
            self.count_column(keys, 1)
            self.built = (int(keys.due[-1]), int(keys.offset[-1]) + 1)
        if is_last:
            self.building, self.built = False, MAX_KEY

    # ---- queries

    @property
    def ticks_end(self) -> int:
        """The number after the last tick of the fine ring that may hold an entry."""
        geometry = self.geometry
        return min(self.cursor[0] // geometry.tick_ms + 1, self.window + geometry.fine_slots)

    def zone_of(self, due_ms: int, offset: int) -> tuple[WheelLevel, int]:
        """Returns the level that counts an entry, and its tick or hour there, or 0 if the level has no slots."""
        geometry = self.geometry
        if due_ms == ENDING_DUE:
            return WheelLevel.ENDING, 0
        if (due_ms, offset) < self.cursor:
            tick = due_ms // geometry.tick_ms
            return (WheelLevel.OVERDUE, 0) if tick < self.window else (WheelLevel.FINE, tick)
        hour = due_ms // geometry.hour_ms
        return (WheelLevel.HOUR, hour) if hour < self.limit_hour else (WheelLevel.BEYOND, 0)

    def first_message(self) -> tuple[WheelLevel, int, int] | None:
        """Returns the level, the tick or hour, and a lower bound of the due time of the earliest message, or None.

        Amortised O(1): each search starts where the previous one stopped.
        """
        geometry = self.geometry
        if self.overdue.count:
            return WheelLevel.OVERDUE, 0, 0
        start = max(self._fine_start, self.window)
        end = self.ticks_end
        tick = self.fine.first_held(start, end)
        if tick is not None:
            self._fine_start = tick
            return WheelLevel.FINE, tick, max(tick * geometry.tick_ms, self.fine.min_due(tick))
        self._fine_start = max(start, end - 1)
        cursor_hour = self.cursor[0] // geometry.hour_ms
        start = max(self._hour_start, cursor_hour)
        hour = self.hours.first_held(start, min(self.limit_hour, cursor_hour + geometry.hour_slots))
        if hour is not None:
            self._hour_start = hour
            return WheelLevel.HOUR, hour, max(hour * geometry.hour_ms, self.hours.min_due(hour), self.cursor[0])
        self._hour_start = max(start, self.limit_hour - 1)
        if self.beyond.count:
            return WheelLevel.BEYOND, 0, self.limit_hour * geometry.hour_ms
        return None

    def is_sound(self) -> bool:
        """Returns True if the wheel is not being built, and the counters and slots do not contradict each other. Does
        not read the timer log. O(slots)."""
        geometry = self.geometry
        cursor_hour = self.cursor[0] // geometry.hour_ms
        cursor_tick = self.cursor[0] // geometry.tick_ms
        if self.building or not self.window <= cursor_tick <= self.window + geometry.fine_slots:
            return False
        if not cursor_hour <= self.limit_hour <= cursor_hour + geometry.hour_slots:
            return False
        fine, hours = self.fine.sums()[0], self.hours.sums()[0]
        counted = fine + hours + self.overdue.count + self.ending.count + self.beyond.count
        return (
            counted == self.total.count
            and self.fine.is_sound(self.window, self.ticks_end, geometry.tick_ms)
            and self.hours.is_sound(cursor_hour, self.limit_hour, geometry.hour_ms)
        )


def _below(entries: Column, key: tuple[int, int]) -> Mask:
    due = np.uint64(key[0])
    below = entries.due < due
    if key[1]:
        below |= (entries.due == due) & (entries.offset < np.uint64(min(key[1], MAX_KEY[1])))
    return below
