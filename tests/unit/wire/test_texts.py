"""Goal: durations, instants, origins, topic names and numbers have their documented meaning as texts, to the
millisecond.

Method: literal pairs of text and value. The refused texts are in `test_parser_refusals`, since a producer sees them as
reasons.
"""

from __future__ import annotations

import pytest

from postdate.wire.origins import check_origin, format_origin, parse_origin
from postdate.wire.topics import DEFAULT_REQUESTS, OwnTopics, is_forbidden, is_topic_name
from postdate.wire.values.durations import format_duration, parse_duration_ms
from postdate.wire.values.instants import format_instant, parse_instant_ms, parse_time_ms
from postdate.wire.values.texts import counted, parse_natural

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("1500ms", 1_500),
        ("90s", 90_000),
        ("5m", 300_000),
        ("2h30m", 9_000_000),
        ("1d12h", DAY_MS * 3 // 2),
        ("1d2h3m4s5ms", DAY_MS + 7_384_005),
        ("1.5s", 1_500),
        ("0.5h", 1_800_000),
        ("1m1.0001s", 61_001),
        ("0.1ms", 1),
        ("0.0000000001ms", 1),
        ("1.000s", 1_000),
        ("PT5M", 300_000),
        ("PT90S", 90_000),
        ("PT0.5S", 500),
        ("PT1.0009S", 1_001),
        ("P1DT12H", DAY_MS * 3 // 2),
        ("P1.5D", DAY_MS * 3 // 2),
        ("P400D", 400 * DAY_MS),
        ("P2W", 14 * DAY_MS),
        ("PT0S", 0),
    ],
)
def test_each_form_of_duration_has_its_length(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("now", 10_000_000),
        ("10s", 10_010_000),
        ("-2h", 2_800_000),
        ("-PT1M", 9_940_000),
        ("1500", 1_500),
        ("1970-01-01T00:00:01Z", 1_000),
    ],
)
def test_each_form_of_time_in_options_and_queries_has_its_instant(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, 10_000_000) == time_ms


@pytest.mark.parametrize("text", ["", "-", "--2h", "-1500", "-3h", "yesterday", "now+1h", "2026-01-01", "9" * 18 + "d"])
def test_malformed_times_of_options_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|1970|long|digits"):
        parse_time_ms(text, 10_000_000)


def test_a_noun_is_in_the_plural_unless_its_number_is_1() -> None:
    assert [counted(count, "shard") for count in (0, 1, 2, 1_000)] == [
        "0 shards",
        "1 shard",
        "2 shards",
        "1,000 shards",
    ]


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0s"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_050, "1.05s"),
        (90_500, "1m30.5s"),
        (43_200_000_000, "500d"),
        (DAY_MS * 3 // 2, "1d12h"),
        (DAY_MS + 1, "1d0.001s"),
    ],
)
def test_durations_for_a_person_are_short_and_exact(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00.000Z", "2026-11-21T10:51:24.500Z", "9999-12-31T23:59:59.999Z"])
def test_instants_for_a_person_have_milliseconds_in_utc(text: str) -> None:
    assert format_instant(parse_instant_ms(text)) == text


@pytest.mark.parametrize(
    ("text", "instant_ms"),
    [
        ("0", 0),
        ("1795258284000", 1_795_258_284_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-21T10:51:24Z", 1_795_258_284_000),
        ("2026-11-21t10:51:24z", 1_795_258_284_000),
        ("2026-11-21T10:51:24.5Z", 1_795_258_284_500),
        ("2026-11-21T10:51:24.000000001Z", 1_795_258_284_001),
        ("2026-11-21T10:51:24.999999999Z", 1_795_258_285_000),
        ("2026-11-21T11:51:24+01:00", 1_795_258_284_000),
        ("2026-11-21T05:21:24-05:30", 1_795_258_284_000),
        ("2026-11-21T10:51:24-00:00", 1_795_258_284_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T00:59:60.25+01:00", 1_483_228_800_250),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_each_form_of_instant_has_its_epoch_time(text: str, instant_ms: int) -> None:
    assert parse_instant_ms(text) == instant_ms


@pytest.mark.parametrize("text", ["9" * 1_000_000, "1" * 65 + "s", "PT" + "1" * 1_000_000 + "S", "²", "٣s"])
def test_long_and_foreign_texts_are_refused_unread(text: str) -> None:
    with pytest.raises(ValueError, match=r"long|digits|not a duration"):
        parse_duration_ms(text)
    with pytest.raises(ValueError, match=r"long|digits|neither"):
        parse_instant_ms(text)


def test_numbers_are_bounded() -> None:
    assert (parse_natural("41", 42), parse_natural(b"0000000000000000041", 42)) == (41, 41)
    for text in ("42", "", "-1", "00000000000000000001", "4 ", "٣"):
        with pytest.raises(ValueError, match=r"^(is not|has too)"):
            parse_natural(text, 42)


def test_an_origin_reads_back() -> None:
    assert format_origin("R", 3, 1017) == b"R/3/1017"
    assert parse_origin(b"R/3/1017") == ("R", 3, 1017)
    longest = format_origin("t" * 249, 2**31 - 1, 2**63 - 1)
    assert parse_origin(longest) == ("t" * 249, 2**31 - 1, 2**63 - 1)


@pytest.mark.parametrize(
    "text",
    [
        *(b"R/3/1017\n", b"./1/1", b"a b/1/1", b"\xff/1/1", b"R//1", b"/1/1", b"R/ 1/1"),
        *(b"R/2147483648/1", b"R/1/9223372036854775808"),
    ],
)
def test_malformed_origins_are_refused(text: bytes) -> None:
    for read in (parse_origin, check_origin):
        with pytest.raises(ValueError, match="is not an origin"):
            read(text)


def test_valid_topic_names_are_those_of_kafka() -> None:
    names = ["a", "A.b_c-9", "...", "t" * 249, "", ".", "..", "t" * 250, "a b", "a/b", "é", "a\n"]
    assert [is_topic_name(name) for name in names] == [True] * 4 + [False] * 8


def test_the_topics_of_a_request_topic_derive_from_its_name() -> None:
    topics = OwnTopics.of(DEFAULT_REQUESTS)
    assert topics == OwnTopics(
        requests="postdate.requests",
        dispatch_log="postdate.requests.dispatch-log",
        store="postdate.requests.store",
        dead_letters="postdate.requests.dead-letters",
        verdicts="postdate.requests.verdicts",
    )
    assert len(topics.names()) == 5
    assert all(is_forbidden(name, topics.names()) for name in topics.names())
    assert is_forbidden("__anything", frozenset())
    assert not is_forbidden("_orders", topics.names())
    with pytest.raises(ValueError, match="not a name that Kafka accepts"):
        OwnTopics.of("t" * 240)
