"""Cancel, reschedule, deliver now, pause, resume, trigger and backfill over HTTP. For each of them, the module produces
an ordinary control request, as any client does, and returns its origin.

The outcome is the verdict on the verdicts topic; the history of the control (`GET /api/v1/requests/ORIGIN`) shows it as
well. This module acts on no shard, so every process of the deployment accepts controls for all shards.

Thread rule: a thread of the HTTP server.
"""

from __future__ import annotations

from typing import Any

from postdate.kafka.interface import Partition
from postdate.sidecar.cluster.producing import UnsentRequest, accepted, look_up, partition_of
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.sidecar.http.queries.queries import body_of, served_topic, time_text_of
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.wire import headers as names
from postdate.wire.headers import Headers
from postdate.wire.origins import format_origin, parse_origin
from postdate.wire.values.texts import counted

CANCEL, RESCHEDULE, DELIVER = "cancel", "reschedule", "deliver"
PAUSE, RESUME, TRIGGER, BACKFILL = "pause", "resume", "trigger", "backfill"
_TIMES = {"at": names.AT, "delay": names.DELAY, "level": names.LEVEL}
_NAMED = frozenset({"origin", "id", "topic"})
_RANGE = {"start": names.START, "end": names.END}
_FIELDS = {
    **dict.fromkeys((CANCEL, DELIVER, PAUSE, RESUME, TRIGGER), _NAMED),
    RESCHEDULE: _NAMED | {*_TIMES, "grace"},
    BACKFILL: _NAMED | {*_RANGE},
}


def control(process: ProcessState, action: str, body: object) -> dict[str, Any]:
    """Produces the control that a body requests; returns its origin, its action and the broker's time.

    Raises BadQuery if the body is invalid, and ConfigError if the topic does not exist. Raises KafkaFault or
    TransientError if the control may or may not exist.
    """
    body = body_of(body, *sorted(_FIELDS[action]))
    topic, partition, named = _named(process, body)
    if action == DELIVER:  # a reschedule to the timestamp of the control
        action, body = RESCHEDULE, body | {"delay": "0s"}
    headers: Headers = [(names.ACTION, action.encode()), *named]
    for field in {"at", *_RANGE} & body.keys():
        body = body | {field: time_text_of(field, _text(body, field).decode(), process.clock.wall_ms())}
    headers += [(header, _text(body, field)) for field, header in (_TIMES | _RANGE).items() if field in body]
    if "grace" in body:
        headers.append((names.GRACE, _text(body, "grace")))
    caller_id = dict(named).get(names.ID)
    record = UnsentRequest(caller_id, None, headers)
    live = look_up(process.admin, topic, process.config.kafka.bootstrap_servers)
    index = partition_of(caller_id, live.partitions) if partition < 0 else partition
    if index >= live.partitions:
        raise BadQuery(f"{topic} has {counted(live.partitions, 'partition')}: this origin cannot exist")
    try:
        accepted(rules_of(process.config, topic, live.retention_ms), record, index, process.clock.wall_ms())
    except ConfigError as error:
        raise BadQuery(str(error)) from error
    delivery = process.controls.produce(Partition(topic, index), record)
    origin = format_origin(topic, index, delivery.offset).decode()
    return {"origin": origin, "action": action, "accepted_ms": delivery.timestamp_ms}


def _named(process: ProcessState, body: dict[str, Any]) -> tuple[str, int, Headers]:
    """Returns topic and partition of the request that a body names, and the header that names the request. If the body
    has an id, the partition is -1, since it follows from the id."""
    if ("id" in body) == ("origin" in body):
        raise BadQuery("give one of id and origin")
    if "origin" in body:
        origin = _text(body, "origin")
        try:
            topic, partition, _ = parse_origin(origin)
        except ValueError as error:
            raise BadQuery(f"origin {error}") from error
        if body.get("topic", topic) != topic:
            raise BadQuery("topic and origin name different request topics")
        return served_topic(process, topic), partition, [(names.ORIGIN, origin)]
    topic = served_topic(process, str(body["topic"]) if "topic" in body else None)
    return topic, -1, [(names.ID, _text(body, "id"))]


def _text(body: dict[str, Any], field: str) -> bytes:
    value = body[field]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadQuery(f"{field} takes a text or a number")
    try:
        return str(value).encode()
    except ValueError as error:
        raise BadQuery(f"{field} cannot be encoded as UTF-8, or is too long a number") from error
