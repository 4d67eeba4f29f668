"""Handles a break in `seq`: a dispatch-log record is missing or duplicated, or another program wrote one.

The missing fates are unknown, so delivering the requests that they may have ended could cause duplicates. An operator
may accept the loss of these requests, except those that STORE holds. They are all requests that the broker stamped
before the record at the break or within an hour after it. If the timestamps are not the broker's, they are all requests
up to the present end of the topic. An owner that replays the same break later finds the owner record that names the
accepted loss, and continues in the same way.

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
    """The record at `offset` has another seq than `expected`. `recover` catches this exception."""

    def __init__(self, offset: int, expected: int) -> None:
        super().__init__(f"offset {offset}: seq {expected} expected")
        self.offset = offset
        self.expected = expected


@dataclass(slots=True)
class _LastBreak:
    """The last break of the log, found by reading from the first known break on. `accepted_end`: the end of its
    accepted loss; -1 if no owner record names one."""

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
    """Returns the start after the last break of the dispatch log below `end`. Requests from `low` up to this start are
    given up, except those in STORE. Raises Halted unless their loss was accepted, now or for an earlier owner.
    """
    last_break = _LastBreak(broken.expected)

    def apply(records: list[Record]) -> None:
        for record in records:
            if not acceptance.skips(ctx.log.topic, record.offset):
                last_break.add(record, decode(ctx.log, record))

    read_log(ctx, ctx.log, broken.offset, end, apply)
    assert last_break.record is not None, "the break was read before"
    assert last_break.decoded is not None, "a record was read"
    assert last_break.last is not None, "a record was read"
    offset, seq, accepted_end = last_break.record.offset, last_break.decoded.seq, last_break.accepted_end
    if accepted_end < 0:
        until = certain_request(ctx, last_break.record, low)
        loss = Loss(HaltReason.SEQ_BROKEN, ctx.own.requests, low, until, seq, offset)
        accepted_end = acceptance.require(
            ctx.name,
            loss,
            f"record {ctx.log.topic}/{ctx.partition}/{offset} has seq {seq} and does not follow on the one before it "
            f"(at offset {broken.offset}, seq {broken.expected} must be): a record was lost, written twice or written "
            f"by another program, and delivering what it ended would repeat messages. To continue, accept the loss of "
            f"the requests [{low}, {until}) that are pending and not in {ctx.own.store}; run postdate audit first",
        ).end
    else:  # later owners continued, and retention may have deleted requests that they no longer needed
        req_start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
        accepted_end = max(accepted_end, first_request(ctx, last_break.last, acceptance, req_start))
    return start_at(accepted_end, offset, last_break.decoded.takeover, last_break.last, last_break.logged_ms)
