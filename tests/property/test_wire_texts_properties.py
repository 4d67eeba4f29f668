"""Goal: durations, instants, origins, hashes and sizes agree with slow references; arbitrary texts raise only
ValueError.

Method: the references follow the definitions: exact fractions, `datetime`, Java's code line by line, and an encoder of
Kafka's record format.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from postdate.wire.delivered import record_size_bytes
from postdate.wire.headers import Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.origins import check_origin, format_origin, parse_origin
from postdate.wire.topics import is_topic_name
from postdate.wire.values.durations import format_duration, parse_duration_ms
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.murmur2 import murmur2, partition_for

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

counts = st.one_of(st.none(), st.integers(0, 99_999))
fractions = st.one_of(st.just(""), st.from_regex(r"\.[0-9]{1,9}", fullmatch=True))
timelike = st.text(alphabet="0123456789.-+:TZPWDHMSdhmstz ٣²", max_size=30)


@given(st.tuples(counts, counts, counts, counts, counts), fractions, st.booleans())
def test_a_duration_is_the_sum_of_its_components_rounded_up(
    parts: tuple[int | None, ...], fraction: str, iso: bool
) -> None:
    texts = [
        (f"{n}", unit) for n, unit in zip(parts, UNITS_MS, strict=True) if n is not None and not (iso and unit == "ms")
    ]
    assume(texts)
    texts[-1] = (texts[-1][0] + fraction, texts[-1][1])
    exact = sum((Fraction(number) * UNITS_MS[unit] for number, unit in texts), Fraction(0))
    text = "".join(number + unit for number, unit in texts)
    if iso:
        days = "".join(number + "D" for number, unit in texts if unit == "d")
        clock = "".join(number + unit.upper() for number, unit in texts if unit != "d")
        text = f"P{days}T{clock}" if clock else f"P{days}"
    assert parse_duration_ms(text) == ceil(exact)


@given(st.integers(0, INTEGER_END - 1))
def test_plain_milliseconds_read_back(number: int) -> None:
    assert parse_duration_ms(str(number)) == parse_duration_ms(f"{number}ms") == parse_instant_ms(str(number)) == number


@given(st.one_of(st.integers(0, INTEGER_END - 1), st.integers(0, 10**6)))
def test_a_duration_for_a_person_is_exact(number: int) -> None:
    text = format_duration(number)
    assert parse_duration_ms(text) == number
    assert not text.isdigit(), "it has a unit"


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_an_instant_agrees_with_datetime(moment: datetime, offset_minutes: int) -> None:
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    assert parse_instant_ms(moment.isoformat()) == -(-microseconds // 1000)


@given(st.one_of(timelike, st.text(max_size=80)))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    for parse in (parse_duration_ms, parse_instant_ms):
        try:
            time_ms = parse(text)
        except ValueError:
            continue
        assert 0 <= time_ms < INTEGER_END
        assert text.isascii()


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_an_origin_reads_back(topic: str, partition: int, offset: int) -> None:
    assume(is_topic_name(topic))
    assert parse_origin(format_origin(topic, partition, offset)) == (topic, partition, offset)


@given(st.one_of(st.binary(max_size=30), st.from_regex(rb"[a-z.]{1,4}/[0-9]{1,12}/[0-9]{1,21}", fullmatch=True)))
def test_an_origin_has_exactly_one_text(text: bytes) -> None:
    try:
        topic, partition, offset = parse_origin(text)
    except ValueError:
        with pytest.raises(ValueError, match="is not an origin"):
            check_origin(text)
        return
    check_origin(text)
    assert format_origin(topic, partition, offset) == text


def java_murmur2(data: bytes) -> int:
    """Returns the hash by `org.apache.kafka.common.utils.Utils.murmur2`, line by line, in 32-bit arithmetic."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = 0x9747B28C ^ length
    for i in range(length // 4):
        k = data[4 * i] | data[4 * i + 1] << 8 | data[4 * i + 2] << 16 | data[4 * i + 3] << 24
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = h * m & mask
        h ^= k
    rest = length & ~3
    if length % 4 >= 3:
        h ^= data[rest + 2] << 16
    if length % 4 >= 2:
        h ^= data[rest + 1] << 8
    if length % 4 >= 1:
        h ^= data[rest]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h - 2**32 if h & 0x80000000 else h


@given(st.binary(max_size=70), st.integers(1, 1_000))
def test_the_hash_is_that_of_java(key: bytes, partitions: int) -> None:
    assert murmur2(key) == java_murmur2(key)
    assert partition_for(key, partitions) == (java_murmur2(key) & 0x7FFFFFFF) % partitions


def varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def prefixed(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record_batch_size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns the size of a batch of one record, as `DefaultRecord` and `DefaultRecordBatch` of apache/kafka write
    it."""
    body = b"\x00" + varint(0) + varint(0) + prefixed(key) + prefixed(value) + varint(len(headers))
    for name, content in headers:
        body += prefixed(name.encode()) + prefixed(content)
    return 61 + len(varint(len(body))) + len(body)


contents = st.one_of(st.none(), st.binary(max_size=100), st.just(b"x" * 70_000))


@given(contents, contents, st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=9), contents), max_size=5))
def test_a_size_is_at_least_the_exact_size_and_close_to_it(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    size_bytes = record_size_bytes(key, value, headers)
    truth = record_batch_size_bytes(key, value, headers)
    assert truth <= size_bytes <= truth + 29 + 8 * len(headers)
