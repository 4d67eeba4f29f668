"""A bulk schedule without Kafka. Goal: it refuses exactly the rows that the sidecar would refuse, for the same reasons;
the others become the requests that `postdate.client` would build. Method: a table with one row for each mistake, and
valid rows, goes through the columns, the rules and the records. The sidecar's parser reads each record, and the test
compares it with the client's request from the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postdate.client import RequestTopic
from postdate.spark.bulk.columns import field_columns, parsed_rows
from postdate.spark.bulk.options import FIELDS, BulkOptions, Source
from postdate.spark.bulk.records import record_rows_of, requested_ids
from postdate.spark.bulk.rules import TARGETS, BulkContext, checked_rows, repeated_ids
from postdate.spark.errors import JobUsageError
from postdate.spark.job.sending import is_between, slice_firsts
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.output.load import gathered_load, load_by, load_lines, widened
from support.audits.written_records import RandomHistory

NOW = 1_795_258_284_000
AT = str(NOW + 60_000)
DAY_MS = 86_400_000
GIVEN = BulkContext("requests", 2_000, 10 * DAY_MS, NOW, True, False)
KNOWN = [
    ("orders", True, 4, 2_000),
    ("small", True, 1, 400),
    ("secret", False, 1, 2_000),
    ("nowhere", True, None, None),
]
TEXTS = "target string, key string, value string, headers string, at string, delay string, id string, grace string"

MISTAKES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "no target": ("missing-target", (None, "k", "v", None, AT, None, "m1", None, None)),
    "no topic name": ("bad-target", ("or ders", "k", "v", None, AT, None, "m2", None, None)),
    "an empty name": ("bad-target", ("", "k", "v", None, AT, None, "m3", None, None)),
    "not allowed": ("forbidden-target", ("secret", "k", "v", None, AT, None, "m4", None, None)),
    "does not exist": ("unknown-target", ("nowhere", "k", "v", None, AT, None, "m5", None, None)),
    "no time": ("missing-time", ("orders", "k", "v", None, None, None, "m6", None, None)),
    "two times": ("conflicting-time", ("orders", "k", "v", None, AT, "5m", "m7", None, None)),
    "no instant": ("bad-time", ("orders", "k", "v", None, "tomorrow", None, "m8", None, None)),
    "no zone": ("bad-time", ("orders", "k", "v", None, "2026-11-21T10:51:24", None, "m9", None, None)),
    "no duration": ("bad-time", ("orders", "k", "v", None, None, "5 minutes", "m10", None, None)),
    "no grace": ("bad-time", ("orders", "k", "v", None, AT, None, "m11", "late", None)),
    "too far": ("beyond-horizon", ("orders", "k", "v", None, None, "11d", "m12", None, None)),
    "no id": ("missing-id", ("orders", "k", "v", None, AT, None, None, None, None)),
    "an empty id": ("bad-id", ("orders", "k", "v", None, AT, None, "", None, None)),
    "a long id": ("bad-id", ("orders", "k", "v", None, AT, None, "i" * 257, None, None)),
    "the id of another": ("bad-id", ("orders", "k", "v", None, AT, None, "twice", None, None)),
    "and the other": ("bad-id", ("orders", "k2", "v", None, AT, None, "twice", None, None)),
    "no JSON": ("bad-headers", ("orders", "k", "v", "{", AT, None, "m13", None, None)),
    "a header of Postdate's": (
        "unknown-header",
        ("orders", "k", "v", '{"Postdate-At":"5"}', AT, None, "m14", None, None),
    ),
    "no partition": ("bad-partition", ("orders", "k", "v", None, AT, None, "m15", None, "first")),
    "a partition too many": ("bad-partition", ("orders", "k", "v", None, AT, None, "m16", None, "4")),
    "too large": ("too-large", ("orders", "k", "v" * 1_900, None, AT, None, "m17", None, None)),
    "everything": ("bad-target bad-time missing-id", ("a b", "k", "v", None, "x", None, None, None, None)),
    "too large for its target": ("too-large", ("small", "k", "v" * 200, None, AT, None, "m18", None, None)),
}
"""The same fields as texts, as in CSV."""
CORRECT: dict[str, tuple[Any, ...]] = {
    "an instant": ("orders", "k", "v", None, AT, None, "s1", None, None),
    "a spelled one": ("orders", "k", "v", None, "2026-11-21T11:00:00.5+00:00", None, "s2", None, None),
    "a delay": ("orders", "k", "v", None, None, "2h30m", "s3", None, None),
    "of the past": ("orders", "k", "v", None, "5", None, "s4", None, None),
    "no key, no value": ("orders", None, None, None, AT, None, "s5", None, None),
    "all of it": ("orders", "k", "v", '{"a":"1","traceparent":"x"}', AT, None, "sä6", "5m", "3"),
    "as large as may be": ("small", "k", "v" * 16, None, AT, None, "s7", None, None),
    "left over from a delivery": (
        "orders",
        "k",
        "v",
        '{"postdate-origin":"r/0/1","b":"2"}',
        AT,
        None,
        "s8",
        None,
        None,
    ),
}


def checked(spark: SparkSession, rows: DataFrame, context: BulkContext = GIVEN, target: str | None = None) -> DataFrame:
    columns = field_columns(rows, {}, FIELDS)
    parsed = parsed_rows(rows, columns, target, NOW).persist()
    return checked_rows(parsed, spark.createDataFrame(KNOWN, TARGETS), repeated_ids(parsed), context)


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> dict[str, Row]:
    """Returns each row of the two tables by name."""
    names = [*MISTAKES, *CORRECT]
    values = [row for _, row in MISTAKES.values()] + list(CORRECT.values())
    table = [(*row, name) for name, row in zip(names, values, strict=True)]
    found = checked(spark, spark.createDataFrame(table, f"{TEXTS}, partition string, name string")).collect()
    assert len(found) == len(table)
    return {row["row"]["name"]: row for row in found}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_its_reasons_and_no_others(judged: dict[str, Row], name: str) -> None:
    row = judged[name]
    expected = MISTAKES[name][0].split()
    assert (row["reasons"], len(row["details"])) == (expected, len(expected)), row


def test_a_detail_shows_durations_as_durations(judged: dict[str, Row]) -> None:
    assert judged["too far"]["details"] == ["due in up to 11d; the horizon is 10d"]


@pytest.mark.parametrize("name", CORRECT)
def test_a_valid_row_is_accepted_by_the_rules_and_the_parser(judged: dict[str, Row], name: str) -> None:
    assert judged[name]["reasons"] == [], judged[name]["details"]


_WINDOWS: list[tuple[str | None, str | None, list[str]]] = [
    ("15m", None, []),
    ("900000", "even", []),
    ("0", None, ["bad-window"]),
    ("soon", None, ["bad-window"]),
    ("549755813888", None, ["bad-window", "beyond-horizon"]),
    ("10d", None, ["beyond-horizon"]),
    ("15m", "odd", ["bad-spread"]),
    (None, "even", ["bad-spread"]),
]


@pytest.fixture(scope="module")
def windows(spark: SparkSession) -> DataFrame:
    """Returns a checked row for each of these windows; its id is the number of the window."""
    columns = "target string, at string, id string, window string, spread string"
    rows = [("orders", AT, str(number), *window) for number, (*window, _) in enumerate(_WINDOWS)]
    return checked(spark, spark.createDataFrame(rows, columns)).persist()


def test_each_window_has_its_reasons_and_no_others(windows: DataFrame) -> None:
    found = {int(row["id"]): row["reasons"] for row in windows.collect()}
    assert found == {number: reasons for number, (*_, reasons) in enumerate(_WINDOWS)}


def test_windows_are_those_of_the_client(windows: DataFrame) -> None:
    sound = windows.where("size(reasons) = 0")
    records = {int(row["key"]): row["headers"] for row in record_rows_of(sound, "requests", 7).collect()}
    assert records.keys() == {0, 1}
    for number, spread in ((0, None), (1, "even")):
        even: Literal["even"] | None = "even" if spread else None
        expected = RequestTopic("requests", partitions=7).schedule(
            "orders", None, at=_instant(AT), id=str(number), window=timedelta(minutes=15), spread=even
        )
        found = sorted((header["key"], _bytes(header["value"])) for header in records[number])
        assert found == sorted(expected.headers)


def _instant(epoch_ms: str) -> datetime:
    return datetime.fromtimestamp(int(epoch_ms) / 1_000, UTC)


def test_targets_that_do_not_exist_may_be_allowed(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("nowhere", AT, "1")], "target string, at string, id string")
    found = checked(spark, rows, replace(GIVEN, with_unknown_targets=True)).collect()
    assert found[0]["reasons"] == []


def test_records_are_those_of_the_client(spark: SparkSession) -> None:
    """The partition, key and headers are equal, and the records pass the client's check."""
    client = RequestTopic("requests", partitions=7)
    due = datetime.fromtimestamp(NOW / 1_000, UTC) + timedelta(minutes=1)
    pairs: list[tuple[str, bytes | None]] = [("a", b"\xff"), ("b", None), ("a", b"")]
    wide = "target string, key binary, value binary, headers array<struct<n:string,v:binary>>, at timestamp, id string"
    rows = [
        ("orders", b"k%d" % n if n % 3 else None, b"v" if n % 2 else None, pairs, due, f"id-ü-{n}" * (n % 5 + 1))
        for n in range(40)
    ]
    found = checked(spark, spark.createDataFrame(rows, wide))
    records = {bytes(row["key"]): row for row in record_rows_of(found, "requests", 7).collect()}
    for target, key, value, headers, at, id in rows:
        expected = client.schedule(target, value, key=key, headers=headers, at=at, id=id)
        row = records[id.encode()]
        got = (row["topic"], row["partition"], _bytes(row["key"]), _bytes(row["value"]))
        assert got == (expected.topic, expected.partition, expected.key, expected.value)
        sent = [(header["key"], _bytes(header["value"])) for header in row["headers"]]
        assert sorted(sent[3:]) == sorted(expected.headers[3:])
        assert sent[:3] == pairs


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def test_without_an_id_the_key_decides_the_partition(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(b"k", 5), (None, 5)], "key binary, delay int")
    found = checked(spark, rows, replace(GIVEN, with_ids=False), target="orders").where("size(reasons) = 0")
    expected = RequestTopic("requests", partitions=7).schedule("orders", b"", key=b"k", delay=timedelta(seconds=1))
    assert {(_bytes(row["key"]), row["partition"]) for row in record_rows_of(found, "requests", 7).collect()} == {
        (b"k", expected.partition),
        (None, None),
    }


def test_times_of_every_type_are_the_same_instant(spark: SparkSession) -> None:
    at = datetime.fromtimestamp(NOW / 1_000, UTC) + timedelta(microseconds=1)
    kinds = {"timestamp": at, "bigint": NOW + 1, "string": "2026-11-21T10:51:24.000001Z"}
    rows = spark.createDataFrame([tuple(kinds.values())], ", ".join(f"{kind} {kind}" for kind in kinds))
    for kind in kinds:
        assert parsed_rows(rows, {"at": kind}, "orders", NOW).collect()[0]["due_ms"] == NOW + 1, kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.withColumn("at", F.lit("2026-01-01").cast("timestamp_ntz")), "timestamp_ntz"),
        (lambda rows: rows.withColumn("value", F.lit(5)), "value is int"),
        (lambda rows: rows.withColumn("headers", F.lit(5)), "headers is int"),
        (lambda rows: rows.withColumn("delay", F.lit(1.5).cast("double")), "delay is double"),
    ],
)
def test_columns_with_ambiguous_types_are_refused(
    spark: SparkSession, change: Callable[[DataFrame], DataFrame], message: str
) -> None:
    rows = spark.createDataFrame([("orders", AT)], "target string, at string")
    with pytest.raises(JobUsageError, match=message):
        checked(spark, change(rows))


def test_a_field_has_the_column_of_its_name_or_the_mapped_one(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("orders", AT, "1")], "topic string, `due.at` string, id string")
    found = field_columns(rows, {"target": "topic", "at": "due.at"}, FIELDS)
    assert found == {"target": "topic", "at": "due.at", "id": "id"}
    assert parsed_rows(rows, found, None, NOW).collect()[0]["due_ms"] == int(AT)
    with pytest.raises(JobUsageError, match="Is topic meant"):
        field_columns(rows, {"target": "topics"}, FIELDS)


def test_requested_ids_are_those_of_schedule_requests(spark: SparkSession) -> None:
    history = RandomHistory(NOW)
    history.ask(1, ("postdate-topic", b"orders"), ("postdate-delay", b"1s"), ("postdate-id", b"a"))
    history.ask(2, ("postdate-action", b"cancel"), ("postdate-id", b"b"))
    history.ask(3, ("postdate-action", b"schedule"), ("postdate-topic", b"o"), ("postdate-id", b"c"))
    history.ask(4)
    found = requested_ids(spark.createDataFrame(history.requests, RECORDS)).collect()
    assert {bytes(row["id"]) for row in found} == {b"a", b"c"}


def test_slices_hold_every_record_once_with_the_earliest_first(spark: SparkSession) -> None:
    rows = spark.range(1_000).select(F.pmod("id", F.lit(50)).alias("due_ms"), F.xxhash64("id").alias("hash"), "id")
    ordered = rows.repartitionByRange(3, "due_ms", "hash").sortWithinPartitions("due_ms", "hash").persist()
    firsts = slice_firsts(ordered, 130)
    assert len(firsts) == 8
    slices = [
        ordered.where(is_between(first, firsts[n + 1] if n + 1 < len(firsts) else None)).collect()
        for n, first in enumerate(firsts)
    ]
    ordered.unpersist()
    assert [len(one) for one in slices] == [130] * 7 + [90]
    assert sorted(row["id"] for one in slices for row in one) == list(range(1_000))
    dues = [[row["due_ms"] for row in one] for one in slices]
    assert all(max(earlier) <= min(later) for earlier, later in pairwise(dues))


def test_load_is_reported_by_minute_and_drawn_without_gaps(spark: SparkSession) -> None:
    due = [(NOW + 60_000 * minute, 2, 100) for minute in (0, 0, 1, 300)]
    rows = spark.createDataFrame(due, "due_ms bigint, rows int, size_bytes int")
    load = gathered_load(rows)
    assert [(step.rows, step.size_bytes) for step in load.steps] == [(4, 200), (2, 100), (2, 100)]
    assert load.busiest is not None
    assert (load.busiest.rows, load.busiest.start_ms) == (4, NOW - NOW % 1_000)
    assert load_by(rows, DAY_MS).collect()[0]["rows"] == 8
    drawn = widened(load, 40)
    assert len(drawn.steps) <= 40
    assert (sum(step.rows for step in drawn.steps), drawn.step_ms) == (8, 15 * 60_000)
    assert load_lines(load)[0] == "load added, in steps of 15 min (UTC):"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"columns": {"topic": "t"}}, "topic is not a field"),
        ({"columns": {"target": "t"}, "target": "orders"}, "give only one"),
        ({"target": "a b"}, "a b"),
        ({"rate": 0}, "at least one"),
        ({"since_ms": 5}, "only-new"),
        ({"properties": {"acks": "1"}}, "acks"),
        ({"samples": -1}, "samples"),
    ],
)
def test_an_invalid_option_is_refused_by_name(more: dict[str, Any], message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        BulkOptions("b:1", **more)


def test_the_suffix_decides_the_format() -> None:
    assert Source.named("s3a://b/x.csv.gz", None, {}).form == "csv"
    assert Source.named("x.parquet/", None, {}).form == "parquet"
    assert Source.named("db.reminders", "table", {}).form == "table"
    with pytest.raises(JobUsageError, match="--format"):
        Source.named("reminders", None, {})
