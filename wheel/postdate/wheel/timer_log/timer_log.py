"""The timer log of a shard: a RocksDB of the entries in order of due time, with their secondary indexes.

| column family | key | value |
| --- | --- | --- |
| `entries` | due_ms, request offset | encoded entry |
| `parked` | target, 0 byte, due_ms, request offset | encoded entry |
| `ids` | id | key of the pending entry |
| `places` | request offset | present key of an entry or parked entry, if it is not (first due, offset) |
| `firsts` | first request offset of a batch | first due time of each offset of the batch, u64 little-endian |
| `ahead` | request offset | mark: fates read before the request |
| `ended` | see `ended` | outcomes of ended requests, for a limited time |
| `blocks` | request offset / 4,096 | see `pending_counts` |
| `meta` | name | identity; checkpoint with exact counters; named retry policies; bulk controls |
| `meta` | `later`, key of an entry | empty: the time of the entry within its window is not chosen yet |

Invariants: one `write` is one WriteBatch, so all families agree in every state that a crash can leave. Counters and
positions are in the same batch as the changes that they count.

Errors: Corrupt if stored bytes fail a check (close, move the directory aside, start empty). A WriteBatch that fails
with DiskFull or StorageError changes nothing.

Thread rule: one thread owns the timer log.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rocksdict import WriteBatch

from postdate.wheel import limits
from postdate.wheel.entry import Mark, decode_entry, decode_mark, encode_mark
from postdate.wheel.errors import Corrupt
from postdate.wheel.keys import (
    ENTRY_KEY_SIZE_BYTES,
    FIRST_KEY,
    entry_key,
    key_number,
    number_key,
    parked_prefix,
)
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import (
    BULKS_NAME,
    CHECKPOINT_NAME,
    POLICIES_NAME,
    BulkRows,
    Checkpoint,
    PolicyRows,
    decode_bulks,
    decode_checkpoint,
    decode_policies,
    encode_bulks,
    encode_checkpoint,
    encode_policies,
)
from postdate.wheel.timer_log.database import Database, RangeIterator, create_directory
from postdate.wheel.timer_log.ended import (
    DELIVERED_END_KEY,
    DeliveredIds,
    OutcomeWindow,
    control_end_key,
    generation_key,
    hour_key,
)
from postdate.wheel.timer_log.identity import Identity, check_identity_row, new_identity_row
from postdate.wheel.timer_log.pending_counts import PendingCounts, RangeCount, decode_count, encode_count
from postdate.wheel.timer_log.write_delta import WriteDelta, delta_of

NO_FIRST_DUE = 2**64 - 1
_IDENTITY = b"identity"
_DEFERRED = b"later"
_AFTER = b"\0"
_NONE_PENDING = -1
_UNBOUNDED = 2**62


class TimerLogReader:
    """The queries of an open timer log, which see all earlier writes. Only `TimerLog` changes the counters."""

    def __init__(self, db: Database, window_ms: int) -> None:
        """`window_ms`: the time for which ends of ids are remembered. Raises Corrupt, StorageError."""
        self._db = db
        stored = db.get("meta", CHECKPOINT_NAME)
        self.checkpoint = Checkpoint(schedules=0) if stored is None else decode_checkpoint(stored)
        policies = db.get("meta", POLICIES_NAME)
        self.policies: PolicyRows = () if policies is None else decode_policies(policies)
        bulks = db.get("meta", BULKS_NAME)
        self.bulks: BulkRows = () if bulks is None else decode_bulks(bulks)
        self.outcomes = OutcomeWindow(window_ms)
        self.delivered = DeliveredIds(window_ms)
        self.delivered.load(lambda key: db.first_key("ended", key, DELIVERED_END_KEY))
        last_mark = db.last_row("ahead")
        self.marks_end = 0 if last_mark is None else key_number(last_mark[0]) + 1  # above every mark
        self.first_dues_from = 0  # `firsts` holds nothing below this offset
        self._firsts_row = 0, b""  # the latest row read from `firsts`: rows never change
        self._low: int | None = None
        self._low_range = 0

    # ---- reads: O(log n), one look-up each unless noted

    def entry(self, key: bytes) -> bytes | None:
        """Returns the encoded entry under an entry key, or None."""
        return self._db.get("entries", key)

    def parked(self, key: bytes) -> bytes | None:
        """Returns the encoded entry under a parked key, or None."""
        return self._db.get("parked", key)

    def id_key(self, caller_id: bytes) -> bytes | None:
        """Returns the key of the entry that is pending under an id, or None."""
        return self._db.get("ids", caller_id)

    def place(self, offset: int) -> bytes | None:
        """Returns the present key of an entry whose key is no longer (first due, offset), or None."""
        return self._db.get("places", number_key(offset))

    def ended(self, key: bytes) -> bytes | None:
        """Returns the value under a key of `ended`, or None."""
        return self._db.get("ended", key)

    def last_ended(self, at_most: bytes) -> tuple[bytes, bytes] | None:
        """Returns the last row of `ended` whose key is at most `at_most`, or None. One seek."""
        return self._db.last_row("ended", at_most)

    def mark(self, offset: int) -> Mark | None:
        """Returns the mark of a request that is not ingested yet, or None. An offset at or above `marks_end` needs no
        look-up."""
        if offset >= self.marks_end:
            return None
        data = self._db.get("ahead", number_key(offset))
        return None if data is None else decode_mark(data)

    def first_due(self, offset: int) -> int | None:
        """Returns the first due time of a request that became an entry, or None. Valid for offsets from the low-water
        mark on. At most one seek: none if the latest row covers the offset."""
        base, packed = self._firsts_row
        position = (offset - base) * 8
        if not 0 <= position < len(packed):
            row = self._db.last_row("firsts", at_most=number_key(offset))
            if row is None:
                return None
            base, packed = self._firsts_row = key_number(row[0]), row[1]
            position = (offset - base) * 8
            if position >= len(packed):
                return None
        due_ms = int.from_bytes(packed[position : position + 8], "little")
        return None if due_ms == NO_FIRST_DUE else due_ms

    def find(self, offset: int) -> bytes | None:
        """Returns the present key of the entry of a request, or None if it is not pending. Up to three look-ups."""
        place = self.place(offset)
        if place is not None:
            return place
        due_ms = self.first_due(offset)
        if due_ms is None:
            return None
        key = entry_key(due_ms, offset)
        return key if self.entry(key) is not None else None

    def low_water(self) -> int:
        """Returns the low-water mark: all pending entries with smaller offsets are in STORE, and no bulk control has a
        smaller offset. Amortised O(1)."""
        low = self._lowest_entry()
        return min(low, self.bulks[0].offset) if self.bulks else low

    def _lowest_entry(self) -> int:
        """Returns the low-water mark without regard to bulk controls."""
        if self._low is None:
            rows = self._db.range("blocks", number_key(self._low_range), None)
            key, value = rows.key(), rows.value()
            rows.finish()
            if key is None:
                self._low = _NONE_PENDING
            else:
                self._low_range, self._low = key_number(key), decode_count(value).lowest
        return (self.checkpoint.next_request or 0) if self._low == _NONE_PENDING else self._low

    def unstored_from(self, offset: int) -> int | None:
        """Returns a bound at or above `offset`: every pending entry in [`offset`, bound) is in STORE.

        The entry at the bound may not be in STORE. None means that every pending entry from `offset` on is in STORE.
        One seek.
        """
        rows = self._db.range("blocks", number_key(offset // limits.RANGE_OFFSETS), None)
        key, value = rows.key(), rows.value()
        rows.finish()
        return None if key is None else max(offset, decode_count(value).lowest)

    # ---- scans

    def scan(
        self, after: bytes | None, before: bytes, limit: int, size_bytes_max: int = limits.SCAN_SIZE_BYTES_MAX
    ) -> tuple[list[bytes], list[bytes]]:
        """Returns keys and values of the entries in (after, before), ascending: at most `limit`. Stops once the values
        have `size_bytes_max`, so the last value may exceed this bound. O(entries returned), about 0.6 us each."""
        return self._scan("entries", FIRST_KEY if after is None else after + _AFTER, before, limit, size_bytes_max)

    def scan_from(
        self, start: bytes, before: bytes, limit: int, size_bytes_max: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Returns the same as `scan` for the entries in [start, before)."""
        return self._scan("entries", start, before, limit, size_bytes_max)

    def walk(self, start: bytes, before: bytes) -> RangeIterator:
        """Returns an iterator over the entries in [start, before), for callers that skip most of them: half the cost of
        a scan.

        REQUIRED: `finish` after the last step, and no write before that.
        """
        return self._db.range("entries", start, before)

    def scan_parked(
        self,
        target: str,
        limit: int,
        size_bytes_max: int = limits.SCAN_SIZE_BYTES_MAX,
        first: bytes = b"",
        before: bytes | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Returns keys and values of the parked entries of a target, in order of due time, with the bounds of `scan`.

        `first`: an entry key below which no entry of the target lies, so that the scan skips the tombstones there.
        `before`: an entry key that bounds the returned entries, exclusive; None sets no bound.
        """
        prefix = parked_prefix(target)
        end = prefix[:-1] + b"\1" if before is None else prefix + before
        return self._scan("parked", prefix + first, end, limit, size_bytes_max)

    def walk_parked(self, start: bytes) -> RangeIterator:
        """Returns an iterator over the parked entries of all targets from `start` on, as `walk` does."""
        return self._db.range("parked", start, None)

    def scan_parked_keys(self, start: bytes, limit: int) -> list[bytes]:
        """Returns parked keys of all targets from `start` on, at most `limit`."""
        return self._scan_keys("parked", start, None, limit)

    def scan_keys(self, start: bytes, before: bytes | None, limit: int) -> list[bytes]:
        """Returns keys of the entries in [start, before), ascending, at most `limit`. O(keys returned), about 0.4 us
        each."""
        return self._scan_keys("entries", start, before, limit)

    def first_key(self, start: bytes, before: bytes | None = None, skips_max: int = 0) -> bytes | None:
        """Returns the first entry key in [start, before), or None. Raises Unfinished if more than `skips_max`
        tombstones precede it; a `skips_max` of 0 sets no bound."""
        return self._db.first_key("entries", start, before, skips_max)

    def _scan(
        self, family: str, start: bytes, before: bytes, limit: int, size_bytes_max: int
    ) -> tuple[list[bytes], list[bytes]]:
        rows = self._db.range(family, start, before)
        keys, values = rows.collect(limit, size_bytes_max)
        rows.finish()
        return keys, values

    def _scan_keys(self, family: str, start: bytes, before: bytes | None, limit: int) -> list[bytes]:
        rows = self._db.range(family, start, before)
        keys = rows.collect_keys(limit)
        rows.finish()
        return keys

    def sequence(self) -> int:
        """Returns RocksDB's sequence number: two equal numbers of one open log mean equal contents."""
        return self._db.sequence()


class TimerLog(TimerLogReader):
    """The open timer log of one directory."""

    def __init__(self, path: Path, identity: Identity, options: IndexOptions) -> None:
        """Opens or creates the log.

        Raises Locked (wait), Corrupt or FormatMismatch (move aside), IdentityMismatch, DiskFull, StorageError.
        """
        create_directory(path)
        db = Database(path, options)
        try:
            self.is_new, self.log_id = _identify(db, identity)
            super().__init__(db, options.ended_window_ms)
        except BaseException:
            db.close()
            raise
        self._resources = options.resources
        self._pending_counts = PendingCounts(lambda number: db.get("blocks", number_key(number)))
        self._trim_from = 0
        self._deferred_from = FIRST_KEY  # no deferred choice lies below this key
        self._range_tombstones = 0
        self.reclaimable_size_bytes = 0

    def deferred(self, before: bytes, limit: int) -> list[bytes]:
        """Returns the keys of entries below `before` whose time is not chosen yet, ascending, at most `limit`.

        An entry may have ended or moved since it was deferred. O(1) if there are none, otherwise O(keys returned).
        """
        if self._deferred_from >= before:
            return []
        rows = self._scan_keys("meta", _DEFERRED + self._deferred_from, _DEFERRED + before, limit)
        keys = [row[len(_DEFERRED) :] for row in rows]
        self._deferred_from = keys[0] if keys else before
        return keys

    def write(self, changes: EntryChanges) -> WriteDelta:
        """Makes all changes visible in one WriteBatch, or none of them. They are durable after the next `sync`.

        Returns the delta of the changes, for the wheel. Raises DiskFull, StorageError or Corrupt; then nothing has
        changed. O(changes), about 3 us an entry, most of it in RocksDB.
        """
        delta = delta_of(changes)
        rows = self._pending_counts.changed(delta)
        checkpoint = self._next_checkpoint(changes, delta)
        batch = WriteBatch(raw_mode=True)
        _fill(batch, self._db, changes)
        put, delete, family = batch.put, batch.delete, self._db.handle("blocks")
        for number, row in rows.items():
            if row.pending:
                put(number_key(number), encode_count(row), family)
            else:
                delete(number_key(number), family)
        if checkpoint != self.checkpoint:
            put(CHECKPOINT_NAME, encode_checkpoint(checkpoint), self._db.handle("meta"))
        if changes.policies is not None:
            batch.put(POLICIES_NAME, encode_policies(changes.policies), self._db.handle("meta"))
        if changes.bulks is not None:
            batch.put(BULKS_NAME, encode_bulks(changes.bulks), self._db.handle("meta"))
        self._db.write(batch)
        self.checkpoint = checkpoint
        if changes.policies is not None:
            self.policies = changes.policies
        if changes.bulks is not None:
            self.bulks = changes.bulks
        self._after_write(changes, delta, rows)
        return delta

    def raise_low_water(self, steps_max: int) -> bool:
        """Raises the low-water mark over at most `steps_max` requests that have ended or are in STORE, within the range
        of the mark. Returns True if another call may raise it further.

        Legal at any time: an ended request never becomes pending again, and new requests have higher offsets. Raises
        Corrupt if the row of the range counts pending entries but there are none; DiskFull or StorageError as `write`.
        O(steps), up to two look-ups each; amortised O(1) a request, since the row keeps the raised bound.
        """
        low = offset = self._lowest_entry()
        if self._low == _NONE_PENDING:
            return False
        range_end = (self._low_range + 1) * limits.RANGE_OFFSETS
        before = min(low + steps_max, range_end)
        dues = self._first_dues(offset, before)
        while offset < before and not self._holds_low_water(offset, dues.get(offset, NO_FIRST_DUE)):
            offset += 1
        if offset == range_end:
            raise Corrupt(f"row {self._low_range} of `blocks` counts entries, but there are none from {low} on")
        if offset > low:
            row = self._pending_counts.raised(self._low_range, offset)
            batch = WriteBatch(raw_mode=True)
            batch.put(number_key(self._low_range), encode_count(row), self._db.handle("blocks"))
            self._db.write(batch)
            self._pending_counts.keep({self._low_range: row})
            self._low = offset
        return offset == before

    def _first_dues(self, start: int, before: int) -> dict[int, int]:
        """Returns the first due times of the requests in [start, before) that became entries. One seek and a scan of
        rows."""
        row = self._db.last_row("firsts", at_most=number_key(start))
        rows = self._db.range("firsts", number_key(start) if row is None else row[0], number_key(before))
        dues: dict[int, int] = {}
        for key, packed in zip(*rows.collect(before - start, _UNBOUNDED), strict=True):
            base = key_number(key)
            first, end = max(start - base, 0), min(before - base, len(packed) // 8)
            row_dues = np.frombuffer(packed, "<u8")[first:end].tolist()
            dues.update(zip(range(base + first, base + end), row_dues, strict=True))
        rows.finish()
        return dues

    def _holds_low_water(self, offset: int, first_due_ms: int) -> bool:
        key = self.place(offset)
        if key is None:
            if first_due_ms == NO_FIRST_DUE:
                return False
            key = entry_key(first_due_ms, offset)
        value = self.entry(key) if len(key) == ENTRY_KEY_SIZE_BYTES else self.parked(key)
        return value is not None and not decode_entry(value).stored

    def _next_checkpoint(self, changes: EntryChanges, delta: WriteDelta) -> Checkpoint:
        old = self.checkpoint
        return Checkpoint(
            next_request=old.next_request if changes.next_request is None else changes.next_request,
            next_dispatch=old.next_dispatch if changes.next_dispatch is None else changes.next_dispatch,
            seq=old.seq if changes.seq is None else changes.seq,
            takeover=old.takeover if changes.takeover is None else changes.takeover,
            totals=delta.totals(old.totals),
            zones=old.zones if changes.zones is None else changes.zones,
            schedules=None if old.schedules is None else old.schedules + changes.schedules,
        )

    def _after_write(self, changes: EntryChanges, delta: WriteDelta, rows: dict[int, RangeCount]) -> None:
        self._pending_counts.keep(rows)
        if rows and (self._low == _NONE_PENDING or min(rows) <= self._low_range):
            self._low_range = min(self._low_range, min(rows))
            self._low = None
        for offset, mark in changes.marks.items():
            if mark is not None:
                self.marks_end = max(self.marks_end, offset + 1)
        for key in changes.deferred:
            self._deferred_from = min(self._deferred_from, key)
        if len(delta.lost):
            self.reclaimable_size_bytes += int(delta.lost.size_bytes.sum())
        self._range_tombstones += len(changes.spans)

    def tidy(self) -> bool:
        """Frees what earlier writes no longer need: rows below the low-water mark, and range tombstones in memory.
        Returns True if it may have deleted rows; a flush alone returns False. Raises DiskFull or StorageError; a later
        call then does the same work."""
        trims = self._low_water_moved()
        if trims:
            self._trim_firsts()
        if self._range_tombstones >= limits.RANGE_TOMBSTONES_MAX:
            self._db.flush(wait=False)
            self._range_tombstones = 0
        return trims

    def _low_water_moved(self) -> bool:
        return self.low_water() - self._trim_from >= limits.FIRSTS_TRIM_OFFSETS

    def _trim_firsts(self) -> None:
        """Deletes the rows of `firsts` that contain only offsets below the low-water mark, and the rows `o` of `ended`
        for the requests in these rows."""
        low = self.low_water()
        row = self._db.last_row("firsts", at_most=number_key(low))
        bound = 0 if row is None else key_number(row[0])  # this row may contain offsets above the mark: keep it
        if bound > self.first_dues_from:
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(number_key(self.first_dues_from), number_key(bound), self._db.handle("firsts"))
            offsets = control_end_key(self.first_dues_from), control_end_key(bound)
            batch.delete_range(*offsets, self._db.handle("ended"))
            self._db.write(batch)
            self._range_tombstones += 1
            self.first_dues_from, self._firsts_row = bound, (0, b"")
        self._trim_from = low

    def forget_outcomes(self, at_ms: int, read_ms: int = -1) -> None:
        """Deletes outcomes of ids that are older than the window, at most once in each window. Deletes the outdated
        hours of deliveries (`DeliveredIds.outdated`).

        `read_ms` is the time up to which requests were read, in epoch ms, or -1 if unknown.
        """
        before = self.outcomes.outdated(at_ms)
        hours = self.delivered.outdated(min(at_ms, read_ms))
        if before is None and hours is None:
            return
        batch = WriteBatch(raw_mode=True)
        if before is not None:
            batch.delete_range(generation_key(0), before, self._db.handle("ended"))
        if hours is not None:
            batch.delete_range(hour_key(0), hours, self._db.handle("ended"))
        self._db.write(batch)

    def sync(self) -> None:
        """Makes all earlier writes durable, even if power is lost. One fsync, which releases the GIL."""
        self._db.sync()

    def release_memory(self) -> None:
        """Flushes the memtables and returns once they are empty. Releases the GIL."""
        self._db.flush(wait=True)

    def reclaim(self, before: bytes) -> bool:
        """Frees the disk space of ended entries below `before` if that is worth a compaction. Returns True if it
        compacted.

        Flushes the memtables first if the memtables of the process are crowded. Takes about 1 s for 600 MB, so call it
        when nothing is due. Releases the GIL.
        """
        if self._resources.is_crowded:
            self._db.flush(wait=True)
        if self.reclaimable_size_bytes < limits.RECLAIM_SIZE_BYTES_MIN:
            return False
        self._db.compact("entries", FIRST_KEY, before)
        self.reclaimable_size_bytes = 0
        return True

    def close(self) -> None:
        """Releases the directory. A second call does nothing."""
        self._db.close()


def _identify(db: Database, identity: Identity) -> tuple[bool, bytes]:
    """Writes the identity of a new log, or checks the identity of an existing one. Returns whether the log is new, and
    its random id."""
    row = db.get("meta", _IDENTITY)
    is_new = row is None
    if row is None:
        if db.first_key("entries", FIRST_KEY) is not None or db.get("meta", CHECKPOINT_NAME) is not None:
            raise Corrupt("the timer log has lost its identity")
        row = new_identity_row(identity)
        batch = WriteBatch(raw_mode=True)
        batch.put(_IDENTITY, row, db.handle("meta"))
        db.write(batch)
        db.sync()
    return is_new, check_identity_row(row, identity)


def _fill(batch: WriteBatch, db: Database, changes: EntryChanges) -> None:
    """Adds the changes to a batch. For entries, deletions precede the new values, since a batch keeps its order.

    Deletes only entries that are in the timer log: an entry that was put and ended within the changes leaves no
    tombstone. A span of entries becomes one range tombstone that ends just after its last key, never at the bound of a
    scan.
    """
    put, delete = batch.put, batch.delete
    entries = db.handle("entries")
    for span in changes.spans:
        batch.delete_range(span.keys[0], span.keys[-1] + _AFTER, entries)
    overlay = changes.entries
    for key in changes.drops:
        if overlay[key] is None:
            delete(key, entries)
    for key, value in overlay.items():
        if value is not None:
            put(key, value, entries)
    parked = db.handle("parked")
    for key in changes.parked_drops:
        if changes.parked[key] is None:
            delete(key, parked)
    for key, value in changes.parked.items():
        if value is not None:
            put(key, value, parked)
    places = {number_key(offset): place for offset, place in changes.places.items()}
    deferred = {_DEFERRED + key: value for key, value in changes.deferred.items()}
    marks = {number_key(o): None if mark is None else encode_mark(mark) for o, mark in changes.marks.items()}
    for name, rows in (
        ("ids", changes.ids),
        ("ended", changes.ended),
        ("places", places),
        ("ahead", marks),
        ("meta", deferred),
    ):
        family = db.handle(name)
        for key, value in rows.items():
            if value is None:
                delete(key, family)
            else:
                put(key, value, family)
    firsts = db.handle("firsts")
    for offset, packed in changes.firsts:
        if packed:
            put(number_key(offset), packed, firsts)
