"""Times as column expressions. Goal: the audit computes the due time independently, and correctly. Method: a
handwritten table of texts with their milliseconds; then the same texts and generated ones against the sidecar's parser,
which is the oracle only here. One Spark job for each table.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.murmur2 import kafkas_murmur2, spelled_murmur2
from postdate.spark.columns.times import due_ms, duration_in, duration_ms, duration_text, durations_ms, instant_ms
from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.wire.requests.rules import DEFAULT_LEVELS_MS
from postdate.wire.values.durations import format_duration, parse_duration_ms
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.murmur2 import murmur2

DURATIONS = {
    "0": 0,
    "1500": 1_500,
    "1500ms": 1_500,
    "90s": 90_000,
    "5m": 300_000,
    "2h30m": 9_000_000,
    "1d12h": 129_600_000,
    "1.5s": 1_500,
    "0.5ms": 1,
    "1.0001s": 1_001,
    "0.0000000000000000000000000001s": 1,
    "PT5M": 300_000,
    "P1DT12H": 129_600_000,
    "P2W": 1_209_600_000,
    "PT0.0001S": 1,
    "PT1H0.5S": 3_600_500,
    "9223372036854775807": 2**63 - 1,
    "9223372036854775808": None,
    "106751991167d": 106_751_991_167 * 86_400_000,
    "106751991168d": None,
    "99999999999999999999999s": None,
    "1.5h30m": None,
    "30m2h": None,
    "1h1h": None,
    "P1M": None,
    "P1Y": None,
    "PT": None,
    "P": None,
    "": None,
    "-5": None,
    "5 m": None,
    "5S": None,
    ".5s": None,
    "1s\n": None,
    "٣": None,
    "0" * 60 + "5s": 5_000,
    "0" * 70 + "5s": None,
}

INSTANTS = {
    "1795258284000": 1_795_258_284_000,
    "0": 0,
    "1970-01-01T00:00:00Z": 0,
    "2026-11-21T10:51:24Z": 1_795_258_284_000,
    "2026-11-21t10:51:24z": 1_795_258_284_000,
    "2026-11-21T11:51:24.5+01:00": 1_795_258_284_500,
    "2026-11-21T05:21:24-05:30": 1_795_258_284_000,
    "2026-11-21T10:51:24.0001Z": 1_795_258_284_001,
    "2026-11-21T10:51:24.9990000Z": 1_795_258_284_999,
    "2026-12-31T23:59:60Z": 1_798_761_600_000,
    "2027-01-01T00:59:60+01:00": 1_798_761_600_000,
    "2026-12-31T23:59:60+01:00": None,
    "2026-02-30T00:00:00Z": None,
    "2026-11-21T24:00:00Z": None,
    "2026-11-21T10:51:24": None,
    "2026-11-21 10:51:24Z": None,
    "2026-11-21T10:51:24+24:00": None,
    "1969-12-31T23:59:59Z": None,
    "9999-12-31T23:59:59.999999999+00:00": 253_402_300_800_000,
    "0000-01-01T00:00:00Z": None,
    "tomorrow": None,
}


def _by_spark(spark: SparkSession, texts: list[str], expression: Callable[[Column], Column]) -> dict[str, int | None]:
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    return {row["text"]: row["ms"] for row in rows.select("text", expression(F.col("text")).alias("ms")).collect()}


def _oracle(parse: Callable[[str], int], text: str) -> int | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _durations(choice: random.Random, count: int) -> list[str]:
    """Returns texts of components in order, about half of them with one wrong character."""
    texts = []
    for _ in range(count):
        iso, units = choice.choice([(False, ["d", "h", "m", "s", "ms"]), (True, ["D", "T", "H", "M", "S"])])
        kept = [unit for unit in units if choice.random() < 0.5 or unit == "T"]
        parts = [unit if unit == "T" else f"{choice.randint(0, 10 ** choice.randint(1, 9))}{unit}" for unit in kept]
        text = ("P" if iso else "") + "".join(parts)
        if choice.random() < 0.3 and text[-1:].isalpha():
            text = text.rstrip("dhmsDHMS") + f".{choice.randint(0, 10**6)}" + choice.choice(units)
        texts.append(_damaged(choice, text) if choice.random() < 0.5 else text)
    return texts


def _instants(choice: random.Random, count: int) -> list[str]:
    """Returns texts of instants in four centuries, about half of them with one wrong character."""
    texts = []
    for _ in range(count):
        day = f"{choice.randint(1900, 2300):04}-{choice.randint(1, 12):02}-{choice.randint(1, 31):02}"
        time = f"{choice.randint(0, 24):02}:{choice.choice((0, 59, 60)):02}:{choice.randint(0, 60):02}"
        fraction = choice.choice(["", f".{choice.randint(0, 10**9)}"])
        offset = choice.choice(
            ["Z", "z", f"{choice.choice('+-')}{choice.randint(0, 24):02}:{choice.randint(0, 60):02}"]
        )
        text = f"{day}{choice.choice('Tt')}{time}{fraction}{offset}"
        texts.append(_damaged(choice, text) if choice.random() < 0.5 else text)
    return texts


def _damaged(choice: random.Random, text: str) -> str:
    place = choice.randint(0, len(text))
    return text[:place] + choice.choice(["", "0", "1", ".", "-", "m", "s", "T", " "]) + text[place + 1 :]


def test_durations_of_the_table(spark: SparkSession) -> None:
    assert _by_spark(spark, [*DURATIONS], duration_ms) == DURATIONS


def test_durations_of_the_table_among_others(spark: SparkSession) -> None:
    """One expression for several texts: one has a unit, one is a number, and one is missing."""

    def third_of_four(text: Column) -> Column:
        texts = [F.lit("5m"), F.lit("7"), text, F.lit(None).cast("string")]
        found = durations_ms(texts)
        others = [duration_in(found, place, texts[place]) for place in (0, 1, 3)]
        are_right = (others[0] == 300_000) & (others[1] == 7) & others[2].isNull()
        return F.when(are_right, duration_in(found, 2, text)).otherwise(-1)

    assert _by_spark(spark, [*DURATIONS], third_of_four) == DURATIONS


def test_a_duration_is_written_as_the_sidecar_writes_it(spark: SparkSession) -> None:
    choice = random.Random(1)
    units_ms = [86_400_000, 3_600_000, 60_000, 1_000, 100, 1]
    lengths = [0, 1, 999, 1_000, 34_560_000_000, 2**62, *units_ms]
    lengths += [sum(choice.choice((0, 1, 7)) * unit_ms for unit_ms in units_ms) for _ in range(200)]
    rows = spark.createDataFrame([(length,) for length in (*lengths, None)], "length bigint")
    shown = rows.select(duration_text(F.col("length"))).collect()
    assert [text for (text,) in shown] == [*map(format_duration, lengths), None]


def test_instants_of_the_table(spark: SparkSession) -> None:
    assert _by_spark(spark, [*INSTANTS], instant_ms) == INSTANTS


@pytest.mark.parametrize(
    ("expression", "parse", "generated"),
    [(duration_ms, parse_duration_ms, _durations), (instant_ms, parse_instant_ms, _instants)],
    ids=["duration", "instant"],
)
def test_agrees_with_the_parser_of_the_sidecar(
    spark: SparkSession,
    expression: Callable[[Column], Column],
    parse: Callable[[str], int],
    generated: Callable[[random.Random, int], list[str]],
) -> None:
    texts = sorted({*DURATIONS, *INSTANTS, *generated(random.Random(7), 2_000)})
    said = _by_spark(spark, texts, expression)
    assert said == {text: _oracle(parse, text) for text in texts}
    meaningful = sum(ms is not None for ms in said.values())
    assert len(texts) // 8 < meaningful < len(texts) * 7 // 8, "one-sided texts prove little"


def test_due_time_by_each_of_the_three_headers(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [
            ("at", "5000", None, None, 1_000),
            ("at in the past", "0", None, None, 1_000),
            ("delay", None, "2s", None, 1_000),
            ("first level", None, None, "1", 1_000),
            ("last level", None, None, "18", 1_000),
            ("beyond the last level", None, None, "99", 1_000),
            ("at once", None, None, "0", 1_000),
            ("no level", None, None, "-1", 1_000),
            ("no timestamp", None, "2s", None, -1),
            ("nothing", None, None, None, 1_000),
            ("beyond all numbers", None, str(2**63 - 1), None, 1_000),
        ],
        "name string, at string, delay string, level string, request_ms bigint",
    )
    at, delay, level, request_ms = (F.col(name) for name in ("at", "delay", "level", "request_ms"))
    read = due_ms(at, delay, duration_ms(delay), level, request_ms, LEVELS_MS_DEFAULT)
    found = rows.select("name", read.alias("due_ms")).collect()
    assert {row["name"]: row["due_ms"] for row in found} == {
        "at": 5_000,
        "at in the past": 1,
        "delay": 3_000,
        "first level": 2_000,
        "last level": 7_201_000,
        "beyond the last level": 7_201_000,
        "at once": 1_000,
        "no level": None,
        "no timestamp": None,
        "nothing": None,
        "beyond all numbers": None,
    }


def test_the_level_table_is_the_sidecars() -> None:
    assert LEVELS_MS_DEFAULT == DEFAULT_LEVELS_MS


def test_murmur2_is_kafkas(spark: SparkSession) -> None:
    choice = random.Random(11)
    keys = [b"", b"a", b"ab", b"abc", b"abcd", "Grüße".encode(), *(choice.randbytes(n) for n in range(5, 70))]
    # The values are from Kafka's UtilsTest, so that the two implementations here cannot be wrong together.
    vectors = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    rows = spark.createDataFrame([(bytearray(key),) for key in [*keys, *vectors]] + [(None,)], "key binary")
    of_kafka = kafkas_murmur2(F.col("key"))
    assert of_kafka is not None, "the session can read Kafka"
    hashes = {"of_kafka": of_kafka, "spelled": spelled_murmur2(F.col("key"))}
    found = rows.select("key", *(hash_.alias(name) for name, hash_ in hashes.items())).collect()
    expected = {key: murmur2(key) & 0x7FFFFFFF for key in keys} | {k: v & 0x7FFFFFFF for k, v in vectors.items()}
    for name in hashes:
        assert {bytes(row["key"]): row[name] for row in found if row["key"] is not None} == expected, name
        assert [row[name] for row in found if row["key"] is None] == [None], name
