"""Step 5 of a takeover (docs/protocol.md): where to begin without a local state, from what Kafka holds alone.

The last committed dispatch-log record says which request is the oldest that is still needed. Where Kafka no longer
holds that request, or the fates since, the shard halts and names the range; a person may accept to lose it. What is
given up then is not delivered: a request whose fate may have been deleted could have been delivered before.

Thread rule: the shard's thread, after the fence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from postdate.connectors.kafka.seam import Isolation, LogReader, Record
from postdate.connectors.wire.dispatch_log import DispatchRecord
from postdate.sidecar.dispatch_tail import decode, last_committed, read_first
from postdate.sidecar.draft import Draft
from postdate.sidecar.errors import Halted, HaltReason, Loss
from postdate.sidecar.limits import DISPATCH_LOG_RETENTION_MARGIN_MS
from postdate.sidecar.losses import Acceptance
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.store_reading import rebuild
from postdate.wheel.index import TimerIndex

log = logging.getLogger(__name__)

#: The seq of an index that was just started empty in the middle of the dispatch log.
SEQ_UNKNOWN = -1


@dataclass(slots=True)
class Bounds:
    """What the dispatch log and STORE hold, read after the fence: [start, end) and [store_start, store_end)."""

    start: int
    end: int
    store_start: int
    store_end: int


@dataclass(frozen=True, slots=True)
class Begun:
    """An empty index has its R and D. `last_seq`: that of the last record of the dispatch log. `ingested`: requests
    below this were taken in before, by whoever."""

    last_seq: int
    ingested: int


def start_empty(ctx: ShardContext, index: TimerIndex, bounds: Bounds, acceptance: Acceptance) -> Begun:
    """Give an empty index its R, D and what STORE holds of requests below R.

    Raises Halted where Kafka no longer holds what is needed, naming the range, unless that was accepted.
    """
    last = last_committed(ctx.kafka, ctx.log, bounds.start, bounds.end, ctx.clock, ctx.stopping, acceptance)
    req_start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    if last is None:
        return _start_without_records(ctx, index, bounds, acceptance, req_start)
    low = _first_request(ctx, last, acceptance, req_start)
    low, position = _first_dispatch(ctx, bounds, acceptance, low, last.seq)
    _begin(ctx, index, bounds, acceptance, low, position, last.takeover, SEQ_UNKNOWN)
    return Begun(last.seq, last.next_request)


def _begin(
    ctx: ShardContext,
    index: TimerIndex,
    bounds: Bounds,
    acceptance: Acceptance,
    low: int,
    position: int,
    takeover: int,
    seq: int,
) -> None:
    """`seq` SEQ_UNKNOWN: that of the first record read counts, or of the last where none is left to read."""
    stored = rebuild(ctx, index, bounds.store_start, bounds.store_end, low, acceptance=acceptance) if low else 0
    draft = Draft(index)
    draft.changes.next_request, draft.changes.next_dispatch = low, position
    draft.changes.takeover, draft.changes.seq = takeover, seq
    index.write(draft.changes)
    if takeover:
        where = f"{stored} stored requests, request {low} and dispatch-log offset {position}"
        log.info("shard %s: rebuilding from %s", ctx.name, where)


def _start_without_records(
    ctx: ShardContext, index: TimerIndex, bounds: Bounds, acceptance: Acceptance, req_start: int
) -> Begun:
    """A new shard begins at the first request; one that was served before has lost every fate."""
    low, emptied = req_start, bounds.start == bounds.end > 0
    if emptied or ctx.admin.group_offset(ctx.config.group_id, ctx.requests) is not None:
        end = _end_of_all(ctx)
        loss = Loss(HaltReason.DISPATCH_LOG_EMPTY, ctx.own.requests, req_start, end, since=bounds.start)
        low = acceptance.take(
            ctx.name,
            loss,
            f"{ctx.log.topic}/{ctx.partition} holds no record, but {ctx.name} was served before: the fates of what was "
            f"delivered are gone, and to deliver again would repeat messages. To go on means to give up the requests "
            f"[{req_start}, {end}) that are not in {ctx.own.store}",
        ).end
    _begin(ctx, index, bounds, acceptance, low, bounds.start, takeover=0, seq=0)
    return Begun(0, 0)


def _first_request(ctx: ShardContext, last: DispatchRecord, acceptance: Acceptance, req_start: int) -> int:
    """L, the first request that is still needed; where retention was quicker, the first that is still there."""
    req_end = _end_of_all(ctx)
    low, read = last.low_water, max(last.low_water, last.next_request)
    if read > req_end:
        raise Halted(
            HaltReason.REQUESTS_TRUNCATED,
            f"{ctx.name} ends at offset {req_end}, but requests up to {read} were read: the topic was truncated, or "
            "created anew while its dispatch log was kept",
            Loss(HaltReason.REQUESTS_TRUNCATED, ctx.own.requests, req_end, read),
        )
    if low >= req_start:
        return low
    acceptance.take(
        ctx.name,
        Loss(HaltReason.LOW_WATER_OUTSIDE, ctx.own.requests, low, req_start, last.seq),
        f"requests from {low} on are needed, but {ctx.name} begins at {req_start}: requests [{low}, {req_start}) were "
        f"deleted, and those of them that are pending and not in {ctx.own.store} are lost",
    )
    return req_start


def _first_dispatch(
    ctx: ShardContext, bounds: Bounds, acceptance: Acceptance, low: int, last_seq: int
) -> tuple[int, int]:
    """The dispatch-log offset before which no fate of a request at or above `low` can lie; and `low`, or what it is
    raised to where such fates have been deleted and that was accepted."""
    request = first_record(ctx, ctx.kafka.log_reader(ctx.requests, low, Isolation.READ_COMMITTED), _end(ctx, low))
    if request is None:
        return low, bounds.end
    position = bounds.start
    if request.log_append:
        since = request.timestamp_ms - DISPATCH_LOG_RETENTION_MARGIN_MS
        found = ctx.admin.offset_for_time(ctx.log, since)
        position = bounds.end if found is None else max(found, bounds.start)
    if position == bounds.start and bounds.start > 0:
        oldest = _oldest_fates(ctx, bounds, acceptance)
        if oldest is not None and oldest.timestamp_ms > request.timestamp_ms:
            low = _above_missing(ctx, acceptance, low, oldest, last_seq)
    return low, position


def _oldest_fates(ctx: ShardContext, bounds: Bounds, acceptance: Acceptance) -> Record | None:
    """The oldest record of the dispatch log where others were deleted before it; None where none was."""
    start = bounds.start
    while True:
        reader = ctx.kafka.log_reader(ctx.log, start, Isolation.READ_COMMITTED)
        oldest = first_record(ctx, reader, bounds.end)
        if oldest is None or not acceptance.skips(ctx.log.topic, oldest.offset):
            break
        start = oldest.offset + 1
    return oldest if oldest is not None and decode(ctx.log, oldest).seq > 1 else None


def _above_missing(ctx: ShardContext, acceptance: Acceptance, low: int, oldest: Record, last_seq: int) -> int:
    """The first request whose fates the dispatch log still holds for certain. Raises Halted, unless it was accepted
    that those below are given up."""
    end = _end_of_all(ctx)
    if oldest.log_append:
        certain = ctx.admin.offset_for_time(ctx.requests, oldest.timestamp_ms + DISPATCH_LOG_RETENTION_MARGIN_MS)
        end = end if certain is None else max(certain, low)
    loss = Loss(HaltReason.FATES_MISSING, ctx.own.requests, low, end, last_seq, oldest.offset)
    return acceptance.take(
        ctx.name,
        loss,
        f"the dispatch log begins at offset {oldest.offset}, after request {low} of {ctx.name} was written: fates of "
        f"the requests [{low}, {end}) may have been deleted, and to deliver them could repeat them. To go on means to "
        f"give up those that are not in {ctx.own.store}. The dispatch log must keep its records for longer than the "
        "request topic",
    ).end


def first_record(ctx: ShardContext, reader: LogReader, end: int) -> Record | None:
    """The first record that `reader` finds below `end`, or None; closes the reader."""
    try:
        return read_first(reader, end, ctx.clock, ctx.stopping)
    finally:
        reader.close()


def _end(ctx: ShardContext, low: int) -> int:
    return max(low, ctx.admin.end_offsets([ctx.requests], Isolation.READ_COMMITTED)[ctx.requests])


def _end_of_all(ctx: ShardContext) -> int:
    return ctx.admin.end_offsets([ctx.requests], Isolation.READ_UNCOMMITTED)[ctx.requests]
