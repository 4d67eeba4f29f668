"""The history of one request: the request, its present state, and its fates, from the logs.

The timer index contains the pending entries. Entries that have ended are only in the dispatch log. The search for the
fates of an ended message begins at its due time, where the final fate is most likely, and then covers the time from its
acceptance. Each search is bounded, and reports whether it was complete.

Thread rule: a thread of the HTTP server, with separate readers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from postdate.kafka.errors import OffsetOutOfRange
from postdate.kafka.interface import Isolation, Partition, Record
from postdate.sidecar.http import limits
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.pending import QueryableShard, as_json, find_offset
from postdate.sidecar.index.recurrences import next_occurrences, schedule_of
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.wheel.entry import Entry
from postdate.wire.dispatch_log import (
    DELIVERED,
    EXTRA,
    EXTRA_DEAD,
    FINAL,
    OCCURRED,
    Backfilled,
    BulkCancelled,
    BulkProgress,
    ChosenFate,
    ExtraFate,
    Moved,
    Occurred,
    PausedOrResumed,
    SeriesFate,
    Skipped,
    SurvivorFate,
    Triggered,
    decode_record,
)
from postdate.wire.errors import FormatError, RequestRefused
from postdate.wire.origins import format_origin
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import schedule_return
from postdate.wire.schedules.due import chosen_ms
from postdate.wire.schedules.occurrences import Occurrence
from postdate.wire.topics import OwnTopics
from postdate.wire.values.windows import draw_ms

_EARLIER_MS = 1_000  # covers the difference between two brokers' clocks, and the time between two appends


class SearchResult(NamedTuple):
    """The fates of a request in the dispatch log, and whether the search was complete. One event represents all extra
    deliveries by the same control with the same fate, since a backfill may have thousands."""

    events: list[dict[str, Any]]
    complete: bool


def request_history(process: ProcessState, shard: QueryableShard, offset: int, payload: bool) -> dict[str, Any] | None:
    """Returns the history of the request at `offset` of a shard; None if there is no such request, or if retention has
    deleted it and no log has a record of it. Raises Unanswered, KafkaFault."""
    next_request, rows, bulks = shard.query(
        lambda index: (index.checkpoint.next_request or 0, index.timer_log.policies, index.timer_log.bulks)
    )
    found = find_offset(shard, offset)
    record = _request_record(process, shard.part, offset)
    history: dict[str, Any] = {
        "origin": f"{shard.part.topic}/{shard.part.index}/{offset}",
        "request": None,
        "entry": None,
    }
    request = None
    if record is not None:
        request, history["request"] = _request_json(process, shard.part, record, NamedPolicies(rows), payload)
    if found is not None:
        key, entry = found
        history["entry"] = as_json(shard.part, key, entry, process.clock.wall_ms(), payload)
        if entry.next is not None:
            result = _recent(process, shard.part, offset, entry)
            return history | {"state": history["entry"]["state"], "events": result.events, "complete": result.complete}
        moved = entry.requested_due != entry.first_due or entry.stored
        result = _search(process, shard.part, offset, record, None) if moved else SearchResult([], True)
        return history | {"state": history["entry"]["state"], "events": result.events, "complete": result.complete}
    if offset >= next_request:
        return None if record is None else history | {"state": "unread", "events": [], "complete": True}
    result = _search(process, shard.part, offset, record, request)
    if record is None and not result.events:
        return None
    if any(row.offset == offset for row in bulks):
        return history | {"state": "sweeping", "events": result.events, "complete": result.complete}
    ended = [event["fate"] for event in result.events if event["fate"] in FINAL]
    return history | {"state": ended[-1] if ended else "ended", "events": result.events, "complete": result.complete}


def _request_record(process: ProcessState, part: Partition, offset: int) -> Record | None:
    """Returns the request record; None if retention has deleted it, if it was never committed, or if it was not read
    within FATE_SEARCH_S_MAX."""
    end = _end(process, part)
    reader = process.kafka.log_reader(part, offset, Isolation.READ_COMMITTED)
    deadline = time.monotonic() + limits.FATE_SEARCH_S_MAX
    try:
        while reader.position() < min(offset + 1, end) and time.monotonic() < deadline:
            records = reader.read(1, 0.2)
            if records:
                return records[0] if records[0].offset == offset else None
        return None
    except OffsetOutOfRange:
        return None
    finally:
        reader.close()


def _request_json(
    process: ProcessState, part: Partition, record: Record, policies: NamedPolicies, payload: bool
) -> tuple[Request | None, dict[str, Any]]:
    """Returns the parsed request, None if it is refused, and its JSON object. The detail of a refusal is included only
    with `payload`, since it quotes headers."""
    shown: dict[str, Any] = {"accepted_ms": record.timestamp_ms}
    rules = rules_of(process.config, part.topic, process.retentions.get(part.topic, -1))
    headers = (record.timestamp_ms, record.key, record.headers, record.value is None)
    try:
        request = parse_request(rules, part.index, *headers)
        if request.retry is not None:
            shown["attempt"] = request.retry.attempt
            request = schedule_return(rules, request, part.index, record.offset, record.timestamp_ms, policies)
    except RequestRefused as refusal:
        why = f"{refusal.reason}: {refusal.detail}" if payload else str(refusal.reason)
        return None, shown | {"action": None, "refused": why}
    shown["action"] = Action(request.action).name.lower()
    shown["id"] = request.id.decode("utf-8", "backslashreplace") or None
    if request.action == Action.SCHEDULE:
        shown |= {"target": request.target, "due_ms": request.due_ms}
        if request.window_ms:
            shown |= {"window_ms": request.window_ms, "spread": "even" if request.is_even else "drawn"}
        if request.keeps:
            shown["if_pending"] = "keep"
        if request.drops:
            shown["if_ended"] = "drop"
        if request.latest_ms:
            shown["latest_ms"] = request.latest_ms
    elif request.acts_on >= 0:
        shown["acts_on"] = f"{part.topic}/{part.index}/{request.acts_on}"
    return request, shown


def _search(
    process: ProcessState, part: Partition, offset: int, record: Record | None, request: Request | None
) -> SearchResult:
    """Returns the fates of a request. `request`: the parsed request if it has ended; for a message, the search then
    begins at its due time."""
    log = Partition(OwnTopics.of(part.topic).dispatch_log, part.index)
    accepted = _log_offset(process, log, record.timestamp_ms - _EARLIER_MS if record is not None else 0)
    if request is not None and request.action == Action.SCHEDULE and record is not None:
        leaves_ms = request.due_ms
        if not request.is_even:
            leaves_ms += draw_ms(format_origin(part.topic, part.index, offset), request.window_ms)
        due = _log_offset(process, log, max(leaves_ms, record.timestamp_ms) - _EARLIER_MS)
        result = _read(process, part, log, due, offset)
        if any(event["fate"] in FINAL for event in result.events):
            before = SearchResult([], True) if due == accepted else _read(process, part, log, accepted, offset, due)
            extras: dict[tuple[str, str], dict[str, Any]] = {}
            events = [*before.events, *result.events]
            return SearchResult([event for event in events if not _merged_extra(event, extras)], before.complete)
    return _read(process, part, log, accepted, offset)


def _recent(process: ProcessState, part: Partition, offset: int, entry: Entry) -> SearchResult:
    """Returns the latest fates of a recurring schedule, usually about twice OCCURRENCES_SHOWN.

    Let d be the time from the next occurrence to the one OCCURRENCES_SHOWN later. The search begins 2 d before the next
    occurrence, or at the acceptance of the schedule if that is later or if fewer occurrences follow.
    """
    upcoming = next_occurrences(entry, limits.OCCURRENCES_SHOWN + 1)
    since_ms = entry.accepted_ms
    if len(upcoming) > limits.OCCURRENCES_SHOWN:
        first_ms, last_ms = upcoming[0].nominal_ms, upcoming[-1].nominal_ms
        since_ms = max(first_ms - 2 * (last_ms - first_ms), since_ms)
    log = Partition(OwnTopics.of(part.topic).dispatch_log, part.index)
    result = _read(process, part, log, _log_offset(process, log, since_ms - _EARLIER_MS), offset)
    schedule = schedule_of(entry.stripped)
    if schedule.window_ms:  # within a window, lateness counts from the chosen time
        origin = format_origin(part.topic, part.index, offset)
        for event in (event for event in result.events if event["fate"] == OCCURRED):
            event["chosen_ms"] = chosen_ms(schedule, origin, Occurrence(event["occurrence"], event["due_ms"]))
    return result


def _log_offset(process: ProcessState, log: Partition, since_ms: int) -> int:
    start = process.admin.start_offsets([log])[log]
    if since_ms <= 0:
        return start
    found = process.admin.offset_for_time(log, since_ms)
    return max(start, found) if found is not None else _end(process, log)


def _end(process: ProcessState, part: Partition) -> int:
    return process.admin.end_offsets([part], Isolation.READ_COMMITTED)[part]


def _read(
    process: ProcessState, part: Partition, log: Partition, start: int, offset: int, end: int | None = None
) -> SearchResult:
    """Returns the fates of a request in [start, end) of the dispatch log, up to its final fate."""
    bound = _end(process, log) if end is None else end
    deadline = time.monotonic() + limits.FATE_SEARCH_S_MAX
    events: list[dict[str, Any]] = []
    extras: dict[tuple[str, str], dict[str, Any]] = {}
    read = 0
    reader = process.kafka.log_reader(log, start, Isolation.READ_COMMITTED)
    try:
        while reader.position() < bound:
            if read >= limits.FATE_RECORDS_MAX or time.monotonic() > deadline:
                return SearchResult(events, False)
            for record in reader.read(1_000, 0.2):
                read += 1
                if record.offset < bound:
                    events += (event for event in _events(part, record, offset) if not _merged_extra(event, extras))
            if events and events[-1]["fate"] in FINAL:
                break
    finally:
        reader.close()
    return SearchResult(events, True)


def _merged_extra(event: dict[str, Any], extras: dict[tuple[str, str], dict[str, Any]]) -> bool:
    """Merges an event of extra deliveries into the earlier event of the same control, and returns True. Returns False
    if there is no earlier event, or if the event is not an extra delivery. `extras`: the earlier events by fate and
    control. The merged event has the latest number and times."""
    if event["fate"] not in (EXTRA, EXTRA_DEAD):
        return False
    event.setdefault("deliveries", 1)
    shown = extras.setdefault((event["fate"], event["by"]), event)
    if shown is event:
        return False
    shown |= event | {"deliveries": shown["deliveries"] + event["deliveries"]}
    return True


def _events(part: Partition, record: Record, offset: int) -> Iterator[dict[str, Any]]:
    """Yields the fates of a request in one record of the dispatch log. Yields none if the record cannot be decoded: it
    is foreign, damaged or from a newer Postdate."""
    try:
        decoded = decode_record(record.value)
    except FormatError:
        return
    for fate in decoded.fates:
        if fate.offset == offset:
            event: dict[str, Any] = {"fate": fate.name, "at_ms": record.timestamp_ms, "instance": decoded.instance}
            event["dispatch_log"] = f"{part.topic}.dispatch-log/{part.index}/{record.offset}"
            if isinstance(fate, Moved):
                event |= {"due_ms": fate.due_ms, "by": f"{part.topic}/{part.index}/{fate.control}"}
            if isinstance(fate, PausedOrResumed | Triggered | Backfilled):
                event |= {"due_ms": fate.at_ms, "by": f"{part.topic}/{part.index}/{fate.control}"}
            if isinstance(fate, Backfilled):
                event |= {"first_ms": fate.first_ms, "end_ms": fate.end_ms}
            if isinstance(fate, ExtraFate):
                origin = f"{part.topic}/{part.index}/{fate.control}"
                event |= {"due_ms": fate.nominal_ms, "by": origin, "number": fate.number}
            if isinstance(fate, ChosenFate):
                event["chosen_ms"] = fate.chosen_ms
            if isinstance(fate, BulkCancelled):
                event["by"] = f"{part.topic}/{part.index}/{fate.control}"
            if isinstance(fate, BulkProgress):
                event["count"] = fate.count
            if fate.name == DELIVERED:
                event["first_due_ms"] = fate.first_due_ms
            if isinstance(fate, SurvivorFate | SeriesFate):
                event["by"] = f"{part.topic}/{part.index}/{fate.survivor}"
            if isinstance(fate, Occurred):
                event |= {"occurrence": fate.number, "due_ms": fate.nominal_ms}
            if isinstance(fate, Skipped):
                event |= {"occurrence": fate.number, "last": fate.last, "reason": fate.reason}
            yield event
