"""Goal: each well-formed request has its documented meaning: every header, every form of time, controls by id and by
origin.

Method: requests are parsed from literal headers and compared field by field with the documented meaning.
"""

from __future__ import annotations

import msgspec
import pytest

from postdate.wire.headers import Headers
from postdate.wire.limits import REMEMBERED_TEXTS_MAX
from postdate.wire.requests.parser import parse_request, restore_headers
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import DEFAULT_LEVELS_MS, RequestRules

RULES = RequestRules(topic="R")
NOW_MS = 1_795_258_284_000
TARGET: Headers = [("postdate-topic", b"orders")]
AT_ONCE: Headers = [*TARGET, ("postdate-delay", b"0")]


def parse(headers: Headers, *, key: bytes | None = b"k", rules: RequestRules = RULES) -> Request:
    return parse_request(rules, 3, NOW_MS, key, headers)


def test_a_common_request_is_parsed() -> None:
    request = parse([("a", b"1"), *TARGET, ("postdate-delay", b"5s"), ("a", None)])
    assert request == Request(
        action=Action.SCHEDULE,
        target="orders",
        due_ms=NOW_MS + 5_000,
        key=b"k",
        partition=-1,
        id=b"",
        acts_on=-1,
        grace_ms=-1,
        headers=[("a", b"1"), ("a", None)],
        stripped=[(1, "postdate-topic", b"orders"), (2, "postdate-delay", b"5s")],
    )


def test_a_request_with_every_optional_header_is_parsed() -> None:
    request = parse(
        [
            ("postdate-action", b"schedule"),
            ("postdate-id", "Bestellung-ä".encode()),
            ("postdate-key", b"\x00\xff"),
            ("postdate-partition", b"2147483647"),
            ("postdate-grace", b"1m"),
            ("postdate-at", b"1795258299999"),
            *TARGET,
        ]
    )
    assert (request.action, request.target, request.due_ms) == (Action.SCHEDULE, "orders", 1_795_258_299_999)
    assert (request.key, request.partition, request.grace_ms) == (b"\x00\xff", 2**31 - 1, 60_000)
    assert (request.id, request.headers, len(request.stripped)) == ("Bestellung-ä".encode(), [], 7)


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_the_target_key_is_the_header_if_it_is_given(key: bytes | None) -> None:
    assert parse([*AT_ONCE, ("postdate-key", key)]).key == key
    assert parse(AT_ONCE, key=key).key == key


@pytest.mark.parametrize(
    ("header", "due_ms"),
    [
        (("postdate-delay", b"0"), NOW_MS),
        (("postdate-delay", b"1500"), NOW_MS + 1_500),
        (("postdate-delay", b"2h30m"), NOW_MS + 9_000_000),
        (("postdate-delay", b"PT0.0001S"), NOW_MS + 1),
        (("postdate-at", b"5"), 5),
        (("postdate-at", b"0"), 1),
        (("postdate-at", b"1970-01-01T00:00:00Z"), 1),
        (("postdate-at", b"2026-11-21T10:51:24.0001Z"), NOW_MS + 1),
        (("postdate-at", b"2026-11-21T12:21:24+01:30"), NOW_MS),
        (("postdate-level", b"0"), NOW_MS),
        (("postdate-level", b"1"), NOW_MS + 1_000),
        (("postdate-level", b"05"), NOW_MS + 60_000),
        (("postdate-level", b"18"), NOW_MS + 7_200_000),
        (("postdate-level", b"19"), NOW_MS + 7_200_000),
        (("postdate-level", b"999999999999999999"), NOW_MS + 7_200_000),
    ],
)
def test_each_form_of_time_gives_its_due_time(header: tuple[str, bytes], due_ms: int) -> None:
    assert parse([*TARGET, header]).due_ms == due_ms


def test_the_levels_are_those_of_the_table_unless_configured() -> None:
    assert [ms // 1000 for ms in DEFAULT_LEVELS_MS] == [
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
    ]
    rules = RequestRules(topic="R", levels_ms=(7, 70))
    assert [parse([*TARGET, ("postdate-level", b"%d" % n)], rules=rules).due_ms - NOW_MS for n in range(4)] == [
        *(0, 7, 70, 70)
    ]


def test_the_horizon_itself_is_allowed_and_counts_from_the_record() -> None:
    rules = RequestRules(topic="R", horizon_ms=1_000)
    assert parse([*TARGET, ("postdate-delay", b"1s")], rules=rules).due_ms == NOW_MS + 1_000
    assert parse([*TARGET, ("postdate-at", b"%d" % (NOW_MS + 1_000))], rules=rules).due_ms == NOW_MS + 1_000


def test_headers_of_an_earlier_delivery_or_dead_letter_are_dropped() -> None:
    left: Headers = [
        ("postdate-origin", b"R/3/17"),
        ("postdate-due", b"5"),
        ("postdate-origin", None),
        ("postdate-moved", b"x"),
        ("postdate-dead-reason", b"expired"),
        ("postdate-dead-detail", b"too late"),
        ("postdate-dead-whatever", b""),
    ]
    request = parse([*left, ("traceparent", b"00"), *AT_ONCE])
    assert request.headers == [("traceparent", b"00")]
    assert request.acts_on == -1
    assert [(name, value) for _, name, value in request.stripped] == [*left, *AT_ONCE]


@pytest.mark.parametrize(
    "name", ["postdate", "postdat", "p", "", "P", "post", "xpostdate-delay", "p\u043estdate-delay"]
)
def test_names_that_only_resemble_the_prefix_are_data(name: str) -> None:
    assert parse([(name, b"1"), *AT_ONCE]).headers == [(name, b"1")]


@pytest.mark.parametrize("action", [Action.CANCEL, Action.RESCHEDULE])
def test_controls_name_their_request_by_id_or_by_origin(action: Action) -> None:
    headers: Headers = [("postdate-action", action.name.lower().encode()), ("trace", b"1")]
    if action is Action.RESCHEDULE:
        headers.append(("postdate-delay", b"9"))
    due_ms = NOW_MS + 9 if action is Action.RESCHEDULE else -1
    by_id = parse([*headers, ("postdate-id", b"x")])
    assert (by_id.action, by_id.target, by_id.due_ms, by_id.id, by_id.acts_on) == (action, "", due_ms, b"x", -1)
    by_origin = parse([("postdate-origin", b"R/3/41"), *headers])
    assert (by_origin.action, by_origin.due_ms, by_origin.id, by_origin.acts_on) == (action, due_ms, b"", 41)
    assert by_origin.headers == [("trace", b"1")]
    assert by_origin.key == b"k"


def test_a_reschedule_takes_a_grace() -> None:
    request = parse(
        [
            ("postdate-action", b"reschedule"),
            ("postdate-id", b"x"),
            ("postdate-grace", b"5"),
            ("postdate-level", b"1"),
        ]
    )
    assert (request.due_ms, request.grace_ms) == (NOW_MS + 1_000, 5)


def test_restoring_puts_every_header_back_in_its_place() -> None:
    sent: Headers = [
        ("postdate-topic", b"t"),
        ("a", b""),
        ("postdate-due", b"1"),
        ("b", None),
        ("postdate-delay", b"0"),
    ]
    request = parse(sent)
    assert request.headers == [("a", b""), ("b", None)]
    assert restore_headers(request.headers, request.stripped) == sent
    assert restore_headers([("a", b"1")], []) == [("a", b"1")]
    assert restore_headers([], [(0, "x", None)]) == [("x", None)]


def test_the_allow_list_is_of_patterns_and_case_matters() -> None:
    rules = RequestRules(topic="R", allow=("orders.*", "bill?"), forbidden=frozenset({"orders.own"}))
    assert rules.permits("orders.new")
    assert rules.permits("bills")
    permitted = [name for name in ("orders", "Orders.new", "billss", "orders.own", "x.orders.y") if rules.permits(name)]
    assert permitted == []
    assert not RequestRules(topic="R", allow=()).permits("orders")


def test_the_cache_of_rules_is_bounded_and_transparent() -> None:
    rules = RequestRules(topic="R")
    for number in range(REMEMBERED_TEXTS_MAX + 10):
        headers: Headers = [("postdate-topic", b"t%d" % number), ("postdate-delay", b"%ds" % number)]
        for _ in range(2):
            request = parse_request(rules, 0, 0, None, headers)
            assert (request.target, request.due_ms) == (f"t{number}", max(number * 1_000, 1))
    assert 0 < len(rules.targets) <= REMEMBERED_TEXTS_MAX
    assert 0 < len(rules.delays_ms) <= REMEMBERED_TEXTS_MAX
    assert rules == RequestRules(topic="R")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "no topic"},
        {"topic": "t" * 240},
        {"topic": "R", "levels_ms": ()},
        {"topic": "R", "levels_ms": (-1,)},
        {"topic": "R", "horizon_ms": -1},
    ],
)
def test_malformed_rules_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"name|levels|horizon"):
        RequestRules(**wrong)  # type: ignore[arg-type]


def test_a_control_has_no_target() -> None:
    given: Headers = [("postdate-action", b"cancel"), ("postdate-id", b"a"), ("b", b"2")]
    assert parse(given) == Request(
        action=Action.CANCEL,
        target="",
        due_ms=-1,
        key=b"k",
        partition=-1,
        id=b"a",
        acts_on=-1,
        grace_ms=-1,
        headers=[("b", b"2")],
        stripped=[(0, "postdate-action", b"cancel"), (1, "postdate-id", b"a")],
    )
    origin: Headers = [("postdate-action", b"reschedule"), ("postdate-origin", b"R/3/0"), ("postdate-at", b"0")]
    assert parse(origin) == Request(
        action=Action.RESCHEDULE,
        target="",
        due_ms=1,
        key=b"k",
        partition=-1,
        id=b"",
        acts_on=0,
        grace_ms=-1,
        headers=[],
        stripped=[(at, name, value) for at, (name, value) in enumerate(origin)],
    )


def test_a_common_request_means_the_same_with_and_without_optional_headers() -> None:
    common, full = parse(AT_ONCE), parse([*AT_ONCE, ("postdate-action", b"schedule")])
    assert full.stripped != common.stripped
    assert msgspec.structs.replace(full, stripped=common.stripped) == common
