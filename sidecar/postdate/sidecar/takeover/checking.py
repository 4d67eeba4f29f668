"""Step 2 of a takeover (docs/protocol.md): compares R and D of the timer index with both logs.

Thread rule: the shard's thread, before the fence.
"""

from __future__ import annotations

from dataclasses import dataclass

from postdate.kafka.interface import Isolation, Partition
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason, Loss
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.empty_start import SEQ_UNKNOWN
from postdate.sidecar.takeover.opening import Opened
from postdate.wheel.index import TimerIndex

_TRUNCATED = "was truncated, or an unclean leader election lost its end"


@dataclass(slots=True)
class TakeoverProgress:
    """The state of one takeover attempt. Step 2 creates it, and later steps change it. `empty`: True if the shard must
    start from an empty index. `behind`: True if R lies below the first request of the topic. `rewind_to`: the value to
    which D goes back after an accepted truncation; otherwise -1."""

    index: TimerIndex
    acceptance: AcceptedLosses
    empty: bool
    behind: bool
    rewind_to: int = -1
    last_seq: int = 0
    ingested: int = 0
    """Earlier owners have ingested the requests below this offset and checked them against the quotas."""
    logged_ms: int = -1
    """The time of the last committed record of the dispatch log; -1 if it has none, or before step 5."""
    replaceable: bool = True
    """False if a loss stands or was accepted and the index is not empty, since this index may then contain what the
    topics have lost. Also False once the index has contradicted the log."""


def check(
    ctx: ShardContext, opened: Opened, acceptance: AcceptedLosses | None = None, standing: Loss | None = None
) -> TakeoverProgress:
    """Compares R and D with the logs: step 2.

    `standing`: the loss for which this shard halted before. After a truncated log has grown again, only this loss shows
    that offsets were used twice. Raises Halted if a log has lost records that the shard has read, unless their loss was
    accepted and, if they were requests, the topic has grown past their offsets. For lost dispatch-log records,
    acceptance does not help if the index that knows their fates is missing.
    """
    index, acceptance = opened.index, acceptance or AcceptedLosses()
    replaceable = standing is None and not acceptance.accepted
    ends = ctx.admin.end_offsets((ctx.requests, ctx.log), Isolation.READ_UNCOMMITTED)
    seen = index.checkpoint
    is_fresh = seen.next_request is None or seen.next_dispatch is None or seen.seq == SEQ_UNKNOWN
    reason = HaltReason.REQUESTS_TRUNCATED
    lost = _truncated(reason, ctx.requests, ends, None if is_fresh else seen.next_request, standing)
    if lost is not None:
        _check_refilled(ctx, acceptance, lost, ends[ctx.requests])
    if is_fresh or seen.next_request is None or seen.next_dispatch is None:
        _check_knows_fates(ctx, standing)
        return TakeoverProgress(index, acceptance, empty=True, behind=False)
    starts = ctx.admin.start_offsets((ctx.requests, ctx.log))
    behind = seen.next_request < starts[ctx.requests]
    lost = _truncated(HaltReason.DISPATCH_LOG_TRUNCATED, ctx.log, ends, seen.next_dispatch, standing)
    if lost is None:
        return TakeoverProgress(index, acceptance, empty=False, behind=behind, replaceable=replaceable)
    detail = (
        f"{ctx.log.topic}/{ctx.partition} ended at offset {lost.first}, but records up to {lost.end} were seen: it "
        f"{_TRUNCATED}. The index here knows those fates and can continue; no other process can rebuild it without them"
    )
    accepted = acceptance.require(ctx.name, lost, detail)
    rewind_to = max(min(accepted.first, ends[ctx.log]), starts[ctx.log])
    return TakeoverProgress(index, acceptance, empty=False, behind=behind, rewind_to=rewind_to, replaceable=False)


def _check_knows_fates(ctx: ShardContext, standing: Loss | None) -> None:
    """Raises Halted if the dispatch log was truncated and the index with the lost fates is missing."""
    if standing is not None and standing.reason is HaltReason.DISPATCH_LOG_TRUNCATED:
        raise Halted(
            standing.reason,
            f"{standing.topic}/{ctx.partition} {_TRUNCATED}, and the index that knew the fates at offsets "
            f"[{standing.first}, {standing.end}) is gone or damaged: without it they would be delivered again. Move "
            f"the directory that was kept beside {ctx.directory} back, or a copy of it",
            standing,
        )


def _truncated(
    reason: HaltReason, part: Partition, ends: dict[Partition, int], seen: int | None, standing: Loss | None
) -> Loss | None:
    """Returns the range that a log has lost below offset `seen` (None: unknown), found now or when the shard halted.
    Returns None if the log has lost nothing."""
    is_standing = standing is not None and standing.reason is reason and seen in (None, standing.end)
    if seen is not None and seen > ends[part]:
        first = min(ends[part], standing.first) if is_standing and standing is not None else ends[part]
        return Loss(reason, part.topic, first, seen)
    return standing if is_standing else None


def _check_refilled(ctx: ShardContext, acceptance: AcceptedLosses, lost: Loss, end: int) -> None:
    """Raises Halted unless an operator has accepted the loss of the requests whose offsets were used twice, and the
    topic has grown past these offsets. The origins of such requests are ambiguous."""
    detail = (
        f"{ctx.name} ended at offset {lost.first}, but requests up to {lost.end} were read: it {_TRUNCATED}. Requests "
        f"that were produced since to the offsets [{lost.first}, {lost.end}) have the origins of others and are never "
        f"read; the shard can continue when the topic has reached offset {lost.end}"
    )
    acceptance.require(ctx.name, lost, detail)
    if end < lost.end:
        raise Halted(lost.reason, f"{detail}. That is accepted; it has reached {end}", lost)
