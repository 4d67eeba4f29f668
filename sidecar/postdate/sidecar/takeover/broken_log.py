"""Handles a break in `seq`: a dispatch-log record is missing or duplicated, or another program wrote one.

It is unknown which fates are missing, so delivering the requests that they may have ended could cause duplicates. An
operator may accept to give these requests up: all that existed when the record at the break was written, and those of
one more hour, except what STORE holds. An owner that later replays the same break finds the owner record that names the
acceptance, and continues in the same way.

Thread rule: the shard's thread, after the fence.
"""

from __future__ import annotations

from dataclasses import dataclass

from postdate.kafka.interface import Record
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import HaltReason, Loss
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.dispatch_tail import decode, read_log
from postdate.sidecar.takeover.empty_start import Start, certain_request, first_request, start_at
from postdate.wire.dispatch_log import DispatchRecord


class SeqBroken(Exception):
    """The record at `offset` does not follow the record before it. Caught by the takeover."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"offset {offset}: seq {expected} expected")
        self.offset = offset
        self.expected = expected


@dataclass(slots=True)
class _LastBreak:
    """The state while reading on from a break: the last break, and a later owner's record that names its acceptance."""

    expected: int
    record: Record | None = None
    decoded: DispatchRecord | None = None
    last: DispatchRecord | None = None
    logged_ms: int = -1
    accepted_end: int = -1

    def add(self, record: Record, decoded: DispatchRecord) -> None:
        if decoded.seq != self.expected:
            self.record, self.decoded, self.accepted_end = record, decoded, -1
        self.expected, self.last, self.logged_ms = decoded.seq + 1, decoded, record.timestamp_ms
        for loss in decoded.accepted or []:
            if loss.reason == HaltReason.SEQ_BROKEN:
                self.accepted_end = loss.end


def start_behind(ctx: ShardContext, acceptance: AcceptedLosses, broken: SeqBroken, low: int, end: int) -> Start:
    """Where to start after the last break of the dispatch log below `end`, giving up requests from `low` on.

    Raises Halted, unless this was accepted, now or by an earlier owner.
    """
    found = _LastBreak(broken.expected)

    def apply(records: list[Record]) -> None:
        for record in records:
            if not acceptance.skips(ctx.log.topic, record.offset):
                found.add(record, decode(ctx.log, record))

    read_log(ctx, ctx.log, broken.offset, end, apply)
    assert found.record is not None, "the break was read before"
    assert found.decoded is not None, "a record was read"
    assert found.last is not None, "a record was read"
    at, seq, first = found.record.offset, found.decoded.seq, found.accepted_end
    if first < 0:
        until = certain_request(ctx, found.record, low)
        loss = Loss(HaltReason.SEQ_BROKEN, ctx.own.requests, low, until, seq, at)
        first = acceptance.require(
            ctx.name,
            loss,
            f"record {ctx.log.topic}/{ctx.partition}/{at} has seq {seq} and does not follow on the one before it (at "
            f"offset {broken.offset}, seq {broken.expected} must be): a record was lost, written twice or written by "
            f"another program, and delivering what it ended would repeat messages. To continue, accept the loss of the "
            f"requests [{low}, {until}) that are pending and not in {ctx.own.store}; run postdate audit first",
        ).end
    else:  # owners have gone on since, and retention may have deleted requests that they no longer needed
        req_start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
        first = max(first, first_request(ctx, found.last, acceptance, req_start))
    return start_at(first, at, found.decoded.takeover, found.last, found.logged_ms)
