"""Goal: requests are refused with the right reason, for every reason that depends on the record alone. The set of
reasons is closed.

Method: a table of headers and their expected reason. Reasons that need Kafka or time are listed separately, so that
each new reason must be put in one of the two places.
"""

from __future__ import annotations

import pytest

from postdate.wire.errors import FormatError, RequestRefused, WireError
from postdate.wire.headers import DROPPED_3, FORMAT_2, REQUEST_2, SCHEDULE, Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules

CLOSED_SET = """missing-target bad-target forbidden-target unknown-target missing-time conflicting-time bad-time
beyond-horizon bad-level bad-window bad-if-pending bad-if-ended bad-latest bad-selection bad-key bad-partition
bad-id missing-id bad-action bad-headers
duplicate-header unknown-header too-large record-refused unauthorized expired limit-exceeded
target-unavailable bad-retry attempts-exhausted bad-spread bad-schedule"""

# The sidecar gives these reasons: they need the live topic, its limits, or the time of dispatch. Parsing accepts any
# bytes as a key.
SEEN_LATER = {
    *(Reason.UNKNOWN_TARGET, Reason.BAD_KEY, Reason.TOO_LARGE, Reason.RECORD_REFUSED, Reason.UNAUTHORIZED),
    *(Reason.EXPIRED, Reason.LIMIT_EXCEEDED, Reason.TARGET_UNAVAILABLE),
    *(Reason.BAD_RETRY, Reason.ATTEMPTS_EXHAUSTED),  # format 2: test_returns.py
}

RULES = RequestRules(
    topic="R", forbidden=frozenset({"S", "S.dispatch-log"}), allow=("*",), horizon_ms=1_000_000, format_version=3
)
NOW_MS = 1_795_258_284_000

TOPIC = ("postdate-topic", b"orders")
DELAY = ("postdate-delay", b"0")
CANCEL = ("postdate-action", b"cancel")
RESCHEDULE = ("postdate-action", b"reschedule")
ID = ("postdate-id", b"x")
ORIGIN = ("postdate-origin", b"R/3/5")
SPREAD = "postdate-spread"
NO_SPREADS = (None, b"", b"odd", b"Even", b"even ", b"drawn")


def record(*headers: tuple[str, bytes | None]) -> Headers:
    return list(headers)


def with_topic(value: bytes | None) -> Headers:
    return [("postdate-topic", value), DELAY]


def with_time(name: str, value: bytes | None) -> Headers:
    return [TOPIC, (name, value)]


def with_more(name: str, value: bytes | None) -> Headers:
    return [TOPIC, DELAY, (name, value)]


def by_origin(value: bytes | None) -> Headers:
    return [CANCEL, ("postdate-origin", value)]


NO_TIMES: list[bytes | None] = [
    *(None, b"", b" ", b"-1", b"+1", b"1.5", b"1_000", b" 1", b"1 ", b"0x1", b"1e3", b"x", b"9" * 19, b"9" * 60),
    *(b"9" * 1_000_000, b"\xff", "٣".encode(), "²".encode(), "\uff11".encode(), b"1\x00", b"\x00"),
]
NO_DURATIONS: list[bytes | None] = [
    *(b"s", b"5S", b"5 s", b"1m1h", b"1s1s", b"1.5h30m", b"1.s", b".5s", b"1..5s", b"1y", b"1M", b"P", b"PT", b"P1DT"),
    *(b"P1Y", b"P1M", b"PT1H1H", b"PT-5M", b"-PT5M", b"P1W1D", b"pt5m", b"PT5", b"P5S", b"5u", b"9999999999999999d"),
]
NO_INSTANTS: list[bytes | None] = [
    *(b"2026-11-21T10:51:24", b"2026-11-21 10:51:24Z", b"2026-11-21", b"2026-13-01T00:00:00Z", b"2026-02-29T00:00:00Z"),
    *(b"2026-11-21T24:00:00Z", b"2026-11-21T10:60:00Z", b"2026-11-21T10:51:61Z", b"2026-11-21T10:51:60Z"),
    *(b"2026-11-21T10:51:24+24:00", b"2026-11-21T10:51:24+01:60", b"2026-11-21T10:51:24.Z", b"1969-12-31T23:59:59Z"),
    *(b"0000-01-01T00:00:00Z", b"2026-11-21T10:51:24+0100", b"2026-11-21T10:51:24," + b"0" * 99 + b"Z"),
]

REFUSED: list[tuple[Reason, Headers | None]] = [
    (Reason.BAD_HEADERS, None),
    (Reason.MISSING_TARGET, []),
    (Reason.MISSING_TARGET, [DELAY]),
    (Reason.MISSING_TARGET, [("topic", b"orders"), DELAY]),
    *((Reason.BAD_TARGET, with_topic(value)) for value in (None, b"", b".", b"..", b"a b", b"a/b", b"t" * 250)),
    *((Reason.BAD_TARGET, with_topic(value)) for value in (b"\xff", "é".encode(), b"a\n", b"a\x00", b"t" * 1_000_000)),
    *((Reason.FORBIDDEN_TARGET, with_topic(value)) for value in (b"__consumer_offsets", b"__x", b"S")),
    *((Reason.FORBIDDEN_TARGET, with_topic(b"R" + tail)) for tail in (b"", b".dispatch-log", b".store")),
    *((Reason.FORBIDDEN_TARGET, with_topic(b"R" + tail)) for tail in (b".dead-letters", b".verdicts")),
    (Reason.MISSING_TIME, [TOPIC]),
    (Reason.MISSING_TIME, [TOPIC, ID]),
    (Reason.MISSING_TIME, [RESCHEDULE, ID]),
    (Reason.CONFLICTING_TIME, [TOPIC, DELAY, ("postdate-at", b"1")]),
    (Reason.CONFLICTING_TIME, [TOPIC, DELAY, ("postdate-level", b"1")]),
    (Reason.CONFLICTING_TIME, [TOPIC, ("postdate-at", b"1"), ("postdate-level", b"1")]),
    (Reason.CONFLICTING_TIME, [RESCHEDULE, ID, ("postdate-at", b"1"), ("postdate-level", b"1")]),
    *((Reason.BAD_TIME, with_time("postdate-delay", value)) for value in NO_TIMES + NO_DURATIONS),
    *((Reason.BAD_TIME, with_time("postdate-at", value)) for value in NO_TIMES + NO_INSTANTS),
    *((Reason.BAD_TIME, with_more("postdate-grace", value)) for value in NO_TIMES + NO_DURATIONS),
    (Reason.BAD_TIME, [RESCHEDULE, ID, ("postdate-delay", b"soon")]),
    (Reason.BAD_TIME, [RESCHEDULE, ID, DELAY, ("postdate-grace", b"soon")]),
    (Reason.BEYOND_HORIZON, with_time("postdate-delay", b"1000001")),
    (Reason.BEYOND_HORIZON, with_time("postdate-at", b"%d" % (NOW_MS + 1_000_001))),
    (Reason.BEYOND_HORIZON, with_time("postdate-at", b"%d" % (INTEGER_END - 1))),
    (Reason.BEYOND_HORIZON, with_time("postdate-level", b"18")),
    (Reason.BEYOND_HORIZON, [RESCHEDULE, ID, ("postdate-delay", b"1001s")]),
    *((Reason.BAD_LEVEL, with_time("postdate-level", value)) for value in [*NO_TIMES, b"1s"]),
    *((Reason.BAD_WINDOW, with_more("postdate-window", value)) for value in [*NO_TIMES, *NO_DURATIONS, b"0", b"0s"]),
    (Reason.BAD_WINDOW, with_more("postdate-window", b"%d" % 2**39)),
    *((Reason.BAD_SPREAD, [*with_more("postdate-window", b"1s"), (SPREAD, value)]) for value in NO_SPREADS),
    (Reason.BAD_SPREAD, with_more(SPREAD, b"even")),
    (Reason.BAD_SPREAD, [TOPIC, ("postdate-retry", b"base=1s, max=1s"), (SPREAD, b"even")]),
    (Reason.BAD_SCHEDULE, [TOPIC, ("postdate-every", b"1s")]),
    (Reason.BAD_SCHEDULE, [TOPIC, ID, ("postdate-every", b"1s"), ("postdate-cron", b"@daily")]),
    (Reason.BAD_SCHEDULE, [TOPIC, ID, ("postdate-cron", b"0 0 30 2 *")]),
    (Reason.BAD_SCHEDULE, [TOPIC, ID, ("postdate-cron", b"@daily"), ("postdate-zone", b"Mars/Olympus")]),
    (Reason.MISSING_TIME, [TOPIC, ID, ("postdate-zone", b"UTC")]),
    (Reason.CONFLICTING_TIME, [TOPIC, ID, DELAY, ("postdate-zone", b"UTC")]),
    (Reason.CONFLICTING_TIME, [TOPIC, ID, DELAY, ("postdate-every", b"1s")]),
    (Reason.CONFLICTING_TIME, [TOPIC, ID, ("postdate-retry", b"base=1s"), ("postdate-cron", b"@daily")]),
    (Reason.BAD_WINDOW, [TOPIC, ("postdate-retry", b"base=1s, max=1s"), ("postdate-window", b"1s")]),
    *(
        (Reason.BAD_LATEST, [*with_more("postdate-latest", value), ID])
        for value in [*NO_TIMES, *NO_DURATIONS, b"0", b"0s", b"%d" % 2**39]
    ),
    (Reason.BAD_LATEST, [*with_more("postdate-latest", b"1s"), ID, ("postdate-if-pending", b"keep")]),
    (Reason.BAD_LATEST, [TOPIC, ID, ("postdate-retry", b"base=1s, max=1s"), ("postdate-latest", b"1s")]),
    *(
        (Reason.BAD_IF_PENDING, [*with_more("postdate-if-pending", value), ID])
        for value in (None, b"", b"drop", b"Keep", b"keep ", b"\xff")
    ),
    (Reason.BAD_IF_PENDING, [TOPIC, ID, ("postdate-retry", b"base=1s, max=1s"), ("postdate-if-pending", b"keep")]),
    (Reason.MISSING_ID, with_more("postdate-latest", b"1s")),
    *(
        (Reason.BAD_IF_ENDED, [*with_more("postdate-if-ended", value), ID])
        for value in (None, b"", b"keep", b"Drop", b"drop ", b"\xff")
    ),
    (Reason.BAD_IF_ENDED, [TOPIC, ID, ("postdate-retry", b"base=1s, max=1s"), ("postdate-if-ended", b"drop")]),
    (Reason.BAD_SCHEDULE, [TOPIC, ID, ("postdate-every", b"1s"), ("postdate-if-ended", b"drop")]),
    (Reason.MISSING_ID, with_more("postdate-if-ended", b"drop")),
    (Reason.BAD_ACTION, [CANCEL, ID, ("postdate-if-ended", b"drop")]),
    (Reason.MISSING_ID, with_more("postdate-if-pending", b"keep")),
    (Reason.BAD_ACTION, [CANCEL, ID, ("postdate-if-pending", b"keep")]),
    (Reason.BEYOND_HORIZON, with_more("postdate-window", b"1000001")),
    (Reason.BAD_ACTION, [CANCEL, ID, ("postdate-window", b"1s")]),
    (Reason.BAD_ACTION, [RESCHEDULE, ID, DELAY, ("postdate-window", b"1s")]),
    (Reason.DUPLICATE_HEADER, [*with_more("postdate-window", b"1s"), ("postdate-window", b"1s")]),
    (Reason.UNKNOWN_HEADER, with_more("Postdate-Window", b"1s")),
    *((Reason.BAD_SELECTION, [CANCEL, ("postdate-select-topic", value)]) for value in (None, b"", b"a b", b"t" * 250)),
    *((Reason.BAD_SELECTION, [CANCEL, ("postdate-select-id", value)]) for value in (None, b"", b"x" * 257, b"\xff")),
    *((Reason.BAD_SELECTION, [CANCEL, ("postdate-select-key", value)]) for value in (None, b"k" * 4_097)),
    *((Reason.BAD_SELECTION, [CANCEL, ("postdate-select-from", value)]) for value in NO_TIMES + NO_INSTANTS),
    *((Reason.BAD_SELECTION, [CANCEL, ("postdate-select-until", value)]) for value in [*NO_TIMES, b"0"]),
    (Reason.BAD_SELECTION, [CANCEL, ("postdate-select-from", b"5"), ("postdate-select-until", b"5")]),
    *(
        (Reason.BAD_ACTION, record(CANCEL, ("postdate-select-id", b"i"), header))
        for header in (ID, ORIGIN, TOPIC, DELAY)
    ),
    (Reason.BAD_ACTION, [RESCHEDULE, ID, DELAY, ("postdate-select-id", b"i")]),
    (Reason.BAD_ACTION, [RESCHEDULE, DELAY, ("postdate-select-id", b"i"), ("postdate-grace", b"1s")]),
    (Reason.BAD_ACTION, [CANCEL, ("postdate-select-id", b"i"), ("postdate-by", b"1s")]),
    (Reason.BAD_ACTION, [RESCHEDULE, ID, ("postdate-by", b"1s")]),
    (Reason.BAD_ACTION, with_more("postdate-by", b"1s")),
    (Reason.MISSING_TIME, [RESCHEDULE, ("postdate-select-id", b"i")]),
    (Reason.CONFLICTING_TIME, [RESCHEDULE, DELAY, ("postdate-select-id", b"i"), ("postdate-by", b"1s")]),
    (Reason.BEYOND_HORIZON, [RESCHEDULE, ("postdate-select-id", b"i"), ("postdate-by", b"1000001")]),
    (Reason.BEYOND_HORIZON, [RESCHEDULE, ("postdate-select-id", b"i"), ("postdate-by", b"-1000001")]),
    *(
        (Reason.BAD_TIME, [RESCHEDULE, ("postdate-select-id", b"i"), ("postdate-by", value)])
        for value in (None, b"", b"-", b"--1s", b"0", b"-0", b"soon", b"+1s", b"1s-")
    ),
    (Reason.BAD_ACTION, with_more("postdate-select-id", b"i")),
    (Reason.DUPLICATE_HEADER, [CANCEL, ("postdate-select-id", b"i"), ("postdate-select-id", b"i")]),
    *((Reason.BAD_PARTITION, with_more("postdate-partition", value)) for value in [*NO_TIMES, b"2147483648"]),
    *((Reason.BAD_ID, with_more("postdate-id", value)) for value in (None, b"", b"x" * 257, b"\xff")),
    *((Reason.BAD_ID, [CANCEL, ("postdate-id", value)]) for value in (None, b"", b"x" * 257, b"\xc3")),
    *((Reason.BAD_ID, by_origin(value)) for value in (None, b"", b"5", b"R/3", b"R/3/5/7", b"R/3/-5", b"R/03/5")),
    *((Reason.BAD_ID, by_origin(value)) for value in (b"R/3/05", b"\xff/3/5", b"R/2147483648/5", b"R/4/5", b"S/3/5")),
    *((Reason.BAD_ID, by_origin(value)) for value in (b"R/3/9223372036854775808", b"R/3/" + b"9" * 1_000_000)),
    (Reason.MISSING_ID, [CANCEL]),
    (Reason.MISSING_ID, [RESCHEDULE, DELAY]),
    *((Reason.BAD_ACTION, with_more("postdate-action", value)) for value in (None, b"", b"Cancel", b"delete", b"\xff")),
    *((Reason.BAD_ACTION, record(CANCEL, ID, header)) for header in (TOPIC, DELAY, ORIGIN, ("postdate-level", b"1"))),
    *(
        (Reason.BAD_ACTION, record(CANCEL, ID, (name, b"1")))
        for name in ("postdate-grace", "postdate-key", "postdate-at")
    ),
    *((Reason.BAD_ACTION, record(CANCEL, ID, (name, b"1"))) for name in ("postdate-partition", "postdate-due")),
    *((Reason.BAD_ACTION, record(CANCEL, ORIGIN, (name, b"1"))) for name in ("postdate-moved", "postdate-dead-reason")),
    *((Reason.BAD_ACTION, record(RESCHEDULE, ID, DELAY, header)) for header in (TOPIC, ORIGIN, ("postdate-key", b"k"))),
    *(
        (Reason.BAD_ACTION, record(RESCHEDULE, ID, DELAY, (name, b"1")))
        for name in ("postdate-partition", "postdate-due")
    ),
    *((Reason.DUPLICATE_HEADER, record(TOPIC, DELAY, header)) for header in (TOPIC, DELAY)),
    (Reason.DUPLICATE_HEADER, [*with_more("postdate-key", None), ("postdate-key", None)]),
    (Reason.DUPLICATE_HEADER, [CANCEL, CANCEL, ID]),
    (Reason.DUPLICATE_HEADER, [CANCEL, ID, ID]),
    (Reason.DUPLICATE_HEADER, [CANCEL, ORIGIN, ORIGIN]),
    *((Reason.UNKNOWN_HEADER, with_more(name, b"5s")) for name in ("postdate-", "postdate-delai", "postdate-crom")),
    *((Reason.UNKNOWN_HEADER, with_more(name, b"5s")) for name in ("Postdate-Delay", "POSTDATE-DELAY", "postdate-Key")),
    *((Reason.UNKNOWN_HEADER, with_more(name, b"5s")) for name in ("Postdate-Origin", "postdate-Dead-reason")),
    (Reason.UNKNOWN_HEADER, [CANCEL, ID, ("postdate-x" * 100_000, None)]),
]


@pytest.mark.parametrize(("reason", "headers"), REFUSED, ids=lambda value: str(value)[:90])
def test_the_request_is_refused_for_this_reason(reason: Reason, headers: Headers | None) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RULES, 3, NOW_MS, b"k", headers)
    assert refused.value.reason is reason, refused.value.detail
    assert 0 < len(refused.value.detail) < 1_000
    assert refused.value.detail.isprintable()


def test_every_reason_is_tested_here_or_needs_more_than_the_record() -> None:
    assert {reason for reason, _ in REFUSED} | SEEN_LATER == set(Reason)
    assert {reason for reason, _ in REFUSED} & SEEN_LATER == set()


def test_the_set_of_reasons_is_closed() -> None:
    assert {str(reason) for reason in Reason} == set(CLOSED_SET.split())


@pytest.mark.parametrize("name", ["postdate-delay", "postdate-at", "postdate-level"])
def test_without_a_timestamp_no_time_can_be_judged(name: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RULES, 3, -1, None, [TOPIC, (name, b"1")])
    assert refused.value.reason is Reason.BAD_TIME


def test_a_cancel_needs_no_timestamp() -> None:
    assert parse_request(RULES, 3, -1, None, [CANCEL, ID]).id == b"x"


def test_a_due_time_never_leaves_64_bits_whatever_the_timestamp() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RULES, 3, INTEGER_END - 5, None, [TOPIC, ("postdate-delay", b"5")])
    assert refused.value.reason is Reason.BEYOND_HORIZON
    assert parse_request(RULES, 3, INTEGER_END - 5, None, [TOPIC, ("postdate-delay", b"4")]).due_ms == INTEGER_END - 1


def test_a_window_lasts_up_to_the_horizon() -> None:
    headers = record(TOPIC, ("postdate-delay", b"999s"), ("postdate-window", b"1s"))
    request = parse_request(RULES, 3, NOW_MS, None, headers)
    assert (request.due_ms, request.window_ms) == (NOW_MS + 999_000, 1_000)
    assert request.headers == []
    assert parse_request(RULES, 3, NOW_MS, None, headers[:2]).window_ms == 0
    with pytest.raises(RequestRefused, match="with a window of 1s; the horizon is 16m40s"):
        parse_request(RULES, 3, NOW_MS + 1, None, [TOPIC, ("postdate-delay", b"999001"), headers[2]])


def test_an_origin_of_another_process_is_refused_with_its_topic() -> None:
    with pytest.raises(RequestRefused, match=r"produce this record there, not to R, partition 3") as refused:
        parse_request(RULES, 3, NOW_MS, None, by_origin(b"S/12/5"))
    assert "S, partition 12" in refused.value.detail


def test_the_allow_list_is_named_when_it_refuses() -> None:
    rules = RequestRules(topic="R", allow=("orders.*",))
    with pytest.raises(RequestRefused, match=r"forbidden-target: the rules of R do not allow billing"):
        parse_request(rules, 0, 0, None, with_topic(b"billing"))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "postdate-delay null has no value"),
        (b"\xff", r"postdate-delay '\ufffd' is too long or not ASCII"),
        (b"soon", "postdate-delay 'soon' is not a duration such as 90s, 2h30m or PT5M"),
        (b"x" * 500, "postdate-delay '" + "x" * 80 + "'... is too long or not ASCII"),
    ],
)
def test_a_detail_is_a_sentence_that_quotes_what_was_sent(value: bytes | None, sentence: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RULES, 3, NOW_MS, None, with_time("postdate-delay", value))
    assert refused.value.detail == sentence


def test_a_delay_beyond_the_horizon_is_named_as_a_duration() -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RequestRules(topic="R"), 0, NOW_MS, None, with_time("postdate-delay", b"500d"))
    assert refused.value.detail == "due 500d after the request; the horizon is 400d"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("postdate-dealy", "; did you mean postdate-delay?"),
        ("Postdate-Topic", "; did you mean postdate-topic?"),
        ("postdate-corn", "; did you mean postdate-cron?"),
        *((f"{known}s", f"; did you mean {known}?") for known in sorted(REQUEST_2 | SCHEDULE)),
        ("postdate--select--topic", "; did you mean postdate-select-topic?"),
        ("postdate-colour", ""),
        ("postdate-" + "x" * 500, ""),
    ],
)
def test_the_nearest_header_to_an_unknown_one_is_named(name: str, hint: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_request(RULES, 3, NOW_MS, None, with_time(name, b"5s"))
    assert refused.value.reason is Reason.UNKNOWN_HEADER
    assert refused.value.detail.endswith(f" is not known to Postdate{hint}")


@pytest.mark.parametrize("by_ms", [1_000_000, -1_000_000])
def test_messages_may_be_moved_by_the_whole_horizon(by_ms: int) -> None:
    headers: Headers = [RESCHEDULE, ("postdate-select-id", b"i"), ("postdate-by", b"%d" % by_ms)]
    assert parse_request(RULES, 3, NOW_MS, None, headers).by_ms == by_ms


@pytest.mark.parametrize("action", [b"pause", b"resume", b"trigger", b"backfill"])
def test_a_control_of_a_schedule_counts_from_the_timestamp_of_its_record(action: bytes) -> None:
    with pytest.raises(RequestRefused, match="no timestamp") as refused:
        parse_request(RULES, 3, -1, None, [("postdate-action", action), ID])
    assert refused.value.reason is Reason.BAD_TIME


def test_a_refusal_is_repeated_the_same() -> None:
    details = set()
    for _ in range(3):
        with pytest.raises(RequestRefused) as refused:
            parse_request(RULES, 3, NOW_MS, None, with_topic(b"__x"))
        details.add((refused.value.reason, refused.value.detail))
    assert len(details) == 1


def test_all_errors_of_the_package_have_one_base() -> None:
    assert issubclass(RequestRefused, WireError)
    assert issubclass(FormatError, WireError)


@pytest.mark.parametrize("name", sorted(FORMAT_2))
def test_a_header_of_format_2_names_the_setting_that_permits_it(name: str) -> None:
    needed = f"header '{name}' needs format_version = 2, and R is served with 1: set it for all sidecars and commands"
    with pytest.raises(RequestRefused, match=needed) as why:
        parse_request(RequestRules(topic="R"), 0, 5, None, [("postdate-topic", b"t"), (name, b"1")])
    assert why.value.reason == Reason.UNKNOWN_HEADER


@pytest.mark.parametrize("name", sorted(SCHEDULE | DROPPED_3))
def test_a_header_of_format_3_names_the_setting_that_permits_it(name: str) -> None:
    needed = f"header '{name}' needs format_version = 3, and R is served with 2"
    with pytest.raises(RequestRefused, match=needed):
        parse_request(RequestRules(topic="R", format_version=2), 0, 5, None, [("postdate-topic", b"t"), (name, b"1")])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_setting_permits_an_unknown_header(version: int) -> None:
    rules = RequestRules(topic="R", format_version=version)
    with pytest.raises(RequestRefused, match="header 'postdate-colour' is not known to Postdate"):
        parse_request(rules, 0, 5, None, [("postdate-topic", b"t"), ("postdate-colour", b"red")])
