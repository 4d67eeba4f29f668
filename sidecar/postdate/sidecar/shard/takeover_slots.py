"""Limits how many takeovers of a process read at once.

A takeover that reads holds records in memory, so a process runs `TAKEOVERS_AT_ONCE_MAX` of them at a time. A takeover
that waits for a broker holds hardly any records: after `TAKEOVER_IDLE_S` without progress its slot passes to the next
takeover in the queue. The takeover that lost its slot may continue with steps that read no records. Before it reads on,
it drops prefetched records, waits for a slot again, and continues at its position. So a partition without a leader
delays other takeovers by seconds only, and the memory bound holds.

Thread rule: a `Slot` and its readers belong to the thread of one shard; `TakeoverSlots` is shared by all of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf

from postdate.kafka.interface import Isolation, Kafka, LogReader, Partition, Record

_TICK_S = 0.1


class TakeoverSlots:
    """At most `count` slots are held at once, each by one takeover."""

    def __init__(self, count: int, idle_s: float) -> None:
        self._count = count
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._idle_since: dict[Slot, float] = {}  # held slot → since when its takeover is idle; inf: busy
        self._waiting: deque[Slot] = deque()

    def acquire(self, slot: Slot, stopping: Callable[[], bool]) -> bool:
        """Waits for the slot; returns False if `stopping` returned True first."""
        with self._changed:
            self._waiting.append(slot)
            try:
                while not (self._waiting[0] is slot and self._has_free_slot()):
                    if stopping():
                        return False
                    self._changed.wait(_TICK_S)
                self._idle_since[slot] = time.monotonic()
                return True
            finally:
                self._waiting.remove(slot)
                self._changed.notify_all()

    def release(self, slot: Slot) -> None:
        """Gives the slot back, if it is still held."""
        with self._changed:
            if self._idle_since.pop(slot, None) is not None:
                self._changed.notify_all()

    def set_idle_since(self, slot: Slot, idle_since: float) -> None:
        """Records the time since when the takeover has made no progress, if it still holds the slot."""
        with self._changed:
            if slot in self._idle_since:
                self._idle_since[slot] = idle_since

    def is_held(self, slot: Slot) -> bool:
        """True while the takeover of this shard holds a slot."""
        return slot in self._idle_since

    def _has_free_slot(self) -> bool:
        """Returns True if a slot is free. If all are held, frees the slot of the takeover that has been idle for
        longest, provided that this was at least `idle_s`."""
        if len(self._idle_since) < self._count:
            return True
        longest_idle = min(self._idle_since, key=lambda slot: self._idle_since[slot])
        if time.monotonic() - self._idle_since[longest_idle] < self._idle_s:
            return False
        del self._idle_since[longest_idle]
        return True


class Slot:
    """The slot of one shard. Reentrant: all readers of a takeover share its slot."""

    def __init__(self, slots: TakeoverSlots, stopping: Callable[[], bool]) -> None:
        self._slots = slots
        self._stopping = stopping

    @property
    def is_held(self) -> bool:
        """True while this takeover holds a slot."""
        return self._slots.is_held(self)

    def acquire(self) -> bool:
        """Waits for the slot; False if the shard is being released."""
        return self.is_held or self._slots.acquire(self, self._stopping)

    def release(self) -> None:
        """Gives the slot back. Costs a look-up if it is not held."""
        if self.is_held:
            self._slots.release(self)

    def mark_busy(self) -> None:
        """Notes that the takeover is handling records, so that its slot cannot be taken away."""
        self._slots.set_idle_since(self, inf)

    def mark_waiting(self) -> None:
        """Notes that the takeover begins to wait for a broker."""
        self._slots.set_idle_since(self, time.monotonic())


class SlottedReader:
    """A LogReader that reads only while its takeover holds a slot. Opens the underlying reader at the first read with a
    slot, and again at its position after the slot was lost."""

    def __init__(self, open_at: Callable[[int], LogReader], offset: int, slot: Slot) -> None:
        self._open_at = open_at
        self._position = offset
        self._slot = slot
        self._reader: LogReader | None = None
        self._is_idle = False

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """Reads as LogReader.read, after waiting for a slot; returns an empty list if the shard is being released."""
        if not self._slot.is_held:
            self._drop()
            if not self._slot.acquire():
                return []
        if not self._is_idle:
            self._is_idle = True
            self._slot.mark_waiting()
        if self._reader is None:
            self._reader = self._open_at(self._position)
        records = self._reader.read(records_max, timeout_s)
        position = self._reader.position()
        if records or position > self._position:
            self._is_idle = False
            self._slot.mark_busy()
        self._position = position
        return records

    def position(self) -> int:
        """Returns the position as LogReader.position."""
        return self._position

    def close(self) -> None:
        """Closes the underlying reader; the slot stays with the takeover."""
        self._drop()
        self._slot.mark_waiting()

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        self._is_idle = False
        if reader is not None:
            reader.close()


class SlottedKafka:
    """The Kafka of one shard, with slotted readers during a takeover. `takes_over`: returns True while a takeover
    runs."""

    def __init__(self, kafka: Kafka, slot: Slot, takes_over: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._slot = slot
        self._takes_over = takes_over
        self.producer = kafka.producer
        self.plain_producer = kafka.plain_producer
        self.group_consumer = kafka.group_consumer
        self.admin = kafka.admin
        self.connection_fault = kafka.connection_fault

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        """Opens a reader as Kafka.log_reader."""
        if not self._takes_over():
            return self._kafka.log_reader(part, offset, isolation)
        return SlottedReader(lambda at: self._kafka.log_reader(part, at, isolation), offset, self._slot)
