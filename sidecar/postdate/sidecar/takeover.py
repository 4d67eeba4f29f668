"""Takeover: what a process does before it may act for a shard. Steps 1 to 7 of docs/protocol.md, in that order.

Each step takes the result of the step before it as its argument, and only `own`, the last, makes a `Tenure`, without
which nothing can be dispatched. So the order open, check, fence, bound, recover, own cannot be broken by a caller.

Thread rule: runs on the thread of its shard, off the poll thread; the request partition stays paused meanwhile.
"""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from postdate.connectors.kafka.errors import NotAuthorized
from postdate.connectors.kafka.seam import Isolation, LogReader, Record, TransactionalProducer
from postdate.connectors.wire.dispatch_log import OWNER, DispatchRecord
from postdate.sidecar import failpoints
from postdate.sidecar.apply import apply_fate
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.dispatch_tail import Stopped, decode, last_committed, read_first, read_until
from postdate.sidecar.draft import Draft, read_up_to
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.limits import (
    ASIDE_DIRECTORIES_MAX,
    DISPATCH_LOG_RETENTION_MARGIN_MS,
    FENCE_TIMEOUT_S,
    LOCK_WAIT_MS_MAX,
    PRODUCER_MESSAGE_BYTES_MAX,
    RECOVERY_RECORDS_MAX,
)
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.store_reading import rebuild
from postdate.sidecar.transaction import Tenure
from postdate.wheel.errors import Corrupt, FormatMismatch, IdentityMismatch, Locked
from postdate.wheel.identity import Identity
from postdate.wheel.index import TimerIndex, move_aside
from postdate.wheel.options import IndexOptions

log = logging.getLogger(__name__)

#: The seq of an index that was just started empty in the middle of the dispatch log.
SEQ_UNKNOWN = -1


@dataclass(slots=True)
class Opened:
    """Step 1 is done: the shard's timer index, possibly an empty one."""

    index: TimerIndex


@dataclass(slots=True)
class Checked:
    """Step 2 is done: the local offsets lie within both logs, or the index is known to be of no use (`empty`)."""

    index: TimerIndex
    empty: bool
    behind: bool
    last_seq: int = 0
    ingested: int = 0
    """Requests below this were taken in before, by whoever: what limits their sender has been asked then."""


@dataclass(slots=True)
class FencedOff:
    """Step 3 is done: every older owner is fenced, and its open transaction is over."""

    checked: Checked
    producer: TransactionalProducer


@dataclass(slots=True)
class Bounded:
    """Step 4 is done: `end` is the end of the dispatch log, `store_end` that of STORE, both read after the fence."""

    fenced: FencedOff
    start: int
    end: int
    store_start: int
    store_end: int


@dataclass(slots=True)
class Recovered:
    """Steps 5 and 6 are done: the index holds requests below R minus what has ended, up to the bound."""

    index: TimerIndex
    producer: TransactionalProducer
    ingested: int


def open_index(ctx: ShardContext) -> Opened:
    """Step 1. Open the timer index; what cannot be used is moved aside and an empty one is opened.

    Raises Halted for a topic that was created anew, TransientError's cousins StorageError and DiskFull as they are.
    """
    topics = ctx.admin.describe([ctx.own.requests, ctx.own.dispatch_log])
    for name in (ctx.own.requests, ctx.own.dispatch_log):
        if name not in topics:
            raise Halted(HaltReason.TOPIC_RULES, f"topic {name} does not exist: run postdate topics create")
        if not topics[name].topic_id:
            raise NotAuthorized(f"no ACL lets this user describe topic {name}: allow it Describe and DescribeConfigs")
    identity = Identity(
        cluster_id=ctx.cluster_id,
        request_topic_id=topics[ctx.own.requests].topic_id,
        dispatch_log_topic_id=topics[ctx.own.dispatch_log].topic_id,
        partition=ctx.partition,
    )
    return Opened(_open(ctx, identity))


def _open(ctx: ShardContext, identity: Identity) -> TimerIndex:
    options = IndexOptions(tick_ms=ctx.config.index.tick_ms, ended_window_ms=ctx.topic.ended_window_ms)
    directory, waited_since = ctx.directory, ctx.clock.steady_ms()
    while True:
        try:
            return TimerIndex.open(directory, identity, options, ctx.clock.wall_ms())
        except Locked:
            if ctx.clock.steady_ms() - waited_since > LOCK_WAIT_MS_MAX:
                directory = _beside(ctx.directory)
                log.warning("shard %s: another process holds %s; using %s", ctx.name, ctx.directory, directory)
                waited_since = ctx.clock.steady_ms()
            elif ctx.stopping():
                raise
            else:
                time.sleep(0.1)
        except (Corrupt, FormatMismatch) as error:
            kept = keep(directory, "unusable")
            log.warning("shard %s: the timer index cannot be used (%s); kept as %s, rebuilding", ctx.name, error, kept)
        except IdentityMismatch as error:
            if any("topic_id" in name for name in error.fields):
                raise Halted(
                    HaltReason.TOPIC_RECREATED,
                    f"{error}; a topic of this shard was deleted and created anew: what was pending is gone "
                    f"from Kafka. If that was meant, remove {directory} and start again",
                ) from error
            kept = keep(directory, "foreign")
            log.warning("shard %s: %s; kept as %s, rebuilding", ctx.name, error, kept)


def keep(directory: Path, why: str) -> Path:
    """Move a directory aside for a person to look at, and remove the oldest of those kept before, beyond a few."""
    kept = move_aside(directory, why)
    aside = [path for path in directory.parent.glob(f"{directory.name}.*") if path.is_dir()]
    for old in sorted(aside, key=lambda path: path.stat().st_mtime)[:-ASIDE_DIRECTORIES_MAX]:
        if ".beside-" not in old.name:
            shutil.rmtree(old)
    return kept


def _beside(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.beside-{time.time_ns():x}")


def check(ctx: ShardContext, opened: Opened) -> Checked:
    """Step 2. Compare R and D with the logs. Raises Halted where a log has lost what the index has seen."""
    index = opened.index
    if index.next_request is None or index.next_dispatch is None or index.seq == SEQ_UNKNOWN:
        return Checked(index, empty=True, behind=False)
    parts = (ctx.requests, ctx.log)
    starts = ctx.admin.start_offsets(parts)
    ends = ctx.admin.end_offsets(parts, Isolation.READ_UNCOMMITTED)
    if index.next_request > ends[ctx.requests]:
        raise Halted(
            HaltReason.REQUESTS_TRUNCATED,
            f"{ctx.name} ends at offset {ends[ctx.requests]}, but requests up to {index.next_request} were read: the "
            "topic was truncated or an unclean leader election lost its end",
        )
    if index.next_dispatch > ends[ctx.log]:
        raise Halted(
            HaltReason.DISPATCH_LOG_TRUNCATED,
            f"{ctx.log.topic}/{ctx.partition} ends at offset {ends[ctx.log]}, but records up to {index.next_dispatch} "
            "were seen: the dispatch log was truncated or an unclean leader election lost its end",
        )
    behind = index.next_request < starts[ctx.requests]
    return Checked(index, empty=index.next_dispatch < starts[ctx.log], behind=behind)


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
    return Bounded(fenced, starts[ctx.log], ends[ctx.log], starts[ctx.store], ends[ctx.store])


def recover(ctx: ShardContext, bounded: Bounded) -> Recovered:
    """Steps 5 and 6. Bring the index to the bound, from where it is or from nothing.

    Raises Halted where Kafka no longer holds what is needed, naming the range.
    """
    checked = bounded.fenced.checked
    index = checked.index
    if checked.behind and not checked.empty:
        _check_behind(ctx, bounded, index)
        checked.empty = True
    if checked.empty and (index.next_request is not None or index.count):  # or a rebuild was interrupted
        index.close()
        kept = keep(index.wheel_path.parent, "old")
        log.warning("shard %s: the timer index is too old to go on from; kept as %s, rebuilding", ctx.name, kept)
        index = checked.index = open_index(ctx).index
    if checked.empty:
        _start_empty(ctx, bounded, checked)
    _replay(ctx, checked, bounded.end)
    failpoints.reached("takeover.recovered")
    return Recovered(index, bounded.fenced.producer, checked.ingested)


def _check_behind(ctx: ShardContext, bounded: Bounded, index: TimerIndex) -> None:
    """R lies below the first request: fine where the low-water mark says that nothing down there is needed."""
    start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    last = last_committed(ctx.kafka, ctx.log, bounded.start, bounded.end, ctx.clock, ctx.stopping)
    if last is None or last.low_water < start:
        raise Halted(
            HaltReason.REQUESTS_LOST,
            f"requests [{index.next_request}, {start}) of {ctx.name} were deleted before they were read. Accepting the "
            f"loss means to remove {ctx.directory}; the retention of the request topic is too short for the outage",
        )


def _start_empty(ctx: ShardContext, bounded: Bounded, checked: Checked) -> None:
    """Step 5. Where to begin without a local state: from the low-water mark that the last committed record carries."""
    last = last_committed(ctx.kafka, ctx.log, bounded.start, bounded.end, ctx.clock, ctx.stopping)
    req_start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    index = checked.index
    draft = Draft(index)
    if last is None:
        emptied = bounded.start == bounded.end > 0
        if emptied or ctx.admin.group_offset(ctx.config.group_id, ctx.requests) is not None:
            raise Halted(
                HaltReason.DISPATCH_LOG_EMPTY,
                f"{ctx.log.topic}/{ctx.partition} holds no record, but {ctx.name} was served before: the fates of what "
                "was delivered are gone; delivering again would repeat messages",
            )
        draft.changes.next_request, draft.changes.next_dispatch = req_start, bounded.start
        draft.changes.seq = draft.changes.takeover = 0
    else:
        req_end = ctx.admin.end_offsets([ctx.requests], Isolation.READ_UNCOMMITTED)[ctx.requests]
        low = last.low_water
        if not req_start <= low <= req_end:
            raise Halted(
                HaltReason.LOW_WATER_OUTSIDE,
                f"requests from {low} on are needed, but {ctx.name} holds [{req_start}, {req_end}): requests "
                f"[{min(low, req_end)}, {max(low, req_start)}) are missing",
            )
        position = _first_dispatch(ctx, bounded, low, max(low, end_of_requests(ctx)))
        stored = rebuild(ctx, index, bounded.store_start, bounded.store_end, low)
        draft.changes.next_request, draft.changes.next_dispatch = low, position
        draft.changes.takeover = last.takeover
        draft.changes.seq = SEQ_UNKNOWN  # that of the first record read, or of the last where none is left to read
        checked.last_seq, checked.ingested = last.seq, last.next_request
        where = f"{stored} stored requests, request {low} and dispatch-log offset {position}"
        log.info("shard %s: rebuilding from %s", ctx.name, where)
    index.write(draft.changes)


def _first_dispatch(ctx: ShardContext, bounded: Bounded, low: int, req_end: int) -> int:
    """The dispatch-log offset before which no fate of a request at or above `low` can lie."""
    request = first_record(ctx, ctx.kafka.log_reader(ctx.requests, low, Isolation.READ_COMMITTED), req_end)
    if request is None:
        return bounded.end
    position = bounded.start
    if request.log_append:
        since = request.timestamp_ms - DISPATCH_LOG_RETENTION_MARGIN_MS
        found = ctx.admin.offset_for_time(ctx.log, since)
        position = bounded.end if found is None else max(found, bounded.start)
    if position == bounded.start and bounded.start > 0:
        _check_oldest_fate(ctx, bounded, low, request)
    return position


def _check_oldest_fate(ctx: ShardContext, bounded: Bounded, low: int, request: Record) -> None:
    reader = ctx.kafka.log_reader(ctx.log, bounded.start, Isolation.READ_COMMITTED)
    oldest = first_record(ctx, reader, bounded.end)
    if oldest is not None and decode(ctx.log, oldest).seq > 1 and oldest.timestamp_ms > request.timestamp_ms:
        raise Halted(
            HaltReason.FATES_MISSING,
            f"the dispatch log begins at offset {oldest.offset}, after request {low} of {ctx.name} was written: fates "
            "of requests from there on may have been deleted; its retention must be longer than that of the requests",
        )


def first_record(ctx: ShardContext, reader: LogReader, end: int) -> Record | None:
    """The first record that `reader` finds below `end`, or None; closes the reader."""
    try:
        return read_first(reader, end, ctx.clock, ctx.stopping)
    finally:
        reader.close()


def _replay(ctx: ShardContext, checked: Checked, end: int) -> None:
    """Step 6. Apply every committed record from D to the bound; D, seq and the changes are written together."""
    index = checked.index

    def take(records: list[Record]) -> None:
        for first in range(0, len(records), RECOVERY_RECORDS_MAX):
            said = _apply_records(ctx, index, records[first : first + RECOVERY_RECORDS_MAX])
            checked.ingested = max(checked.ingested, said.next_request)

    assert index.next_dispatch is not None, "check and _start_empty leave no index without D"
    reader = ctx.kafka.log_reader(ctx.log, index.next_dispatch, Isolation.READ_COMMITTED)
    try:
        read_until(reader, end, ctx.clock, ctx.stopping, take)
    finally:
        reader.close()
    draft = Draft(index)
    draft.changes.next_dispatch = end
    if index.seq == SEQ_UNKNOWN:
        draft.changes.seq = checked.last_seq
    index.write(draft.changes)


def _apply_records(ctx: ShardContext, index: TimerIndex, records: list[Record]) -> DispatchRecord:
    """One local write for these records, at least one; returns what the last of them says."""
    draft = Draft(index, max(records[-1].timestamp_ms, 0))
    seq, takeover = index.seq, index.takeover
    for record in records:
        said = decode(ctx.log, record)
        if seq != SEQ_UNKNOWN and said.seq != seq + 1:
            raise Halted(
                HaltReason.SEQ_BROKEN,
                f"record {ctx.log.topic}/{ctx.partition}/{record.offset} has seq {said.seq} where {seq + 1} must be: a "
                "record was lost or written by a stranger; run postdate audit before going on",
            )
        seq, takeover = said.seq, max(takeover, said.takeover)
        for fate in said.fates:
            apply_fate(draft, fate, read_up_to(index))
    draft.changes.seq, draft.changes.takeover = seq, takeover
    draft.changes.next_dispatch = records[-1].offset + 1
    index.write(draft.changes)
    failpoints.reached("takeover.record-applied")
    return said


def own(ctx: ShardContext, recovered: Recovered, broker_clock: BrokerClock, owned_seq: int) -> Tenure:
    """Step 7. Commit the owner record in a transaction of its own: it announces the takeover and samples the clock.

    `owned_seq`: the seq of the last owner record of this process. Where the log still ends with it, it stands: after a
    new fence no older transaction can interfere, and where every commit is slow no other record would ever follow.
    Raises as `Tenure.run`.
    """
    index = recovered.index
    stands = index.seq == owned_seq and broker_clock.known()
    tenure = Tenure(
        producer=recovered.producer,
        log=ctx.log,
        takeover=index.takeover + (0 if stands else 1),
        seq=index.seq,
        instance=ctx.instance,
        group=ctx.config.group_id,
        clock=ctx.clock,
        broker_clock=broker_clock,
    )
    if stands:
        return tenure
    offset = tenure.run([], [], OWNER, read_up_to(index), index.low_water(), due_max_ms=0)
    draft = Draft(index)
    draft.changes.seq, draft.changes.takeover = tenure.seq, tenure.takeover
    draft.changes.next_dispatch = offset + 1
    index.write(draft.changes)
    failpoints.reached("takeover.owned")
    return tenure


def last_record(ctx: ShardContext) -> DispatchRecord | None:
    """What the last committed record of the dispatch log says at present, None where there is none."""
    start = ctx.admin.start_offsets([ctx.log])[ctx.log]
    end = ctx.admin.end_offsets([ctx.log], Isolation.READ_UNCOMMITTED)[ctx.log]
    return last_committed(ctx.kafka, ctx.log, start, end, ctx.clock, ctx.stopping)


def end_of_requests(ctx: ShardContext) -> int:
    """Where the requests that are committed end at present: what the gate of step 8 waits for."""
    return ctx.admin.end_offsets([ctx.requests], Isolation.READ_COMMITTED)[ctx.requests]
