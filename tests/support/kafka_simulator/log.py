"""The log of one partition: records and control markers at their offsets, open transactions, and the view of each
isolation level.

As in Kafka: a transaction's markers occupy an offset in every log to which it wrote; the last stable offset is the
first offset of the earliest open transaction; a record is committed or aborted by the first marker of its producer
after it; the offset of a compacted record stays empty.

Thread rule: one thread.
"""

from __future__ import annotations

from enum import IntEnum

from confluent_kafka import KafkaError

from postdate.kafka.interface import Isolation, Record
from support.kafka_simulator.error_responses import refusal

#: The producer of a record that belongs to no transaction.
NO_PRODUCER = -1


class Status(IntEnum):
    """The state of the record or marker at an offset."""

    PLAIN = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3
    MARKER = 4
    GONE = 5


_VISIBLE = {
    Isolation.READ_COMMITTED: frozenset({Status.PLAIN, Status.COMMITTED}),
    Isolation.READ_UNCOMMITTED: frozenset({Status.PLAIN, Status.OPEN, Status.COMMITTED, Status.ABORTED}),
}


_KEPT = frozenset({Status.PLAIN, Status.COMMITTED})


class _Slot:
    __slots__ = ("gone_from_ms", "producer", "record", "status")

    def __init__(self, record: Record, producer: int, status: Status) -> None:
        self.record = record
        self.producer = producer
        self.status = status
        self.gone_from_ms = -1  # when compaction may remove the tombstone; -1: compaction has not found it yet


class PartitionLog:
    """Offsets `start` to `end`; `epochs` contains the newest epoch of each producer. `leader` is the number of the
    broker that leads it; if it has none, `has_leader` is False. `rewrites` counts the changes and removals of decided
    records: while it stays the same, so do all records below an earlier `stable_end`."""

    def __init__(self) -> None:
        self.start = 0
        self.rewrites = 0
        self.epochs: dict[int, int] = {}
        self.leader = 0
        self.has_leader = True
        self._held_at: int | None = None  # the high watermark, while nothing is replicated
        self._slots: list[_Slot] = []
        self._open: dict[int, int] = {}  # producer -> first offset of its open transaction

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.start + len(self._slots)

    @property
    def high_watermark(self) -> int:
        """All records below this offset are replicated. Records from it on are neither visible to readers nor
        acknowledged."""
        return self.end if self._held_at is None else self._held_at

    @property
    def is_held(self) -> bool:
        """True while nothing is replicated."""
        return self._held_at is not None

    def hold(self) -> None:
        """Stops the replication: the high watermark stays."""
        self._held_at = self.high_watermark

    def release(self) -> None:
        """Resumes the replication: the in-sync set has all records at once."""
        self._held_at = None

    @property
    def stable_end(self) -> int:
        """The last stable offset: every transaction with a record below it has ended there."""
        return min(self._open.values(), default=self.end)

    def end_for(self, isolation: Isolation) -> int:
        """Returns the end that a reader of this isolation level can reach."""
        end = self.high_watermark
        return min(self.stable_end, end) if isolation is Isolation.READ_COMMITTED else end

    def append(self, record: Record, producer: int = NO_PRODUCER, epoch: int = 0) -> int:
        """Appends a record and returns its offset; with a producer, as part of its transaction."""
        offset = self.end
        placed = Record(offset, record.timestamp_ms, record.log_append, record.key, record.value, record.headers)
        if producer == NO_PRODUCER:
            self._slots.append(_Slot(placed, producer, Status.PLAIN))
            return offset
        if epoch < self.epochs.get(producer, 0):
            raise refusal(KafkaError.INVALID_PRODUCER_EPOCH, "a newer producer has written to this log")
        self.epochs[producer] = epoch
        self._open.setdefault(producer, offset)
        self._slots.append(_Slot(placed, producer, Status.OPEN))
        return offset

    def mark(self, producer: int, epoch: int, commit: bool, timestamp_ms: int) -> None:
        """Ends the producer's open transaction in this log. The marker is written even if the transaction has no record
        here."""
        self.epochs[producer] = max(epoch, self.epochs.get(producer, 0))
        first = self._open.pop(producer, None)
        if first is not None:
            for slot in self._slots[max(first - self.start, 0) :]:
                if slot.producer == producer and slot.status is Status.OPEN:
                    slot.status = Status.COMMITTED if commit else Status.ABORTED
        marker = Record(self.end, timestamp_ms, True, None, None, [])
        self._slots.append(_Slot(marker, producer, Status.MARKER))

    def read(
        self, offset: int, isolation: Isolation, records_max: int, limit: int | None = None
    ) -> tuple[list[Record], int]:
        """Returns the visible records from `offset` on, and the position after the last offset that was checked.
        O(offsets passed). `limit`: the offset at which to stop; None: the end of this isolation level.

        Raises OFFSET_OUT_OF_RANGE outside the log.
        """
        if not self.start <= offset <= self.end:
            raise refusal(KafkaError.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in [{self.start}, {self.end}]")
        visible, limit = _VISIBLE[isolation], self.end_for(isolation) if limit is None else limit
        found: list[Record] = []
        position = offset
        while position < limit and len(found) < records_max:
            # Slices instead of single records, since tests often read long logs.
            passed = min(limit - position, records_max - len(found))
            first = position - self.start
            found += [slot.record for slot in self._slots[first : first + passed] if slot.status in visible]
            position += passed
        return found, position

    def committed(self, since: int = 0) -> list[Record]:
        """Returns every committed record from an offset on, including records above the last stable offset, which no
        client can read. O(offsets from `since` on)."""
        return [slot.record for slot in self._slots[max(since - self.start, 0) :] if slot.status in _KEPT]

    def undecided(self) -> dict[int, int]:
        """Returns producer -> the first offset of its open transaction in this log."""
        return dict(self._open)

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Returns the first offset stamped at or after a time, markers included, as in Kafka."""
        for slot in self._slots:
            if slot.record.timestamp_ms >= timestamp_ms and slot.status is not Status.GONE:
                return slot.record.offset
        return None

    def first_since(self, timestamp_ms: int) -> int:
        """Returns the first offset stamped at or after a time, or the end of the log."""
        found = self.offset_for_time(timestamp_ms)
        return self.end if found is None else found

    def delete_before(self, offset: int) -> None:
        """Moves the start up to an offset. Raises OFFSET_OUT_OF_RANGE above the end."""
        if offset > self.end:
            raise refusal(KafkaError.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the end {self.end}")
        if offset > self.start:
            self.rewrites += 1
            del self._slots[: offset - self.start]
            self.start = offset
            self._open = {producer: max(first, offset) for producer, first in self._open.items()}

    def compact(self, before: int, now_ms: int, tombstones_ms: int) -> int:
        """Compacts the decided records below an offset, where the active segment begins; returns the number of removed
        records.

        The last committed record of each key stays. A tombstone stays only for `tombstones_ms` after the first
        compaction that finds it: a client that reads the whole log within this time sees it. Aborted records are
        removed. Offsets do not change.
        """
        self.rewrites += 1
        slots = self._slots[: max(min(before, self.stable_end) - self.start, 0)]
        last = {slot.record.key: slot for slot in slots if slot.status in _KEPT}
        gone = 0
        for slot in slots:
            if slot.status in _KEPT:
                keeps = last[slot.record.key] is slot
                if keeps and slot.record.value is None:
                    if slot.gone_from_ms < 0:
                        slot.gone_from_ms = now_ms + tombstones_ms
                    keeps = now_ms < slot.gone_from_ms
            else:
                keeps = slot.status is not Status.ABORTED
            if not keeps:
                slot.status = Status.GONE
                gone += 1
        return gone

    def truncate(self, end: int) -> None:
        """Loses all records from an offset on, as an unclean leader election does."""
        self.rewrites += 1
        del self._slots[max(end - self.start, 0) :]
        self._open = {producer: first for producer, first in self._open.items() if first < self.end}
