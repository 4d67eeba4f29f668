"""Bulk controls over HTTP: counts the selected messages, and produces one control to each partition.

The count is a dry run: it changes nothing. Within SELECTED_S_MAX, it visits every pending entry of the shards of this
process. For each entry, the result is exact for the time of the visit.

Thread rule: a thread of the HTTP server.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams

from postdate.sidecar.cluster.producing import UnsentRequest, accepted, look_up, partitions_of, produce_to_each
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http import limits
from postdate.sidecar.http.api.controls import CANCEL, DELIVER, RESCHEDULE
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries import queries
from postdate.sidecar.http.queries.merging import merged_selected
from postdate.sidecar.http.queries.pending import PARKED, WAITING, BadQuery, PendingFilters, QueryableShard, slices_of
from postdate.sidecar.index.bulk import selects
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.states import State
from postdate.wire import headers as names
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import SELECTOR_FIELDS, Headers
from postdate.wire.origins import format_origin
from postdate.wire.requests.selection import Selection, read_selection

_TIMES: Final = ("from", "until")
_TIMES_OF_A_MOVE: Final = {"by": names.BY, "at": names.AT, "delay": names.DELAY}


@dataclass(frozen=True, slots=True)
class SelectedMessages:
    """The number of selected messages of one shard by target, and whether all entries were visited."""

    targets: Counter[str]
    complete: bool


def selector_headers(fields: dict[str, str], now_ms: int) -> Headers:
    """Returns the selector headers for these fields. Raises BadQuery if there is no selector, or an invalid one."""
    headers: Headers = []
    for field, header in SELECTOR_FIELDS.items():
        if field in fields:
            text = str(queries.time_of(field, fields[field], now_ms)) if field in _TIMES else fields[field]
            headers.append((header, text.encode("utf-8", "surrogateescape")))
    if not headers:
        raise BadQuery(f"give at least one of {', '.join(SELECTOR_FIELDS)}")
    _selection(headers)
    return headers


def count_selected(process: ProcessState, query: QueryParams) -> dict[str, Any]:
    """Returns the number of selected messages in each shard of this process, by target. Raises BadQuery, Unanswered."""
    queries.known(query, "topic", "partition", *SELECTOR_FIELDS)
    fields = {field: query[field] for field in SELECTOR_FIELDS if field in query}
    selection = _selection(selector_headers(fields, process.clock.wall_ms()))
    able, unable = queries.shards_of(process, query)
    deadline = time.monotonic() + limits.SELECTED_S_MAX
    shards: list[dict[str, Any]] = []
    for shard in able:
        selected = _select(shard, selection, deadline)
        is_complete = selected.complete and shard.thread.shard.state is not State.CATCHING_UP
        named = {"topic": shard.part.topic, "partition": shard.part.index}
        counts = dict(sorted(selected.targets.items()))
        shards.append({**named, "count": selected.targets.total(), "exact": is_complete, "targets": counts})
    return {**merged_selected([{"shards": shards}]), "not_asked": unable}


def control_selected(process: ProcessState, action: str, body: object) -> dict[str, Any]:
    """Produces a bulk control to each partition of a request topic, or to each of the body's `partitions`. Returns the
    origins and the broker's times of the controls.

    Raises BadQuery if the body is invalid, and ConfigError if the topic does not exist. Raises KafkaFault if no
    partition has the control, and PartlyProduced if some partitions have it or may have it. In the latter case, a
    repetition with `by` would move the messages of these partitions a second time.
    """
    times = _TIMES_OF_A_MOVE if action == RESCHEDULE else ()
    body = queries.body_of(body, "topic", "partitions", *SELECTOR_FIELDS, *times)
    chosen = _partitions(body)
    body = {field: value for field, value in body.items() if field != "partitions"}
    if not all(isinstance(value, str) for value in body.values()):
        raise BadQuery("each field takes a text")
    topic = queries.served_topic(process, body.get("topic"))
    now_ms = process.clock.wall_ms()
    headers = [*_action_headers(action, body, now_ms), *selector_headers(body, now_ms)]
    record = UnsentRequest(None, None, headers)
    live = look_up(process.admin, topic, process.config.kafka.bootstrap_servers)
    try:
        accepted(rules_of(process.config, topic, live.retention_ms), record, 0, now_ms)
        partitions = partitions_of(live, topic, chosen)
    except ConfigError as error:
        raise BadQuery(str(error)) from error
    controls = [
        {"origin": format_origin(topic, index, delivery.offset).decode(), "accepted_ms": delivery.timestamp_ms}
        for index, delivery in produce_to_each(process.controls, topic, partitions, record).items()
    ]
    return {"action": action, "controls": controls}


def _partitions(body: dict[str, Any]) -> list[int]:
    """Returns the partitions in a body; empty if the body means all. Raises BadQuery."""
    chosen = body.get("partitions", [])
    if not isinstance(chosen, list) or not all(type(index) is int and index >= 0 for index in chosen):
        raise BadQuery("partitions takes a list of numbers")
    if "partitions" in body and not chosen:
        raise BadQuery("partitions is empty; leave it out for all")
    return chosen


def _action_headers(action: str, body: dict[str, str], now_ms: int) -> Headers:
    """Returns the headers with the action of a bulk control."""
    if action == CANCEL:
        return [(names.ACTION, b"cancel")]
    if action == DELIVER:
        return [(names.ACTION, b"reschedule"), (names.DELAY, b"0s")]
    texts = {**body, "at": str(queries.time_of("at", body["at"], now_ms))} if "at" in body else body
    time_headers = [(header, texts[field].encode()) for field, header in _TIMES_OF_A_MOVE.items() if field in texts]
    return [(names.ACTION, b"reschedule"), *time_headers]


def _selection(headers: Headers) -> Selection:
    try:
        return read_selection(dict(headers))
    except RequestRefused as refused:
        raise BadQuery(refused.detail) from refused


def _select(shard: QueryableShard, selection: Selection, deadline: float) -> SelectedMessages:
    targets: Counter[str] = Counter()
    for state in (PARKED, WAITING):
        for _, entries in slices_of(shard, PendingFilters(state=state)):
            targets.update(entry.target for entry in entries if selects(selection, entry, entry.requested_due))
            if time.monotonic() > deadline:
                return SelectedMessages(targets, complete=False)
    return SelectedMessages(targets, complete=True)
