"""The cases of `clients/conformance.json`, and the Python client's result of each.

    PYTHONPATH=tests python -m support.clients.cases    writes the file

A case has a `call`, its `input`, and its result: `record`, `records`, `partition`, `delivered`, `answer` or `error`.
`case_inputs` describes the inputs.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from postdate.client import FormatError, RequestInvalid, RequestRecord, RequestTopic, decode_verdict, read_delivered
from postdate.wire.headers import Headers
from postdate.wire.values.murmur2 import partition_for
from support.clients.case_inputs import REQUESTS, Case, b64, inputs, pairs, refused_by_kafkajs
from support.repository import ROOT

FILE = ROOT / "clients" / "conformance.json"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _times(given: Case) -> dict[str, Any]:
    times: dict[str, Any] = {name: given[name] for name in ("level",) if name in given}
    if "at_us" in given:
        times["at"] = _EPOCH + timedelta(microseconds=given["at_us"])
    for name in ("start", "end"):
        if f"{name}_us" in given:
            times[name] = _EPOCH + timedelta(microseconds=given[f"{name}_us"])
    for name in ("delay", "grace", "window", "latest", "every", "phase", "catch_up"):
        if f"{name}_us" in given:
            times[name] = timedelta(microseconds=given[f"{name}_us"])
    return times


def _headers(encoded: list[list[Any]]) -> Headers:
    return [(name, _bytes(value)) for name, value in encoded]


def _record(record: RequestRecord) -> Case:
    return {"record": _fields(record)}


def _fields(record: RequestRecord) -> Case:
    fields = {"partition": record.partition, "key": b64(record.key), "value": b64(record.value)}
    return {**fields, "headers": pairs(*record.headers)}


def _returned(topic: RequestTopic, given: Case) -> Case:
    """Returns the record of a return, which gives a consumed message back for another attempt."""
    headers, key, value = _headers(given["headers"]), _bytes(given["key"]), _bytes(given["value"])
    error = given.get("error")
    return _record(topic.retry(given["topic"], value, given["policy"], key=key, headers=headers, error=error))


def _control(topic: RequestTopic, call: str, given: Case) -> Case:
    named = {name: given[name] for name in ("id", "origin") if name in given}
    return _record(getattr(topic, call)(**named, **_times(given)))


_OF_MESSAGE = ("id", "target_partition", "spread", "if_pending", "if_ended")
_OF_SCHEDULE = ("id", "target_partition", "cron", "zone", "gap", "fold", "count", "missed")


def _sent(build: Callable[..., RequestRecord], options: tuple[str, ...], given: Case) -> Case:
    """Returns the request record of a single or a recurring message."""
    named = {name: given[name] for name in options if name in given}
    headers = _headers(given.get("headers", []))
    key, value = _bytes(given["key"]), _bytes(given["value"])
    return _record(build(given["target"], value, key=key, headers=headers, **named, **_times(given)))


def _selected(topic: RequestTopic, call: str, given: Case) -> Case:
    """Returns the records of a bulk control."""
    selectors: dict[str, Any] = {name: given[name] for name in ("target", "id_prefix") if name in given}
    selectors |= {"key": _bytes(given["key"])} if "key" in given else {}
    for name in ("from", "until"):
        if f"{name}_us" in given:
            selectors[f"due_{name}"] = _EPOCH + timedelta(microseconds=given[f"{name}_us"])
    moved = [timedelta(microseconds=given["by_us"])] if "by_us" in given else []
    return {"records": [_fields(record) for record in getattr(topic, call)(*moved, **selectors)]}


def _delivered(given: Case) -> Case:
    read = read_delivered(_headers(given["headers"]))
    return {
        "delivered": {
            "origin": read.origin,
            "due_ms": _epoch_ms(read.due),
            "id": read.id,
            "attempt": read.attempt,
            "first_origin": read.first_origin,
            "first_due_ms": None if read.first_due is None else _epoch_ms(read.first_due),
            "error": read.error,
            "occurrence": read.occurrence,
            "next_ms": None if read.next is None else _epoch_ms(read.next),
            "extra": read.extra,
            "headers": pairs(*read.headers),
        }
    }


def _epoch_ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _answer(given: Case) -> Case:
    read = decode_verdict(_bytes(given["value"]))
    fields = {"origin": read.origin, "id": read.id, "verdict": read.verdict.value, "of": read.of, "at_ms": read.at_ms}
    return {"answer": {**fields, "by": read.by, "count": read.count}}


def result(case: Case) -> Case:
    """Returns the Python client's result: one of `record`, `records`, `partition`, `delivered`, `answer` and
    `error`."""
    call, given = case["call"], case["input"]
    try:
        if call == "partition":
            return {"partition": partition_for(b64decode(given["key"]), given["partitions"])}
        if call == "delivered":
            return _delivered(given)
        if call == "verdict":
            return _answer(given)
        topic = RequestTopic(REQUESTS, given["partitions"])
        if call == "retry":
            return _returned(topic, given)
        if call == "schedule":
            return _sent(topic.schedule, _OF_MESSAGE, given)
        if call == "repeat":
            return _sent(topic.repeat, _OF_SCHEDULE, given)
        return _selected(topic, call, given) if call.endswith("_selected") else _control(topic, call, given)
    except RequestInvalid as error:
        return {"error": error.reason.value}
    except FormatError:
        return {"error": "format"}


def cases() -> list[Case]:
    """Returns every case with its result."""
    made = [{**case, **result(case)} for case in inputs()]
    return made + [{**case, "error": "bad-headers"} for case in refused_by_kafkajs()]


def document() -> str:
    """Returns the text of the file, with one case on each line."""
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases())
    return f'{{"requests": "{REQUESTS}", "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
