"""The inputs of the cases of `clients/conformance.json`, in the order of the file.

Bytes are in base64; times are in microseconds if a client rounds them. `only` names the languages whose client can
express the case: in Java and Go the types exclude two times in one request, Go treats zero as absent, and KafkaJS sends
no null header.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

REQUESTS = "postdate.requests"

_DYNAMIC = ["python", "javascript"]
_NULLS = ["python", "java", "go"]
_ZEROS = ["python", "java", "javascript"]
_TEXTS = ["python", "go", "javascript"]
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_AT_US = 1_767_225_600_000_000

Case = dict[str, Any]


def b64(value: bytes | None) -> str | None:
    """Returns bytes in base64; None stays None."""
    return None if value is None else b64encode(value).decode()


def pairs(*headers: tuple[str, bytes | None]) -> list[list[str | None]]:
    """Returns headers with their values in base64."""
    return [[name, b64(value)] for name, value in headers]


def _case(name: str, call: str, only: list[str] | None = None, **given: Any) -> Case:
    return {"name": name, "call": call, **({"only": only} if only else {}), "input": given}


def _schedule(name: str, only: list[str] | None = None, **given: Any) -> Case:
    message = {"partitions": 12, "target": "reminders", "value": b64(b"pay!"), "key": b64(b"customer-7"), **given}
    return _case(name, "schedule", only, **message)


def _partitions() -> list[Case]:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"order-9", "Größe".encode(), bytes(range(256)), b"\xff\x80\x00\x7f" * 3]
    return [
        _case(f"partition of {len(key)} bytes among {count}", "partition", key=b64(key), partitions=count)
        for key in keys
        for count in (1, 12, 1000)
    ]


def _schedules() -> list[Case]:
    delay: Case = {"delay_us": 7200 * _SECOND_US}
    trace = pairs(("trace", b"7"), ("trace", b"\xff\x00"), ("Postdat", b""))
    delivered = pairs(
        ("trace", b"7"), ("postdate-origin", b"R/0/1"), ("postdate-due", b"5"), ("postdate-id", b"order-9")
    )
    again = [*delivered, *pairs(("postdate-attempt", b"1"), ("postdate-error", b"time-out"))]
    occurred = [*delivered, *pairs(("postdate-occurrence", b"3"), ("postdate-next", b"1767225700000"))]
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
        _schedule("null header", _NULLS, headers=pairs(("trace", None)), **delay),
        _schedule("headers of a delivered record", headers=delivered, **delay),
        _schedule("headers of a redelivered record", headers=again, **delay),
        _schedule("headers of an occurrence", headers=occurred, **delay),
        _schedule("reserved header", headers=pairs(("postdate-topic", b"t")), **delay),
        _schedule("reserved header in capitals", headers=pairs(("POSTDATE-Tpoic", b"t")), **delay),
        _schedule("id as a header", headers=pairs(("postdate-id", b"t")), **delay),
        _schedule("id of 257 bytes", id="x" * 257, **delay),
        _schedule("empty id", _ZEROS, id="", **delay),
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


def _policies_for_ids() -> list[Case]:
    named: Case = {"delay_us": 2 * _SECOND_US, "id": "order-9"}
    unnamed: Case = {"delay_us": 2 * _SECOND_US}
    return [
        _schedule("replace what is pending", if_pending="replace", **named),
        _schedule("keep what is pending", if_pending="keep", **named),
        _schedule("latest", latest_us=30 * _SECOND_US + 1, **named),
        _schedule("latest that replaces", if_pending="replace", latest_us=30 * _SECOND_US, **named),
        _schedule("drop repetitions", if_ended="drop", **named),
        _schedule("keep and drop", if_pending="keep", if_ended="drop", **named),
        _schedule("unknown policy for what is pending", _TEXTS, if_pending="kepe", **named),
        _schedule("unknown policy for what has ended", _DYNAMIC, if_ended="keep", **named),
        _schedule("keep without id", if_pending="keep", **unnamed),
        _schedule("latest without id", latest_us=_SECOND_US, **unnamed),
        _schedule("drop without id", if_ended="drop", **unnamed),
        _schedule("keep with latest", if_pending="keep", latest_us=_SECOND_US, **named),
        _schedule("latest of 0", _ZEROS, latest_us=0, **named),
        _schedule("negative latest", latest_us=-1_000, **named),
        _schedule("latest of 18 years", latest_us=18 * 366 * _DAY_US, **named),
    ]


def _windows() -> list[Case]:
    delay: Case = {"delay_us": 7200 * _SECOND_US}
    everything: Case = {**delay, "grace_us": _SECOND_US, "window_us": _SECOND_US, "spread": "even", "id": "i"}
    everything |= {"if_pending": "replace", "if_ended": "drop", "latest_us": _SECOND_US, "target_partition": 3}
    return [
        _schedule("window", window_us=900 * _SECOND_US, **delay),
        _schedule("window rounds up", window_us=1, **delay),
        _schedule("even window", window_us=900 * _SECOND_US, spread="even", **delay),
        _schedule("everything", **everything),
        _schedule("window of 0", _ZEROS, window_us=0, **delay),
        _schedule("negative window", window_us=-1_000, **delay),
        _schedule("window of 18 years", window_us=18 * 366 * _DAY_US, **delay),
        _schedule("window to the horizon", delay_us=399 * _DAY_US, window_us=_DAY_US),
        _schedule("window beyond the horizon", delay_us=399 * _DAY_US, window_us=_DAY_US + 1),
        _schedule("window beyond the horizon by level", level=1, window_us=400 * _DAY_US + 1),
        _schedule("even without a window", spread="even", **delay),
        _schedule("unknown spread", _DYNAMIC, spread="wide", window_us=_SECOND_US, **delay),
    ]


def _repeat(name: str, only: list[str] | None = None, **given: Any) -> Case:
    message = {"partitions": 12, "target": "reports", "value": b64(b"{}"), "key": b64(b"report"), "id": "nightly"}
    return _case(name, "repeat", only, **{**message, **given})


_CRONS = (
    "*/15 9-17 1,15,L JAN-MAR,12 mon-fri",
    "0 30 9 LW * 5L",
    "5-5/2 0 * * FRI#3,7#5",
    "0/20 0-20/4 31 2-12/2 0-7",
    "@hourly",
    "@Annually",
)
_BAD_CRONS = (
    "",
    "* * * *",
    "* * * * * * *",
    "0 9  * * *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 32 * *",
    "* * * 13 *",
    "* * * * 8",
    "* * * * 07",
    "* * ? * *",
    "5-1 * * * *",
    "* * * * FRI-SUN",
    "*/0 * * * *",
    "*/60 * * * *",
    "* */24 * * *",
    "*/100 * * * *",
    "1,,2 * * * *",
    "L * * * *",
    "* * * * L",
    "* * * * FRIL",
    "* * * * 5#6",
    "* * * L-3 *",
    "x * * * *",
    "-1 * * * *",
    "* * 15W * *",
    "@reboot",
    "@every 5m",
    "@nightly",
    "\u0664 * * * *",
    "0 9 * * *\n",
    "0," * 256 + "0 * * * *",
)


def _repeats() -> list[Case]:
    cron: Case = {"cron": "30 2 * * *"}
    every: Case = {"every_us": 900 * _SECOND_US}
    of_zone: Case = {**cron, "zone": "Europe/Berlin"}
    start: Case = {"start_us": _AT_US + 1, "end_us": _AT_US + 400 * _DAY_US}
    clocks: Case = {"gap": "skip", "fold": "both"}
    late: Case = {"missed": "last", "catch_up_us": 3600 * _SECOND_US, "grace_us": 60 * _SECOND_US}
    trace = pairs(("trace", b"7"), ("postdate-origin", b"R/0/1"), ("postdate-occurrence", b"2"))
    window: Case = {"window_us": 600 * _SECOND_US}
    return [
        _repeat("cron", **cron),
        _repeat("cron of a zone", **of_zone),
        _repeat("cron in UTC", **cron, zone="UTC"),
        _repeat("cron and clock changes", **of_zone, **clocks),
        _repeat("cron with defaults", **of_zone, gap="next", fold="first", missed="all"),
        _repeat("cron and the last of a fold", **of_zone, fold="last", missed="none"),
        _repeat("everything of cron", **of_zone, **clocks, **late, **start, **window, count=12, target_partition=3),
        _repeat("every", **every),
        _repeat("every rounds up", every_us=1_000_001),
        _repeat("every with a phase", **every, phase_us=300 * _SECOND_US),
        _repeat("every with a phase of 0", _ZEROS, **every, phase_us=0),
        _repeat("everything of every", **every, **late, **start, **window, count=1, headers=trace),
        _repeat("shortest interval", every_us=_SECOND_US),
        _repeat("longest interval", every_us=36_525 * _DAY_US),
        _repeat("recurring with a null key", _NULLS, **cron, key=None),
        _repeat("recurring with a null value", **cron, value=None),
        _repeat("recurring with an id that is not ASCII", **cron, id="Größe-€"),
        *(_repeat(f"cron {text!r}", cron=text) for text in _CRONS),
        *(_repeat(f"cron that is none, {text[:20]!r}", _ZEROS if not text else None, cron=text) for text in _BAD_CRONS),
        _repeat("neither cron nor every", _TEXTS),
        _repeat("cron and every", _TEXTS, **cron, **every),
        _repeat("every with a zone", _TEXTS, **every, zone="UTC"),
        _repeat("every with a gap", _TEXTS, **every, gap="next"),
        _repeat("every with a fold", _TEXTS, **every, fold="last"),
        _repeat("cron with a phase", _TEXTS, **cron, phase_us=_SECOND_US),
        _repeat("unknown gap", _TEXTS, **cron, gap="last"),
        _repeat("unknown fold", _TEXTS, **cron, fold="none"),
        _repeat("unknown missed", _TEXTS, **cron, missed="first"),
        *(_repeat(f"zone {name!r}", **cron, zone=name) for name in ("Europe/Berlln", "+01:00", "Local", "/etc", "x y")),
        _repeat("short interval", every_us=_SECOND_US - 1_000),
        _repeat("long interval", every_us=36_525 * _DAY_US + 1),
        _repeat("negative interval", every_us=-1_000),
        _repeat("negative phase", **every, phase_us=-1_000),
        _repeat("phase of the interval", **every, phase_us=900 * _SECOND_US),
        _repeat("count of 0", _ZEROS, **every, count=0),
        _repeat("negative count", **every, count=-1),
        _repeat("start before 1970", **every, start_us=-1_000),
        _repeat("end before start", **every, start_us=_AT_US, end_us=_AT_US - 1_000),
        _repeat("start after the year 9997", **cron, start_us=253_402_300_799 * _SECOND_US),
        _repeat("end in the past without start", **every, end_us=_AT_US - 400 * _DAY_US),
        _repeat("negative catch-up", **every, catch_up_us=-1_000),
        _repeat("recurring with a negative grace", **every, grace_us=-1_000),
        _repeat("recurring with a negative window", **every, window_us=-1_000),
        _repeat("recurring with a window of 0", _ZEROS, **every, window_us=0),
        _repeat("recurring with a window of 18 years", **every, window_us=18 * 366 * _DAY_US),
        _repeat("recurring with a negative partition", **every, target_partition=-1),
        _repeat("recurring with an empty id", **every, id=""),
        _repeat("recurring with a long id", **every, id="x" * 257),
        _repeat("recurring with a reserved header", **every, headers=pairs(("postdate-at", b"5"))),
        _repeat("recurring to an internal target", **every, target="__consumer_offsets"),
    ]


def _bulk_controls() -> list[Case]:
    target: Case = {"partitions": 3, "target": "reminders"}
    times: Case = {"from_us": _AT_US + 1, "until_us": _AT_US + _SECOND_US}
    all_of: Case = {**target, **times, "id_prefix": "Größe-", "key": b64(b"customer-7")}
    return [
        _case("cancel of a target", "cancel_selected", **target),
        _case("cancel of all selectors", "cancel_selected", **all_of),
        _case("cancel of a key", "cancel_selected", partitions=3, key=b64(b"\xff")),
        _case("cancel of an empty key", "cancel_selected", partitions=3, key=""),
        _case("cancel of an id prefix", "cancel_selected", partitions=1, id_prefix="x" * 256),
        _case("cancel until", "cancel_selected", partitions=1, until_us=_AT_US),
        _case("deliver a target", "deliver_selected", **target),
        _case("deliver all selectors", "deliver_selected", **all_of),
        _case("move later", "reschedule_selected", **all_of, by_us=7200 * _SECOND_US + 1),
        _case("move earlier", "reschedule_selected", **target, by_us=-7200 * _SECOND_US),
        _case("move earlier by a rest", "reschedule_selected", **target, by_us=-1_500_001),
        _case("move by the horizon", "reschedule_selected", **target, by_us=400 * _DAY_US),
        _case("move by nothing", "reschedule_selected", **target, by_us=0),
        _case("move beyond the horizon", "reschedule_selected", **target, by_us=-400 * _DAY_US - 1),
        _case("cancel without selectors", "cancel_selected", partitions=3),
        _case("cancel of no topic", "cancel_selected", partitions=3, target="a/b"),
        _case("cancel of an empty topic", "cancel_selected", _ZEROS, partitions=3, target=""),
        _case("cancel of an empty id prefix", "cancel_selected", _ZEROS, partitions=3, id_prefix=""),
        _case("cancel of a long id prefix", "cancel_selected", partitions=3, id_prefix="x" * 257),
        _case("cancel of a long key", "cancel_selected", partitions=3, key=b64(b"x" * 4097)),
        _case("cancel of an empty range", "cancel_selected", partitions=3, from_us=_AT_US, until_us=_AT_US),
        _case("cancel before 1970", "cancel_selected", partitions=3, from_us=-1_000),
    ]


def _backfills(origin: str) -> list[Case]:
    range_us: Case = {"start_us": _AT_US + 1, "end_us": _AT_US + _SECOND_US}
    far_us = 4_102_444_800 * _SECOND_US  # the year 2100
    return [
        _case("backfill by id", "backfill", partitions=12, id="nightly", **range_us),
        _case("backfill by origin", "backfill", partitions=12, origin=origin, **range_us),
        _case("backfill of one time", "backfill", partitions=12, id="i", start_us=_AT_US, end_us=_AT_US),
        _case("backfill of nothing", "backfill", partitions=12, **range_us),
        _case(
            "backfill with an end before its start",
            "backfill",
            partitions=12,
            id="i",
            start_us=_AT_US,
            end_us=_AT_US - 1_000,
        ),
        _case("backfill of times to come", "backfill", partitions=12, id="i", start_us=_AT_US, end_us=far_us),
        _case("backfill before 1970", "backfill", partitions=12, id="i", start_us=-1_000, end_us=_AT_US),
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
        _case("pause by id", "pause", partitions=12, id="nightly"),
        _case("pause by origin", "pause", partitions=12, origin=origin),
        _case("resume by id", "resume", partitions=12, id="nightly"),
        _case("resume by origin", "resume", partitions=12, origin=origin),
        _case("trigger by id", "trigger", partitions=12, id="nightly"),
        _case("trigger by origin", "trigger", partitions=12, origin=origin),
        _case("trigger of nothing", "trigger", partitions=12),
        *_backfills(origin),
        _case("pause of nothing", "pause", partitions=12),
        _case("resume of a long id", "resume", partitions=12, id="x" * 257),
        _case("cancel of nothing", "cancel", partitions=12),
        _case("cancel by both", "cancel", _DYNAMIC, partitions=12, id="order-9", origin=origin),
        _case("cancel of a long id", "cancel", partitions=12, id="x" * 257),
        _case("reschedule without time", "reschedule", _DYNAMIC, partitions=12, id="order-9"),
        *(_case(f"cancel by origin {text!r}", "cancel", partitions=12, origin=text) for text in wrong),
    ]


_POLICIES = (
    "base=1s, factor=1.25, max=2h, attempts=1000, jitter=100%",
    " jitter = 0% ,base=1500 ",
    "base=PT5M",
    "base=P1DT0.5S,max=P2W",
    "base=1d2h3m4s5.5ms, max=400d",
    "base=0.1ms, factor=100, attempts=1",
    "base=1.1h, max=3960000",
    "base=1ms, max=0.5ms",
    "payments_v2.1-x",
    "factor=2",
    "bse=1s",
    "base",
    "base=",
    "base=1s,",
    "base=1s, base=2s",
    "base=2h",
    "base=0s",
    "base=1h, max=1m",
    "base=1s, max=401d",
    "base=1s, factor=0.9",
    "base=1s, factor=101",
    "base=1s, factor=1.125",
    "base=1s, attempts=0",
    "base=1s, attempts=1001",
    "base=1s, jitter=20",
    "base=1s, jitter=101%",
    "base=1 s",
    "base=1s1m",
    "base=1.5m1s",
    "base=1.s",
    "base=.5s",
    "base=1m1m",
    "base=-1s",
    "base=1S",
    "base=PT",
    "base=P1DT",
    "base=P1W1D",
    "base=P",
    "two words",
    "x" * 65,
    "größe",
)


def _returns() -> list[Case]:
    policy = "base=1s, attempts=5"
    first = pairs(("trace", b"7"), ("postdate-origin", b"postdate.requests/3/990"), ("postdate-due", b"1767225600000"))
    second = [
        *first,
        *pairs(
            ("postdate-id", b"order-9"),
            ("postdate-attempt", b"1"),
            ("postdate-first-origin", b"postdate.requests/3/7"),
            ("postdate-first-due", b"1767225500000"),
            ("postdate-error", b"time-out"),
        ),
    ]
    occurred = [*first, *pairs(("postdate-occurrence", b"3"), ("postdate-next", b"1767225700000"))]
    record: Case = {"partitions": 12, "topic": "reminders", "key": b64(b"customer-7"), "value": b64(b"pay!")}
    moved = pairs(("postdate-moved", b"5"), ("postdate-dead-reason", b"expired"), ("postdate-dead-detail", b"late"))
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
        _case("return with a reserved header", "retry", **record, headers=pairs(("postdate-at", b"5")), policy=policy),
        _case("return of an occurrence", "retry", **record, headers=occurred, policy=policy),
        *(_case(f"return by {text!r}", "retry", **record, headers=[], policy=text) for text in _POLICIES),
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
    occurred = (("postdate-occurrence", b"3"), ("postdate-next", b"1767225700000"))
    given = {
        "delivered": (origin, due),
        "delivered with an id": (("trace", b"7"), ("trace", b""), origin, due, ("postdate-id", "Größe".encode())),
        "delivered again": (("trace", b"7"), origin, due, *again),
        "occurrence": (("trace", b"7"), origin, due, again[0], *occurred),
        "last occurrence": (origin, due, again[0], occurred[0]),
        "occurrence that is no number": (origin, due, ("postdate-occurrence", b"")),
        "next time that is no number": (origin, due, occurred[0], ("postdate-next", b"1e3")),
        "extra delivery": (("trace", b"7"), origin, due, again[0], ("postdate-extra", b"R/0/7/12")),
        "extra delivery without a number": (origin, due, ("postdate-extra", b"R/0/7")),
        "extra delivery of no origin": (origin, due, ("postdate-extra", b"7/1")),
        "no headers": (),
        "no due time": (origin,),
        "no origin": (due,),
        "due time that is no number": (origin, ("postdate-due", b"+5")),
        "origin that is none": (("postdate-origin", b"R/3"), due),
    }
    return [_case(name, "delivered", headers=pairs(*headers)) for name, headers in given.items()]


_WORDS = (
    *("accepted", "rejected", "cancelled", "rescheduled", "replaced"),
    *("delivered", "dead", "not-found", "too-late"),
)


def _verdicts() -> list[Case]:
    good = {
        "v": 1,
        "origin": "R/3/1017",
        "id": "order-9",
        "verdict": "cancelled",
        "of": "R/3/990",
        "at": 1_767_225_600_000,
    }
    kept = {"v": 2, "verdict": "kept", "of": None, "by": "R/3/990"}
    applied = {"v": 2, "verdict": "applied", "id": None, "of": None, "count": 12}
    changed: dict[str, Any] = {
        "verdict kept": kept,
        "verdict dropped": {**kept, "verdict": "dropped"},
        "verdict applied": applied,
        "verdict applied to nothing": {**applied, "count": 0},
        "verdict replaced by another request": {"verdict": "replaced", "of": None, "by": "R/3/1018"},
        "verdict kept without survivor": {**kept, "by": None},
        "verdict kept by no origin": {**kept, "by": "R/3"},
        "verdict kept of version 1": {**kept, "v": 1},
        "verdict kept with a count": {**kept, "count": 1},
        "verdict applied of version 1": {**applied, "v": 1},
        "verdict applied without count": {"v": 2, "verdict": "applied"},
        "verdict applied with a text as count": {**applied, "count": "12"},
        "verdict applied with a negative count": {**applied, "count": -1},
        "verdict applied with half a message": {**applied, "count": 0.5},
        "verdict with a count": {"count": 1},
        "verdict with a number as by": {"verdict": "replaced", "by": 7},
        "verdict paused": {"v": 3, "verdict": "paused"},
        "verdict resumed": {"v": 3, "verdict": "resumed"},
        "verdict triggered": {"v": 3, "verdict": "triggered"},
        "verdict triggered of version 2": {"v": 2, "verdict": "triggered"},
        "verdict backfilled": {"v": 3, "verdict": "backfilled"},
        "verdict backfilled of version 1": {"verdict": "backfilled"},
        "verdict paused of version 1": {"verdict": "paused"},
        "verdict resumed of version 2": {"v": 2, "verdict": "resumed"},
        "verdict paused with a count": {"v": 3, "verdict": "paused", "count": 1},
        "verdict kept of version 3": {**kept, "v": 3},
        "verdict of version 3": {"v": 3},
        "verdict of version 4": {"v": 4, "verdict": "paused"},
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
        f"verdict {word}": json.dumps({**good, "verdict": word}).encode() for word in _WORDS
    }
    for name, change in changed.items():
        texts[name] = json.dumps({**good, **change}, ensure_ascii=False).encode()
    texts["verdict with escapes"] = json.dumps({**good, "id": "Größe-€-😀"}).encode()
    texts["verdict without optional fields"] = b' {"v":1,"origin":"R/3/1017","verdict":"dead","at":0}\n'
    for field in ("v", "origin", "verdict", "at"):
        texts[f"verdict without {field}"] = json.dumps({key: good[key] for key in good if key != field}).encode()
    texts |= {"null verdict": None, "empty verdict": b"", "verdict that is a list": b"[1]", "two verdicts": b"{} {}"}
    texts |= {"cut verdict": b'{"v":1,"origin":"R/3/1017"', "verdict that is not UTF-8": b'{"v":1,"id":"\xff"}'}
    return [_case(name, "verdict", value=b64(value)) for name, value in texts.items()]


def inputs() -> list[Case]:
    """Returns every case whose result the Python client computes."""
    found = [*_partitions(), *_schedules(), *_policies_for_ids(), *_windows(), *_repeats(), *_controls()]
    return [*found, *_bulk_controls(), *_returns(), *_deliveries(), *_verdicts()]


def refused_by_kafkajs() -> list[Case]:
    """Returns the cases with a null header, which the Python client can send and KafkaJS cannot."""
    return [
        _schedule("null header with KafkaJS", ["javascript"], delay_us=0, headers=[["trace", None]]),
        _schedule("id and null key with KafkaJS", ["javascript"], delay_us=0, id="i", key=None),
        _repeat("recurring with a null key with KafkaJS", ["javascript"], cron="@daily", key=None),
    ]
