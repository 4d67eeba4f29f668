"""Takeover: the steps before a process may act for a shard. Steps 3 to 7 of docs/protocol.md, in that order; `opening`
and `checking` contain steps 1 and 2.

Each step takes the result of the previous step as its argument. Only the last step, `claim_ownership`, returns a
`ShardOwnership`, which every dispatch needs. So a caller cannot break the order open, check, fence, bound, recover,
own.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import Isolation, Record, TransactionalProducer
from postdate.sidecar import failpoints
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Contradicted, Halted, HaltReason, Loss
from postdate.sidecar.index.apply_fates import apply_fate
from postdate.sidecar.index.contradictions import check_causes, check_delivered, check_times
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.takeover.broken_log import SeqBroken, start_behind
from postdate.sidecar.takeover.checking import TakeoverProgress
from postdate.sidecar.takeover.dispatch_tail import Stopped, decode, last_committed, last_committed_record, read_log
from postdate.sidecar.takeover.empty_start import SEQ_UNKNOWN, LogBounds, Start, find_start, oldest_record, start_empty
from postdate.sidecar.takeover.limits import (
    FENCE_TIMEOUT_S,
    PRODUCER_MESSAGE_BYTES_MAX,
    RECOVERY_FATES_MAX,
    RECOVERY_MEMTABLES_BYTES_MAX,
    RECOVERY_RECORDS_MAX,
)
from postdate.sidecar.takeover.opening import discard, keep, open_index
from postdate.sidecar.takeover.store_reading import rebuild
from postdate.sidecar.transaction.bound_check import BoundCheck, UnverifiedBound
from postdate.sidecar.transaction.transaction import Content, ShardOwnership
from postdate.wheel.entry import Mark
from postdate.wheel.index import TimerIndex
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wire.dispatch_log import OWNER, AcceptedLoss, DispatchRecord, PolicyRow
from postdate.wire.limits import POLICY_ROWS_MAX, RETURNS_VERSION, SCHEDULES_VERSION
from postdate.wire.requests.retry_policies import NamedPolicies, parse_named
from postdate.wire.schedules.zones import TZ_VERSION

log = logging.getLogger(__name__)

#: The offsets after D if the index has missed nothing, but its process died before it requested a commit: the marker of
#: the last transaction, and the record and the marker of the aborted one.
_ABORTED_OFFSETS = 3


@dataclass(slots=True)
class FencedShard:
    """The result of step 3: all older owners are fenced, and none of their transactions is open."""

    progress: TakeoverProgress
    producer: TransactionalProducer


@dataclass(slots=True)
class Bounded(LogBounds):
    """The result of step 4: the bounds of the dispatch log, queried after the fence. The first transaction verifies the
    end."""

    fenced: FencedShard


@dataclass(slots=True)
class Recovered:
    """The result of steps 5 and 6: the index holds the requests below R without those that ended before the bound."""

    index: TimerIndex
    producer: TransactionalProducer
    acceptance: AcceptedLosses
    low_water: int
    """The low-water mark (L) of the last committed record. No later record may have a lower one, even if this index is
    old."""
    ingested_to: int
    """Earlier owners have ingested the requests below this offset: new retry policies and quotas do not apply to these
    requests."""


def fence(ctx: ShardContext, progress: TakeoverProgress) -> FencedShard:
    """Fences every older owner, so that none of them can commit any more: step 3.

    Raises as `TransactionalProducer.init`. Raises Stopped if the shard was revoked meanwhile, since the fence would
    then hit the new owner.
    """
    if ctx.stopping():
        raise Stopped("revoked before the fence")
    producer = ctx.kafka.producer(ctx.transactional_id, PRODUCER_MESSAGE_BYTES_MAX)
    try:
        producer.init(FENCE_TIMEOUT_S, ctx.log.topic)
    except BaseException:
        producer.destroy()
        raise
    failpoints.reached("takeover.fenced")
    return FencedShard(progress, producer)


def bound(ctx: ShardContext, fenced: FencedShard) -> Bounded:
    """Returns the bounds of the dispatch log: step 4. The end includes open transactions; it is not the last stable
    offset.

    Raises Retriable if the end lies below the offset up to which the log was read. Either the answer is old, or the log
    was truncated; step 2 of the next attempt decides that.
    """
    progress = fenced.progress
    end = ctx.admin.end_offsets([ctx.log], Isolation.READ_UNCOMMITTED)[ctx.log]
    start = ctx.admin.start_offsets([ctx.log])[ctx.log]
    read = progress.index.checkpoint.next_dispatch if progress.rewind_to < 0 and not progress.empty else None
    if read is not None and end < read:
        raise Retriable(
            f"{ctx.log.topic}/{ctx.partition} ends at offset {end} according to the broker, but was read up to {read}"
        )
    failpoints.reached("takeover.bounded")
    return Bounded(start, end, fenced)


def recover(ctx: ShardContext, bounded: Bounded, confirm: Callable[[Halted], None]) -> Recovered:
    """Brings the index up to the bound, from its present state or from nothing: steps 5 and 6.

    Raises Halted, naming the range, if Kafka no longer holds the needed records and their loss was not accepted; an
    existing index is kept. `confirm`: returns if a halt is confirmed; raises Retriable as long as a stale answer may
    have caused the halt.
    """
    progress, start, give_up_to = bounded.fenced.progress, None, -1
    why = "too old to continue from"
    progress.empty = progress.empty or _has_missed(ctx, bounded, progress)
    if progress.behind and not progress.empty:
        give_up_to = _check_behind(ctx, bounded, progress)
        progress.empty = give_up_to < 0
    if progress.empty:
        start = find_start(ctx, bounded, progress.acceptance)
    record = last_committed_record(ctx, bounded.start, bounded.end, progress.acceptance)
    progress.logged_ms = -1 if record is None else record.timestamp_ms
    while True:
        if start is not None:
            _begin(ctx, progress, start, why)
        try:
            _replay(ctx, progress, bounded.start, bounded.end)
            overlay = IndexOverlay(progress.index, replaceable=progress.replaceable)
            check_causes(overlay)
            if progress.index.checkpoint.zones != TZ_VERSION:
                check_times(overlay)
            break
        except SeqBroken as broken:
            low = progress.index.timer_log.low_water()
            start, give_up_to = start_behind(ctx, progress.acceptance, broken, low, bounded.end), -1
            why = "behind a break in seq"
        except Contradicted as fault:
            progress.replaceable = False
            start, why = _start_again(ctx, bounded, progress, confirm), f"contradicted by the dispatch log ({fault})"
    if give_up_to >= 0:
        _give_up(ctx, progress, give_up_to)
    _note_zones(progress.index)
    last = None if record is None else decode(ctx.log, record)
    failpoints.reached("takeover.recovered")
    low_water, ingested_to = (last.low_water, last.ingested_to) if last is not None else (0, 0)
    # An earlier owner has read every request that has a mark, even if the log has lost all records that name the
    # request.
    ingested_to = max(read_up_to(progress.index), progress.index.timer_log.marks_end, progress.ingested, ingested_to)
    return Recovered(progress.index, bounded.fenced.producer, progress.acceptance, low_water, ingested_to)


def _note_zones(index: TimerIndex) -> None:
    """Records in the index the version of the time zone rules by which this process computes times."""
    if index.checkpoint.zones != TZ_VERSION:
        overlay = IndexOverlay(index)
        overlay.advance(zones=TZ_VERSION)
        overlay.write()


def _has_missed(ctx: ShardContext, bounded: Bounded, progress: TakeoverProgress) -> bool:
    """True if a committed record that the index has not seen may have been deleted. REQUIRES: the index has R and D.

    The records from D to the start of the log are gone. None of them was committed if the oldest remaining record is
    the next one by `seq`. If no record remains, only the number of missing offsets can show a missed record. D lies
    after a record, so the first missing offset is the marker of that record's transaction. An aborted transaction adds
    a record and a marker. A transaction whose commit was requested leaves fewer offsets: before the request, D was
    moved to its record. Any other owner that ended a request committed at least two transactions: its owner record and
    the fates. A power failure may lose the write that last moved D. The wheel's stamp belongs to that write, so the
    wheel is then invalid, and `rebuilds` shows it.
    """
    index, seen = progress.index, progress.index.checkpoint.next_dispatch
    if seen is None or seen >= bounded.start or progress.rewind_to >= 0:
        return False
    oldest = oldest_record(ctx, bounded, progress.acceptance)
    if oldest is not None:
        return decode(ctx.log, oldest).seq != index.checkpoint.seq + 1
    gone = bounded.end - seen
    return gone > _ABORTED_OFFSETS or (gone > 1 and (gone < _ABORTED_OFFSETS or index.rebuilds > 0))


def _start_again(
    ctx: ShardContext, bounded: Bounded, progress: TakeoverProgress, confirm: Callable[[Halted], None]
) -> Start | None:
    """Returns the start of a new index, to replace an index that contradicts the log.

    Returns None if the topics no longer hold the records that the new index needs: then the old index is kept and
    follows the log. Calls `confirm` before it returns None, since a deposed leader may have answered; see `recover`.
    """
    try:
        return find_start(ctx, bounded, progress.acceptance)
    except Halted as halt:
        confirm(halt)
        log.warning("shard %s: the timer index cannot be rebuilt: %s", ctx.name, halt)
        return None


def _begin(ctx: ShardContext, progress: TakeoverProgress, start: Start, why: str) -> None:
    """Starts an empty index at `start`, in place of an old one: the end of step 5. Nothing is moved aside or removed
    before `start` is known."""
    index = progress.index
    if index.checkpoint.next_request is not None or index.count:
        directory = index.wheel_path.parent
        is_partial = index.checkpoint.next_request is None or index.checkpoint.seq == SEQ_UNKNOWN
        index.close()
        if is_partial:
            discard(directory)
            log.warning("shard %s: a rebuild was interrupted; it begins again", ctx.name)
        else:
            kept = keep(directory, "old")
            log.warning("shard %s: the timer index is %s; kept as %s, rebuilding", ctx.name, why, kept)
        index = progress.index = open_index(ctx).index
    start_empty(ctx, index, start, progress.acceptance)
    progress.empty, progress.rewind_to = True, -1
    progress.last_seq, progress.ingested = start.last_seq, start.ingested


def _check_behind(ctx: ShardContext, bounded: Bounded, progress: TakeoverProgress) -> int:
    """Returns -1 if the low-water mark shows that no deleted request is needed: the disk is merely old.

    REQUIRES: R lies below the first request. If requests were deleted before they were read, returns the offset to
    continue at. Raises Halted unless their loss was accepted.
    """
    read = read_up_to(progress.index)
    start = ctx.admin.start_offsets([ctx.requests])[ctx.requests]
    last = last_committed(ctx, bounded.start, bounded.end, progress.acceptance)
    if last is not None and last.low_water >= start:
        return -1
    progress.acceptance.require(
        ctx.name,
        Loss(HaltReason.REQUESTS_LOST, ctx.own.requests, read, start, progress.index.checkpoint.seq),
        f"requests [{read}, {start}) of {ctx.name} were deleted before they were read; the retention of the request "
        f"topic is too short for the outage. To continue, accept the loss of those that are not in {ctx.own.store}; "
        "requests that were read before are kept",
    )
    return start


def _give_up(ctx: ShardContext, progress: TakeoverProgress, start: int) -> None:
    """Moves R to `start`, past deleted requests. Adds the entries that STORE has for them, and removes their marks and
    their unread bulk controls."""
    index = progress.index
    read = read_up_to(index)
    rebuild(ctx, index, start, read, progress.acceptance, progress.logged_ms)
    overlay = IndexOverlay(index)
    for offset in range(read, min(start, index.timer_log.marks_end)):
        if index.timer_log.mark(offset) is not None:
            overlay.set_mark(offset, None)
    for row in overlay.bulks:
        if not row.encoded_request and row.offset < start:
            overlay.drop_bulk(row.offset)
    overlay.advance(next_request=start)
    overlay.write()


def _replay(ctx: ShardContext, progress: TakeoverProgress, start: int, end: int) -> None:
    """Applies every committed record from D (or `rewind_to`) to the bound, except accepted foreign records: step 6.
    Writes D and seq together with the changes of each piece; at the end, moves D to the bound."""
    index, in_memory = progress.index, 0

    def apply(records: list[Record]) -> None:
        nonlocal in_memory
        ours = [record for record in records if not progress.acceptance.skips(ctx.log.topic, record.offset)]
        for first in range(0, len(ours), RECOVERY_RECORDS_MAX):
            decoded = _apply_records(ctx, progress, ours[first : first + RECOVERY_RECORDS_MAX])
            progress.ingested = max(progress.ingested, decoded.next_request)
        in_memory += sum(len(record.value or b"") for record in ours)
        if in_memory > RECOVERY_MEMTABLES_BYTES_MAX:
            index.release_memory()
            in_memory = 0

    position = index.checkpoint.next_dispatch if progress.rewind_to < 0 else progress.rewind_to
    assert position is not None, "check and start_empty leave no index without D"
    position = min(max(position, start), end)  # D may lie on a marker that was deleted
    read_log(ctx, ctx.log, position, end, apply)
    overlay = IndexOverlay(index)
    overlay.advance(next_dispatch=end, seq=progress.last_seq if index.checkpoint.seq == SEQ_UNKNOWN else None)
    overlay.write()


def _apply_records(ctx: ShardContext, progress: TakeoverProgress, records: list[Record]) -> DispatchRecord:
    """Applies these records, at least one, in as few local writes as memory allows; returns the last record."""
    decoded = None
    for piece in _pieces(ctx, records):
        _apply_piece(ctx, progress, piece)
        decoded = piece[-1][1]
    assert decoded is not None, "there is a record"
    return decoded


def _pieces(ctx: ShardContext, records: list[Record]) -> Iterator[list[tuple[Record, DispatchRecord]]]:
    """Yields the decoded records, in pieces of at most RECOVERY_FATES_MAX fates; a record with more fates is one piece.
    A record that names accepted losses is a separate piece: the changes of earlier records must be written before
    `_pass_over` writes."""
    piece: list[tuple[Record, DispatchRecord]] = []
    fates = 0
    for record in records:
        decoded = decode(ctx.log, record)
        if piece and (decoded.accepted or piece[-1][1].accepted or fates + len(decoded.fates) > RECOVERY_FATES_MAX):
            yield piece
            piece, fates = [], 0
        piece.append((record, decoded))
        fates += len(decoded.fates)
    if piece:
        yield piece


def _apply_piece(ctx: ShardContext, progress: TakeoverProgress, piece: list[tuple[Record, DispatchRecord]]) -> None:
    """Applies these records in one local write, after the writes of `_pass_over`. Raises SeqBroken, Contradicted or
    Stopped."""
    index = progress.index
    at_ms = max(piece[-1][0].timestamp_ms, 0)
    overlay = IndexOverlay(index, at_ms, replaceable=progress.replaceable, origin_prefix=ctx.origin_prefix)
    overlay.logged_ms = progress.logged_ms
    seq, takeover = index.checkpoint.seq if progress.rewind_to < 0 else SEQ_UNKNOWN, index.checkpoint.takeover
    progress.rewind_to = -1  # the next records must follow this one by `seq`
    for record, decoded in piece:
        if seq != SEQ_UNKNOWN and decoded.seq != seq + 1:
            raise SeqBroken(record.offset, seq + 1)
        seq, takeover = decoded.seq, max(takeover, decoded.takeover)
        if decoded.policies:
            overlay.learn_policies(decoded.policies)
        if decoded.ids:
            check_delivered(overlay, decoded.ids, record.timestamp_ms, read_up_to(index))
            ctx.counts.unremembered_ids += overlay.remember_ids(decoded.ids, record.timestamp_ms)
        for fate in decoded.fates:
            apply_fate(overlay, fate, read_up_to(index))
        _pass_over(ctx, index, decoded)
    overlay.advance(next_dispatch=piece[-1][0].offset + 1, seq=seq, takeover=takeover)
    overlay.write()
    failpoints.reached("takeover.record-applied")


def _pass_over(ctx: ShardContext, index: TimerIndex, decoded: DispatchRecord) -> None:
    """Marks as ended all requests from R on at offsets that were used twice: an operator has accepted that these
    requests are never read.

    The range is unbounded, so this takes several writes. All of them precede the write that moves D past the record: if
    the process dies between two writes, the next process reads the record again. Raises Stopped.
    """
    ended = Mark(final=True, stored=False, due=-1)
    for loss in decoded.accepted or []:
        if (loss.reason, loss.topic) != (HaltReason.REQUESTS_TRUNCATED, ctx.own.requests):
            continue
        for start in range(max(loss.first, read_up_to(index)), loss.end, RECOVERY_FATES_MAX):
            if ctx.stopping():
                raise Stopped("revoked while passing over requests")
            overlay = IndexOverlay(index)
            for offset in range(start, min(start + RECOVERY_FATES_MAX, loss.end)):
                overlay.set_mark(offset, ended)
            overlay.write()


def claim_ownership(
    ctx: ShardContext, recovered: Recovered, broker_clock: BrokerClock, owned_seq: int, requests_end: int
) -> ShardOwnership:
    """Commits the owner record in a separate transaction: step 7. The record announces the takeover and samples the
    clock.

    `requests_end`: the result of `end_of_requests` after the fence. `owned_seq`: the seq of the last owner record of
    this process.

    Writes no record if the last owner record of this process is still the last record of the log, the broker's time is
    known, no policy is new and no loss was accepted. The old record then stays valid, since the new fence has ended all
    older transactions; and a shard with slow commits has time for other work. The first transaction verifies the bound
    of the recovery. Raises as `ShardOwnership.run`.
    """
    index = recovered.index
    accepted = recovered.acceptance.accepted
    policies = NamedPolicies(index.timer_log.policies)
    changed = changed_policies(ctx, policies, recovered.ingested_to, requests_end)
    stands = index.checkpoint.seq == owned_seq and broker_clock.known() and not accepted and not changed
    takeover = index.checkpoint.takeover + (0 if stands else 1)
    ownership = _ownership(ctx, recovered.producer, index, broker_clock, takeover)
    ownership.low_water_floor, ownership.ingested_to = recovered.low_water, recovered.ingested_to
    known = ownership.policies = policies.with_rows(changed)
    if stands:
        return ownership
    if ctx.config.format_version >= SCHEDULES_VERSION:
        ownership.tz = TZ_VERSION
    ownership.accepted = [AcceptedLoss(loss.reason.value, loss.topic, loss.first, loss.end) for loss in accepted]
    offset = ownership.run(Content(OWNER), read_up_to(index), ownership.low_water_of(index))
    overlay = IndexOverlay(index)
    overlay.advance(next_dispatch=offset + 1, seq=ownership.seq, takeover=ownership.takeover)
    # The index's R may lie below the committed low-water mark. Requests from R on are then read again, with their
    # policies.
    needed = known.needed_from(min(ownership.low_water, read_up_to(index)))
    if needed.rows != index.timer_log.policies:
        overlay.set_policies(needed)
    overlay.write()
    failpoints.reached("takeover.owned")
    return ownership


def changed_policies(
    ctx: ShardContext, policies: NamedPolicies, ingested_to: int, requests_end: int
) -> list[PolicyRow]:
    """Returns the rows by which the settings of this process change the named retry policies; empty if too many rows
    would result.

    A process with a format below RETURNS_VERSION leaves the policies of other processes as they are.
    """
    if ctx.config.format_version < RETURNS_VERSION:
        return []
    changed = policies.changed(parse_named(ctx.topic.retry_policies), ingested_to, requests_end)
    if changed and len(policies.rows) + len(changed) > POLICY_ROWS_MAX:
        log.warning(
            "shard %s: retry_policies changed too often while requests are pending; the change takes effect when the "
            "oldest of them have ended and the shard is taken over again",
            ctx.name,
        )
        return []
    return changed


def leave_mark(ctx: ShardContext, index: TimerIndex, requests_end: int, standing: bool) -> None:
    """Commits an owner record to a truncated dispatch log before the shard halts, unless the log already has one. Its
    seq leaves a gap for the lost records.

    So an owner that rebuilds this shard elsewhere finds a break of `seq` and halts. Otherwise it would repeat messages
    whose fates were lost. The index stays as it is. `requests_end`: the highest known end of the requests. `standing`:
    True if the shard halted for this loss before; the log may have grown past D since. Raises as `fence` and
    `claim_ownership`, and UnverifiedBound if the log was not truncated after all.
    """
    last = last_record(ctx)
    if last is not None and last.seq > index.checkpoint.seq:
        return
    fenced = fence(ctx, TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False))
    try:
        takeover = index.checkpoint.takeover + 1
        ownership = _ownership(ctx, fenced.producer, index, BrokerClock(ctx.clock), takeover)
        ownership.verify, ownership.before_commit = None if standing else partial(_verify_truncated, index), None
        known = NamedPolicies(index.timer_log.policies)
        read = max(read_up_to(index), index.timer_log.marks_end, 0 if last is None else last.ingested_to)
        # The owners of the lost records may have read further than `read`. A new policy applies from `read` on
        # nevertheless, since unread requests may need it.
        ownership.policies = known.with_rows(changed_policies(ctx, known, read, requests_end))
        ownership.ingested_to = max(requests_end, read)
        ownership.run(Content(OWNER), read_up_to(index), index.timer_log.low_water())
    finally:
        fenced.producer.destroy()


def _verify_truncated(index: TimerIndex, offset: int) -> None:
    """Raises UnverifiedBound if a record lands at or above D: the log was not truncated, see `BoundCheck.verify`."""
    seen = index.checkpoint.next_dispatch
    if seen is not None and offset >= seen:
        raise UnverifiedBound(f"a record was appended at {offset}, behind {seen}: nothing was truncated")


def _note_commit(index: TimerIndex, offset: int) -> None:
    """Moves D to the record that is about to be committed. No committed record lies between the old and the new D. From
    the new D, a later `_has_missed` sees that this commit may have happened."""
    changes = EntryChanges()
    changes.next_dispatch = offset
    index.write(changes)


def _ownership(
    ctx: ShardContext, producer: TransactionalProducer, index: TimerIndex, broker_clock: BrokerClock, takeover: int
) -> ShardOwnership:
    checkpoint = index.checkpoint
    assert checkpoint.next_dispatch is not None, "recovery leaves no index without D"
    return ShardOwnership(
        producer=producer,
        log=ctx.log,
        takeover=takeover,
        seq=checkpoint.seq,
        instance=ctx.instance,
        group=ctx.config.group_id,
        clock=ctx.clock,
        broker_clock=broker_clock,
        verify=BoundCheck(ctx.kafka, ctx.log, checkpoint.next_dispatch, ctx.clock).verify,
        before_commit=partial(_note_commit, index),
        remembers=index.timer_log.delivered.has_any,
    )


def last_record(ctx: ShardContext) -> DispatchRecord | None:
    """Returns the last committed record of the dispatch log; None if there is none."""
    start = ctx.admin.start_offsets([ctx.log])[ctx.log]
    end = ctx.admin.end_offsets([ctx.log], Isolation.READ_UNCOMMITTED)[ctx.log]
    return last_committed(ctx, start, end)


def end_of_requests(ctx: ShardContext) -> int:
    """Returns the present end of the committed requests. The gate of step 8 opens once the shard has read up to it."""
    return ctx.admin.end_offsets([ctx.requests], Isolation.READ_COMMITTED)[ctx.requests]


def appended_requests(ctx: ShardContext) -> int:
    """Returns the present end of all requests, including those of open transactions."""
    return ctx.admin.end_offsets([ctx.requests], Isolation.READ_UNCOMMITTED)[ctx.requests]
