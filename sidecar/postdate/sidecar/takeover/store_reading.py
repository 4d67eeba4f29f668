"""Reads STORE, the store topic: it holds the entries of requests that the request topic need not keep.

Part of step 5 of a takeover (docs/protocol.md); also used after step 6, if R moves past deleted requests. After the
fence no older owner can write to STORE, so STORE is read completely, up to the record that `write_bound` appends.

Thread rule: the shard's thread. Cost: one pass over the records that compaction has left, some 20 us per pending entry.
"""

from __future__ import annotations

import msgspec

from postdate.kafka.errors import KafkaFault, RecordRejected, Retriable
from postdate.kafka.interface import Partition, Record
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.dispatch_tail import read_log, unreadable_record_halt
from postdate.sidecar.takeover.limits import STORE_RECORDS_MAX
from postdate.sidecar.transaction.limits import FLUSH_TIMEOUT_S
from postdate.sidecar.transaction.store_records import entry_of
from postdate.wheel.entry import Entry, Spread
from postdate.wheel.index import TimerIndex
from postdate.wire.errors import FormatError
from postdate.wire.stored import BOUND_KEY, decode_stored, stored_offset
from postdate.wire.values.windows import not_before


def rebuild(
    ctx: ShardContext, index: TimerIndex, low: int, first: int, accepted: AcceptedLosses, logged_ms: int
) -> int:
    """Puts the entries of STORE for requests below `low` into the index; returns the number of entries in the index.

    Requests from `low` on come from REQ with the fates of the dispatch log; if they were read here as well, they would
    be delivered twice. `first`: requests below this offset are skipped too. `logged_ms`: the time of the last record of
    the dispatch log; -1 if there is none. REQUIRES: the index contains none of these entries. Raises as `write_bound`,
    `read_log` and `apply_stored`.
    """

    def apply(records: list[Record]) -> None:
        ours = [record for record in records if not accepted.skips(ctx.store.topic, record.offset)]
        if first:
            ours = [record for record in ours if _is_from(first, record)]
        for at in range(0, len(ours), STORE_RECORDS_MAX):
            apply_stored(index, ctx.store, ours[at : at + STORE_RECORDS_MAX], low, logged_ms)

    end = write_bound(ctx)
    start = ctx.admin.start_offsets([ctx.store])[ctx.store]
    read_log(ctx, ctx.store, start, end, apply)
    return index.count


def write_bound(ctx: ShardContext) -> int:
    """Writes a record to STORE and returns its offset: everything that older owners have committed lies below it.

    A deposed leader may answer a query for the end of the log, but only the true leader can append. The record is a
    tombstone under a key that no request has; every reader skips it. REQUIRES: the fence. Raises KafkaFault, as
    Retriable if the offset is unknown.
    """
    try:
        return _write_bound(ctx, created_ms=0)
    except RecordRejected:
        # The clock of this machine may be so far ahead of the broker's that the broker refuses its timestamps.
        return _write_bound(ctx, created_ms=1)


def _write_bound(ctx: ShardContext, created_ms: int) -> int:
    answers: list[tuple[KafkaFault | None, int]] = []
    producer = ctx.kafka.plain_producer(created_ms)
    try:
        producer.produce(
            ctx.store.topic, None, BOUND_KEY, [], ctx.store.index, lambda fault, at, _: answers.append((fault, at))
        )
        producer.flush(FLUSH_TIMEOUT_S)
    finally:
        producer.destroy()
    fault, offset = answers[0] if answers else (None, -1)
    if fault is not None:
        raise fault
    if offset < 0:  # no answer, or the answer to a repeated request
        raise Retriable(f"{ctx.store.topic}/{ctx.partition} did not report where a record was appended")
    return offset


def _is_from(first: int, record: Record) -> bool:
    """True unless the record's request lies below `first`. Also True for unreadable records: `apply_stored` handles
    them."""
    try:
        return stored_offset(record.key) >= first
    except FormatError:
        return True


def apply_stored(index: TimerIndex, store: Partition, records: list[Record], low: int, logged_ms: int) -> None:
    """Applies records of STORE to the index in one local write. The last record of each request below `low` counts; a
    null value removes the entry. If an entry has an even spread and its time had passed by `logged_ms`, it gets a later
    time, since its owner may have chosen a later one.

    Raises Halted if another program or a newer version wrote a record.
    """
    overlay = IndexOverlay(index)
    last: dict[int, Entry | None] = {}
    for record in records:
        try:
            offset = stored_offset(record.key)
            if offset < low:
                entry = None
                if record.value is not None:
                    entry = entry_of(decode_stored(record.key, record.value, record.headers))
                last.pop(offset, None)
                last[offset] = entry
        except FormatError as error:
            raise unreadable_record_halt(store, record, error) from error
    for offset, entry in last.items():
        _put(overlay, offset, entry and _chosen_behind(entry, logged_ms))
    overlay.write()


def _chosen_behind(entry: Entry, logged_ms: int) -> Entry:
    window = entry.window
    if window is None or window.spread == Spread.DRAWN:
        return entry
    return msgspec.structs.replace(entry, due=not_before(entry.due, logged_ms, window.due + window.length_ms))


def _put(overlay: IndexOverlay, offset: int, entry: Entry | None) -> None:
    """Replaces the entry of a request by `entry`, the entry in its STORE record; None if the request has ended."""
    key = overlay.find(offset)
    if key is not None:
        overlay.end(key, overlay.entry(key))
    if entry is not None:
        overlay.put(offset, entry.due, entry)
        overlay.count_schedule(entry, 1)
        overlay.claim_id(entry, offset)  # the former holder of the id ended in the transaction that stored this one
