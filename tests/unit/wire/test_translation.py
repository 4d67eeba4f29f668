"""Goal: a request of another scheduler has the same meaning in Postdate.

Method: each system's documented example, and small variations of it, are parsed under rules that accept every dialect
and compared with literal requests. Further tests check the properties of the table on which the parser relies.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from itertools import combinations

import pytest

from postdate.wire.dialects.table import DIALECTS
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers, is_postdate_header
from postdate.wire.requests.parser import parse_request, restore_headers
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.schedules.schedule import Missed, Schedule
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example
from support.repository import ROOT

NOW_MS = 1_795_258_284_000
HORIZON_MS = 3_660 * 86_400_000
RULES = RequestRules(topic="R", horizon_ms=HORIZON_MS, dialects=tuple(DIALECTS), default_target=DEFAULT_TARGET)
OFF = RequestRules(topic="R", horizon_ms=HORIZON_MS)
DOCUMENT = ROOT / "docs" / "migration.md"

ETF1: Headers = [("scheduler-epoch", b"1795258290"), ("scheduler-target-topic", b"orders")]
KARAFKA: Headers = [("schedule_target_epoch", b"1795258290"), ("schedule_target_topic", b"orders")]
KASPR: Headers = [("x-scheduler-deliver-at", b"2026-11-21T10:51:30Z"), ("x-scheduler-deliver-to", b"orders")]
TIMEBRIDGE: Headers = [("X-Timebridge-When", b"2026-11-21T10:51:30Z"), ("X-Timebridge-Where", b"orders")]
CHRONOS: Headers = [("chronosMessageId", b"i"), ("chronosDeadline", b"2026-11-21T10:51:30Z")]
NATS: Headers = [("Nats-Schedule", b"@at 2026-11-21T10:51:30Z"), ("Nats-Schedule-Target", b"orders")]
KASPR_CRON: Headers = [("x-scheduler-action", b"CRON_ADD"), KASPR[1], ("x-scheduler-request-id", b"k")]

examples = pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])


def parse(
    headers: Headers, *, key: bytes | None = b"k", rules: RequestRules = RULES, is_tombstone: bool = False
) -> Request:
    request = parse_request(rules, 3, NOW_MS, key, headers, is_tombstone)
    assert restore_headers(request.headers, request.stripped) == headers
    return request


@examples
def test_the_documented_example_is_the_message_it_documents(example: Example) -> None:
    alone = RequestRules(topic="R", horizon_ms=HORIZON_MS, dialects=(example.dialect,), default_target=DEFAULT_TARGET)
    for rules in (RULES, alone):
        request = parse(example.headers, key=example.key, rules=rules)
        assert request == Request(
            action=Action.SCHEDULE,
            target=example.target,
            due_ms=example.due_ms if example.due_ms >= 0 else NOW_MS + example.delay_ms,
            key=example.target_key,
            partition=-1,
            id=example.id,
            acts_on=-1,
            grace_ms=-1,
            headers=example.delivered,
            stripped=[
                (index, *header) for index, header in enumerate(example.headers) if header not in example.delivered
            ],
        )


@examples
def test_the_documented_cancel_names_what_the_example_scheduled(example: Example) -> None:
    if example.cancel is None:
        assert not DIALECTS[example.dialect].control or not example.id
        return
    request = parse(example.cancel.headers, key=example.cancel.key, is_tombstone=True)
    assert (request.action, request.id, request.acts_on) == (Action.CANCEL, example.id, -1)
    assert (request.target, request.due_ms, request.headers) == ("", -1, [])


@examples
def test_headers_of_a_disabled_dialect_belong_to_the_message(example: Example) -> None:
    own: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"5s")]
    others = tuple(name for name in DIALECTS if name != example.dialect)
    for rules in (OFF, RequestRules(topic="R", dialects=others, default_target=DEFAULT_TARGET)):
        request = parse([*own, *example.headers], rules=rules)
        assert (request.headers, request.due_ms) == (example.headers, NOW_MS + 5_000)
        with pytest.raises(RequestRefused, match="missing-target"):
            parse(example.headers, rules=rules)


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([("x-delay", b"0")], NOW_MS),
        ([("x-delay", b"-5000")], NOW_MS),
        ([("x-delay", b"4294967296")], NOW_MS + 4_294_967_296),
        ([("DELAY", b"0")], NOW_MS),
        ([("DELAY", b"1")], NOW_MS + 1_000),
        ([("DELAY", b"99")], NOW_MS + 7_200_000),
        ([("TIMER_DELAY_MS", b"1500")], NOW_MS + 1_500),
        ([("TIMER_DELAY_SEC", b"-1")], NOW_MS),
        ([("TIMER_DELIVER_MS", b"1795258290500")], 1_795_258_290_500),
        ([("TIMER_DELIVER_MS", b"-7")], 1),
        ([("scheduler-epoch", b"0"), ETF1[1]], 1),
        ([("X-Timebridge-When", b"2026-11-21T11:51:24.5+01:00"), TIMEBRIDGE[1]], NOW_MS + 500),
        ([("x-scheduler-deliver-at", b"2026-11-21T10:51:24"), KASPR[1]], NOW_MS),
        ([("x-scheduler-deliver-at", b"2026-11-21T10:51:24.000001+00:00"), KASPR[1]], NOW_MS + 1),
        ([("chronosDeadline", b"2026-11-21T10:51:24.001Z")], NOW_MS + 1),
        ([("Nats-Schedule", b"@at 2026-11-21T05:51:24-05:00"), NATS[1]], NOW_MS),
    ],
)
def test_each_time_of_a_dialect_becomes_its_due_time(headers: Headers, due_ms: int) -> None:
    assert parse(headers).due_ms == due_ms


@pytest.mark.parametrize(
    ("headers", "key", "target_key", "identifier"),
    [
        (ETF1, b"k", None, b"k"),
        (ETF1, None, None, b""),
        (ETF1, b"", None, b""),
        ([*ETF1, ("scheduler-target-key", None)], b"k", None, b"k"),
        ([*ETF1, ("scheduler-target-key", b"\xff")], b"k", b"\xff", b"k"),
        (KARAFKA, b"k", None, b"k"),
        (KASPR, b"\xff", b"\xff", b""),
        ([*KASPR, ("x-scheduler-action", b"ADD")], b"k", b"k", b""),
        ([*KASPR, ("x-scheduler-action", b"REPLACE"), ("x-scheduler-request-id", b"i")], b"k", b"k", b"i"),
        (TIMEBRIDGE, b"\xff" * 300, b"\xff" * 300, b""),
        (CHRONOS, b"k", b"k", b"i"),
        (NATS, None, None, b""),
        ([("DELAY", b"1"), ("UNIQ_KEY", b"u")], b"k", b"k", b"u"),
    ],
)
def test_keys_and_ids_of_a_dialect_become_target_keys_and_ids(
    headers: Headers, key: bytes | None, target_key: bytes | None, identifier: bytes
) -> None:
    request = parse(headers, key=key)
    assert (request.key, request.id) == (target_key, identifier)


def test_a_partition_of_karafka_becomes_the_target_partition() -> None:
    assert parse([*KARAFKA, ("schedule_target_partition", b"7")]).partition == 7
    headers: Headers = [("schedule_target_key", b"a"), ("schedule_target_partition_key", b"a")]
    assert parse([*KARAFKA, *headers]).key == b"a"
    assert (
        parse([*KARAFKA, ("schedule_target_partition", b"7"), ("schedule_target_partition_key", b"b")]).partition == 7
    )


RECURRING: list[tuple[Headers, Schedule]] = [
    ([("Nats-Schedule", b"@hourly"), NATS[1]], Schedule(cron="@hourly", missed=Missed.LAST)),
    ([("Nats-Schedule", b"0 30 2  * * mon-fri"), NATS[1]], Schedule(cron="0 30 2 * * mon-fri", missed=Missed.LAST)),
    ([("Nats-Schedule", b"@every 1h30m0s"), NATS[1]], Schedule(every_ms=5_400_000, missed=Missed.LAST)),
    (
        [("Nats-Schedule", b"@daily"), NATS[1], ("Nats-Schedule-Time-Zone", b"Europe/Berlin")],
        Schedule(cron="@daily", zone="Europe/Berlin", missed=Missed.LAST),
    ),
    ([*KASPR_CRON, ("x-scheduler-cron-expr", b"30 2 * * *")], Schedule(cron="30 2 * * *")),
    ([*KASPR_CRON, ("x-scheduler-cron-expr", b"30 2 * * * 15")], Schedule(cron="15 30 2 * * *")),
    (
        [*KASPR_CRON, ("x-scheduler-cron-expr", b"30 2 * * *"), ("x-scheduler-cron-missed-fire-policy", b"skip")],
        Schedule(cron="30 2 * * *", missed=Missed.NONE),
    ),
    (
        [*KASPR_CRON, ("x-scheduler-cron-expr", b"30 2 * * *"), ("x-scheduler-cron-missed-fire-policy", b"replay")],
        Schedule(cron="30 2 * * *"),
    ),
]


@pytest.mark.parametrize(("headers", "schedule"), RECURRING)
def test_a_recurring_schedule_is_kept_as_one_in_postdates_own_headers(headers: Headers, schedule: Schedule) -> None:
    rules = replace(RULES, format_version=3)
    request = parse_request(rules, 3, NOW_MS, b"k", [("a", b"1"), *headers])
    assert (request.schedule, request.target, request.id) == (schedule, "orders", b"k")
    assert (request.key, request.headers) == (b"k", [("a", b"1")])
    own = restore_headers(request.headers, request.stripped)
    assert all(is_postdate_header(name) for name, _ in own[:-1])
    assert parse_request(rules, 3, NOW_MS, b"k", own) == request


@pytest.mark.parametrize(
    ("action", "meant"),
    [(b"CRON_CANCEL", Action.CANCEL), (b"CRON_PAUSE", Action.PAUSE), (b"CRON_RESUME", Action.RESUME)],
)
def test_a_control_of_kaspr_becomes_a_control_of_a_recurring_schedule(action: bytes, meant: Action) -> None:
    headers: Headers = [("x-scheduler-action", action), ("x-scheduler-request-id", b"k")]
    request = parse(headers, rules=replace(RULES, format_version=3))
    assert (request.action, request.id, request.acts_on) == (meant, b"k", -1)


LEFT_OVER: dict[str, Headers] = {
    "etf1": [*ETF1, ("scheduler-key", b"x"), ("scheduler-topic", b"x"), ("scheduler-key", b"y")],
    "karafka": [*KARAFKA, ("schedule_source_offset", b"7"), ("schedule_source_key", b"x")],
    "kaspr": [*KASPR, ("x-scheduler-cron-fire-timestamp", b"1")],
    "timebridge": [*TIMEBRIDGE, ("X-Timebridge-Error", b"x"), ("X-Timebridge-Error", b"y")],
    "nats": [*NATS, ("Nats-Scheduler", b"x"), ("Nats-Schedule-Next", b"purge"), ("Nats-Schedule-Rollup", b"sub")],
    "rocketmq": [("DELAY", b"1"), ("REAL_QID", b"3"), ("TIMER_OUT_MS", b"1")],
    "spring": [("retry_topic-backoff-timestamp", b"\x01\xa1\xff\xbb\x4f\x68")],
}


@pytest.mark.parametrize("name", LEFT_OVER)
def test_headers_of_an_earlier_delivery_are_ignored(name: str) -> None:
    ours: Headers = [("postdate-origin", b"R/3/7"), ("postdate-due", b"1"), ("postdate-dead-reason", b"expired")]
    ours += [("postdate-attempt", b"1"), ("postdate-occurrence", b"1"), ("postdate-next", b"1")]
    if DIALECTS[name].has_ids or name == "spring":
        ours.append(("postdate-id", b"other"))
    request = parse([("a", b"1"), *LEFT_OVER[name], *ours, ("a", None)])
    assert request.action == Action.SCHEDULE
    assert (request.headers, request.id) == ([("a", b"1"), ("a", None)], b"k" if DIALECTS[name].id_is_key else b"")


def test_left_over_names_alone_belong_to_the_message() -> None:
    own: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"5s")]
    left: Headers = [("scheduler-key", b"x"), ("schedule_source_key", b"y"), ("REAL_TOPIC", b"z"), ("Nats-TTL", b"1")]
    assert parse([*own, *left]).headers == left


def test_a_null_value_cancels_in_etf1_whatever_else_the_record_carries() -> None:
    some: list[Headers] = [[], [("traceparent", b"x")], ETF1, [("postdate-origin", b"R/3/7")]]
    for headers in some:
        assert (parse(headers, is_tombstone=True).action, parse(headers, is_tombstone=True).id) == (Action.CANCEL, b"k")


def test_a_null_value_is_a_message_in_every_other_dialect() -> None:
    own: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"5s")]
    short: list[Headers] = [[("x-delay", b"1")], [("DELAY", b"1")]]
    for headers in (own, KARAFKA, KASPR, TIMEBRIDGE, CHRONOS, NATS, *short):
        assert parse(headers, is_tombstone=True).action == Action.SCHEDULE
    others = RequestRules(topic="R", dialects=tuple(name for name in DIALECTS if name != "etf1"), default_target="o")
    with pytest.raises(RequestRefused, match="missing-target"):
        parse([], rules=others, is_tombstone=True)


@pytest.mark.parametrize(
    ("headers", "is_tombstone"),
    [
        ([("schedule_source_type", b"cancel")], False),
        ([*KARAFKA, ("schedule_source_type", b"tombstone"), ("schedule_source_offset", b"7")], True),
        ([("x-scheduler-action", b"CANCEL"), ("x-scheduler-request-id", b"k"), KASPR[1]], False),
        ([("Nats-Schedule-Next", b"purge"), ("Nats-Scheduler", b"k"), ("a", b"1")], False),
        ([("TIMER_DEL_UNIQKEY", b"k")], False),
        ([("TIMER_DEL_UNIQKEY", b"orders+k"), ("DELAY", b"no number"), ("TIMER_DELIVER_MS", b"1")], False),
    ],
)
def test_every_form_of_cancel(headers: Headers, is_tombstone: bool) -> None:
    request = parse(headers, is_tombstone=is_tombstone)
    assert (request.action, request.id, request.acts_on, request.due_ms) == (Action.CANCEL, b"k", -1, -1)


@pytest.mark.parametrize("fields", [{"dialects": ("etf2",)}, {"dialects": ("etf1",), "default_target": "a b"}])
def test_malformed_rules_of_dialects_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"etf2|a b"):
        RequestRules(topic="R", **fields)  # type: ignore[arg-type]


def test_rules_survive_pickling() -> None:
    copied = pickle.loads(pickle.dumps(RULES))  # noqa: S301 - our own bytes
    assert copied == RULES
    for example in EXAMPLES:
        assert parse(example.headers, key=example.key, rules=copied) == parse(example.headers, key=example.key)


def test_no_name_belongs_to_two_dialects() -> None:
    for first, second in combinations(DIALECTS.values(), 2):
        assert not (first.read | first.left_over) & (second.read | second.left_over)
    for dialect in DIALECTS.values():
        assert dialect.marks <= dialect.read
        assert not dialect.read & dialect.left_over
        assert not any(is_postdate_header(name) for name in dialect.read | dialect.left_over)
    assert [example.dialect for example in EXAMPLES] == sorted(
        (example.dialect for example in EXAMPLES), key=list(DIALECTS).index
    )
    assert {example.dialect for example in EXAMPLES} == {*DIALECTS}


def test_the_document_names_every_header_of_the_table() -> None:
    named = {*re.findall(r"`([A-Za-z0-9_-]+)(?:: [^`]*)?`", DOCUMENT.read_text(encoding="utf-8"))}
    for dialect in DIALECTS.values():
        assert dialect.name in named
        assert (dialect.read | dialect.left_over) - named == set()
