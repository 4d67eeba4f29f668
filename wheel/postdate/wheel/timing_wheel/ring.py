"""One ring of slots: the number and the bytes of the entries in each unit of time.

Number n (a tick or an hour since the epoch) lies in slot n mod size. Worked example, tick 1 ms and size 4:

    entries due at 5, 6, 6   ->   slot 1 {tick 5, count 1, min_due 5}   slot 2 {tick 6, count 2, min_due 6}
    the window is [5, 9): 8 lies in slot 0; 9 would lie in slot 1, which 5 still occupies: the window must move
    the window moves to [6, 10)   ->   slot 1 is emptied (count 1 moves to "overdue") and is free for 9

Invariants: a slot with count 0 is free (state and bytes 0, min_due NO_DUE); any other slot contains its number. min_due
is a lower bound of the due times in the slot: `add` may lower it, and `remove` never raises it while the slot has
entries. The caller keeps all numbers within one turn of the ring. A contradiction (a count below 0, or a slot that
belongs to another number) raises no error. The method sets a count below 0 to 0 and returns False. The owner then
rebuilds the rings, since they are a hint.

Cost: `add` and `remove` O(k log k) for k entries, about 0.1 us an entry in batches; `add_one` and `remove_one` 2 us;
`first_held` O(slots passed), amortised O(1) for a caller that starts where its last search stopped; `empty_slots` O(n).

Source of the idea: Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987); TimingWheel.java in Kafka.
Thread rule: only the owner of the buffer uses it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from postdate.wheel.timer_log.write_delta import Signed, Unsigned
from postdate.wheel.timing_wheel.layout import NO_DUE, SLOT, STATE_FREE, STATE_HELD

_STRETCH: Final = 1024  # slots that one numpy call reads: 32 KiB, a microsecond


class Ring:
    """A ring over `slots`, an array of the SLOT layout that may be the memory of a mapped file."""

    def __init__(self, slots: NDArray[np.void]) -> None:
        assert slots.dtype == SLOT, "a ring works on slots"
        self.size = len(slots)
        self._slots = slots
        self._tick = slots["tick"]
        self._count = slots["count"]
        self._state = slots["state"]
        self._bytes = slots["bytes"]
        self._min_due = slots["min_due"]

    def add(self, numbers: Unsigned, due: Unsigned, sizes_bytes: Signed) -> bool:
        """Counts entries in the slots of their numbers. Returns False if a slot belonged to another number, otherwise
        True."""
        unique, groups = np.unique(numbers, return_inverse=True)
        indexes = (unique % np.uint64(self.size)).astype(np.intp)
        old = self._count[indexes]
        fresh = old == 0
        new = old + np.bincount(groups, minlength=len(unique)).astype(np.uint32)
        lowest = np.full(len(unique), NO_DUE, dtype=np.uint64)
        np.minimum.at(lowest, groups, due)
        size = np.bincount(groups, weights=sizes_bytes, minlength=len(unique)).astype(np.uint64)
        consistent = bool(np.all(fresh | (self._tick[indexes] == unique)))
        self._tick[indexes] = unique
        self._count[indexes] = new
        self._state[indexes] = STATE_HELD
        self._bytes[indexes] = np.where(fresh, size, self._bytes[indexes] + size)
        self._min_due[indexes] = np.where(fresh, lowest, np.minimum(self._min_due[indexes], lowest))
        return consistent

    def remove(self, numbers: Unsigned, sizes_bytes: Signed) -> bool:
        """Removes entries from the slots of their numbers. Returns False if a slot had fewer entries or belonged to
        another number, otherwise True."""
        unique, groups = np.unique(numbers, return_inverse=True)
        indexes = (unique % np.uint64(self.size)).astype(np.intp)
        new = self._count[indexes].astype(np.int64) - np.bincount(groups, minlength=len(unique))
        size = self._bytes[indexes].astype(np.int64)
        size -= np.bincount(groups, weights=sizes_bytes, minlength=len(unique)).astype(np.int64)
        consistent = bool(np.all((new >= 0) & (self._tick[indexes] == unique)))
        new = np.maximum(new, 0)
        empty = new == 0
        self._count[indexes] = new
        self._state[indexes] = np.where(empty, STATE_FREE, STATE_HELD)
        self._bytes[indexes] = np.where(empty, 0, np.maximum(size, 0)).astype(np.uint64)
        self._min_due[indexes] = np.where(empty, np.uint64(NO_DUE), self._min_due[indexes])
        return consistent

    def add_one(self, number: int, due_ms: int, size_bytes: int) -> bool:
        """Does the same as `add` for one entry, without the fixed cost of numpy's calls."""
        index = number % self.size
        count = int(self._count[index])
        consistent = not count or int(self._tick[index]) == number
        self._tick[index] = number
        self._count[index] = count + 1
        self._state[index] = STATE_HELD
        self._bytes[index] = size_bytes + int(self._bytes[index]) if count else size_bytes
        self._min_due[index] = min(due_ms, int(self._min_due[index])) if count else due_ms
        return consistent

    def remove_one(self, number: int, size_bytes: int) -> bool:
        """Does the same as `remove` for one entry."""
        index = number % self.size
        count = int(self._count[index]) - 1
        consistent = count >= 0 and int(self._tick[index]) == number
        if count <= 0:
            self._slots[index] = FREE_SLOT
            self._tick[index] = number
        else:
            self._count[index] = count
            self._state[index] = STATE_HELD
            self._bytes[index] = max(0, int(self._bytes[index]) - size_bytes)
        return consistent

    def empty_slots(self, first: int, end: int) -> tuple[int, int]:
        """Empties the slots of the numbers [first, end). Returns the count and the bytes that they held."""
        count = size_bytes = 0
        for part in self._parts(first, min(end, first + self.size)):
            held = int(self._count[part].sum(dtype=np.int64))
            if held:
                count += held
                size_bytes += int(self._bytes[part].sum(dtype=np.int64))
                self._slots[part] = FREE_SLOT
        return count, size_bytes

    def slot_totals(self, number: int) -> tuple[int, int]:
        """Returns (count, bytes) of a number's slot: zeros if the slot is free or belongs to another number."""
        index = number % self.size
        if not self._count[index] or self._tick[index] != number:
            return 0, 0
        return int(self._count[index]), int(self._bytes[index])

    def min_due(self, number: int) -> int:
        """Returns the lower bound of the due times in a number's slot."""
        return int(self._min_due[number % self.size])

    def first_held(self, first: int, end: int) -> int | None:
        """Returns the smallest number in [first, end) whose slot holds an entry, or None. REQUIRES: end - first <=
        size."""
        number = first
        if number < end and self._count[number % self.size]:
            return number
        while number < end:
            index = number % self.size
            stretch = self._count[index : index + min(_STRETCH, end - number)]
            if stretch.any():
                return number + int(np.argmax(stretch != 0))
            number += len(stretch)
        return None

    def counts(self, first: int, end: int) -> NDArray[np.int64]:
        """Returns the counts of the numbers [first, end), in order. REQUIRES: end - first <= size."""
        parts = [self._count[part].astype(np.int64) for part in self._parts(first, end)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def loads(self, first: int, end: int, changes: Signed) -> Signed:
        """Returns the counts of the numbers [first, end), in order, plus the `changes` of their slots.

        REQUIRES: 0 < end - first <= size.
        """
        parts = [self._count[part] + changes[part] for part in self._parts(first, end)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def sums_of(self, first: int, end: int) -> tuple[int, int]:
        """Returns (count, bytes) of the numbers [first, end). REQUIRES: end - first <= size."""
        parts = self._parts(first, end)
        count = sum(int(self._count[part].sum(dtype=np.int64)) for part in parts)
        return count, sum(int(self._bytes[part].sum(dtype=np.int64)) for part in parts)

    def sums(self) -> tuple[int, int]:
        """Returns (count, bytes) of all slots."""
        return int(self._count.sum(dtype=np.int64)), int(self._bytes.sum(dtype=np.int64))

    def clear(self) -> None:
        """Frees every slot."""
        self._slots[:] = FREE_SLOT

    def is_sound(self, first: int, end: int, unit_ms: int) -> bool:
        """Returns True unless a slot contradicts itself or holds a number outside [first, end). O(size), below 1 ms."""
        held = np.flatnonzero(self._count)
        tick = self._tick[held]
        inside = (tick >= first) & (tick < end) & (tick % np.uint64(self.size) == held.astype(np.uint64))
        due = self._min_due[held]
        bounded = (due >= tick * np.uint64(unit_ms)) & (due - tick * np.uint64(unit_ms) < unit_ms)
        states = np.all((self._state != STATE_FREE) == (self._count != 0))
        return bool(np.all(inside) and np.all(bounded) and states)

    def _parts(self, first: int, end: int) -> list[slice]:
        if end <= first:
            return []
        start, length = first % self.size, end - first
        head = slice(start, min(start + length, self.size))
        rest = length - (head.stop - head.start)
        return [head] if rest <= 0 else [head, slice(0, rest)]


FREE_SLOT: Final = np.array((0, 0, STATE_FREE, 0, NO_DUE), dtype=SLOT)
