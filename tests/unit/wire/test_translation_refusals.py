"""Goal: an incomplete or unsupported request of another scheduler is refused in the terms of that scheduler.

Method: literal invalid headers, under rules that accept every dialect. The reason and a clause of the detail are
compared.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from postdate.wire.dialects.table import DIALECTS
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example

NOW_MS = 1_795_258_284_000
RULES = RequestRules(topic="R", dialects=tuple(DIALECTS), default_target=DEFAULT_TARGET, format_version=3)

ETF1: Headers = [("scheduler-epoch", b"1795258290"), ("scheduler-target-topic", b"orders")]
KARAFKA: Headers = [("schedule_target_epoch", b"1795258290"), ("schedule_target_topic", b"orders")]
KASPR: Headers = [("x-scheduler-deliver-at", b"2026-11-21T10:51:30Z"), ("x-scheduler-deliver-to", b"orders")]
TIMEBRIDGE: Headers = [("X-Timebridge-When", b"2026-11-21T10:51:30Z"), ("X-Timebridge-Where", b"orders")]
CHRONOS: Headers = [("chronosMessageId", b"i"), ("chronosDeadline", b"2026-11-21T10:51:30Z")]
NATS: Headers = [("Nats-Schedule", b"@at 2026-11-21T10:51:30Z"), ("Nats-Schedule-Target", b"orders")]
ZONE = ("Nats-Schedule-Time-Zone", b"Europe/Berlin")
CRON_ADD: Headers = [("x-scheduler-action", b"CRON_ADD"), KASPR[1], ("x-scheduler-request-id", b"i")]
DAILY = ("x-scheduler-cron-expr", b"0 9 * * *")


def refusal(headers: Headers, *, key: bytes | None = b"k", is_tombstone: bool = False) -> tuple[Reason, str]:
    with pytest.raises(RequestRefused) as caught:
        parse_request(RULES, 3, NOW_MS, key, headers, is_tombstone)
    return caught.value.reason, caught.value.detail


@pytest.mark.parametrize(("one", "other"), [*combinations([ETF1, KARAFKA, KASPR, TIMEBRIDGE, CHRONOS, NATS], 2)])
def test_two_dialects_in_one_record_are_refused(one: Headers, other: Headers) -> None:
    reason, detail = refusal([one[0], other[1]])
    assert reason == Reason.CONFLICTING_TIME
    assert "in one record" in detail


@pytest.mark.parametrize("header", ["postdate-at", "postdate-topic", "postdate-grace", "postdate-action", "Postdate-X"])
@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_a_dialect_beside_postdates_own_headers_is_refused(example: Example, header: str) -> None:
    reason, detail = refusal([*example.headers, (header, b"5")])
    assert reason == Reason.CONFLICTING_TIME
    assert f"headers of {example.dialect} and of Postdate ('{header}')" in detail


def test_an_id_of_postdate_beside_a_dialect_without_ids_is_refused() -> None:
    assert refusal([("x-delay", b"1"), ("postdate-id", b"i")])[0] == Reason.CONFLICTING_TIME


REFUSED: list[tuple[Headers, Reason, str]] = [
    ([ETF1[0]], Reason.MISSING_TARGET, "etf1: scheduler-target-topic is missing"),
    ([ETF1[1]], Reason.MISSING_TIME, "etf1: scheduler-epoch is missing"),
    ([KASPR[0]], Reason.MISSING_TARGET, "x-scheduler-deliver-to is missing"),
    ([("TIMER_DELIVER_MS", None)], Reason.BAD_TIME, "TIMER_DELIVER_MS null has no value"),
    ([CHRONOS[0]], Reason.MISSING_TIME, "chronosDeadline is missing"),
    ([NATS[1]], Reason.MISSING_TIME, "Nats-Schedule is missing"),
    ([("Nats-Schedule-Next", b"later"), *NATS[1:]], Reason.MISSING_TIME, "Nats-Schedule is missing"),
    ([ETF1[0], ("scheduler-target-topic", b"a b")], Reason.BAD_TARGET, "scheduler-target-topic 'a b' is not"),
    ([ETF1[0], ("scheduler-target-topic", b"__x")], Reason.FORBIDDEN_TARGET, "do not allow __x"),
    ([("scheduler-epoch", b"soon"), ETF1[1]], Reason.BAD_TIME, "scheduler-epoch 'soon' is not a number"),
    ([("scheduler-epoch", b"-1"), ETF1[1]], Reason.BAD_TIME, "scheduler-epoch '-1'"),
    ([("scheduler-epoch", b"9" * 17), ETF1[1]], Reason.BAD_TIME, "scheduler-epoch"),
    ([("scheduler-epoch", b"1795258290000"), ETF1[1]], Reason.BEYOND_HORIZON, "the horizon is"),
    ([*ETF1, ETF1[0]], Reason.DUPLICATE_HEADER, "scheduler-epoch is given more than once"),
    ([("x-delay", b"5s")], Reason.BAD_TIME, "x-delay '5s' is not a number"),
    *(
        ([("retry_topic-backoff-timestamp", value)], Reason.BAD_TIME, "is not a binary number of 1 to 8 bytes")
        for value in (None, b"", b"1795258284000")
    ),
    ([("x-delay", b"--5")], Reason.BAD_TIME, "x-delay"),
    ([("x-delay", b"9" * 18)], Reason.BEYOND_HORIZON, "the horizon is"),
    ([("DELAY", b"three")], Reason.BAD_LEVEL, "DELAY 'three' is not a number"),
    ([("DELAY", b"1"), ("TIMER_DELAY_MS", b"1")], Reason.CONFLICTING_TIME, "only one of DELAY and TIMER_DELAY_MS"),
    ([("TIMER_DELAY_SEC", b"1"), ("TIMER_DELAY_MS", b"1")], Reason.CONFLICTING_TIME, "only one of TIMER_DELAY_SEC"),
    ([("DELAY", b"1"), ("UNIQ_KEY", b"")], Reason.BAD_ID, "UNIQ_KEY must have 1 to 256 bytes"),
    ([("X-Timebridge-When", b"1795258290"), TIMEBRIDGE[1]], Reason.BAD_TIME, "is not a date and time of RFC 3339"),
    ([("X-Timebridge-When", b"2026-11-21T10:51:30"), TIMEBRIDGE[1]], Reason.BAD_TIME, "X-Timebridge-When"),
    ([("X-Timebridge-When", b"+1h"), TIMEBRIDGE[1]], Reason.BAD_TIME, "X-Timebridge-When '+1h'"),
    ([("chronosDeadline", b"2026-11-31T10:51:30")], Reason.BAD_TIME, "chronosDeadline"),
    ([*CHRONOS[1:], ("chronosMessageId", b"\xff")], Reason.BAD_ID, "chronosMessageId"),
    ([("Nats-Schedule", b"@every 5"), NATS[1]], Reason.BAD_SCHEDULE, "is not a duration with a unit"),
    ([("Nats-Schedule", b"@every 5m/1m"), NATS[1]], Reason.BAD_SCHEDULE, "is not a duration with a unit"),
    ([("Nats-Schedule", b"@every 500ms"), NATS[1]], Reason.BAD_SCHEDULE, "Nats-Schedule '500ms' is not from 1s"),
    ([("Nats-Schedule", b"30 2 * * *"), NATS[1]], Reason.BAD_SCHEDULE, "or an expression of 6 fields"),
    ([("Nats-Schedule", b"0 99 2 * * *"), NATS[1]], Reason.BAD_SCHEDULE, "Nats-Schedule '0 99 2 * * *' is refused"),
    ([("Nats-Schedule", b"@often"), NATS[1]], Reason.BAD_SCHEDULE, "Nats-Schedule '@often' is not one of"),
    ([("Nats-Schedule", b"@daily"), *NATS[1:], (ZONE[0], b"Mars")], Reason.BAD_SCHEDULE, f"{ZONE[0]} 'Mars'"),
    ([("Nats-Schedule", b"@at 1795258290"), NATS[1]], Reason.BAD_TIME, "is not a date and time of RFC 3339"),
    ([*NATS, ("Nats-Schedule-Source", b"a.b")], Reason.UNKNOWN_HEADER, "Nats-Schedule-Source: "),
    ([*NATS, ZONE], Reason.CONFLICTING_TIME, "Nats-Schedule-Time-Zone belongs to a schedule"),
    ([*NATS, ("Nats-TTL", b"1h")], Reason.UNKNOWN_HEADER, "Nats-TTL: "),
    ([("Nats-Schedule-Next", b"purge")], Reason.MISSING_ID, "nats: a cancel needs Nats-Scheduler"),
    ([("x-scheduler-action", b"CANCEL")], Reason.MISSING_ID, "kaspr: a cancel needs x-scheduler-request-id"),
    ([*KASPR, ("x-scheduler-action", b"REPLACE")], Reason.MISSING_ID, "'REPLACE' needs x-scheduler-request-id"),
    ([*KASPR, ("x-scheduler-action", b"CRON_TRIGGER")], Reason.BAD_ACTION, "x-scheduler-action 'CRON_TRIGGER' is not"),
    (CRON_ADD, Reason.MISSING_TIME, "'CRON_ADD' needs x-scheduler-cron-expr"),
    ([*CRON_ADD[:2], DAILY], Reason.MISSING_ID, "kaspr: a recurring schedule needs x-scheduler-request-id"),
    (
        [*CRON_ADD, DAILY, KASPR[0]],
        Reason.CONFLICTING_TIME,
        "only one of x-scheduler-cron-expr and x-scheduler-deliver",
    ),
    ([*CRON_ADD, (DAILY[0], b"0 9 * *")], Reason.BAD_SCHEDULE, "x-scheduler-cron-expr '0 9 * *' has 4 fields"),
    ([("x-scheduler-action", b"CRON_PAUSE")], Reason.MISSING_ID, "kaspr: a pause needs x-scheduler-request-id"),
    ([*KARAFKA, ("schedule_source_type", b"delete")], Reason.BAD_ACTION, "schedule_source_type 'delete'"),
    ([*KARAFKA, ("schedule_schema_version", b"2.0.0")], Reason.UNKNOWN_HEADER, "schedule_schema_version '2.0.0'"),
    ([*KARAFKA, ("schedule_target_partition", b"-1")], Reason.BAD_PARTITION, "schedule_target_partition '-1'"),
    ([*KARAFKA, ("schedule_target_partition_key", b"p")], Reason.BAD_PARTITION, "partition_key is not supported"),
]


@pytest.mark.parametrize(("headers", "reason", "clause"), REFUSED, ids=[clause for _, _, clause in REFUSED])
def test_a_refusal_uses_the_words_of_its_dialect(headers: Headers, reason: Reason, clause: str) -> None:
    told, detail = refusal(headers)
    assert told == reason
    assert clause in detail
    assert "postdate-" not in detail


@pytest.mark.parametrize("key", [b"\xff", b"i" * 257])
@pytest.mark.parametrize("headers", [ETF1, KARAFKA, NATS, []])
def test_a_key_that_cannot_be_an_id_is_refused(key: bytes, headers: Headers) -> None:
    reason, detail = refusal(headers, key=key, is_tombstone=not headers)
    assert reason == Reason.BAD_ID
    assert detail.startswith("the record's key, which names the schedule,")


def test_a_record_without_any_dialect_is_judged_as_one_of_postdates_own() -> None:
    expected = (Reason.MISSING_TARGET, "a request to schedule needs postdate-topic")
    assert refusal([]) == refusal([("traceparent", b"x"), ("scheduler-key", b"k")]) == expected


@pytest.mark.parametrize("key", [None, b""])
def test_a_cancel_by_key_without_a_key_is_refused(key: bytes | None) -> None:
    assert refusal([], key=key, is_tombstone=True) == (Reason.MISSING_ID, "etf1: a cancel needs a record key")


def test_a_recurring_schedule_without_a_record_key_has_no_id() -> None:
    headers: Headers = [("Nats-Schedule", b"@hourly"), NATS[1]]
    assert refusal(headers, key=None) == (Reason.MISSING_ID, "nats: a recurring schedule needs a record key")


@pytest.mark.parametrize("headers", [[("Nats-Schedule", b"@hourly"), NATS[1]], [*CRON_ADD, DAILY]])
def test_a_recurring_schedule_needs_its_format(headers: Headers) -> None:
    with pytest.raises(RequestRefused, match=r"(Nats-Schedule|x-scheduler-cron-expr)' needs format_version = 3"):
        parse_request(replace(RULES, format_version=2), 3, NOW_MS, b"k", headers)


def test_a_dialect_without_targets_needs_a_default() -> None:
    rules = RequestRules(topic="R", dialects=("rabbitmq",))
    with pytest.raises(RequestRefused, match=r"missing-target: rabbitmq names no target .* no default_target"):
        parse_request(rules, 3, NOW_MS, None, [("x-delay", b"1")])
