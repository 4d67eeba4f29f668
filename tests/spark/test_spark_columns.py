"""The columns that read all records. Goal: the fast expression for usual rows gives the result of the general one.
Method: rows that take the fast path and rows that do not, compared with results of Python.
"""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.digests import EMPTY_HEADERS, message_headers
from postdate.spark.columns.expressions import natural
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.job.topic_reads import RECORDS, read_records
from postdate.spark.records.deliveries import delivered_messages
from postdate.spark.records.requests import parsed_origin, understood_rows
from postdate.wire.headers import Headers
from support.audits.written_records import kafka_row


def test_numbers_are_plain_digits(spark: SparkSession) -> None:
    sound = {"0": 0, "7": 7, "007": 7, "9223372036854775807": 2**63 - 1}
    others = ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "9223372036854775808", "00000000000000000001", "\u0661", "x"]
    rows = spark.createDataFrame([(text,) for text in [*sound, *others]], "text string")
    found = {row[0]: row[1] for row in rows.select("text", natural(F.col("text"))).collect()}
    assert found == {**sound, **dict.fromkeys(others)}


def test_only_origins_in_postdates_format_are_read(spark: SparkSession) -> None:
    sound = {"a/0/7": ("a", 0, 7), "a.b/2147483647/9223372036854775807": ("a.b", 2**31 - 1, 2**63 - 1)}
    beyond = {"a/9999999999/5": ("a", None, 5)}
    others = [
        "",
        "a",
        "a/1",
        "1/1",
        "a/1/2/3",
        "a/01/2",
        "a/1/02",
        "a/-1/2",
        "a/1/-2",
        "/1/2",
        "a//2",
        "a/1/ 2",
        "a/1/x",
    ]
    rows = spark.createDataFrame([(text,) for text in [*sound, *beyond, *others]], "text string")
    found = {row[0]: tuple(row[1]) for row in rows.select("text", parsed_origin(F.col("text"))).collect()}
    assert found == {**sound, **beyond, **dict.fromkeys(others, (None, None, None))}


def test_untouched_headers_are_found_wherever_postdates_headers_are(spark: SparkSession) -> None:
    ours, others = (
        ["postdate-topic", "Postdate-AT", "postdate-id", "postdate-x", "postdate-at"],
        ["a", "x-postdate-y", "b"],
    )
    choice = random.Random(13)
    lists = [[], ["a"], ["postdate-topic"], *([choice.choice(ours + others) for _ in range(n % 8)] for n in range(300))]
    lists += [[*others[:n], *ours[::2][:m]] for n in range(4) for m in range(4)]
    lists += [[*ours[::2][:m], *others[:n]] for n in range(4) for m in range(4)]
    values = [([(name, bytearray(name.encode())) for name in one],) for one in lists]
    rows = spark.createDataFrame(values, f"headers {EMPTY_HEADERS}")
    found = [[header["key"] for header in row[0]] for row in rows.select(message_headers(F.col("headers"))).collect()]
    assert found == [[name for name in one if not name.lower().startswith("postdate-")] for one in lists]


def test_headers_that_postdate_added_are_found_at_any_position(spark: SparkSession) -> None:
    """The last header of each name counts. A delivery has Postdate's headers at the end. A record of another producer
    has them anywhere, or has none."""
    choice = random.Random(17)
    names = ["postdate-origin", "postdate-due", "postdate-id", "Postdate-Origin", "postdate-x", "a", "x-postdate-due"]
    lists = [[choice.choice(names) for _ in range(n % 7)] for n in range(300)]
    lists += [[*before, *names[:count]] for before in ([], ["a"], ["a", "b"], ["postdate-id"]) for count in range(4)]
    values: list[Headers] = [[(name, _own_value(name, place)) for place, name in enumerate(one)] for one in lists]
    rows = [kafka_row("t", offset, 0, b"k", b"v", one) for offset, one in enumerate(values)]
    read = delivered_messages(spark.createDataFrame(rows, RECORDS), ["r"]).orderBy("record_offset").collect()
    for one, found in zip(values, read, strict=True):
        last = dict(one)
        others = [name for name, _ in one if not name.lower().startswith("postdate-")]
        origin, due = last.get("postdate-origin"), last.get("postdate-due")
        assert found["offset"] == (int(origin.split(b"/")[2]) if origin else None), one
        assert found["due_ms"] == (int(due) if due else None), one
        assert found["id"] == last.get("postdate-id"), one
        assert found["own_headers"] == ",".join(name for name, _ in one[len(others) :]), one
        assert [header["key"] for header in found["data"]] == others, one


def test_headers_of_a_request_are_found_at_any_position(spark: SparkSession) -> None:
    """The first header of each name counts, and a time only if there is just one. Most requests have a target, a time,
    perhaps an id; others have any headers, repeated or in other letter case."""
    choice = random.Random(19)
    usual = ["postdate-topic", "postdate-at", "postdate-id"]
    names = [*usual, "postdate-delay", "postdate-key", "postdate-partition", "postdate-grace", "Postdate-At", "a"]
    lists = [[choice.choice(names) for _ in range(n % 6)] for n in range(300)]
    lists += [[*before, *usual[:count], *more] for count in range(4) for before in ([], ["a"]) for more in ([], ["a"])]
    lists += [[*usual, more] for more in names] + [[more, *usual] for more in names]
    values: list[Headers] = [[(name, b"%d" % (100 + place)) for place, name in enumerate(one)] for one in lists]
    rows = [kafka_row("r", offset, 0, b"k", b"v", one) for offset, one in enumerate(values)]
    understood = understood_rows(spark.createDataFrame(rows, RECORDS), [])
    for one, found in zip(values, understood.orderBy("offset").collect(), strict=True):
        first = dict(reversed(one))
        times = [name for name, _ in one if name in ("postdate-at", "postdate-delay")]
        first_texts = {name: first.get(f"postdate-{name}") for name in ("topic", "id", "key", "partition", "grace")}
        assert found["target"] == (first_texts["topic"].decode() if first_texts["topic"] else None), one
        assert found["due_ms"] == (int(first[times[0]] or b"") if len(times) == 1 else None), one
        assert (found["id"], found["key"]) == (first_texts["id"], first_texts["key"] or b"k"), one
        assert found["partition_asked"] == (int(first_texts["partition"]) if first_texts["partition"] else None), one
        assert found["grace_ms"] == (int(first_texts["grace"]) if first_texts["grace"] else None), one
        assert (found["action"], found["own_key"]) == ("schedule", b"k"), one


def _own_value(name: str, place: int) -> bytes:
    return b"r/0/%d" % place if name.lower() == "postdate-origin" else b"%d" % (100 + place)


def test_reading_kafka_leaves_the_settings_of_the_session_unchanged(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.sources.useV1SourceList")
    span = Range("requests", TopicPartition("r", 0), 0, 0, 1, 1, False, -1)
    read = read_records(spark, [span], {"bootstrap.servers": "127.0.0.1:1"})
    assert spark.conf.get("spark.sql.sources.useV1SourceList") == before
    assert "RelationV2" in read._jdf.queryExecution().analyzed().toString()


def test_a_reader_waits_briefly_at_the_end_of_a_log_unless_its_settings_differ(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    real = DataFrameReader.option

    def option(self: DataFrameReader, key: str, value: str) -> DataFrameReader:
        given[key] = value
        return real(self, key, value)

    monkeypatch.setattr(DataFrameReader, "option", option)
    span = Range("requests", TopicPartition("r", 0), 0, 0, 1, 1, False, -1)
    read_records(spark, [span], {"bootstrap.servers": "127.0.0.1:1", "max.poll.records": "7"})
    assert (given["kafka.fetch.max.wait.ms"], given["kafka.max.poll.records"]) == ("20", "7")
    kept = spark.sparkContext.getConf().get("spark.kafka.consumer.fetchedData.cache.timeout")
    assert kept == "10s", "the rest of each poll would stay for minutes"
