"""Step 5 of a takeover (docs/protocol.md): finds the start of a shard without local state, from Kafka alone.

The last committed dispatch-log record names the oldest request that is still needed. If Kafka no longer holds this
request, or fates of requests from it on, the shard halts and names the range; an operator may accept its loss. Requests
that are given up are not delivered: they may have been delivered before, and their fates may have been deleted since.

Thread rule: the shard's thread, after the fence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import Isolation, Record
from postdate.sidecar.config.limits import DISPATCH_LOG_RETENTION_MARGIN_MS
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason, Loss
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.dispatch_tail import (
    decode,
    first_record,
    last_committed_record,
    read_log,
)
from postdate.sidecar.takeover.store_reading import rebuild
from postdate.wheel.index import TimerIndex
from postdate.wire.dispatch_log import DispatchRecord, PolicyRow
from postdate.wire.requests.retry_policies import NamedPolicies

log = logging.getLogger(__name__)

#: The seq of an index that starts empty in the middle of the dispatch log.
SEQ_UNKNOWN = -1


@dataclass(slots=True)
class LogBounds:
    """The offsets of the dispatch log, queried after the fence: [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an empty index: request `low`, and the dispatch log from `position` on.

    `seq`: SEQ_UNKNOWN, since the first replayed record sets the seq of the index; 0 for a log without records.
    `last_seq`: the seq of the last record of the log. `ingested`: earlier owners have ingested the requests below this
    offset. `policies`: the named retry policies of the last record. `remembers`: True if the last record shows that ids
    of delivered messages are remembered. `logged_ms`: the time of the last record.
    """

    low: int
    position: int
    takeover: int
    seq: int
    last_seq: int
    ingested: int
    policies: tuple[PolicyRow, ...] = ()
    remembers: bool = False
    logged_ms: int = -1


def find_start(ctx: ShardContext, bounds: LogBounds, acceptance: AcceptedLosses) -> Start:
    """Returns the start of an empty index; changes nothing.

    Raises Halted, naming the range, if Kafka no longer holds the needed records and their loss was not accepted. Raises
    Halted in any case if the request topic ends below the requests that were read. Raises as `decode` and `read_log`.
    """
    record = last_committed_record(ctx, bounds.start, bounds.end, acceptance)
    req_start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    if record is None:
        low = _first_unrecorded(ctx, bounds, acceptance, req_start)
        return Start(low, bounds.start, takeover=0, seq=0, last_seq=0, ingested=0)
    last = decode(ctx.log, record)
    low = first_request(ctx, last, acceptance, req_start)
    low, position = _first_dispatch(ctx, bounds, acceptance, low, last, record.timestamp_ms)
    return start_at(low, position, last.takeover, last, record.timestamp_ms)


def start_at(low: int, position: int, takeover: int, last: DispatchRecord, logged_ms: int) -> Start:
    """Returns the start of an empty index in the middle of a log that ends with the record `last`, written at
    `logged_ms`."""
    policies, remembers = (*(last.policies or ()),), bool(last.remembers or last.ids)
    return Start(low, position, takeover, SEQ_UNKNOWN, last.seq, last.ingested_to, policies, remembers, logged_ms)


def start_empty(ctx: ShardContext, index: TimerIndex, start: Start, acceptance: AcceptedLosses) -> None:
    """Fills an empty index from STORE with requests below `start.low`, then sets its R, D and retry policies, and the
    ids of delivered messages."""
    stored = rebuild(ctx, index, start.low, 0, acceptance, start.logged_ms) if start.low else 0
    overlay = IndexOverlay(index)
    overlay.advance(next_request=start.low, next_dispatch=start.position, seq=start.seq, takeover=start.takeover)
    if start.policies:
        overlay.set_policies(NamedPolicies(start.policies))
    _read_ids_back(ctx, index, start, acceptance)
    overlay.write()
    if start.takeover:
        where = f"{stored} stored requests, request {start.low} and dispatch-log offset {start.position}"
        log.info("shard %s: rebuilding from %s", ctx.name, where)


def _read_ids_back(ctx: ShardContext, index: TimerIndex, start: Start, acceptance: AcceptedLosses) -> None:
    """Remembers delivered ids that an unread request may repeat, from the dispatch-log records before the replay. Uses
    only the ids of these records. Raises as `decode` and `read_log`.

    Reading begins one window and DISPATCH_LOG_RETENTION_MARGIN_MS before the first request at or above `start.low`,
    since every unread request is at least as new. If there is no such request, reading begins as long before the last
    record below the replay. If the producer, not the broker, stamped the request, reading begins at the start of the
    log.
    """
    window_ms = index.timer_log.delivered.window_ms
    if not window_ms or not start.remembers:
        return
    first = _first_pending(ctx, start.low, start.ingested)
    read_from = ctx.admin.start_offsets([ctx.log])[ctx.log]
    if first is None or first.log_append:
        newest = last_committed_record(ctx, read_from, start.position, acceptance) if first is None else first
        if newest is None or newest.timestamp_ms < 0:
            return
        since_ms = newest.timestamp_ms - window_ms - DISPATCH_LOG_RETENTION_MARGIN_MS
        found = _log_since(ctx, since_ms, start.logged_ms)
        if found is None:
            return
        read_from = max(found, read_from)

    def apply(records: list[Record]) -> None:
        overlay = IndexOverlay(index)
        for record in records:
            if not acceptance.skips(ctx.log.topic, record.offset) and (ids := decode(ctx.log, record).ids):
                ctx.counts.unremembered_ids += overlay.remember_ids(ids, record.timestamp_ms)
        overlay.write()

    read_log(ctx, ctx.log, read_from, start.position, apply)


def _first_unrecorded(ctx: ShardContext, bounds: LogBounds, acceptance: AcceptedLosses, req_start: int) -> int:
    """Returns the request at which a shard without a dispatch-log record starts.

    A new shard starts at the first request. An older shard has lost every fate, and starts at the end of the accepted
    loss. Raises Halted if that loss was not accepted.
    """
    emptied = bounds.start > 0  # even if a marker is left
    if not emptied and ctx.admin.group_offset(ctx.config.group_id, ctx.requests) is None:
        return req_start
    end = ctx.admin.end_offsets([ctx.requests], Isolation.READ_UNCOMMITTED)[ctx.requests]
    return acceptance.require(
        ctx.name,
        Loss(HaltReason.DISPATCH_LOG_EMPTY, ctx.own.requests, req_start, end, since=bounds.start),
        f"{ctx.log.topic}/{ctx.partition} holds no record, but {ctx.name} was served before: the fates of what was "
        f"delivered are gone, and delivering could repeat messages. To continue, accept the loss of the requests "
        f"[{req_start}, {end}) that are not in {ctx.own.store}",
    ).end


def first_request(ctx: ShardContext, last: DispatchRecord, acceptance: AcceptedLosses, req_start: int) -> int:
    """Returns L, the first request that is still needed; if retention has deleted it, the first request that still
    exists. Raises Halted if the topic was truncated, or if the loss of deleted requests was not accepted."""
    req_end = ctx.admin.end_offsets([ctx.requests], Isolation.READ_UNCOMMITTED)[ctx.requests]
    low, read = last.low_water, max(last.low_water, last.ingested_to)
    if read > req_end:
        raise Halted(
            HaltReason.REQUESTS_TRUNCATED,
            f"{ctx.name} ends at offset {req_end}, but requests up to {read} were read: the topic was truncated, or "
            "created again while its dispatch log was kept",
            Loss(HaltReason.REQUESTS_TRUNCATED, ctx.own.requests, req_end, read),
        )
    if low >= req_start:
        return low
    acceptance.require(
        ctx.name,
        Loss(HaltReason.LOW_WATER_OUTSIDE, ctx.own.requests, low, req_start, last.seq),
        f"requests from {low} on are needed, but {ctx.name} begins at {req_start}: requests [{low}, {req_start}) were "
        f"deleted, and those of them that are pending and not in {ctx.own.store} are lost",
    )
    return req_start


def _first_dispatch(
    ctx: ShardContext, bounds: LogBounds, acceptance: AcceptedLosses, low: int, last: DispatchRecord, logged_ms: int
) -> tuple[int, int]:
    """Returns `low`, and a dispatch-log offset below which there are no fates of requests at or above `low`.

    `low` is raised if fates of requests at or above it were deleted and the loss was accepted. If the returned offset
    lies below the end of the log, the replay must read the record there. `last`, `logged_ms`: the last committed
    record, and its time.
    """
    request = _first_pending(ctx, low, last.ingested_to)
    if request is None:
        return low, bounds.end
    position = bounds.start
    if request.log_append:
        found = _log_since(ctx, request.timestamp_ms - DISPATCH_LOG_RETENTION_MARGIN_MS, logged_ms)
        position = bounds.end if found is None else max(found, bounds.start)
    # The replay begins at the last record before `position`: a break of `seq` after it shows that fates were lost. If
    # that record is deleted meanwhile, the read fails.
    before = last_committed_record(ctx, bounds.start, position, acceptance)
    if before is not None:
        return low, before.offset
    oldest = _oldest_fates(ctx, bounds, acceptance)
    if oldest is not None:
        low = _above_missing(ctx, acceptance, low, request, oldest)
    return low, bounds.start


def _first_pending(ctx: ShardContext, low: int, ingested: int) -> Record | None:
    """Returns the first request at or above `low`; None if there is none. Raises as `read_log`.

    The search extends at least to `ingested`, up to which owners have read: a deposed leader may report a lower end.
    """
    return first_record(ctx, ctx.requests, low, max(_end(ctx, low), ingested))


def _log_since(ctx: ShardContext, since_ms: int, logged_ms: int) -> int | None:
    """Returns the first offset of the dispatch log stamped at or after `since_ms`; None if there is none.

    `logged_ms`: the time of the last committed record. Raises Retriable if no offset is found although that record is
    not older: a deposed leader may have answered.
    """
    found = ctx.admin.offset_for_time(ctx.log, since_ms)
    if found is None and logged_ms >= since_ms:
        raise Retriable(
            f"the leader of {ctx.log.topic}/{ctx.partition} reports no record since {since_ms}, although one of "
            f"{logged_ms} was read: it may have been deposed"
        )
    return found


def _oldest_fates(ctx: ShardContext, bounds: LogBounds, acceptance: AcceptedLosses) -> Record | None:
    """Returns the oldest record of the dispatch log if earlier ones are missing; otherwise None."""
    oldest = oldest_record(ctx, bounds, acceptance)
    return oldest if oldest is not None and decode(ctx.log, oldest).seq > 1 else None


def oldest_record(ctx: ShardContext, bounds: LogBounds, acceptance: AcceptedLosses) -> Record | None:
    """Returns the oldest committed record of the dispatch log that is not skipped; None if there is none."""
    start = bounds.start
    while True:
        oldest = first_record(ctx, ctx.log, start, bounds.end)
        if oldest is None or not acceptance.skips(ctx.log.topic, oldest.offset):
            return oldest
        start = oldest.offset + 1


def _above_missing(ctx: ShardContext, acceptance: AcceptedLosses, low: int, request: Record, oldest: Record) -> int:
    """Returns the first request whose fates the dispatch log certainly still holds. That is `low` if no record before
    `oldest` can have ended `request`, the first request at or above `low`. Raises Halted unless the loss of the
    requests below the result was accepted.

    When `oldest` was written, no owner had read a request at or above its `ingested_to`. Timestamps are not compared,
    since the clocks of producers and brokers differ.
    """
    end = decode(ctx.log, oldest).ingested_to
    if request.offset >= end:
        return low
    return acceptance.require(
        ctx.name,
        Loss(HaltReason.FATES_MISSING, ctx.own.requests, low, end),
        f"the dispatch log begins at offset {oldest.offset}, but requests up to {end} of {ctx.name} were read before: "
        f"fates of the requests [{low}, {end}) may have been deleted, and delivering them could repeat them. To "
        f"continue, accept the loss of those that are not in {ctx.own.store}. The dispatch log must keep its records "
        "for longer than the request topic",
    ).end


def certain_request(ctx: ShardContext, record: Record, low: int) -> int:
    """Returns the first request at or above `low` that certainly did not end before the dispatch-log record `record`:
    the broker stamped the request at least an hour later, or no owner had read it. Raises as `read_log`.

    Owners had read requests up to `ingested_to` of the record. A forged record may name a lower offset, and a deposed
    leader may report a lower end of the topic, so the bound is the higher of the two.
    """
    end, since_ms = _end(ctx, low), record.timestamp_ms + DISPATCH_LOG_RETENTION_MARGIN_MS
    end = max(end, decode(ctx.log, record).ingested_to)
    certain = ctx.admin.offset_for_time(ctx.requests, since_ms) if record.log_append else None
    if certain is None:
        return end
    request = first_record(ctx, ctx.requests, certain, end)
    # The broker may have returned an aborted record, and a producer may stamp any time.
    is_certain = request is not None and request.log_append and request.timestamp_ms >= since_ms
    return max(certain, low) if is_certain else end


def _end(ctx: ShardContext, low: int) -> int:
    """Returns the end of the committed requests, or `low` if that is higher. Owners read nothing after the start of an
    open transaction."""
    return max(low, ctx.admin.end_offsets([ctx.requests], Isolation.READ_COMMITTED)[ctx.requests])
