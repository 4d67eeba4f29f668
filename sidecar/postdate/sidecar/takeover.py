"""Takeover: what a process does before it may act for a shard. Steps 1 to 7 of docs/protocol.md, in that order.

Each step takes the result of the step before it as its argument, and only `own`, the last, makes a `Tenure`, without
which nothing can be dispatched. So the order open, check, fence, bound, recover, own cannot be broken by a caller.

Thread rule: runs on the thread of its shard, off the poll thread; the request partition stays paused meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from postdate.connectors.kafka.seam import Isolation, Partition, Record, TransactionalProducer
from postdate.connectors.wire.dispatch_log import OWNER, DispatchRecord
from postdate.sidecar import failpoints
from postdate.sidecar.apply import apply_fate, check_causes
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.dispatch_tail import Stopped, decode, last_committed, read_until
from postdate.sidecar.draft import Draft, read_up_to
from postdate.sidecar.empty_start import SEQ_UNKNOWN, Bounds, start_empty
from postdate.sidecar.errors import Contradicted, Halted, HaltReason, Loss
from postdate.sidecar.limits import FENCE_TIMEOUT_S, PRODUCER_MESSAGE_BYTES_MAX, RECOVERY_RECORDS_MAX
from postdate.sidecar.losses import Acceptance
from postdate.sidecar.opening import Opened, discard, keep, open_index
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.store_reading import rebuild
from postdate.sidecar.transaction import Tenure
from postdate.wheel.entry import Mark
from postdate.wheel.index import TimerIndex

log = logging.getLogger(__name__)

_TRUNCATED = "was truncated, or an unclean leader election lost its end"


@dataclass(slots=True)
class Checked:
    """Step 2 is done: the local offsets lie within both logs, or the index is known to be of no use (`empty`), or what
    is amiss was accepted: then D goes back to `rewind_to`."""

    index: TimerIndex
    acceptance: Acceptance
    empty: bool
    behind: bool
    rewind_to: int = -1
    last_seq: int = 0
    ingested: int = 0
    """Requests below this were taken in before, by whoever: what limits their sender has been asked then."""
    replaceable: bool = True
    """Nothing was accepted that only this index knows: the topics hold all that a rebuild needs."""


@dataclass(slots=True)
class FencedOff:
    """Step 3 is done: every older owner is fenced, and its open transaction is over."""

    checked: Checked
    producer: TransactionalProducer


@dataclass(slots=True)
class Bounded(Bounds):
    """Step 4 is done: `end` is the end of the dispatch log, `store_end` that of STORE, both read after the fence."""

    fenced: FencedOff


@dataclass(slots=True)
class Recovered:
    """Steps 5 and 6 are done: the index holds requests below R minus what has ended, up to the bound."""

    index: TimerIndex
    producer: TransactionalProducer
    ingested: int
    acceptance: Acceptance
    low_water: int
    """The highest L that is committed: what is said from here on is never less, however old this index is."""


def check(
    ctx: ShardContext, opened: Opened, acceptance: Acceptance | None = None, standing: Loss | None = None
) -> Checked:
    """Step 2. Compare R and D with the logs.

    `standing`: the loss for which this shard halted before. A log that was truncated grows again, and then nothing but
    this tells that offsets were used twice. Raises Halted where a log has lost what the index has seen, unless that is
    accepted.
    """
    index, acceptance = opened.index, acceptance or Acceptance()
    replaceable = standing is None and not acceptance.accepted
    ends = ctx.admin.end_offsets((ctx.requests, ctx.log), Isolation.READ_UNCOMMITTED)
    fresh = index.next_request is None or index.next_dispatch is None or index.seq == SEQ_UNKNOWN
    reason = HaltReason.REQUESTS_TRUNCATED
    lost = _truncated(reason, ctx.requests, ends, None if fresh else index.next_request, standing)
    if lost is not None:
        _check_refilled(ctx, acceptance, lost, ends[ctx.requests])
    if fresh or index.next_request is None or index.next_dispatch is None:
        _check_knows_fates(ctx, standing)
        return Checked(index, acceptance, empty=True, behind=False)
    starts = ctx.admin.start_offsets((ctx.requests, ctx.log))
    behind = index.next_request < starts[ctx.requests]
    lost = _truncated(HaltReason.DISPATCH_LOG_TRUNCATED, ctx.log, ends, index.next_dispatch, standing)
    if lost is None:
        missed = _has_missed(index.next_dispatch, ctx.log, starts, ends)
        return Checked(index, acceptance, empty=missed, behind=behind, replaceable=replaceable)
    detail = (
        f"{ctx.log.topic}/{ctx.partition} ended at offset {lost.first}, but records up to {lost.end} were seen: it "
        f"{_TRUNCATED}. The index here knows those fates and can go on; nobody else can rebuild it without them"
    )
    if acceptance.covering(lost) is None:
        _leave_mark(ctx, index, acceptance)
    accepted = acceptance.take(ctx.name, lost, detail)
    rewind_to = max(min(accepted.first, ends[ctx.log]), starts[ctx.log])
    return Checked(index, acceptance, empty=False, behind=behind, rewind_to=rewind_to, replaceable=False)


def _has_missed(seen: int, part: Partition, starts: dict[Partition, int], ends: dict[Partition, int]) -> bool:
    """True where records from D on were deleted. Not where all that was deleted is one offset and nothing follows: D
    lies behind a record, so that is its transaction's marker; a record that was missed would have one of its own."""
    return seen < starts[part] and not seen + 1 == starts[part] == ends[part]


def _leave_mark(ctx: ShardContext, index: TimerIndex, acceptance: Acceptance) -> None:
    """Commit a record behind the gap, once: whoever rebuilds this shard elsewhere meets a break of `seq`, and halts
    instead of delivering again what the lost fates had ended. The index stays as it is. Raises as `fence` and `own`."""
    last = last_record(ctx)
    if last is not None and last.seq > index.seq:
        return
    fenced = fence(ctx, Checked(index, acceptance, empty=False, behind=False))
    try:
        tenure = _tenure(ctx, fenced.producer, index, BrokerClock(ctx.clock), takeover=index.takeover + 1)
        tenure.run([], [], OWNER, read_up_to(index), index.low_water(), due_max_ms=0)
    finally:
        fenced.producer.destroy()


def _check_knows_fates(ctx: ShardContext, standing: Loss | None) -> None:
    """Raises Halted where the dispatch log was truncated and the index that knew the fates from there is not here."""
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
    """What a log has lost of the offsets below `seen` (None: not known), as found now or when the shard halted."""
    stands = standing is not None and standing.reason is reason and seen in (None, standing.end)
    if seen is not None and seen > ends[part]:
        first = min(ends[part], standing.first) if stands and standing is not None else ends[part]
        return Loss(reason, part.topic, first, seen)
    return standing if stands else None


def _check_refilled(ctx: ShardContext, acceptance: Acceptance, lost: Loss, end: int) -> None:
    """Requests that come to lie where others were are given up, and the log must have passed them: their origins are
    taken. Raises Halted until both is so."""
    detail = (
        f"{ctx.name} ended at offset {lost.first}, but requests up to {lost.end} were read: it {_TRUNCATED}. Requests "
        f"that were produced since to the offsets [{lost.first}, {lost.end}) bear the origins of others and are never "
        f"read; the shard can go on when the topic has reached offset {lost.end}"
    )
    acceptance.take(ctx.name, lost, detail)
    if end < lost.end:
        raise Halted(lost.reason, f"{detail}. That is accepted; it has reached {end}", lost)


def fence(ctx: ShardContext, checked: Checked) -> FencedOff:
    """Step 3. From here on no older owner can commit. Raises Retriable or Unreachable: try the takeover again.

    Raises Stopped where the shard has been taken away meanwhile: a fence now would hit its rightful owner.
    """
    if ctx.stopping():
        raise Stopped("told to let go before the fence")
    producer = ctx.kafka.producer(ctx.transactional_id, PRODUCER_MESSAGE_BYTES_MAX)
    try:
        producer.init(FENCE_TIMEOUT_S)
    except BaseException:
        producer.destroy()
        raise
    failpoints.reached("takeover.fenced")
    return FencedOff(checked, producer)


def bound(ctx: ShardContext, fenced: FencedOff) -> Bounded:
    """Step 4. The ends of dispatch log and STORE, of everything appended: never the last stable offset."""
    parts = (ctx.log, ctx.store)
    ends = ctx.admin.end_offsets(parts, Isolation.READ_UNCOMMITTED)
    starts = ctx.admin.start_offsets(parts)
    failpoints.reached("takeover.bounded")
    return Bounded(starts[ctx.log], ends[ctx.log], starts[ctx.store], ends[ctx.store], fenced)


def recover(ctx: ShardContext, bounded: Bounded) -> Recovered:
    """Steps 5 and 6. Bring the index to the bound, from where it is or from nothing.

    Raises Halted where Kafka no longer holds what is needed, naming the range.
    """
    checked = bounded.fenced.checked
    index, give_up_to = checked.index, -1
    if checked.behind and not checked.empty:
        give_up_to = _check_behind(ctx, bounded, checked)
        checked.empty = give_up_to < 0
    if checked.empty:
        index = _rebuild(ctx, bounded, "too old to go on from", "old")
    try:
        _replay(ctx, checked, bounded.start, bounded.end)
        check_causes(Draft(index, replaceable=checked.replaceable))
    except Contradicted as fault:
        index = _rebuild(ctx, bounded, f"contradicted by the dispatch log ({fault})", "contradicted")
        _replay(ctx, checked, bounded.start, bounded.end)
    if give_up_to >= 0:
        _give_up(ctx, bounded, index, give_up_to)
    last = last_committed(ctx.kafka, ctx.log, bounded.start, bounded.end, ctx.clock, ctx.stopping, checked.acceptance)
    failpoints.reached("takeover.recovered")
    low_water = last.low_water if last is not None else 0
    return Recovered(index, bounded.fenced.producer, checked.ingested, checked.acceptance, low_water)


def _rebuild(ctx: ShardContext, bounded: Bounded, why: str, name: str) -> TimerIndex:
    """Step 5: move an index that is of no use aside, if there is one, and begin with an empty one."""
    checked = bounded.fenced.checked
    index = checked.index
    if index.next_request is not None or index.count:
        directory = index.wheel_path.parent
        is_partial = index.next_request is None or index.seq == SEQ_UNKNOWN
        index.close()
        if is_partial:
            discard(directory)
            log.warning("shard %s: a rebuild was interrupted; it starts again", ctx.name)
        else:
            kept = keep(directory, name)
            log.warning("shard %s: the timer index is %s; kept as %s, rebuilding", ctx.name, why, kept)
        checked.index = open_index(ctx).index
    begun = start_empty(ctx, checked.index, bounded, checked.acceptance)
    checked.empty, checked.last_seq, checked.ingested = True, begun.last_seq, begun.ingested
    return checked.index


def _check_behind(ctx: ShardContext, bounded: Bounded, checked: Checked) -> int:
    """R lies below the first request. -1 where the low-water mark says that nothing down there is needed: the disk is
    only old. Else requests were deleted before they were read; raises Halted, or returns where to go on instead of R.
    """
    read = read_up_to(checked.index)
    start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    last = last_committed(ctx.kafka, ctx.log, bounded.start, bounded.end, ctx.clock, ctx.stopping, checked.acceptance)
    if last is not None and last.low_water >= start:
        return -1
    checked.acceptance.take(
        ctx.name,
        Loss(HaltReason.REQUESTS_LOST, ctx.own.requests, read, start, checked.index.seq),
        f"requests [{read}, {start}) of {ctx.name} were deleted before they were read; the retention of the request "
        f"topic is too short for the outage. To go on means to give up those that are not in {ctx.own.store}; what was "
        "read before is kept",
    )
    return start


def _give_up(ctx: ShardContext, bounded: Bounded, index: TimerIndex, start: int) -> None:
    """Move R to `start` over requests that are gone: only what STORE keeps of them is taken in. Their marks go, too."""
    read = read_up_to(index)
    rebuild(ctx, index, bounded.store_start, bounded.store_end, start, read, bounded.fenced.checked.acceptance)
    draft = Draft(index)
    for offset in range(read, min(start, index.marks_end)):
        if index.mark(offset) is not None:
            draft.changes.marks[offset] = None
    draft.changes.next_request = start
    index.write(draft.changes)


def _replay(ctx: ShardContext, checked: Checked, start: int, end: int) -> None:
    """Step 6. Apply every committed record from D to the bound; D, seq and the changes are written together."""
    index = checked.index

    def take(records: list[Record]) -> None:
        ours = [record for record in records if not checked.acceptance.skips(ctx.log.topic, record.offset)]
        for first in range(0, len(ours), RECOVERY_RECORDS_MAX):
            said = _apply_records(ctx, checked, ours[first : first + RECOVERY_RECORDS_MAX])
            checked.ingested = max(checked.ingested, said.next_request)

    position = index.next_dispatch if checked.rewind_to < 0 else checked.rewind_to
    assert position is not None, "check and start_empty leave no index without D"
    position = min(max(position, start), end)  # D may lie on a marker that was deleted
    reader = ctx.kafka.log_reader(ctx.log, position, Isolation.READ_COMMITTED)
    try:
        read_until(reader, end, ctx.clock, ctx.stopping, take)
    finally:
        reader.close()
    draft = Draft(index)
    draft.changes.next_dispatch = end
    if index.seq == SEQ_UNKNOWN:
        draft.changes.seq = checked.last_seq
    index.write(draft.changes)


def _apply_records(ctx: ShardContext, checked: Checked, records: list[Record]) -> DispatchRecord:
    """One local write for these records, at least one; returns what the last of them says."""
    index = checked.index
    draft = Draft(index, max(records[-1].timestamp_ms, 0), replaceable=checked.replaceable)
    seq, takeover = index.seq if checked.rewind_to < 0 else SEQ_UNKNOWN, index.takeover
    checked.rewind_to = -1  # from here on `seq` is that of the log as it is now
    for record in records:
        said = decode(ctx.log, record)
        if seq != SEQ_UNKNOWN and said.seq != seq + 1:
            raise Halted(
                HaltReason.SEQ_BROKEN,
                f"record {ctx.log.topic}/{ctx.partition}/{record.offset} has seq {said.seq} where {seq + 1} must be: a "
                "record was lost or written by a stranger; stop every sidecar of this topic and run postdate audit",
            )
        seq, takeover = said.seq, max(takeover, said.takeover)
        for fate in said.fates:
            apply_fate(draft, fate, read_up_to(index))
        _pass_over(ctx, draft, said)
    draft.changes.seq, draft.changes.takeover = seq, takeover
    draft.changes.next_dispatch = records[-1].offset + 1
    index.write(draft.changes)
    failpoints.reached("takeover.record-applied")
    return said


def _pass_over(ctx: ShardContext, draft: Draft, said: DispatchRecord) -> None:
    """Mark requests on offsets that were given out twice as ended: it was accepted that they are never read."""
    for reason, topic, first, end in said.accepted or []:
        if (reason, topic) == (HaltReason.REQUESTS_TRUNCATED, ctx.own.requests):
            for offset in range(max(first, read_up_to(draft.index)), end):
                draft.changes.marks[offset] = Mark(final=True, stored=False, due=-1)


def own(ctx: ShardContext, recovered: Recovered, broker_clock: BrokerClock, owned_seq: int) -> Tenure:
    """Step 7. Commit the owner record in a transaction of its own: it announces the takeover and samples the clock.

    `owned_seq`: the seq of the last owner record of this process. Where the log still ends with it, it stands: after a
    new fence no older transaction can interfere, and where every commit is slow no other record would ever follow.
    Raises as `Tenure.run`.
    """
    index = recovered.index
    accepted = recovered.acceptance.accepted
    stands = index.seq == owned_seq and broker_clock.known() and not accepted
    tenure = _tenure(ctx, recovered.producer, index, broker_clock, index.takeover + (0 if stands else 1))
    tenure.low_water_floor = recovered.low_water
    if stands:
        return tenure
    tenure.accepted = [(loss.reason.value, loss.topic, loss.first, loss.end) for loss in accepted]
    offset = tenure.run([], [], OWNER, read_up_to(index), tenure.low_water_of(index), due_max_ms=0)
    draft = Draft(index)
    draft.changes.seq, draft.changes.takeover = tenure.seq, tenure.takeover
    draft.changes.next_dispatch = offset + 1
    index.write(draft.changes)
    failpoints.reached("takeover.owned")
    return tenure


def _tenure(
    ctx: ShardContext, producer: TransactionalProducer, index: TimerIndex, broker_clock: BrokerClock, takeover: int
) -> Tenure:
    return Tenure(
        producer=producer,
        log=ctx.log,
        takeover=takeover,
        seq=index.seq,
        instance=ctx.instance,
        group=ctx.config.group_id,
        clock=ctx.clock,
        broker_clock=broker_clock,
    )


def last_record(ctx: ShardContext) -> DispatchRecord | None:
    """What the last committed record of the dispatch log says at present, None where there is none."""
    start = ctx.admin.start_offsets([ctx.log])[ctx.log]
    end = ctx.admin.end_offsets([ctx.log], Isolation.READ_UNCOMMITTED)[ctx.log]
    return last_committed(ctx.kafka, ctx.log, start, end, ctx.clock, ctx.stopping)


def end_of_requests(ctx: ShardContext) -> int:
    """Where the requests that are committed end at present: what the gate of step 8 waits for."""
    return ctx.admin.end_offsets([ctx.requests], Isolation.READ_COMMITTED)[ctx.requests]
