"""Turns a batch of requests into one WriteBatch: parses each request, applies it, and moves R, the offset of the next
request, past the batch.

Thread rule: the shard's thread. Cost: one pass; the most frequent kind of request (a target and one time) takes a
parse, an encode and a put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from postdate.kafka.interface import Isolation, Partition, Record
from postdate.sidecar import failpoints
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.context.traced_messages import TraceQueue
from postdate.sidecar.counts import BACKFILL, CANCEL, PAUSE, REFUSED, RESCHEDULE, RESUME, TRIGGER, ShardCounts
from postdate.sidecar.index.apply_requests import apply_request
from postdate.sidecar.index.bulk import may_end_later
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.limits import (
    BULK_CONTROLS_MAX,
    ENDING_ENTRIES_MAX,
    ENDING_SIZE_BYTES_MAX,
    MARKERS_READ_S,
)
from postdate.sidecar.ingest.quota import Quota
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import split_key
from postdate.wire.errors import RequestRefused
from postdate.wire.limits import FORMAT_VERSION_MAX, INTEGER_END
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import schedule_return
from postdate.wire.requests.rules import RequestRules

_CONTROLS: dict[int, str] = {
    Action.CANCEL: CANCEL,
    Action.RESCHEDULE: RESCHEDULE,
    Action.PAUSE: PAUSE,
    Action.RESUME: RESUME,
    Action.TRIGGER: TRIGGER,
    Action.BACKFILL: BACKFILL,
}


@dataclass(frozen=True, slots=True)
class Intake:
    """The rules by which the requests of one shard are accepted. `store_after_ms`: a single message is stored if it is
    due more than this after its record's timestamp, and every schedule is stored; 0: nothing is stored. `counts`: the
    counters to update. `traces`: the queue for spans."""

    rules: RequestRules
    partition: int
    quota: Quota | None = None
    store_after_ms: int = 0
    counts: ShardCounts | None = None
    traces: TraceQueue | None = None


def ingest(
    index: TimerIndex,
    intake: Intake,
    records: list[Record],
    at_ms: int = 0,
    ending_max: int = ENDING_ENTRIES_MAX,
    now_ms: int = -1,
) -> int:
    """Applies a batch of requests, and writes the changes together with R. Returns how many of `records` were used.

    Stops early if too many entries (`ending_max`) or bytes wait under key 0 (rule 1), or if a request must wait for a
    bulk control. The caller offers the rest again after a dispatch. Records below R are skipped, but count as used.
    `at_ms`: the local time, epoch ms. `now_ms`: the broker's time; -1 if unknown.
    """
    rules, partition, quota, counts = intake.rules, intake.partition, intake.quota, intake.counts
    overlay = _overlay(index, intake, at_ms, now_ms)
    if quota is not None:
        quota.begin(index)
    expected = read_up_to(index)
    used = skipped = 0
    policies: NamedPolicies | None = None
    has_bulks = bool(overlay.bulks)  # saves look-ups, since bulk controls are rare
    kinds: list[str] = []  # the kind of each request that schedules nothing
    accepted: list[tuple[Record, Request]] | None = None if intake.traces is None else []
    for record in records:
        offset = record.offset
        if offset >= expected:
            if overlay.ending_count >= ending_max or overlay.ending_bytes >= ENDING_SIZE_BYTES_MAX:
                break
            request: Request | RequestRefused
            try:
                request = parse_request(
                    _newest(rules) if has_bulks and overlay.bulk(offset) is not None else rules,
                    partition,
                    record.timestamp_ms,
                    record.key,
                    record.headers,
                    record.value is None,
                )
                if request.retry is not None:
                    policies = policies or NamedPolicies(index.timer_log.policies)
                    request = schedule_return(rules, request, partition, offset, record.timestamp_ms, policies)
                if has_bulks and _must_wait(overlay, request):
                    break
                if quota is not None and request.action == Action.SCHEDULE:
                    request = quota.refusal(record) or request
            except RequestRefused as refusal:
                request = _reschedule_in_log(overlay, intake, record) or refusal
            if isinstance(request, RequestRefused):
                kinds.append(REFUSED)
            elif request.action:
                kinds.append(_CONTROLS[request.action])
                has_bulks = has_bulks or request.selection is not None
            elif accepted is not None:
                accepted.append((record, request))
            overlay.note_first_due(offset, apply_request(overlay, record, request))
            expected = offset + 1
        else:
            skipped += 1
        used += 1
    failpoints.reached("ingest.parsed")
    overlay.note_first_dues()
    overlay.advance(next_request=expected)
    overlay.write()
    if counts is not None:
        counts.read(used - skipped, kinds)
    if intake.traces is not None and accepted:
        intake.traces.accepted(Partition(rules.topic, partition), accepted, at_ms)
    failpoints.reached("ingest.written")
    return used


def _overlay(index: TimerIndex, intake: Intake, at_ms: int, now_ms: int) -> IndexOverlay:
    rules, prefix = intake.rules, f"{intake.rules.topic}/{intake.partition}/".encode()
    overlay = IndexOverlay(index, at_ms, rules.horizon_ms, intake.store_after_ms, origin_prefix=prefix)
    overlay.now_ms = now_ms
    return overlay


def _must_wait(overlay: IndexOverlay, request: Request) -> bool:
    """True if bulk controls must end before this request is applied, for one of two reasons. Their maximum number is
    reached. Or the request would end in favour of a pending message of its id that a waiting bulk cancel may still end:
    then no message of the id would be delivered. O(rows)."""
    if sum(1 for row in overlay.bulks if row.encoded_request) >= BULK_CONTROLS_MAX:
        return True
    id_key = overlay.pending_id(request.id) if request.keeps else None
    offset = split_key(id_key)[1] if id_key is not None else -1
    key = overlay.find(offset, hint_key=id_key) if id_key is not None else None
    return key is not None and may_end_later(overlay.bulks, overlay.entry(key), offset)


def _reschedule_in_log(overlay: IndexOverlay, intake: Intake, record: Record) -> Request | None:
    """Returns the request of `record` if it is a reschedule that this owner refuses but another owner has carried out,
    since its fates contain the new time but not the new grace. Returns None for all other requests."""
    mark = overlay.mark(record.offset)
    if mark is None or not mark.final or mark.refused:
        return None
    rules, headers, is_tombstone = _newest(intake.rules), record.headers, record.value is None
    try:
        request = parse_request(rules, intake.partition, record.timestamp_ms, record.key, headers, is_tombstone)
    except RequestRefused:
        return None
    return request if request.action == Action.RESCHEDULE else None


def _newest(rules: RequestRules) -> RequestRules:
    """Returns the rules for parsing a control that another owner has begun or carried out: the newest format, no
    horizon, and no dialects, whatever the settings here."""
    return replace(rules, format_version=FORMAT_VERSION_MAX, horizon_ms=INTEGER_END, dialects=())


def skip_markers(ctx: ShardContext, index: TimerIndex) -> int:
    """Moves R past offsets without requests, such as transaction markers, if no request follows them. Returns R. If R
    stayed before them, requests would seem to be lost once retention deletes these offsets.

    Reads the request topic from R on: R must never depend on the position of a consumer that may since have been moved.
    """
    offset = read_up_to(index)
    reader = ctx.kafka.log_reader(ctx.requests, offset, Isolation.READ_COMMITTED)
    try:
        nothing = not reader.read(1, MARKERS_READ_S)
        position = reader.position()
    finally:
        reader.close()
    if nothing and position > offset:
        overlay = IndexOverlay(index)
        overlay.advance(next_request=position)
        overlay.write()
    return read_up_to(index)
