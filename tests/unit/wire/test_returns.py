"""Goal: a return is due after its backoff and carries the headers of a redelivery, and every malformed return is
refused.

Method: records by hand; the test computes the expected headers and times.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from postdate.wire.delivered import delivered_headers
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request, sent_headers
from postdate.wire.requests.request import Request
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import NO_POLICIES, schedule_return
from postdate.wire.requests.rules import RequestRules

RULES = RequestRules(topic="R", format_version=2)
NOW_MS = 1_795_258_284_000
TOPIC = ("postdate-topic", b"orders")
RETRY = ("postdate-retry", b"base=1s")


def returned(
    headers: Headers, offset: int = 17, policies: NamedPolicies = NO_POLICIES, rules: RequestRules = RULES
) -> Request:
    request = parse_request(rules, 3, NOW_MS, b"k", headers)
    assert (request.due_ms, request.retry is None) == (-1, False)
    return schedule_return(rules, request, 3, offset, NOW_MS, policies)


def refused(headers: Headers, rules: RequestRules = RULES) -> Reason:
    with pytest.raises(RequestRefused) as why:
        returned(headers, rules=rules)
    return why.value.reason


def test_the_first_return_of_a_message_is_its_own_root() -> None:
    headers: Headers = [("a", b"1"), TOPIC, RETRY]
    request = returned(headers)
    assert (request.due_ms, request.id, request.acts_on, request.retry) == (NOW_MS + 1_000, b"", -1, None)
    due = b"%d" % (NOW_MS + 1_000)
    added = [("postdate-attempt", b"1"), ("postdate-first-origin", b"R/3/17"), ("postdate-first-due", due)]
    assert request.headers == [("a", b"1"), *added]
    assert sent_headers(request.headers, request.stripped) == headers
    assert delivered_headers(request.headers, b"R/3/17", request.due_ms, b"") == [
        *(("a", b"1"), ("postdate-origin", b"R/3/17"), ("postdate-due", due)),
        *added,
    ]


def test_a_return_of_a_delivered_message_names_it_as_the_root() -> None:
    delivered = [("postdate-origin", b"R/3/9"), ("postdate-due", b"77"), ("postdate-id", b"order-9")]
    headers: Headers = [
        ("a", b"1"),
        *delivered,
        ("postdate-error", b"first"),
        TOPIC,
        RETRY,
        ("postdate-error", b"boom"),
    ]
    request = returned(headers)
    assert request.id == b"", "an id is delivered, but not registered"
    assert request.headers[1:] == [
        *(("postdate-id", b"order-9"), ("postdate-attempt", b"1"), ("postdate-first-origin", b"R/3/9")),
        *(("postdate-first-due", b"77"), ("postdate-error", b"boom")),
    ]
    assert sent_headers(request.headers, request.stripped) == headers


def test_a_later_return_counts_on_and_keeps_its_root() -> None:
    state = [("postdate-attempt", b"2"), ("postdate-first-origin", b"Q/0/1"), ("postdate-first-due", b"5")]
    headers: Headers = [("postdate-origin", b"R/3/9"), ("postdate-due", b"77"), *state, TOPIC, RETRY]
    request = returned(headers)
    assert request.due_ms == NOW_MS + 4_000
    assert request.headers == [("postdate-attempt", b"3"), *state[1:]]
    assert delivered_headers(request.headers, b"R/3/17", 1, b"")[:2] == [
        ("postdate-origin", b"R/3/17"),
        ("postdate-due", b"1"),
    ]


def test_a_delivered_return_can_be_returned_until_its_attempts_are_exhausted() -> None:
    policy = ("postdate-retry", b"base=1s,factor=3,max=5s,attempts=4,jitter=50%")
    delivered: Headers = [("a", b"1")]
    for attempt, backoff_ms in enumerate((1_000, 3_000, 5_000, 5_000), 1):
        request = returned([*delivered, TOPIC, policy], offset=100 + attempt)
        extra_ms = backoff_ms * 50 * (crc32(b"R/3/%d" % (100 + attempt)) >> 16) // 6_553_600
        assert request.due_ms == NOW_MS + backoff_ms + extra_ms
        delivered = delivered_headers(request.headers, b"R/3/%d" % (100 + attempt), request.due_ms, request.id)
        values = dict(delivered)
        assert (values["postdate-attempt"], values["postdate-first-origin"]) == (b"%d" % attempt, b"R/3/101")
        assert len(values) == len(delivered) == 6
    assert refused([*delivered, TOPIC, policy]) is Reason.ATTEMPTS_EXHAUSTED


def test_a_named_policy_is_that_of_the_offset_of_the_return() -> None:
    policies = NamedPolicies([(10, "slow", "base=1m"), (20, "slow", "base=2m")])
    headers: Headers = [TOPIC, ("postdate-retry", b" slow ")]
    assert returned(headers, 19, policies).due_ms == NOW_MS + 60_000
    assert returned(headers, 20, policies).due_ms == NOW_MS + 120_000
    with pytest.raises(RequestRefused, match="R has no retry policy 'slow'") as why:
        returned(headers, 9, policies)
    assert why.value.reason is Reason.BAD_RETRY


def test_a_return_may_have_a_key_a_partition_and_a_grace() -> None:
    own: Headers = [("postdate-key", b"x"), ("postdate-partition", b"2"), ("postdate-grace", b"5s")]
    request = returned([TOPIC, RETRY, *own])
    assert (request.key, request.partition, request.grace_ms) == (b"x", 2, 5_000)


MALFORMED: dict[str, tuple[bytes | None, ...]] = {
    "postdate-attempt": (None, b"", b"-1", b"1.5", b"one", b"9" * 20),
    "postdate-first-due": (None, b"", b"soon", b"9" * 20),
    "postdate-first-origin": (None, b"", b"R", b"R/3", b"R/3/x", b"R/3/07"),
    "postdate-origin": (b"?",),
    "postdate-due": (b"?",),
}
NO_POLICY_TEXTS: tuple[bytes | None, ...] = (None, b"", b"factor=2", b"\xff=1", b"a b", b"n" * 65)
BAD_RETRIES: list[Headers] = [
    *([("postdate-retry", value)] for value in (*NO_POLICY_TEXTS, b"base=1s,max=500d", b"base=1s,max=x")),
    *([RETRY, (name, value)] for name, values in MALFORMED.items() for value in values),
]


@pytest.mark.parametrize("headers", BAD_RETRIES, ids=lambda headers: str(headers)[:60])
def test_a_malformed_return_is_refused(headers: Headers) -> None:
    assert refused([TOPIC, *headers]) is Reason.BAD_RETRY


@pytest.mark.parametrize(
    "name", ["postdate-retry", "postdate-attempt", "postdate-first-origin", "postdate-first-due", "postdate-origin"]
)
def test_a_repeated_header_of_a_return_is_refused(name: str) -> None:
    value = {"postdate-retry": b"base=1s", "postdate-attempt": b"1", "postdate-first-due": b"1"}.get(name, b"R/3/1")
    headers: Headers = [TOPIC, *([RETRY] if name != "postdate-retry" else []), (name, value), (name, value)]
    assert refused(headers) is Reason.DUPLICATE_HEADER


@pytest.mark.parametrize("time", [("postdate-at", b"1"), ("postdate-delay", b"1"), ("postdate-level", b"1")])
def test_a_return_has_no_other_time(time: tuple[str, bytes]) -> None:
    assert refused([TOPIC, RETRY, time]) is Reason.CONFLICTING_TIME


def test_a_return_is_refused_for_further_reasons() -> None:
    assert refused([RETRY]) is Reason.MISSING_TARGET
    cancel = ("postdate-action", b"cancel")
    assert refused([cancel, ("postdate-id", b"x"), RETRY]) is Reason.BAD_ACTION
    assert refused([TOPIC, RETRY], RequestRules(topic="R")) is Reason.UNKNOWN_HEADER
    jitter = ("postdate-retry", b"base=10d,max=10d,jitter=100%")
    short = RequestRules(topic="R", format_version=2, horizon_ms=864_000_000)
    assert refused([TOPIC, jitter], short) is Reason.BEYOND_HORIZON
    with pytest.raises(RequestRefused, match="no timestamp"):
        parse_request(RULES, 3, -1, None, [TOPIC, RETRY])


def test_the_headers_of_a_redelivery_mean_nothing_without_a_return() -> None:
    left: Headers = [
        ("postdate-attempt", b"?"),
        ("postdate-error", None),
        ("postdate-error", b"x"),
        ("postdate-first-due", b""),
    ]
    sent: Headers = [*left, TOPIC, ("postdate-delay", b"5"), ("a", b"1"), ("postdate-first-origin", b"?")]
    request = parse_request(RULES, 3, NOW_MS, b"k", sent)
    assert (request.due_ms, request.headers, request.retry) == (NOW_MS + 5, [("a", b"1")], None)
    assert sent_headers(request.headers, request.stripped) == sent


def test_a_refused_request_keeps_its_headers_as_sent() -> None:
    sent: Headers = [("a", b"1"), RETRY, ("postdate-attempt", b"?")]
    assert sent_headers(sent, []) == sent
