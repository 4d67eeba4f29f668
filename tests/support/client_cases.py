"""The cases of `clients/conformance.json`, and what the Python client makes of each.

    PYTHONPATH=tests python -m support.client_cases    writes the file

A case has a `call`, its `input`, and what comes of it: `record`, `partition`, `delivered`, `answer` or `error`. Bytes
are in base64, times in microseconds where a client rounds them. `only` names the languages in whose client the case can
be stated: in Java and Go the types exclude two times at once, and KafkaJS sends no header without a value.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from postdate.client import FormatError, RequestInvalid, RequestRecord, RequestTopic, decode_verdict, read_delivered
from postdate.wire.headers import Headers
from postdate.wire.murmur2 import partition_for

FILE = Path(__file__).resolve().parents[2] / "clients" / "conformance.json"
REQUESTS = "postdate.requests"

_DYNAMIC = ["python", "javascript"]
_NULLS = ["python", "java", "go"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_US = 1_000_000
_AT_US = 1_767_225_600_000_000

Case = dict[str, Any]


def _b64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _pairs(*headers: tuple[str, bytes | None]) -> list[list[str | None]]:
    return [[name, _b64(value)] for name, value in headers]


def _case(name: str, call: str, only: list[str] | None = None, **given: Any) -> Case:
    return {"name": name, "call": call, **({"only": only} if only else {}), "input": given}


def _schedule(name: str, only: list[str] | None = None, **given: Any) -> Case:
    message = {"partitions": 12, "target": "reminders", "value": _b64(b"pay!"), "key": _b64(b"customer-7"), **given}
    return _case(name, "schedule", only, **message)


def _partitions() -> list[Case]:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"order-9", "Größe".encode(), bytes(range(256)), b"\xff\x80\x00\x7f" * 3]
    return [
        _case(f"partition of {len(key)} bytes among {count}", "partition", key=_b64(key), partitions=count)
        for key in keys
        for count in (1, 12, 1000)
    ]


def _schedules() -> list[Case]:
    delay: Case = {"delay_us": 7200 * _SECOND_US}
    trace = _pairs(("trace", b"7"), ("trace", b"\xff\x00"), ("Postdat", b""))
    delivered = _pairs(
        ("trace", b"7"), ("postdate-origin", b"R/0/1"), ("postdate-due", b"5"), ("postdate-id", b"order-9")
    )
    again = [*delivered, *_pairs(("postdate-attempt", b"1"), ("postdate-error", b"time-out"))]
    return [
        _schedule("delay", **delay),
        _schedule("delay rounds up", delay_us=1_500_001),
        _schedule("no delay", delay_us=0),
        _schedule("at", at_us=_AT_US),
        _schedule("at rounds up", at_us=_AT_US + 1),
        _schedule("level", level=3),
        _schedule("null key", key=None, **delay),
        _schedule("empty key", key="", **delay),
        _schedule("null value", value=None, **delay),
        _schedule("id", id="order-9", **delay),
        _schedule("id that is not ASCII", id="Größe-€", **delay),
        _schedule("id of 256 bytes", id="x" * 256, **delay),
        _schedule("id and null key", _NULLS, id="order-9", key=None, **delay),
        _schedule("grace and partition", grace_us=60 * _SECOND_US, target_partition=0, id="i", **delay),
        _schedule("headers", headers=trace, id="i", **delay),
        _schedule("null header", _NULLS, headers=_pairs(("trace", None)), **delay),
        _schedule("headers of a delivered record", headers=delivered, **delay),
        _schedule("headers of a redelivered record", headers=again, **delay),
        _schedule("reserved header", headers=_pairs(("postdate-topic", b"t")), **delay),
        _schedule("reserved header in capitals", headers=_pairs(("POSTDATE-Tpoic", b"t")), **delay),
        _schedule("id as a header", headers=_pairs(("postdate-id", b"t")), **delay),
        _schedule("id of 257 bytes", id="x" * 257, **delay),
        _schedule("empty id", ["python", "java", "javascript"], id="", **delay),
        _schedule("no time", _DYNAMIC),
        _schedule("two times", _DYNAMIC, level=3, **delay),
        _schedule("negative delay", delay_us=-1_000),
        _schedule("negative grace", grace_us=-1_000, **delay),
        _schedule("negative level", level=-1),
        _schedule("negative partition", target_partition=-1, **delay),
        _schedule("before 1970", at_us=-1_000),
        _schedule("horizon", delay_us=400 * 86_400 * _SECOND_US),
        _schedule("beyond the horizon", delay_us=400 * 86_400 * _SECOND_US + 1),
        _schedule("far beyond the horizon", at_us=7_258_118_400 * _SECOND_US),
        _schedule("target that is no topic", target="a/b", **delay),
        _schedule("empty target", target="", **delay),
        _schedule("target of two dots", target="..", **delay),
        _schedule("internal target", target="__consumer_offsets", **delay),
        _schedule("own target", target="postdate.requests.verdicts", **delay),
    ]


def _controls() -> list[Case]:
    origin = f"{REQUESTS}/3/1017"
    wrong = (
        "postdate.requests/12/1",
        "other/3/1",
        "postdate.requests/03/1",
        f"{REQUESTS}/3/{2**63}",
        f"{REQUESTS}/3",
        "",
    )
    return [
        _case("cancel by id", "cancel", partitions=12, id="order-9"),
        _case("cancel by origin", "cancel", partitions=12, origin=origin),
        _case("reschedule by id", "reschedule", partitions=12, id="order-9", level=0),
        _case("reschedule by origin", "reschedule", partitions=12, origin=origin, at_us=_AT_US),
        _case("reschedule with grace", "reschedule", partitions=12, id="i", delay_us=_SECOND_US, grace_us=_SECOND_US),
        _case("deliver by id", "deliver", partitions=12, id="order-9"),
        _case("deliver by origin", "deliver", partitions=12, origin=origin),
        _case("cancel of nothing", "cancel", partitions=12),
        _case("cancel by both", "cancel", _DYNAMIC, partitions=12, id="order-9", origin=origin),
        _case("cancel of a long id", "cancel", partitions=12, id="x" * 257),
        _case("reschedule without time", "reschedule", _DYNAMIC, partitions=12, id="order-9"),
        *(_case(f"cancel by origin {text!r}", "cancel", partitions=12, origin=text) for text in wrong),
    ]


def _returns() -> list[Case]:
    policy = "base=1s, attempts=5"
    first = _pairs(("trace", b"7"), ("postdate-origin", b"postdate.requests/3/990"), ("postdate-due", b"1767225600000"))
    second = [
        *first,
        *_pairs(
            ("postdate-id", b"order-9"),
            ("postdate-attempt", b"1"),
            ("postdate-first-origin", b"postdate.requests/3/7"),
            ("postdate-first-due", b"1767225500000"),
            ("postdate-error", b"time-out"),
        ),
    ]
    record: Case = {"partitions": 12, "topic": "reminders", "key": _b64(b"customer-7"), "value": _b64(b"pay!")}
    moved = _pairs(("postdate-moved", b"5"), ("postdate-dead-reason", b"expired"), ("postdate-dead-detail", b"late"))
    return [
        _case("return", "retry", **record, headers=first, policy=policy),
        _case("return with an error", "retry", **record, headers=first, policy=policy, error="refused: Größe"),
        _case("return by name", "retry", **record, headers=first, policy="payments"),
        _case("second return", "retry", **record, headers=second, policy=policy, error="refused"),
        _case("second return without an error", "retry", **record, headers=second, policy=policy),
        _case("return of an ordinary record", "retry", **record, headers=[], policy=policy),
        _case("return with an empty policy", "retry", **record, headers=first, policy=" "),
        _case("return with a long policy", "retry", **record, headers=first, policy="x" * 257),
        _case("return of a requeued record", "retry", **record, headers=[*first, *moved], policy=policy),
        _case("return with a reserved header", "retry", **record, headers=_pairs(("postdate-at", b"5")), policy=policy),
    ]


def _deliveries() -> list[Case]:
    origin, due = ("postdate-origin", b"postdate.requests/3/1017"), ("postdate-due", b"1767225600000")
    again = (
        ("postdate-id", b"order-9"),
        ("postdate-attempt", b"2"),
        ("postdate-first-origin", b"postdate.requests/3/990"),
        ("postdate-first-due", b"1767225500000"),
        ("postdate-error", b"time-out"),
    )
    given = {
        "delivered": (origin, due),
        "delivered with an id": (("trace", b"7"), ("trace", b""), origin, due, ("postdate-id", "Größe".encode())),
        "delivered again": (("trace", b"7"), origin, due, *again),
        "no headers": (),
        "no due time": (origin,),
        "no origin": (due,),
        "due time that is no number": (origin, ("postdate-due", b"+5")),
        "origin that is none": (("postdate-origin", b"R/3"), due),
    }
    return [_case(name, "delivered", headers=_pairs(*headers)) for name, headers in given.items()]


def _verdicts() -> list[Case]:
    good = {
        "v": 1,
        "origin": "R/3/1017",
        "id": "order-9",
        "verdict": "cancelled",
        "of": "R/3/990",
        "at": 1_767_225_600_000,
    }
    words = [
        "accepted",
        "rejected",
        "cancelled",
        "rescheduled",
        "replaced",
        "delivered",
        "dead",
        "not-found",
        "too-late",
    ]
    changed: dict[str, Any] = {
        "verdict of an id that is not ASCII": {"id": 'Größe "\\/\b\n\t'},
        "verdict without id and of": {"id": None, "of": None},
        "verdict with unknown fields": {"more": [{"x": [1, -2.5e3, True, False, None, "]}"]}, {}, []]},
        "verdict of version 2": {"v": 2},
        "verdict of version true": {"v": True},
        "verdict with an unknown word": {"verdict": "forgotten"},
        "verdict with a number as origin": {"origin": 7},
        "verdict with an origin that is none": {"origin": "R/3"},
        "verdict with an of that is none": {"of": "R/-1/2"},
        "verdict with a number as id": {"id": 9},
        "verdict with a text as time": {"at": "1767225600000"},
        "verdict before 1970": {"at": -1},
        "verdict with half a millisecond": {"at": 1.5},
        "verdict of 9 KB": {"more": "x" * 9_000},
    }
    texts: dict[str, bytes | None] = {
        f"verdict {word}": json.dumps({**good, "verdict": word}).encode() for word in words
    }
    for name, change in changed.items():
        texts[name] = json.dumps({**good, **change}, ensure_ascii=False).encode()
    texts["verdict with escapes"] = json.dumps({**good, "id": "Größe-€-😀"}).encode()
    texts["verdict without optional fields"] = b' {"v":1,"origin":"R/3/1017","verdict":"dead","at":0}\n'
    for field in ("v", "origin", "verdict", "at"):
        texts[f"verdict without {field}"] = json.dumps({key: good[key] for key in good if key != field}).encode()
    texts |= {"null verdict": None, "empty verdict": b"", "verdict that is a list": b"[1]", "two verdicts": b"{} {}"}
    texts |= {"cut verdict": b'{"v":1,"origin":"R/3/1017"', "verdict that is not UTF-8": b'{"v":1,"id":"\xff"}'}
    return [_case(name, "verdict", value=_b64(value)) for name, value in texts.items()]


def _times(given: Case) -> dict[str, Any]:
    times: dict[str, Any] = {name: given[name] for name in ("level",) if name in given}
    if "at_us" in given:
        times["at"] = _EPOCH + timedelta(microseconds=given["at_us"])
    for name in ("delay", "grace"):
        if f"{name}_us" in given:
            times[name] = timedelta(microseconds=given[f"{name}_us"])
    return times


def _headers(pairs: list[list[Any]]) -> Headers:
    return [(name, _bytes(value)) for name, value in pairs]


def _record(record: RequestRecord) -> Case:
    headers = _pairs(*record.headers)
    return {
        "record": {
            "partition": record.partition,
            "key": _b64(record.key),
            "value": _b64(record.value),
            "headers": headers,
        }
    }


def _returned(topic: RequestTopic, given: Case) -> Case:
    """The return of a consumed message."""
    headers, key, value = _headers(given["headers"]), _bytes(given["key"]), _bytes(given["value"])
    error = given.get("error")
    return _record(topic.retry(given["topic"], value, given["policy"], key=key, headers=headers, error=error))


def _control(topic: RequestTopic, call: str, given: Case) -> Case:
    named = {name: given[name] for name in ("id", "origin") if name in given}
    return _record(getattr(topic, call)(**named, **_times(given)))


def _scheduled(topic: RequestTopic, given: Case) -> Case:
    named = {name: given[name] for name in ("id", "target_partition") if name in given}
    headers = _headers(given.get("headers", []))
    key, value = _bytes(given["key"]), _bytes(given["value"])
    return _record(topic.schedule(given["target"], value, key=key, headers=headers, **named, **_times(given)))


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
            "headers": _pairs(*read.headers),
        }
    }


def _epoch_ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def _answer(given: Case) -> Case:
    read = decode_verdict(_bytes(given["value"]))
    fields = {"origin": read.origin, "id": read.id, "verdict": read.verdict.value, "of": read.of, "at_ms": read.at_ms}
    return {"answer": fields}


def result(case: Case) -> Case:
    """What the Python client makes of a case: one of `record`, `partition`, `delivered`, `answer` and `error`."""
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
        return _scheduled(topic, given) if call == "schedule" else _control(topic, call, given)
    except RequestInvalid as error:
        return {"error": error.reason.value}
    except FormatError:
        return {"error": "format"}


def cases() -> list[Case]:
    """Every case with its result."""
    found = [*_partitions(), *_schedules(), *_controls(), *_returns(), *_deliveries(), *_verdicts()]
    made = [{**case, **result(case)} for case in found]
    # The Python client sends a null header, so what KafkaJS cannot send is stated here.
    for name, given in (("null header", {"headers": [["trace", None]]}), ("id and null key", {"id": "i", "key": None})):
        case = _schedule(f"{name} with KafkaJS", ["javascript"], delay_us=0, **given)
        made.append({**case, "error": "bad-headers"})
    return made


def document() -> str:
    """The text of the file: one case a line."""
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases())
    return f'{{"requests": "{REQUESTS}", "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
